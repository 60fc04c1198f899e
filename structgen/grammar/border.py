"""Finishing costs of terminals, from border node to border node (see costs.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from structgen.errors import LimitError
from structgen.grammar.scan import INFINITE, VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.terminal import UNBOUNDED, Terminal
from structgen.kernels import trie_walk
from structgen.kernels.trie_walk import Ints

_MAX_BORDER_NODES = 256

_MAX_PATHS = 2_000_000

_MAX_LENGTH_COSTS = 1 << 24
"""Entries of a table of costs by length, of 4 bytes each; filling it takes some 100 ns an entry."""


class BorderCosts:
    """Costs of the terminals of one grammar over one vocabulary."""

    def __init__(self, terminals: Sequence[Terminal], scans: VocabularyScans, spelling: Spelling) -> None:
        """Find the border nodes, and the costs between them where there is more than the root."""
        self.terminals = terminals
        self.scans = scans
        self.spelling = spelling
        self._to_end: dict[int, list[tuple[int, ...]]] = {}
        self._length_costs: dict[int, tuple[Ints, int]] = {}
        self.crosses = spelling.meets_needed_tokens(terminal.dfa for terminal in terminals)
        self.nodes: list[int] = [0]
        self._matrix: list[tuple[tuple[int, ...], ...]] = []
        if self.crosses:
            self._find_border()
        else:
            self._matrix = [((self.to_end(index, 0, 0)[0],),) for index in range(len(terminals))]
        self.width = len(self.nodes)

    def matrix(self, terminal: int) -> tuple[tuple[int, ...], ...]:
        """Return the costs of one whole word of the terminal."""
        return self._matrix[terminal]

    def to_end(self, terminal: int, state: int, count: int) -> tuple[int, ...]:
        """Return the costs of ending the word, from a state at a token border, by the border node it ends in."""
        shape = self.terminals[terminal]
        if shape.is_counted:
            return (self._counted_to_end(terminal, state, count),)
        known = self._to_end.get(terminal)
        if known is None:
            if self.crosses:
                known = [self._spread(shape, q, 0) for q in range(shape.dfa.num_states)]
            else:
                known = [(cost,) for cost in self.scans.token_costs(shape.dfa).tolist()]
            self._to_end[terminal] = known
        return known[state]

    # ------------------------------------------------------------------ counted lexemes: only the root is a border

    def _counted_to_end(self, terminal: int, state: int, count: int) -> int:
        shape = self.terminals[terminal]
        table, slack = self._lengths(terminal)
        low = max(shape.min_length - count, 0)
        high = low + slack
        if shape.max_length is not None:
            high = min(high, shape.max_length - count)
        return int(table[low : high + 1, state].min(initial=INFINITE))

    def _lengths(self, terminal: int) -> tuple[Ints, int]:
        """Return (costs by exact length and state, how far over the minimum the strategy looks)."""
        known = self._length_costs.get(terminal)
        if known is None:
            shape = self.terminals[terminal]
            dfa = shape.dfa
            # From any state a word can end within `need` more units; looking that far makes every cost finite.
            slack = max(n for n in shape.need if n < UNBOUNDED) + 1
            edges = [
                np.column_stack([np.full(len(ends), state, np.int32), ends])
                for state in range(dfa.num_states)
                for ends in [self.scans.groups(dfa, state).ends]
            ]
            num_lengths = shape.min_length + slack + 1
            num_costs = num_lengths * dfa.num_states
            if num_costs > _MAX_LENGTH_COSTS:
                raise LimitError(
                    f"a text of {shape.min_length} characters at the least needs a table of costs that is too large; "
                    "lower the minimum length (minLength, or the counts of a pattern)",
                    "length_costs",
                    num_costs,
                )
            all_edges = np.ascontiguousarray(np.concatenate(edges), np.int32)
            table = trie_walk.length_costs(all_edges, dfa.accepting, num_lengths, INFINITE)
            known = self._length_costs[terminal] = (table, slack)
        return known

    # ------------------------------------------------------------------ needed tokens

    def _find_border(self) -> None:
        rows: dict[tuple[int, int], dict[int, int]] = {}
        for node in self.nodes:
            for index, shape in enumerate(self.terminals):
                rows[index, node] = self._paths(shape, 0, node)
                self.nodes.extend(end for end in rows[index, node] if end not in self.nodes)
                if len(self.nodes) > _MAX_BORDER_NODES:
                    raise LimitError(
                        "the tokens of this vocabulary cross the borders of this grammar in too many ways",
                        "border_nodes",
                        len(self.nodes),
                    )
        self._matrix = [
            tuple(tuple(rows[index, node].get(end, INFINITE) for end in self.nodes) for node in self.nodes)
            for index in range(len(self.terminals))
        ]

    def _spread(self, shape: Terminal, state: int, node: int) -> tuple[int, ...]:
        costs = self._paths(shape, state, node)
        return tuple(costs.get(end, INFINITE) for end in self.nodes)

    def _paths(self, shape: Terminal, state: int, node: int) -> dict[int, int]:
        """Return the cheapest way to the end of a word, by the trie node that it ends in (0-1 breadth first).

        A place is (DFA state, trie node inside a needed token); a token counts when it is complete.
        """
        best = {(state, node): 0}
        queue = deque([(0, state, node)])
        ends: dict[int, int] = {}
        while queue:
            cost, q, at = queue.popleft()
            if cost > best[q, at]:
                continue
            if shape.dfa.accepting[q]:
                ends.setdefault(at, cost)
            for extra, target, child in self._moves(shape, q, at):
                if cost + extra < best.get((target, child), INFINITE):
                    best[target, child] = cost + extra
                    (queue.append if extra else queue.appendleft)((cost + extra, target, child))
            if len(best) > _MAX_PATHS:
                raise LimitError("this vocabulary spells the grammar in too many ways", "paths", len(best))
        return ends

    def _moves(self, shape: Terminal, state: int, node: int) -> list[tuple[int, int, int]]:
        """Return the next places as (tokens completed, DFA state, trie node): by a token, or a byte of a needed one."""
        moves: list[tuple[int, int, int]] = []
        if node == 0:
            moves += [(1, int(end), 0) for end in self.scans.groups(shape.dfa, state).ends[:, 0]]
        for byte, child in self.spelling.needed_nodes.get(node, {}).items():
            target = int(shape.dfa.delta[state, byte])
            if target >= 0:
                moves.append((0, target, child))
                if self.spelling.ends_needed_token(child):
                    moves.append((1, target, 0))
        return moves
