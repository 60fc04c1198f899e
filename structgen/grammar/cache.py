"""Compiled automata: kept in memory whole (least recently used go), what texts have met of them kept on disk.

A file holds the mask rows and the met states of one key: what the grammar is made of, or its canonical text; vocabulary
digest (stop ids included), limits, and the sources that make rules and name states. The key of a schema is there before
any of its rules, so on a hit nothing is lowered until a text leaves the met states. How files are kept says
array_store.py.
"""

from __future__ import annotations

import enum
import hashlib
import os
import threading
import warnings
import weakref
from collections import OrderedDict

from platformdirs import user_cache_path

from structgen.array_store import ArrayStore
from structgen.config import Limits, check_count, check_folder
from structgen.grammar.build import build_automaton, open_automaton
from structgen.grammar.canonical import canonical_text
from structgen.grammar.ir import Grammar, Source
from structgen.grammar.memo import Memo
from structgen.grammar.met_states import ARRAYS, fits
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.vocabulary import Vocabulary

_SOURCES = (
    "grammar",
    "grammar/json_schema/format_tables.npz",
    "kernels",
    "frozen_machine.py",
    "frozen_pieces.py",
    "vocabulary.py",
    "vocabulary_cache.py",
    "token_bytes.py",
    "trie.py",
)
_MAX_VOCABULARIES = 4
_MAX_COUNTED = 4096
_RECOMPILES_TO_WARN = 3


class CacheOutcome(enum.StrEnum):
    """Where an automaton came from."""

    MEMORY = "memory hit"
    DISK = "disk hit"
    MISS = "miss"


class CompileCache:
    """A cache of automata; thread-safe, one compilation per key at a time."""

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, *, max_automata: int = 64, max_disk_mb: int = 256
    ) -> None:
        """Start empty.

        Args:
            directory: where rows and met states are kept for later processes, None for memory only.
            max_automata: how many automata stay in memory.
            max_disk_mb: bound on what lies in the directory, in MiB; what was used longest ago goes.

        Raises:
            OptionError: an argument is of another type, or a bound is too small.
        """
        self.directory = check_folder("directory", directory)
        check_count("max_automata", max_automata)
        check_count("max_disk_mb", max_disk_mb, minimum=0)
        self.max_automata = max_automata
        self.max_disk_mb = max_disk_mb
        self._disk = ArrayStore(self.directory, sources=_SOURCES, max_bytes=max_disk_mb << 20)
        self._automata: Memo[str, TokenAutomaton] = Memo(max_automata)
        self._shared: Memo[str, tuple[VocabularyScans, Spelling]] = Memo(_MAX_VOCABULARIES)
        self._lock = threading.Lock()
        self._num_builds: OrderedDict[str, int] = OrderedDict()
        self._num_stored_rows: weakref.WeakKeyDictionary[TokenAutomaton, int] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        """Show where it is and its bounds."""
        where = "memory only" if self.directory is None else repr(str(self.directory))
        return f"CompileCache({where}, max_automata={self.max_automata}, max_disk_mb={self.max_disk_mb})"

    @classmethod
    def of_user(cls) -> CompileCache:
        """Return a cache over the user's cache directory."""
        return cls(user_cache_path("structgen") / "automata")

    def compile(
        self, grammar: Grammar | Source, vocabulary: Vocabulary, limits: Limits
    ) -> tuple[TokenAutomaton, CacheOutcome]:
        """Return the automaton of a grammar, and where it came from; a source is made a grammar of where it is none.

        Raises:
            CompileError: as build_automaton says.
        """
        source = Source.of(grammar)
        text = key_text(source, vocabulary, limits)
        digest = _digest_of(text)
        outcome = CacheOutcome.MEMORY

        def build() -> TokenAutomaton:
            nonlocal outcome
            arrays = self._disk.read(text, ARRAYS)
            if arrays is not None and fits(arrays):
                outcome = CacheOutcome.DISK
                automaton = open_automaton(
                    source, vocabulary, arrays, lambda: self.scans_of(vocabulary), limits=limits, digest=digest
                )
                with self._lock:
                    self._num_stored_rows[automaton] = automaton.num_rows
                return automaton
            outcome = CacheOutcome.MISS
            scans, spelling = self.scans_of(vocabulary)
            return build_automaton(source.grammar, scans, spelling, limits=limits, digest=digest)

        automaton = self._automata.get(digest, build)
        if outcome is not CacheOutcome.MEMORY:
            self._warn_if_often(digest)
        return automaton, outcome

    def scans_of(self, vocabulary: Vocabulary) -> tuple[VocabularyScans, Spelling]:
        """Return what all grammars over a vocabulary share."""
        return self._shared.get(
            vocabulary.digest, lambda: (VocabularyScans(vocabulary, store=self._disk), Spelling(vocabulary))
        )

    def store(self, grammar: Grammar | Source, automaton: TokenAutomaton, limits: Limits) -> bool:
        """Write an automaton's rows and met states to disk if there are new rows; return whether a file was written."""
        num_rows = automaton.num_rows
        with self._lock:
            if self.directory is None or num_rows <= self._num_stored_rows.get(automaton, 0):
                return False
            self._num_stored_rows[automaton] = num_rows
        return self._disk.write(key_text(grammar, automaton.vocabulary, limits), automaton.export())

    def _warn_if_often(self, digest: str) -> None:
        with self._lock:
            num_builds = self._num_builds[digest] = self._num_builds.pop(digest, 0) + 1
            if len(self._num_builds) > _MAX_COUNTED:
                self._num_builds.popitem(last=False)
        if num_builds == _RECOMPILES_TO_WARN:
            warnings.warn(
                f"the same grammar was compiled {_RECOMPILES_TO_WARN} times, because over {self.max_automata} others "
                "came in between: keep a Generator per output type, or a CompileCache with a larger max_automata",
                UserWarning,
                stacklevel=4,
            )


def digest_in_full(grammar: Grammar, vocabulary: Vocabulary, limits: Limits) -> str:
    """Return the digest that the automaton of a grammar has once its rules are written down, all of them."""
    return _digest_of(key_text(Grammar(dict(grammar.rules), grammar.start), vocabulary, limits))


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def key_text(grammar: Grammar | Source, vocabulary: Vocabulary, limits: Limits) -> str:
    """Return the text that a cache entry is for."""
    # To write rules down that are made when they are asked for would make all of them.
    source = Source.of(grammar)
    text = canonical_text(source.grammar) if source.made_of is None else source.made_of
    return f"rows\nvocabulary {vocabulary.digest}\nlimits {limits}\n{text}"
