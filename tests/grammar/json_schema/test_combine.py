"""anyOf, oneOf, allOf, not, if/then/else beside other keywords, and $ref in all its forms."""

from __future__ import annotations

from typing import Any

import pytest

from json_cases import check, table
from structgen.errors import UnsupportedSchemaError
from structgen.grammar.json_schema import lower_schema

INTEGER = {"type": "integer"}
STRING = {"type": "string"}
CLOSED = {"type": "object", "additionalProperties": False}


def _tagged(tag: str, field: str) -> dict[str, Any]:
    properties = {"type": {"const": tag}, field: INTEGER}
    return {**CLOSED, "properties": properties, "required": ["type", field]}


SHAPES = {"circle": _tagged("circle", "r"), "square": _tagged("square", "side")}


@table(
    ("alternation", {"anyOf": [{"type": "null"}, STRING]}, ["null", '"x"'], ['null"x"', "1"]),
    (
        "beside anyOf",
        {
            **CLOSED,
            "properties": {"tel": STRING, "mail": STRING},
            "anyOf": [{"required": ["tel"]}, {"required": ["mail"]}],
        },
        ['{"tel": ""}', '{"mail": ""}', '{"tel": "", "mail": ""}'],
        ["{}", '{"tel": "", "z": 0}', "7", "[]"],
    ),
    (
        "integer or number",
        {"type": "array", "items": {"anyOf": [INTEGER, {"type": "number"}]}},
        ["[2.0]", "[2]", "[0.5, 7]"],
        ['["2"]'],
    ),
    (
        "allOf",
        {
            "allOf": [
                {"properties": {"p": INTEGER}, "required": ["p"]},
                {"properties": {"q": INTEGER}, "required": ["q"]},
            ],
            "type": "object",
        },
        ['{"p": 1, "q": 2}', '{"p": 1, "q": 2, "z": 0}'],
        ['{"p": 1}', '{"q": 1}', '{"p": "", "q": 2}'],
    ),
    (
        "allOf on one key",
        {"type": "object", "allOf": [{"properties": {"p": {"minimum": 3}}}, {"properties": {"p": {"maximum": 5}}}]},
        ['{"p": 4}', "{}"],
        ['{"p": 2}', '{"p": 6}'],
    ),
    (
        "allOf and closed",
        {"allOf": [{**CLOSED, "properties": {"p": INTEGER, "q": INTEGER}}, {"required": ["q"]}]},
        ['{"q": 1}', '{"p": 1, "q": 1}'],
        ['{"p": 1}', '{"q": 1, "z": 1}'],
    ),
    ("exclusive or", {"oneOf": [INTEGER, {"type": "number", "minimum": 20}]}, ["3", "20.5"], ["25", "3.5"]),
    ("oneOf of types", {"oneOf": [STRING, {"type": "null"}]}, ['""', "null"], ["1"]),
    (
        "oneOf of required",
        {"type": "object", "oneOf": [{"required": ["p"]}, {"required": ["q"]}]},
        ['{"p": 1}', '{"q": 1}', '{"p": 1, "z": 0}'],
        ["{}", '{"p": 1, "q": 1}'],
    ),
    (
        "tagged union",
        {"oneOf": list(SHAPES.values())},
        ['{"type": "circle", "r": 1}', '{"type": "square", "side": 1}'],
        ['{"type": "circle", "side": 1}', "{}", '{"type": "circle"}'],
    ),
    (
        "tagged union by reference",
        {"$defs": SHAPES, "oneOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/square"}]},
        ['{"type": "circle", "r": 1}'],
        ['{"type": "square", "r": 1}', "{}"],
    ),
    (
        "tagged union, OpenAPI",
        {
            "$defs": SHAPES,
            "oneOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/square"}],
            "discriminator": {"propertyName": "type"},
        },
        ['{"type": "square", "side": 1}'],
        ['{"type": "circle", "side": 1}'],
    ),
    ("not a type", {"not": {"type": ["string", "object"]}}, ["1", "[]", "null", "true"], ['""', "{}"]),
    ("not required", {"type": "object", "not": {"required": ["p"]}}, ["{}", '{"q": 1}'], ['{"p": 1}']),
    (
        "not a constant object",
        {"type": "object", "not": {"const": {"p": 1}}, "properties": {"p": INTEGER}},
        ["{}", '{"p": 2}', '{"p": 1, "q": 0}'],
        ['{"p": 1}'],
    ),
    ("not not", {"not": {"not": INTEGER}}, ["1"], ["1.5", '""']),
    ("not anything", {"anyOf": [INTEGER, {"not": True}]}, ["1"], ['""']),
    (
        "if then",
        {
            **CLOSED,
            "properties": {"m": {"enum": ["card", "cash"]}, "nr": INTEGER},
            "required": ["m"],
            "if": {"properties": {"m": {"const": "card"}}},
            "then": {"required": ["nr"]},
        },
        ['{"m": "cash"}', '{"m": "card", "nr": 1}', '{"m": "cash", "nr": 1}'],
        ['{"m": "card"}', "{}"],
    ),
    (
        "if then else",
        {"if": INTEGER, "then": {"minimum": 5}, "else": {"maxLength": 1}},
        ["5", '"a"', "null", "0.5"],
        ["4", '"ab"'],
    ),
    ("else alone", {"if": INTEGER, "else": STRING}, ["1", '""'], ["1.5", "null"]),
    ("then without if", {"then": False, "type": "null"}, ["null"], ["1"]),
)
def test_combinations(schema: Any, words: list[str], others: list[str]) -> None:
    """Combinations are set operations, and siblings always hold as well."""
    check(schema, words, others)


TREE = {
    **CLOSED,
    "properties": {"n": INTEGER, "sub": {"type": "array", "items": {"$ref": "#/$defs/T"}}},
    "required": ["n"],
}


@table(
    (
        "sibling",
        {"$defs": {"s": {"type": "string", "maxLength": 4}}, "$ref": "#/$defs/s", "minLength": 3},
        ['"abc"', '"abcd"'],
        ['"ab"', '"abcde"', "1"],
    ),
    (
        "property",
        {**CLOSED, "properties": {"x": INTEGER, "y": {"$ref": "#/properties/x"}}},
        ['{"x": 1, "y": 2}'],
        ['{"x": 1, "y": ""}'],
    ),
    ("into an array", {"anyOf": [STRING, INTEGER], "not": {"$ref": "#/anyOf/0"}}, ["1"], ['""', "null"]),
    ("escaped", {"$defs": {"a/b~c%": INTEGER}, "$ref": "#/$defs/a~1b~0c%25"}, ["1"], ['""']),
    ("chain", {"$defs": {"p": {"$ref": "#/$defs/q"}, "q": INTEGER}, "$ref": "#/$defs/p"}, ["1"], ['""']),
    (
        "recursion",
        {"$defs": {"T": TREE}, "$ref": "#/$defs/T"},
        ['{"n": 1}', '{"n": 1, "sub": [{"n": 2, "sub": [{"n": 3, "sub": [{"n": 4, "sub": [{"n": 5, "sub": []}]}]}]}]}'],
        ['{"n": 1, "sub": [{"sub": []}]}'],
    ),
    (
        "root",
        {**CLOSED, "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
        ['{"next": {"next": null}}', "{}"],
        ['{"next": 1}'],
    ),
    (
        "mutual",
        {
            "$defs": {
                "p": {"type": "array", "items": {"$ref": "#/$defs/q"}},
                "q": {**CLOSED, "properties": {"p": {"$ref": "#/$defs/p"}}},
            },
            "$ref": "#/$defs/p",
        },
        ['[{"p": [{}]}, {}]', "[]"],
        ["[[]]", '{"p": []}'],
    ),
    (
        "recursion meets a constraint",
        {"$defs": {"T": TREE}, "$ref": "#/$defs/T", "required": ["sub"]},
        ['{"n": 1, "sub": [{"n": 2}]}'],
        ['{"n": 1}'],
    ),
    (
        "recursion in oneOf",
        {"$defs": {"E": {"oneOf": [INTEGER, {"type": "array", "items": {"$ref": "#/$defs/E"}}]}}, "$ref": "#/$defs/E"},
        ["1", "[1, [2, []]]"],
        ['""', "[null]"],
    ),
    (
        "own identifier",
        {"$id": "https://x.example/s", "$defs": {"i": INTEGER}, "$ref": "https://x.example/s#/$defs/i"},
        ["1"],
        ['""'],
    ),
)
def test_references(schema: Any, words: list[str], others: list[str]) -> None:
    """References are resolved by JSON pointer, hold beside siblings, and recurse."""
    check(schema, words, others)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"$ref": "#"}, "#"),
        ({"$defs": {"p": {"$ref": "#/$defs/q"}, "q": {"$ref": "#/$defs/p"}}, "$ref": "#/$defs/p"}, "#/$defs/p"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "#"),
        ({"not": {"$ref": "#"}}, "#"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "#/properties/a"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "#/properties/a"),
    ],
)
def test_references_that_mean_nothing(schema: Any, pointer: str) -> None:
    """A reference that leads nowhere, outside, or to itself is refused with the pointer."""
    with pytest.raises(UnsupportedSchemaError) as caught:
        lower_schema(schema)
    assert caught.value.keyword == "$ref"
    assert caught.value.pointer == pointer
