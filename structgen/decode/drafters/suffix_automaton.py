"""A suffix automaton of token ids that grows by one token at a time: where did the end of this text occur before?

Each state stands for a set of subsequences that end at the same places; `length` is that of the longest of them. Adding
a token takes amortised constant time, and so does following a match along a text. Construction: Blumer et al. 1985,
"The smallest automaton recognizing the subwords of a text".
"""

from __future__ import annotations

from typing import NamedTuple

ROOT = 0

# How many of the longest ends of the text have their latest occurrence moved to the end of it.
_NUM_REFRESHED = 8


class Match(NamedTuple):
    """A subsequence that occurs in the text.

    Attributes:
        state: where the automaton stands after it.
        length: how many tokens it has.
    """

    state: int
    length: int


NO_MATCH = Match(ROOT, 0)


class SuffixAutomaton:
    """All subsequences of a growing text of token ids.

    Attributes:
        token_ids: the text.
    """

    def __init__(self) -> None:
        """Start with the empty text."""
        self.token_ids: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._end = [0]  # where an occurrence ends: the index behind its last token
        self._last = ROOT

    def append(self, token_id: int) -> None:
        """Add a token to the text."""
        self._refresh_ends()
        self.token_ids.append(token_id)
        new = self._add(self._length[self._last] + 1, {})
        at = self._last
        while at != -1 and token_id not in self._next[at]:
            self._next[at][token_id] = new
            at = self._link[at]
        self._link[new] = ROOT if at == -1 else self._suffix_after(at, token_id)
        self._last = new

    def follow(self, match: Match, token_id: int) -> Match:
        """Return the longest end of (match, token) that occurs in the text."""
        state, length = self._settled(*match)
        while state != ROOT and token_id not in self._next[state]:
            state = self._link[state]
            length = self._length[state]
        if token_id not in self._next[state]:
            return NO_MATCH
        return self._settled(self._next[state][token_id], length + 1)

    def after(self, match: Match) -> int:
        """Return the index of the token that followed the match somewhere; the length of the text if none did."""
        return self._end[self._settled(*match).state]

    def _refresh_ends(self) -> None:
        """Let the longest ends of the text point to the token that comes now: the latest is the better guess."""
        state = self._last
        for _ in range(_NUM_REFRESHED):
            if state <= ROOT:
                return
            self._end[state] = len(self.token_ids)
            state = self._link[state]

    def _settled(self, state: int, length: int) -> Match:
        """Return the match in the state that it belongs to by now: states are split as the text grows."""
        while state != ROOT and length <= self._length[self._link[state]]:
            state = self._link[state]
        return Match(state, length)

    def _suffix_after(self, at: int, token_id: int) -> int:
        """Return the state of the longest end of the text that occurred before, split off if it shares one."""
        target = self._next[at][token_id]
        if self._length[target] == self._length[at] + 1:
            return target
        clone = self._add(self._length[at] + 1, dict(self._next[target]))
        self._link[clone], self._end[clone] = self._link[target], self._end[target]
        self._link[target] = clone
        while at != -1 and self._next[at].get(token_id) == target:
            self._next[at][token_id] = clone
            at = self._link[at]
        return clone

    def _add(self, length: int, edges: dict[int, int]) -> int:
        self._next.append(edges)
        self._link.append(ROOT)
        self._length.append(length)
        self._end.append(len(self.token_ids))
        return len(self._next) - 1
