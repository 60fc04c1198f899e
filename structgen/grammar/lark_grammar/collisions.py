"""Terminals that Lark's contextual lexer has to choose between although neither was preferred.

Two regular expressions of one priority collide where the same lexer tries both and some text matches both. Lark
then goes by the width and the length of the patterns, and by their names, which nobody means. A string and a
regular expression do not collide: Lark prefers the string. Left out: the choice itself (seams).
"""

from __future__ import annotations

from itertools import combinations
from string import ascii_letters, digits, punctuation

from lark.lexer import PatternRE

from structgen.grammar import regex
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.lark_grammar.lalr import LexerTable, Tables, read_tables
from structgen.grammar.lark_grammar.terminals import shown


def collisions(text: str, start: str = "start") -> list[str]:
    """Return a sentence for each pair of terminals that collide in a grammar for lexer="contextual".

    Raises:
        GrammarSyntaxError: Lark refuses the grammar, or a terminal holds what is not regular.
        LimitError: a terminal is too large.
    """
    tables, nodes = read_tables(text, start)
    pairs = {pair: None for lexer in tables.lexers for pair in _rivals(tables, lexer)}
    languages = {
        name: regex.to_chardfa(nodes[name], mode="fullmatch") for name in {name for pair in pairs for name in pair}
    }
    found = []
    for first, second in pairs:
        both = languages[first].intersection(languages[second])
        if not both.is_empty:
            one, other = (shown(name, tables.patterns[name]) for name in (first, second))
            found.append(
                f"terminals {one} and {other} both match {_shortest(both)!r}, and Lark tries {one} first; "
                f"give one of them a priority, as in NAME.2"
            )
    return found


def _rivals(tables: Tables, lexer: LexerTable) -> list[tuple[str, str]]:
    """Return the pairs of regular expressions of one priority that a lexer tries, in its order."""
    tried = [name for name in lexer.order if isinstance(tables.patterns[name], PatternRE)]
    return [pair for pair in combinations(tried, 2) if tables.priorities[pair[0]] == tables.priorities[pair[1]]]


def _shortest(language: CharDfa) -> str:
    """Return a shortest text of a language, of ASCII where it can be."""
    points = [*map(ord, ascii_letters + digits + punctuation + " "), *language.boundaries]
    texts = {0: ""}
    for state in (order := [0]):  # grows while it is read
        if language.accepts[state]:
            return texts[state]
        for point in points:
            target = language.step(state, point)
            if target >= 0 and target not in texts:
                texts[target] = texts[state] + chr(point)
                order.append(target)
    raise ValueError("the language has no text")
