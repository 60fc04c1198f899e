"""What decides about drafts, as the loop sees it: asked during every round, and told what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from structgen.decode.acceptance_estimates import Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What the target made of a draft.

    Attributes:
        num_accepted: tokens of it that became text.
        num_draws: draws that were made, one for each place that the text came to.
        token_ids: what the text got.
        draft_s: seconds of drafting by drafter.
        num_rows: tokens that the target read in its pass.
        verify_s: seconds of the pass.
    """

    num_accepted: int
    num_draws: int
    token_ids: Sequence[int]
    draft_s: Mapping[str, float]
    num_rows: int
    verify_s: float


class SpeculationControl(Protocol):
    """Decides for one request; what it knows may be shared by all requests of a route."""

    def start_round(self) -> None:
        """Begin a draft."""

    def wants(self, places: Sequence[Place], drafter: str) -> bool:
        """Say whether a drafter should add a token to the draft; asked before each one.

        Args:
            places: of the draft so far.
            drafter: who would go on.
        """

    def keep(self, places: Sequence[Place], token_ids: Sequence[int], *, is_drawn: bool) -> int:
        """Return how many tokens of the draft the target should read.

        Args:
            places: of the whole draft.
            token_ids: its tokens.
            is_drawn: whether any of them was drawn with noise of its own; then it is all of them.
        """

    def record(self, made: Round) -> None:
        """Take note of what the target made of the draft."""


@dataclass(frozen=True, slots=True)
class FixedControl:
    """Takes whatever is drafted, up to a length.

    Attributes:
        max_draft_tokens: most tokens of a draft; 0 drafts nothing.
    """

    max_draft_tokens: int

    def start_round(self) -> None:
        """Remember nothing."""

    def wants(self, places: Sequence[Place], drafter: str) -> bool:
        """Say whether there is room."""
        return len(places) < self.max_draft_tokens

    def keep(self, places: Sequence[Place], token_ids: Sequence[int], *, is_drawn: bool) -> int:
        """Keep everything."""
        return len(places)

    def record(self, made: Round) -> None:
        """Learn nothing."""
