"""Minimal byte DFAs in canonical form, with counted steps, and the operations on them.

A `Dfa` is a value: two DFAs that are equal accept the same bytes and count the same steps, and two that `Dfa.build`
makes are equal if they do. Left out: anything about code points (chardfa), regular expressions (regex) and tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from structgen.grammar.table import (
    DEAD,
    BoolArray,
    IntArray,
    breadth_first,
    column_classes,
    determinise,
    product,
    quotient,
    trim,
)


@dataclass(frozen=True, eq=False, slots=True)
class Dfa:
    """A byte DFA; make one with `Dfa.build` or the functions of this module, and it is minimal.

    The start state is 0. Every state is reachable and can still accept, except that the empty language is
    one state that does not accept. States are numbered breadth-first in byte order. Arrays are read-only.
    What `other_words` makes has more states than the smallest one, in another order.

    Attributes:
        delta: (num_states, 256) int32, the next state, -1 where no word goes on.
        accepting: (num_states,) bool.
        tick_bytes: (num_states, 256) bool, True where this byte step begins a counted unit (a decoded code
            point of a JSON string or of text); False wherever delta is -1.
        digest: SHA-256 of what it was made of, mostly the canonical form; equality and hash go by it.
    """

    delta: IntArray
    accepting: BoolArray
    tick_bytes: BoolArray
    digest: bytes

    @classmethod
    def build(
        cls,
        delta: npt.ArrayLike,
        accepting: npt.ArrayLike,
        tick_bytes: npt.ArrayLike | None = None,
        start: int = 0,
    ) -> Dfa:
        """Trim, minimise and number a DFA.

        Args:
            delta: (num_states, 256) ints, -1 for no step.
            accepting: (num_states,) bools.
            tick_bytes: (num_states, 256) bools, None for no counted step.
            start: the start state in the numbering of the arguments.
        """
        full = np.ascontiguousarray(delta, dtype=np.int32).reshape(-1, 256)
        final = np.ascontiguousarray(accepting, dtype=np.bool_)
        ticks = np.zeros(full.shape, np.bool_) if tick_bytes is None else np.asarray(tick_bytes, dtype=np.bool_)
        if final.shape != (len(full),) or ticks.shape != full.shape:
            raise ValueError(f"delta {full.shape}, accepting {final.shape} and tick_bytes {ticks.shape} do not fit")
        # One column per distinct byte behaviour: a few dozen instead of 256, so that every later pass is short.
        first, byte_class = column_classes(full, ticks)
        return cls.build_over_classes(full[:, first], final, ticks[:, first], byte_class, start)

    @classmethod
    def build_over_classes(
        cls, table: IntArray, accepting: BoolArray, class_ticks: BoolArray, byte_class: IntArray, start: int = 0
    ) -> Dfa:
        """Do as `build`, for (num_states, num_classes) arrays and the class of each of the 256 bytes.

        Classes are numbered in the order of their first byte, as `column_classes` does.
        """
        table, states, distance = trim(table, accepting, start)
        class_ticks = class_ticks[states] & (table >= 0)
        table, chosen = quotient(table, accepting[states], class_ticks, distance)
        return _freeze(table, accepting[states][chosen], class_ticks[chosen], byte_class)

    @property
    def num_states(self) -> int:
        """Return the number of states; 1 for the empty language."""
        return len(self.accepting)

    @property
    def is_empty(self) -> bool:
        """Tell whether no word at all is accepted; every state can reach an accepting one, so one state says it."""
        return len(self.accepting) == 1 and not self.accepting[0]

    @property
    def accepts_empty(self) -> bool:
        """Tell whether the empty word is accepted."""
        return bool(self.accepting[0])

    def __eq__(self, other: object) -> bool:
        """Compare languages and counted steps, by digest."""
        return isinstance(other, Dfa) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash by digest."""
        return hash(self.digest)

    def __repr__(self) -> str:
        """Show the size and the start of the digest."""
        return f"Dfa(num_states={self.num_states}, digest={self.digest.hex()[:12]})"


def _freeze(table: IntArray, accepting: BoolArray, class_ticks: BoolArray, byte_class: IntArray) -> Dfa:
    """Spread the classes over the 256 bytes; states are minimal and numbered already."""
    # Classes may have become equal by trimming; the digest goes over those of the result.
    first, merged = column_classes(table, class_ticks)
    table, class_ticks = np.ascontiguousarray(table[:, first]), np.ascontiguousarray(class_ticks[:, first])
    return _spread(table, accepting, class_ticks, merged[byte_class])


def _spread(table: IntArray, accepting: BoolArray, class_ticks: BoolArray, byte_class: IntArray) -> Dfa:
    """Do as `_freeze` where no two classes behave alike."""
    form = sha256(len(table).to_bytes(4, "little"))
    for part in (byte_class, table, accepting, class_ticks):
        form.update(part.tobytes())
    delta = np.take(table, byte_class, axis=1)
    ticks = np.take(class_ticks, byte_class, axis=1)
    for array in (delta, accepting, ticks):
        array.flags.writeable = False
    return Dfa(delta, accepting, ticks, form.digest())


@lru_cache(maxsize=4096)
def literal(text: bytes) -> Dfa:
    """Return the DFA of exactly these bytes, without counted steps."""
    # A chain is minimal and numbered as it stands. Classes: one for each byte that occurs, one for all others.
    used = set(text)
    other = next((byte for byte in range(256) if byte not in used), None)
    members = sorted(used if other is None else {*used, other})
    byte_class = np.full(256, 0 if other is None else members.index(other), np.int32)
    byte_class[members] = np.arange(len(members))
    table = np.full((len(text) + 1, len(members)), DEAD, np.int32)
    steps = np.arange(len(text))
    table[steps, byte_class[np.frombuffer(text, np.uint8)]] = steps + 1
    accepting = np.zeros(len(text) + 1, np.bool_)
    accepting[-1] = True
    return _spread(table, accepting, np.zeros(table.shape, np.bool_), byte_class)


def empty() -> Dfa:
    """Return the DFA that accepts nothing."""
    return Dfa.build(np.full((1, 256), DEAD, np.int32), np.zeros(1, np.bool_))


def from_words(words: Iterable[bytes]) -> Dfa:
    """Return the DFA of a finite set of words, without counted steps."""
    rows, accepting, root = word_graph(words)
    steps = np.array([(state, *pair) for state, row in enumerate(rows) for pair in row], np.int32).reshape(-1, 3)
    used = np.full((1, 256), DEAD, np.int32)
    used[0, steps[:, 1]] = steps[:, 1]
    first, byte_class = column_classes(used)
    table = np.full((len(rows), len(first)), DEAD, np.int32)
    table[steps[:, 0], byte_class[steps[:, 1]]] = steps[:, 2]
    # The graph is minimal, and every state of it leads to a word: only its numbers are not those of a Dfa yet.
    table, order = breadth_first(table, root)
    return _freeze(table, np.array(accepting, np.bool_)[order], np.zeros(table.shape, np.bool_), byte_class)


def word_graph(words: Iterable[Sequence[int]]) -> tuple[list[tuple[tuple[int, int], ...]], list[bool], int]:
    """Build the minimal acyclic automaton of a finite set of words over ints.

    Words are taken in order, so that all but the states along the last one are known for good; after Daciuk, Mihov,
    Watson and Watson, "Incremental Construction of Minimal Acyclic Finite-State Automata" (2000), for sorted words.

    Returns:
        per state its (symbol, target) pairs in the order of symbols, per state whether it accepts, and the start.
    """
    known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
    # Of the states along the word before, from the start on: the pairs that are known, and whether they accept.
    pairs: list[list[tuple[int, int]]] = [[]]
    accepts = [False]
    before: Sequence[int] = ()

    def close(depth: int) -> None:
        for symbol in reversed(before[depth:]):
            key = (accepts.pop(), tuple(pairs.pop()))
            pairs[-1].append((symbol, known.setdefault(key, len(known))))

    for word in sorted(words):  # type: ignore[type-var]  # sequences of one kind, which have an order
        shared = 0
        for one, other in zip(before, word, strict=False):
            if one != other:
                break
            shared += 1
        close(shared)
        for _ in range(shared, len(word)):
            pairs.append([])
            accepts.append(False)
        accepts[-1] = True
        before = word
    close(0)
    root = known.setdefault((accepts[0], tuple(pairs[0])), len(known))
    return [steps for _, steps in known], [final for final, _ in known], root


def matches(dfa: Dfa, data: bytes) -> bool:
    """Tell whether the DFA accepts these bytes."""
    state = 0
    for byte in data:
        state = int(dfa.delta[state, byte])
        if state < 0:
            return False
    return bool(dfa.accepting[state])


def count_ticks(dfa: Dfa, data: bytes) -> int:
    """Count the counted units that these bytes begin; raise ValueError where no word goes on that way."""
    state, ticks = 0, 0
    for position, byte in enumerate(data):
        ticks += bool(dfa.tick_bytes[state, byte])
        state = int(dfa.delta[state, byte])
        if state < 0:
            raise ValueError(f"no accepted word begins with {data[: position + 1]!r}")
    return ticks


def union(first: Dfa, second: Dfa) -> Dfa:
    """Return the words of either; raise ValueError where one counts a step that the other does not."""
    left, right, byte_class = _shared_classes(first, second)
    table, a, b = product(left.table, right.table, needs_first=False, needs_second=False)
    ticks = _agreed_ticks([(left, a), (right, b)])
    accepting = (first.accepting[a] & (a >= 0)) | (second.accepting[b] & (b >= 0))
    return Dfa.build_over_classes(table, accepting, ticks, byte_class)


def intersection(first: Dfa, second: Dfa) -> Dfa:
    """Return the words of both; steps count as in the first."""
    left, right, byte_class = _shared_classes(first, second)
    table, a, b = product(left.table, right.table, needs_first=True, needs_second=True)
    accepting = first.accepting[a] & second.accepting[b]
    return Dfa.build_over_classes(table, accepting, left.ticks[a], byte_class)


def difference(first: Dfa, second: Dfa) -> Dfa:
    """Return the words of the first that are not words of the second; steps count as in the first."""
    left, right, byte_class = _shared_classes(first, second)
    table, a, b = product(left.table, right.table, needs_first=True, needs_second=False)
    accepting = first.accepting[a] & ~(second.accepting[b] & (b >= 0))
    return Dfa.build_over_classes(table, accepting, left.ticks[a], byte_class)


def concatenation(first: Dfa, second: Dfa) -> Dfa:
    """Return each word of the first followed by a word of the second.

    Raises:
        ValueError: a step counts on one way to split a text and not on another.
    """
    left, right, byte_class = _shared_classes(first, second)
    offset = len(left.table)
    stacked = np.concatenate([left.table, np.where(right.table < 0, DEAD, right.table + offset)])
    jump = np.concatenate([np.where(first.accepting, offset, DEAD), np.full(len(right.table), DEAD)]).tolist()
    table, sets = determinise(stacked, jump, [0])
    both = _Classes(stacked, np.concatenate([left.ticks, right.ticks]))
    members = np.full((len(sets), max(map(len, sets))), DEAD, np.int32)
    for row, states in enumerate(sets):
        members[row, : len(states)] = states
    ticks = _agreed_ticks([(both, column) for column in members.T])
    final = np.concatenate([np.zeros(offset, np.bool_), second.accepting])
    accepting = np.array([final[list(states)].any() for states in sets], dtype=np.bool_)
    return Dfa.build_over_classes(table, accepting, ticks, byte_class)


class _Classes(NamedTuple):
    """A DFA over byte classes that it shares with another."""

    table: IntArray
    ticks: BoolArray


def _shared_classes(first: Dfa, second: Dfa) -> tuple[_Classes, _Classes, IntArray]:
    """Return both over common byte classes, and the class of each byte."""
    columns, byte_class = column_classes(
        np.concatenate([first.delta, second.delta]), np.concatenate([first.tick_bytes, second.tick_bytes])
    )
    left = _Classes(first.delta[:, columns], first.tick_bytes[:, columns])
    right = _Classes(second.delta[:, columns], second.tick_bytes[:, columns])
    return left, right, byte_class


def _agreed_ticks(parts: list[tuple[_Classes, IntArray]]) -> BoolArray:
    """Return the counted steps of states made of parts (-1: no part); ValueError where live parts differ."""
    shape = (len(parts[0][1]), parts[0][0].table.shape[1])
    counted, uncounted = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for classes, states in parts:
        live = (classes.table[states] >= 0) & (states >= 0)[:, None]
        counted |= live & classes.ticks[states]
        uncounted |= live & ~classes.ticks[states]
    if (counted & uncounted).any():
        raise ValueError("one byte step would be counted by one operand and not by the other; count in neither or both")
    return counted
