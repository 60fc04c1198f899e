"""Set difference of values, shape by shape: a complement is taken only of what overlaps.

What is taken away leaves one piece per condition that can fail, so pieces multiply; those that have no values, or lie
inside another one, are dropped as they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, Self, TypeVar

from structgen.errors import LimitError
from structgen.grammar.json_schema import strings
from structgen.grammar.json_schema.arrays import ArrayShape
from structgen.grammar.json_schema.objects import ObjectShape
from structgen.grammar.json_schema.shapes import Values
from structgen.grammar.json_schema.terms import InexactError
from structgen.grammar.time_limit import check_time

MAX_PIECES = 1024
"""Most pieces that the shapes of one type are cut into; compiling them takes some seconds."""
_MAX_COMPARED = 400
_NOT_NEGATED = {
    "format": "what is read of it is narrower than the standard; use pattern",
    "uniqueItems": "no grammar finds equal items; rewrite the schema without not, if or oneOf over it",
    "digits": "how a number is written is no property of its value",
}


class _Shape(Protocol):
    """What the shapes of the four infinite types have in common."""

    def intersect(self, other: Self, /) -> Self | None:
        """Return the values in both, None if there is none."""

    def complement(self) -> tuple[Self, ...]:
        """Return shapes whose union is every other value of the type."""

    @property
    def is_exact(self) -> bool:
        """Tell whether the shape can be complemented."""


S = TypeVar("S", bound=_Shape)


def difference(
    first: Values,
    second: Values,
    *,
    no_array: Callable[[ArrayShape], bool],
    no_object: Callable[[ObjectShape], bool],
) -> Values:
    """Return the values of the first that are not in the second.

    Args:
        first: some values.
        second: what is taken away.
        no_array: tells whether it is certain that a shape has no values.
        no_object: likewise.

    Raises:
        InexactError: there is no such union of shapes.
        LimitError: there are too many.
    """
    return Values(
        nulls=first.nulls and not second.nulls,
        booleans=first.booleans - second.booleans,
        numbers=_without(first.numbers, second.numbers, _never, "digits"),
        strings=strings.merge(_without(first.strings, second.strings, _never, "format")),
        arrays=_without(first.arrays, second.arrays, no_array, "uniqueItems"),
        objects=_without(first.objects, second.objects, no_object, ""),
    )


def _never(_: object) -> bool:
    return False


def _without(
    shapes: tuple[S, ...], taken: tuple[S, ...], is_hollow: Callable[[S], bool], keyword: str
) -> tuple[S, ...]:
    found = shapes
    for other in taken:
        if found:
            found = _less(found, other, is_hollow, keyword)
    return found


def _less(shapes: tuple[S, ...], other: S, is_hollow: Callable[[S], bool], keyword: str) -> tuple[S, ...]:
    """Return the shapes without the values of another one."""
    pieces: tuple[S, ...] | None = None
    found: dict[S, None] = {}
    for shape in shapes:
        check_time("a negated subschema")
        shared = shape if shape == other else shape.intersect(other)
        if shared is None or is_hollow(shared):
            found[shape] = None
            continue
        if not other.is_exact:
            raise InexactError(keyword, f"cannot be negated here: {_NOT_NEGATED[keyword]}")
        if shared == shape:
            continue
        pieces = other.complement() if pieces is None else pieces
        for piece in pieces:
            rest = shape.intersect(piece)
            if rest is not None and not is_hollow(rest):
                found[rest] = None
        if len(found) > MAX_PIECES:
            raise LimitError("the schema combines into too many cases; simplify it", "shapes", len(found))
    return outermost(found)


def outermost(shapes: Iterable[S]) -> tuple[S, ...]:
    """Return the shapes without those that certainly lie inside another one, where they are few enough to compare."""
    found = tuple(dict.fromkeys(shapes))
    if len(found) < 2 or len(found) > _MAX_COMPARED or not isinstance(found[0], ArrayShape | ObjectShape):
        return found
    kept: list[S] = []
    for shape in found:
        if not any(_covers(other, shape) for other in kept):
            kept = [other for other in kept if not _covers(shape, other)] + [shape]
    return tuple(kept)


def _covers(outer: object, inner: object) -> bool:
    if isinstance(outer, ObjectShape) and isinstance(inner, ObjectShape):
        return outer.covers(inner)
    return isinstance(outer, ArrayShape) and isinstance(inner, ArrayShape) and outer.covers(inner)
