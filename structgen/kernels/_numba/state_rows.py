"""Compiled rows of DFA states over a byte trie; checks and allocation are in kernels/state_rows.py.

The arrays of the trie come depth first, so a walk is one loop: what need not be looked at is jumped over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit

_INTS = array(types.int32)
_BOOLS = array(types.boolean)
_KINDS = array(types.uint64)
_TABLE = array(types.int32, 2)
_FLAGS = array(types.boolean, 2)
_OUT = types.int32[:, ::1]
_ROW = types.int32[::1]
_PAIRS = types.int64[:, ::1]
_TRIE = (array(types.uint8), _INTS, _INTS, _INTS, types.int64)
_PAIR: Any = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]  # numba has no stubs

_NEVER = 1 << 40
_FEW_NODES = 4  # a subtree of no more is walked sooner than looked at

Array = np.ndarray[Any, Any]


@jit(types.void(_INTS, array(types.uint8), _KINDS, types.uint64[::1]))
def gather_kinds(parent: Array, node_byte: Array, kind: Array, below: Array) -> None:
    """Fill the kinds of the bytes below each node, as bits; kind has the bit of each byte."""
    below[:] = 0
    for i in range(parent.shape[0] - 1, 0, -1):
        below[parent[i]] |= below[i] | kind[node_byte[i]]


@jit(types.uint64(_TABLE, types.int64, _KINDS))
def _staying_kinds(delta: Array, state: Any, kind: Array) -> Any:
    """Return the kinds of bytes, as bits, with all of which a state goes on to itself."""
    leaving = np.uint64(0)
    for byte in range(256):
        if delta[state, byte] != state:
            leaving |= kind[byte]
    return ~leaving


@jit(
    _PAIR(*_TRIE, _INTS, _KINDS, _KINDS, _TABLE, _FLAGS, _BOOLS, types.int64, _ROW, _OUT),
)
def survive(
    node_byte: Array,
    subtree_end: Array,
    depth: Array,
    token_start: Array,
    deepest: int,
    token_ids: Array,
    below: Array,
    kind: Array,
    delta: Array,
    tick_bytes: Array,
    accepting: Array,
    state: int,
    row: Array,
    exits: Array,
) -> tuple[int, int]:
    """Set the bits of the tokens that a DFA state survives, counts aside; fill exits with (node, ticks).

    A subtree of bytes with which a state only goes on to itself is taken as a whole. Returns the numbers of exits and
    of tokens.
    """
    states = np.empty(deepest + 1, np.int64)
    counts = np.empty(deepest + 1, np.int64)
    states[0] = state
    counts[0] = 0
    staying = np.zeros(delta.shape[0], np.uint64)
    is_known = np.zeros(delta.shape[0], np.bool_)
    num_exits = 0
    num_tokens = 0
    i: Any = 1
    while i < node_byte.shape[0]:
        level = np.int64(depth[i])
        before = states[level - 1]
        byte = np.int64(node_byte[i])
        after = np.int64(delta[before, byte])
        end = np.int64(subtree_end[i])
        if after < 0:
            i = end
            continue
        following = np.int64(i + 1)
        if end > following + _FEW_NODES and not accepting[after]:
            if not is_known[after]:
                staying[after] = _staying_kinds(delta, after, kind)
                is_known[after] = True
            if not below[i] & ~staying[after]:
                following = end
        for k in range(token_start[i], token_start[following]):
            token = token_ids[k]
            row[token >> 5] |= np.int32(1) << np.int32(token & 31)
            num_tokens += 1
        if end > following:
            counts[level] = counts[level - 1] + tick_bytes[before, byte]
            states[level] = after
            if accepting[after]:
                exits[num_exits, 0] = i
                exits[num_exits, 1] = counts[level]
                num_exits += 1
        i = following
    return num_exits, num_tokens


@jit(types.void(_INTS, types.int32[::1]))
def measure_heights(parent: Array, height: Array) -> None:
    """Fill how many bytes the deepest node below each node is away from it."""
    height[:] = 0
    for i in range(parent.shape[0] - 1, 0, -1):
        height[parent[i]] = max(height[parent[i]], height[i] + 1)


@jit(types.int64(_PAIRS, types.int64, types.int64))
def _slot_of(pairs: Array, state: Any, other: Any) -> Any:
    """Return where a pair of states is in the hash table of pairs, or the empty place where it would be."""
    mixed = np.uint64(state) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(other) * np.uint64(0xC2B2AE3D27D4EB4F)
    slot = np.int64(mixed >> np.uint64(32)) & (pairs.shape[0] - 1)
    while pairs[slot, 0] >= 0 and (pairs[slot, 0] != state or pairs[slot, 1] != other):
        slot = (slot + 1) & (pairs.shape[0] - 1)
    return slot


@jit(types.void(_TABLE, _FLAGS, _BOOLS, types.int64, types.int64, _PAIRS, _PAIRS))
def find_partings(  # noqa: C901, PLR0915  # one search: an inner call that passes arrays on costs more than a step of it
    delta: Array, tick_bytes: Array, accepting: Array, state: int, other: int, pairs: Array, edges: Array
) -> None:
    """Fill the pairs of states that two states reach side by side: rows (state, other, fewest bytes until they part).

    Two states part where one ends a word, goes on or counts and the other does not. What is not looked at, as there is
    no room for it, parts at once.

    Args:
        delta: next states.
        tick_bytes: which steps count.
        accepting: where words end.
        state: the one.
        other: the other.
        pairs: a hash table of a power of two of rows, the first column -1 everywhere; half of it is used.
        edges: scratch memory for rows (place of a pair, place of a pair after one byte).
    """
    queue = np.empty(pairs.shape[0] // 2, np.int64)
    slot = _slot_of(pairs, state, other)
    pairs[slot, 0] = state
    pairs[slot, 1] = other
    queue[0] = slot
    num_pairs = 1
    num_edges = 0
    k = 0
    while k < num_pairs:
        slot = queue[k]
        k += 1
        one = pairs[slot, 0]
        two = pairs[slot, 1]
        pairs[slot, 2] = 0 if accepting[one] != accepting[two] else _NEVER
        last_one = last_two = np.int64(-1)
        for byte in range(256):
            after = np.int64(delta[one, byte])
            after_other = np.int64(delta[two, byte])
            if after == after_other and (after < 0 or tick_bytes[one, byte] == tick_bytes[two, byte]):
                continue
            if after < 0 or after_other < 0 or tick_bytes[one, byte] != tick_bytes[two, byte]:
                pairs[slot, 2] = min(pairs[slot, 2], 1)
                continue
            if after == last_one and after_other == last_two:
                continue
            last_one = after
            last_two = after_other
            target = _slot_of(pairs, after, after_other)
            is_new = pairs[target, 0] < 0
            if num_edges == edges.shape[0] or (is_new and num_pairs == queue.shape[0]):
                pairs[slot, 2] = min(pairs[slot, 2], 1)
                continue
            if is_new:
                pairs[target, 0] = after
                pairs[target, 1] = after_other
                queue[num_pairs] = target
                num_pairs += 1
            edges[num_edges, 0] = slot
            edges[num_edges, 1] = target
            num_edges += 1
    changed = True
    while changed:
        changed = False
        # Pairs were found breadth first, so going back meets what follows first wherever there is no cycle.
        for k in range(num_edges - 1, -1, -1):
            nearer = pairs[edges[k, 1], 2] + 1
            if nearer < pairs[edges[k, 0], 2]:
                pairs[edges[k, 0], 2] = nearer
                changed = True


@jit(types.int64(*_TRIE, _INTS, _INTS, _TABLE, _FLAGS, types.int64, types.int64, _PAIRS, _ROW, _OUT, types.int64))
def differ(
    node_byte: Array,
    subtree_end: Array,
    depth: Array,
    token_start: Array,
    deepest: int,
    token_ids: Array,
    height: Array,
    delta: Array,
    tick_bytes: Array,
    state: int,
    other: int,
    pairs: Array,
    row: Array,
    changed: Array,
    most_nodes: int,
) -> int:
    """Turn the row of another state into that of a state, looking only where the two go different ways.

    changed is filled with (node, state after it or -1, ticks) of each node at which they do; pairs comes from
    find_partings. Returns the number of rows that were filled; -1 if more than most_nodes would have to be looked at.
    """
    here = np.empty((deepest + 1, 4), np.int64)
    here[0, 0] = state
    here[0, 1] = other
    here[0, 2] = 0
    here[0, 3] = 0
    num_changed = 0
    num_nodes = 0
    i = 1
    while i < node_byte.shape[0]:
        above = here[depth[i] - 1]
        level = here[depth[i]]
        for k in range(2):
            level[k] = -1
            level[2 + k] = 0
            if above[k] >= 0:
                level[k] = delta[above[k], node_byte[i]]
                level[2 + k] = above[2 + k] + tick_bytes[above[k], node_byte[i]]
        if level[0] < 0 and level[1] < 0:
            i = subtree_end[i]
            continue
        are_level = level[2] == level[3] and level[0] >= 0 and level[1] >= 0
        if are_level and (level[0] == level[1] or pairs[_slot_of(pairs, level[0], level[1]), 2] > height[i]):
            i = subtree_end[i]
            continue
        num_nodes += 1
        if num_nodes > most_nodes:
            return -1
        for k in range(token_start[i], token_start[i + 1]):
            token = token_ids[k]
            bit = np.int32(1) << np.int32(token & 31)
            if level[0] >= 0:
                row[token >> 5] |= bit
            else:
                row[token >> 5] &= ~bit
        changed[num_changed, 0] = i
        changed[num_changed, 1] = level[0]
        changed[num_changed, 2] = level[2]
        num_changed += 1
        i += 1
    return num_changed
