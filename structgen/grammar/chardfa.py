"""Minimal DFAs over code points in canonical form, and the exact operations on their languages.

Surrogates are in no alphabet, so that a complement holds text that can be encoded and nothing else. Left out:
regular expressions (regex) and bytes (encode).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from structgen.errors import LimitError
from structgen.grammar.charset import FIRST_SURROGATE, LAST_SURROGATE, MAX_CODE_POINT, CharSet
from structgen.grammar.dfa import word_graph
from structgen.grammar.table import (
    DEAD,
    MAX_STATES,
    BoolArray,
    IntArray,
    check_size,
    column_classes,
    determinise,
    product,
    quotient,
    trim,
)


@dataclass(frozen=True, eq=False)
class CharDfa:
    """A minimal DFA over code points; make one with a class method or an operation. The start state is 0.

    Every state is reachable and can still accept, except that the empty language is one state that does not.
    Two are equal iff they accept the same texts.

    Attributes:
        boundaries: the first code point of each interval of code points that behave alike; ascending from 0.
        interval_class: (num_intervals,) int32, the column of `table` that an interval goes by.
        table: (num_states, num_classes) int32, the next state, -1 where no text goes on.
        accepts: (num_states,) bool.
        digest: SHA-256 of the canonical form; equality and hash go by it.
    """

    boundaries: tuple[int, ...]
    interval_class: IntArray
    table: IntArray
    accepts: BoolArray
    digest: bytes

    @classmethod
    def build(
        cls, boundaries: Sequence[int], delta: npt.ArrayLike, accepting: npt.ArrayLike, start: int = 0
    ) -> CharDfa:
        """Trim, minimise and number a DFA.

        Args:
            boundaries: the first code point of each interval, ascending from 0; steps on surrogates are dropped.
            delta: (num_states, len(boundaries)) ints, -1 for no step.
            accepting: (num_states,) bools.
            start: the start state in the numbering of the arguments.
        """
        starts = np.asarray(boundaries, dtype=np.int64)
        full = np.asarray(delta, dtype=np.int32).reshape(-1, len(starts))
        final = np.asarray(accepting, dtype=np.bool_)
        if len(starts) == 0 or starts[0] != 0 or (np.diff(starts) <= 0).any():
            raise ValueError("boundaries must ascend from 0")
        if final.shape != (len(full),):
            raise ValueError(f"delta {full.shape} and accepting {final.shape} do not fit")
        first, classes = column_classes(full)
        return _canonical(starts, classes, full[:, first], final, start)

    @classmethod
    def build_over_classes(
        cls, boundaries: Sequence[int], interval_class: Sequence[int], table: IntArray, accepting: npt.ArrayLike
    ) -> CharDfa:
        """Do as `build`, for the class of each interval and a (num_states, num_classes) table; the start is 0."""
        starts, classes = np.asarray(boundaries, dtype=np.int64), np.array(interval_class, dtype=np.int32)
        return _canonical(starts, classes, table, np.asarray(accepting, dtype=np.bool_))

    @classmethod
    def from_charset(cls, chars: CharSet) -> CharDfa:
        """Return the texts of one character of a set."""
        starts: list[int] = [0]
        inside: list[bool] = [False]
        for first, last in chars.ranges:
            if first == starts[-1]:
                inside[-1] = True
            else:
                starts.append(first)
                inside.append(True)
            starts.append(last + 1)
            inside.append(False)
        steps = np.where(np.array(inside), 1, DEAD)
        return cls.build(starts, np.stack([steps, np.full(len(steps), DEAD)]), [False, True])

    @classmethod
    def literal(cls, text: str) -> CharDfa:
        """Return the language of exactly this text."""
        return cls.from_words([text])

    @classmethod
    def from_words(cls, words: Iterable[str]) -> CharDfa:
        """Return a finite set of texts; one with a lone surrogate cannot be encoded and raises ValueError."""
        points = [[ord(char) for char in word] for word in words]
        rows, accepting, root = word_graph(points)
        alphabet = sorted({point for word in points for point in word})
        if any(FIRST_SURROGATE <= point <= LAST_SURROGATE for point in alphabet):
            raise ValueError("a word holds a lone surrogate, which is no text; remove it")
        column = {point: index for index, point in enumerate(alphabet)}
        table = np.full((len(rows), len(alphabet) + 1), DEAD, np.int32)
        for state, row in enumerate(rows):
            for point, target in row:
                table[state, column[point]] = target
        # Interval 2i is the gap below character i, which has the last, dead column; 2i + 1 is the character.
        starts = np.array([0, *(start for point in alphabet for start in (point, point + 1))], dtype=np.int64)
        classes = np.full(len(starts), len(alphabet), np.int32)
        classes[1::2] = np.arange(len(alphabet))
        distinct = np.append(np.diff(starts) > 0, True)
        return _canonical(starts[distinct], classes[distinct], table, np.array(accepting, dtype=np.bool_), root)

    @classmethod
    @lru_cache(maxsize=1)
    def any_text(cls) -> CharDfa:
        """Return every text."""
        return cls.build([0], [[0]], [True])

    @classmethod
    @lru_cache(maxsize=1)
    def epsilon(cls) -> CharDfa:
        """Return the language of the empty text alone."""
        return cls.build([0], [[DEAD]], [True])

    @classmethod
    @lru_cache(maxsize=1)
    def empty(cls) -> CharDfa:
        """Return the language without any text."""
        return cls.build([0], [[DEAD]], [False])

    @cached_property
    def delta(self) -> tuple[tuple[int, ...], ...]:
        """Return the next state by state and interval of `boundaries`, -1 where no text goes on."""
        return tuple(map(tuple, self.table[:, self.interval_class].tolist()))

    @cached_property
    def accepting(self) -> tuple[bool, ...]:
        """Return per state whether a text may end there."""
        return tuple(self.accepts.tolist())

    @property
    def num_states(self) -> int:
        """Return the number of states; 1 for the empty language."""
        return len(self.accepts)

    @property
    def is_empty(self) -> bool:
        """Tell whether no text at all is accepted."""
        return not bool(self.accepts.any())

    @property
    def accepts_empty(self) -> bool:
        """Tell whether the empty text is accepted."""
        return bool(self.accepts[0])

    def class_set(self, column: int) -> CharSet:
        """Return the code points that go by a column of `table`."""
        ends = [*self.boundaries[1:], MAX_CODE_POINT + 1]
        members = np.flatnonzero(self.interval_class == column).tolist()
        return CharSet.from_ranges((self.boundaries[index], ends[index] - 1) for index in members)

    def step(self, state: int, point: int) -> int:
        """Return the state after a code point, -1 where no text goes on."""
        return int(self.table[state, self.interval_class[bisect_right(self.boundaries, point) - 1]])

    def matches(self, text: str) -> bool:
        """Tell whether a text is accepted."""
        state = 0
        for char in text:
            state = self.step(state, ord(char))
            if state < 0:
                return False
        return bool(self.accepts[state])

    def union(self, other: CharDfa, *, max_states: int = MAX_STATES) -> CharDfa:
        """Return the texts of either."""
        starts, classes, left, right = _shared_classes(self, other)
        table, a, b = product(left, right, needs_first=False, needs_second=False, max_states=max_states)
        accepting = (self.accepts[a] & (a >= 0)) | (other.accepts[b] & (b >= 0))
        return _canonical(starts, classes, table, accepting)

    def intersection(self, other: CharDfa, *, max_states: int = MAX_STATES) -> CharDfa:
        """Return the texts of both."""
        starts, classes, left, right = _shared_classes(self, other)
        table, a, b = product(left, right, needs_first=True, needs_second=True, max_states=max_states)
        return _canonical(starts, classes, table, self.accepts[a] & other.accepts[b])

    def difference(self, other: CharDfa, *, max_states: int = MAX_STATES) -> CharDfa:
        """Return the texts that the other does not accept."""
        starts, classes, left, right = _shared_classes(self, other)
        table, a, b = product(left, right, needs_first=True, needs_second=False, max_states=max_states)
        return _canonical(starts, classes, table, self.accepts[a] & ~(other.accepts[b] & (b >= 0)))

    def complement(self) -> CharDfa:
        """Return every text that is not accepted."""
        return CharDfa.any_text().difference(self)

    def concatenation(self, other: CharDfa, *, max_states: int = MAX_STATES) -> CharDfa:
        """Return each text followed by a text of the other."""
        starts, classes, left, right = _shared_classes(self, other)
        offset = len(left)
        stacked = np.concatenate([left, np.where(right < 0, DEAD, right + offset)])
        jump = np.concatenate([np.where(self.accepts, offset, DEAD), np.full(len(right), DEAD)]).tolist()
        final = np.concatenate([np.zeros(offset, np.bool_), other.accepts])
        table, sets = determinise(stacked, jump, [0], max_states)
        return _canonical(starts, classes, table, _any_of(final, sets))

    def star(self, *, max_states: int = MAX_STATES) -> CharDfa:
        """Return any number of texts in a row, none included."""
        return self.repeat(0, None, max_states=max_states)

    def repeat(self, minimum: int, maximum: int | None, *, max_states: int = MAX_STATES) -> CharDfa:
        """Return minimum to maximum texts in a row (None: no bound)."""
        if minimum < 0 or (maximum is not None and maximum < minimum):
            raise ValueError(f"cannot repeat {minimum} to {maximum} times")
        if maximum == 0:
            return CharDfa.epsilon()
        copies = max(minimum, 1) if maximum is None else maximum
        size = self.num_states
        check_size(copies * size, max_states)
        tables = [np.where(self.table < 0, DEAD, self.table + copy * size) for copy in range(copies)]
        # The start is a state of its own: a copy of copy 0's start that may accept, which none steps back to.
        stacked = np.concatenate([*tables, tables[0][:1]])
        last_jump = DEAD if maximum is not None else (copies - 1) * size
        jump = np.full((copies, size), DEAD)
        for copy in range(copies):
            jump[copy, self.accepts] = (copy + 1) * size if copy + 1 < copies else last_jump
        final = np.zeros((copies, size), np.bool_)
        final[max(minimum, 1) - 1 :] = self.accepts
        table, sets = determinise(
            stacked.astype(np.int32), [*jump.ravel().tolist(), int(jump[0, 0])], [copies * size], max_states
        )
        accepting = _any_of(np.append(final.ravel(), minimum == 0 or bool(final[0, 0])), sets)
        return _canonical(self._starts, self.interval_class, table, accepting)

    def bounded(self, min_length: int, max_length: int | None, *, max_states: int = MAX_STATES) -> CharDfa:
        """Return the texts of min_length to max_length code points (None: no bound)."""
        if min_length < 0 or (max_length is not None and max_length < min_length):
            raise ValueError(f"no text has at least {min_length} and at most {max_length} code points")
        size, counts = self.num_states, (min_length if max_length is None else max_length) + 1
        check_size(counts * size, max_states)
        # State (count, q) is count * size + q. Without an upper bound the last count stands for itself and more.
        layers = [
            np.where(self.table < 0, DEAD, self.table + min(count + 1, counts - 1) * size) for count in range(counts)
        ]
        if max_length is not None:
            layers[-1] = np.full(self.table.shape, DEAD)
        accepting = np.zeros((counts, size), np.bool_)
        accepting[min_length:] = self.accepts
        table = np.concatenate(layers).astype(np.int32)
        return _canonical(self._starts, self.interval_class, table, accepting.ravel())

    @property
    def is_finite(self) -> bool:
        """Tell whether there are finitely many texts."""
        return self.max_length is not None or self.is_empty

    @cached_property
    def min_length(self) -> int | None:
        """Return the length of a shortest text in code points, None if there is none."""
        return None if self.is_empty else int(trim(self.table, self.accepts, 0)[2][0])

    @cached_property
    def max_length(self) -> int | None:
        """Return the length of a longest text in code points, None if there is no text or no bound."""
        order = self._bottom_up
        if order is None or self.is_empty:
            return None
        longest = [0] * self.num_states
        for state in order:
            longest[state] = max((1 + longest[below] for below in set(self.table[state].tolist()) - {DEAD}), default=0)
        return longest[0]

    @cached_property
    def num_words(self) -> int | None:
        """Return the exact number of texts, None if there are infinitely many."""
        order = self._bottom_up
        if order is None:
            return None
        sizes = [self.class_set(column).size for column in range(self.table.shape[1])]
        count = [0] * self.num_states
        for state in order:
            steps = zip(self.table[state].tolist(), sizes, strict=True)
            count[state] = int(self.accepts[state]) + sum(size * count[below] for below, size in steps if below >= 0)
        return count[0]

    def words(self, limit: int) -> list[str]:
        """Return all texts, in order of code points.

        Raises:
            LimitError: there are more than limit, or infinitely many.
        """
        number = self.num_words
        if number is None or number > limit:
            size = float("inf") if number is None else number
            raise LimitError("more texts than may be listed", limit="words", size=size)
        live: list[bool] = np.any(self.table >= 0, axis=0).tolist()
        chars = [[chr(point) for point in self.class_set(column)] if use else [] for column, use in enumerate(live)]
        found: list[str] = []
        stack = [(0, "")]
        while stack:
            state, text = stack.pop()
            if self.accepts[state]:
                found.append(text)
            row: list[int] = self.table[state].tolist()
            for members, below in zip(chars, row, strict=True):
                if below >= 0:
                    stack += [(below, text + char) for char in members]
        return sorted(found)

    @cached_property
    def _bottom_up(self) -> list[int] | None:
        """Return the states, each after all that it steps to; None if there is a cycle."""
        rows = [set(row) - {DEAD} for row in self.table.tolist()]
        waiting = [0] * self.num_states
        for row in rows:
            for below in row:
                waiting[below] += 1
        order = [state for state in range(self.num_states) if not waiting[state]]
        for state in order:
            for below in rows[state]:
                waiting[below] -= 1
                if not waiting[below]:
                    order.append(below)
        return order[::-1] if len(order) == self.num_states else None

    @property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.array(self.boundaries, dtype=np.int64)

    def __eq__(self, other: object) -> bool:
        """Compare languages, by digest."""
        return isinstance(other, CharDfa) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash by digest."""
        return hash(self.digest)

    def __repr__(self) -> str:
        """Show the size and the start of the digest."""
        return f"CharDfa(num_states={self.num_states}, digest={self.digest.hex()[:12]})"


def _any_of(final: BoolArray, sets: list[tuple[int, ...]]) -> BoolArray:
    accepting = set(np.flatnonzero(final).tolist())
    return np.array([not accepting.isdisjoint(states) for states in sets], dtype=np.bool_)


def _canonical(
    starts: npt.NDArray[np.int64], classes: IntArray, table: IntArray, accepting: BoolArray, start: int = 0
) -> CharDfa:
    """Bring (starts of intervals, column of each, table) to canonical form."""
    points = np.union1d(starts, [FIRST_SURROGATE, LAST_SURROGATE + 1])
    points = points[points <= MAX_CODE_POINT]
    column = classes[np.searchsorted(starts, points, side="right") - 1]
    # One dead column more, for surrogates, whatever the table says of their interval.
    table = np.concatenate([table, np.full((len(table), 1), DEAD, np.int32)], axis=1)
    column[points == FIRST_SURROGATE] = table.shape[1] - 1
    # Columns in the order of the code points, which decides the states' numbers; unused ones are dropped.
    used, first_use, place = np.unique(column, return_index=True, return_inverse=True)
    order = np.argsort(first_use)
    place = np.argsort(order)[place.reshape(-1)]
    table, states, distance = trim(table[:, used[order]], accepting, start)
    final = accepting[states]
    table, chosen = quotient(table, final, np.zeros((len(table), 1), np.bool_), distance)
    final = final[chosen]
    kept, merged = column_classes(table)
    table, column = np.ascontiguousarray(table[:, kept]), merged[place]
    changed = np.append(True, column[1:] != column[:-1])
    boundaries, column = tuple(points[changed].tolist()), np.ascontiguousarray(column[changed])
    form = sha256(len(table).to_bytes(4, "little"))
    for part in (np.array(boundaries, dtype=np.int64), column, table, final):
        form.update(part.tobytes())
    for array in (column, table, final):
        array.flags.writeable = False
    return CharDfa(boundaries, column, table, final, form.digest())


def _shared_classes(first: CharDfa, second: CharDfa) -> tuple[npt.NDArray[np.int64], IntArray, IntArray, IntArray]:
    """Return (starts of common intervals, class of each, both tables over these classes)."""
    starts = np.union1d(first._starts, second._starts)
    left = first.interval_class[np.searchsorted(first._starts, starts, side="right") - 1]
    right = second.interval_class[np.searchsorted(second._starts, starts, side="right") - 1]
    width = second.table.shape[1]
    pairs, classes = np.unique(left.astype(np.int64) * width + right, return_inverse=True)
    return starts, classes.astype(np.int32).reshape(-1), first.table[:, pairs // width], second.table[:, pairs % width]
