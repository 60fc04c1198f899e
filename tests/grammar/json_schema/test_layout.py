"""Whitespace styles, and the size of literals."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from json_oracle import render
from oracle.recognise import accepts
from structgen.grammar import ir
from structgen.grammar.json_schema import Style, lower_schema
from structgen.grammar.json_schema.layout import PRETTY_DEPTH

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "integer"}],
            "items": False,
            "minItems": 2,
        },
        "sub": {"$ref": "#"},
    },
    "required": ["name"],
    "additionalProperties": {"type": "boolean"},
}
VALUES: list[Any] = [
    {"name": ""},
    {"name": "a", "tags": [], "at": [1, 2], "sub": {"name": "b", "tags": ["x", "y"]}, "z": True},
    {"name": "a", "sub": {"name": "b", "sub": {"name": "c", "z": False, "y": True}}},
]


@pytest.mark.parametrize("style", ["compact", "spaced", "pretty"])
@pytest.mark.parametrize("value", VALUES)
def test_a_fixed_style_is_one_spelling(style: Style, value: Any) -> None:
    """Each fixed style accepts what json.dumps writes in it, and no other style."""
    grammar = lower_schema(SCHEMA, whitespace=style)
    for other in ("compact", "spaced", "pretty"):
        assert accepts(grammar, render(value, style=other).encode()) == (other == style)


@pytest.mark.parametrize("value", VALUES)
def test_any_whitespace(value: Any) -> None:
    """The style "any" accepts every style and up to 16 characters per gap, but none around the value."""
    grammar = lower_schema(SCHEMA, whitespace="any")
    for style in ("compact", "spaced", "pretty"):
        assert accepts(grammar, render(value, style=style).encode())
    wide = json.dumps(value, separators=(" \t\r\n,\n", "\n : "))
    assert accepts(grammar, wide.encode())
    assert not accepts(grammar, b" " + wide.encode())
    assert not accepts(grammar, wide.encode() + b"\n")
    assert accepts(grammar, b'{"name":' + b" " * 16 + b'""}')
    assert not accepts(grammar, b'{"name":' + b" " * 17 + b'""}')


def test_pretty_goes_flat_below_a_depth() -> None:
    """A recursive schema in pretty style writes values below PRETTY_DEPTH in one line, so it stays finite."""
    deep: Any = []
    for _ in range(PRETTY_DEPTH + 2):
        deep = [deep]
    grammar = lower_schema(
        {"$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}}, "$ref": "#/$defs/L"}, whitespace="pretty"
    )
    text = "[[[]]]"
    for depth in reversed(range(PRETTY_DEPTH)):
        text = "[\n" + "  " * (depth + 1) + text + "\n" + "  " * depth + "]"
    assert json.loads(text) == deep
    assert accepts(grammar, text.encode())


def test_punctuation_merges_with_keys() -> None:
    """What is certain between two values is one literal."""
    schema = {
        "type": "object",
        "properties": {"kind": {"const": "x"}, "n": {"type": "integer"}, "m": {"type": "integer"}},
    }
    grammar = lower_schema({**schema, "required": ["kind", "n", "m"], "additionalProperties": False})
    literals = [expr.text for body in grammar.rules.values() for expr in ir.walk(body) if isinstance(expr, ir.Literal)]
    assert literals == [b'{"kind": "x", "n": ', b', "m": ', b"}"]


def test_every_style_is_tested() -> None:
    """The styles of this file are all there are."""
    assert set(get_args(Style)) == {"compact", "spaced", "pretty", "any"}
