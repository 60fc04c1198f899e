"""What is refused, by keyword and JSON pointer; what is unsatisfiable; and the table of keywords."""

from __future__ import annotations

from typing import Any

import pytest

from oracle.recognise import accepts
from structgen.errors import GrammarSyntaxError, LimitError, UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.json_schema.keywords import KEYWORDS, keyword_table

NO_SAY = sorted(name for name, row in KEYWORDS.items() if row.status in ("annotation", "ignored"))


@pytest.mark.parametrize("keyword", NO_SAY)
def test_annotations_change_nothing(keyword: str) -> None:
    """A keyword that has no say in what is valid leaves the grammar as it is."""
    with_it = lower_schema({"type": "integer", keyword: {"type": "string"}})
    assert dict(with_it.rules) == dict(lower_schema({"type": "integer"}).rules)


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"type": "text"}, "#", "type"),
        ({"minLength": -1}, "#", "minLength"),
        ({"minLength": "1"}, "#", "minLength"),
        ({"minimum": "1"}, "#", "minimum"),
        ({"multipleOf": 0}, "#", "multipleOf"),
        ({"required": "a"}, "#", "required"),
        ({"required": [1]}, "#", "required"),
        ({"properties": []}, "#", "properties"),
        ({"properties": {"a": 1}}, "#/properties", "a"),
        ({"items": [{}], "prefixItems": [{}]}, "#", "items"),
        ({"uniqueItems": True}, "#", "uniqueItems"),
        ({"uniqueItems": "yes"}, "#", "uniqueItems"),
        ({"type": "string", "pattern": "(a)\\1"}, "#", "pattern"),
        ({"type": "string", "pattern": "("}, "#", "pattern"),
        ({"type": "string", "not": {"format": "regex"}}, "#/not", "format"),
        ({"anyOf": [{"oneOf": [{"format": "regex"}, {"minLength": 1}]}]}, "#/anyOf/0/oneOf/0", "format"),
        (
            {"allOf": [{"not": {"additionalProperties": {"type": name}}} for name in ("string", "null")]},
            "#",
            "additionalProperties",
        ),
        ({"not": {"uniqueItems": True}}, "#/not", "uniqueItems"),
        ({"type": "object", "minProperties": 3}, "#", "minProperties"),
        ({"dependentRequired": {"a": "b"}}, "#", "dependentRequired"),
        ({"enum": ["\ud800"]}, "#", "enum"),
        ({"const": 1e999}, "#", "const"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "#", "$schema"),
        ({"$schema": "https://example.com/my-dialect"}, "#", "$schema"),
        ({"$schema": 7}, "#", "$schema"),
    ],
)
def test_what_cannot_be_exact_is_refused(schema: Any, pointer: str, keyword: str) -> None:
    """A malformed or unsupported keyword is an error that names it and where it stands."""
    with pytest.raises(UnsupportedSchemaError) as caught:
        lower_schema(schema)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, "#"),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "#"),
        (
            {
                "type": "object",
                "required": ["a"],
                "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 1}},
            },
            "#/properties/a",
        ),
        ({"type": "string", "pattern": "^a{5}$", "maxLength": 4}, "#"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "#"),
        ({"type": "string", "enum": [1, 2]}, "#"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "#"),
        (
            {
                "$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}, "required": ["t"]}},
                "$ref": "#/$defs/T",
            },
            "#/$defs/T/properties/t",
        ),
        ({"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6}, "#"),
        ({"enum": []}, "#"),
        ({"type": "array", "items": {"type": "string"}, "contains": {"type": "null"}}, "#/contains"),
        ({"type": "array", "maxItems": 1, "contains": {"type": "null"}, "minContains": 2}, "#"),
        ({"type": "object", "unevaluatedProperties": False, "required": ["a"]}, "#"),
        (
            {"type": "object", "required": ["é"], "properties": {"é": {"type": "string"}}}
            | {"patternProperties": {"\\w": {"type": "integer"}}},
            "#/patternProperties/%5Cw",
        ),
    ],
)
def test_contradictions_are_told(schema: Any, pointer: str) -> None:
    """A schema that nothing satisfies is one clear error, with the pointer of the part that contradicts itself."""
    with pytest.raises(UnsatisfiableError) as caught:
        lower_schema(schema)
    assert caught.value.pointer == pointer


def test_an_impossible_optional_part_is_left_out() -> None:
    """An optional property or branch that nothing satisfies is dropped, the rest stays."""
    never = {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    grammar = lower_schema(
        {"anyOf": [never, {"type": "object", "properties": {"a": never}, "additionalProperties": False}]}
    )
    assert len(grammar.rules) < 3


def test_a_name_in_doubt_is_never_written() -> None:
    """Where two readings of a keyword differ on a name, neither the schema nor its complement holds the name."""
    word = {"patternProperties": {"^\\w$": {"type": "integer"}}, "additionalProperties": False, "type": "object"}
    for schema, certain in ((word, '{"a": 1}'), ({"not": word, "type": "object"}, '{"a": ""}')):
        grammar = lower_schema(schema)
        assert accepts(grammar, certain.encode())
        assert not accepts(grammar, '{"é": 1}'.encode())
        assert not accepts(grammar, '{"é": ""}'.encode())


def test_endless_nesting_is_a_limit() -> None:
    """A schema that is nested beyond the recursion limit says so."""
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(3000):
        schema = {"allOf": [schema]}
    with pytest.raises(LimitError) as caught:
        lower_schema(schema)
    assert caught.value.limit == "depth"


@pytest.mark.parametrize("text", ["{", '{"a": NaN', "[1]", "1"])
def test_a_schema_must_be_readable(text: str) -> None:
    """A text that is no JSON, or no schema, is an error of ours."""
    with pytest.raises((GrammarSyntaxError, UnsupportedSchemaError)):
        lower_schema(text)


def test_too_many_cases_are_a_limit() -> None:
    """A schema that multiplies out into too many cases says so instead of running on."""
    branches = [{"anyOf": [{"required": [f"k{i}{j}"]} for j in range(6)]} for i in range(6)]
    with pytest.raises(LimitError) as caught:
        lower_schema({"type": "object", "allOf": branches})
    assert caught.value.limit == "shapes"


def test_every_keyword_has_a_row() -> None:
    """The table for the documentation lists each keyword once."""
    lines = keyword_table().splitlines()
    assert len(lines) == len(KEYWORDS) + 2
    assert "| `minLength` | exact |" in keyword_table()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "x" * 10_000},
        {"type": ["x" * 10_000]},
        {"const": "\ud800" * 10_000},
        {"properties": {"a": {"enum": ["\ud800" * 10_000]}}},
    ],
    ids=["type", "types", "const", "enum"],
)
def test_a_refused_value_of_any_length_fits_a_line(schema: Any) -> None:
    """The message shows the beginning of a long value."""
    with pytest.raises(UnsupportedSchemaError) as caught:
        lower_schema(schema)
    assert len(str(caught.value)) < 600
