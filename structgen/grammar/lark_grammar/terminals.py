"""Terminals of a Lark grammar as byte automata and as IR."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from lark.lexer import Pattern, PatternStr

from structgen.errors import GrammarSyntaxError, LimitError
from structgen.grammar import regex
from structgen.grammar.dfa import Dfa, from_words, literal
from structgen.grammar.encode import encode_utf8
from structgen.grammar.ir import Lexeme, Literal
from structgen.grammar.lark_grammar.first_match import first_match_language
from structgen.grammar.lark_grammar.reader import Reading, locate

_POSITION = re.compile(r" \(line 1, column (\d+)\)$")
_PROSE = tuple(b" aeimnorstAEIMNORST")


def terminal_dfa(name: str, reading: Reading) -> Dfa:
    """Return the words that Lark's dynamic lexer takes for a terminal, as UTF-8.

    Raises:
        GrammarSyntaxError: the pattern is not regular, matches nothing but the empty text, or is no text.
        LimitError: the automaton is too large.
    """
    pattern = reading.terminals[name]
    if isinstance(pattern, PatternStr) and not pattern.flags:
        try:
            return literal(pattern.value.encode())
        except UnicodeEncodeError as error:
            raise _refusal(name, pattern, reading.text, "a lone surrogate is no text; remove it") from error
    with blamed(name, pattern, reading.text):
        dfa = _pattern_dfa(pattern.to_regexp())
    if dfa.is_empty:
        reason = "no text matches it by itself; a look-around at its edge has nothing to look at"
        raise _refusal(name, pattern, reading.text, reason)
    if dfa.accepts_empty:
        reason = "it matches the empty text, which Lark's dynamic lexer refuses; use '+' for '*'"
        raise _refusal(name, pattern, reading.text, reason)
    return dfa


def pattern_node(name: str, pattern: Pattern, text: str) -> regex.Node:
    """Return the syntax tree of a terminal's pattern, for the contextual lexer.

    Raises:
        GrammarSyntaxError: it is not regular, or can match the empty text; with its place in the grammar's text.
    """
    with blamed(name, pattern, text):
        node = regex.parse(pattern.to_regexp(), dialect="python")
    if pattern.min_width == 0:
        raise _refusal(name, pattern, text, "it can match the empty text, which Lark's lexers refuse; use '+' for '*'")
    return node


def terminal_expr(dfa: Dfa, name: str) -> Literal | Lexeme:
    """Return a terminal as IR: a literal where there is exactly one word."""
    word = _only_word(dfa)
    if word is not None:
        return Literal(word)
    return Lexeme(dfa, free_text=_is_free_text(dfa), name=name)


def words_expr(words: Iterable[bytes]) -> Literal | Lexeme:
    """Return a choice of literals as one lexeme."""
    distinct = sorted(set(words))
    if len(distinct) == 1:
        return Literal(distinct[0])
    return Lexeme(from_words(distinct), name=" | ".join(word.decode() for word in distinct[:8]))


@lru_cache(maxsize=1024)
def _pattern_dfa(pattern: str) -> Dfa:
    encoded = encode_utf8(first_match_language(regex.parse(pattern, dialect="python")))
    # Nothing counts the characters of a Lark terminal, and a DFA without counted steps is smaller.
    return Dfa.build(encoded.delta, encoded.accepting)


def _only_word(dfa: Dfa) -> bytes | None:
    word = bytearray()
    state = 0
    while not dfa.accepting[state]:
        targets = np.flatnonzero(dfa.delta[state] >= 0)
        if len(targets) != 1:
            return None
        word.append(int(targets[0]))
        state = int(dfa.delta[state, targets[0]])
    return None if (dfa.delta[state] >= 0).any() else bytes(word)


def _is_free_text(dfa: Dfa) -> bool:
    """Tell whether prose can run on in the terminal: some state loops on letters and on spaces."""
    return bool((dfa.delta[:, _PROSE] == np.arange(dfa.num_states)[:, None]).all(axis=1).any())


def shown(name: str, pattern: Pattern) -> str:
    """Return what messages call a terminal: its name, or its pattern if Lark named it."""
    return str(pattern.raw or pattern.value) if name.startswith("__") else name


@contextmanager
def blamed(name: str, pattern: Pattern, text: str) -> Iterator[None]:
    """Let errors name the terminal."""
    try:
        yield
    except GrammarSyntaxError as error:
        raise _refusal(name, pattern, text, _POSITION.sub(r", at column \1 of it", str(error))) from error
    except LimitError as error:
        message = str(error).rsplit(" (limit ", 1)[0]
        raise LimitError(f"terminal {shown(name, pattern)}: {message}", error.limit, error.size) from error


def _refusal(name: str, pattern: Pattern, text: str, reason: str) -> GrammarSyntaxError:
    line, column = locate(str(pattern.raw), text) if pattern.raw else (None, None)
    if line is None:
        line, column = locate(name, text)
    return GrammarSyntaxError(f"terminal {shown(name, pattern)}: {reason}", line, column)
