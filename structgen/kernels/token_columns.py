"""Token columns: what each token of a vocabulary does to all states of a byte machine at once, and masks made of that.

A column is a partial map of states. Few columns differ (hundreds for a schema, over 128,000 tokens), so tokens fall
into classes, and a machine over tokens is a small table. Knows neither grammar nor model; the obvious forms at the end
of the file are what the compiled ones (_numba/token_columns.py) are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.kernels.trie_walk import Bools, Ints
from structgen.trie import ByteTrie

Longs = npt.NDArray[np.int64]

DEAD_COLUMN = 0
SAME_COLUMN = 1

_FIRST_ROOM = 1024
_WORK_PER_LOOK = 1 << 22


@dataclass(frozen=True, eq=False, slots=True)
class ByteMachine:
    """A machine that reads bytes, classes of which it does not tell apart.

    Attributes:
        byte_class: (256,) int32, the class of each byte; class 0 is read in no state.
        table: (num_states, num_classes) int32, the next state or -1.
    """

    byte_class: Ints
    table: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Columns:
    """The distinct columns of a trie.

    Attributes:
        of_node: (num_nodes,) int32, the column of the text of each node; 0, which leads nowhere, below a dead one.
        num_columns: how many there are. Column 0 leads nowhere, column 1 changes nothing; the others are numbered as
            they are met.
        start: where the runs of each column begin.
        runs: (n, 3) int32, rows (source, target, length): source + j leads to target + j, for j below the length.
        num_states: of the machine.
    """

    of_node: Ints
    num_columns: int
    start: Longs
    runs: Ints
    num_states: int

    def classes(self, trie: ByteTrie, num_tokens: int) -> tuple[Ints, Ints]:
        """Return ((num_tokens,) the class of each token, (num_classes,) the column of each class), both int32.

        Class 0 leads nowhere: it holds the tokens that the trie does not have, too.
        """
        from structgen.kernels._numba import token_columns as compiled

        is_used = np.zeros(self.num_columns, np.bool_)
        compiled.mark_columns(self.of_node, trie.token_start, is_used)
        is_used[DEAD_COLUMN] = True
        rank = np.cumsum(is_used, dtype=np.int32) - 1
        token_class = np.zeros(num_tokens, np.int32)
        compiled.classes_of_tokens(self.of_node, trie.token_start, trie.token_ids, rank, token_class)
        return token_class, np.flatnonzero(is_used).astype(np.int32)

    def expand(self, columns: Ints, out: Ints) -> None:
        """Fill `out`, (num_states, len(columns)) int32 and all -1 before, with where some columns lead."""
        from structgen.kernels._numba import token_columns as compiled

        compiled.expand(np.ascontiguousarray(columns, np.int32), self.start, self.runs, out)


def token_columns(trie: ByteTrie, machine: ByteMachine, look: Callable[[int], None]) -> Columns:
    """Return the columns of all nodes of a trie.

    Args:
        trie: the texts.
        machine: what reads them; states that are often left together should be numbered in a row.
        look: called now and then with the bytes that are in use; what it raises ends the walk.
    """
    from structgen.kernels._numba import token_columns as compiled

    table = np.ascontiguousarray(machine.table, np.int32)
    num_states, num_classes = table.shape
    run = np.empty_like(table)
    compiled.runs_of_table(table, run)
    cursor = np.array([1, 2], np.int64)
    at = np.full(trie.max_depth + 1, SAME_COLUMN, np.int32)
    of_node = np.zeros(trie.num_nodes, np.int32)
    of_node[0] = SAME_COLUMN
    memo = np.full((_FIRST_ROOM, num_classes), -1, np.int32)
    memo[DEAD_COLUMN] = DEAD_COLUMN
    start = np.zeros(_FIRST_ROOM + 1, np.int64)
    start[2] = 1
    runs = np.empty((max(16 * _FIRST_ROOM, 2 * num_states), 3), np.int32)
    runs[0] = 0, 0, num_states
    while True:
        slots = np.full(4 * len(memo), -1, np.int32)
        # fmt: off
        is_done = compiled.walk_columns(
            trie.node_byte, trie.subtree_end, trie.depth, machine.byte_class, table, run,
            cursor, at, of_node, memo, start, runs, slots, _WORK_PER_LOOK,
        )
        # fmt: on
        num_columns = int(cursor[1])
        if is_done:
            return Columns(of_node, num_columns, start, runs, num_states)
        if num_columns == len(memo):
            memo = np.concatenate([memo, np.full_like(memo, -1)])
            start = np.concatenate([start, np.zeros(len(memo) // 2, np.int64)])
        if len(runs) - start[num_columns] < num_states:
            runs = np.concatenate([runs, np.empty_like(runs)])
        look(memo.nbytes + start.nbytes + runs.nbytes + slots.nbytes)


@dataclass(frozen=True, eq=False, slots=True)
class ClassTokens:
    """The tokens of each class.

    Attributes:
        start: (num_classes + 1,), where each class begins in tokens.
        tokens: (V,) int32, the tokens by class, ascending within one.
    """

    start: Longs
    tokens: Ints

    @classmethod
    def of(cls, token_class: npt.NDArray[np.integer[Any]], num_classes: int) -> ClassTokens:
        """Sort the tokens by their classes."""
        from structgen.kernels._numba import token_columns as compiled

        start = np.zeros(num_classes + 1, np.int64)
        tokens = np.empty(len(token_class), np.int32)
        compiled.sort_tokens(token_class.astype(np.int32), start, tokens)
        return cls(start, tokens)

    def masks(self, legal: Bools) -> Ints:
        """Return (num_rows, ceil(V / 32)) int32: the masks of the tokens whose class is legal in each row.

        Args:
            legal: (num_rows, num_classes).
        """
        from structgen.kernels._numba import token_columns as compiled

        masks = np.zeros((len(legal), (len(self.tokens) + 31) // 32), np.int32)
        compiled.fill_masks(np.ascontiguousarray(legal), self.start, self.tokens, masks)
        return masks


def token_lists(masks: Ints, num_legal: Ints, max_tokens: int) -> tuple[Longs, Ints]:
    """Return the ascending token ids of each row that has at most max_tokens, the others empty, as (start, ids).

    Args:
        masks: (num_rows, num_words).
        num_legal: (num_rows,), how many bits each row has.
        max_tokens: the longest list.
    """
    from structgen.kernels._numba import token_columns as compiled

    sizes = np.where(num_legal <= max_tokens, num_legal, 0)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    ids = np.empty(int(start[-1]), np.int32)
    compiled.list_tokens(masks, start, ids)
    return start, ids


# ---------------------------------------------------------------------------------- obvious forms, for the tests


def reference_columns(trie: ByteTrie, machine: ByteMachine) -> tuple[Ints, list[tuple[int, ...]]]:
    """Return (column of each node, where each column leads from every state), node by node from its parent."""
    num_states = len(machine.table)
    number = {(-1,) * num_states: DEAD_COLUMN, tuple(range(num_states)): SAME_COLUMN}
    after = [tuple(range(num_states))]
    of_node = np.full(trie.num_nodes, SAME_COLUMN, np.int32)
    for node in range(1, trie.num_nodes):
        c = int(machine.byte_class[trie.node_byte[node]])
        before = after[int(trie.parent[node])]
        after.append(tuple(-1 if state < 0 else int(machine.table[state, c]) for state in before))
        of_node[node] = number.setdefault(after[-1], len(number))
    return of_node, list(number)


def reference_masks(legal: Bools, token_class: npt.NDArray[np.uint16]) -> Ints:
    """Do what ClassTokens.masks does, token by token."""
    masks = np.zeros((len(legal), (len(token_class) + 31) // 32), np.uint32)
    for row, by_class in enumerate(legal):
        for token, k in enumerate(token_class.tolist()):
            if by_class[k]:
                masks[row, token >> 5] |= np.uint32(1 << (token & 31))
    return masks.view(np.int32)
