"""Random small grammars and vocabularies, for properties of the core."""

from __future__ import annotations

import string
from functools import cache

from hypothesis import strategies as st

from structgen.grammar import chardfa, dfa, encode
from structgen.grammar.charset import CharSet
from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence
from structgen.vocabulary import Vocabulary

ALPHABET = "abé"


@cache
def class_star(letters: str) -> dfa.Dfa:
    """Return the DFA of any number of the letters, each of which counts one; "a*|b{0,2}" is read as a pattern."""
    if "|" in letters:
        few = chardfa.CharDfa.literal("b").repeat(0, 2)
        return encode.encode_utf8(chardfa.CharDfa.literal("a").star().union(few))
    one = chardfa.CharDfa.from_charset(CharSet.from_text(letters))
    return encode.encode_utf8(one.star())


texts = st.text(ALPHABET, max_size=3).map(lambda text: text.encode())


@st.composite
def lexemes(draw: st.DrawFn) -> Lexeme:
    """Draw a lexeme: a few words, or a class with bounds on its length."""
    if draw(st.booleans()):
        words = draw(st.lists(texts, min_size=1, max_size=3))
        return Lexeme(dfa.from_words(words))
    low, high = draw(bounds())
    # Letters enough for a state that is walked once per vocabulary, and words that cannot be long.
    letters = draw(st.sampled_from(["a", "ab", "é", "abé", string.ascii_lowercase + "é", "a*|b{0,2}"]))
    return Lexeme(class_star(letters), low, high)


@st.composite
def bounds(draw: st.DrawFn) -> tuple[int, int | None]:
    """Draw bounds of a count: small ones, and ones beyond the longest token, where counters are saturated."""
    low = draw(st.integers(0, 3) | st.integers(9, 14))
    return low, draw(st.none() | st.integers(low, low + 3) | st.integers(low, 30))


def exprs(names: list[str]) -> st.SearchStrategy[Expr]:
    """Return expressions that may refer to the rules of these names."""
    leaves: st.SearchStrategy[Expr] = st.one_of(texts.map(Literal), lexemes(), st.sampled_from(names).map(Reference))

    def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        parts = st.lists(inner, min_size=0, max_size=3).map(tuple)
        repeats = st.builds(
            lambda item, bound, separator: Repeat(item, *bound, separator), inner, bounds(), st.none() | inner
        )
        return st.one_of(parts.map(Sequence), parts.map(Choice), repeats)

    return st.recursive(leaves, extend, max_leaves=5)


@st.composite
def grammars(draw: st.DrawFn) -> Grammar:
    """Draw a grammar of up to three rules: left, right and hidden recursion, empty rules and ambiguity all occur."""
    names = ["s", "t", "u"][: draw(st.integers(1, 3))]
    return Grammar({name: draw(exprs(names)) for name in names}, "s")


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    """Draw a vocabulary: missing bytes, code points that exist only inside longer tokens, duplicates, empty tokens."""
    pieces = [b"a", b"b", "é".encode(), b"\xc3", b"\xa9", b"c"]
    token = st.lists(st.sampled_from(pieces), max_size=3).map(b"".join)
    short = st.sampled_from(pieces[:3])
    tokens = draw(st.lists(short | token, min_size=1, max_size=7) | st.lists(short, min_size=2, max_size=4))
    singles = draw(st.lists(st.sampled_from(pieces), max_size=4))
    return Vocabulary.from_bytes([*tokens, *singles, b"<stop>"], stop_ids=[len(tokens) + len(singles)])
