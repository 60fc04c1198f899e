"""Lower a regular expression to grammar IR, and a JSON Schema `pattern` to a language of text.

One lexeme holds the whole expression where that stays small. Larger ones are split where the grammar can count
instead of copying: a long repeat of single characters becomes a lexeme with bounds on its length, a long repeat of
anything else a counted repeat; between the quotes of JSON strings with other spellings. Left out: splitting beside a
look-around, which could see across the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from structgen.errors import LimitError, UnsatisfiableError
from structgen.grammar import dfa as dfas
from structgen.grammar import ir
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.dfa import Dfa
from structgen.grammar.encode import encode_json_text, encode_utf8
from structgen.grammar.regex import (
    Alternate,
    Begin,
    Chars,
    Concat,
    End,
    Look,
    Node,
    Repeat,
    alternate,
    children,
    concat,
    looks_around,
    parse,
    to_chardfa,
    walk,
    widths,
)

MAX_COPIES = 128
"""Most copies of one item that are put into an automaton where a counter can stand for them."""

MAX_PATTERN_COPIES = 32
"""The same inside JSON strings, where each character has many spellings."""

MAX_BYTE_STATES = 1_500
"""Estimated size of a byte automaton from which on an expression is split."""

MAX_PATTERN_CHARACTERS = 1_000
"""Most characters of a pattern, repeats written out, that are put into an automaton where a counter can do it."""

MAX_PATTERN_STATES = 250
"""Estimated size, as a byte automaton, from which on a pattern with several long repeats is counted."""

_START = "start"


def lower_regex(pattern: str, flags: int = 0) -> ir.Grammar:
    """Return the grammar of the texts that an expression in Python's syntax matches as a whole.

    Args:
        pattern: the expression.
        flags: flags of `re` (A, I, M, S, U, X).

    Raises:
        GrammarSyntaxError: the expression is malformed, or not regular; with its column.
        LimitError: a part is too large for an automaton and cannot be counted; names the part.
        UnsatisfiableError: no text matches.
    """
    lowering = _Lowering(encode_utf8, MAX_COPIES, MAX_BYTE_STATES, is_spelled_once=True)
    expr = lowering.lower(parse(pattern, "python", flags), _WHOLE)
    if _is_dead(expr):
        raise UnsatisfiableError(f"no text matches the regular expression {pattern!r}")
    return ir.Grammar({_START: expr}, _START)


@dataclass(frozen=True, slots=True)
class PatternLanguage:
    """The texts of a CharDfa whose length is within bounds.

    Attributes:
        texts: the texts, lengths aside.
        min_length: least number of code points.
        max_length: greatest number of code points, None for no bound.
    """

    texts: CharDfa
    min_length: int = 0
    max_length: int | None = None


@lru_cache(maxsize=1024)
def pattern_chardfa(pattern: str) -> CharDfa:
    """Return the texts in which a JSON Schema `pattern` is found (it is searched for, not anchored).

    Raises:
        GrammarSyntaxError: the pattern is malformed, or not regular; with its column.
        LimitError: the automaton is too large; names the construct.
    """
    return to_chardfa(parse(pattern, "ecma"), mode="search")


class PatternExpression(NamedTuple):
    """What stands between the quotes of the JSON strings in which a pattern is found.

    Attributes:
        pattern: the pattern itself.
        expr: the expression, without references.
        min_length: a length in code points that none falls below.
        max_length: one that none exceeds, None if there is none.
    """

    pattern: str
    expr: ir.Expr
    min_length: int
    max_length: int | None


@lru_cache(maxsize=256)
def counted_pattern(pattern: str) -> PatternLanguage | PatternExpression | None:
    """Return the strings of a pattern that is large, with its repeats counted and not copied.

    None where the pattern is of ordinary size, is not anchored at both ends, has a look-around beside a long repeat,
    or is found in no string: an automaton is then the only way.

    Raises:
        GrammarSyntaxError: the pattern is malformed, or not regular; with its column.
    """
    node = parse(pattern, "ecma")
    if not (_is_anchored(node) and _has_long(node, MAX_PATTERN_COPIES)):
        return None
    is_large = _characters(node) > MAX_PATTERN_CHARACTERS
    try:
        counted = _counted(node, MAX_PATTERN_COPIES)
        if counted is not None:
            rest, low, high = counted
            return PatternLanguage(to_chardfa(rest, mode="search"), low, high) if is_large else None
        if not is_large and _byte_states(node) <= MAX_PATTERN_STATES:
            return None
        lowering = _Lowering(encode_json_text, MAX_PATTERN_COPIES, MAX_BYTE_STATES, is_spelled_once=False)
        expr = lowering.lower(node, _WHOLE)
    except LimitError:
        return None
    return None if _is_dead(expr) else PatternExpression(pattern, expr, *widths(node))


def _is_anchored(node: Node) -> bool:
    return isinstance(node, Concat) and node.items[:1] == (Begin(),) and node.items[-1:] == (End(),)


@dataclass(frozen=True, slots=True)
class _Edges:
    """Where a node stands: at the start of the text, at its end, both or none."""

    is_first: bool
    is_last: bool


_WHOLE = _Edges(is_first=True, is_last=True)
_INNER = _Edges(is_first=False, is_last=False)


@dataclass(frozen=True, slots=True)
class _Lowering:
    """How expressions become lexemes.

    Attributes:
        encode: what spells a language of text in bytes.
        max_copies: most copies of one item in an automaton where a counter can stand for them.
        max_states: estimated size of a byte automaton from which on an expression is split.
        is_spelled_once: whether each text has one spelling.
    """

    encode: Callable[[CharDfa], Dfa]
    max_copies: int
    max_states: int
    is_spelled_once: bool

    def lower(self, node: Node, edges: _Edges = _INNER) -> ir.Expr:
        """Return the expression of a node: one lexeme if that is small, else the smallest split."""
        node = _merged(node)
        failure: LimitError | None = None
        if not _has_long(node, self.max_copies) and _byte_states(node) <= self.max_states:
            try:
                return self._lexeme(node)
            except LimitError as error:
                failure = error
        counted = _counted(node, self.max_copies)
        if counted is not None:
            rest, low, high = counted
            texts = to_chardfa(rest)
            if texts.max_length is not None:
                # A look-around has made the long repeat short.
                shortened = texts.bounded(low, texts.max_length) if low <= texts.max_length else CharDfa.empty()
                return ir.Lexeme(self.encode(shortened), 0, high, name="regex")
            return ir.Lexeme(self.encode(texts), low, high, name="regex")
        node = _without_edges(node, edges)
        # Options of the whole text see the same edges apart. Else a cut could hide from a look-around what it looks
        # at, so the node must be one automaton or nothing.
        if looks_around(node) and not (edges == _WHOLE and isinstance(node, Alternate)):
            if failure is not None:
                raise failure
            return self._lexeme(node)
        return self._split(node, edges)

    def _split(self, node: Node, edges: _Edges) -> ir.Expr:
        match node:
            case Concat(items=items):
                runs = list(self._runs(items))
                # Where one automaton was too large although it looked small, the parser takes the items one by one.
                return ir.Sequence(tuple(map(self.lower, runs if len(runs) > 1 else items)))
            case Alternate(options=options):
                return self._choice(options, edges)
            case Repeat(item=item, minimum=low, maximum=high):
                # The empty text among the items fills up any count.
                return ir.Repeat(self.lower(item), 0 if widths(item)[0] == 0 else low, high)
            case _:
                # A single character, which no limit has refused.
                return self._lexeme(node)

    def _choice(self, options: Sequence[Node], edges: _Edges) -> ir.Expr:
        """Offer the options, fixed words as one set and small ones as one automaton."""
        words: list[bytes] = []
        large: list[Node] = []
        small: list[Node] = []
        for option in options:
            word = _word(option) if self.is_spelled_once else None
            if word is not None:
                words.append(word.encode())
            elif _has_long(option, self.max_copies) or _byte_states(option) * len(options) > self.max_states:
                large.append(option)
            else:
                small.append(option)
        parts = [self.lower(option, edges) for option in large]
        if small:
            joined = alternate(small)
            # All options together may be what was just found to be too large.
            together = len(small) < len(options) or not isinstance(joined, Alternate)
            parts += [self.lower(joined, edges)] if together else [self.lower(option, edges) for option in small]
        if words:
            parts.append(ir.Literal(words[0]) if len(words) == 1 else ir.Lexeme(dfas.from_words(words), name="regex"))
        return ir.Choice(tuple(parts))

    def _lexeme(self, node: Node) -> ir.Expr:
        word = _word(node) if self.is_spelled_once else None
        if word is not None:
            return ir.Literal(word.encode())
        return ir.Lexeme(self.encode(to_chardfa(node)), name="regex")

    def _runs(self, items: Sequence[Node]) -> Iterable[Node]:
        """Join neighbours that fit into one automaton; the others stand alone."""
        run: list[Node] = []
        size = 0
        for item in items:
            cost = _byte_states(item)
            is_alone = _has_long(item, self.max_copies) or cost > self.max_states
            if run and (is_alone or size + cost > self.max_states):
                yield concat(run)
                run, size = [], 0
            if is_alone:
                yield item
            else:
                run.append(item)
                size += cost
        if run:
            yield concat(run)


def _merged(node: Node) -> Node:
    """Make one repeat of a repeat of a repeat, where the counts that they allow leave no gap."""
    while isinstance(node, Repeat) and isinstance(node.item, Repeat):
        low, high = node.minimum, node.maximum
        inner_low, inner_high = node.item.minimum, node.item.maximum
        first = max(low, 1)
        is_gapless = low == high or inner_high is None or (first + 1) * inner_low <= first * inner_high + 1
        if not is_gapless or (low == 0 and inner_low > 1):
            break
        most = None if high is None or inner_high is None else high * inner_high
        node = Repeat(node.item.item, low * inner_low, 0 if high == 0 else most, column=node.column)
    return node


def _without_edges(node: Node, edges: _Edges) -> Node:
    """Take away anchors that hold anyway where the node stands."""
    items = list(node.items) if isinstance(node, Concat) else [node]
    while edges.is_first and items and isinstance(items[0], Begin):
        del items[0]
    while edges.is_last and items and _is_end(items[-1]):
        del items[-1]
    return concat(items)


def _is_end(node: Node) -> bool:
    """Whether the node is an anchor that holds at the very end of the text."""
    return isinstance(node, End) or (isinstance(node, Look) and node.label == "$")


def _counted(node: Node, max_copies: int) -> tuple[Node, int, int | None] | None:
    """Take the count off the one long repeat of single characters in an expression, if all else has a fixed width.

    The texts of the expression are then those of the result whose length lies within bounds.

    Returns:
        The expression with that repeat unbounded, and the bounds on the length of the text.
    """
    items = node.items if isinstance(node, Concat) else (node,)
    flat = [item for item in items if not isinstance(item, Repeat) or not _is_long(item, max_copies)]
    long = [item for item in items if isinstance(item, Repeat) and _is_long(item, max_copies)]
    if len(long) != 1 or not isinstance(long[0].item, Chars):
        return None
    low, high = widths(concat(flat))
    if low != high or any(_has_long(item, MAX_COPIES) for item in flat):
        return None
    repeat = long[0]
    rest = concat(Repeat(repeat.item, 0, None) if item is repeat else item for item in items)
    return rest, low + repeat.minimum, None if repeat.maximum is None else low + repeat.maximum


def _has_long(node: Node, max_copies: int) -> bool:
    return any(_is_long(part, max_copies) for part in walk(node))


def _is_long(node: Node, max_copies: int) -> bool:
    """Whether the node is a repeat that is better counted than copied."""
    if not isinstance(node, Repeat):
        return False
    copies = max(node.minimum, node.maximum or 0)
    return copies > max_copies or (copies > 1 and copies * _byte_states(node.item) > MAX_BYTE_STATES)


def _characters(node: Node) -> int:
    """Count the characters of an expression with its repeats written out."""
    size = int(isinstance(node, Chars)) + sum(map(_characters, children(node)))
    return size * max(node.minimum, node.maximum or 1) if isinstance(node, Repeat) else size


def _byte_states(node: Node) -> int:
    """Estimate the states of a byte automaton."""
    match node:
        case Chars(charset=charset):
            is_ascii = not charset.ranges or charset.ranges[-1][1] < 0x80
            return 1 if is_ascii else min(8 + len(charset.ranges) // 2, 320)
        case Repeat(item=item, minimum=low, maximum=high):
            return _byte_states(item) * max(low, high or 1)
        case _:
            return sum(map(_byte_states, children(node)))


def _word(node: Node) -> str | None:
    """Return the only text of a node, None if there are others or none."""
    items = node.items if isinstance(node, Concat) else (node,)
    letters = [item.charset for item in items if isinstance(item, Chars) and item.charset.size == 1]
    return "".join(chr(letter.ranges[0][0]) for letter in letters) if len(letters) == len(items) else None


def _is_dead(expr: ir.Expr) -> bool:
    """Whether no text belongs to an expression (references do not occur here)."""
    match expr:
        case ir.Lexeme(dfa=dfa):
            return dfa.is_empty
        case ir.Sequence(items=items):
            return any(map(_is_dead, items))
        case ir.Choice(options=options):
            return all(map(_is_dead, options))
        case ir.Repeat(item=item, minimum=minimum):
            return minimum > 0 and _is_dead(item)
        case _:
            return False
