"""unevaluatedProperties and unevaluatedItems: what branches that hold looked at, by hand and at random."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from json_cases import check, table
from json_oracle import is_valid, render
from oracle.recognise import accepts
from structgen.errors import LimitError, UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar.json_schema import lower_schema

INTEGER = {"type": "integer"}
STRING = {"type": "string"}
REST = {"type": "object", "unevaluatedProperties": False}
LIST = {"type": "array", "unevaluatedItems": False}


def _with(name: str, value: Any) -> dict[str, Any]:
    return {"properties": {name: value}, "required": [name]}


@table(
    ("alone", REST, ["{}"], ['{"a": 1}']),
    ("a schema", {"type": "object", "unevaluatedProperties": INTEGER}, ['{"a": 1}', "{}"], ['{"a": ""}']),
    (
        "siblings",
        {**REST, "properties": {"a": INTEGER}, "patternProperties": {"^x": STRING}},
        ['{"a": 1}', '{"a": 1, "x1": ""}', "{}"],
        ['{"a": 1, "b": 2}', '{"x1": 1}'],
    ),
    (
        "allOf",
        {**REST, "allOf": [{"properties": {"a": INTEGER}}], "properties": {"b": True}},
        ['{"b": 1}', '{"b": 1, "a": 2}'],
        ['{"c": 1}', '{"a": ""}'],
    ),
    (
        "each branch of anyOf alone",
        {**REST, "anyOf": [_with("a", INTEGER), _with("b", STRING)]},
        ['{"a": 1}', '{"b": ""}', '{"a": 1, "b": ""}'],
        ["{}", '{"a": 1, "b": 2}', '{"a": 1, "c": 0}'],
    ),
    (
        "oneOf",
        {**REST, "oneOf": [_with("a", True), _with("b", True)], "properties": {"c": True}},
        ['{"c": 0, "a": 1}', '{"b": 1}'],
        ['{"a": 1, "b": 2}', '{"c": 1}'],
    ),
    (
        "if and then, but not else",
        {**REST, "if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"properties": {"a": True}}},
        ["{}", '{"k": 1}', '{"k": 1, "a": 2}'],
        ['{"k": 2}', '{"a": 1}'],
    ),
    (
        "if alone",
        {**REST, "if": {"properties": {"k": INTEGER}}},
        ["{}", '{"k": 1}'],
        ['{"k": ""}', '{"a": 1}'],
    ),
    (
        "dependent",
        {**REST, "properties": {"a": True}, "dependentSchemas": {"a": {"properties": {"b": True}}}},
        ["{}", '{"a": 1}', '{"a": 1, "b": 2}'],
        ['{"b": 2}'],
    ),
    ("not looks at nothing", {**REST, "not": {"not": {"properties": {"a": True}}}}, ["{}"], ['{"a": 1}']),
    (
        "a reference",
        {**REST, "$defs": {"base": {"properties": {"a": True}}}, "$ref": "#/$defs/base", "properties": {"b": True}},
        ['{"b": 1, "a": 2}'],
        ['{"c": 1}'],
    ),
    (
        "cousins see nothing",
        {"type": "object", "allOf": [{"properties": {"a": True}}, {"unevaluatedProperties": False}]},
        ["{}"],
        ['{"a": 1}'],
    ),
    (
        "inside, everything was looked at",
        {**REST, "allOf": [{"unevaluatedProperties": INTEGER}]},
        ["{}", '{"a": 1}'],
        ['{"a": ""}'],
    ),
    (
        "negated",
        {"type": "object", "not": {"properties": {"a": True}, "unevaluatedProperties": INTEGER}},
        ['{"b": ""}', '{"a": 1, "b": ""}'],
        ["{}", '{"a": ""}', '{"b": 1}'],
    ),
)
def test_objects(schema: Any, words: list[str], others: list[str]) -> None:
    """Keys that no branch which holds has looked at."""
    check(schema, words, others)


@table(
    ("alone", LIST, ["[]"], ["[1]"]),
    ("after prefixItems", {**LIST, "prefixItems": [True, INTEGER]}, ["[]", '[""]', '["", 1]'], ["[1, 2, 3]"]),
    ("a schema", {"type": "array", "prefixItems": [True], "unevaluatedItems": INTEGER}, ['["", 1]'], ['["", ""]']),
    (
        "the longer of two branches",
        {**LIST, "anyOf": [{"prefixItems": [{"const": 1}]}, {"prefixItems": [True, {"const": 2}]}]},
        ["[1]", "[1, 2]", "[0, 2]", "[0]", "[]"],
        ["[1, 3]", "[0, 3]", "[1, 2, 3]"],
    ),
    ("items", {**LIST, "allOf": [{"items": INTEGER}]}, ["[1, 2]"], ['[""]']),
    ("contains", {**LIST, "contains": INTEGER}, ["[1]", "[1, 2]"], ["[]", '[1, ""]']),
    (
        "contains twice",
        {**LIST, "allOf": [{"contains": {"multipleOf": 2}}, {"contains": {"multipleOf": 3}}], "items": INTEGER},
        ["[2, 3]", "[6]", "[6, 5]"],
        ["[2, 4]"],
    ),
    (
        "contains in both",
        {**LIST, "allOf": [{"contains": {"const": 1}}, {"contains": {"const": 2}}]},
        ["[1, 2]", "[2, 1, 2]"],
        ["[1]", "[1, 2, 3]"],
    ),
    ("if", {**LIST, "if": {"prefixItems": [{"const": 1}]}, "then": {"prefixItems": [True, True]}}, ["[1, 5]"], ["[2]"]),
)
def test_arrays(schema: Any, words: list[str], others: list[str]) -> None:
    """Items that no branch which holds has looked at."""
    check(schema, words, others)


def test_contains_looks_at_no_items_in_2019_09() -> None:
    """There, what contains found still counts as not looked at."""
    schema = {"$schema": "https://json-schema.org/draft/2019-09/schema", **LIST, "contains": {"const": 1}}
    with pytest.raises(UnsatisfiableError):
        lower_schema(schema)


def test_too_many_combinations_are_a_limit() -> None:
    """Branches that may all hold together, each with keys of its own, say so at once."""
    branches = [{"properties": {f"k{i}": True}} for i in range(20)]
    with pytest.raises(LimitError, match="unevaluatedProperties"):
        lower_schema({**REST, "anyOf": branches})


def test_a_loop_without_a_value_between_is_refused() -> None:
    """A subschema that is needed to resolve itself means nothing here either."""
    with pytest.raises(UnsupportedSchemaError) as caught:
        lower_schema({**REST, "allOf": [{"$ref": "#"}]})
    assert caught.value.keyword == "$ref"


leaves = st.sampled_from([True, False, INTEGER, STRING, {"const": 1}])
parts = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(st.sampled_from(["a", "b"]), leaves, min_size=1, max_size=2),
        "required": st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=1),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "c"]), leaves, min_size=1, max_size=1),
        "prefixItems": st.lists(leaves, min_size=1, max_size=2),
        "contains": leaves,
        "unevaluatedProperties": leaves,
        "unevaluatedItems": leaves,
        "minItems": st.just(1),
    },
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=2)
    combined = st.fixed_dictionaries(
        {},
        optional={
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentSchemas": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=1),
        },
    )
    return st.builds(lambda own, rest: {**own, **rest}, parts, combined)


schemas = st.builds(
    lambda schema, objects, arrays: {**schema, "unevaluatedProperties": objects, "unevaluatedItems": arrays},
    st.recursive(parts, _nested, max_leaves=5),
    leaves,
    leaves,
)
scalars = st.sampled_from([1, 2, "x"])
values = st.one_of(
    scalars, st.lists(scalars, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "ca"]), scalars, max_size=3)
)


@settings(max_examples=120)
@given(schemas, st.lists(values, min_size=4, max_size=10))
def test_random_schemas_against_jsonschema(schema: Any, candidates: list[Any]) -> None:
    """With keys in any order a canonical text is a word iff jsonschema takes its value."""
    try:
        grammar = lower_schema(schema, property_order="any")
    except (UnsupportedSchemaError, LimitError):
        reject()
    except UnsatisfiableError:
        grammar = None
    for value in candidates:
        word = grammar is not None and accepts(grammar, render(value).encode())
        assert word == is_valid(schema, value), json.dumps(value)
