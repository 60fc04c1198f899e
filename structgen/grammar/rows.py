"""Mask rows: which tokens are legal in a configuration, and where they end.

The row of a configuration is the union over its threads, so no thread waits for another: each is a lane of one walk
over the trie (kernels/lane_walk.py), and where a word may end, the lanes of what follows take the walk on below that
node. Wide states at the root (string interiors) come from the shared scans instead. Rows may be cut by a finishing
cost: that is how a budget binds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from structgen.grammar.costs import FinishingCosts
from structgen.grammar.parser import Parser, Thread
from structgen.grammar.scan import INFINITE, ScanGroups, VocabularyScans
from structgen.grammar.stacks import Follow
from structgen.grammar.terminal import Terminal
from structgen.grammar.word import Word
from structgen.kernels import trie_walk
from structgen.kernels.lane_walk import Exits, LaneWalker, Start
from structgen.kernels.trie_walk import Bools, Ints

WIDE_NUM_BYTES = 24
"""A state that goes on with this many bytes is walked once per vocabulary, not once per grammar."""


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """Leaves out the places from which that many tokens are not enough to end."""

    costs: FinishingCosts
    limit: int = INFINITE - 1

    def allows(self, configuration: int) -> bool:
        """Return whether the limit is enough from a configuration."""
        return self.costs.of_configuration(configuration) <= self.limit


class RowBuilder:
    """Builds rows over one parser and one vocabulary. Callers hold the automaton's lock."""

    def __init__(
        self,
        parser: Parser,
        scans: VocabularyScans,
        spelling_cut: Cut | None,
        costs: Callable[[], FinishingCosts],
    ) -> None:
        """Prepare.

        Args:
            parser: the configurations.
            scans: the shared scans of the vocabulary.
            spelling_cut: given if some configuration may be impossible to end, so that each must be looked at.
            costs: the finishing costs, for texts that are nested too deeply.
        """
        self.parser = parser
        self.scans = scans
        self.spelling_cut = spelling_cut
        self.costs = costs
        self._walker = LaneWalker(scans.lane_trie)
        self._readers: dict[int, int] = {}
        self._lanes: dict[int, int] = {}
        self._gates: dict[int, int] = {}
        # Of each lane: its terminal, and the stack set under it or what it is shifted on.
        self._sources: list[tuple[int, int | Follow]] = []

    def mask(self, configuration: int) -> Ints:
        """Return the mask of a configuration: (ceil(V / 32),) int32, bit 1 = legal; stop ids are not in it."""
        if self.spelling_cut is not None or self.may_get_deep(configuration):
            return self.cut_mask(configuration, None)
        mask = self.scans.new_row()
        starts, exits, wide = self._places(configuration)
        for thread in wide:
            self._add_scan(mask, thread)
        self._walker.walk(mask, starts, exits, self._follow)
        return mask

    def cut_mask(self, configuration: int, cut: Cut | None) -> Ints:
        """Return the mask without the tokens that the cut leaves out, and those that lead too deep or to no end."""
        deep = _Deep(self, configuration, cut or self.spelling_cut)
        mask = self.scans.new_row()
        starts, exits, wide = self._places(configuration)
        for terminal, state, count, stack in wide:
            shape = self.parser.terminals[terminal]
            groups = self.scans.groups(shape.dfa, state)
            alive, ends = _ends_of(shape, count, groups)
            alive[alive] = [deep.allows(terminal, stack, *end) for end in ends.tolist()]
            groups.add_to(mask, self.scans.scan(shape.dfa, state).row, alive, self.scans.trie)
        found = self._walker.walk_to_ends(self.scans.new_row(), starts, exits, self._follow)
        allowed = []
        for lane, state, count in found.ends.tolist():
            allowed.append(deep.allows(self._sources[lane][0], self._stack_of(lane), state, count))
        nodes, numbers = found.places[:, 0], found.places[:, 1]
        trie_walk.set_tokens_(mask, nodes[np.array(allowed, np.bool_)[numbers]], self.scans.trie)
        return mask

    def worst_cost(self, configuration: int) -> int:
        """Return the greatest finishing cost after any token of the mask."""
        costs = self.costs()
        worst = 0
        starts, exits, wide = self._places(configuration)
        reached: list[tuple[int, int, int, int]] = []
        for terminal, state, count, stack in wide:
            shape = self.parser.terminals[terminal]
            _, ends = _ends_of(shape, count, self.scans.groups(shape.dfa, state))
            reached += [(terminal, *end, stack) for end in ends.tolist()]
        found = self._walker.walk_to_ends(self.scans.new_row(), starts, exits, self._follow)
        for lane, state, count in found.ends.tolist():
            reached.append((self._sources[lane][0], state, count, self._stack_of(lane)))
        for terminal, state, count, stack in reached:
            cost = costs.of_thread(terminal, state, count, costs.of_stack(stack))
            if cost < INFINITE:
                worst = max(worst, cost)
        return worst

    def free_text(self, configuration: int) -> Ints | None:
        """Return the mask of the tokens that begin and end inside a free-text body, None if no body is live.

        What opens and closes a body (quotes) is structure: not the state before it, nor the one behind it.
        """
        mask = None
        for terminal, state, count, _ in self.parser.configurations[configuration][0]:
            shape = self.parser.terminals[terminal]
            if shape.free_text and shape.is_body(state):
                mask = self.scans.new_row() if mask is None else mask
                groups = self.scans.groups(shape.dfa, state)
                keep, ends = _ends_of(shape, count, groups)
                keep[keep] = [shape.is_body(end) for end in ends[:, 0].tolist()]
                groups.add_to(mask, self.scans.scan(shape.dfa, state).row, keep, self.scans.trie)
        return mask

    def may_get_deep(self, configuration: int) -> bool:
        """Return whether a token may lead to a stack nested beyond the limit, whose row hangs on costs."""
        return self.parser.any_near_deep([thread[3] for thread in self.parser.configurations[configuration][0]])

    # ------------------------------------------------------------------ where a walk begins

    def _places(self, configuration: int) -> tuple[list[Start], list[Exits], list[Thread]]:
        """Return the threads to walk, where words of the wide ones end inside tokens, and the wide ones."""
        starts: list[Start] = []
        exits: list[Exits] = []
        wide: list[Thread] = []
        for thread in self.parser.configurations[configuration][0]:
            terminal, state, count, stack = thread
            shape = self.parser.terminals[terminal]
            if shape.num_bytes(state) < WIDE_NUM_BYTES:
                starts.append((self._lane_of(terminal, stack), state, count))
                continue
            wide.append(thread)
            nodes = self.scans.scan(shape.dfa, state).exits
            if len(nodes):
                high = -1 if shape.max_length is None else shape.max_length
                exits.append(Exits(self._gate_of(stack), nodes, count, shape.min_length, high))
        return starts, exits, wide

    def _add_scan(self, mask: Ints, thread: Thread) -> None:
        """Add the tokens that stay inside a wide thread's terminal."""
        terminal, state, count, _ = thread
        shape = self.parser.terminals[terminal]
        row = self.scans.scan(shape.dfa, state).row
        if self.parser.is_far_from_bounds(terminal, count):
            mask |= row
        else:
            groups = self.scans.groups(shape.dfa, state)
            groups.add_to(mask, row, _ends_of(shape, count, groups)[0], self.scans.trie)

    # ------------------------------------------------------------------ lanes and gates of the walk

    def _lane_of(self, terminal: int, stack: int) -> int:
        lane = self._lanes.get(stack)
        if lane is None:
            reader = self._reader_of(terminal)
            self._add_sources([(terminal, stack)])
            lane = self._lanes[stack] = self._walker.add_lane(reader)
        return lane

    def _gate_of(self, stack: int) -> int:
        """Return the gate to what follows once the terminal of a stack set is complete."""
        gate = self._gates.get(stack)
        if gate is None:
            follow = self.parser.follow(stack)
            known = self._readers
            readers = tuple([known[one] if one in known else self._reader_of(one) for one in follow.terminals])
            self._add_sources([(terminal, follow) for terminal in follow.terminals])
            gate = self._gates[stack] = self._walker.add_gate(readers)
        return gate

    def _add_sources(self, sources: list[tuple[int, int | Follow]]) -> None:
        """Keep the sources of the next lanes, instead of those of lanes that one was interrupted before adding."""
        self._sources[self._walker.num_lanes :] = sources

    def _reader_of(self, terminal: int) -> int:
        reader = self._readers.get(terminal)
        if reader is None:
            shape = self.parser.terminals[terminal]
            if isinstance(shape, Word):
                reader = self._walker.add_word(shape.text)
            else:
                reader = self._walker.add_reader(shape.counted_dfa)
            self._readers[terminal] = reader
        return reader

    def _stack_of(self, lane: int) -> int:
        terminal, source = self._sources[lane]
        return self.parser.shift(source, terminal) if isinstance(source, Follow) else source

    def _follow(self, lane: int) -> int:
        return self._gate_of(self._stack_of(lane))


class _Deep:
    """The cut of each thread of one row: threads nested beyond the limit may only go on towards the end.

    A token that leads to such a thread must lower the finishing cost. One always does, so no state is left without a
    token, and the nesting is bounded by the limit and the way out.
    """

    def __init__(self, builder: RowBuilder, configuration: int, cut: Cut | None) -> None:
        self._builder = builder
        self._configuration = configuration
        self._cut = cut
        self._deep_cut: Cut | None = None

    def allows(self, terminal: int, stack: int, state: int, count: int) -> bool:
        """Return whether a token may end there."""
        cut = self._cut_of(stack)
        if cut is None:
            return True
        return cut.costs.of_thread(terminal, state, count, cut.costs.of_stack(stack)) <= cut.limit

    def _cut_of(self, stack: int) -> Cut | None:
        if not self._builder.parser.is_deep(stack):
            return self._cut
        if self._deep_cut is None:
            costs = self._builder.costs()
            limit = costs.of_configuration(self._configuration) - 1
            self._deep_cut = Cut(costs, limit if self._cut is None else min(limit, self._cut.limit))
        return self._deep_cut


def _ends_of(shape: Terminal, count: int, groups: ScanGroups) -> tuple[Bools, Ints]:
    """Return which groups of a scan lead to words within the length bounds, and the (state, count) of these."""
    states, totals = groups.ends[:, 0], groups.ends[:, 1] + count
    if not shape.is_counted:
        return np.ones(len(states), np.bool_), np.column_stack([states, np.zeros_like(states)])
    bounds = shape.counted_dfa
    if shape.max_length is None:
        totals = np.minimum(totals, shape.min_length)
    alive: Bools = totals + bounds.most[states] >= shape.min_length
    if shape.max_length is not None:
        alive &= totals + bounds.need[states] <= shape.max_length
    ends: Ints = np.column_stack([states, totals])[alive].astype(np.int32)
    return alive, ends
