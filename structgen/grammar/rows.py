"""Mask rows: which tokens are legal in a configuration, and where they end.

The row of a configuration is the union over its threads, so no thread waits for another: each is walked over
the trie by the DFA of its own terminal, and where a word may end the threads that follow take the walk on
below those nodes. Wide states at the root (string interiors) come from the shared scans instead. Rows may be
cut by a finishing cost: that is how a budget binds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from structgen.grammar.costs import FinishingCosts
from structgen.grammar.parser import Parser, Thread
from structgen.grammar.scan import INFINITE, DfaScan, VocabularyScans
from structgen.grammar.terminal import Terminal
from structgen.kernels import trie_walk
from structgen.kernels.trie_walk import Ints

_WIDE_NUM_BYTES = 24
"""A state that goes on with this many bytes is walked once per vocabulary, not once per grammar."""


@dataclass(frozen=True, eq=False, slots=True)
class Stays:
    """Where tokens end inside one terminal.

    Attributes:
        terminal: which.
        stack: the stack set under it.
        ends: (n, 2) int32, rows (state, count); may repeat.
    """

    terminal: int
    stack: int
    ends: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """A mask and the places its tokens end in.

    Attributes:
        mask: (ceil(V / 32),) int32, bit 1 = legal; stop ids are not in it.
        stays: where the tokens end.
    """

    mask: Ints
    stays: tuple[Stays, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """Leaves out the places from which that many tokens are not enough to end."""

    costs: FinishingCosts
    limit: int = INFINITE - 1

    def allows(self, configuration: int) -> bool:
        """Return whether the limit is enough from a configuration."""
        return self.costs.of_configuration(configuration) <= self.limit

    def allows_ends(self, terminal: int, stack: int, ends: Ints) -> list[bool]:
        """Return for which rows (state, count) inside a terminal the limit is enough."""
        rest = self.costs.of_stack(stack)
        return [self.costs.of_thread(terminal, state, count, rest) <= self.limit for state, count in ends.tolist()]


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
        self._walker = trie_walk.TrieWalker(scans.trie)

    def build(self, configuration: int, cut: Cut | None = None) -> Row:
        """Return the row of a configuration, without the tokens that the cut leaves out."""
        cut = cut or self.spelling_cut
        deep = _Deep(self, configuration, cut)
        mask = self.scans.new_row()
        stays: list[Stays] = []
        waiting = _Waiting(self._walker)
        for thread in self.parser.configurations[configuration][0]:
            shape = self.parser.terminals[thread[0]]
            if shape.num_bytes[thread[1]] < _WIDE_NUM_BYTES:
                waiting.add(thread, self._walker.whole)
            else:
                scan = self.scans.scan(shape.dfa, thread[1])
                stays.append(self._add_scan(mask, thread, scan, deep.cut_of(thread)))
                self._follow_scan(waiting, thread, scan)
        while (step := waiting.next()) is not None:
            thread, parts = step
            stays.append(self._add_walk(mask, waiting, thread, parts, deep.cut_of(thread)))
        return Row(mask, tuple(stays))

    def free_text(self, configuration: int) -> Ints | None:
        """Return the mask of the tokens that begin and end inside a free-text body, None if no body is live.

        What opens and closes a body (quotes) is structure: not the state before it, nor the one behind it.
        """
        mask = None
        for terminal, state, count, _ in self.parser.configurations[configuration][0]:
            shape = self.parser.terminals[terminal]
            if shape.free_text and shape.is_body(state):
                mask = self.scans.new_row() if mask is None else mask
                scan = self.scans.scan(shape.dfa, state)
                after = [shape.counted(end, count + ticks) for end, ticks in scan.ends.tolist()]
                keep = [one is not None and shape.is_body(one[0]) for one in after]
                scan.add_to(mask, np.array(keep, np.bool_), self.scans.trie)
        return mask

    def worst_cost(self, row: Row, costs: FinishingCosts) -> int:
        """Return the greatest finishing cost after any token of the row."""
        worst = 0
        for stay in row.stays:
            rest = costs.of_stack(stay.stack)
            for state, count in np.unique(stay.ends, axis=0).tolist():
                worst = max(worst, costs.of_thread(stay.terminal, state, count, rest))
        return worst

    def _add_scan(self, mask: Ints, thread: Thread, scan: DfaScan, cut: Cut | None) -> Stays:
        """Add the tokens that stay inside the terminal, from a shared scan."""
        terminal, _, count, stack = thread
        shape = self.parser.terminals[terminal]
        after = [shape.counted(state, count + ticks) for state, ticks in scan.ends.tolist()]
        keep = np.array([one is not None for one in after], np.bool_)
        ends = np.array([one for one in after if one is not None], np.int32).reshape(-1, 2)
        if cut is not None:
            allowed = np.array(cut.allows_ends(terminal, stack, ends), np.bool_)
            keep[keep] = allowed
            ends = ends[allowed]
        scan.add_to(mask, keep, self.scans.trie)
        return Stays(terminal, stack, ends)

    def _follow_scan(self, waiting: _Waiting, thread: Thread, scan: DfaScan) -> None:
        """Let what follows the terminal go on below the nodes at which its word may end."""
        terminal, _, count, stack = thread
        shape = self.parser.terminals[terminal]
        for follower in self.parser.after(stack)[0]:
            first_bytes = np.flatnonzero(self.parser.terminals[follower[0]].dfa.delta[follower[1]] >= 0).tolist()
            pieces = [scan.exits[scan.exit_start[byte] : scan.exit_start[byte + 1]] for byte in first_bytes]
            exits = np.concatenate(pieces)
            nodes = exits[_word_may_end(shape, count, exits[:, 1]), 0]
            if len(nodes):
                parts = np.column_stack([nodes, self.scans.trie.subtree_end[nodes]])
                waiting.add(follower, parts)

    def _add_walk(self, mask: Ints, waiting: _Waiting, thread: Thread, parts: Ints, cut: Cut | None) -> Stays:
        """Walk a thread over parts of the trie; what follows its terminal waits for its turn."""
        terminal, state, count, stack = thread
        walk = self._walker.walk(self.parser.terminals[terminal].counted_dfa, state, count, parts)
        nodes, ends = np.ascontiguousarray(walk.stay[:, 0]), walk.stay[:, 1:]
        if cut is not None and len(nodes):
            distinct, place = np.unique(ends, axis=0, return_inverse=True)
            allowed = np.array(cut.allows_ends(terminal, stack, distinct), np.bool_)
            nodes, ends = nodes[allowed[place]], distinct[allowed]
        trie_walk.set_tokens_(mask, nodes, self.scans.trie)
        if len(walk.exits):
            below = np.column_stack([walk.exits[:, 0] + 1, self.scans.trie.subtree_end[walk.exits[:, 0]]])
            for follower in self.parser.after(stack)[0]:
                waiting.add(follower, below)
        return Stays(terminal, stack, ends)


class _Waiting:
    """Threads that wait to be walked over parts of the trie, each part once.

    A word may end at a node and again below it, so parts of one thread can lie inside each other; they are handed
    out in layers of parts that are apart. What a thread has walked it need not walk again: where words follow each
    other for ever, that is what ends the search.
    """

    def __init__(self, walker: trie_walk.TrieWalker) -> None:
        self._walker = walker
        self._waiting: dict[Thread, list[Ints]] = {}
        self._done: dict[Thread, list[Ints]] = {}
        self._layers: list[tuple[Thread, Ints]] = []

    def add(self, thread: Thread, parts: Ints) -> None:
        """Let a thread walk over parts (first node, node after the last)."""
        self._waiting.setdefault(thread, []).append(parts)

    def next(self) -> tuple[Thread, Ints] | None:
        """Return a thread and parts that are apart from each other, None when nothing waits."""
        while not self._layers and self._waiting:
            thread = next(iter(self._waiting))
            pieces = self._waiting.pop(thread)
            parts = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            done = self._done.setdefault(thread, [])
            if done or not _are_apart(parts):
                codes = np.setdiff1d(_codes(parts), _codes(np.concatenate(done)) if done else [])
                parts = np.column_stack([codes >> 32, codes & 0xFFFFFFFF]).astype(np.int32)
                self._layers = [(thread, layer) for layer in self._walker.layers(parts)]
            else:
                self._layers = [(thread, parts)]
            done.append(parts)
        return self._layers.pop() if self._layers else None


def _are_apart(parts: Ints) -> bool:
    """Return whether no part lies inside another, nor twice."""
    if len(parts) == 1:
        return True
    ordered = parts[np.argsort(parts[:, 0], kind="stable")]
    return bool((ordered[:-1, 1] <= ordered[1:, 0]).all())


def _codes(parts: Ints) -> npt.NDArray[np.int64]:
    """Return one number per part."""
    codes: npt.NDArray[np.int64] = parts[:, 0].astype(np.int64) << 32 | parts[:, 1]
    return codes


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

    def cut_of(self, thread: Thread) -> Cut | None:
        """Return what a thread may not do."""
        if not self._builder.parser.is_deep(thread[3]):
            return self._cut
        if self._deep_cut is None:
            costs = self._builder.costs()
            limit = costs.of_configuration(self._configuration) - 1
            self._deep_cut = Cut(costs, limit if self._cut is None else min(limit, self._cut.limit))
        return self._deep_cut


def _word_may_end(shape: Terminal, count: int, ticks: Ints) -> npt.NDArray[np.bool_]:
    """Return for which numbers of ticks a word may end, by its length."""
    total = ticks + count
    good = total >= shape.min_length
    if shape.max_length is not None:
        good &= total <= shape.max_length
    result: npt.NDArray[np.bool_] = good
    return result
