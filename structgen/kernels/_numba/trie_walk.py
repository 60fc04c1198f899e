"""Compiled walks over a byte trie; checks and allocation are in kernels/trie_walk.py.

The arrays of the trie come depth first, so a walk is one loop: a dead byte jumps to the end of its subtree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit

_INTS = array(types.int32)
_BOOLS = array(types.boolean)
_OUT = types.int32[:, ::1]
_TRIE = (array(types.uint8), _INTS, _INTS, _INTS, types.int64)
_TABLE = array(types.int32, 2)
_PAIR: Any = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]  # numba has no stubs

Array = np.ndarray[Any, Any]


@jit(
    _PAIR(*_TRIE, _TABLE, array(types.boolean, 2), _BOOLS, _INTS, _INTS, *(types.int64,) * 4, _INTS, _INTS, _OUT, _OUT)
)
def walk(
    node_byte: Array,
    subtree_end: Array,
    depth: Array,
    token_start: Array,
    deepest: int,
    delta: Array,
    tick_bytes: Array,
    accepting: Array,
    need: Array,
    most: Array,
    low: int,
    high: int,
    state: int,
    count: int,
    first: Array,
    last: Array,
    stay: Array,
    exits: Array,
) -> tuple[int, int]:
    """Walk parts of the trie from one DFA state with one count.

    Part k is the nodes first[k] to last[k]: siblings with their subtrees. stay is filled with (node, state, count) of
    each node that holds a token and that the DFA survives, exits with (node, count) of each node below which what
    follows a word may go on. Returns the numbers of rows that were filled.
    """
    states = np.empty(deepest + 1, np.int32)
    counts = np.empty(deepest + 1, np.int32)
    states[0] = state
    counts[0] = count
    num_stay = 0
    num_exits = 0
    for k in range(first.shape[0]):
        i = first[k]
        end = last[k]
        base = depth[i] - 1
        while i < end:
            level = depth[i] - base
            before = states[level - 1]
            after = delta[before, node_byte[i]]
            if after < 0:
                i = subtree_end[i]
                continue
            total = counts[level - 1] + tick_bytes[before, node_byte[i]]
            if total + most[after] < low or (high >= 0 and total + need[after] > high):
                i = subtree_end[i]
                continue
            if token_start[i + 1] > token_start[i]:
                stay[num_stay, 0] = i
                stay[num_stay, 1] = after
                stay[num_stay, 2] = total
                num_stay += 1
            if accepting[after] and total >= low and subtree_end[i] > i + 1:
                exits[num_exits, 0] = i
                exits[num_exits, 1] = total
                num_exits += 1
            states[level] = after
            counts[level] = total
            i += 1
    return num_stay, num_exits


@jit(types.int64(_TABLE, types.int64, types.int32[::1], types.int32[::1]))
def reach(delta: Array, state: int, order: Array, number: Array) -> int:
    """Fill the states that a state reaches, breadth first in byte order, and their numbers; return how many there are.

    number holds -1 for every state. The search ends when order is full.
    """
    order[0] = state
    number[state] = 0
    num_found = 1
    k = 0
    while k < num_found < order.shape[0]:
        for byte in range(256):
            target = delta[order[k], byte]
            if num_found < order.shape[0] and target >= 0 and number[target] < 0:
                number[target] = num_found
                order[num_found] = target
                num_found += 1
        k += 1
    return num_found


@jit(types.void(types.int32[::1], _INTS, _INTS, _BOOLS, _INTS, _INTS))
def set_groups(
    mask: Array, nodes: Array, group_start: Array, chosen: Array, token_start: Array, token_ids: Array
) -> None:
    """Set the bits of all tokens that end at the nodes of the chosen groups."""
    for group in range(chosen.shape[0]):
        if chosen[group]:
            for k in range(group_start[group], group_start[group + 1]):
                for i in range(token_start[nodes[k]], token_start[nodes[k] + 1]):
                    token = token_ids[i]
                    mask[token >> 5] |= np.int32(1) << np.int32(token & 31)


@jit(types.int64(_INTS))
def fingerprint(mask: Array) -> Any:
    """Return a number that is the same for equal masks, and hardly ever for two that differ."""
    factor = np.uint64(0x9E3779B97F4A7C15)
    a = b = c = d = factor
    size = mask.shape[0]
    # Four sums side by side, so that none waits for another's product.
    for k in range(0, size - 3, 4):
        a = (a ^ np.uint64(np.uint32(mask[k]))) * factor
        b = (b ^ np.uint64(np.uint32(mask[k + 1]))) * factor
        c = (c ^ np.uint64(np.uint32(mask[k + 2]))) * factor
        d = (d ^ np.uint64(np.uint32(mask[k + 3]))) * factor
    for k in range(size - size % 4, size):
        a = (a ^ np.uint64(np.uint32(mask[k]))) * factor
    total = factor
    for one in (a, b, c, d):
        total = (total ^ one ^ (one >> np.uint64(32))) * factor
    return np.int64(total >> np.uint64(1))


@jit(types.boolean(_INTS, _INTS))
def are_equal(mask: Array, other: Array) -> Any:
    """Return whether two masks of one length are equal."""
    parted = np.int32(0)
    for k in range(mask.shape[0]):
        parted |= mask[k] ^ other[k]
    return parted == 0


@jit(types.void(types.int32[::1], _INTS, _INTS, _INTS))
def set_tokens(
    mask: Array,
    nodes: Array,
    token_start: Array,
    token_ids: Array,
) -> None:
    """Set the bits of all tokens that end at the nodes."""
    for node in nodes:
        for k in range(token_start[node], token_start[node + 1]):
            token = token_ids[k]
            mask[token >> 5] |= np.int32(1) << np.int32(token & 31)


@jit(types.int32[:, ::1](_INTS, _INTS, _INTS, _BOOLS, types.int64, types.int64))
def length_costs(
    source: Array,
    target: Array,
    ticks: Array,
    accepting: Array,
    num_lengths: int,
    infinite: int,
) -> Array:
    """Return (num_lengths, num_states): fewest tokens from a state to acceptance over exactly that many ticks.

    Edge e spells ticks[e] units from source[e] to target[e] with one token.
    """
    num_states = accepting.shape[0]
    cost = np.full((num_lengths, num_states), infinite, np.int32)
    for state in range(num_states):
        if accepting[state]:
            cost[0, state] = 0
    for length in range(num_lengths):
        changed = True
        while changed:
            changed = False
            for e in range(source.shape[0]):
                if ticks[e] <= length:
                    value = cost[length - ticks[e], target[e]]
                    if value < infinite and value + 1 < cost[length, source[e]]:
                        cost[length, source[e]] = value + 1
                        changed = True
    return cost


@jit(types.int32[::1](*_TRIE, _TABLE, _BOOLS, types.int64))
def token_costs(
    node_byte: Array,
    subtree_end: Array,
    depth: Array,
    token_start: Array,
    deepest: int,
    delta: Array,
    accepting: Array,
    infinite: int,
) -> Array:
    """Return (num_states,): fewest tokens, each wholly inside the DFA, from a state to acceptance."""
    num_states = accepting.shape[0]
    num_nodes = node_byte.shape[0]
    cost = np.full(num_states, infinite, np.int32)
    for state in range(num_states):
        if accepting[state]:
            cost[state] = 0
    states = np.empty(deepest + 1, np.int32)
    changed = True
    while changed:
        changed = False
        # States are numbered breadth first, so going down meets successors first wherever there is no cycle.
        for state in range(num_states - 1, -1, -1):
            best = cost[state]
            states[0] = state
            i = 1
            while i < num_nodes and best > 1:
                level = depth[i]
                after = delta[states[level - 1], node_byte[i]]
                if after < 0:
                    i = subtree_end[i]
                    continue
                if token_start[i + 1] > token_start[i] and cost[after] + 1 < best:
                    best = cost[after] + 1
                states[level] = after
                i += 1
            if best < cost[state]:
                cost[state] = best
                changed = True
    return cost
