"""What lexemes mean for a vocabulary: worked out once per DFA state, shared by every grammar, the dear ones on disk.

The rows of string interiors touch nearly every trie node; they are the same in every schema, so a machine
walks them once. Leaves out what comes after a lexeme (rows.py).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields

import numpy as np

from structgen.array_store import ArrayLayout, ArrayStore
from structgen.grammar.dfa import Dfa
from structgen.grammar.memo import Memo
from structgen.kernels import trie_walk
from structgen.kernels.trie_walk import Bools, CountedDfa, Ints, TrieWalker
from structgen.trie import ByteTrie
from structgen.vocabulary import Vocabulary

INFINITE = 1 << 28

_DEAR_NUM_ROWS = 20_000
"""Walks that end in at least this many rows are kept on disk: they take over 0.2 ms."""

_LAYOUT = {
    "ends": ArrayLayout(np.int32, (None, 2)),
    "nodes": ArrayLayout(np.int32, (None,)),
    "group_start": ArrayLayout(np.int32, (None,)),
    "exits": ArrayLayout(np.int32, (None, 2)),
    "exit_start": ArrayLayout(np.int32, (257,)),
}


@dataclass(frozen=True, eq=False, slots=True)
class DfaScan:
    """What one DFA state means for the vocabulary.

    Attributes:
        row: (ceil(V / 32),) int32, mask of the tokens that the DFA survives.
        ends: (k, 2) int32, the distinct (state, ticks) in which those tokens end.
        nodes: their trie nodes, grouped by where they end.
        group_start: (k + 1,) int32, where each group begins in nodes.
        exits: (m, 2) int32, rows (node, ticks before it) of the nodes at which what follows a word may go on, by
            the node's byte.
        exit_start: (257,) int32, where each byte begins in exits.
    """

    row: Ints
    ends: Ints
    nodes: Ints
    group_start: Ints
    exits: Ints
    exit_start: Ints

    def add_to(self, mask: Ints, keep: Bools, trie: ByteTrie) -> None:
        """Add, in place, the tokens of the groups to keep, by way of the smaller side."""
        if keep.all():
            mask |= self.row
            return
        sizes = np.diff(self.group_start)
        kept = np.repeat(keep, sizes)
        if 2 * int(sizes[keep].sum()) < len(self.nodes):
            trie_walk.set_tokens_(mask, self.nodes[kept], trie)
        else:
            dropped = np.zeros_like(mask)
            trie_walk.set_tokens_(dropped, self.nodes[~kept], trie)
            mask |= self.row & ~dropped


class VocabularyScans:
    """The scans of one vocabulary; shared by threads and by grammars, bounded in memory (least recently used go)."""

    def __init__(self, vocabulary: Vocabulary, *, store: ArrayStore | None = None, max_scans: int = 4096) -> None:
        """Prepare, walk nothing yet.

        Args:
            vocabulary: whose trie is walked.
            store: where dear scans are kept, None for memory only.
            max_scans: how many scans, and how many arrays of costs, stay in memory.
        """
        self.vocabulary = vocabulary
        self.trie = vocabulary.trie
        self._walker = TrieWalker(self.trie)
        self.deepest = self._walker.deepest
        self.num_words = (vocabulary.size + 31) // 32
        self._store = store
        self._walker_lock = threading.Lock()
        self._scans: Memo[tuple[bytes, int], DfaScan] = Memo(max_scans)
        self._token_costs: Memo[bytes, Ints] = Memo(max_scans)

    def scan(self, dfa: Dfa, state: int) -> DfaScan:
        """Return the scan of a DFA state."""
        return self._scans.get((dfa.digest, state), lambda: self._load(dfa, state) or self._compute(dfa, state))

    def token_costs(self, dfa: Dfa) -> Ints:
        """Return (num_states,): fewest tokens, each wholly inside the DFA, from a state to acceptance."""
        return self._token_costs.get(dfa.digest, lambda: self._walker.token_costs(_uncounted(dfa), INFINITE))

    def new_row(self) -> Ints:
        """Return a mask without any token."""
        return np.zeros(self.num_words, np.int32)

    def _compute(self, dfa: Dfa, state: int) -> DfaScan:
        with self._walker_lock:  # it has one scratch memory; all the rest runs side by side
            walk = self._walker.walk(_uncounted(dfa), state, 0, self._walker.whole)
        row = self.new_row()
        nodes = np.ascontiguousarray(walk.stay[:, 0])
        trie_walk.set_tokens_(row, nodes, self.trie)
        row.setflags(write=False)
        # Ends as one small number each, so that sorting them is a radix sort.
        width = self.deepest + 1
        key = walk.stay[:, 1] * width + walk.stay[:, 2]
        distinct = np.flatnonzero(np.bincount(key, minlength=1))
        group = np.zeros(int(key.max(initial=0)) + 1, np.uint16 if len(distinct) < 1 << 16 else np.int64)
        group[distinct] = np.arange(len(distinct))
        order = np.argsort(group[key], kind="stable")
        group_start = np.searchsorted(group[key[order]], np.arange(len(distinct) + 1)).astype(np.int32)
        ends = np.column_stack(np.divmod(distinct, width)).astype(np.int32)
        scan = DfaScan(row, ends, nodes[order], group_start, *self._exits(walk.exits))
        if self._store is not None and len(nodes) + len(scan.exits) >= _DEAR_NUM_ROWS:
            arrays = {field.name: getattr(scan, field.name) for field in fields(scan)}
            self._store.write(self._key_text(dfa, state), arrays)
        return scan

    def _exits(self, ends: Ints) -> tuple[Ints, Ints]:
        """Return (rows (node, ticks) of the children of the nodes at which words end, by byte; start of each byte)."""
        ticks = np.full(self.trie.num_nodes, -1, np.int32)
        ticks[ends[:, 0]] = ends[:, 1]
        above = ticks[self.trie.parent]
        above[0] = -1
        nodes = np.flatnonzero(above >= 0).astype(np.int32)
        by_byte = np.argsort(self.trie.node_byte[nodes], kind="stable")
        nodes = nodes[by_byte]
        exit_start = np.searchsorted(self.trie.node_byte[nodes], np.arange(257)).astype(np.int32)
        return np.column_stack([nodes, above[nodes]]), exit_start

    def _load(self, dfa: Dfa, state: int) -> DfaScan | None:
        if self._store is None:
            return None
        arrays = self._store.read(
            self._key_text(dfa, state), _LAYOUT | {"row": ArrayLayout(np.int32, (self.num_words,))}
        )
        if arrays is None:
            return None
        scan = DfaScan(**arrays)
        fits = len(scan.group_start) == len(scan.ends) + 1 and scan.group_start[-1] == len(scan.nodes)
        return scan if fits and scan.exit_start[-1] == len(scan.exits) else None

    def _key_text(self, dfa: Dfa, state: int) -> str:
        return f"scan\nvocabulary {self.vocabulary.digest}\nlexeme {dfa.digest.hex()}\nstate {state}"


def _uncounted(dfa: Dfa) -> CountedDfa:
    no_bound = np.zeros(dfa.num_states, np.int32)
    return CountedDfa(dfa.delta, dfa.tick_bytes, dfa.accepting, no_bound, no_bound)
