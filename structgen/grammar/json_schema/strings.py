"""String shapes: a language of decoded texts with length bounds; closed under intersection and complement.

Length bounds stay numbers, ticks of one lexeme. Spelling rules: members of a finite set given by enum or
const have one spelling, that of json.dumps(ensure_ascii=False); formats are spelled without escapes, so that
their punctuation is forced; all other strings may be spelled with any escapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from structgen.grammar import dfa as dfas
from structgen.grammar import encode, ir, lexemes
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.json_schema.patterns import Pattern, read_pattern
from structgen.grammar.json_schema.terms import InexactError
from structgen.grammar.regex_grammar import PatternExpression

_MAX_PRODUCT_STATES = 4000
_MAX_MODEST = 500
"""Most states of a language of which the lexeme is made later: its DFA of bytes is far below every limit."""


@dataclass(frozen=True, slots=True)
class StringShape:
    """A set of decoded strings.

    Attributes:
        language: DFA over code points, None for every string.
        possible: the strings that are members by some reading of the keyword (dialects of patterns differ),
            None where that is the language itself. The complement is that of the possible ones.
        words: the members, where they were listed; then language is None and there are no bounds.
        low: least number of code points.
        high: greatest number of code points, None for no bound.
        exact: False where the language is narrower than the keyword says (some formats), so that
            neither its complement nor its emptiness means anything.
        plain: True where a format is in it whose texts are spelled without escapes.
        counted: a large pattern as an expression, None for none; then there is nothing else.
    """

    language: CharDfa | None = None
    possible: CharDfa | None = None
    words: frozenset[str] | None = None
    low: int = 0
    high: int | None = None
    exact: bool = True
    plain: bool = False
    counted: PatternExpression | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether no string is in the set."""
        if self.words is not None:
            return not self.words
        if self.high is not None and self.low > self.high:
            return True
        upper = self._upper
        return upper is not None and _is_empty(upper, self.low, self.high)

    @property
    def _upper(self) -> CharDfa | None:
        return self.language if self.possible is None else self.possible

    @property
    def is_exact(self) -> bool:
        """Tell whether the shape can be complemented."""
        return self.exact

    def contains(self, text: str) -> bool:
        """Tell whether a decoded string is a member; LimitError for a pattern too large for an automaton."""
        if self.counted is not None:
            return self.written_out().contains(text)
        if self.words is not None:
            return text in self.words
        if len(text) < self.low or (self.high is not None and len(text) > self.high):
            return False
        return self.language is None or self.language.matches(text)

    def intersect(self, other: StringShape) -> StringShape | None:
        """Return the strings in both, None if there is none.

        Raises:
            LimitError: a pattern is too large for an automaton, and the other shape is not all strings.
        """
        for one, two in ((self, other), (other, self)):
            if one.counted is not None:
                if one == two or two.holds_lengths_of(one.counted):
                    return one
                return one.written_out().intersect(two)
        exact = self.exact and other.exact
        for one, two in ((self, other), (other, self)):
            if one.words is not None:
                kept = frozenset(word for word in one.words if two.contains(word))
                shape = StringShape(words=kept, exact=exact and two.possible is None)
                return None if shape.is_empty and shape.exact else shape
        highs = [shape.high for shape in (self, other) if shape.high is not None]
        language, possible = _both(self.language, other.language), _both(self._upper, other._upper)
        shape = StringShape(
            language=language,
            possible=None if possible == language else possible,
            low=max(self.low, other.low),
            high=min(highs, default=None),
            exact=exact,
            plain=self.plain or other.plain,
        )
        return None if shape.is_empty and exact else shape

    def written_out(self) -> StringShape:
        """Return the shape without counted repeats; LimitError for a pattern too large for an automaton."""
        return self if self.counted is None else from_pattern(read_pattern(self.counted.pattern))

    def holds_lengths_of(self, pattern: PatternExpression) -> bool:
        """Tell whether the shape is all strings as far as their length goes, and that of no string of a pattern."""
        is_long_enough = self.high is None or (pattern.max_length is not None and pattern.max_length <= self.high)
        return replace(self, low=0, high=None) == ANY_STRING and self.low <= pattern.min_length and is_long_enough

    def complement(self) -> tuple[StringShape, ...]:
        """Return shapes whose union is every other string; LimitError for a pattern too large for an automaton."""
        if self.counted is not None:
            return self.written_out().complement()
        if self.words is not None:
            return (StringShape(CharDfa.from_words(self.words).complement()),)
        parts: list[StringShape] = []
        if self.language is not None:
            outside = self.language.complement()
            if self.possible is None:
                parts.append(StringShape(outside))
            else:
                parts.append(StringShape(self.possible.complement(), possible=outside))
        if self.low > 0:
            parts.append(StringShape(high=self.low - 1))
        if self.high is not None:
            parts.append(StringShape(low=self.high + 1))
        return tuple(parts)


ANY_STRING = StringShape()


def from_pattern(pattern: Pattern) -> StringShape:
    """Return the strings in which a pattern is found."""
    possible = None if pattern.sure == pattern.possible else pattern.possible
    return StringShape(pattern.sure, possible=possible)


def _both(first: CharDfa | None, second: CharDfa | None) -> CharDfa | None:
    if first is None or second is None:
        return first or second
    return first if first == second else first.intersection(second)


def spell(text: str) -> bytes:
    """Return the one spelling of a listed string or a declared key."""
    return json.dumps(text, ensure_ascii=False).encode()


def merge(shapes: Iterable[StringShape]) -> tuple[StringShape, ...]:
    """Return the union with all listed words in one shape, and without what stands there twice."""
    shapes = tuple(shapes)
    if len(shapes) < 2:
        return shapes
    words: set[str] = set()
    listed, exact = False, True
    rest: dict[StringShape, None] = {}
    for shape in shapes:
        if shape.words is None:
            rest[shape] = None
        else:
            listed, exact = True, exact and shape.exact
            words |= shape.words
    if ANY_STRING in rest:
        return (ANY_STRING,)
    return ((StringShape(words=frozenset(words), exact=exact),) if listed else ()) + tuple(rest)


def language(shapes: Iterable[StringShape]) -> CharDfa | None:
    """Return the union as one DFA over code points, None for every string (used for keys).

    Raises:
        InexactError: a length bound is too large to be counted in states.
    """
    found = CharDfa.empty()
    for shape in shapes:
        if shape == ANY_STRING:
            return None
        found = found.union(_bounded(shape, "propertyNames"))
    return found


def possible_language(shapes: Iterable[StringShape]) -> CharDfa:
    """Return the strings that are in the union by some reading of the keywords, as one DFA over code points.

    Raises:
        InexactError: as in `language`.
    """
    found = CharDfa.empty()
    for shape in shapes:
        found = found.union(_bounded(replace(shape, language=shape._upper), "propertyNames"))
    return found


def has_text_for_sure(shape: StringShape) -> bool:
    """Tell whether it is certain, before its lexeme is made, that this has a word and is of modest size."""
    if shape.words is not None:
        return bool(shape.words)
    if shape.counted is not None or shape.plain or shape.low or shape.high is not None:
        return False
    return shape.language is None or (shape.language.num_states <= _MAX_MODEST and not shape.language.is_empty)


def lower_string(shape: StringShape) -> ir.Expr:
    """Return the expression of a shape that is no list of words, both quotes included; mostly one lexeme."""
    if shape.counted is not None:
        return ir.Sequence((ir.Literal(b'"'), shape.counted.expr, ir.Literal(b'"')))
    if shape.language is not None and shape.plain:
        return replace(_plain(shape.language), min_length=shape.low, max_length=shape.high)
    return lexemes.json_string(shape.language, min_length=shape.low, max_length=shape.high)


@lru_cache(maxsize=256)
def _plain(language: CharDfa) -> ir.Lexeme:
    """Return the lexeme of texts without escapes; the caller knows that they need none."""
    quote = dfas.literal(b'"')
    body = encode.encode_utf8(language)
    return ir.Lexeme(dfas.concatenation(dfas.concatenation(quote, body), quote), name="string")


@lru_cache(maxsize=1024)
def _is_empty(language: CharDfa, low: int, high: int | None) -> bool:
    shortest, longest = language.min_length, language.max_length
    if shortest is None or (high is not None and shortest > high) or (longest is not None and longest < low):
        return True
    if low <= shortest or (longest is None and high is None):
        return False
    # The lengths in between may have gaps: count them out where that is cheap, else let the core see to it.
    bound = low if high is None else high
    return language.num_states * (bound + 1) <= _MAX_PRODUCT_STATES and language.bounded(low, high).is_empty


def _bounded(shape: StringShape, keyword: str) -> CharDfa:
    shape = shape.written_out()
    if shape.words is not None:
        return CharDfa.from_words(shape.words)
    states = 1 if shape.language is None else shape.language.num_states
    if states * (1 + (shape.low if shape.high is None else shape.high)) > _MAX_PRODUCT_STATES:
        raise InexactError(keyword, "has a length bound too large for keys; remove the bound")
    base = CharDfa.any_text() if shape.language is None else shape.language
    return base if shape.low == 0 and shape.high is None else base.bounded(shape.low, shape.high)
