"""The normal form of a schema: a union of typed shapes, closed under intersection and union.

`Values` is a set of JSON values. The types are disjoint, so each operation works type by type. What the
items and properties of a shape are stays a conjunction of terms, resolved when it is needed (`solver`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, Self, TypeVar

from structgen.errors import LimitError, shown
from structgen.grammar.json_schema import numbers, strings
from structgen.grammar.json_schema.arrays import ArrayShape
from structgen.grammar.json_schema.document import JsonValue, child
from structgen.grammar.json_schema.numbers import NumberShape
from structgen.grammar.json_schema.objects import ObjectShape
from structgen.grammar.json_schema.strings import StringShape
from structgen.grammar.json_schema.terms import NOTHING, InexactError, constant
from structgen.grammar.time_limit import check_time

MAX_SHAPES = 5_000
TYPES = ("null", "boolean", "number", "string", "array", "object")


class Shape(Protocol):
    """What the shapes of the four infinite types have in common."""

    def intersect(self, other: Self, /) -> Self | None:
        """Return the values in both, None if there is none."""

    def complement(self) -> tuple[Self, ...]:
        """Return shapes whose union is every other value of the type."""


S = TypeVar("S", bound=Shape)


@dataclass(frozen=True, slots=True)
class Values:
    """A set of JSON values: for each type a union of shapes."""

    nulls: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: tuple[NumberShape, ...] = ()
    strings: tuple[StringShape, ...] = ()
    arrays: tuple[ArrayShape, ...] = ()
    objects: tuple[ObjectShape, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether there is no shape at all."""
        return not any(getattr(self, field.name) for field in fields(self))

    def intersect(self, other: Values) -> Values:
        """Return the values in both."""
        return Values(
            nulls=self.nulls and other.nulls,
            booleans=self.booleans & other.booleans,
            numbers=_intersections(self.numbers, other.numbers, _ANY_NUMBER),
            strings=strings.merge(_intersections(self.strings, other.strings, strings.ANY_STRING)),
            arrays=_intersections(self.arrays, other.arrays, _ANY_ARRAY),
            objects=_intersections(self.objects, other.objects, _ANY_OBJECT),
        )

    def union(self, other: Values) -> Values:
        """Return the values in either."""
        return Values(
            nulls=self.nulls or other.nulls,
            booleans=self.booleans | other.booleans,
            numbers=_union(self.numbers, other.numbers, _ANY_NUMBER),
            strings=strings.merge((*self.strings, *other.strings)),
            arrays=_union(self.arrays, other.arrays, _ANY_ARRAY),
            objects=_union(self.objects, other.objects, _ANY_OBJECT),
        )


_ANY_NUMBER, _ANY_ARRAY, _ANY_OBJECT = NumberShape(), ArrayShape(), ObjectShape()
ANY = Values(
    nulls=True,
    booleans=frozenset({False, True}),
    numbers=(_ANY_NUMBER,),
    strings=(strings.ANY_STRING,),
    arrays=(_ANY_ARRAY,),
    objects=(_ANY_OBJECT,),
)
NONE = Values()


def of_types(names: Iterable[str]) -> Values:
    """Return every value of the named types ("integer" included)."""
    return _of_types(frozenset(names))


@lru_cache(maxsize=128)
def _of_types(kinds: frozenset[str]) -> Values:
    return Values(
        nulls="null" in kinds,
        booleans=frozenset({False, True}) if "boolean" in kinds else frozenset(),
        numbers=(_ANY_NUMBER,) if "number" in kinds else (NumberShape(kind="integer"),) if "integer" in kinds else (),
        strings=(strings.ANY_STRING,) if "string" in kinds else (),
        arrays=(_ANY_ARRAY,) if "array" in kinds else (),
        objects=(_ANY_OBJECT,) if "object" in kinds else (),
    )


def beside(part: Values, kind: str) -> Values:
    """Return what a keyword that looks at one type alone says: the part, and all values of other types."""
    return part.union(_BESIDE[kind])


def equal_to(text: str, pointer: str) -> Values:
    """Return the set of the one value that a JSON text holds.

    Raises:
        InexactError: a number in it cannot be written.
    """
    value: JsonValue = json.loads(text)
    match value:
        case None:
            return Values(nulls=True)
        case bool():
            return Values(booleans=frozenset({value}))
        case int() | float():
            return Values(numbers=(numbers.point(exact_fraction(value), decimal=isinstance(value, float)),))
        case str():
            return Values(strings=(StringShape(words=frozenset({value})),))
        case list():
            items = tuple(constant(item, child(pointer, i)) for i, item in enumerate(value))
            return Values(arrays=(ArrayShape(items, NOTHING, len(items), len(items)),))
        case dict():
            properties = tuple((name, constant(item, child(pointer, name))) for name, item in value.items())
            return Values(objects=(ObjectShape(properties, frozenset(value), regions=()),))


def exact_fraction(value: int | float) -> Fraction:
    """Return the decimal number that the shortest spelling of a JSON number means."""
    if value - value != 0:
        raise InexactError("const", f"holds a number that is too large for JSON readers: {shown(value)}")
    return Fraction(repr(value))


_BESIDE = {kind: of_types({*TYPES} - {kind}) for kind in TYPES}


def _intersections(first: tuple[S, ...], second: tuple[S, ...], universal: S) -> tuple[S, ...]:
    if not first or not second:
        return ()
    if universal in (*first[:1], *second[:1]):
        return second if first[:1] == (universal,) else first
    found: dict[S, None] = {}
    for one in first:
        check_time("a combination of subschemas")
        for two in second:
            shape = one if one == two else one.intersect(two)
            if shape is not None:
                found[shape] = None
                _limit(len(found))
    return tuple(found)


def _union(first: tuple[S, ...], second: tuple[S, ...], universal: S) -> tuple[S, ...]:
    if len(first) + len(second) < 2:
        return first or second
    found = dict.fromkeys((*first, *second))
    return (universal,) if universal in found else tuple(found)


def _limit(size: int) -> None:
    if size > MAX_SHAPES:
        raise LimitError("the schema combines into too many cases; simplify its allOf/anyOf/not", "shapes", size)


def union_of(parts: Iterable[Values]) -> Values:
    """Return the values in any part."""
    found = NONE
    for part in parts:
        found = found.union(part)
    return found
