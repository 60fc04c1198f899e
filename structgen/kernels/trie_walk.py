"""Walk the byte trie of a vocabulary over an automaton: which tokens live, and where they end.

Two forms: over the DFA of one lexeme (the result is the same in every grammar, so it is kept), and over
a table of configurations that may be partly unknown. Knows neither grammar nor model; the obvious forms
at the end of the file are what the compiled ones are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from structgen.trie import ByteTrie

Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class DfaWalk:
    """What a DFA state means for a vocabulary.

    Attributes:
        stay: (n, 3) int32, a row (node, state, ticks) for each node that holds a token and that the DFA survives.
        exits: (m, 2) int32, a row (node, ticks) for each node whose parent ends a word, so that what follows the
            lexeme may go on there; ordered by the node's byte, then by node.
        exit_start: (257,) int32, where each byte's rows begin in exits.
        ends: (k, 2) int32, a row (node, ticks) for each node that holds a token and at which a word ends.
    """

    stay: Ints
    exits: Ints
    exit_start: Ints
    ends: Ints


def walk_dfa(trie: ByteTrie, deepest: int, delta: Ints, tick_bytes: Bools, accepting: Bools, state: int) -> DfaWalk:
    """Walk the whole trie from a DFA state.

    Args:
        trie: the vocabulary.
        deepest: trie.max_depth (passed in: it takes a pass over the trie).
        delta: (num_states, 256), next state or -1.
        tick_bytes: (num_states, 256), True where a byte starts a counted unit.
        accepting: (num_states,).
        state: where to start.
    """
    from structgen.kernels._numba import trie_walk as compiled

    stay = np.empty((trie.num_nodes, 3), np.int32)
    exits = np.empty((trie.num_nodes, 2), np.int32)
    num_stay, num_exits = compiled.walk_dfa(
        trie.node_byte,
        trie.subtree_end,
        trie.depth,
        trie.token_start,
        deepest,
        delta,
        tick_bytes,
        accepting,
        state,
        stay,
        exits,
    )
    return _sorted_walk(trie, stay[:num_stay].copy(), exits[:num_exits], accepting)


def _sorted_walk(trie: ByteTrie, stay: Ints, exits: Ints, accepting: Bools) -> DfaWalk:
    ends = np.ascontiguousarray(stay[accepting[stay[:, 1]]][:, [0, 2]])
    exit_byte = trie.node_byte[exits[:, 0]]
    order = np.argsort(exit_byte, kind="stable")
    exit_start = np.searchsorted(exit_byte[order], np.arange(257)).astype(np.int32)
    return DfaWalk(stay, np.ascontiguousarray(exits[order]), exit_start, ends)


def walk_table(trie: ByteTrie, deepest: int, parts: Ints, rows: Callable[[Ints], tuple[Ints, Bools]]) -> Ints:
    """Walk parts of the trie over configurations, asking for unknown rows as they are met.

    Args:
        trie: the vocabulary.
        deepest: trie.max_depth (passed in: it takes a pass over the trie).
        parts: (n, 3) int32, rows (first node, node after the last, configuration before the first).
        rows: called with configurations whose rows are needed; returns the table (num_configurations, 256), next
            configuration or -1, and known (num_configurations,), True where the row is filled.

    Returns:
        (m, 2) int32, a row (node, configuration after it) for each node that holds a token and is reached.
    """
    from structgen.kernels._numba import trie_walk as compiled

    results = []
    while len(parts):
        table, known = rows(np.unique(parts[:, 2]))
        size = int((parts[:, 1] - parts[:, 0]).sum())
        found = np.empty((size, 2), np.int32)
        pending = np.empty((size, 2), np.int32)
        first, last, origin = (np.ascontiguousarray(parts[:, k]) for k in range(3))
        num_found, num_pending = compiled.walk_table(
            trie.node_byte,
            trie.subtree_end,
            trie.depth,
            trie.token_start,
            deepest,
            table,
            known,
            first,
            last,
            origin,
            found,
            pending,
        )
        results.append(found[:num_found])
        nodes = pending[:num_pending, 0]
        parts = np.stack([nodes + 1, trie.subtree_end[nodes], pending[:num_pending, 1]], axis=1)
    return np.concatenate(results) if results else np.empty((0, 2), np.int32)


def set_tokens_(mask: Ints, nodes: Ints, trie: ByteTrie) -> None:
    """Set, in place, the bits of all tokens that end at the nodes; mask is (ceil(V / 32),) int32."""
    from structgen.kernels._numba import trie_walk as compiled

    compiled.set_tokens(mask, nodes, trie.token_start, trie.token_ids)


def token_costs(trie: ByteTrie, deepest: int, delta: Ints, accepting: Bools, infinite: int) -> Ints:
    """Return (num_states,): fewest tokens, each wholly inside the DFA, from a state to acceptance.

    Args:
        trie: the vocabulary.
        deepest: trie.max_depth (passed in: it takes a pass over the trie).
        delta: (num_states, 256), next state or -1.
        accepting: (num_states,).
        infinite: stands for "cannot".
    """
    from structgen.kernels._numba import trie_walk as compiled

    result: Ints = compiled.token_costs(
        trie.node_byte, trie.subtree_end, trie.depth, trie.token_start, deepest, delta, accepting, infinite
    )
    return result


def length_costs(edges: Ints, accepting: Bools, num_lengths: int, infinite: int) -> Ints:
    """Return (num_lengths, num_states): fewest tokens from each state to acceptance over exactly that many ticks.

    Args:
        edges: (n, 3) int32, rows (state, next state, ticks), one token each.
        accepting: (num_states,).
        num_lengths: lengths 0 to num_lengths - 1 are worked out.
        infinite: stands for "cannot".
    """
    from structgen.kernels._numba import trie_walk as compiled

    source, target, ticks = (np.ascontiguousarray(edges[:, k]) for k in range(3))
    result: Ints = compiled.length_costs(source, target, ticks, accepting, num_lengths, infinite)
    return result


# ---------------------------------------------------------------------------------- obvious forms, for the tests


def reference_walk_dfa(trie: ByteTrie, delta: Ints, tick_bytes: Bools, accepting: Bools, state: int) -> DfaWalk:
    """Do what walk_dfa does, one node after the other, from each node's parent."""
    at: dict[int, tuple[int, int]] = {0: (state, 0)}
    stay, exits = [], []
    for node in range(1, trie.num_nodes):
        parent, byte = int(trie.parent[node]), int(trie.node_byte[node])
        if parent not in at:
            continue
        before, ticks = at[parent]
        if parent != 0 and accepting[before]:
            exits.append((node, ticks))
        after = int(delta[before, byte])
        if after >= 0:
            at[node] = (after, ticks + int(tick_bytes[before, byte]))
            if trie.token_start[node + 1] > trie.token_start[node]:
                stay.append((node, *at[node]))
    return _sorted_walk(
        trie, np.array(stay, np.int32).reshape(-1, 3), np.array(exits, np.int32).reshape(-1, 2), accepting
    )
