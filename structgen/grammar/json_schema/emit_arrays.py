"""Array shapes -> expressions: positions, a counted rest, contains, uniqueItems over few values."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import comb
from typing import TypeVar

from structgen.errors import LimitError
from structgen.grammar import ir
from structgen.grammar.json_schema.arrays import ArrayShape, Contains
from structgen.grammar.json_schema.layout import Layout, choose, join, optional
from structgen.grammar.json_schema.rules import Outline, Rules
from structgen.grammar.json_schema.terms import InexactError, Terms, both, negation

MAX_UNIQUE = 1024
"""Most sets of used values that an array without equal items is written with."""
MAX_CONTAINS = 256
"""Most items that minContains asks for: each is written out, and compiling takes time in the square of them."""
MAX_COUNTS = 2048
"""Most states of the counts of one array."""
_MAX_FIRST_HIT = 32
_MAX_APART = 12

State = TypeVar("State", bound=Hashable)


def outline_array(shape: ArrayShape) -> Outline | None:
    """Return what is known of the arrays of a shape before a rule is made; None where they are counted or compared."""
    if _must_differ(shape) or shape.contains:
        return None
    if shape.high == 0:
        return Outline((), ())
    positions = shape.prefix[: shape.high]
    needed = (*positions[: shape.low], *([shape.rest] if shape.low > len(positions) else []))
    return Outline((*positions, shape.rest), needed)


def _must_differ(shape: ArrayShape) -> bool:
    return shape.unique and (shape.high is None or shape.high > 1)


def array_rule(rules: Rules, shape: ArrayShape, layout: Layout) -> ir.Expr:
    """Return the expression for the arrays of a shape."""
    if _must_differ(shape):
        return _distinct(rules, shape, layout)
    if shape.contains:
        return _containing(rules, shape, layout)
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
        # A rule of its own keeps a long tuple from becoming a deep expression.
        found = optional(rules.rule(partial(join, *layout.comma, item, found)))
    return found


def _containing(rules: Rules, shape: ArrayShape, layout: Layout) -> ir.Expr:
    """Return the arrays in which the right number of items satisfy something."""
    first = shape.contains[0]
    if len(shape.contains) > 1 or shape.high is not None or first.high is not None or first.start:
        return _counted(rules, shape, layout)
    plain = replace(shape, contains=())
    if first.low == 1 and max(len(shape.prefix), shape.low) <= _MAX_FIRST_HIT:
        return _first_hit(rules, plain, first.terms, layout)
    if shape.prefix or shape.low > first.low:
        return _counted(rules, shape, layout)
    if first.low > MAX_CONTAINS:
        raise LimitError(f"minContains is supported up to {MAX_CONTAINS}; use a smaller one", "minContains", first.low)
    return _anywhere(rules, plain, first.terms, first.low, layout)


def _first_hit(rules: Rules, plain: ArrayShape, wanted: Terms, layout: Layout) -> ir.Expr:
    """Return the arrays with a wanted item, by the position of the first that is counted."""
    settled = max(len(plain.prefix), plain.low)
    options = [array_rule(rules, _with_item(plain, index, wanted), layout) for index in range(settled)]
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


def _walked(
    rules: Rules,
    layout: Layout,
    start: State,
    ways: Callable[[State], Iterable[tuple[ir.Expr, State]]],
    may_end: Callable[[State], bool],
) -> ir.Expr:
    """Return the arrays that a machine over their items takes: one rule per state.

    Args:
        rules: where rules are made.
        layout: the layout of the array.
        start: the state before the first item.
        ways: the items that a state goes on with, each with the state after it.
        may_end: whether the array may end in a state.
    """
    closing = join(*layout.closing(b"]"))
    made: dict[State, ir.Expr] = {}

    def body(state: State) -> ir.Expr:
        here = [(join(*layout.comma, item), then) for item, then in ways(state)]
        loops = [item for item, then in here if then == state]
        options = [closing] if may_end(state) else []
        options += [join(item, after(then)) for item, then in here if then != state]
        return join(ir.Repeat(choose(loops), 0, None), choose(options)) if loops else choose(options)

    def after(state: State) -> ir.Expr:
        if state not in made:
            made[state] = rules.rule(partial(body, state))
        return made[state]

    options = [join(*layout.empty(b"[]"))] if may_end(start) else []
    return choose(options + [join(*layout.opening(b"["), item, after(then)) for item, then in ways(start)])


Counts = tuple[int, ...]


def _counted(rules: Rules, shape: ArrayShape, layout: Layout) -> ir.Expr:
    """Return the arrays with conditions on counts: one state per position that matters, and counts so far."""
    parts = shape.contains
    last = max(len(shape.prefix), shape.low, shape.high or 0, *(part.start for part in parts))
    size = last + 1
    for part in parts:
        size *= 1 + (part.low if part.high is None else part.high)
    if size > MAX_COUNTS:
        raise LimitError(
            "the counts of contains and of items are too large together; use smaller ones", "contains", size
        )

    def ways(state: tuple[int, Counts]) -> Iterator[tuple[ir.Expr, tuple[int, Counts]]]:
        index, counts = state
        if shape.high is None or index < shape.high:
            for terms, then in _kinds(shape.item(index), index, counts, parts):
                yield rules.value(terms, layout.inner), (min(index + 1, last), then)

    def may_end(state: tuple[int, Counts]) -> bool:
        index, counts = state
        return index >= shape.low and all(count >= part.low for count, part in zip(counts, parts, strict=True))

    return _walked(rules, layout, (0, (0,) * len(parts)), ways, may_end)


def _kinds(terms: Terms, index: int, counts: Counts, parts: Sequence[Contains]) -> list[tuple[Terms, Counts]]:
    """Return the kinds of items at an index, told apart as far as the counts need it, with the counts after each."""
    found: list[tuple[Terms, Counts]] = [(terms, ())]
    for count, part in zip(counts, parts, strict=True):
        is_settled = index < part.start or (part.high is None and count >= part.low)
        split: list[tuple[Terms, Counts]] = []
        for kind, then in found:
            inside = both(kind, part.terms)
            if not is_settled and (part.high is None or count < part.high):
                split.append((inside, (*then, count + 1)))
            if is_settled:
                split.append((kind, (*then, count)))
            elif inside != kind:
                outside = kind if part.high is None else both(kind, negation(part.terms))
                split.append((outside, (*then, count)))
        found = split
    return found


def _distinct(rules: Rules, shape: ArrayShape, layout: Layout) -> ir.Expr:
    """Return the arrays without equal items: out of few scalars, or of kinds that have no value in common."""
    same = _few_values(rules, shape)
    if same is None:
        if _are_apart(rules, shape) or (shape.may_repeat and shape.low <= 1):
            return array_rule(rules, replace(shape, unique=False), layout)
        raise InexactError(
            "uniqueItems", "is supported for items out of a few listed scalars, or short tuples of different kinds"
        )
    parts = shape.contains
    inside = [
        [{same[word] for word in _known(rules, both(shape.item(i), part.terms)) if word in same} for part in parts]
        for i in range(len(shape.prefix) + 1)
    ]

    def ways(state: tuple[frozenset[int], Counts]) -> Iterator[tuple[ir.Expr, tuple[frozenset[int], Counts]]]:
        used, counts = state
        index = len(used)
        if shape.high is not None and index >= shape.high:
            return
        for word in _known(rules, shape.item(index)):
            hits = [same[word] in hit for hit in inside[min(index, len(shape.prefix))]]
            found_here = zip(counts, parts, hits, strict=True)
            then = tuple(_count(n, part, hit=hit and index >= part.start) for n, part, hit in found_here)
            if same[word] not in used and all(p.high is None or n <= p.high for n, p in zip(then, parts, strict=True)):
                yield ir.Literal(word), (used | {same[word]}, then)

    def may_end(state: tuple[frozenset[int], Counts]) -> bool:
        used, counts = state
        return len(used) >= shape.low and all(n >= part.low for n, part in zip(counts, parts, strict=True))

    return _walked(rules, layout, (frozenset[int](), (0,) * len(parts)), ways, may_end)


def _count(count: int, part: Contains, *, hit: bool) -> int:
    """Return a count after an item, counts that make no difference any more as one."""
    return min(count + hit, part.low if part.high is None else part.high + 1)


def _known(rules: Rules, terms: Terms) -> tuple[bytes, ...]:
    return rules.finite_values(terms) or ()


def _few_values(rules: Rules, shape: ArrayShape) -> dict[bytes, int] | None:
    """Return the number of each item's value by its spelling, None where they are not scalars in few enough sets."""
    found: dict[bytes, None] = {}
    same: dict[bytes, int] = {}
    length = len(shape.prefix) + 1 if shape.high is None else min(shape.high, len(shape.prefix) + 1)
    for index in range(length):
        words = rules.finite_values(shape.item(index))
        if words is None:
            return None
        found |= dict.fromkeys(words)
        same = _equal_words(list(found), in_python=shape.may_repeat)
        distinct = len(set(same.values()))
        high = distinct if shape.high is None else min(shape.high, distinct)
        if sum(comb(distinct, k) for k in range(high + 1)) > MAX_UNIQUE:
            return None
    return same


def _are_apart(rules: Rules, shape: ArrayShape) -> bool:
    """Tell whether the items of no two positions can be equal."""
    if shape.high is None or shape.high > _MAX_APART:
        return False
    return all(rules.has_no_value(both(shape.item(i), shape.item(j))) for i, j in combinations(range(shape.high), 2))


def _equal_words(words: Sequence[bytes], *, in_python: bool) -> dict[bytes, int]:
    """Return for each spelling the number of its value: 1 and 1.0 are one; in Python 1 and true are too."""
    numbers: dict[object, int] = {}
    values = {word: json.loads(word, parse_int=Fraction, parse_float=Fraction) for word in words}
    return {
        word: numbers.setdefault(value if in_python else (value, isinstance(value, bool)), len(numbers))
        for word, value in values.items()
    }
