"""Configurations: all parses of a text so far, as one interned value.

A configuration is a set of threads (terminal, DFA state, count, stack set) and whether the text may end.
The stack set of a thread holds all LR stacks that wait for its terminal to end, the terminal already
shifted. Stack sets are determinised by the top frame and hash-consed, so equal sets of parses are
equal numbers, loops close, and a language of bounded depth has finitely many configurations.

Sources: Tomita 1987 (graph-structured stacks); Knuth 1965 (LR(0)). This module knows no vocabulary.
All methods that may grow the tables are called under the lock of the token automaton.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from structgen.errors import LimitError
from structgen.grammar.lr import LrTable
from structgen.grammar.productions import Productions
from structgen.grammar.terminal import UNBOUNDED

Thread = tuple[int, int, int, int]
"""(terminal, DFA state, count, stack set)."""

Entry = tuple[int, int]
"""(frame, stack set below it)."""

DEAD = -1
BOTTOM = 0

_DEPTH_TO_FINISH = 10_000
"""How much deeper the shortest way to an end may go; a grammar that needs more is refused when it gets there."""


@dataclass(frozen=True, slots=True)
class _View:
    """One way to saturate counters, with what it has found so far."""

    keep_costs: bool
    configurations: dict[int, int] = field(default_factory=dict)
    stacks: dict[int, int] = field(default_factory=lambda: {BOTTOM: BOTTOM})


class Parser:
    """The configurations of one grammar, interned as they are met."""

    def __init__(self, productions: Productions, *, max_configurations: int, max_depth: int, window: int) -> None:
        """Make the start configuration.

        Args:
            productions: the grammar.
            max_configurations: beyond this many, LimitError.
            max_depth: a stack of more frames is *deep*: rows then only offer what leads to the end.
            window: no token makes any counter grow by more than this.
        """
        self.productions = productions
        self.terminals = productions.terminals
        self.table = LrTable(productions)
        self.max_configurations = max_configurations
        self.max_depth = max_depth
        self.window = window
        self._windows: dict[int, int] = {}
        self.frames: list[tuple[int, int]] = []
        self._frame_number: dict[tuple[int, int], int] = {}
        self._frame_repeat: list[tuple[int, int | None] | None] = []
        self.stacks: list[tuple[Entry, ...]] = [()]
        self._stack_number: dict[tuple[Entry, ...], int] = {(): BOTTOM}
        self._stack_depth: list[int] = [0]
        self._unions: dict[tuple[int, int], int] = {}
        self._stack_keys: dict[int, bytes] = {BOTTOM: b""}
        self._after: dict[int, tuple[tuple[Thread, ...], bool]] = {}
        self.configurations: list[tuple[tuple[Thread, ...], bool]] = []
        self._configuration_number: dict[tuple[tuple[Thread, ...], bool], int] = {}
        self._views = (_View(keep_costs=False), _View(keep_costs=True))
        self._steps: dict[int, int] = {}
        if productions.is_only_empty:
            self.start = self.intern_threads((), is_accepting=True)
        else:
            frame = self.intern_frame((self.table.start, 0), None)
            bottom = self.intern_stack({frame: [BOTTOM]})
            fresh, _ = self._shifts(dict.fromkeys(self.stacks[bottom]))
            self.start = self.intern_threads(fresh, is_accepting=productions.nullable)

    # ------------------------------------------------------------------ stack sets

    def intern_frame(self, frame: tuple[int, int], bounds: tuple[int, int | None] | None) -> int:
        """Return the number of a frame (LR state, count)."""
        number = self._frame_number.get(frame)
        if number is None:
            number = self._frame_number[frame] = len(self.frames)
            self.frames.append(frame)
            self._frame_repeat.append(bounds)
        return number

    def intern_stack(self, below: dict[int, list[int]]) -> int:
        """Return the stack set with these top frames, each on the union of the given stack sets."""
        entries = tuple(sorted((frame, self.union(sets)) for frame, sets in below.items()))
        return self._intern_entries(entries)

    def _intern_entries(self, entries: tuple[Entry, ...]) -> int:
        number = self._stack_number.get(entries)
        if number is None:
            depth = 1 + max((self._stack_depth[below] for _, below in entries), default=-1)
            if depth > self.max_depth + _DEPTH_TO_FINISH:
                raise LimitError(
                    "the shortest way to end this text is nested too deeply; raise Limits.depth", "depth", depth
                )
            number = self._stack_number[entries] = len(self.stacks)
            self.stacks.append(entries)
            self._stack_depth.append(depth)
        return number

    def is_deep(self, stack: int) -> bool:
        """Return whether a stack set is nested beyond the limit."""
        return self._stack_depth[stack] > self.max_depth

    def near_deep(self, stack: int) -> bool:
        """Return whether one token may lead from a stack set to a deep one: each byte adds a frame at the most."""
        return self._stack_depth[stack] + self.window > self.max_depth

    def union(self, sets: Iterable[int]) -> int:
        """Return the union of stack sets."""
        first, *rest = dict.fromkeys(sets)
        for other in rest:
            first = self._union(first, other)
        return first

    def _union(self, one: int, two: int) -> int:
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
        level = {below}
        for _ in range(num_frames):
            level = {deeper for one in level for _, deeper in self.stacks[one]}
        return [entry for one in level for entry in self.stacks[one]]

    def goto_entry(self, under: Entry, head: int, count: int) -> Entry | None:
        """Return the top entry after reducing to a nonterminal above this entry, or None if its count forbids it."""
        frame = self.table.goto(self.frames[under[0]][0], head, count)
        if frame is None:
            return None
        return self.intern_frame(frame, self.productions.repeats.get(head)), self._intern_entries((under,))

    # ------------------------------------------------------------------ one terminal is complete

    def after(self, stack: int) -> tuple[tuple[Thread, ...], bool]:
        """Return the threads that start once a stack set's terminal is complete, and whether the text may end."""
        known = self._after.get(stack)
        if known is None:
            tops = dict.fromkeys(self.stacks[stack])
            todo = list(tops)
            while todo:
                for entry in self._reduced(todo.pop()):
                    if entry not in tops:
                        tops[entry] = None
                        todo.append(entry)
            known = self._after[stack] = self._shifts(tops)
        return known

    def _reduced(self, top: Entry) -> Iterable[Entry]:
        """Yield the top entries that complete productions of this top entry lead to."""
        frame, below = top
        state, _ = self.frames[frame]
        for head, size in self.table.state(state).reduces:
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

    def _shifts(self, tops: dict[Entry, None]) -> tuple[tuple[Thread, ...], bool]:
        waiting: dict[int, dict[int, dict[int, list[int]]]] = {}
        accepting = False
        for frame, below in tops:
            state = self.table.state(self.frames[frame][0])
            accepting = accepting or state.is_accepting
            for terminal, target in state.shifts.items():
                shifted = self.intern_frame((target, 0), None)
                waiting.setdefault(terminal, {}).setdefault(shifted, {}).setdefault(frame, []).append(below)
        threads = []
        for terminal, by_frame in sorted(waiting.items()):
            stack = self.intern_stack({frame: [self.intern_stack(below)] for frame, below in by_frame.items()})
            threads.append((terminal, 0, 0, stack))
        return tuple(threads), accepting

    # ------------------------------------------------------------------ configurations

    def intern_threads(self, threads: Iterable[Thread], *, is_accepting: bool) -> int:
        """Return the number of a configuration; threads that differ only in their stack set are merged."""
        merged: dict[tuple[int, int, int], int] = {}
        for terminal, state, count, stack in threads:
            key = (terminal, state, count)
            merged[key] = self._union(merged[key], stack) if key in merged else stack
        value = (tuple(sorted((*key, stack) for key, stack in merged.items())), is_accepting)
        number = self._configuration_number.get(value)
        if number is None:
            number = len(self.configurations)
            if number >= self.max_configurations:
                raise LimitError(
                    "this text has led to too many parser configurations; raise Limits.states", "states", number
                )
            self.configurations.append(value)
            self._configuration_number[value] = number
        return number

    def _moved(self, moves: Iterable[tuple[int, int, int, int]]) -> int:
        """Return the configuration of threads that have just moved; those at a word's end start what follows."""
        threads: list[Thread] = []
        accepting = False
        for terminal, state, count, stack in moves:
            shape = self.terminals[terminal]
            if shape.num_bytes[state]:
                threads.append((terminal, state, count, stack))
            if shape.accepts_at(state, count):
                fresh, ends = self.after(stack)
                threads.extend(fresh)
                accepting = accepting or ends
        if not threads and not accepting:
            return DEAD
        return self.intern_threads(threads, is_accepting=accepting)

    def step(self, configuration: int, byte: int) -> int:
        """Return the configuration after one more byte, DEAD if there is none."""
        key = configuration << 8 | byte
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = self._step(configuration, byte)
        return known

    def _step(self, configuration: int, byte: int) -> int:
        moves = []
        for terminal, state, count, stack in self.configurations[configuration][0]:
            target = self.terminals[terminal].step(state, count, byte)
            if target is not None:
                moves.append((terminal, *target, stack))
        return self._moved(moves) if moves else DEAD

    def successors(self, configuration: int) -> dict[int, list[int]]:
        """Return configuration -> bytes that lead to it, for all bytes that go on."""
        threads = self.configurations[configuration][0]
        by_moves: dict[tuple[Thread, ...], list[int]] = {}
        if len(threads) == 1:
            by_moves = {(move,): list(group) for move, group in self._moves(threads[0])}
        else:
            moves: dict[int, list[Thread]] = {}
            for thread in threads:
                for move, group in self._moves(thread):
                    for byte in group:
                        moves.setdefault(byte, []).append(move)
            for byte, moved in moves.items():
                by_moves.setdefault(tuple(moved), []).append(byte)
        result: dict[int, list[int]] = {}
        for moved_threads, same in by_moves.items():
            after = self._moved(moved_threads)
            if after != DEAD:
                result.setdefault(after, []).extend(same)
        return result

    def _moves(self, thread: Thread) -> Iterable[tuple[Thread, tuple[int, ...]]]:
        """Yield where a thread may stand after one byte, with the bytes that lead there."""
        terminal, state, count, stack = thread
        shape = self.terminals[terminal]
        for target, tick, group in shape.edges(state):
            stepped = shape.counted(target, count + tick)
            if stepped is not None:
                yield (terminal, *stepped, stack), group

    # ------------------------------------------------------------------ counters, saturated

    def saturated(self, configuration: int, *, keep_costs: bool = False) -> int:
        """Return the configuration that stands for all that no token can tell from this one.

        Counters far from their bounds are moved to one representative value; masks are keyed by the result.

        Args:
            configuration: the exact one.
            keep_costs: leave counters under their minimum as they are, so that finishing costs stay the same too:
                what is missing to a minimum has to be written.
        """
        view = self._views[keep_costs]
        known = view.configurations.get(configuration)
        if known is None:
            threads, accepting = self.configurations[configuration]
            moved = []
            for terminal, state, count, stack in threads:
                shape = self.terminals[terminal]
                if shape.is_counted:
                    bounds = (shape.min_length, shape.max_length)
                    count = representative(count, bounds, self._window_of(terminal), keep_low=keep_costs)
                moved.append((terminal, state, count, self._saturate_stack(stack, view)))
            known = view.configurations[configuration] = self.intern_threads(moved, is_accepting=accepting)
        return known

    def _window_of(self, terminal: int) -> int:
        """Return within how many ticks of a bound a count decides something."""
        known = self._windows.get(terminal)
        if known is None:
            # What is missing to a length decides only within the reach of a token and of the words from its states on.
            shape = self.terminals[terminal]
            reach = max([0, *shape.need, *(most for most in shape.most if most < UNBOUNDED)])
            known = self._windows[terminal] = self.window + reach
        return known

    def _saturate_stack(self, stack: int, view: _View) -> int:
        todo = [stack]
        while todo:
            top = todo[-1]
            if top in view.stacks:
                todo.pop()
                continue
            missing = [below for _, below in self.stacks[top] if below not in view.stacks]
            if missing:
                todo.extend(missing)
                continue
            below_of: dict[int, list[int]] = {}
            for frame, below in self.stacks[top]:
                state, count = self.frames[frame]
                bounds = self._frame_repeat[frame]
                if bounds is not None:
                    count = representative(count, bounds, self.window, keep_low=view.keep_costs)
                    frame = self.intern_frame((state, count), bounds)
                below_of.setdefault(frame, []).append(view.stacks[below])
            view.stacks[top] = self.intern_stack(below_of)
            todo.pop()
        return view.stacks[stack]

    def key_of(self, configuration: int) -> bytes:
        """Return a digest of a configuration that is the same in every process, as its number is not."""
        threads, accepting = self.configurations[configuration]
        parts = [
            f"{self.terminals[terminal].key} {state} {count} {self._key_of_stack(stack).hex()}"
            for terminal, state, count, stack in threads
        ]
        return hashlib.sha256(f"{accepting} {' '.join(sorted(parts))}".encode()).digest()

    def _key_of_stack(self, stack: int) -> bytes:
        todo = [stack]
        while todo:
            top = todo[-1]
            missing = [below for _, below in self.stacks[top] if below not in self._stack_keys]
            if top not in self._stack_keys and missing:
                todo.extend(missing)
                continue
            todo.pop()
            parts = []
            for frame, below in self.stacks[top]:
                state, count = self.frames[frame]
                parts.append(f"{self.table.kernel_name(state)} {count} {self._stack_keys[below].hex()}")
            self._stack_keys[top] = hashlib.sha256("; ".join(sorted(parts)).encode()).digest()
        return self._stack_keys[stack]

    def describe(self, configuration: int) -> str:
        """Return a short text for messages: what is being read."""
        threads, accepting = self.configurations[configuration]
        names = dict.fromkeys(self.terminals[t].name or f"terminal {t}" for t, *_ in threads)
        listed = ", ".join(list(names)[:4]) + (", ..." if len(names) > 4 else "")
        return f"{configuration} (inside {listed or 'nothing'}{'; may end' if accepting else ''})"


def representative(count: int, bounds: tuple[int, int | None], window: int, *, keep_low: bool) -> int:
    """Return the count that stands for all counts that behave alike for the next `window` increments."""
    low, high = bounds
    if count < low - window and not keep_low:
        return low - window - 1
    if low <= count and (high is None or count < high - window):
        return low
    return count
