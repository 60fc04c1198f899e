"""The drafter of what is forced: the bytes that every legal text goes on with, in their canonical tokens.

A draft and no promise: the bytes are certain, but the model may cut them into other tokens, or take one that reaches
beyond them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from structgen.drafter import DraftRequest, DraftView


@dataclass(frozen=True, slots=True)
class ForcedRun:
    """Drafts the whole forced run; costs no model, needs no memory."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return "ForcedRun"

    def start(self, request: DraftRequest) -> ForcedRunSession:
        """Begin with a request, of which nothing needs to be known."""
        return ForcedRunSession()


class ForcedRunSession:
    """Asks the state."""

    def propose(self, view: DraftView) -> Iterable[int]:
        """Return the forced tokens."""
        return view.forced_tokens()

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Learn nothing."""

    def close(self) -> None:
        """Keep nothing."""
