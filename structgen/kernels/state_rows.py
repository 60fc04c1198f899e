"""The row of one DFA state over a vocabulary, counts aside: walked, or made from the row of another state.

Knows neither grammar nor model. The tests hold both to the obvious walk of kernels/trie_walk.py.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from structgen.kernels.trie_walk import CountedDfa, Ints
from structgen.trie import ByteTrie

_BYTES_ALIKE = (b"0123456789", b"abcdef", b"ghijklmnopqrstuvwxyz", b"ABCDEF", b"GHIJKLMNOPQRSTUVWXYZ", bytes(range(32)))


def _kinds() -> npt.NDArray[np.uint64]:
    """Return a bit for each byte: one for bytes that patterns mostly name together, one for each other of ASCII."""
    alike = [*_BYTES_ALIKE, bytes(range(0x80, 0xC0)), bytes(range(0xC0, 0xE0)), bytes(range(0xE0, 0x100))]
    alike += [bytes([byte]) for byte in range(0x80) if not any(byte in group for group in alike)]
    kinds = np.zeros(256, np.uint64)
    for number, group in enumerate(alike):
        kinds[list(group)] = 1 << number
    return kinds


_KIND_OF_BYTE = _kinds()

_MAX_PAIRS = 256  # a power of two
"""Of two states that reach more pairs of states side by side, the others count as parting."""


class StateRows:
    """Makes rows over one trie; for any number of threads."""

    def __init__(self, trie: ByteTrie) -> None:
        """Take the trie; what is known of its subtrees is worked out when first needed."""
        self.trie = trie
        self._deepest = trie.max_depth

    def survivors(self, dfa: CountedDfa, state: int, row: Ints) -> tuple[Ints, int]:
        """Set, in place, the bits of the tokens that a DFA state survives, counts aside.

        Args:
            dfa: what the tokens are read by.
            state: where to start.
            row: (ceil(V / 32),) int32.

        Returns:
            the exits as in trie_walk.Walk, and the number of tokens.
        """
        from structgen.kernels._numba import state_rows as compiled

        trie = self.trie
        exits = np.empty((trie.num_nodes, 2), np.int32)
        # fmt: off
        num_exits, num_tokens = compiled.survive(
            trie.node_byte, trie.subtree_end, trie.depth, trie.token_start, self._deepest, trie.token_ids,
            self._kinds_below, _KIND_OF_BYTE, dfa.delta, dfa.tick_bytes, dfa.accepting, state, row, exits,
        )
        # fmt: on
        return exits[:num_exits].copy(), num_tokens

    def differ(
        self, dfa: CountedDfa, state: int, other: int, row: Ints, *, most_nodes: int | None = None
    ) -> Ints | None:
        """Turn the row of another state into that of a state, in place, looking only where the two part; counts aside.

        Args:
            dfa: whose states they are.
            state: whose row is wanted.
            other: whose row is given; the nearer the two are, the less there is to look at.
            row: (ceil(V / 32),) int32, the tokens that the other state survives.
            most_nodes: how many nodes may be looked at; the two are then compared first, so that subtrees are left out
                that are too shallow for them to part. None looks at each node at which they have come to two states.

        Returns:
            (n, 3) int32, rows (node, state after it or -1, ticks) of the nodes at which the two differ; None if more
            would have to be looked at, and then the row is spoilt.
        """
        from structgen.kernels._numba import state_rows as compiled

        trie = self.trie
        most = trie.num_nodes if most_nodes is None else min(most_nodes, trie.num_nodes)
        changed = np.empty((most, 3), np.int32)
        pairs = np.zeros((2 * _MAX_PAIRS, 3), np.int64)
        pairs[:, 0] = -1
        if most_nodes is not None:
            edges = np.empty((16 * _MAX_PAIRS, 2), np.int64)
            compiled.find_partings(dfa.delta, dfa.tick_bytes, dfa.accepting, state, other, pairs, edges)
        # fmt: off
        num_changed = compiled.differ(
            trie.node_byte, trie.subtree_end, trie.depth, trie.token_start, self._deepest, trie.token_ids, self._height,
            dfa.delta, dfa.tick_bytes, state, other, pairs, row, changed, most,
        )
        # fmt: on
        return None if num_changed < 0 else changed[:num_changed].copy()

    @cached_property
    def _kinds_below(self) -> npt.NDArray[np.uint64]:
        """The kinds of the bytes below each node, as bits."""
        from structgen.kernels._numba import state_rows as compiled

        below = np.empty(self.trie.num_nodes, np.uint64)
        compiled.gather_kinds(self.trie.parent, self.trie.node_byte, _KIND_OF_BYTE, below)
        return below

    @cached_property
    def _height(self) -> Ints:
        """How many bytes the deepest node below each node is away from it."""
        from structgen.kernels._numba import state_rows as compiled

        height = np.empty(self.trie.num_nodes, np.int32)
        compiled.measure_heights(self.trie.parent, height)
        return height
