"""JSON strings that decode to anything but a few words: what an object with open keys needs, one for each such object.

It is `encode.encode_json_string` of all texts without the words, made directly. Under each prefix of a word the
spelling of a string goes on as it does anywhere, but for the characters with which a word goes on, and the end where a
word ends; so a state is a state of the DFA of all strings with a few steps changed. Made from the ends of the words up,
with equal rows made once, the result is minimal as it stands: for 30 names 9 ms instead of 25 (737 states, one core).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.dfa import Dfa, word_graph
from structgen.grammar.encode import BACKSLASH, HEX, QUOTE, SHORT_ESCAPES, encode_json_string
from structgen.grammar.table import DEAD, MAX_STATES, check_size

Spelling = tuple[tuple[int, ...], ...]
"""The bytes that each position of a spelling may have."""
Ways = tuple[tuple[Spelling, int], ...]
"""Rests of spellings, and the state after each."""


def json_string_except(words: tuple[str, ...]) -> Dfa:
    """Return the JSON strings, both quotes included, that decode to none of the words.

    Args:
        words: without lone surrogates.

    Raises:
        LimitError: it has too many states.
    """
    everything = encode_json_string(CharDfa.any_text())
    rows = _Rows(everything)
    graph, ends_word, start = word_graph([[ord(character) for character in word] for word in words])
    state_of: list[int] = []
    # A node is numbered after those it leads to.
    for pairs, is_word in zip(graph, ends_word, strict=True):
        ways = tuple((spelling, state_of[target]) for point, target in pairs for spelling in _spellings(point))
        state_of.append(rows.changed(rows.inside, ways, is_word=is_word))
    begin = rows.begin(state_of[start])
    return rows.finish(begin)


class _Rows:
    """The states so far: those of the DFA of all strings, then the changed ones."""

    def __init__(self, everything: Dfa) -> None:
        self._base = everything
        self._num_base = everything.num_states
        self.inside = int(everything.delta[0, QUOTE])
        self._rows = list(everything.delta)
        self._ticks = list(everything.tick_bytes)
        self._number = {row.tobytes(): state for state, row in enumerate(everything.delta)}
        self._known: dict[tuple[int, Ways], int] = {}

    def changed(self, base: int, ways: Ways, *, is_word: bool = False) -> int:
        """Return the state that goes on as `base` does, but for the spellings of some characters and the end."""
        key = (base, ways)
        if not is_word and key in self._known:
            return self._known[key]
        row = self._base.delta[base].copy()
        if is_word:
            row[QUOTE] = DEAD
        by_byte: dict[int, list[tuple[Spelling, int]]] = {}
        for spelling, target in ways:
            for byte in spelling[0]:
                by_byte.setdefault(byte, []).append((spelling[1:], target))
        for byte, rest in by_byte.items():
            # No spelling begins another one, so what ends here is alone.
            row[byte] = rest[0][1] if not rest[0][0] else self.changed(int(self._base.delta[base, byte]), tuple(rest))
        state = self._state(row, base)
        if not is_word:
            self._known[key] = state
        return state

    def begin(self, inside: int) -> int:
        """Return the state before the opening quote."""
        row = self._base.delta[0].copy()
        row[QUOTE] = inside
        return self._state(row, 0)

    def _state(self, row: np.ndarray[tuple[int], np.dtype[np.int32]], base: int) -> int:
        # Steps that count are those out of states inside a string, whatever they lead to: equal rows count alike.
        state = self._number.setdefault(row.tobytes(), len(self._rows))
        if state == len(self._rows):
            check_size(state + 1, MAX_STATES)
            self._rows.append(row)
            self._ticks.append(self._base.tick_bytes[base] & (row >= 0))
        return state

    def finish(self, begin: int) -> Dfa:
        """Return the DFA from a state on."""
        accepting = np.zeros(len(self._rows), np.bool_)
        accepting[: self._num_base] = self._base.accepting
        return Dfa.of_minimal(np.stack(self._rows), accepting, np.stack(self._ticks), begin)


@lru_cache(maxsize=4096)
def _spellings(point: int) -> tuple[Spelling, ...]:
    """Return the ways to spell a character inside a JSON string."""
    found: list[Spelling] = []
    if point >= 0x20 and point not in (QUOTE, BACKSLASH):
        found.append(tuple((byte,) for byte in chr(point).encode()))
    if point in SHORT_ESCAPES:
        found.append(((BACKSLASH,), (ord(SHORT_ESCAPES[point]),)))
    units = chr(point).encode("utf-16-be")
    escaped: list[tuple[int, ...]] = []
    for at in range(0, len(units), 2):
        unit = units[at] << 8 | units[at + 1]
        escaped += [(BACKSLASH,), (ord("u"),), *(HEX[unit >> shift & 15] for shift in (12, 8, 4, 0))]
    return (*found, tuple(escaped))
