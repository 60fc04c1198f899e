"""The drafter that remembers what followed a state: one table for all requests of an output type.

Keys are the states in which the same tokens are legal, with the token before, so what one object taught at a comma, a
closing quote or an enum serves the next object too. A token is drafted where it followed in more than half of the cases
seen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from structgen.config import check_count
from structgen.drafter import DraftRequest, DraftView

# Tokens that one place remembers; inside free text nearly every token is another one.
_MAX_FOLLOWERS = 8
# Once a place was seen so often its counts are halved, so that a change of habit is learnt.
_MAX_SEEN = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class StateTable:
    """Drafts what followed here before; costs no model.

    Attributes:
        max_states: how many places the table remembers, the oldest are forgotten first.
    """

    max_states: int = 16_384

    def __post_init__(self) -> None:
        """Check the size."""
        check_count("max_states", self.max_states)

    @property
    def name(self) -> str:
        """What reports call it."""
        return "StateTable"

    def start(self, request: DraftRequest) -> StateTableSession:
        """Begin with a request, on the table that its output type has."""
        return StateTableSession(
            request.memory.of(self, lambda: Followers(self.max_states)), request.prompt_token_ids[-1]
        )


class Likely(NamedTuple):
    """What followed a place.

    Attributes:
        token_id: the token.
        kind: whether it was seen there "once", "always" or "mostly"; of one among others, whether in more than a
            "third" or in more than an "eighth" of the cases.
    """

    token_id: int
    kind: str


class Followers:
    """How often which token followed where; safe to use from several threads."""

    def __init__(self, max_states: int) -> None:
        """Start empty."""
        self._max_states = max_states
        self._lock = threading.Lock()
        self._counts: OrderedDict[Hashable, dict[int, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many places are remembered."""
        return len(self._counts)

    def add(self, place: Hashable, token_id: int) -> None:
        """Count a token that followed."""
        with self._lock:
            counts = self._counts.setdefault(place, {})
            counts[token_id] = counts.get(token_id, 0) + 1
            if len(counts) > _MAX_FOLLOWERS:
                del counts[min(counts, key=lambda known: (counts[known], known == token_id))]
            if sum(counts.values()) > _MAX_SEEN:
                self._counts[place] = {known: count // 2 for known, count in counts.items() if count > 1}
            if len(self._counts) > self._max_states:
                self._counts.popitem(last=False)

    def likely(self, place: Hashable) -> Likely | None:
        """Return the token that followed in more than half of the cases, None if there is none."""
        with self._lock:
            counts = self._counts.get(place)
            if not counts:
                return None
            best, seen = max(counts, key=counts.__getitem__), sum(counts.values())
            if 2 * counts[best] <= seen:
                return None
            return Likely(best, "once" if seen == 1 else "always" if counts[best] == seen else "mostly")

    def known(self, place: Hashable) -> list[int]:
        """Return every token that is remembered there, the likeliest first."""
        with self._lock:
            counts = dict(self._counts.get(place, {}))
        return sorted(counts, key=lambda token_id: -counts[token_id])

    def others(self, place: Hashable) -> list[Likely]:
        """Return what else followed more than once, and in more than an eighth of the cases; the likeliest first."""
        with self._lock:
            counts = dict(self._counts.get(place, {}))
        seen = sum(counts.values())
        found = sorted((token for token, n in counts.items() if n > 1 and 8 * n > seen), key=lambda t: -counts[t])
        return [Likely(token, "third" if 3 * counts[token] > seen else "eighth") for token in found]


class StateTableSession:
    """Follows the table from state to state.

    Attributes:
        kind: how sure the token that was given last is: "once", "always" or "mostly".
    """

    def __init__(self, followers: Followers, last_token_id: int) -> None:
        """Use a table, after the last token of the prompt."""
        self._followers = followers
        self._last = last_token_id
        self.kind = "once"

    def propose(self, view: DraftView) -> Iterator[int]:
        """Yield what followed the state here, then what followed the next one, and so on."""
        last = view.drafted[-1] if view.drafted else self._last
        while (likely := self._followers.likely((view.state_key, last))) is not None:
            self.kind = likely.kind
            yield likely.token_id
            last = likely.token_id

    def others(self, view: DraftView) -> Iterator[int]:
        """Yield whatever followed the state here, the likeliest first."""
        last = view.drafted[-1] if view.drafted else self._last
        for likely in self._followers.others((view.state_key, last)):
            self.kind = likely.kind
            yield likely.token_id

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Count what followed."""
        self._followers.add((state_key, self._last), token_id)
        self._last = token_id

    def close(self) -> None:
        """Keep nothing more: what was seen is in the table."""
