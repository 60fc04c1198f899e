"""The drafter of what is forced: the bytes that every legal text goes on with, in their canonical tokens.

A draft and no promise: the bytes are certain, but the model may cut them into other tokens, or take one that reaches
beyond them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
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
    """Asks the state.

    Attributes:
        kind: "last" where the last token of a run was given, whose end the model may reach beyond, else "inside".
    """

    def __init__(self) -> None:
        """Begin."""
        self.kind = "inside"

    def propose(self, view: DraftView) -> Iterator[int]:
        """Yield the forced tokens."""
        token_ids = view.forced_tokens()
        for number, token_id in enumerate(token_ids, 1):
            self.kind = "last" if number == len(token_ids) else "inside"
            yield token_id

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Learn nothing."""

    def close(self) -> None:
        """Keep nothing."""
