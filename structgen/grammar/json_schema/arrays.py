"""Array shapes: positional items, a rest, counts, contains and uniqueItems; closed under intersection."""

from __future__ import annotations

from dataclasses import dataclass, replace

from structgen.grammar.json_schema.terms import ANYTHING, NOTHING, InexactError, Terms, both, negations


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """A set of arrays.

    Attributes:
        prefix: what the first items are, by position; a position need not be reached.
        rest: what each later item is.
        low: least number of items.
        high: greatest number of items, None for no bound.
        contains: at least so many items satisfy the terms; None for no condition.
        unique: whether no two items are equal.
        may_repeat: whether `unique` may be left out where it cannot be had and nothing counts the items
            (the reader makes a set of them).
    """

    prefix: tuple[Terms, ...] = ()
    rest: Terms = ANYTHING
    low: int = 0
    high: int | None = None
    contains: tuple[Terms, int] | None = None
    unique: bool = False
    may_repeat: bool = False

    def item(self, index: int) -> Terms:
        """Return what the item at an index is."""
        return self.prefix[index] if index < len(self.prefix) else self.rest

    @property
    def is_empty(self) -> bool:
        """Tell whether the counts alone contradict each other."""
        return self.high is not None and self.low > self.high

    def intersect(self, other: ArrayShape) -> ArrayShape | None:
        """Return the arrays in both, None if there is none."""
        if self.contains and other.contains and self.contains != other.contains:
            raise InexactError("contains", "applies twice to one array; state it once")
        highs = [shape.high for shape in (self, other) if shape.high is not None]
        length = max(len(self.prefix), len(other.prefix))
        shape = ArrayShape(
            prefix=tuple(both(self.item(i), other.item(i)) for i in range(length)),
            rest=both(self.rest, other.rest),
            low=max(self.low, other.low),
            high=min(highs, default=None),
            contains=self.contains or other.contains,
            unique=self.unique or other.unique,
            may_repeat=self.may_repeat or other.may_repeat,
        )
        return None if shape.is_empty else _closed(shape)

    def complement(self) -> tuple[ArrayShape, ...]:
        """Return shapes whose union is every other array.

        Raises:
            InexactError: there is no such union of shapes.
        """
        if self.unique:
            raise InexactError("uniqueItems", "cannot be negated; rewrite the schema without not, if or oneOf here")
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
            if self.prefix:
                raise InexactError("items", "after prefixItems cannot be negated; rewrite without not, if, oneOf")
            parts += [ArrayShape(contains=(negated, 1)) for negated in negations(self.rest)]
        if self.contains is not None:
            parts += _without(*self.contains)
        return tuple(parts)


def _without(terms: Terms, count: int) -> list[ArrayShape]:
    negated = negations(terms)
    if count != 1 or len(negated) != 1:
        raise InexactError("contains", "cannot be negated here; rewrite the schema without not, if or oneOf")
    return [ArrayShape(rest=negated[0])]


def _closed(shape: ArrayShape) -> ArrayShape | None:
    """Cut the counts at the first position that nothing satisfies."""
    positions = [*shape.prefix, shape.rest]
    if NOTHING not in positions:
        return shape
    first = positions.index(NOTHING)
    high = first if shape.high is None else min(shape.high, first)
    if shape.low > high:
        return None
    return replace(shape, prefix=shape.prefix[:first], rest=NOTHING, high=high)
