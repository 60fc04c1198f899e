"""Speculation control that adapts: who drafts, how far, and how much of a draft the target reads.

The aim is tokens per second over many rounds. With the route's rate known, a second is worth `rate` tokens, so a draft
is cut where tokens it may win fall behind what the wider pass costs: the n is taken that maximises

    1 + (sum of the survivals of the first n drafted tokens) - rate * (seconds of a pass over 1 + n tokens)

where a survival is the product of the acceptances up to there. n = 0 is plain decoding, so it switches itself off.

In a batch the same is asked of a row's part of a pass, in which every row reads as much: there is less room for drafts,
the more rows there are. The rates of different numbers of rows are kept apart. What all rows then read together is cut
once more to one length (batch_loop.py), because the pass is as wide as its widest row.

What the target does not read still teaches: a named token that was cut is compared with the text when it gets there. So
a drafter that was switched off and becomes good is noticed for the price of its drafts, and these have a budget: a
share of the time of the route. Only drafts that are drawn with noise of their own (mode "exact_ratio") can be tried in
no other way than by reading them; they get the same budget.

Nothing here depends on what the target draws next, so no law changes. A draft that was drawn with noise of its own is
never cut once it is there, as its tokens would have a say in that; it is only ended, which its prefix decides.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from structgen.decode.acceptance_estimates import AcceptanceEstimates, Place
from structgen.decode.control import Offer, Sibling
from structgen.decode.pass_costs import PassCosts
from structgen.decode.speculation_model import best_length, break_even_acceptance
from structgen.speculation_status import DrafterStatus

_log = logging.getLogger("structgen")

# The share of a route's seconds that may go into drafts which are not expected to pay.
_TRIAL_SHARE = 0.01
TRIAL_TOKENS = 4
"""Tokens of a draft that is read on trial."""

# Rounds that the rate of a route, and what a draft costs, are averages of.
_RATE_ROUNDS = 64.0
_MAX_RATES = 64
_SECONDS_BETWEEN_WARNINGS = 600.0
# A draft may say that its tokens took up to so many times what was measured so far.
_MOST_SURPRISE = 4.0


class Tried(NamedTuple):
    """A drafted token that was compared with the text, all drafted before it having been what came.

    Attributes:
        place: what was known of it.
        accepted: whether it was what came.
    """

    place: Place
    accepted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a round.

    Attributes:
        places: of the whole draft.
        siblings: places of the siblings that drafters know of, and whether the target read each.
        declined: drafters that were not asked, because what they may draft was not worth it.
        num_read: how many of them the target read.
        tried: what was compared with the text.
        num_tokens: tokens that the text got.
        width: tokens that the target read of each row in its pass, padding included.
        num_rows: rows that took part in the pass.
        draft_s: seconds of drafting by drafter.
        verify_s: seconds of the pass, divided by its rows.
        is_prefill: whether the pass read the prompt as well, so that it says nothing of the others.
    """

    places: Sequence[Place]
    siblings: Sequence[tuple[Place, bool]]
    declined: Collection[str]
    num_read: int
    tried: Sequence[Tried]
    num_tokens: int
    width: int
    num_rows: int
    draft_s: Mapping[str, float]
    verify_s: float
    is_prefill: bool


@dataclass(slots=True)
class _Usage:
    """What a drafter does lately, as averages over rounds."""

    read_share: float = 0.0
    read_tokens: float = 0.0
    num_rounds: float = 0.0
    token_s: float = 0.0
    num_timed: float = 0.0

    def add_round(self, num_read: int) -> None:
        keep = 1.0 - 1.0 / _RATE_ROUNDS
        self.read_share = self.read_share * keep + (num_read > 0)
        self.read_tokens = self.read_tokens * keep + num_read
        self.num_rounds = self.num_rounds * keep + 1.0

    def add_seconds(self, seconds: float, num_tokens: int) -> None:
        keep = 1.0 - 1.0 / _RATE_ROUNDS
        if self.num_timed:
            # A draft model that was not asked for a while reads first what has come since.
            seconds = min(seconds, _MOST_SURPRISE * num_tokens * self.token_s / self.num_timed)
        self.token_s = self.token_s * keep + seconds
        self.num_timed = self.num_timed * keep + num_tokens


@dataclass(slots=True)
class _Rate:
    """Tokens and seconds of the rounds behind, of which older ones count less."""

    tokens: float = 0.0
    seconds: float = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        keep = 1.0 - 1.0 / _RATE_ROUNDS
        self.tokens = self.tokens * keep + tokens
        self.seconds = self.seconds * keep + seconds


@dataclass(slots=True)
class _Kept:
    """What is remembered of one drafter."""

    usage: _Usage = field(default_factory=_Usage)
    warned_at: float = -_SECONDS_BETWEEN_WARNINGS


class RouteControl:
    """What all requests of a route have measured together; safe to use from several threads."""

    def __init__(self, route: str, drafters: Sequence[str], costs: PassCosts, *, max_draft_tokens: int) -> None:
        """Start before the first request.

        Args:
            route: its name, for the log.
            drafters: names in the order in which they are asked.
            costs: those of the target model's passes; the control goes on measuring them.
            max_draft_tokens: most tokens of one draft.
        """
        self._route = route
        self._lock = threading.Lock()
        self._costs = costs
        self._estimates = AcceptanceEstimates()
        self._kept = {name: _Kept() for name in drafters}
        # By the number of rows in the passes.
        self._rates: OrderedDict[int, _Rate] = OrderedDict()
        # Rows of the passes lately, as an average over rounds.
        self._mean_rows = 0.0
        # Seconds that may be spent on trials; starts with enough to try everybody once.
        self._credit = 2.0 * costs.seconds(1)
        self.max_draft_tokens = max_draft_tokens

    def pay_for_reading(self, num_rows: int = 1) -> bool:
        """Say whether a draft may be read on trial in passes of so many rows, and pay for it."""
        with self._lock:
            dearest = max((self._token_s(name) for name in self._kept), default=0.0)
            wider = self._seconds(1 + TRIAL_TOKENS, num_rows) - self._seconds(1, num_rows)
            price = TRIAL_TOKENS * dearest + wider
            if self._credit < price:
                return False
            self._credit -= price
            return True

    def may_try(self, drafter: str) -> bool:
        """Say whether a drafter may draft for what the text will say of it; its seconds are paid afterwards."""
        with self._lock:
            return self._token_s(drafter) * self.max_draft_tokens < self._credit

    def wants(self, places: Sequence[Place], drafter: str, num_rows: int = 1) -> bool:
        """Say whether a token more of a drafter is worth more than what it costs, in passes of so many rows."""
        room = self.max_draft_tokens - len(places)
        with self._lock:
            token_s = self._token_s(drafter)
            survivals = self._survivals(places)
            rate = self._tokens_per_second(num_rows)
            kept = self._best_gain(survivals, rate, num_rows)
            survival, acceptance = (survivals or [1.0])[-1], self._estimates.mean(drafter)
            won = sum(survivals)
            for number in range(1, room + 1):
                survival *= acceptance
                won += survival
                price = self._seconds(1 + len(places) + number, num_rows) + number * token_s
                if won - rate * price > kept:
                    return True
            return False

    def keep(self, places: Sequence[Place], num_rows: int = 1) -> int:
        """Return how many tokens of a draft the target should read, in passes of so many rows that read as much."""
        with self._lock:
            rate = self._tokens_per_second(num_rows)
            return best_length([self._survivals(places)], lambda number: rate * self._seconds(1 + number, num_rows))

    def branch(self, places: Sequence[Place], siblings: Sequence[Sibling], most: int) -> list[Sibling]:
        """Return which siblings of a draft that is read are worth reading too, at most so many.

        Each is worth one token where its turn comes and it is what comes, and what it costs is a wider pass.
        """
        with self._lock:
            survivals = [1.0, *self._survivals(places)]
            worth = [survivals[one.depth] * self._estimates.of(one.place) for one in siblings]
            order = sorted(range(len(siblings)), key=lambda index: -worth[index])[:most]
            rate, width = self._tokens_per_second(1), 1 + len(places)
            number = best_length(
                [[worth[index] for index in order]], lambda number: rate * self._seconds(width + number, 1)
            )
            return [siblings[index] for index in order[:number]]

    def offer(self, places: Sequence[Place], num_rows: int) -> Offer:
        """Return what a draft is worth to a pass of so many rows."""
        with self._lock:
            rate = self._tokens_per_second(num_rows)
            return Offer(self._survivals(places), lambda number: rate * self._seconds(1 + number, num_rows))

    def record(self, outcome: Outcome) -> None:
        """Take note of a round."""
        places, num_read = outcome.places, outcome.num_read
        draft_s = sum(outcome.draft_s.values())
        seconds = draft_s + outcome.verify_s
        with self._lock:
            for name, kept in self._kept.items():
                proposed = sum(place.drafter == name for place in places)
                read = [is_read for place, is_read in outcome.siblings if place.drafter == name]
                if proposed or read or name in outcome.declined:
                    kept.usage.add_round(sum(read) + sum(place.drafter == name for place in places[:num_read]))
                if name in outcome.draft_s and not outcome.is_prefill:
                    # Nobody knows what a token would have taken that did not come; the attempt counts as one.
                    kept.usage.add_seconds(outcome.draft_s[name], max(proposed, 1))
            if not outcome.is_prefill:
                rows = outcome.num_rows
                self._mean_rows += (rows - self._mean_rows) / (_RATE_ROUNDS if self._mean_rows else 1.0)
                # Every row of a batch tells of the same pass.
                self._costs.record(rows * outcome.width, rows * outcome.verify_s, weight=1 / rows)
                self._rate_of(rows).add(outcome.num_tokens, seconds)
            unread = len(places) - num_read
            self._credit += _TRIAL_SHARE * seconds - (draft_s * unread / len(places) if unread else 0.0)
            # No more is saved up than a burst of trials may take, after hours of nothing new too; but always enough
            # to try the dearest drafter once.
            dearest = max((self._token_s(name) for name in self._kept), default=0.0)
            longest = self._costs.seconds(1 + self.max_draft_tokens)
            self._credit = min(self._credit, 2.0 * (longest + dearest * self.max_draft_tokens))
        self._record_tried(outcome.tried)

    def _record_tried(self, tried: Sequence[Tried]) -> None:
        """Take note of drafted tokens that were compared with the text; a drop below the baseline is logged."""
        warnings = []
        with self._lock:
            for one in tried:
                self._estimates.record(one.place, accepted=one.accepted)
            for name in {one.place.drafter for one in tried}:
                drop = self._estimates.take_drop(name)
                kept = self._kept.setdefault(name, _Kept())
                now = time.monotonic()
                if drop is not None and now - kept.warned_at >= _SECONDS_BETWEEN_WARNINGS:
                    kept.warned_at = now
                    warnings.append((name, drop))
        for name, drop in warnings:
            _log.warning(
                "route %s: %.0f%% of the tokens that %s drafts are accepted lately, and it was %.0f%%: prompts or "
                "answers are of another kind than before; model.metrics shows what became of it",
                self._route, 100 * drop.acceptance, name, 100 * drop.baseline,
            )  # fmt: skip

    def status(self) -> dict[str, DrafterStatus]:
        """Return what was decided for each drafter, and why."""
        with self._lock:
            return {name: self._status_of(name, kept.usage) for name, kept in self._kept.items()}

    def _status_of(self, name: str, usage: _Usage) -> DrafterStatus:
        token_s, num_rows = self._token_s(name), max(1, round(self._mean_rows))
        return DrafterStatus(
            acceptance=self._estimates.mean(name),
            num_trials=self._estimates.num_trials(name),
            needed=break_even_acceptance(
                lambda width: self._seconds(width, num_rows),
                token_s=token_s,
                tokens_per_second=self._tokens_per_second(num_rows),
                draft_tokens=self.max_draft_tokens,
            ),
            num_rows=num_rows,
            read_share=usage.read_share / usage.num_rounds if usage.num_rounds else 0.0,
            draft_tokens=usage.read_tokens / usage.read_share if usage.read_share else 0.0,
            token_cost=token_s / self._costs.seconds(1),
            has_drafted=usage.num_rounds > 0,
        )

    def _survivals(self, places: Sequence[Place]) -> list[float]:
        survivals, survival = [], 1.0
        for place in places:
            survival *= self._estimates.of(place)
            survivals.append(survival)
        return survivals

    def _best_gain(self, survivals: Sequence[float], rate: float, num_rows: int) -> float:
        """Return the most that reading a beginning of a draft is worth."""
        best, won = -rate * self._seconds(1, num_rows), 0.0
        for number, survival in enumerate(survivals, 1):
            won += survival
            best = max(best, won - rate * self._seconds(1 + number, num_rows))
        return best

    def _seconds(self, width: int, num_rows: int) -> float:
        """Return a row's part of a pass in which so many rows read as many tokens each."""
        return self._costs.seconds(num_rows * width) / num_rows

    def _tokens_per_second(self, num_rows: int) -> float:
        # Plain decoding is always to be had, so a second is never worth less.
        plain, rate = 1.0 / self._seconds(1, num_rows), self._rate_of(num_rows)
        return max(plain, rate.tokens / rate.seconds) if rate.seconds else plain

    def _rate_of(self, num_rows: int) -> _Rate:
        rate = self._rates.setdefault(num_rows, _Rate())
        self._rates.move_to_end(num_rows)
        if len(self._rates) > _MAX_RATES:
            self._rates.popitem(last=False)
        return rate

    def _token_s(self, name: str) -> float:
        kept = self._kept.get(name)
        if kept is None or kept.usage.num_timed == 0.0:
            return 0.0
        return kept.usage.token_s / kept.usage.num_timed
