"""Keywords that look at one type -> values: numbers, strings, arrays, objects.

Each function reads the keywords of one family from one subschema and returns the values that they admit,
other types included; None where no keyword of the family is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

from structgen.errors import GrammarSyntaxError, shown
from structgen.grammar import regex_grammar
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.json_schema import formats, strings
from structgen.grammar.json_schema.arrays import ArrayShape, Contains
from structgen.grammar.json_schema.document import JsonValue, Reader
from structgen.grammar.json_schema.numbers import Bound, Digits, NumberShape, point
from structgen.grammar.json_schema.objects import ObjectShape, Region
from structgen.grammar.json_schema.patterns import Pattern, read_pattern
from structgen.grammar.json_schema.shapes import ANY, Values, beside, exact_fraction, of_types
from structgen.grammar.json_schema.strings import StringShape
from structgen.grammar.json_schema.terms import ANYTHING, DOUBT, NOTHING, InexactError, Terms, both, either

R = TypeVar("R")

DIGITS = "x-structgen-digits"
"""Most digits that a number is written with: [integer part, fraction, both]. Our own, for Decimal and float."""
MAX_DIGITS = 40
EXPONENT = "x-structgen-exponent"
"""Most digits of the exponent of a number. Our own, for float."""
SET = "x-structgen-set"
"""Whether equal items do no harm where they cannot be excluded. Our own, for set and frozenset."""
_NUMERIC = frozenset(
    ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", DIGITS, EXPONENT),
)
_TEXTUAL = frozenset(("minLength", "maxLength", "pattern", "format"))
_OF_ARRAYS = frozenset(
    ("items", "prefixItems", "minItems", "maxItems", "contains", "minContains", "maxContains", "uniqueItems")
)
_OF_OBJECTS = frozenset(
    ("properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties")
) | {"maxProperties"}
TYPE_NAMES = ("null", "boolean", "integer", "number", "string", "array", "object")


class Context(NamedTuple):
    """What a family needs to know of the rest of the document.

    Attributes:
        terms: the conjunction for the subschema at a pointer.
        values: the values of a conjunction.
        closed: whether an object with properties and without additionalProperties is closed.
    """

    terms: Callable[[str], Terms]
    values: Callable[[Terms], Values]
    closed: bool


def read_type(reader: Reader) -> Values | None:
    """Return the values of the named types."""
    if "type" not in reader:
        return None
    named = reader.schema["type"]
    names = named if isinstance(named, list) else [named]
    for name in names:
        if name not in TYPE_NAMES:
            raise reader.refuse("type", f"must name JSON types, not {shown(name)}")
    return of_types([str(name) for name in names])


def read_numbers(reader: Reader) -> Values | None:
    """Return what the numeric keywords admit."""
    if _NUMERIC.isdisjoint(reader.schema):
        return None
    shape = NumberShape()
    for keyword, inclusive in (("minimum", True), ("exclusiveMinimum", False)):
        value = reader.number(keyword)
        if value is not None:
            shape = _narrow(shape, NumberShape(low=Bound(exact_fraction(value), inclusive)))
    for keyword, inclusive in (("maximum", True), ("exclusiveMaximum", False)):
        value = reader.number(keyword)
        if value is not None:
            shape = _narrow(shape, NumberShape(high=Bound(exact_fraction(value), inclusive)))
    divisor = reader.number("multipleOf")
    if divisor is not None:
        if divisor <= 0:
            raise reader.refuse("multipleOf", "must be greater than 0")
        shape = _narrow(shape, NumberShape(multiple=exact_fraction(divisor)))
    if DIGITS in reader:
        shape = _narrow(shape, NumberShape(digits=_digits(reader)))
    exponent = reader.count(EXPONENT)
    if exponent is not None:
        shape = _narrow(shape, NumberShape(exponent=exponent))
    return beside(Values(numbers=() if shape.is_empty else (shape,)), "number")


def _narrow(shape: NumberShape, other: NumberShape) -> NumberShape:
    # An empty interval is kept as two equal open ends, so that the emptiness shows in `is_empty`.
    empty = Bound(Fraction(0), inclusive=False)
    return shape.intersect(other) or NumberShape(low=empty, high=empty)


def _digits(reader: Reader) -> Digits:
    limits = reader.items(DIGITS)
    if len(limits) != 3 or not all(isinstance(limit, int) and 0 <= limit <= MAX_DIGITS for limit in limits):
        raise reader.refuse(DIGITS, f"must be three integers from 0 to {MAX_DIGITS}")
    whole, fraction, total = (int(str(limit)) for limit in limits)
    return Digits(whole, fraction, total)


def read_strings(reader: Reader) -> Values | None:
    """Return what the string keywords admit."""
    if _TEXTUAL.isdisjoint(reader.schema):
        return None
    low, high = reader.count("minLength"), reader.count("maxLength")
    pattern, name = reader.text("pattern"), reader.text("format")
    # A format that is not known is an annotation.
    form = None if name is None else formats.format_shape(name)
    if low is None and high is None and pattern is None and form is None:
        return None
    shape: StringShape | None = StringShape(low=low or 0, high=high)
    if pattern is not None and shape is not None:
        shape = shape.intersect(_pattern_shape(reader, pattern))
    if form is not None and shape is not None:
        shape = shape.intersect(form)
    kept = () if shape is None or (shape.is_empty and shape.exact) else (shape,)
    return beside(Values(strings=kept), "string")


def _pattern_shape(reader: Reader, pattern: str) -> StringShape:
    counted = _read(reader, "pattern", pattern, regex_grammar.counted_pattern)
    if isinstance(counted, regex_grammar.PatternExpression):
        return StringShape(counted=counted)
    if counted is not None:
        # Sound in both dialects, but it says nothing of the complement.
        return StringShape(counted.texts, low=counted.min_length, high=counted.max_length, exact=False)
    return strings.from_pattern(pattern_language(reader, "pattern", pattern))


def pattern_language(reader: Reader, keyword: str, pattern: str) -> Pattern:
    """Return the texts in which a pattern is found."""
    return _read(reader, keyword, pattern, read_pattern)


def _read(reader: Reader, keyword: str, pattern: str, function: Callable[[str], R]) -> R:
    try:
        return function(pattern)
    except GrammarSyntaxError as error:
        raise reader.refuse(keyword, f"{pattern!r} cannot be read as a regular pattern: {error}") from error


def read_arrays(reader: Reader, context: Context) -> Values | None:
    """Return what the array keywords admit."""
    if _OF_ARRAYS.isdisjoint(reader.schema):
        return None
    if isinstance(reader.schema.get("items"), list):
        raise reader.refuse("items", "is the array form of old drafts beside prefixItems; write items for the rest")
    positions = range(len(reader.items("prefixItems")))
    shape = ArrayShape(
        prefix=tuple(context.terms(reader.place("prefixItems", i)) for i in positions),
        rest=context.terms(reader.place("items")) if "items" in reader else ANYTHING,
        low=reader.count("minItems") or 0,
        high=reader.count("maxItems"),
        contains=_contains(reader, context),
        unique=_flag(reader, "uniqueItems"),
        may_repeat=_flag(reader, SET),
    )
    # Intersecting with every array cuts the counts at an item that nothing satisfies.
    closed = ArrayShape().intersect(shape)
    return beside(Values(arrays=() if closed is None else (closed,)), "array")


def _contains(reader: Reader, context: Context) -> tuple[Contains, ...]:
    low, high = reader.count("minContains", 1), reader.count("maxContains")
    if "contains" not in reader or (not low and high is None):
        return ()
    return (Contains(context.terms(reader.place("contains")), low or 0, high),)


def _flag(reader: Reader, keyword: str) -> bool:
    value = reader.schema.get(keyword, False)
    if not isinstance(value, bool):
        raise reader.refuse(keyword, "must be true or false")
    return value


def read_objects(reader: Reader, context: Context) -> Values | None:
    """Return what the object keywords admit, without the dependent ones."""
    if _OF_OBJECTS.isdisjoint(reader.schema):
        return None
    patterns = [
        (
            pattern_language(reader, "patternProperties", pattern),
            context.terms(reader.place("patternProperties", pattern)),
        )
        for pattern in reader.mapping("patternProperties")
    ]
    declared = {name: context.terms(reader.place("properties", name)) for name in reader.mapping("properties")}
    for name in declared:
        for keys, value in patterns:
            if keys.possible.matches(name):
                matched = both(declared[name], value)
                is_sure = keys.sure.matches(name)
                declared[name] = matched if is_sure else _either_way(matched, declared[name])
    base = ObjectShape(
        properties=tuple(declared.items()),
        regions=_regions(patterns, _additional(reader, context)),
        low=reader.count("minProperties") or 0,
        high=reader.count("maxProperties"),
    )
    shape: ObjectShape | None = base
    if "propertyNames" in reader:
        shape = base.intersect(_named(reader, context))
    shape = shape.requiring(reader.names("required")) if shape is not None else None
    return beside(Values(objects=() if shape is None or shape.is_empty else (shape,)), "object")


def _additional(reader: Reader, context: Context) -> Terms:
    if "additionalProperties" in reader:
        return context.terms(reader.place("additionalProperties"))
    return NOTHING if context.closed and "properties" in reader else ANYTHING


def _regions(patterns: list[tuple[Pattern, Terms]], additional: Terms) -> tuple[Region, ...]:
    """Split all keys by the patterns; what none matches is additional; what may match has to be right either way."""
    if not patterns:
        return () if additional == NOTHING else (Region(None, additional),)
    # The keys that match the same patterns, and what these say of the value; None where none says anything.
    kinds: list[tuple[CharDfa, Terms | None]] = [(CharDfa.any_text(), None)]
    for keys, value in patterns:
        split: list[tuple[CharDfa, Terms | None]] = []
        doubtful = keys.possible.difference(keys.sure)
        for kind, terms in kinds:
            matched, unmatched = both(terms or ANYTHING, value), additional if terms is None else terms
            split.append((kind.intersection(keys.sure), matched))
            split.append((kind.difference(keys.possible), terms))
            split.append((kind.intersection(doubtful), _either_way(matched, unmatched)))
        kinds = [(kind, terms) for kind, terms in split if not kind.is_empty]
    regions = [Region(kind, additional if terms is None else terms) for kind, terms in kinds]
    return tuple(region for region in regions if region.value != NOTHING)


def _either_way(matched: Terms, unmatched: Terms) -> Terms:
    """Return what a value is that fits by both of two readings; nothing is known of other values."""
    return matched if matched == unmatched else either(both(matched, unmatched), DOUBT)


def _named(reader: Reader, context: Context) -> ObjectShape:
    """Return the objects whose keys the schema of propertyNames admits."""
    found = context.values(context.terms(reader.place("propertyNames"))).strings
    if all(shape.words is not None and shape.exact for shape in found):
        words = sorted({word for shape in found for word in shape.words or ()})
        listed = tuple((word, ANYTHING) for word in words)
        return ObjectShape(listed, regions=(), appended=frozenset(words))
    try:
        keys = strings.language(found)
    except InexactError as error:
        raise reader.refuse(error.keyword, error.reason) from None
    if keys is None:
        return ObjectShape()
    if any(not shape.exact for shape in found):
        return ObjectShape(regions=(Region(keys, ANYTHING), Region(keys.complement(), DOUBT)))
    doubtful = strings.possible_language(found).difference(keys)
    outside = () if doubtful.is_empty else (Region(doubtful, DOUBT),)
    return ObjectShape(regions=(() if keys.is_empty else (Region(keys, ANYTHING),)) + outside)


def everything(parts: Iterable[Values | None]) -> Values:
    """Return the values that each part admits."""
    found = ANY
    for part in parts:
        if part is not None:
            found = part if found is ANY else found.intersect(part)
    return found


def scalars(values: Sequence[JsonValue]) -> Values:
    """Return the scalars of a list as one set.

    Raises:
        InexactError: a number among them cannot be written.
    """
    words = frozenset(value for value in values if isinstance(value, str))
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    points = [point(exact_fraction(value), decimal=isinstance(value, float)) for value in numbers]
    return Values(
        nulls=None in values,
        booleans=frozenset(value for value in values if isinstance(value, bool)),
        numbers=tuple(dict.fromkeys(points)),
        strings=(StringShape(words=words),) if words else (),
    )
