"""How likely a drafted token is accepted, given that those before it were: counts that forget, and a prior.

Tokens are told apart by drafter and by kind, such as the inside of a forced run and its last token. A kind that was
seldom seen is estimated from its drafter as a whole: a drafter that is worse than expected at one kind is expected to
be worse at the others, by the same factor. Left out: what is done with the estimates (speculation_control.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

# Of forced runs measured on 1,030 documents: how often their tokens are what follows, inside of a run and at its end,
# where the model may take a token that reaches further. The others are guesses, which a few trials correct.
_PRIORS: Mapping[tuple[str, Hashable], float] = {
    ("ForcedRun", "inside"): 0.97,
    ("ForcedRun", "last"): 0.73,
    ("StateTable", None): 0.8,
    ("StateTable", "once"): 0.6,
    ("StateTable", "always"): 0.9,
    ("StateTable, others", "third"): 0.4,
    ("StateTable, others", "eighth"): 0.2,
    ("StateTable, others", None): 0.3,
    ("PromptLookup", None): 0.6,
    ("PromptLookup", 2): 0.4,  # by the bits of the length of the match: two or three tokens
    ("PromptLookup", 4): 0.75,
    ("PromptLookup", 5): 0.85,
    ("PromptLookup", 6): 0.9,
    ("DraftModel", None): 0.7,
}
_UNKNOWN_PRIOR = 0.5
_PRIOR_TRIALS = 4.0
# What lies this many trials back counts a third of what is new.
_MEMORY = 200.0
_MAX_KINDS = 64
# The rolling baseline that a drop is measured against, and what is compared with it.
_BASELINE_MEMORY = 1000.0
_RECENT_MEMORY = 40.0
_BASELINE_TRIALS = 200.0
_LEAST_DROP = 0.15


class Place(NamedTuple):
    """What is known of a drafted token before the target has read it.

    Attributes:
        drafter: name of who drafted it.
        kind: what kind of guess it is, None where the drafter knows no kinds.
    """

    drafter: str
    kind: Hashable = None


class Drop(NamedTuple):
    """An acceptance that has fallen below its rolling baseline.

    Attributes:
        acceptance: of the last trials.
        baseline: what it was before.
    """

    acceptance: float
    baseline: float


@dataclass(slots=True)
class _Counts:
    """Trials and successes, of which older ones count less."""

    memory: float
    trials: float = 0.0
    successes: float = 0.0

    def add(self, *, accepted: bool) -> None:
        keep = 1.0 - 1.0 / self.memory
        self.trials = self.trials * keep + 1.0
        self.successes = self.successes * keep + accepted

    def mean(self, prior: float) -> float:
        return (self.successes + prior * _PRIOR_TRIALS) / (self.trials + _PRIOR_TRIALS)


class _DrafterCounts:
    """The counts of one drafter."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_trials = 0
        self.whole = _Counts(_MEMORY)
        # What the priors of the kinds seen would have made of the same trials.
        self.expected = _Counts(_MEMORY)
        self.kinds: OrderedDict[Hashable, _Counts] = OrderedDict()
        self.recent = _Counts(_RECENT_MEMORY)
        self.baseline = _Counts(_BASELINE_MEMORY)

    def prior(self, kind: Hashable) -> float:
        general = _PRIORS.get((self.name, None), _UNKNOWN_PRIOR)
        own = _PRIORS.get((self.name, kind), general)
        # By which factor the drafter differs from what was expected of it.
        factor = (self.whole.successes + own * _PRIOR_TRIALS) / (self.expected.successes + own * _PRIOR_TRIALS)
        return min(1.0, own * factor)

    def estimate(self, kind: Hashable) -> float:
        counts = self.kinds.get(kind)
        prior = self.prior(kind)
        return prior if counts is None else counts.mean(prior)

    def mean(self) -> float:
        return self.whole.mean(_PRIORS.get((self.name, None), _PRIORS.get((self.name, "inside"), _UNKNOWN_PRIOR)))

    def add(self, kind: Hashable, *, accepted: bool) -> None:
        own = _PRIORS.get((self.name, kind), _PRIORS.get((self.name, None), _UNKNOWN_PRIOR))
        self.num_trials += 1
        self.whole.add(accepted=accepted)
        self.expected.trials = self.expected.trials * (1 - 1 / _MEMORY) + 1
        self.expected.successes = self.expected.successes * (1 - 1 / _MEMORY) + own
        self.kinds.setdefault(kind, _Counts(_MEMORY)).add(accepted=accepted)
        self.kinds.move_to_end(kind)
        if len(self.kinds) > _MAX_KINDS:
            self.kinds.popitem(last=False)
        self.recent.add(accepted=accepted)
        self.baseline.add(accepted=accepted)

    def take_drop(self) -> Drop | None:
        if self.baseline.trials < _BASELINE_TRIALS or self.recent.trials < _RECENT_MEMORY / 2:
            return None
        now = self.recent.successes / self.recent.trials
        before = self.baseline.successes / self.baseline.trials
        # Four standard deviations of what so few trials vary by themselves.
        noise = 4.0 * (max(before * (1 - before), 0.01) / self.recent.trials) ** 0.5
        if before - now <= max(_LEAST_DROP, noise):
            return None
        # Told once: what comes from now on is held against what is new.
        self.baseline = _Counts(_BASELINE_MEMORY)
        return Drop(now, before)


class AcceptanceEstimates:
    """The estimates of one route; not safe for threads by itself, its owner holds a lock."""

    def __init__(self) -> None:
        """Start from what is known of drafters in general."""
        self._drafters: dict[str, _DrafterCounts] = {}

    def of(self, place: Place) -> float:
        """Return how likely the token of a place is accepted, given that those before it were."""
        return self._counts(place.drafter).estimate(place.kind)

    def mean(self, drafter: str) -> float:
        """Return the same for whatever a drafter drafts."""
        return self._counts(drafter).mean()

    def num_trials(self, drafter: str) -> int:
        """Return how many tokens of a drafter were compared, old ones and new ones."""
        return self._counts(drafter).num_trials

    def record(self, place: Place, *, accepted: bool) -> None:
        """Take note of a token that was compared, all before it having been accepted."""
        self._counts(place.drafter).add(place.kind, accepted=accepted)

    def take_drop(self, drafter: str) -> Drop | None:
        """Say once that the last trials of a drafter lie well below those before; None if they do not."""
        return self._counts(drafter).take_drop()

    def _counts(self, drafter: str) -> _DrafterCounts:
        return self._drafters.setdefault(drafter, _DrafterCounts(drafter))
