"""Walk the byte trie of a vocabulary over the DFA of a lexeme: which tokens live, where they end, where words end.

Knows neither grammar nor model; what follows a word is the caller's. The obvious forms at the end of the file
are what the compiled ones (_numba/trie_walk.py) are tested against.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from structgen.trie import ByteTrie

Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class CountedDfa:
    """A DFA with bounds on the number of counted steps of a word.

    Attributes:
        delta: (num_states, 256) int32, next state or -1.
        tick_bytes: (num_states, 256), True where a byte starts a counted unit.
        accepting: (num_states,).
        need: (num_states,) int32, fewest ticks from a state to acceptance.
        most: (num_states,) int32, most ticks from a state to acceptance.
        low: least number of ticks of a word.
        high: greatest number of ticks of a word, -1 for no bound.
    """

    delta: Ints
    tick_bytes: Bools
    accepting: Bools
    need: Ints
    most: Ints
    low: int = 0
    high: int = -1


@dataclass(frozen=True, eq=False, slots=True)
class Walk:
    """What a walk found.

    Attributes:
        stay: (n, 3) int32, rows (node, state, count) of the nodes that hold a token and that the DFA survives.
        exits: (m, 2) int32, rows (node, count) of the nodes at which a word may end and below which the trie goes on.
    """

    stay: Ints
    exits: Ints


class TrieWalker:
    """Walks one trie, over and over, with the same scratch memory; for one thread at a time."""

    def __init__(self, trie: ByteTrie) -> None:
        """Take the trie; memory is allocated at the first walk."""
        self.trie = trie
        self.deepest = trie.max_depth
        self.whole = np.array([[1, trie.num_nodes]], np.int32) if trie.num_nodes > 1 else np.empty((0, 2), np.int32)
        self._stay = np.empty((0, 3), np.int32)
        self._exits = np.empty((0, 2), np.int32)

    def walk(self, dfa: CountedDfa, state: int, count: int, parts: Ints) -> Walk:
        """Walk parts of the trie from a DFA state.

        Args:
            dfa: what the tokens are read by.
            state: where to start.
            count: ticks so far.
            parts: (n, 2) int32, rows (first node, node after the last): siblings with their subtrees, apart from
                each other: the scratch memory has room for each node once.

        Raises:
            ValueError: the parts hold more nodes than the trie has.
        """
        from structgen.kernels._numba import trie_walk as compiled

        trie = self.trie
        if int((parts[:, 1] - parts[:, 0]).sum()) > trie.num_nodes:
            raise ValueError("the parts of a walk overlap")
        if not len(self._stay):
            stay, exits = np.empty((trie.num_nodes, 3), np.int32), np.empty((trie.num_nodes, 2), np.int32)
            self._stay, self._exits = stay, exits  # both or none, as the walk checks no bound
        first, last = np.ascontiguousarray(parts[:, 0]), np.ascontiguousarray(parts[:, 1])
        # fmt: off
        num_stay, num_exits = compiled.walk(
            trie.node_byte, trie.subtree_end, trie.depth, trie.token_start, self.deepest,
            dfa.delta, dfa.tick_bytes, dfa.accepting, dfa.need, dfa.most, dfa.low, dfa.high,
            state, count, first, last, self._stay, self._exits,
        )
        # fmt: on
        return Walk(self._stay[:num_stay].copy(), self._exits[:num_exits].copy())

    def token_costs(self, dfa: CountedDfa, infinite: int) -> Ints:
        """Return (num_states,): fewest tokens, each wholly inside the DFA, from a state to acceptance, counts aside.

        Args:
            dfa: whose words the tokens spell.
            infinite: stands for "cannot".
        """
        from structgen.kernels._numba import trie_walk as compiled

        trie = self.trie
        # fmt: off
        result: Ints = compiled.token_costs(
            trie.node_byte, trie.subtree_end, trie.depth, trie.token_start, self.deepest,
            dfa.delta, dfa.accepting, infinite,
        )
        # fmt: on
        return result


def set_tokens_(mask: Ints, nodes: Ints, trie: ByteTrie) -> None:
    """Set, in place, the bits of all tokens that end at the nodes; mask is (ceil(V / 32),) int32."""
    from structgen.kernels._numba import trie_walk as compiled

    compiled.set_tokens(mask, nodes, trie.token_start, trie.token_ids)


def fingerprint(mask: Ints) -> int:
    """Return a number that is the same for equal masks, and hardly ever for two that differ."""
    from structgen.kernels._numba import trie_walk as compiled

    result: int = compiled.fingerprint(mask)
    return result


def are_equal(mask: Ints, other: Ints) -> bool:
    """Return whether two masks of one length are equal."""
    from structgen.kernels._numba import trie_walk as compiled

    result: bool = compiled.are_equal(mask, other)
    return result


def set_groups_(mask: Ints, nodes: Ints, group_start: Ints, chosen: Bools, trie: ByteTrie) -> None:
    """Set, in place, the bits of all tokens that end at the nodes of the chosen groups; see set_tokens_."""
    from structgen.kernels._numba import trie_walk as compiled

    compiled.set_groups(mask, nodes, group_start, chosen, trie.token_start, trie.token_ids)


def reach(delta: Ints, state: int, most: int) -> tuple[Ints, Ints]:
    """Return the states that a state reaches, breadth first in byte order, and the number of each state among them.

    Args:
        delta: (num_states, 256) int32, next state or -1.
        state: the first.
        most: the search ends once it has found this many.
    """
    from structgen.kernels._numba import trie_walk as compiled

    order, number = np.empty(min(most, len(delta)), np.int32), np.full(len(delta), -1, np.int32)
    num_found = compiled.reach(delta, state, order, number)
    return order[:num_found].copy(), number


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


def reference_walk(trie: ByteTrie, dfa: CountedDfa, state: int, count: int, parts: Ints) -> Walk:
    """Do what TrieWalker.walk does, one node after the other, each from its parent."""
    stay: list[tuple[int, int, int]] = []
    exits: list[tuple[int, int]] = []
    for first, last in parts.tolist():
        at = {int(trie.parent[first]): (state, count)}
        for node in range(first, last):
            if int(trie.parent[node]) not in at:
                continue
            before, so_far = at[int(trie.parent[node])]
            byte = int(trie.node_byte[node])
            after, total = int(dfa.delta[before, byte]), so_far + int(dfa.tick_bytes[before, byte])
            if after < 0 or total + dfa.most[after] < dfa.low or 0 <= dfa.high < total + dfa.need[after]:
                continue
            at[node] = (after, total)
            if trie.token_start[node + 1] > trie.token_start[node]:
                stay.append((node, after, total))
            if dfa.accepting[after] and total >= dfa.low and trie.subtree_end[node] > node + 1:
                exits.append((node, total))
    return Walk(np.array(stay, np.int32).reshape(-1, 3), np.array(exits, np.int32).reshape(-1, 2))


def reference_token_costs(trie: ByteTrie, dfa: CountedDfa, infinite: int) -> Ints:
    """Do what TrieWalker.token_costs does, by relaxing every edge until nothing changes."""
    whole = np.array([[1, trie.num_nodes]], np.int32)
    free = CountedDfa(dfa.delta, dfa.tick_bytes, dfa.accepting, dfa.need, dfa.most)
    ends = [
        set(reference_walk(trie, free, state, 0, whole).stay[:, 1].tolist()) if trie.num_nodes > 1 else set()
        for state in range(len(dfa.accepting))
    ]
    cost = np.where(dfa.accepting, 0, infinite).astype(np.int32)
    for _ in range(len(cost)):
        for state, reached in enumerate(ends):
            cost[state] = min([int(cost[state]), *(int(cost[end]) + 1 for end in reached)])
    return np.minimum(cost, infinite).astype(np.int32)


def reference_length_costs(edges: Ints, accepting: Bools, num_lengths: int, infinite: int) -> Ints:
    """Do what length_costs does, by relaxing every edge until nothing changes."""
    cost = np.full((num_lengths, len(accepting)), infinite, np.int32)
    cost[0, accepting] = 0
    for _ in range(num_lengths * len(accepting)):
        for source, target, ticks in edges.tolist():
            for length in range(ticks, num_lengths):
                if cost[length - ticks, target] < infinite:
                    cost[length, source] = min(cost[length, source], cost[length - ticks, target] + 1)
    return cost
