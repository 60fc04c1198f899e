"""Speculation control of one request: asks what is known of the route, and tells it what came of each round.

It also keeps what was drafted and not read until its turn in the text has come, which is how a drafter that is switched
off goes on being judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from structgen.decode.acceptance_estimates import Place
from structgen.decode.control import Offer, Round, Sibling
from structgen.decode.speculation_control import TRIAL_TOKENS, Outcome, RouteControl, Tried


class RequestControl:
    """What one request asks and tells: before each draft, during it, and after the pass."""

    def __init__(self, route: RouteControl, *, draws_by_itself: bool, most_branches: int = 0) -> None:
        """Begin with a request.

        Args:
            route: what is known of the route.
            draws_by_itself: whether tokens may be drafted with noise of their own, so that comparing them with the text
                does not say how good they are.
            most_branches: most siblings that one pass may read.
        """
        self.most_branches = most_branches
        self._siblings: Sequence[Sibling] = ()
        self._read_siblings: Sequence[Sibling] = ()
        self._route = route
        self._draws_by_itself = draws_by_itself
        # Whether this draft is read on trial, None where nobody asked.
        self._is_paid: bool | None = None
        self._places: Sequence[Place] = ()
        self._token_ids: Sequence[int] = ()
        self._num_read = 0
        self._num_rows = 1
        self._is_drawn = False
        self._declined: set[str] = set()
        # Tokens that were drafted and not read, until their turn in the text has come.
        self._waiting: list[tuple[Place, int]] = []
        self._num_before_waiting = 0
        self._is_prefill = True

    def start_round(self, num_rows: int) -> None:
        """Begin a draft."""
        self._places, self._token_ids, self._num_read = (), (), 0
        self._siblings = self._read_siblings = ()
        self._num_rows, self._is_drawn = num_rows, False
        self._declined = set()
        self._is_paid = None

    def wants(self, places: Sequence[Place], drafter: str) -> bool:
        """Say whether a drafter should add a token to the draft."""
        if len(places) >= self._route.max_draft_tokens:
            return False
        if self._route.wants(places, drafter, self._num_rows) or self._may_try(places, drafter):
            return True
        self._declined.add(drafter)
        return False

    def _may_try(self, places: Sequence[Place], drafter: str) -> bool:
        """Say whether a drafter may draft for what it teaches."""
        if not self._draws_by_itself:
            # One draft that waits for the text is enough to learn from.
            return not self._waiting and self._route.may_try(drafter)
        if self._is_paid is None:
            self._is_paid = self._route.pay_for_reading(self._num_rows)
        return self._is_paid and len(places) < TRIAL_TOKENS

    def keep(self, places: Sequence[Place], token_ids: Sequence[int], *, is_drawn: bool) -> int:
        """Return how many tokens of the draft the target should read; the others wait for the text.

        Args:
            places: of the whole draft.
            token_ids: its tokens.
            is_drawn: whether any of them was drawn with noise of its own.
        """
        self._places, self._token_ids, self._is_drawn = places, token_ids, is_drawn
        self._num_read = len(places) if is_drawn else self._route.keep(places, self._num_rows)
        return self._num_read

    def branch(self, siblings: Sequence[Sibling]) -> Sequence[Sibling]:
        """Return which siblings pay; all are compared with the text, read or not."""
        self._siblings = siblings
        self._read_siblings = self._route.branch(self._places[: self._num_read], siblings, self.most_branches)
        return self._read_siblings

    def offer(self) -> Offer | None:
        """Return what the tokens that were kept are worth; None if they were drawn with noise of their own."""
        return None if self._is_drawn else self._route.offer(self._places[: self._num_read], self._num_rows)

    def narrow(self, num_read: int) -> None:
        """Take note that no more than so many of them are read; the others wait for the text too."""
        self._num_read = min(self._num_read, num_read)

    def record(self, made: Round) -> None:
        """Take note of what the target made of the draft."""
        if not self._waiting:
            self._waiting = list(zip(self._places, self._token_ids, strict=True))[self._num_read :]
            self._num_before_waiting = self._num_read
        # Where a sibling was accepted there are draws past the end of what the chain says.
        compared = self._places[: min(self._num_read, made.num_draws, made.num_accepted + 1)]
        tried = [Tried(place, number < made.num_accepted) for number, place in enumerate(compared)]
        if made.num_accepted < self._num_before_waiting:
            self._waiting = []
        tried += self._arrived(made.token_ids[self._num_before_waiting :])
        self._num_before_waiting = 0
        tried += [
            Tried(place, made.token_ids[depth] == token_id)
            for depth, token_id, place in self._siblings
            if depth < len(made.token_ids) and depth <= made.num_accepted
        ]
        self._route.record(
            Outcome(
                places=self._places,
                siblings=[(one.place, one in self._read_siblings) for one in self._siblings],
                declined=self._declined,
                num_read=self._num_read,
                tried=tried,
                num_tokens=len(made.token_ids),
                width=made.width,
                num_rows=made.num_rows,
                draft_s=made.draft_s,
                verify_s=made.verify_s,
                is_prefill=self._is_prefill,
            )
        )
        self._is_prefill = False

    def _arrived(self, token_ids: Sequence[int]) -> list[Tried]:
        """Compare what waits with what the text got, up to the first difference."""
        tried = []
        for token_id in token_ids[: len(self._waiting)]:
            place, expected = self._waiting.pop(0)
            tried.append(Tried(place, token_id == expected))
            if token_id != expected:
                self._waiting = []
                break
        return tried
