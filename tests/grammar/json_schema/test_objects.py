"""properties, required, additionalProperties, patternProperties, propertyNames, counts, dependencies, order."""

from __future__ import annotations

from typing import Any

import pytest

from json_cases import check, table
from oracle.recognise import accepts
from structgen.errors import UnsupportedSchemaError
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.json_schema.findings import explain_schema

INTEGER = {"type": "integer"}
AB = {"a": INTEGER, "b": {"type": "string"}}


@table(
    (
        "optional",
        {"type": "object", "properties": AB, "additionalProperties": False},
        ["{}", '{"a": 1}', '{"b": ""}', '{"a": 1, "b": ""}'],
        ['{"a": ""}', '{"c": 1}', '~{"b": "", "a": 1}', '{"a": 1, }', "[]"],
    ),
    (
        "required",
        {"type": "object", "properties": AB, "required": ["b"], "additionalProperties": False},
        ['{"b": ""}', '{"a": 1, "b": ""}'],
        ['{"a": 1}', "{}"],
    ),
    (
        "first required",
        {"type": "object", "properties": AB, "required": ["a"], "additionalProperties": False},
        ['{"a": 1}', '{"a": 1, "b": ""}'],
        ['{"b": ""}', "{}"],
    ),
    (
        "extra key begins like a declared one",
        {"type": "object", "properties": {"num": INTEGER}},
        ['{"nums": "x"}', '{"num": 3, "nums": null}', '{"nu": 0}', "{}"],
        ['{"num": "x"}', '{"\\u006eum": "x"}', '~{"x": 1, "num": 1}'],
    ),
    (
        "extra values",
        {"type": "object", "properties": AB, "additionalProperties": INTEGER},
        ['{"z": 1}', '{"a": 1, "y": 2, "z": 3}'],
        ['{"z": ""}', '{"a": 1, "z": null}'],
    ),
    (
        "required without a schema",
        {"type": "object", "required": ["id"]},
        ['{"id": null}', '{"id": 1, "b": 2}'],
        ["{}", '{"b": 1}'],
    ),
    (
        "required extra has the extra's schema",
        {"type": "object", "required": ["id"], "additionalProperties": INTEGER},
        ['{"id": 1, "b": 2}'],
        ['{"id": ""}', "{}"],
    ),
    (
        "forbidden key",
        {"type": "object", "properties": {"a": True, "b": False}},
        ['{"a": [{}]}', '{"c": 1}', "{}"],
        ['{"b": 1}', '{"a": 1, "b": 1}'],
    ),
    ("any object", {"type": "object"}, ["{}", '{"": 1}', '{"a": {"b": {}}}'], ["[]", "{a: 1}", '{"a"}']),
    (
        "key spelling",
        {"type": "object", "properties": {'q"\\é': INTEGER}, "additionalProperties": False},
        ['{"q\\"\\\\é": 1}'],
        ['~{"q\\"\\\\\\u00e9": 1}'],
    ),
    (
        "pattern keys, closed",
        {"type": "object", "patternProperties": {"^x_": INTEGER}, "additionalProperties": False},
        ["{}", '{"x_a": 1}', '{"x_a": 1, "x_b": 2}'],
        ['{"x_a": ""}', '{"y": 1}'],
    ),
    (
        "pattern keys, open",
        {"type": "object", "patternProperties": {"^x_": INTEGER}},
        ['{"y": ""}', '{"x_": 1, "y": ""}'],
        ['{"x_": ""}', '{"\\u0078_": ""}'],
    ),
    (
        "patterns meet",
        {"type": "object", "patternProperties": {"^x": {"minimum": 2}, "y$": {"maximum": 5}}},
        ['{"xy": 3}', '{"x": 9}', '{"y": 0}'],
        ['{"xy": 9}', '{"xy": 0}', '{"x": 0}'],
    ),
    (
        "pattern and property",
        {"type": "object", "properties": {"xa": {"minimum": 2}}, "patternProperties": {"^x": INTEGER}},
        ['{"xa": 2}'],
        ['{"xa": 1}', '{"xa": 2.5}'],
    ),
    (
        "key names",
        {"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}},
        ['{"ab": 1}', "{}"],
        ['{"d": 1}', '{"": 1}'],
    ),
    (
        "key names listed",
        {"type": "object", "propertyNames": {"enum": ["u", "v"]}, "additionalProperties": INTEGER},
        ['{"u": 1, "v": 2}', '{"v": 2}'],
        ['{"w": 1}', '{"u": ""}'],
    ),
    ("no key names", {"type": "object", "propertyNames": False}, ["{}"], ['{"a": 1}']),
    (
        "one key",
        {"type": "object", "additionalProperties": INTEGER, "minProperties": 1, "maxProperties": 1},
        ['{"z": 1}'],
        ["{}", '{"a": 1, "b": 2}'],
    ),
    ("some keys", {"type": "object", "minProperties": 1}, ['{"z": 1}', '{"z": 1, "y": 2}'], ["{}"]),
    (
        "few keys",
        {"type": "object", "properties": AB, "maxProperties": 2},
        ["{}", '{"a": 1, "z": 2}', '{"y": 1, "z": 2}'],
        ['{"a": 1, "b": "", "z": 2}'],
    ),
    (
        "counted declared keys",
        {
            "type": "object",
            "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER},
            "additionalProperties": False,
            "minProperties": 2,
            "maxProperties": 2,
        },
        ['{"a": 1, "b": 2}', '{"a": 1, "c": 2}', '{"b": 1, "c": 2}'],
        ["{}", '{"a": 1}', '{"a": 1, "b": 2, "c": 3}'],
    ),
    (
        "least beside required",
        {"type": "object", "required": ["a"], "minProperties": 2},
        ['{"a": 1, "b": 2}'],
        ['{"a": 1}'],
    ),
    (
        "dependent",
        {
            "type": "object",
            "properties": {"card": INTEGER, "zip": INTEGER},
            "additionalProperties": False,
            "dependentRequired": {"card": ["zip"]},
        },
        ["{}", '{"zip": 1}', '{"card": 1, "zip": 2}'],
        ['{"card": 1}'],
    ),
    (
        "dependent schema",
        {
            "type": "object",
            "properties": AB,
            "additionalProperties": False,
            "dependentSchemas": {"a": {"required": ["b"]}},
        },
        ["{}", '{"b": ""}', '{"a": 1, "b": ""}'],
        ['{"a": 1}'],
    ),
    (
        "nested",
        {
            "type": "object",
            "properties": {"p": {"type": "object", "properties": {"q": INTEGER}, "required": ["q"]}},
            "required": ["p"],
        },
        ['{"p": {"q": 1}}', '{"p": {"q": 1, "r": 2}, "s": 3}'],
        ['{"p": {}}', "{}"],
    ),
)
def test_objects(schema: Any, words: list[str], others: list[str]) -> None:
    """Keys compare decoded, come in declared order, and others follow them."""
    check(schema, words, others)


@table(
    (
        "both optional",
        {"type": "object", "properties": {"end": INTEGER, "start": INTEGER}, "additionalProperties": False},
        ['{"end": 9, "start": 1}', '{"start": 1, "end": 9}', "{}"],
        ['{"end": ""}', '{"z": 1}'],
    ),
    (
        "others anywhere",
        {"type": "object", "properties": AB, "required": ["a"]},
        ['{"z": 1, "a": 2}', '{"b": "", "z": 1, "a": 2}'],
        ['{"b": ""}', '{"z": 1}'],
    ),
    (
        "one more than is required",
        {"type": "object", "properties": AB, "required": ["a"], "minProperties": 2},
        ['{"z": 1, "a": 2}', '{"b": "", "a": 2}', '{"a": 2, "z": 1, "b": ""}'],
        ['{"a": 1}', '{"z": 1, "b": ""}'],
    ),
    (
        "one declared key",
        {"type": "object", "properties": {"a": INTEGER}},
        ['{"z": 1, "a": 2, "y": 3}'],
        ['{"z": 1, "a": ""}'],
    ),
    (
        "at most so many",
        {"type": "object", "properties": AB, "required": ["a"], "maxProperties": 2},
        ['{"z": 1, "a": 2}', '{"b": "", "a": 2}', '{"a": 2, "z": 1}', '{"a": 2}'],
        ["{}", '{"z": 1, "y": 2, "a": 3}', '{"z": 1, "y": 2}', '{"b": "", "a": 2, "z": 1}'],
    ),
    (
        "one more than is required, at most so many",
        {"type": "object", "properties": AB, "required": ["a"], "minProperties": 2, "maxProperties": 2},
        ['{"z": 1, "a": 2}', '{"b": "", "a": 2}'],
        ['{"a": 2}', '{"z": 1, "y": 2, "a": 3}'],
    ),
    (
        "a value under some undeclared key, last of its kind",
        {"type": "object", "properties": {"a": INTEGER, "b": {}}, "not": {"additionalProperties": INTEGER}},
        ['{"z": "", "b": 1, "a": 2}', '{"b": 1, "y": 1, "z": ""}', '{"a": 1, "b": ""}'],
        ['{"a": 1, "z": 1}', "{}", '~{"z": "", "y": 1}'],
    ),
)
def test_any_order(schema: Any, words: list[str], others: list[str]) -> None:
    """With property_order="any" the order is free and nothing else changes."""
    check(schema, words, others, property_order="any")


@table(
    (
        "required alone",
        {"type": "object", "required": ["a", "b"]},
        ['{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"z": 0, "b": 2, "y": 0, "a": 1, "x": 0}'],
        ['{"a": 1}', '{"z": 1, "b": 2}', "{}"],
    ),
    (
        "after declared ones",
        {"type": "object", "properties": {"c": INTEGER, "d": INTEGER}, "required": ["d", "b", "a"]},
        ['{"c": 1, "d": 2, "z": 3, "a": 4, "b": 5}', '{"d": 2, "b": 5, "a": 4}'],
        ['{"d": 2, "b": 5}', '~{"b": 5, "d": 2, "a": 4}', '{"c": 1, "a": 4, "b": 5}'],
    ),
    (
        "optional ones",
        {"type": "object", "properties": {"c": INTEGER}, "propertyNames": {"enum": ["c", "b", "a"]}},
        ["{}", '{"c": 1}', '{"b": 1, "a": 2}', '{"c": 0, "b": 1, "a": 2}', '{"c": 0, "a": 1}'],
        ['{"d": 1}', '~{"b": 1, "c": 2}'],
    ),
    (
        "by a pattern",
        {
            "type": "object",
            "patternProperties": {"^(a|b)_(id|key)$": INTEGER},
            "required": ["b_key", "a_id"],
            "additionalProperties": False,
        },
        ['{"a_id": 1, "b_key": 2}', '{"b_key": 2, "b_id": 1, "a_key": 3, "a_id": 4}'],
        ['{"a_id": 1}', '{"a_id": 1, "b_key": ""}', '{"a_id": 1, "b_key": 2, "c_id": 3}'],
    ),
    (
        "that come together",
        {"type": "object", "dependentRequired": {"a": ["b", "c"]}},
        ['{"c": 1, "a": 2, "b": 3}', '{"z": 0, "b": 1, "y": 0, "c": 2}', "{}"],
        ['{"a": 1}', '{"c": 1, "a": 2}'],
    ),
)
def test_keys_without_a_declared_order(schema: Any, words: list[str], others: list[str]) -> None:
    """Keys that are only required, named or matched have no place of their own: any order, among other keys."""
    check(schema, words, others)


def test_keys_without_a_declared_order_are_written_once() -> None:
    """Each at most once, also where others stand between; many of them come in the order in which they are required."""
    grammar = lower_schema({"type": "object", "required": ["a", "b"]})
    for text in ('{"a": 1, "b": 2, "a": 3}', '{"b": 1, "z": 2, "b": 3, "a": 4}'):
        assert not accepts(grammar, text.encode())
    names = [f"k{i}" for i in range(12)]
    text = "{" + ", ".join(f'"{name}": 0' for name in names) + "}"
    backwards = "{" + ", ".join(f'"{name}": 0' for name in reversed(names)) + "}"
    check({"type": "object", "required": names}, [text], ["{}", f"~{backwards}"])


def test_any_order_of_many_keys() -> None:
    """Beyond eight, required keys are still written once; optional ones may be written again, each as declared."""
    properties = {f"k{i}": INTEGER for i in range(40)}
    schema = {"type": "object", "properties": properties, "required": ["k7", "k30"], "additionalProperties": False}
    check(
        schema,
        ['{"k30": 1, "k2": 2, "k7": 3}', '{"k7": 1, "k30": 2}', '{"k39": 1, "k39": 2, "k7": 1, "k30": 2}'],
        ['{"k7": 1}', '{"k30": 1, "k2": 2}', '{"k7": 1, "k30": 2, "k1": ""}', '{"k7": 1, "k30": 2, "z": 1}'],
        property_order="any",
    )
    grammar = lower_schema(schema, property_order="any")
    assert not accepts(grammar, b'{"k7": 1, "k30": 2, "k7": 3}')


@pytest.mark.parametrize("more", [{"required": [f"k{i}" for i in range(9)]}, {"maxProperties": 9, "required": ["k8"]}])
def test_what_is_too_much_for_any_order_keeps_the_declared_one(more: dict[str, Any]) -> None:
    """More than eight required keys, or many keys that are counted, are written as declared: the same values."""
    properties = {f"k{i}": INTEGER for i in range(40)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    text = '{"k0": 1, "k1": 2, "k2": 3, "k3": 4, "k4": 5, "k5": 6, "k6": 7, "k7": 8, "k8": 9}'
    backwards = "{" + ", ".join(reversed(text.strip("{}").split(", "))) + "}"
    check(schema, [text], ["{}", f"~{backwards}"], property_order="any")
    for order, status in (("any", "narrower"), ("declared", "exact")):
        told = explain_schema(schema, property_order=order)
        assert {row.status for row in told if row.keyword == "properties"} == {status}


@pytest.mark.parametrize("order", ["declared", "any"])
def test_a_declared_key_is_not_repeated(order: Any) -> None:
    """A declared key is written once."""
    grammar = lower_schema({"type": "object", "properties": AB}, property_order=order)
    assert not accepts(grammar, b'{"a": 1, "a": 2}')
    assert not accepts(grammar, b'{"a": 1, "\\u0061": 2}')


def test_repeated_keys_never_make_a_count() -> None:
    """A least count that equal open keys could fake is refused; what is written once counts."""
    with pytest.raises(UnsupportedSchemaError, match="minProperties"):
        lower_schema({"type": "object", "minProperties": 2})
    grammar = lower_schema({"type": "object", "maxProperties": 1})
    assert not accepts(grammar, b'{"a": 1, "a": 2}')


def test_thousands_of_keys_are_cheap() -> None:
    """The grammar grows with the number of keys, not faster."""
    schema = {"type": "object", "properties": {f"k{i}": {"type": "boolean"} for i in range(3000)}}
    grammar = lower_schema({**schema, "additionalProperties": False})
    assert accepts(grammar, b'{"k7": true, "k2999": false}')
    assert len(grammar.rules) < 3100
