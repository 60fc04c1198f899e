"""Configurations: all parses of a text so far, as one interned value.

A configuration is a set of threads (terminal, DFA state, count, stack set) and whether the text may end.
The stack set of a thread holds all LR stacks that wait for its terminal to end, the terminal already
shifted (stacks.py). Equal sets of parses are equal numbers, so loops close, and a language of bounded depth has
finitely many configurations. This module knows no vocabulary.

All methods that may grow the tables are called under the lock of the token automaton.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import is_

from structgen.errors import LimitError
from structgen.grammar.productions import Productions
from structgen.grammar.stacks import BOTTOM, Follow, StackSets
from structgen.grammar.terminal import UNBOUNDED

Thread = tuple[int, int, int, int]
"""(terminal, DFA state, count, stack set)."""

DEAD = -1


@dataclass(frozen=True, slots=True)
class _View:
    """One way to saturate counters, with what it has found so far."""

    keep_costs: bool
    configurations: dict[int, int] = field(default_factory=dict)
    stacks: dict[int, int] = field(default_factory=lambda: {BOTTOM: BOTTOM})


class Parser(StackSets):
    """The configurations of one grammar, interned as they are met."""

    def __init__(self, productions: Productions, *, max_configurations: int, max_depth: int, window: int) -> None:
        """Make the start configuration.

        Args:
            productions: the grammar.
            max_configurations: beyond this many, LimitError.
            max_depth: a stack of more frames is *deep*: rows then only offer what leads to the end.
            window: no token makes any counter grow by more than this.
        """
        super().__init__(productions, max_depth=max_depth, window=window)
        self.terminals = productions.terminals
        self.max_configurations = max_configurations
        self._windows: dict[int, int] = {}
        self._stack_keys: dict[int, bytes] = {BOTTOM: b""}
        self._after: dict[int, tuple[Thread, ...]] = {}
        self.configurations: list[tuple[tuple[Thread, ...], bool]] = []
        self._configuration_number: dict[tuple[tuple[Thread, ...], bool], int] = {}
        self._views = (_View(keep_costs=False), _View(keep_costs=True))
        self._steps: dict[int, int] = {}
        if productions.is_only_empty:
            self.start = self.intern_threads((), is_accepting=True)
        else:
            frame = self.intern_frame((self.table.start, 0), None)
            bottom = self.intern_stack({frame: [BOTTOM]})
            fresh = self._threads_of(self.follow_of(self.stacks[bottom]))
            self.start = self.intern_threads(fresh, is_accepting=productions.nullable)

    # ------------------------------------------------------------------ configurations

    def after(self, stack: int) -> tuple[Thread, ...]:
        """Return the threads that start once a stack set's terminal is complete."""
        known = self._after.get(stack)
        if known is None:
            known = self._after[stack] = self._threads_of(self.follow(stack))
        return known

    def _threads_of(self, follow: Follow) -> tuple[Thread, ...]:
        return tuple((terminal, 0, 0, self.shift(follow, terminal)) for terminal in follow.terminals)

    def intern_threads(self, threads: Iterable[Thread], *, is_accepting: bool) -> int:
        """Return the number of a configuration; threads that differ only in their stack set are merged."""
        merged: dict[tuple[int, int, int], int] = {}
        for terminal, state, count, stack in threads:
            key = (terminal, state, count)
            merged[key] = self.union_of_two(merged[key], stack) if key in merged else stack
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
            if shape.num_bytes(state):
                threads.append((terminal, state, count, stack))
            if shape.accepts_at(state, count):
                threads.extend(self.after(stack))
                accepting = accepting or self.follow(stack).is_accepting
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
            for thread in threads:
                terminal, state, count, stack = thread
                shape = self.terminals[terminal]
                if shape.is_counted:
                    bounds = (shape.min_length, shape.max_length)
                    count = representative(count, bounds, self._window_of(terminal), keep_low=keep_costs)
                below = view.stacks.get(stack)
                if below is None:
                    below = self._saturate_stack(stack, view)
                moved.append(thread if below == stack and count == thread[2] else (terminal, state, count, below))
            is_same = all(map(is_, moved, threads))
            known = configuration if is_same else self.intern_threads(moved, is_accepting=accepting)
            view.configurations[configuration] = known
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
            repeats, saturated = self.frame_repeat, view.stacks
            if all(repeats[frame] is None and saturated[below] == below for frame, below in self.stacks[top]):
                view.stacks[top] = top
                todo.pop()
                continue
            below_of: dict[int, list[int]] = {}
            for frame, below in self.stacks[top]:
                state, count = self.frames[frame]
                bounds = self.frame_repeat[frame]
                if bounds is not None:
                    count = representative(count, bounds, self.window, keep_low=view.keep_costs)
                    frame = self.intern_frame((state, count), bounds)
                below_of.setdefault(frame, []).append(view.stacks[below])
            view.stacks[top] = self.intern_stack(below_of)
            todo.pop()
        return view.stacks[stack]

    def is_far_from_bounds(self, terminal: int, count: int) -> bool:
        """Return whether no token can meet a length bound of a terminal from this count on."""
        shape = self.terminals[terminal]
        if not shape.is_counted:
            return True
        window = self._window_of(terminal)
        return count >= shape.min_length and (shape.max_length is None or count + window <= shape.max_length)

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
