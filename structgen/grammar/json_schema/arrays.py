"""Array shapes: positional items, a rest, counts, contains and uniqueItems; closed under intersection and complement.

Left out: the complement of uniqueItems.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from structgen.grammar.json_schema.terms import ANYTHING, NOTHING, Terms, both, negation, negations


@dataclass(frozen=True, slots=True)
class Contains:
    """That so many items satisfy a conjunction.

    Attributes:
        terms: what is counted.
        low: least number of them.
        high: greatest number of them, None for no bound.
        start: the index from which items are looked at.
    """

    terms: Terms
    low: int = 1
    high: int | None = None
    start: int = 0

    @property
    def is_empty(self) -> bool:
        """Tell whether no array can meet it."""
        return self.low > 0 if self.terms == NOTHING else self.high is not None and self.low > self.high


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """A set of arrays.

    Attributes:
        prefix: what the first items are, by position; a position need not be reached.
        rest: what each later item is.
        low: least number of items.
        high: greatest number of items, None for no bound.
        contains: how many items satisfy something; each condition once.
        unique: whether no two items are equal.
        may_repeat: whether `unique` may be left out where it cannot be had and nothing counts the items
            (the reader makes a set of them).
    """

    prefix: tuple[Terms, ...] = ()
    rest: Terms = ANYTHING
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False
    may_repeat: bool = False

    def item(self, index: int) -> Terms:
        """Return what the item at an index is."""
        return self.prefix[index] if index < len(self.prefix) else self.rest

    @property
    def is_empty(self) -> bool:
        """Tell whether the counts alone contradict each other."""
        return (self.high is not None and self.low > self.high) or any(part.is_empty for part in self.contains)

    def intersect(self, other: ArrayShape) -> ArrayShape | None:
        """Return the arrays in both, None if there is none."""
        highs = [shape.high for shape in (self, other) if shape.high is not None]
        length = max(len(self.prefix), len(other.prefix))
        shape = ArrayShape(
            prefix=tuple(both(self.item(i), other.item(i)) for i in range(length)),
            rest=both(self.rest, other.rest),
            low=max(self.low, other.low),
            high=min(highs, default=None),
            contains=_merged((*self.contains, *other.contains)),
            unique=self.unique or other.unique,
            may_repeat=self.may_repeat or other.may_repeat,
        )
        return _closed(shape)

    def covers(self, other: ArrayShape) -> bool:
        """Tell whether every array of another shape is certainly one of this one, by the look of both."""
        if self.low > other.low or (self.high is not None and (other.high is None or other.high > self.high)):
            return False
        if not set(self.contains) <= set(other.contains) or (self.unique and not other.unique):
            return False
        length = max(len(self.prefix), len(other.prefix)) + 1
        return all(other.item(i) == NOTHING or self.item(i) <= other.item(i) for i in range(length))

    @property
    def is_exact(self) -> bool:
        """Tell whether the shape can be complemented."""
        return not self.unique

    def complement(self) -> tuple[ArrayShape, ...]:
        """Return shapes whose union is every other array, where the shape is exact."""
        parts: list[ArrayShape] = []
        if self.low > 0:
            parts.append(ArrayShape(high=self.low - 1))
        if self.high is not None:
            parts.append(ArrayShape(low=self.high + 1))
        for index, terms in enumerate(self.prefix):
            before = (ANYTHING,) * index
            parts += [ArrayShape(prefix=(*before, negated), low=index + 1) for negated in negations(terms)]
        if self.rest == NOTHING:
            parts.append(ArrayShape(low=len(self.prefix) + 1))
        elif self.rest != ANYTHING and (self.high is None or self.high > len(self.prefix)):
            start = len(self.prefix)
            parts += [ArrayShape(contains=(Contains(negated, start=start),)) for negated in negations(self.rest)]
        for part in self.contains:
            fewer = Contains(part.terms, 0, part.low - 1, part.start)
            parts += [ArrayShape(contains=(fewer,))] if part.low > 0 else []
            if part.high is not None:
                parts.append(ArrayShape(contains=(Contains(part.terms, part.high + 1, None, part.start),)))
        return tuple(shape for shape in map(_closed, parts) if shape is not None)


def _merged(parts: Iterable[Contains]) -> tuple[Contains, ...]:
    """Return the conditions, those on one conjunction as one."""
    found: dict[tuple[Terms, int], Contains] = {}
    for part in parts:
        key = part.terms, part.start
        other = found.get(key, part)
        high = min((p.high for p in (part, other) if p.high is not None), default=None)
        found[key] = replace(part, low=max(part.low, other.low), high=high)
    return tuple(found.values())


def _closed(shape: ArrayShape) -> ArrayShape | None:
    """Say what the items and counts say of each other, None where they leave nothing."""
    if any(part.is_empty for part in shape.contains):
        return None
    shape = _simplified(shape)
    positions = [*shape.prefix, shape.rest]
    if NOTHING in positions:
        first = positions.index(NOTHING)
        high = first if shape.high is None else min(shape.high, first)
        shape = replace(shape, prefix=shape.prefix[:first], rest=NOTHING, high=high)
    return None if shape.is_empty else shape


def _simplified(shape: ArrayShape) -> ArrayShape:
    """Take out the conditions that are ones on all items, or on their number."""
    for part in shape.contains:
        kept = tuple(other for other in shape.contains if other != part)
        if part.terms == NOTHING and part.low == 0:
            shape = replace(shape, contains=kept)
        elif part.terms == ANYTHING:
            low = max(shape.low, part.low + part.start) if part.low else shape.low
            high = None if part.high is None else part.high + part.start
            highs = [bound for bound in (shape.high, high) if bound is not None]
            shape = replace(shape, contains=kept, low=low, high=min(highs, default=None))
        elif part.high == 0:
            outside = negation(part.terms)
            items = [shape.item(i) for i in range(max(part.start, len(shape.prefix)))]
            prefix = tuple(both(terms, outside) if i >= part.start else terms for i, terms in enumerate(items))
            shape = replace(shape, contains=kept, prefix=prefix, rest=both(shape.rest, outside))
        elif part.low and shape.low < part.low + part.start:
            shape = replace(shape, low=part.low + part.start)
    return shape
