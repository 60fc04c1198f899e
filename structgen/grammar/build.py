"""From a grammar and a vocabulary to a token automaton: every stage in order, and nothing else."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy.typing as npt

from structgen.config import Limits
from structgen.errors import UnsatisfiableError, VocabularyError
from structgen.grammar.core import AutomatonCore
from structgen.grammar.growing import grow
from structgen.grammar.ir import Grammar, LazyRules, Source
from structgen.grammar.met_states import MetStates
from structgen.grammar.normalise import normalise
from structgen.grammar.parser import Parser
from structgen.grammar.productions import Productions
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.time_limit import time_limit
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.vocabulary import Vocabulary


def build_automaton(
    grammar: Grammar, scans: VocabularyScans, spelling: Spelling, *, limits: Limits, digest: str
) -> TokenAutomaton:
    """Build the token automaton of a grammar.

    Raises:
        UnsatisfiableError: no text belongs to the grammar.
        VocabularyError: no sequence of tokens spells any text of it.
        LimitError: a limit was passed.
    """
    started = time.perf_counter()
    with time_limit(limits.compile_seconds):
        productions = spellable_productions(grammar, spelling)
    make_core = partial(core_of, productions, scans, spelling, limits)
    seconds = time.perf_counter() - started
    return TokenAutomaton(make_core, digest=digest, limits=limits, compile_seconds=seconds)


def open_automaton(
    source: Source,
    vocabulary: Vocabulary,
    arrays: Mapping[str, npt.NDArray[Any]],
    shared: Callable[[], tuple[VocabularyScans, Spelling]],
    *,
    limits: Limits,
    digest: str,
) -> TokenAutomaton:
    """Return the token automaton of a grammar that was compiled before; the grammar is made when a text needs it.

    Args:
        source: the grammar.
        vocabulary: its tokens.
        arrays: what was exported then (met_states.py), under the same limits.
        shared: gives what all grammars over the vocabulary share.
        limits: as in build_automaton; the time has been kept then.
        digest: likewise.
    """
    started = time.perf_counter()

    @functools.cache
    def parts() -> tuple[Productions, VocabularyScans, Spelling]:
        scans, spelling = shared()
        return spellable_productions(source.grammar, spelling), scans, spelling

    def make_core() -> AutomatonCore:
        return core_of(*parts(), limits)

    met = MetStates(arrays, vocabulary, make_core)
    seconds = time.perf_counter() - started
    return TokenAutomaton(make_core, digest=digest, limits=limits, compile_seconds=seconds, met=met)


def core_of(productions: Productions, scans: VocabularyScans, spelling: Spelling, limits: Limits) -> AutomatonCore:
    """Return a core that knows the start state only.

    Raises:
        VocabularyError: the vocabulary cannot spell any text.
    """
    parser = Parser(productions, max_configurations=limits.states, max_depth=limits.depth, window=scans.deepest)
    return AutomatonCore(parser, scans, spelling, memory_mb=limits.memory_mb)


def spellable_productions(grammar: Grammar, spelling: Spelling) -> Productions:
    """Return the productions of what the vocabulary can spell of a grammar (see spelling.py)."""
    rules = grammar.rules
    if isinstance(rules, LazyRules) and spelling.can_spell(rules.facts.spelled):
        productions = grow(grammar, rules, spelling.restrict)
        if productions is not None:
            return productions
    try:
        productions = normalise(grammar, restrict=spelling.restrict)
    except UnsatisfiableError:
        everything = normalise(grammar)  # raises the same error where the vocabulary is not the reason
        missing = sorted({byte for terminal in everything.terminals for byte in spelling.missing_bytes(terminal.dfa)})
        listed = " ".join(f"{byte:02X}" for byte in missing[:16]) + (" ..." if len(missing) > 16 else "")
        raise VocabularyError(
            f"the vocabulary cannot spell any text of this grammar: no token holds the bytes {listed}; "
            "use a tokenizer with byte fallback, or allow other spellings"
        ) from None
    if spelling.meets_needed_tokens(terminal.dfa for terminal in productions.terminals):
        # Lengths must then be followed through tokens that cross borders: exact only without counters.
        return normalise(grammar, restrict=spelling.restrict, allow_counters=False)
    return productions
