"""Determinise an NFA with look-arounds, exactly, to a DFA over code points.

A thread is an NFA state with its obligations: look-aheads that were promised on the way and are still open, each a
sub-automaton, itself determinised, that must (or must not) match. A set of threads accepts if one of them does,
with all of its obligations kept. What lies before the place is the same for all threads: whether it is the start, which
looked-for sets the last character is in, and where each look-behind stands, run from the start of the text. That
is the context. So a state of the DFA is (set of threads, context); guards are decided when the next character is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

import numpy as np

from structgen.errors import LimitError
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.regex.nfa import CharGuard, EdgeGuard, Guard, LookGuard, Nfa
from structgen.grammar.regex.simulation import Simulation
from structgen.grammar.time_limit import check_time

Obligation = tuple[int, bool, int]
"""(sub-automaton, is_negative, its set of threads by number)."""

Obligations = frozenset[Obligation]
Thread = tuple[int, Obligations]
Context = tuple[int, tuple[int, ...]]
"""(mask of the looked-for sets that the last character is in, -1 at the start; the look-behinds' thread sets)."""

DEAD = -1
_AT_END = -1
_FREE: Obligations = frozenset()

PRUNING_STARTS_AT = 300
"""Number of sets of threads from which on they are made smaller; below, that costs more than it saves."""

MAX_PRUNED_THREADS = 64
"""Largest set of threads that is made smaller."""

MAX_WORK = 1_500_000
"""Most thread steps that one expression may take, about two seconds."""


class Machine:
    """The deterministic automaton of an NFA, made state by state."""

    def __init__(self, nfa: Nfa, description: str) -> None:
        """Sort the code points into classes that no set of the NFA tells apart.

        Args:
            nfa: what to determinise.
            description: names the construct to blame if a limit is passed.
        """
        self.nfa = nfa
        self.boundaries, self.interval_class, masks = _classes(nfa)
        self.num_classes = len(masks)
        self._description = description
        self._behind_mask = [_side_mask(mask, nfa.behind) for mask in masks]
        ahead = [_side_mask(mask, nfa.ahead) for mask in masks]
        self._simulation = Simulation(
            nfa, [[number for number, mask in enumerate(masks) if mask >> index & 1] for index in range(len(nfa.sets))]
        )
        # Per looked-ahead mask: per set, its classes of code points with that mask.
        self._readers = {
            side: [
                [number for number in range(len(masks)) if ahead[number] == side and masks[number] >> index & 1]
                for index in range(len(nfa.sets))
            ]
            for side in dict.fromkeys(ahead)
        }
        self._thread_sets: list[tuple[Thread, ...]] = []
        self._thread_set_number: dict[tuple[Thread, ...], int] = {}
        self._contexts: list[Context] = []
        self._context_number: dict[Context, int] = {}
        self._rows: dict[tuple[int, int, int], list[int]] = {}
        self._closures: dict[tuple[int, int, int, int], tuple[list[Thread], list[Obligations]]] = {}
        self._work = 0
        self._starts = [self._number([(part.start, _FREE)]) for part in nfa.parts]
        self._matched = [self._number([(part.final, _FREE)]) if part.is_tail_free else DEAD for part in nfa.parts]
        self._trackers = [number for number, part in enumerate(nfa.parts) if part.tracker >= 0]

    def to_chardfa(self, max_states: int) -> CharDfa:
        """Explore the automaton from its start; LimitError past max_states."""
        first = (self._starts[0], self._context((-1 if self.nfa.uses_start else 0, self._tracker_starts())))
        numbers = {first: 0}
        order = [first]
        table: list[list[int]] = []
        for threads, context in order:
            row = self._row(0, threads, context)
            contexts = self._next_contexts(context)
            steps: list[int] = []
            for number, below in enumerate(row):
                if below == DEAD:
                    steps.append(DEAD)
                    continue
                # Nothing that came before matters once the match is certain.
                target = (below, 0 if below == self._matched[0] else contexts[number])
                steps.append(numbers.setdefault(target, len(order)))
                if steps[-1] == len(order):
                    order.append(target)
            table.append(steps)
            if len(order) > max_states:
                raise self._limit_error(len(order), f"more than {max_states} states")
        accepting = [self._accepts(0, threads, context) for threads, context in order]
        delta = np.array([[*row, DEAD] for row in table], dtype=np.int32)
        return CharDfa.build(self.boundaries, delta[:, self.interval_class], accepting)

    def _limit_error(self, size: int, what: str) -> LimitError:
        return LimitError(
            f"the regular expression needs {what}, because of {self._description}; make it smaller or simpler",
            limit="states",
            size=size,
        )

    def _tracker_starts(self) -> tuple[int, ...]:
        return tuple(self._starts[part] for part in self._trackers)

    def _context(self, context: Context) -> int:
        number = self._context_number.setdefault(context, len(self._contexts))
        if number == len(self._contexts):
            self._contexts.append(context)
        return number

    def _next_contexts(self, context: int) -> list[int]:
        """Return the context after each class of characters."""
        _, trackers = self._contexts[context]
        rows = [self._row(part, threads, context) for part, threads in zip(self._trackers, trackers, strict=True)]
        return [
            self._context((self._behind_mask[number], tuple(row[number] for row in rows)))
            for number in range(self.num_classes)
        ]

    def _number(self, threads: Iterable[Thread]) -> int:
        key = tuple(sorted(threads, key=_thread_order))
        number = self._thread_set_number.setdefault(key, len(self._thread_sets))
        if number == len(self._thread_sets):
            self._thread_sets.append(key)
        return number

    def _row(self, part: int, threads: int, context: int) -> list[int]:
        """Return the set of threads after each class of characters, DEAD where none is left."""
        key = (part, threads, context)
        if key in self._rows:
            return self._rows[key]
        buckets: list[set[Thread]] = [set() for _ in range(self.num_classes)]
        for side, readers in self._readers.items():
            reading, _ = self._closure(part, threads, context, side)
            for state, obligations in reading:
                target = self.nfa.targets[state]
                members = readers[self.nfa.reads[state]]
                self._spend(len(members) * (1 + len(obligations)))
                for number in members:
                    kept = self._step(obligations, context, number) if obligations else _FREE
                    if kept is not None:
                        buckets[number].add((target, kept))
        row = self._rows[key] = [self._settle(part, bucket) if bucket else DEAD for bucket in buckets]
        return row

    def _settle(self, part: int, threads: set[Thread]) -> int:
        """Number a set of threads, without those that another makes needless."""
        if (self.nfa.parts[part].final, _FREE) in threads and self._matched[part] != DEAD:
            return self._matched[part]
        if any(obligations for _, obligations in threads):
            threads = self._undominated(threads)
        if len(self._thread_sets) > PRUNING_STARTS_AT and 1 < len(threads) <= MAX_PRUNED_THREADS:
            threads = self._strongest(threads)
        return self._number(threads)

    def _undominated(self, threads: set[Thread]) -> set[Thread]:
        """Leave out a thread where another in the same state promises less."""
        by_state: dict[int, list[Obligations]] = {}
        for state, obligations in threads:
            by_state.setdefault(state, []).append(obligations)
        self._spend(sum(len(group) ** 2 for group in by_state.values()))
        return {
            (state, obligations)
            for state, obligations in threads
            if not any(other < obligations for other in by_state[state])
        }

    def _strongest(self, threads: set[Thread]) -> set[Thread]:
        """Leave out a thread where another can do all that it can, and promises no more."""
        kept: list[Thread] = []
        for state, obligations in sorted(threads, key=_thread_order):
            if any(more <= obligations and self._simulation.covers(other, state) for other, more in kept):
                continue
            kept = [
                (other, more)
                for other, more in kept
                if not (obligations <= more and self._simulation.covers(state, other))
            ]
            kept.append((state, obligations))
        return set(kept)

    def _step(self, obligations: Obligations, context: int, number: int) -> Obligations | None:
        """Return what is still open after a character, None if an obligation is broken."""
        kept: set[Obligation] = set()
        for part, is_negative, threads in obligations:
            below = self._row(part, threads, context)[number]
            if below == (self._matched[part] if is_negative else DEAD):
                return None
            if below != (DEAD if is_negative else self._matched[part]):
                kept.add((part, is_negative, below))
        return frozenset(kept)

    def _accepts(self, part: int, threads: int, context: int) -> bool:
        """Tell whether a set of threads has matched if the text ends here."""
        _, finals = self._closure(part, threads, context, _AT_END)
        return any(
            all(self._accepts(inner, below, context) != is_negative for inner, is_negative, below in obligations)
            for obligations in finals
        )

    def _closure(self, part: int, threads: int, context: int, ahead: int) -> tuple[list[Thread], list[Obligations]]:
        """Follow jumps from a set of threads, as the next character allows.

        Args:
            part: the sub-automaton that the threads run in.
            threads: their number.
            context: what lies before, by number.
            ahead: mask of the looked-for sets that the next character is in, _AT_END for none.

        Returns:
            The threads that can read, and the obligations of those that have matched.
        """
        key = (part, threads, context, ahead)
        if key in self._closures:
            return self._closures[key]
        nfa, final = self.nfa, self.nfa.parts[part].final
        stack = list(self._thread_sets[threads])
        seen = set(stack)
        reading: list[Thread] = []
        finals: list[Obligations] = []
        while stack:
            thread = stack.pop()
            state, obligations = thread
            if nfa.reads[state] >= 0:
                reading.append(thread)
            if state == final:
                finals.append(obligations)
            for guard, target in nfa.jumps[state]:
                added = (_FREE,) if guard is None else self._decide(guard, context, ahead)
                for more in added:
                    found = (target, obligations | more if more else obligations)
                    if found not in seen:
                        seen.add(found)
                        stack.append(found)
        self._spend(len(seen))
        self._closures[key] = reading, finals
        return reading, finals

    def _decide(self, guard: Guard, context: int, ahead: int) -> Iterable[Obligations]:
        """Return the ways to pass a guard, each with what it promises; none if it is closed."""
        before, trackers = self._contexts[context]
        match guard:
            case EdgeGuard(is_start=is_start):
                return (_FREE,) if (before == -1 if is_start else ahead == _AT_END) else ()
            case CharGuard(mask=mask, is_behind=is_behind, is_negative=is_negative):
                seen = before if is_behind else ahead
                return (_FREE,) if (seen != -1 and bool(seen & mask)) != is_negative else ()
            case LookGuard(part=part, is_negative=is_negative):
                tracker = self.nfa.parts[part].tracker
                if tracker < 0:
                    return (frozenset([(part, is_negative, self._starts[part])]),)
                _, ways = self._closure(part, trackers[tracker], context, ahead)
                return self._broken(ways) if is_negative else ways

    def _broken(self, ways: list[Obligations]) -> list[Obligations]:
        """Return the ways in which every one of the given ways fails."""
        self._spend(prod(map(len, ways)))
        turned = [[(part, not is_negative, threads) for part, is_negative, threads in way] for way in ways]
        return [frozenset(choice) for choice in product(*turned)]

    def _spend(self, steps: int) -> None:
        self._work += steps
        check_time(f"the regular expression with {self._description}")
        if self._work > MAX_WORK:
            raise self._limit_error(self._work, "too many steps to build")


def _thread_order(thread: Thread) -> tuple[int, list[Obligation]]:
    return thread[0], sorted(thread[1])


def _side_mask(mask: int, side: list[int]) -> int:
    return sum(1 << position for position, index in enumerate(side) if mask >> index & 1)


def _classes(nfa: Nfa) -> tuple[list[int], np.ndarray, list[int]]:
    """Sort code points by the sets that hold them.

    Returns:
        The first code point of each interval, the class of each interval (-1 for surrogates, which are in no set),
        and per class the mask of the sets that hold it.
    """
    toggles: dict[int, int] = {0: 0}
    for index, charset in enumerate(nfa.sets):
        for first, last in charset.ranges:
            toggles[first] = toggles.get(first, 0) ^ (1 << index)
            toggles[last + 1] = toggles.get(last + 1, 0) ^ (1 << index)
    boundaries, members = [], []
    numbers: dict[int, int] = {0: -1}
    mask = 0
    for point in sorted(toggles):
        mask ^= toggles[point]
        if point <= 0x10FFFF:
            boundaries.append(point)
            members.append(numbers.setdefault(mask, len(numbers) - 1))
    return boundaries, np.array(members, dtype=np.int32), [known for known in numbers if known]
