"""Compiled automata: kept in memory whole (least recently used go), their rows kept on disk.

A file holds the mask rows that were worked out for one key: canonical grammar text, vocabulary digest (stop
ids included), limits and format version. The key text is stored and compared; files appear whole or not at
all; a damaged one is as good as none; the oldest go when the folder outgrows its bound. Several processes may
share the folder: the last writer wins, and every version of a file is right.
"""

from __future__ import annotations

import enum
import hashlib
import threading
import warnings
from collections import OrderedDict
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path

from structgen.config import Limits
from structgen.grammar.build import build_automaton
from structgen.grammar.canonical import canonical_text
from structgen.grammar.core import ROW_ARRAYS
from structgen.grammar.files import prune, read_arrays, write_arrays
from structgen.grammar.ir import Grammar
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.vocabulary import Vocabulary

_FORMAT = 1
_RECOMPILES_TO_WARN = 3


class CacheOutcome(enum.StrEnum):
    """Where an automaton came from."""

    MEMORY = "memory hit"
    DISK = "disk hit"
    MISS = "miss"


class CompileCache:
    """A cache of automata; thread-safe, one compilation per key at a time."""

    def __init__(self, directory: Path | None = None, *, max_automata: int = 64, max_disk_mb: int = 256) -> None:
        """Start empty.

        Args:
            directory: where rows are kept for later processes, None for memory only.
            max_automata: how many automata stay in memory.
            max_disk_mb: bound on the folder, in MiB.
        """
        self.directory = directory
        self.max_automata = max_automata
        self.max_disk_mb = max_disk_mb
        self._lock = threading.Lock()
        self._automata: OrderedDict[str, TokenAutomaton] = OrderedDict()
        self._building: dict[str, threading.Lock] = {}
        self._num_builds: dict[str, int] = {}
        self._num_stored_rows: dict[str, int] = {}
        self._scans: OrderedDict[str, tuple[VocabularyScans, Spelling]] = OrderedDict()

    @classmethod
    def of_user(cls) -> CompileCache:
        """Return a cache over the user's cache directory."""
        return cls(user_cache_path("structgen") / "automata")

    def compile(self, grammar: Grammar, vocabulary: Vocabulary, limits: Limits) -> tuple[TokenAutomaton, CacheOutcome]:
        """Return the automaton of a grammar, and where it came from.

        Raises:
            CompileError: as build_automaton says.
        """
        text = key_text(grammar, vocabulary, limits)
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            gate = self._building.setdefault(digest, threading.Lock())
        with gate:
            with self._lock:
                known = self._automata.get(digest)
                if known is not None:
                    self._automata.move_to_end(digest)
                    return known, CacheOutcome.MEMORY
            scans, spelling = self.scans_of(vocabulary)
            automaton = build_automaton(grammar, scans, spelling, limits=limits, digest=digest)
            from_disk = self._load(automaton, text)
            with self._lock:
                self._automata[digest] = automaton
                if len(self._automata) > self.max_automata:
                    self._automata.popitem(last=False)
                self._warn_if_often(digest)
            return automaton, CacheOutcome.DISK if from_disk else CacheOutcome.MISS

    def scans_of(self, vocabulary: Vocabulary) -> tuple[VocabularyScans, Spelling]:
        """Return what all grammars over a vocabulary share."""
        with self._lock:
            known = self._scans.get(vocabulary.digest)
            if known is None:
                known = (VocabularyScans(vocabulary, cache_dir=self.directory), Spelling(vocabulary))
                self._scans[vocabulary.digest] = known
                if len(self._scans) > 4:
                    self._scans.popitem(last=False)
            return known

    def store(self, grammar: Grammar, automaton: TokenAutomaton, limits: Limits) -> bool:
        """Write the automaton's rows to disk if there are new ones; return whether a file was written."""
        stored = self._num_stored_rows.get(automaton.digest, 0)
        if self.directory is None or automaton.num_rows <= stored:
            return False
        text = key_text(grammar, automaton.vocabulary, limits)
        rows = automaton.export_rows()
        key = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        written = write_arrays(self._path(automaton), {"key": key, **rows})
        with self._lock:
            self._num_stored_rows[automaton.digest] = automaton.num_rows
        if written:
            prune(self.directory, self.max_disk_mb << 20)
        return written

    def _load(self, automaton: TokenAutomaton, text: str) -> bool:
        if self.directory is None:
            return False
        arrays = read_arrays(self._path(automaton), ("key", *ROW_ARRAYS))
        if arrays is None or arrays["key"].astype(np.uint8).tobytes() != text.encode():
            return False
        if not automaton.import_rows(arrays):
            return False
        with self._lock:
            self._num_stored_rows[automaton.digest] = len(arrays["row_keys"])
        return True

    def _path(self, automaton: TokenAutomaton) -> Path:
        if self.directory is None:
            raise ValueError("this cache has no directory")
        return self.directory / f"{automaton.digest[:40]}.npz"

    def _warn_if_often(self, digest: str) -> None:
        self._num_builds[digest] = self._num_builds.get(digest, 0) + 1
        if self._num_builds[digest] == _RECOMPILES_TO_WARN:
            warnings.warn(
                f"the same grammar was compiled {_RECOMPILES_TO_WARN} times, because over {self.max_automata} others "
                "came in between: keep a Generator per output type, or a CompileCache with a larger max_automata",
                UserWarning,
                stacklevel=4,
            )


def key_text(grammar: Grammar, vocabulary: Vocabulary, limits: Limits) -> str:
    """Return the text that a cache entry is for."""
    return f"format {_FORMAT}\nvocabulary {vocabulary.digest}\nlimits {limits}\n{canonical_text(grammar)}"
