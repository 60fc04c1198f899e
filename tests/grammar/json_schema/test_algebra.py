"""The normal form as a boolean algebra: laws on random schemas, and complements by hand."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from json_cases import check, table
from json_oracle import render, sample
from json_strategies import (
    array_combinations,
    array_values,
    number_combinations,
    object_combinations,
    object_values,
    schemas,
    values,
)
from oracle.recognise import accepts
from structgen.errors import LimitError, UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar import ir
from structgen.grammar.json_schema import lower_schema

INTEGER = {"type": "integer"}
STRING = {"type": "string"}
CANDIDATES = st.lists(st.one_of(values, object_values, array_values), min_size=3, max_size=8)
ANYTHING = st.one_of(schemas, object_combinations, array_combinations, number_combinations)


def _grammar(schema: Any) -> ir.Grammar | None:
    """Return the grammar in any order, None where nothing fits; a refusal ends the example."""
    try:
        return lower_schema(schema, property_order="any")
    except (UnsupportedSchemaError, LimitError):
        reject()
    except UnsatisfiableError:
        return None
    raise AssertionError


def _holds(grammar: ir.Grammar | None, value: Any) -> bool:
    return grammar is not None and accepts(grammar, render(value).encode())


@settings(max_examples=80)
@given(ANYTHING, st.randoms(use_true_random=False))
def test_a_schema_and_its_complement_share_nothing(schema: Any, rng: random.Random) -> None:
    """`A and not A` has no word: what the grammar of one makes, the other does not take, and together none is made."""
    assert _grammar({"allOf": [schema, {"not": schema}]}) is None
    one, other = _grammar(schema), _grammar({"not": schema})
    for grammar, opposite in ((one, other), (other, one)):
        for _ in range(3 if grammar is not None and opposite is not None else 0):
            assert not accepts(opposite, sample(grammar, rng))


@settings(max_examples=80)
@given(ANYTHING, ANYTHING, CANDIDATES)
def test_intersection_and_union_commute(first: Any, second: Any, candidates: list[Any]) -> None:
    """The order of branches changes no verdict, and both operations are those on verdicts."""
    one, two = _grammar(first), _grammar(second)
    for keyword, combine in (("allOf", all), ("anyOf", any)):
        forth, back = _grammar({keyword: [first, second]}), _grammar({keyword: [second, first]})
        for value in candidates:
            verdict = combine((_holds(one, value), _holds(two, value)))
            assert _holds(forth, value) == _holds(back, value) == verdict, json.dumps(value)


@settings(max_examples=80)
@given(ANYTHING, CANDIDATES)
def test_a_double_complement_is_the_schema(schema: Any, candidates: list[Any]) -> None:
    """Each canonical text is in exactly one of a schema and its complement, and in the complement of that again."""
    same, other, again = _grammar(schema), _grammar({"not": schema}), _grammar({"not": {"not": schema}})
    for value in candidates:
        assert _holds(same, value) == _holds(again, value) != _holds(other, value), json.dumps(value)


@table(
    (
        "a closed object",
        {"type": "object", "not": {"properties": {"a": True}, "additionalProperties": False}},
        ['{"b": 1}', '{"a": 1, "b": 2}', '{"c": 0, "b": 1, "b": 2}'],
        ["{}", '{"a": 1}'],
    ),
    (
        "closed but for a value",
        {"type": "object", "not": {"properties": {"a": INTEGER}, "additionalProperties": False}},
        ['{"a": ""}', '{"a": "", "b": 1}', '{"b": 1}'],
        ["{}", '{"a": 1}'],
    ),
    (
        "additional values: the key that breaks the rule comes last",
        {"type": "object", "not": {"additionalProperties": INTEGER}},
        ['{"a": ""}', '{"b": 1, "a": ""}', '{"a": 1, "a": ""}'],
        ["{}", '{"a": 1}', '{"a": "", "a": 1}', '~{"a": "", "b": 1}'],
    ),
    (
        "names",
        {"type": "object", "not": {"propertyNames": {"maxLength": 1}}},
        ['{"ab": 1}', '{"a": 1, "ab": 2}', '{"ab": 1, "a": 2}'],
        ["{}", '{"a": 1}'],
    ),
    (
        "patterns",
        {"type": "object", "not": {"patternProperties": {"^x": INTEGER}}, "additionalProperties": STRING},
        ['{"x": ""}', '{"b": "", "x1": ""}', '{"x1": "", "b": ""}'],
        ["{}", '{"b": ""}', '{"x": 1}'],
    ),
    (
        "two kinds of names",
        {"type": "object", "allOf": [{"not": {"propertyNames": {"pattern": p}}} for p in ("^a", "^b")]},
        ['{"c": 1}', '{"a": 1, "b": 2}', '{"x": 1, "y": 2}'],
        ["{}", '{"a": 1}', '{"b": 1, "bb": 2}'],
    ),
    (
        "items after a prefix",
        {"type": "array", "not": {"prefixItems": [True], "items": INTEGER}},
        ['[1, ""]', '["", 1, ""]'],
        ["[]", '[""]', "[1, 2]"],
    ),
    ("contains", {"type": "array", "not": {"contains": INTEGER}}, ["[]", '[""]'], ["[1]", '["", 1]']),
    (
        "contains, counted",
        {"type": "array", "not": {"contains": INTEGER, "minContains": 2, "maxContains": 3}},
        ["[]", '[1, ""]', "[1, 2, 3, 4]"],
        ["[1, 2]", '[1, "", 2, 3]'],
    ),
    (
        "exactly one of two closed objects",
        {
            "oneOf": [
                {"type": "object", "properties": {name: INTEGER, "c": STRING}, "additionalProperties": False}
                for name in ("a", "b")
            ]
        },
        ['{"a": 1}', '{"b": 1}', '{"a": 1, "c": ""}'],
        ["{}", '{"c": ""}', '{"a": 1, "b": 1}'],
    ),
    (
        "a format beside another type is no matter",
        {"type": "integer", "not": {"format": "hostname"}},
        [],
        ["1"],
    ),
)
def test_complements(schema: Any, words: list[str], others: list[str]) -> None:
    """Complements of conditions on keys, values, items and counts."""
    if words:
        check(schema, words, others)
    else:
        with pytest.raises(UnsatisfiableError):
            lower_schema(schema)


@table(
    (
        "exactly so many",
        {"type": "array", "contains": INTEGER, "minContains": 1, "maxContains": 2, "maxItems": 3},
        ["[1]", '["", 1, 2]'],
        ["[]", "[1, 2, 3]", '["", "", "", 1]'],
    ),
    (
        "none",
        {"type": "array", "contains": INTEGER, "minContains": 0, "maxContains": 0},
        ["[]", '[""]'],
        ["[1]"],
    ),
    (
        "two conditions",
        {"type": "array", "allOf": [{"contains": {"const": 1}}, {"contains": {"const": 2}}], "maxItems": 3},
        ["[1, 2]", "[2, 0, 1]"],
        ["[]", "[1, 1]", "[1, 0, 0, 2]"],
    ),
    (
        "an item may be both",
        {"type": "array", "allOf": [{"contains": {"minimum": 1}}, {"contains": {"maximum": 2}}]},
        ["[1]", "[0, 3]"],
        ["[]", "[3]"],
    ),
    (
        "after a prefix",
        {"type": "array", "prefixItems": [STRING], "items": INTEGER, "contains": {"const": 2}, "minContains": 2},
        ['["", 2, 2]', '["", 1, 2, 3, 2]'],
        ['["", 2]', "[2, 2]"],
    ),
    (
        "as many as 10",
        {"type": "array", "items": {"enum": [0, 1]}, "contains": {"const": 1}, "maxContains": 10, "minItems": 3},
        [f"[{', '.join('1' * 10)}, 0]", "[0, 1, 0]"],
        [f"[{', '.join('1' * 11)}]", "[1, 0]"],
    ),
)
def test_counted_items(schema: Any, words: list[str], others: list[str]) -> None:
    """Contains with both bounds, several at once, beside every other keyword of arrays."""
    check(schema, words, others)


@table(
    (
        "by position",
        {"type": "array", "prefixItems": [{"enum": [1, 2]}, {"enum": [2, 3]}], "items": False, "uniqueItems": True},
        ["[]", "[2]", "[1, 2]", "[2, 3]"],
        ["[2, 2]", "[1, 2, 3]"],
    ),
    (
        "of kinds that have nothing in common",
        {"type": "array", "prefixItems": [STRING, INTEGER], "items": False, "uniqueItems": True},
        ['["", 1]', "[]"],
        ["[1, 1]"],
    ),
    (
        "of two spellings",
        {"type": "array", "items": {"enum": [1.0, 2, True]}, "uniqueItems": True},
        ["[1.0, 2]", "[1, true]", "[true, 1.0]"],
        ["[1, 1.0]", "[1.0, 2, 1.0]", "[1.0, true, 1]"],
    ),
    (
        "what is counted after the last position",
        {"type": "array", "prefixItems": [{"enum": [1, 2]}] * 2, "items": {"enum": [1, 2, "a"]}, "maxItems": 2}
        | {"uniqueItems": True, "contains": {"enum": [1, "a"]}},
        ["[1]", "[2, 1]"],
        ["[]", "[2]", '[1, "a"]', "[1, 1]"],
    ),
    (
        "of two spellings, counted",
        {"type": "array", "items": {"enum": [1.0, 2]}, "uniqueItems": True, "contains": {"const": 1}},
        ["[1.0]", "[1]", "[2, 1.0]"],
        ["[2]", "[1, 1.0]"],
    ),
    (
        "few of many",
        {"type": "array", "items": {"enum": list(range(20))}, "maxItems": 2, "uniqueItems": True},
        ["[19, 0]", "[]"],
        ["[7, 7]", "[1, 2, 3]"],
    ),
    (
        "with contains",
        {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "contains": {"const": 2}},
        ["[2]", "[3, 2]"],
        ["[2, 2]", "[1, 3]"],
    ),
)
def test_unique_items(schema: Any, words: list[str], others: list[str]) -> None:
    """Exact for finite sets by position, short arrays, and items that cannot be equal."""
    check(schema, words, others)


def test_branches_that_overlap_in_too_many_cases_are_a_limit_that_names_two() -> None:
    """Exactly one of many open objects, each of which can fail in two ways, is refused in bounded time."""
    branches = [{"properties": {f"a{i}": INTEGER, f"b{i}": STRING}} for i in range(16)]
    with pytest.raises(LimitError, match=r"#/oneOf/0 and #/oneOf/1\d overlap"):
        lower_schema({"type": "object", "oneOf": branches})
