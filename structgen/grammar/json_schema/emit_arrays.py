"""Array shapes -> expressions: positions, a counted rest, contains, uniqueItems over few values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from structgen.errors import LimitError
from structgen.grammar import ir
from structgen.grammar.json_schema.arrays import ArrayShape
from structgen.grammar.json_schema.layout import Layout, choose, join, optional
from structgen.grammar.json_schema.rules import Rules
from structgen.grammar.json_schema.terms import InexactError, Terms, both

MAX_UNIQUE = 8
MAX_CONTAINS = 256
"""Most items that minContains asks for: each is written out, and compiling takes time in the square of them."""
_MAX_CONTAINS_POSITIONS = 32


def array_rule(rules: Rules, shape: ArrayShape, layout: Layout) -> ir.Expr:
    """Return the expression for the arrays of a shape."""
    if shape.unique and (shape.high is None or shape.high > 1):
        return _distinct(rules, shape, layout)
    if shape.contains is not None:
        return _containing(rules, shape, shape.contains, layout)
    options: list[ir.Expr] = []
    if shape.low == 0:
        options.append(join(*layout.empty(b"[]")))
    if shape.high is None or shape.high > 0:
        options.append(_filled(rules, shape, layout))
    return choose(options)


def _filled(rules: Rules, shape: ArrayShape, layout: Layout) -> ir.Expr:
    """Return the arrays of at least one item."""
    length = len(shape.prefix) if shape.high is None else min(len(shape.prefix), shape.high)
    rest = rules.value(shape.rest, layout.inner)
    low = max(shape.low - length, 0)
    high = None if shape.high is None else shape.high - length
    opening, comma, closing = layout.opening(b"["), layout.comma, layout.closing(b"]")
    if length == 0:
        return join(*opening, ir.Repeat(rest, max(low, 1), high, join(*comma)), *closing)
    items = [rules.value(terms, layout.inner) for terms in shape.prefix[:length]]
    fixed = max(shape.low, 1)
    parts = [*opening, items[0]]
    for item in items[1:fixed]:
        parts += [*comma, item]
    tail: ir.Expr = ir.Literal(b"")
    if high is None or high > 0:
        tail = ir.Repeat(join(*comma, rest), low, high)
    return join(*parts, _positions(rules, items[fixed:], tail, layout), *closing)


def _positions(rules: Rules, items: Sequence[ir.Expr], tail: ir.Expr, layout: Layout) -> ir.Expr:
    """Return positions that need not be reached, each only after the one before."""
    found = tail
    for item in reversed(items):
        step = join(*layout.comma, item, found)
        # A rule of its own keeps a long tuple from becoming a deep expression.
        found = rules.rule(partial(optional, step))
    return found


def _containing(rules: Rules, shape: ArrayShape, contains: tuple[Terms, int], layout: Layout) -> ir.Expr:
    """Return the arrays in which enough items satisfy the terms: by the position of the first that is counted."""
    wanted, count = contains
    plain = replace(shape, contains=None)
    if count > 1:
        if shape.prefix or shape.low > count or shape.high is not None:
            raise InexactError("minContains", "above 1 cannot stand beside prefixItems, minItems or maxItems here")
        if count > MAX_CONTAINS:
            raise LimitError(f"minContains is supported up to {MAX_CONTAINS}; use a smaller one", "minContains", count)
        return _anywhere(rules, plain, wanted, count, layout)
    settled = max(len(shape.prefix), shape.low)
    if shape.high is not None:
        settled = shape.high
    if settled > _MAX_CONTAINS_POSITIONS:
        raise InexactError("contains", f"is supported beside bounds of at most {_MAX_CONTAINS_POSITIONS} items")
    options = [array_rule(rules, _with_item(plain, index, wanted), layout) for index in range(settled)]
    if shape.high is None:
        options.append(_anywhere(rules, replace(plain, prefix=_padded(plain, settled)), wanted, 1, layout))
    return choose(options)


def _padded(shape: ArrayShape, length: int) -> tuple[Terms, ...]:
    return tuple(shape.item(i) for i in range(max(length, len(shape.prefix))))


def _with_item(shape: ArrayShape, index: int, wanted: Terms) -> ArrayShape:
    prefix = list(_padded(shape, index + 1))
    prefix[index] = both(prefix[index], wanted)
    return replace(shape, prefix=tuple(prefix), low=max(shape.low, index + 1))


def _anywhere(rules: Rules, shape: ArrayShape, wanted: Terms, count: int, layout: Layout) -> ir.Expr:
    """Return the arrays that hold the prefix, then at least `count` wanted items among the rest."""
    comma = layout.comma
    rest = rules.value(shape.rest, layout.inner)
    hit = rules.value(both(shape.rest, wanted), layout.inner)
    parts: list[ir.Expr] = []
    for terms in shape.prefix:
        parts += [rules.value(terms, layout.inner), *comma]
    before = ir.Repeat(join(rest, *comma), 0, None)
    parts += [before, hit]
    for _ in range(count - 1):
        parts += [*comma, before, hit]
    after = ir.Repeat(join(*comma, rest), 0, None)
    return join(*layout.opening(b"["), *parts, after, *layout.closing(b"]"))


def _distinct(rules: Rules, shape: ArrayShape, layout: Layout) -> ir.Expr:
    """Return the arrays without equal items, out of a few scalars: one rule per set of used values."""
    words = rules.finite_values(shape.rest)
    if shape.prefix or shape.contains or words is None or len(words) > MAX_UNIQUE:
        if shape.may_repeat and shape.low <= 1:
            return array_rule(rules, replace(shape, unique=False), layout)
        raise InexactError("uniqueItems", f"is supported for items out of at most {MAX_UNIQUE} listed scalars, alone")
    same = _equal_words(words) if shape.may_repeat else list(range(len(words)))
    num_values = len(set(same))
    high = num_values if shape.high is None else min(shape.high, num_values)
    closing = join(*layout.closing(b"]"))
    made: dict[frozenset[int], ir.Expr] = {}

    def body(used: frozenset[int]) -> ir.Expr:
        options = [closing] if len(used) >= shape.low else []
        if len(used) < high:
            comma = layout.comma
            options += [
                join(*comma, ir.Literal(w), after(used | {i}))
                for i, w in zip(same, words, strict=True)
                if i not in used
            ]
        return choose(options)

    def after(used: frozenset[int]) -> ir.Expr:
        if used not in made:
            made[used] = rules.rule(lambda: body(used))
        return made[used]

    options = [join(*layout.empty(b"[]"))] if shape.low == 0 else []
    if high > 0:
        opening = layout.opening(b"[")
        options += [join(*opening, ir.Literal(w), after(frozenset({i}))) for i, w in zip(same, words, strict=True)]
    return choose(options)


def _equal_words(words: Sequence[bytes]) -> list[int]:
    """Return for each spelling the number of its value in Python, where 1, 1.0 and true are one item of a set."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(json.loads(word), len(numbers)) for word in words]
