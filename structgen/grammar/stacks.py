"""Stack sets: the LR stacks of all parses that wait for the same terminal to end, as one interned value.

Stack sets are determinised by the top frame and hash-consed, so equal sets of parses are equal numbers, and a
language of bounded depth has finitely many. Which texts lead to them is the parser's (parser.py).

Sources: Tomita 1987 (graph-structured stacks); Knuth 1965 (LR(0)).
All methods that may grow the tables are called under the lock of the token automaton. What is numbered is whole before
its number is known: whoever is interrupted on the way leaves at most a number that nobody uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from structgen.errors import LimitError
from structgen.grammar.lr import LrState, LrTable
from structgen.grammar.productions import Productions

Entry = tuple[int, int]
"""(frame, stack set below it)."""

BOTTOM = 0

_DEPTH_TO_FINISH = 10_000
"""How much deeper the shortest way to an end may go; a grammar that needs more is refused when it gets there."""


@dataclass(eq=False, slots=True)
class Follow:
    """What may come once a stack set's terminal is complete; what it takes to go on with one terminal is made later.

    Attributes:
        tops: the top entries that wait for terminals, with the shifts of their LR states.
        terminals: the terminals that may come, ascending.
        is_accepting: whether the text may end.
        shifted: terminal -> the stack set under it, filled by `Parser.shift`.
        waiting: terminal -> (LR state after it, top entry), filled by `Parser.shift` where there are several tops.
    """

    tops: list[tuple[dict[int, int], Entry]]
    terminals: Collection[int]
    is_accepting: bool
    shifted: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, list[tuple[int, Entry]]] = field(default_factory=dict)


class StackSets:
    """The stack sets of one grammar, interned as they are met."""

    def __init__(self, productions: Productions, *, max_depth: int, window: int) -> None:
        """Start with the empty stack only.

        Args:
            productions: the grammar.
            max_depth: a stack of more frames is *deep*: rows then only offer what leads to the end.
            window: no token makes any counter grow by more than this.
        """
        self.productions = productions
        self.table = LrTable(productions)
        self.max_depth = max_depth
        self.window = window
        self.frames: list[tuple[int, int]] = []
        self.frame_repeat: list[tuple[int, int | None] | None] = []
        self._frame_number: dict[tuple[int, int], int] = {}
        self.stacks: list[tuple[Entry, ...]] = [()]
        self._stack_number: dict[tuple[Entry, ...], int] = {(): BOTTOM}
        self._stack_depth: list[int] = [0]
        self._unions: dict[tuple[int, int], int] = {}
        self._gotos: dict[tuple[int, int, int], int | None] = {}
        self._follows: dict[int, Follow] = {}

    def intern_frame(self, frame: tuple[int, int], bounds: tuple[int, int | None] | None) -> int:
        """Return the number of a frame (LR state, count)."""
        number = self._frame_number.get(frame)
        if number is None:
            number = len(self.frame_repeat)
            self.frames[number:] = [frame]
            self.frame_repeat.append(bounds)
            self._frame_number[frame] = number
        return number

    def intern_stack(self, below: dict[int, list[int]]) -> int:
        """Return the stack set with these top frames, each on the union of the given stack sets."""
        entries = tuple(sorted((frame, self.union(sets)) for frame, sets in below.items()))
        return self._intern_entries(entries)

    def _intern_entries(self, entries: tuple[Entry, ...]) -> int:
        number = self._stack_number.get(entries)
        if number is None:
            if len(entries) == 1:
                depth = 1 + self._stack_depth[entries[0][1]]
            else:
                depth = 1 + max((self._stack_depth[below] for _, below in entries), default=-1)
            if depth > self.max_depth + _DEPTH_TO_FINISH:
                raise LimitError(
                    "the shortest way to end this text is nested too deeply; raise Limits.depth", "depth", depth
                )
            number = len(self._stack_depth)
            self.stacks[number:] = [entries]
            self._stack_depth.append(depth)
            self._stack_number[entries] = number
        return number

    def depth(self, stack: int) -> int:
        """Return how many frames a stack set has at the most."""
        return self._stack_depth[stack]

    def is_deep(self, stack: int) -> bool:
        """Return whether a stack set is nested beyond the limit."""
        return self._stack_depth[stack] > self.max_depth

    def any_near_deep(self, stacks: Iterable[int]) -> bool:
        """Return whether one token may lead from some stack set to a deep one: each byte adds a frame at the most."""
        depth, most = self._stack_depth, self.max_depth - self.window
        return any(depth[stack] > most for stack in stacks)

    def union(self, sets: Iterable[int]) -> int:
        """Return the union of stack sets."""
        first, *rest = dict.fromkeys(sets)
        for other in rest:
            first = self.union_of_two(first, other)
        return first

    def union_of_two(self, one: int, two: int) -> int:
        """Return the union of two stack sets."""
        todo = [(one, two)]
        while todo:
            key = todo[-1]
            left, right = dict(self.stacks[key[0]]), dict(self.stacks[key[1]])
            deeper = [(left[frame], right[frame]) for frame in left if frame in right]
            missing = [pair for pair in deeper if self._known_union(*pair) is None]
            if missing:
                todo.extend(missing)
                continue
            todo.pop()
            if self._known_union(*key) is None:
                merged = {**left, **right}
                for frame in left.keys() & right.keys():
                    pair = (min(left[frame], right[frame]), max(left[frame], right[frame]))
                    merged[frame] = pair[0] if pair[0] == pair[1] else self._unions[pair]
                self._unions[min(key), max(key)] = self._intern_entries(tuple(sorted(merged.items())))
        result = self._known_union(one, two)
        return one if result is None else result

    def _known_union(self, one: int, two: int) -> int | None:
        return one if one == two else self._unions.get((min(one, two), max(one, two)))

    def ancestors(self, below: int, num_frames: int) -> list[Entry]:
        """Return the entries that come up when num_frames more frames are popped from a stack set."""
        if not num_frames:
            return list(self.stacks[below])
        level = {below}
        for _ in range(num_frames):
            level = {deeper for one in level for _, deeper in self.stacks[one]}
        return [entry for one in level for entry in self.stacks[one]]

    def goto_entry(self, under: Entry, head: int, count: int) -> Entry | None:
        """Return the top entry after reducing to a nonterminal above this entry, or None if its count forbids it."""
        key = (self.frames[under[0]][0], head, count)
        if key in self._gotos:
            number = self._gotos[key]
        else:
            frame = self.table.goto(*key)
            number = None if frame is None else self.intern_frame(frame, self.productions.repeats.get(head))
            self._gotos[key] = number
        return None if number is None else (number, self._intern_entries((under,)))

    # ------------------------------------------------------------------ one terminal is complete

    def follow(self, stack: int) -> Follow:
        """Return what may come once a stack set's terminal is complete."""
        known = self._follows.get(stack)
        if known is None:
            entries = self.stacks[stack]
            if len(entries) == 1 and not self._state_of(entries[0]).reduces:
                known = self._follows[stack] = self.follow_of(entries)
                return known
            tops = dict.fromkeys(entries)
            todo = list(tops)
            while todo:
                top = todo.pop()
                reduces = self._state_of(top).reduces
                if reduces:
                    for entry in self._reduced(top, reduces):
                        if entry not in tops:
                            tops[entry] = None
                            todo.append(entry)
            known = self._follows[stack] = self.follow_of(tops)
        return known

    def _state_of(self, entry: Entry) -> LrState:
        number = self.frames[entry[0]][0]
        return self.table.states[number] or self.table.state(number)

    def shift(self, follow: Follow, terminal: int) -> int:
        """Return the stack set under a terminal that may come."""
        known = follow.shifted.get(terminal)
        if known is None:
            known = follow.shifted[terminal] = self._shift(follow, terminal)
        return known

    def _shift(self, follow: Follow, terminal: int) -> int:
        if len(follow.tops) == 1:
            ((shifts, top),) = follow.tops
            waiting = [(shifts[terminal], top)]
        else:
            if not follow.waiting:
                by_terminal: dict[int, list[tuple[int, Entry]]] = {}
                for shifts, top in follow.tops:
                    for one, target in shifts.items():
                        by_terminal.setdefault(one, []).append((target, top))
                follow.waiting = by_terminal
            waiting = follow.waiting[terminal]
        if len(waiting) == 1:
            ((target, top),) = waiting
            return self._intern_entries(((self.intern_frame((target, 0), None), self._intern_entries((top,))),))
        by_frame: dict[int, dict[int, list[int]]] = {}
        for target, (frame, below) in waiting:
            by_frame.setdefault(self.intern_frame((target, 0), None), {}).setdefault(frame, []).append(below)
        return self.intern_stack({frame: [self.intern_stack(below)] for frame, below in by_frame.items()})

    def follow_of(self, tops: Iterable[Entry]) -> Follow:
        """Return what may come where these top entries wait."""
        waiting = []
        accepting = False
        for entry in tops:
            state = self._state_of(entry)
            accepting = accepting or state.is_accepting
            if state.shifts:
                waiting.append((state.shifts, entry))
        if len(waiting) == 1:
            terminals: Collection[int] = waiting[0][0]
        else:
            terminals = sorted({terminal for shifts, _ in waiting for terminal in shifts})
        return Follow(waiting, terminals, accepting)

    def _reduced(self, top: Entry, reduces: Iterable[tuple[int, int]]) -> Iterable[Entry]:
        """Yield the top entries that complete productions (head, number of symbols) of this top entry lead to."""
        below = top[1]
        for head, size in reduces:
            if head not in self.productions.repeats:
                popped = [(under, 0) for under in self.ancestors(below, size - 1)]
            elif size == len(self.productions.of(head)[0]):
                popped = [(under, 1) for under in self.ancestors(below, size - 1)]
            else:
                # Popping takes the top and size - 1 frames more; the deepest of them holds the count so far.
                popped = [
                    (under, self.frames[own_frame][1] + 1)
                    for own_frame, deeper in self.ancestors(below, size - 2)
                    for under in self.stacks[deeper]
                ]
            for under, items in popped:
                entry = self.goto_entry(under, head, items)
                if entry is not None:
                    yield entry
