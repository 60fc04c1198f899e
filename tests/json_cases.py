"""Helpers of the table-driven tests of JSON Schema: (schema, texts that are words, texts that are not)."""

from __future__ import annotations

from typing import Any

import pytest

from json_oracle import verdict
from oracle.recognise import accepts
from structgen.grammar.json_schema import PropertyOrder, Style, lower_schema

Case = tuple[str, Any, list[str], list[str]]


def table(*cases: Case) -> pytest.MarkDecorator:
    """Return the mark that runs a test once per case, named by the first column."""
    return pytest.mark.parametrize(
        ("schema", "words", "others"), [case[1:] for case in cases], ids=[case[0] for case in cases]
    )


def check(
    schema: Any,
    words: list[str],
    others: list[str],
    *,
    whitespace: Style = "spaced",
    property_order: PropertyOrder = "declared",
) -> None:
    """Hold the grammar of a schema to both lists, and both lists to jsonschema.

    A text that begins with "~" is valid but spelled or ordered as the grammar does not write it; it is no word.
    """
    grammar = lower_schema(schema, whitespace=whitespace, property_order=property_order)
    for text in words:
        assert verdict(schema, text), f"the table is wrong: {text} is not valid"
        assert accepts(grammar, text.encode()), f"{text} must be a word"
    for text in others:
        is_valid_text = text.startswith("~")
        assert verdict(schema, text.removeprefix("~")) == is_valid_text, f"the table is wrong about {text}"
        assert not accepts(grammar, text.removeprefix("~").encode()), f"{text} must not be a word"
