"""The byte trie of a vocabulary: depth-first flat arrays that a walk reads from left to right.

Leaves out where the bytes come from (token_bytes.py, vocabulary.py) and every walk (kernels/trie_walk.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

ByteArray: TypeAlias = npt.NDArray[np.uint8]
IndexArray: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True)
class ByteTrie:
    """A trie over byte strings, its nodes numbered depth first; node 0 is the root (the empty string).

    The children of a node stand in ascending byte order; the first one, if any, is the next node, and each
    further one begins where the subtree before it ends. All arrays are read-only.

    Attributes:
        node_byte: (num_nodes,) uint8, the byte on the edge into the node; 0 at the root.
        subtree_end: (num_nodes,) int32, the node after the last one of the subtree.
        depth: (num_nodes,) int32, number of bytes from the root.
        parent: (num_nodes,) int32; the root is its own parent.
        token_start: (num_nodes + 1,) int32, where the ids of a node begin in token_ids.
        token_ids: int32, the ids whose bytes end at each node, ascending within a node.
    """

    node_byte: ByteArray
    subtree_end: IndexArray
    depth: IndexArray
    parent: IndexArray
    token_start: IndexArray
    token_ids: IndexArray

    def __post_init__(self) -> None:
        """Make every array read-only: the trie is shared between threads."""
        for item in fields(self):
            getattr(self, item.name).setflags(write=False)

    @classmethod
    def build(cls, tokens: Sequence[bytes]) -> ByteTrie:
        """Build the trie of a vocabulary.

        Args:
            tokens: bytes of each id, by id; an empty entry is in no node.
        """
        # sorted() is stable, so ids with equal bytes stay ascending.
        order = sorted((i for i, token in enumerate(tokens) if token), key=tokens.__getitem__)
        ids = np.array(order, dtype=np.int32)
        text = np.frombuffer(b"".join([tokens[i] for i in order]), dtype=np.uint8)
        length = np.fromiter((len(tokens[i]) for i in order), dtype=np.int64, count=len(order))
        offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])[:-1]
        shared = _shared_prefix(text, offset, length)
        # A token equal to the one before adds no node; every other one adds its unshared bytes.
        added = length - shared
        last_node = np.cumsum(added)
        num_nodes = int(last_node[-1]) + 1 if len(order) else 1
        owner = np.repeat(np.arange(len(order)), added)
        within = np.arange(1, num_nodes) - (last_node - added)[owner]
        node_byte = np.zeros(num_nodes, np.uint8)
        node_byte[1:] = text[offset[owner] + within - 1 + shared[owner]]
        depth = np.zeros(num_nodes, np.int32)
        depth[1:] = shared[owner] + within
        parent, subtree_end = _links(depth)
        token_start = np.searchsorted(last_node, np.arange(num_nodes + 1), side="left").astype(np.int32)
        return cls(node_byte, subtree_end, depth, parent, token_start, ids)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, the root included."""
        return len(self.node_byte)

    @property
    def max_depth(self) -> int:
        """Number of bytes of the longest token."""
        return int(self.depth.max())


def _shared_prefix(
    text: ByteArray, offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return how many leading bytes each token shares with the one before it, 0 for the first."""
    shared = np.zeros(len(length), np.int64)
    active = np.arange(1, len(length))
    shortest = np.minimum(length[1:], length[:-1])
    column = 0
    # One pass per column over the tokens still equal to their neighbour: their number falls fast.
    while active.size:
        active = active[shortest[active - 1] > column]
        active = active[text[offset[active] + column] == text[offset[active - 1] + column]]
        column += 1
        shared[active] = column
    return shared


def _links(depth: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return (parent, subtree_end) of nodes in depth-first order, given their depths."""
    num_nodes = len(depth)
    parent = np.zeros(num_nodes, np.int32)
    subtree_end = np.full(num_nodes, num_nodes, np.int32)
    by_depth = np.argsort(depth, kind="stable").astype(np.int32)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(depth))])
    for level in range(1, len(start) - 1):
        above = by_depth[start[level - 1] : start[level]]
        nodes = by_depth[start[level] : start[level + 1]]
        # The parent is the last node of the level above that comes before.
        parent[nodes] = above[np.searchsorted(above, nodes) - 1]
        # A subtree ends at the next sibling, else where the parent's ends.
        end = subtree_end[parent[nodes]]
        end[:-1] = np.minimum(end[:-1], nodes[1:])
        subtree_end[nodes] = end
    return parent, subtree_end
