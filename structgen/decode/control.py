"""What decides about drafts, as the loop sees it: asked during every round, and told what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from structgen.decode.acceptance_estimates import Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What the target made of a draft.

    Attributes:
        num_accepted: tokens of its chain that became text; a sibling that did is none of them.
        num_draws: draws that were made, one for each place that the text came to.
        token_ids: what the text got.
        draft_s: seconds of drafting by drafter.
        width: tokens that the target read of each row in its pass, padding included.
        verify_s: seconds of the pass, divided by its rows.
        num_rows: rows that took part in the pass.
    """

    num_accepted: int
    num_draws: int
    token_ids: Sequence[int]
    draft_s: Mapping[str, float]
    width: int
    verify_s: float
    num_rows: int = 1


@dataclass(frozen=True, slots=True)
class Offer:
    """What a draft is worth to a pass that several rows share, which is as wide as its widest row.

    Attributes:
        survivals: how likely each of its tokens becomes text.
        price: what the row's part of a pass costs in which each row reads so many drafted tokens, in tokens that could
            be had for it otherwise.
    """

    survivals: Sequence[float]
    price: Callable[[int], float]


class Sibling(NamedTuple):
    """A token that may come in the place of the one that a draft has.

    Attributes:
        depth: how many tokens of the draft come before it.
        token_id: the token.
        place: what is known of it.
    """

    depth: int
    token_id: int
    place: Place


class SpeculationControl(Protocol):
    """Decides for one request; what it knows may be shared by all requests of a route."""

    def start_round(self, num_rows: int) -> None:
        """Begin a draft.

        Args:
            num_rows: texts that share the passes at present.
        """

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

    @property
    def most_branches(self) -> int:
        """Most siblings that one pass may read; 0 where nobody has to look for any."""

    def branch(self, siblings: Sequence[Sibling]) -> Sequence[Sibling]:
        """Return which of these the target should read beside the draft that was kept.

        Args:
            siblings: what drafters know of, no token twice in one place.
        """

    def offer(self) -> Offer | None:
        """Return what is worth knowing of the draft that was kept before it is cut further; None if it must not be."""

    def narrow(self, num_read: int) -> None:
        """Take note that the target reads no more than the first so many tokens of what was kept."""

    def record(self, made: Round) -> None:
        """Take note of what the target made of the draft."""


@dataclass(frozen=True, slots=True)
class FixedControl:
    """Takes whatever is drafted, up to a length.

    Attributes:
        max_draft_tokens: most tokens of a draft; 0 drafts nothing.
        most_branches: most siblings beside them.
    """

    max_draft_tokens: int
    most_branches: int = 0

    def start_round(self, num_rows: int) -> None:
        """Remember nothing."""

    def wants(self, places: Sequence[Place], drafter: str) -> bool:
        """Say whether there is room."""
        return len(places) < self.max_draft_tokens

    def keep(self, places: Sequence[Place], token_ids: Sequence[int], *, is_drawn: bool) -> int:
        """Keep everything."""
        return len(places)

    def branch(self, siblings: Sequence[Sibling]) -> Sequence[Sibling]:
        """Take the first ones."""
        return siblings[: self.most_branches]

    def offer(self) -> None:
        """Have nothing cut."""

    def narrow(self, num_read: int) -> None:
        """Remember nothing."""

    def record(self, made: Round) -> None:
        """Learn nothing."""
