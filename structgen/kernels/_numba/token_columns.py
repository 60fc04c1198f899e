"""Compiled: what each token does to every state of a byte machine; its checks are in kernels/token_columns.py.

A column is what a text does to all states at once: a partial map of states, written as the fewest runs (source, target,
length) of consecutive states with consecutive targets. Texts that do the same are one column, so the trie is walked
once, not once per state, and each pair of a column and a byte class is worked out once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit

_INTS = array(types.int32)
_TABLE = array(types.int32, 2)
_OUT = types.int32[::1]
_OUT_TABLE = types.int32[:, ::1]
_LONGS = types.int64[::1]

Array = np.ndarray[Any, Any]


@jit(types.void(_TABLE, _OUT_TABLE))
def runs_of_table(table: Array, run: Array) -> None:
    """Fill run[s, c]: how many states from s on have consecutive targets under class c, or none at all."""
    num_states, num_classes = table.shape
    run[num_states - 1, :] = 1
    for s in range(num_states - 2, -1, -1):
        for c in range(num_classes):
            here = table[s, c]
            there = table[s + 1, c]
            joins = there == here + 1 if here >= 0 else there < 0
            run[s, c] = run[s + 1, c] + 1 if joins else 1


@jit(types.int64(_TABLE, _TABLE, _LONGS, _OUT_TABLE, types.int64, types.int64, types.int64))
def _compose(table: Array, run: Array, start: Array, runs: Array, column: int, byte_class: int, place: int) -> int:
    """Write, from `place` on, the runs of a column that one more byte follows; return where they end."""
    end = place
    for k in range(start[column], start[column + 1]):
        source, target, length = runs[k, 0], runs[k, 1], runs[k, 2]
        while length > 0:
            step = min(length, run[target, byte_class])
            after = table[target, byte_class]
            if after >= 0:
                last = end - 1
                if end > place and runs[last, 0] + runs[last, 2] == source and runs[last, 1] + runs[last, 2] == after:
                    runs[last, 2] += step
                else:
                    runs[end, 0] = source
                    runs[end, 1] = after
                    runs[end, 2] = step
                    end += 1
            source += step
            target += step
            length -= step
    return end


@jit(types.uint64(_OUT_TABLE, types.int64, types.int64))
def _hash(runs: Array, first: int, last: int) -> Any:
    """Return a hash of some runs (the finaliser of splitmix64 over their numbers)."""
    z = np.uint64(last - first)
    for k in range(first, last):
        for part in range(3):
            z = (z ^ np.uint64(runs[k, part])) + np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
    return z


@jit(types.int64(_LONGS, _OUT_TABLE, _OUT, types.int64, types.int64))
def _slot_of(start: Array, runs: Array, slots: Array, first: int, last: int) -> Any:
    """Return the slot of the column with these runs, or the free one where it belongs; equal hashes are compared."""
    mask = np.uint64(slots.shape[0] - 1)
    slot = np.int64(_hash(runs, first, last) & mask)
    while slots[slot] >= 0:
        begin = start[slots[slot]]
        if start[slots[slot] + 1] - begin == last - first:
            same = True
            for k in range(last - first):
                for part in range(3):
                    same = same and runs[begin + k, part] == runs[first + k, part]
            if same:
                return slot
        slot = np.int64(np.uint64(slot + 1) & mask)
    return slot


@jit(
    types.boolean(
        array(types.uint8), _INTS, _INTS, _INTS, _TABLE, _TABLE,
        _LONGS, _OUT, _OUT, _OUT_TABLE, _LONGS, _OUT_TABLE, _OUT, types.int64,
    )
)  # fmt: skip
def walk_columns(
    node_byte: Array,
    subtree_end: Array,
    depth: Array,
    byte_class: Array,
    table: Array,
    run: Array,
    cursor: Array,
    at: Array,
    node_column: Array,
    memo: Array,
    start: Array,
    runs: Array,
    slots: Array,
    max_work: int,
) -> Any:
    """Go on with a walk; return whether it is done, False if it needs more room or has used its work up.

    cursor is (node, columns so far), at[d] the column of the open node of depth d, node_column[i] that of node i (0,
    which is dead, where nothing was written), memo[column, class] the column after one more byte (-1: unknown),
    start and runs the columns, slots an empty hash table with over twice the room that memo has.
    """
    num_states = table.shape[0]
    i, num_columns = cursor[0], cursor[1]
    for column in range(num_columns):
        slots[_slot_of(start, runs, slots, start[column], start[column + 1])] = column
    work = 0
    while i < node_byte.shape[0]:
        before = at[depth[i] - 1]
        c = byte_class[node_byte[i]]
        column = memo[before, c]
        if column < 0:
            place = start[num_columns]
            if num_columns == memo.shape[0] or runs.shape[0] - place < num_states or work > max_work:
                break
            end = _compose(table, run, start, runs, before, c, place)
            work += end - place + start[before + 1] - start[before]
            slot = _slot_of(start, runs, slots, place, end)
            column = slots[slot]
            if column < 0:
                column = num_columns
                slots[slot] = column
                num_columns += 1
                start[num_columns] = end
            memo[before, c] = column
        if column == 0:
            i = subtree_end[i]
            continue
        node_column[i] = column
        at[depth[i]] = column
        i += 1
    cursor[0], cursor[1] = i, num_columns
    return i >= node_byte.shape[0]


@jit(types.void(_INTS, _LONGS, _OUT_TABLE, types.int32[:, :]))
def expand(columns: Array, start: Array, runs: Array, out: Array) -> None:
    """Fill out[s, k], all -1 before, with where columns[k] leads from state s."""
    for k in range(columns.shape[0]):
        for r in range(start[columns[k]], start[columns[k] + 1]):
            for j in range(runs[r, 2]):
                out[runs[r, 0] + j, k] = runs[r, 1] + j


@jit(types.void(_INTS, _LONGS, _OUT))
def sort_tokens(token_class: Array, start: Array, tokens: Array) -> None:
    """Fill tokens by class, ascending within one, and start, all zero before, with where each class begins."""
    for k in token_class:
        start[k + 1] += 1
    for k in range(1, start.shape[0]):
        start[k] += start[k - 1]
    place = start.copy()
    for token in range(token_class.shape[0]):
        k = token_class[token]
        tokens[place[k]] = token
        place[k] += 1


@jit(types.void(array(types.boolean, 2), _LONGS, _INTS, _OUT_TABLE))
def fill_masks(legal: Array, class_start: Array, tokens: Array, masks: Array) -> None:
    """Fill masks[r], all zero before, with the tokens of the classes k for which legal[r, k].

    The tokens of class k are tokens[class_start[k]:class_start[k + 1]]. A row that differs little from the one before
    is made of that one.
    """
    num_rows, num_classes = legal.shape
    for r in range(num_rows):
        num_legal = 0
        num_changed = 0
        for k in range(num_classes):
            size = class_start[k + 1] - class_start[k]
            if legal[r, k]:
                num_legal += size
            if r > 0 and legal[r, k] != legal[r - 1, k]:
                num_changed += size
        is_changed = r > 0 and num_changed < num_legal
        if is_changed:
            masks[r] = masks[r - 1]
        for k in range(num_classes):
            if legal[r, k] != (is_changed and legal[r - 1, k]):
                for j in range(class_start[k], class_start[k + 1]):
                    masks[r, tokens[j] >> 5] ^= np.int32(1) << np.int32(tokens[j] & 31)


@jit(types.void(_INTS, _INTS, types.boolean[::1]))
def mark_columns(of_node: Array, token_start: Array, is_used: Array) -> None:
    """Set is_used of the columns of nodes that hold a token."""
    for node in range(of_node.shape[0]):
        if token_start[node + 1] > token_start[node]:
            is_used[of_node[node]] = True


@jit(types.void(_INTS, _INTS, _INTS, _INTS, _OUT))
def classes_of_tokens(of_node: Array, token_start: Array, token_ids: Array, rank: Array, out: Array) -> None:
    """Fill out[token] with the rank of the column of the node that the token ends at."""
    for node in range(of_node.shape[0]):
        for k in range(token_start[node], token_start[node + 1]):
            out[token_ids[k]] = rank[of_node[node]]


@jit(types.void(_TABLE, _LONGS, _OUT))
def list_tokens(masks: Array, start: Array, ids: Array) -> None:
    """Fill ids from start[r] on with the tokens of row r, ascending, for each row with start[r] < start[r + 1]."""
    for r in range(masks.shape[0]):
        place = start[r]
        if place == start[r + 1]:
            continue
        for w in range(masks.shape[1]):
            word = np.uint32(masks[r, w])
            token = w * 32
            while word:
                if word & np.uint32(1):
                    ids[place] = token
                    place += 1
                word >>= np.uint32(1)
                token += 1
