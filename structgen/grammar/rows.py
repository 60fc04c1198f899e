"""Mask rows: which tokens are legal in a configuration, and in which configurations they end.

Threads in wide DFA states (string interiors) use the shared scans: the row of the tokens that stay, and the
nodes at which what follows may go on. All other threads are walked together as one configuration. The row of
a configuration is the union over its threads. Rows may be cut by a finishing cost: that is how a budget binds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from structgen.grammar.costs import FinishingCosts
from structgen.grammar.parser import Parser, Thread
from structgen.grammar.scan import INFINITE, DfaScan, VocabularyScans
from structgen.grammar.terminal import Terminal
from structgen.kernels import trie_walk
from structgen.kernels.trie_walk import Bools, Ints

_WIDE_NUM_BYTES = 24
"""A state that goes on with this many bytes is walked once per vocabulary, not once per grammar."""

_CHUNK_ROWS = 256


@dataclass(frozen=True, eq=False, slots=True)
class Stays:
    """Tokens that keep a thread inside its lexeme: the thread, and the (state, count) pairs that they end in."""

    thread: Thread
    ends: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """A mask and the places its tokens end in.

    Attributes:
        mask: (ceil(V / 32),) int32, bit 1 = legal; stop ids are not in it.
        configurations: what the tokens that leave a wide lexeme, or were in none, end in.
        stays: where the tokens that stay inside wide lexemes end.
    """

    mask: Ints
    configurations: tuple[int, ...]
    stays: tuple[Stays, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """Leaves out the places from which that many tokens are not enough to end."""

    costs: FinishingCosts
    limit: int = INFINITE - 1

    def allows(self, configuration: int) -> bool:
        """Return whether the limit is enough from a configuration."""
        return self.costs.of_configuration(configuration) <= self.limit

    def allows_thread(self, thread: Thread) -> bool:
        """Return whether the limit is enough from a thread."""
        terminal, state, count, stack = thread
        return self.costs.of_thread(terminal, state, count, self.costs.of_stack(stack)) <= self.limit


class RowBuilder:
    """Builds rows over one parser and one vocabulary. Callers hold the automaton's lock."""

    def __init__(self, parser: Parser, scans: VocabularyScans, spelling_cut: Cut | None) -> None:
        """Prepare.

        Args:
            parser: the configurations.
            scans: the shared scans of the vocabulary.
            spelling_cut: given if some configuration may be impossible to end, so that each must be looked at.
        """
        self.parser = parser
        self.scans = scans
        self.spelling_cut = spelling_cut
        self._table = np.full((_CHUNK_ROWS, 256), -1, np.int32)
        self._known = np.zeros(_CHUNK_ROWS, np.bool_)

    @property
    def num_table_rows(self) -> int:
        """Number of configurations whose byte row is known."""
        return int(self._known.sum())

    def byte_row(self, configuration: int) -> Ints:
        """Return (256,): the configuration after each byte, -1 for none."""
        table, _ = self.rows_of(np.array([configuration], np.int32))
        row: Ints = table[configuration]
        return row

    def next_configuration(self, configuration: int, byte: int) -> int:
        """Return the configuration after a byte, -1 for none; does not fill a byte row for it."""
        if configuration < len(self._known) and self._known[configuration]:
            return int(self._table[configuration, byte])
        return self.parser.step(configuration, byte)

    def rows_of(self, configurations: Ints) -> tuple[Ints, Bools]:
        """Fill the byte rows of the configurations; return the table (n, 256) and what is known of it (n,)."""
        for configuration in configurations.tolist():
            if configuration < len(self._known) and self._known[configuration]:
                continue
            successors = self.parser.successors(configuration)
            needed = len(self.parser.configurations)
            if needed > len(self._known):
                size = max(needed + _CHUNK_ROWS, 2 * len(self._known))
                self._table = np.concatenate([self._table, np.full((size - len(self._table), 256), -1, np.int32)])
                self._known = np.concatenate([self._known, np.zeros(size - len(self._known), np.bool_)])
            row = self._table[configuration]
            for target, group in successors.items():
                row[group] = target
            self._known[configuration] = True
        return self._table, self._known

    # ------------------------------------------------------------------ rows

    def build(self, configuration: int, cut: Cut | None = None) -> Row:
        """Return the row of a configuration, without the tokens that the cut leaves out."""
        cut = cut or self.spelling_cut
        mask = self.scans.new_row()
        narrow: list[Thread] = []
        parts: list[Ints] = []
        ends: set[int] = set()
        stays: list[Stays] = []
        for thread in self.parser.configurations[configuration][0]:
            shape = self.parser.terminals[thread[0]]
            if sum(len(group) for _, _, group in shape.edges[thread[1]]) < _WIDE_NUM_BYTES:
                narrow.append(thread)
                continue
            scan = self.scans.scan(shape.dfa, thread[1])
            stays.append(self._add_stays(mask, thread, scan, cut))
            part = self._add_exits(mask, ends, thread, scan, cut)
            if part is not None:
                parts.append(part)
        if narrow:
            origin = self.parser.intern_threads(narrow, is_accepting=False)
            parts.append(np.array([[1, self.scans.trie.num_nodes, origin]], np.int32))
        if parts:
            found = trie_walk.walk_table(self.scans.trie, self.scans.deepest, np.concatenate(parts), self.rows_of)
            reached, place = np.unique(found[:, 1], return_inverse=True)
            allowed = np.array([cut is None or cut.allows(int(one)) for one in reached], np.bool_)
            ends.update(reached[allowed].tolist())
            nodes = found[:, 0] if allowed.all() else found[allowed[place], 0]
            trie_walk.set_tokens_(mask, np.ascontiguousarray(nodes), self.scans.trie)
        return Row(mask, tuple(ends), tuple(stays))

    def free_text(self, configuration: int) -> Ints | None:
        """Return the mask of the tokens that stay inside a free-text lexeme, None if none is live."""
        mask = None
        for terminal, state, count, stack in self.parser.configurations[configuration][0]:
            shape = self.parser.terminals[terminal]
            if shape.free_text:
                mask = self.scans.new_row() if mask is None else mask
                thread = (terminal, state, count, stack)
                self._add_stays(mask, thread, self.scans.scan(shape.dfa, state), None)
        return mask

    def worst_cost(self, row: Row, costs: FinishingCosts) -> int:
        """Return the greatest finishing cost after any token of the row."""
        after = [costs.of_configuration(configuration) for configuration in row.configurations]
        for stay in row.stays:
            rest = costs.of_stack(stay.thread[3])
            after.extend(costs.of_thread(stay.thread[0], state, count, rest) for state, count in stay.ends)
        return max(after, default=0)

    def _add_stays(self, mask: Ints, thread: Thread, scan: DfaScan, cut: Cut | None) -> Stays:
        terminal, _, count, stack = thread
        shape = self.parser.terminals[terminal]
        allowed: list[tuple[int, int]] = []
        keep: list[bool] = []
        for state, ticks in scan.ends.tolist():
            after = shape.counted(state, count + ticks)
            good = after is not None and (cut is None or cut.allows_thread((terminal, *after, stack)))
            keep.append(good)
            if good and after is not None:
                allowed.append(after)
        scan.add_to(mask, np.array(keep, np.bool_), self.scans.trie)
        return Stays(thread, tuple(dict.fromkeys(allowed)))

    def _add_exits(self, mask: Ints, ends: set[int], thread: Thread, scan: DfaScan, cut: Cut | None) -> Ints | None:
        """Add the tokens that end where a word ends; return the parts of the trie in which tokens go on behind it."""
        terminal, _, count, stack = thread
        shape = self.parser.terminals[terminal]
        fresh, accepting = self.parser.after(stack)
        origin = self.parser.intern_threads(fresh, is_accepting=accepting)
        walk = scan.walk
        if len(walk.ends) and (cut is None or cut.allows(origin)):
            nodes = walk.ends[_word_may_end(shape, count, walk.ends[:, 1]), 0]
            if len(nodes):
                ends.add(origin)
                trie_walk.set_tokens_(mask, np.ascontiguousarray(nodes), self.scans.trie)
        if not len(walk.exits) or not fresh:
            return None
        going_on = np.flatnonzero(self.byte_row(origin) >= 0)
        pieces = [walk.exits[walk.exit_start[byte] : walk.exit_start[byte + 1]] for byte in going_on.tolist()]
        exits = np.concatenate(pieces)
        nodes = exits[_word_may_end(shape, count, exits[:, 1]), 0]
        if not len(nodes):
            return None
        return np.column_stack([nodes, self.scans.trie.subtree_end[nodes], np.full(len(nodes), origin, np.int32)])


def _word_may_end(shape: Terminal, count: int, ticks: Ints) -> Bools:
    """Return for which numbers of ticks a word may end, by its length."""
    total = ticks + count
    good = total >= shape.min_length
    if shape.max_length is not None:
        good &= total <= shape.max_length
    result: Bools = good
    return result
