"""From a grammar and a vocabulary to a token automaton: every stage in order, and nothing else."""

from __future__ import annotations

import time

from structgen.config import Limits
from structgen.errors import UnsatisfiableError, VocabularyError
from structgen.grammar.core import AutomatonCore
from structgen.grammar.growing import grow
from structgen.grammar.ir import Grammar, LazyRules
from structgen.grammar.normalise import normalise
from structgen.grammar.parser import Parser
from structgen.grammar.productions import Productions
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.time_limit import time_limit
from structgen.grammar.token_automaton import TokenAutomaton


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

    def make_core() -> AutomatonCore:
        parser = Parser(productions, max_configurations=limits.states, max_depth=limits.depth, window=scans.deepest)
        return AutomatonCore(parser, scans, spelling, memory_mb=limits.memory_mb)

    seconds = time.perf_counter() - started
    return TokenAutomaton(make_core, digest=digest, limits=limits, compile_seconds=seconds)


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
