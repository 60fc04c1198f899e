"""minimum, maximum, exclusive bounds, multipleOf, and their complements."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from json_cases import check, table
from oracle.recognise import accepts
from structgen.grammar import ir
from structgen.grammar.json_schema.numbers import Bound, NumberShape, lower_numbers, spell


@table(
    ("range", {"type": "integer", "minimum": -8, "maximum": 31}, ["-8", "0", "31"], ["-9", "32", "07", "3.5"]),
    (
        "wide range",
        {"type": "integer", "minimum": 99, "maximum": 12345},
        ["99", "100", "12345", "9999"],
        ["98", "12346"],
    ),
    ("exclusive", {"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 5}, ["3", "4"], ["2", "5"]),
    ("fraction bound", {"type": "integer", "minimum": 1.5}, ["2"], ["1"]),
    ("both bounds", {"type": "integer", "minimum": 3, "exclusiveMinimum": 3}, ["4"], ["3"]),
    ("at least zero", {"type": "number", "minimum": 0}, ["0", "0.25", "2e2", "1e-3"], ["-0.01", "-1", "-1e-9"]),
    ("above zero", {"type": "number", "exclusiveMinimum": 0}, ["0.01", "5"], ["0", "0.0", "-1"]),
    (
        "decimals",
        {"type": "number", "minimum": 0.5, "exclusiveMaximum": 2.25},
        ["0.5", "2.249", "1"],
        ["0.49", "2.25", "3"],
    ),
    ("multiple", {"type": "integer", "multipleOf": 6}, ["0", "-12", "30"], ["3", "-13"]),
    ("multiple of number", {"type": "number", "multipleOf": 0.5}, ["1.5", "2", "-0.5", "2.50"], ["0.25", "1.75"]),
    ("multiples meet", {"multipleOf": 4, "allOf": [{"multipleOf": 6}]}, ["24", "0", '"x"'], ["6", "4"]),
    (
        "multiple in range",
        {"type": "integer", "multipleOf": 5, "minimum": 1, "maximum": 20},
        ["5", "20"],
        ["0", "25", "7"],
    ),
    ("not a multiple", {"type": "integer", "not": {"multipleOf": 3}}, ["1", "-5"], ["3", "0"]),
    ("not in range", {"type": "integer", "not": {"minimum": 0, "maximum": 9}}, ["-1", "10"], ["0", "9"]),
    ("no integer", {"type": "number", "not": {"type": "integer"}}, ["0.5", "-3.25"], ["1", "2.0"]),
    ("listed as a decimal", {"enum": [2.0, 3, 0.5]}, ["2", "2.0", "3", "0.5"], ["~3.0", "~0.50", "~2.00", "20"]),
    ("a decimal in an object", {"const": {"a": -1.0}}, ['{"a": -1}', '{"a": -1.0}'], ['{"a": 1.0}', '{"a": true}']),
    ("an integer, listed as a decimal", {"type": "integer", "const": 2.0}, ["2"], ["~2.0", "1"]),
    ("two decimals alike", {"enum": [2.0, 2]}, ["2", "2.0"], ["3"]),
    ("all but a decimal", {"type": "integer", "not": {"const": 2.0}}, ["1", "3"], ["2", "2.0"]),
    ("other types pass", {"minimum": 5}, ['"x"', "null", "5"], ["4"]),
)
def test_numbers(schema: Any, words: list[str], others: list[str]) -> None:
    """Bounds and divisors are exact."""
    check(schema, words, others)


@table(
    ("listed", {"enum": [2.0, 3, 0.5]}, ["2", "2.0", "3", "3.0", "0.5"], ["~0.50", "~2.00", "~3e0", "20"]),
    ("within", {"const": [0, {"a": 1}]}, ['[0, {"a": 1.0}]', '[0.0,{"a":1}]'], ['[false, {"a": 1}]']),
    ("listed integers", {"type": "integer", "enum": [2, 3]}, ["2", "3"], ["~2.0", "20"]),
    ("no float is equal", {"const": 2**53 + 1}, [f"{2**53 + 1}"], [f"{2**53 + 1}.0", f"{2**53}", f"{2**53}.0"]),
    ("a float is equal", {"const": -(2**53)}, [f"-{2**53}", f"-{2**53}.0"], [f"{2**53}.0"]),
    ("too large for floats", {"const": 10**400}, [f"1{400 * '0'}"], ["1"]),
    ("alike", {"items": {"enum": [*range(44)]}, "uniqueItems": True, "maxItems": 2}, ["[1, 2.0]"], ["[1, 1.0]"]),
    ("all but one", {"type": "number", "not": {"const": 2}}, ["1", "2.5"], ["2", "2.0"]),
)
def test_listed_numbers_in_any_style(schema: Any, words: list[str], others: list[str]) -> None:
    """Whatever the schema writes, whole numbers are read with a fraction of zero, too, where floats are exact."""
    check(schema, words, others, whitespace="any")


fractions = st.one_of(st.integers(-40, 40).map(Fraction), st.integers(-80, 80).map(lambda n: Fraction(n, 4)))
bounds = st.none() | st.builds(Bound, fractions, st.booleans())
shapes = st.builds(
    NumberShape,
    kind=st.sampled_from(["any", "integer", "fraction"]),
    low=bounds,
    high=bounds,
    multiple=st.none() | st.sampled_from([Fraction(3), Fraction(1, 2), Fraction(3, 4)]),
)


def _has(shape: NumberShape, value: Fraction) -> bool:
    """Say membership by the definition."""
    if shape.kind != "any" and (shape.kind == "integer") != (value.denominator == 1):
        return False
    if shape.low is not None and (value < shape.low.value or (value == shape.low.value and not shape.low.inclusive)):
        return False
    if shape.high is not None and (
        value > shape.high.value or (value == shape.high.value and not shape.high.inclusive)
    ):
        return False
    divides = [] if shape.multiple is None else [(value / shape.multiple).denominator == 1]
    return all(divides + [(value / other).denominator != 1 for other in shape.not_multiples])


def _writes(found: list[NumberShape], value: Fraction) -> bool:
    words, lexemes = lower_numbers(tuple(found))
    text = spell(value)
    return text in words or any(accepts(ir.Grammar({"n": lexeme}, "n"), text.encode()) for lexeme in lexemes)


@given(shapes, shapes, fractions)
def test_number_shapes_are_an_algebra(first: NumberShape, second: NumberShape, value: Fraction) -> None:
    """Intersection, complement, emptiness and the written language agree with membership by definition."""
    both = first.intersect(second)
    assert (both is not None and _has(both, value)) == (_has(first, value) and _has(second, value))
    assert any(_has(part, value) for part in first.complement()) == (not _has(first, value))
    assert not (first.is_empty and _has(first, value))
    assert _writes([first], value) == _has(first, value)
