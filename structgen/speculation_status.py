"""What speculation control decided for a drafter, as a value that a dashboard shows, with the reason in words."""

from __future__ import annotations

from dataclasses import dataclass

# Trials under which an acceptance is called expected: what was expected beforehand counts as four of them, a tenth.
_FEW_TRIALS = 36


@dataclass(frozen=True, kw_only=True, slots=True)
class DrafterStatus:
    """What became of one drafter on one route lately.

    Attributes:
        acceptance: share of its tokens that become text, given that what was drafted before them does; estimated, an
            expectation where there were fewer than 36 trials.
        num_trials: tokens that were compared behind that; in the share older ones count less.
        needed: acceptance from which its drafts pay on this machine; above 1 if none is enough.
        read_share: share of its drafts that the target model read; the others were worth less than they cost.
        draft_tokens: tokens of it in a draft that was read.
        token_cost: cost of drafting one token, in passes of the target model over one token.
        has_drafted: whether it drafted anything.
        num_rows: rows in the passes lately, on average: the more there are, the fewer drafts pay.
        note: of a draft model, what memory it takes, also as tokens that the target could cache in it; else "".
    """

    acceptance: float
    num_trials: int
    needed: float
    read_share: float
    draft_tokens: float
    token_cost: float
    has_drafted: bool
    num_rows: int = 1
    note: str = ""

    @property
    def is_on(self) -> bool:
        """Whether most of its drafts are read."""
        return self.read_share >= 0.5

    @property
    def reason(self) -> str:
        """Why, in words."""
        if not self.has_drafted:
            return "has drafted nothing so far"
        accepted = f"{self.acceptance:.0%} of its tokens are accepted"
        if self.num_trials < _FEW_TRIALS:
            trials = "1 trial" if self.num_trials == 1 else f"{self.num_trials} trials"
            accepted = f"{self.acceptance:.0%} of its tokens are expected to be accepted, after {trials}"
        needed = f"{self.needed:.0%} are needed to pay by itself" if self.needed <= 1 else "not even all would pay"
        if self.num_rows > 1:
            needed += f" in passes of {self.num_rows} rows"
        if self.is_on:
            return f"on: {self.draft_tokens:.1f} tokens a draft, {accepted}, {needed}"
        if self.read_share > 0.05:
            return f"on where it pays, for {self.read_share:.0%} of its drafts: {accepted}, {needed}"
        return f"off: {accepted}, {needed}"
