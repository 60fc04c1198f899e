"""Every refusal of the JSON Schema front end, as data: what is written, and what the error says. One row or more each.

`tests/grammar/json_schema/test_refusals.py` holds the front end to it, both ways: a refusal without a row is red.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from structgen.errors import (
    GrammarSyntaxError,
    LimitError,
    OptionError,
    StructgenError,
    UnsatisfiableError,
    UnsupportedSchemaError,
)
from structgen.grammar.json_schema import lower_schema

_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_STRINGS = {"type": "string"}
_CONTRADICTION = "contradict each other"


class Refusal(NamedTuple):
    """One row.

    Attributes:
        schema: what is lowered.
        pointer: that the error carries; of a GrammarSyntaxError or LimitError, "".
        keyword: that it carries; of a LimitError, the limit; else "".
        words: a part of its message.
        error: its class.
        any_order: whether the keys of objects come in any order.
        with_limit: a constant to lower for this row, as module.NAME, where the real one takes seconds to reach.
    """

    schema: Any
    pointer: str
    keyword: str
    words: str
    error: type[StructgenError] = UnsupportedSchemaError
    any_order: bool = False
    with_limit: tuple[str, int] | None = None


def _of_wrong_kind() -> Iterator[Refusal]:
    """Yield a row for each keyword whose value is of the wrong kind."""
    kinds: dict[str, tuple[Any, tuple[str, ...]]] = {
        "must be a non-negative integer": (
            -1,
            (
                *("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"),
                *("minProperties", "maxProperties"),
            ),
        ),
        "must be a finite number": (
            "1",
            ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        ),
        "must be a string": (5, ("pattern", "format", "$ref", "$dynamicRef", "$recursiveRef")),
        "must be an object": (
            [],
            ("properties", "patternProperties", "dependentRequired", "dependentSchemas", "dependencies"),
        ),
        "must be an array": ({}, ("enum", "allOf", "anyOf", "oneOf", "prefixItems", "required")),
        "must hold a schema": (
            5,
            (
                *("not", "items", "contains", "additionalProperties", "propertyNames"),
                *("unevaluatedItems", "unevaluatedProperties"),
            ),
        ),
        "must be true or false": ("yes", ("uniqueItems",)),
        "must name JSON types": ("text", ("type",)),
        "names a dialect": (7, ("$schema",)),
    }
    for words, (value, keywords) in kinds.items():
        for keyword in keywords:
            dialect = {"$schema": "https://json-schema.org/draft/2019-09/schema"} if keyword == "$recursiveRef" else {}
            yield Refusal({**dialect, keyword: value}, "#", keyword, words)


def _nested(depth: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        schema = {"allOf": [schema]}
    return schema


_COUNTED = {"properties": {f"k{i}": {} for i in range(70)}, "additionalProperties": False}
_TWO_DYNAMIC = {
    "$ref": "#/$defs/list",
    "$defs": {
        "list": {"$id": "list", "items": {"$dynamicRef": "#item"}, "$defs": {"d": {"$dynamicAnchor": "item"}}},
        "other": {"$id": "other", "$dynamicAnchor": "item"},
    },
}

MALFORMED: tuple[Refusal, ...] = (
    *_of_wrong_kind(),
    # --- what is no schema ---
    Refusal(5, "", "", "a schema is a dict, a boolean or JSON text, not int", OptionError),
    Refusal("[1]", "#", "schema", "must be an object or a boolean, not list"),
    Refusal("{", "", "", "the schema is not JSON", GrammarSyntaxError),
    Refusal('{"a": 1, "a": 2}', "", "", "has the key 'a' twice", GrammarSyntaxError),
    Refusal({"const": {1, 2}}, "", "", "holds what JSON cannot say", GrammarSyntaxError),
    Refusal('{"maximum": 1' + "0" * 1000 + "}", "", "digits", "an integer of over 1000 digits", LimitError),
    Refusal({"const": "\ud800"}, "#", "const", "lone surrogate"),
    Refusal({"enum": ["\ud800"]}, "#", "enum", "lone surrogate"),
    Refusal({"properties": {"a": {"title": "\ud800"}}}, "#/properties/a", "title", "lone surrogate"),
    Refusal({"properties": {"\ud800": {}}}, "#", "properties", "lone surrogate"),
    Refusal("[" * 100_000, "", "depth", "nested too deeply", LimitError),
    Refusal(_nested(3000), "", "depth", "nested too deeply", LimitError),
    Refusal(_nested(300), "", "depth", "nested too deeply", LimitError),
    Refusal({"$schema": "http://json-schema.org/draft-03/schema#"}, "#", "$schema", "draft 4 to 2020-12 are"),
    Refusal({"$schema": "https://example.com/my-dialect"}, "#", "$schema", "not read here"),
    Refusal(
        {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "a", "$schema": "https://example.com/mine"}}},
        "#/$defs/a",
        "$schema",
        "not read here",
    ),
    # --- values of keywords ---
    Refusal({"type": ["string", 5]}, "#", "type", "must name JSON types, not 5"),
    Refusal({"multipleOf": 0}, "#", "multipleOf", "must be greater than 0"),
    Refusal({"minLength": 1e999}, "#", "minLength", "must be a non-negative integer"),
    Refusal({"const": 1e999}, "#", "const", "too large for JSON readers"),
    Refusal({"const": [1e999]}, "#/const/0", "const", "too large for JSON readers"),
    Refusal({"required": [1]}, "#", "required", "must be an array of strings"),
    Refusal({"dependentRequired": {"a": "b"}}, "#", "dependentRequired", "must map names to arrays of names"),
    Refusal({"dependencies": {"a": 5}}, "#", "dependencies", "must map names to arrays of names"),
    Refusal({"properties": {"a": 1}}, "#/properties", "a", "must hold a schema"),
    Refusal({"if": {}, "then": 5}, "#", "then", "must hold a schema"),
    Refusal({"if": 5, "else": {}}, "#", "if", "must hold a schema"),
    Refusal({"if": False, "else": 5}, "#", "else", "must hold a schema"),
    Refusal({"items": [{}], "additionalItems": 5}, "#", "additionalItems", "must hold a schema"),
    Refusal({"items": [{}], "prefixItems": [{}]}, "#", "items", "is the array form of old drafts"),
    Refusal({"pattern": r"(a)\1"}, "#", "pattern", "back-reference"),
    Refusal({"pattern": "("}, "#", "pattern", "cannot be read as a regular pattern"),
    Refusal({"patternProperties": {"[": {}}}, "#", "patternProperties", "cannot be read as a regular pattern"),
    Refusal({"x-structgen-digits": [1]}, "#", "x-structgen-digits", "must be three integers from 0 to 40"),
)
"""What is no schema, or says nothing that can be read."""

INEXACT: tuple[Refusal, ...] = (
    Refusal({"$ref": "#/nowhere"}, "#", "$ref", "points to nothing in this document"),
    Refusal({"items": {"$ref": "https://x.example/other"}}, "#/items", "$ref", "put the target into $defs"),
    Refusal({"items": {"$ref": _DRAFT_7}}, "#/items", "$ref", "out of the document"),
    Refusal({"$ref": "#name"}, "#", "$ref", "an anchor that is not there"),
    Refusal({"$ref": "#a", "$defs": {"x": {"$anchor": "a"}, "y": {"$anchor": "a"}}}, "#", "$ref", "two anchors"),
    Refusal({"$ref": "a", "$defs": {"x": {"$id": "a"}, "y": {"$id": "a"}}}, "#", "$ref", "names two schemas"),
    Refusal(
        {"$ref": "#/mine", "mine": {"$id": "a", "not": {"$ref": "#/x"}, "x": {}}},
        "#/mine",
        "$id",
        "stands where the standard knows no subschema",
    ),
    Refusal({"$ref": "#/$defs/a", "$defs": {"a": 5}}, "#/$defs", "a", "must hold a schema"),
    Refusal({"$ref": "#"}, "#", "$ref", "leads back to itself"),
    Refusal({"unevaluatedItems": False, "allOf": [{"$ref": "#"}]}, "#", "$ref", "leads back to itself"),
    Refusal(_TWO_DYNAMIC, "#/$defs/list/items", "$dynamicRef", "depends on the path of evaluation"),
    Refusal({"uniqueItems": True}, "#", "uniqueItems", "items out of a few listed scalars"),
    Refusal({"uniqueItems": True, "items": _STRINGS}, "#", "uniqueItems", "items out of a few listed scalars"),
    Refusal({"uniqueItems": True, "items": {"enum": [*range(20)]}}, "#", "uniqueItems", "a few listed scalars"),
    Refusal({"not": {"uniqueItems": True}}, "#/not", "uniqueItems", "cannot be negated"),
    Refusal({"not": {"format": "regex"}}, "#/not", "format", "cannot be negated"),
    Refusal({"not": {"x-structgen-digits": [1, 2, 3]}}, "#/not", "digits", "cannot be negated"),
    Refusal(
        {"anyOf": [{"oneOf": [{"format": "regex"}, {"minLength": 1}]}]},
        "#/anyOf/0/oneOf/0",
        "format",
        "cannot be negated",
    ),
    Refusal({"minProperties": 3}, "#", "minProperties", "several undeclared keys, which could be equal"),
    Refusal(
        {"properties": {"a": {}}, "minProperties": 3},
        "#",
        "minProperties",
        "several undeclared keys, which could be equal",
        any_order=True,
    ),
    Refusal(
        {"allOf": [{"not": {"additionalProperties": {"type": name}}} for name in ("string", "null")]},
        "#",
        "additionalProperties",
        "several undeclared keys would need certain values",
    ),
    Refusal({"propertyNames": {"pattern": "^a", "maxLength": 10**6}}, "#", "propertyNames", "a length bound too large"),
)
"""What a schema may say, and is not kept here."""

LIMITED: tuple[Refusal, ...] = (
    Refusal({"contains": {"type": "null"}, "minContains": 300}, "", "minContains", "up to 256", LimitError),
    Refusal(
        {"contains": {"type": "null"}, "maxContains": 90, "maxItems": 90},
        "",
        "contains",
        "too large together",
        LimitError,
    ),
    Refusal(
        {"allOf": [{"anyOf": [{"required": [f"k{i}{j}"]} for j in range(6)]} for i in range(6)]},
        "",
        "shapes",
        "too many cases",
        LimitError,
    ),
    Refusal(
        {"oneOf": [{"properties": {f"a{i}": {"type": "integer"}, f"b{i}": _STRINGS}} for i in range(16)]},
        "",
        "shapes",
        "overlap in too many cases",
        LimitError,
    ),
    Refusal({**_COUNTED, "minProperties": 60}, "", "cases", "counted or decided on together", LimitError),
    Refusal(
        {
            "properties": {"a": {}},
            "allOf": [{"not": {"additionalProperties": {"multipleOf": n}}} for n in (2, 3, 5, 7, 11)],
        },
        "",
        "cases",
        "one property decides too many conditions",
        LimitError,
    ),
    Refusal(
        {"unevaluatedProperties": False, "anyOf": [{"properties": {f"k{i}": {}}} for i in range(10)]},
        "",
        "cases",
        "depends on too many combinations of branches",
        LimitError,
    ),
    Refusal(
        {"properties": {f"k{i}": {"type": "object"} for i in range(9)}},
        "",
        "rules",
        "needs too many rules",
        LimitError,
        with_limit=("emit.MAX_RULES", 9),
    ),
)
"""What would take too long, or too much memory."""

UNSATISFIABLE: tuple[Refusal, ...] = (
    Refusal(False, "#", "", "the schema false stands here", UnsatisfiableError),
    Refusal({"enum": []}, "#", "", "its enum lists no values", UnsatisfiableError),
    Refusal({"type": "integer", "minimum": 1, "maximum": 0}, "#", "", _CONTRADICTION, UnsatisfiableError),
)
"""What no value fits; `test_blame.py` and `test_contradictions_are_told` have the places."""

REFUSALS = (*MALFORMED, *INEXACT, *LIMITED, *UNSATISFIABLE)

_WIDEST = 110


def raised(row: Refusal) -> StructgenError:
    """Return the error that lowering a row raises.

    Raises:
        AssertionError: it raises none.
    """
    try:
        lower_schema(row.schema, property_order="any" if row.any_order else "declared")
    except StructgenError as error:
        return error
    raise AssertionError(f"not refused: {row}")


def refusal_rows() -> str:
    """Return the table of what a schema may say and is not kept, with the messages that are given now."""
    lines = ["| schema | is refused: |", "|---|---|"]
    for row in INEXACT:
        written = json.dumps(row.schema, ensure_ascii=False)
        if len(written) <= _WIDEST:
            order = ", in any order" if row.any_order else ""
            lines.append(f"| `{written}`{order} | {raised(row)} |")
    return "\n".join(lines)
