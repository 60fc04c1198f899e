"""Drafts of a record, drafted again: drafter and control in one, so that a replay makes the passes of the run.

Passes over as many tokens as then give logits with the same last bits, whoever drafted. Tokens that were drawn with
noise of their own (mode "exact_ratio") are drawn again: there the script only says how far the draft went.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from structgen.decode.acceptance_estimates import Place
from structgen.decode.control import Round, Sibling
from structgen.drafter import DraftRequest, DraftView

NAME = "Script"


class Script:
    """The drafts of one run, in the order of its passes."""

    def __init__(self, drafts: Sequence[Sequence[int]]) -> None:
        """Take the drafts: token ids, and -1 - id for what was drawn with noise of its own."""
        self._drafts = drafts
        self._round = -1

    @property
    def name(self) -> str:
        """What reports call it."""
        return NAME

    def start(self, request: DraftRequest) -> Script:
        """Begin with the only request that it is for."""
        return self

    def propose(self, view: DraftView) -> Iterator[int]:
        """Yield what was drafted then."""
        yield from self._draft[len(view.drafted) :]

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Learn nothing."""

    def close(self) -> None:
        """Keep nothing."""

    def start_round(self, num_rows: int) -> None:
        """Go on to the next draft."""
        self._round += 1

    def wants(self, places: Sequence[Place], drafter: str) -> bool:
        """Say who comes next: the script, or whoever draws."""
        draft = self._draft
        return len(places) < len(draft) and (draft[len(places)] >= 0) == (drafter == NAME)

    def keep(self, places: Sequence[Place], token_ids: Sequence[int], *, is_drawn: bool) -> int:
        """Return all of them."""
        return len(places)

    @property
    def most_branches(self) -> int:
        """Return 0: a record tells of chains."""
        return 0

    def branch(self, siblings: Sequence[Sibling]) -> Sequence[Sibling]:
        """Take none."""
        return ()

    def offer(self) -> None:
        """Have nothing cut."""

    def narrow(self, num_read: int) -> None:
        """Learn nothing."""

    def record(self, made: Round) -> None:
        """Learn nothing."""

    @property
    def _draft(self) -> Sequence[int]:
        # A run that goes another way may take more passes.
        return self._drafts[self._round] if self._round < len(self._drafts) else ()
