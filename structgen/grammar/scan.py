"""What lexemes mean for a vocabulary: worked out once per DFA state, shared by every grammar, the dear ones on disk.

The rows of string interiors touch nearly every trie node; they are the same in every schema, so a machine
walks them once. Leaves out what comes after a lexeme (rows.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from structgen.grammar.dfa import Dfa
from structgen.grammar.files import read_arrays, write_arrays
from structgen.kernels import trie_walk
from structgen.kernels.trie_walk import Bools, DfaWalk, Ints
from structgen.trie import ByteTrie
from structgen.vocabulary import Vocabulary

INFINITE = 1 << 28

_DEAR_NUM_ROWS = 20_000
"""Walks that end in at least this many rows are kept on disk: they take over 0.2 ms."""


@dataclass(frozen=True, eq=False, slots=True)
class DfaScan:
    """What one DFA state means for the vocabulary.

    Attributes:
        row: (ceil(V / 32),) int32, mask of the tokens that the DFA survives.
        ends: (k, 2) int32, the distinct (state, ticks) in which those tokens end.
        nodes: their trie nodes, grouped by where they end.
        group_start: (k + 1,) int32, where each group begins in nodes.
        walk: where words end, and where what follows may go on (see kernels.trie_walk).
    """

    row: Ints
    ends: Ints
    nodes: Ints
    group_start: Ints
    walk: DfaWalk

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

    def __init__(self, vocabulary: Vocabulary, *, cache_dir: Path | None = None, max_scans: int = 4096) -> None:
        """Prepare, walk nothing yet.

        Args:
            vocabulary: whose trie is walked.
            cache_dir: where dear scans are kept, None for memory only.
            max_scans: how many scans stay in memory.
        """
        self.vocabulary = vocabulary
        self.trie = vocabulary.trie
        self.deepest = self.trie.max_depth
        self.num_words = (vocabulary.size + 31) // 32
        self._cache_dir = None if cache_dir is None else cache_dir / "scans" / vocabulary.digest[:32]
        self._max_scans = max_scans
        self._lock = threading.RLock()
        self._scans: OrderedDict[tuple[bytes, int], DfaScan] = OrderedDict()
        self._token_costs: dict[bytes, Ints] = {}

    def scan(self, dfa: Dfa, state: int) -> DfaScan:
        """Return the scan of a DFA state."""
        key = (dfa.digest, state)
        with self._lock:
            known = self._scans.get(key)
            if known is None:
                known = self._load(dfa, state) or self._compute(dfa, state)
                self._scans[key] = known
                if len(self._scans) > self._max_scans:
                    self._scans.popitem(last=False)
            else:
                self._scans.move_to_end(key)
            return known

    def token_costs(self, dfa: Dfa) -> Ints:
        """Return (num_states,): fewest tokens, each wholly inside the DFA, from a state to acceptance."""
        with self._lock:
            known = self._token_costs.get(dfa.digest)
            if known is None:
                known = trie_walk.token_costs(self.trie, self.deepest, dfa.delta, dfa.accepting, INFINITE)
                self._token_costs[dfa.digest] = known
            return known

    def new_row(self) -> Ints:
        """Return a mask without any token."""
        return np.zeros(self.num_words, np.int32)

    def _compute(self, dfa: Dfa, state: int) -> DfaScan:
        walk = trie_walk.walk_dfa(self.trie, self.deepest, dfa.delta, dfa.tick_bytes, dfa.accepting, state)
        row = self.new_row()
        trie_walk.set_tokens_(row, np.ascontiguousarray(walk.stay[:, 0]), self.trie)
        key = walk.stay[:, 1].astype(np.int64) * (self.deepest + 1) + walk.stay[:, 2]
        order = np.argsort(key, kind="stable")
        distinct, start = np.unique(key[order], return_index=True)
        ends = np.column_stack(np.divmod(distinct, self.deepest + 1)).astype(np.int32)
        group_start = np.append(start, len(key)).astype(np.int32)
        nodes = np.ascontiguousarray(walk.stay[order, 0])
        row.setflags(write=False)
        # The rows of the walk are all in the groups now.
        scan = DfaScan(row, ends, nodes, group_start, replace(walk, stay=walk.stay[:0].copy()))
        if self._cache_dir is not None and len(nodes) + len(walk.exits) >= _DEAR_NUM_ROWS:
            arrays = {"row": row, "ends": ends, "nodes": nodes, "group_start": group_start}
            walked = {"exits": walk.exits, "exit_start": walk.exit_start, "word_ends": walk.ends}
            write_arrays(self._path(dfa, state), arrays | walked)
        return scan

    def _load(self, dfa: Dfa, state: int) -> DfaScan | None:
        if self._cache_dir is None:
            return None
        names = ("row", "ends", "nodes", "group_start", "exits", "exit_start", "word_ends")
        arrays = read_arrays(self._path(dfa, state), names)
        if arrays is None:
            return None
        row, ends, nodes, group_start, exits, exit_start, word_ends = (arrays[name] for name in names)
        row.setflags(write=False)
        walk = DfaWalk(np.empty((0, 3), np.int32), exits, exit_start, word_ends)
        return DfaScan(row, ends, nodes, group_start, walk)

    def _path(self, dfa: Dfa, state: int) -> Path:
        if self._cache_dir is None:
            raise ValueError("these scans have no directory")
        return self._cache_dir / f"{dfa.digest.hex()[:40]}-{state}.npz"
