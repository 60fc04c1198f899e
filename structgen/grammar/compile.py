"""compile_grammar: a grammar and a vocabulary to a token automaton, through the cache of the process."""

from __future__ import annotations

import enum
import threading

from structgen.config import Limits
from structgen.errors import OptionError, shown
from structgen.grammar.build import build_automaton
from structgen.grammar.cache import CompileCache
from structgen.grammar.ir import Grammar, Source
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.vocabulary import Vocabulary


class UserCache(enum.Enum):
    """Stands for the cache that all callers of a process share."""

    SHARED = "shared"


USER_CACHE = UserCache.SHARED

_lock = threading.Lock()
_shared: list[CompileCache] = []
# For those who want no cache: what lexemes mean for a vocabulary is shared in memory all the same, nothing on disk.
_uncached = CompileCache()


def shared_cache() -> CompileCache:
    """Return the cache of this process over the user's cache directory, made when first asked for."""
    with _lock:
        if not _shared:
            _shared.append(CompileCache.of_user())
        return _shared[0]


def limits_or_default(limits: Limits | None) -> Limits:
    """Return the limits, those of Limits() for None.

    Raises:
        OptionError: they are no Limits.
    """
    if limits is not None and not isinstance(limits, Limits):
        raise OptionError(f"limits must be Limits or None, such as Limits(compile_seconds=5), not {shown(limits)}")
    return limits or Limits()


def compile_grammar(
    grammar: Grammar | Source,
    vocabulary: Vocabulary,
    *,
    limits: Limits | None = None,
    cache: CompileCache | UserCache | None = USER_CACHE,
) -> TokenAutomaton:
    """Return the token automaton of a grammar.

    Args:
        grammar: what may be written; a source is only made a grammar of where the cache does not have it.
        vocabulary: in which tokens.
        limits: what the compilation may cost.
        cache: where to look first; None compiles anew and leaves the disk alone. What lexemes mean for the vocabulary
            is shared in memory in any case.

    Raises:
        UnsatisfiableError: no text belongs to the grammar.
        VocabularyError: no sequence of tokens spells any text of it.
        LimitError: a limit was passed.
        OptionError: limits are no Limits, or the cache is no CompileCache.
    """
    if cache is not None and not isinstance(cache, CompileCache | UserCache):
        raise OptionError(f"cache must be a CompileCache or None, such as CompileCache('folder'), not {shown(cache)}")
    limits = limits_or_default(limits)
    used = shared_cache() if isinstance(cache, UserCache) else cache
    if used is not None:
        return used.compile(grammar, vocabulary, limits)[0]
    scans, spelling = _uncached.scans_of(vocabulary)
    return build_automaton(Source.of(grammar).grammar, scans, spelling, limits=limits, digest="")
