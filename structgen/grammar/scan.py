"""What lexemes mean for a vocabulary: computed once per DFA state, shared by every grammar, kept on disk where it is dear.

The rows of string interiors touch nearly every trie node; they are the same in every schema, so a machine
walks them once. Leaves out what comes after a lexeme (rows.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from structgen.grammar.dfa import Dfa
from structgen.grammar.files import read_arrays, write_arrays
from structgen.kernels import trie_walk
from structgen.kernels.trie_walk import DfaWalk, Ints
from structgen.vocabulary import Vocabulary

INFINITE = 1 << 28

_DEAR_NUM_ROWS = 20_000
"""Walks that end in at least this many rows are kept on disk: they take over 0.2 ms."""


@dataclass(frozen=True, eq=False, slots=True)
class DfaScan:
    """The walk from one DFA state, with what is asked most worked out.

    Attributes:
        walk: the walk itself.
        row: (ceil(V / 32),) int32, mask of the tokens that the DFA survives.
        ends: (k, 2) int32, the distinct (state, ticks) in which those tokens end.
    """

    walk: DfaWalk
    row: Ints
    ends: Ints


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
        ends = np.unique(walk.stay[:, 1:], axis=0)
        row.setflags(write=False)
        scan = DfaScan(walk, row, ends)
        if self._cache_dir is not None and len(walk.stay) + len(walk.exits) >= _DEAR_NUM_ROWS:
            arrays = {"stay": walk.stay, "exits": walk.exits, "exit_start": walk.exit_start, "word_ends": walk.ends}
            write_arrays(self._path(dfa, state), arrays | {"row": row, "ends": ends})
        return scan

    def _load(self, dfa: Dfa, state: int) -> DfaScan | None:
        if self._cache_dir is None:
            return None
        arrays = read_arrays(self._path(dfa, state), ("stay", "exits", "exit_start", "word_ends", "row", "ends"))
        if arrays is None:
            return None
        walk = DfaWalk(arrays["stay"], arrays["exits"], arrays["exit_start"], arrays["word_ends"])
        arrays["row"].setflags(write=False)
        return DfaScan(walk, arrays["row"], arrays["ends"])

    def _path(self, dfa: Dfa, state: int) -> Path:
        if self._cache_dir is None:
            raise ValueError("these scans have no directory")
        return self._cache_dir / f"{dfa.digest.hex()[:40]}-{state}.npz"
