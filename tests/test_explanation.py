"""What became of a declaration: every kind of output type, what the policy cuts, and how it reads."""

from __future__ import annotations

import datetime
import decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

import structgen as sg
from structgen.explanation import explain
from structgen.output_type import lower


class Order(BaseModel):
    name: str = Field(max_length=40)
    count: int
    price: decimal.Decimal = Field(max_digits=8, decimal_places=2)
    day: datetime.date


def get_weather(city: str) -> str:
    """Tell the weather."""
    return city


USABLE: list[tuple[Any, str]] = [
    (Order, "#/properties/name"),
    (Literal["a", "b"], "enum"),
    (str, "any text"),
    (sg.JsonSchema({"type": "integer"}), "at most 32 digits in a row"),
    (sg.Regex("[a-z]{2,500}"), "1 rule, 1 terminal"),
    (sg.Regex("[a-z]{2,500}"), "counted, not unrolled: 1 length"),
    (sg.Choice(["yes", "no"]), "2 answers"),
    (sg.ToolSet([get_weather]), "#/$defs/get_weather/properties/city"),
    (sg.Lark('start: "a" B+\nB: /b+/\nWS: /\\s+/\n%ignore WS'), "ignored between terminals: WS"),
    (sg.Lark("start: A | B\nA: /[a-z]+/\nB: /[a-f]+/", lexer="contextual"), "A and B both match 'a'"),
]


@pytest.mark.parametrize(("output_type", "part"), USABLE)
def test_a_usable_type_is_explained(output_type: Any, part: str) -> None:
    """`check` gives what `explain` gives; the text says what there is to know, and ends with the verdict."""
    explanation = explain(output_type)
    assert explanation.error is None
    assert part in str(explanation)
    assert str(explanation).splitlines()[-1] == f"{explanation.name}: {explanation.verdict}"
    assert sg.check(output_type) == explanation


@pytest.mark.parametrize(
    ("output_type", "error", "part"),
    [
        (complex, sg.UnsupportedTypeError, "complex"),
        (5, sg.UnsupportedTypeError, "5"),
        (sg.JsonSchema({"maxLength": -1, "pattern": "("}), sg.UnsupportedSchemaError, "2 keywords are refused"),
        (sg.JsonSchema({"type": "null", "const": 1}), sg.UnsatisfiableError, "contradicts 'const'"),
        (sg.Regex(r"(a)\1"), sg.GrammarSyntaxError, "back-reference"),
        (sg.Lark('start: "go " start'), sg.UnsatisfiableError, "cannot be used"),
        (sg.Lark("start: missing"), sg.GrammarSyntaxError, "missing"),
        (sg.JsonSchema({"contains": {"type": "null"}, "minContains": 300}), sg.LimitError, "up to 256"),
    ],
)
def test_what_cannot_be_used_is_told_and_not_raised(output_type: Any, error: type[Exception], part: str) -> None:
    """`explain` tells what `check` raises."""
    explanation = explain(output_type)
    assert type(explanation.error) is error
    assert not explanation.is_exact
    assert part in str(explanation)
    with pytest.raises(error):
        sg.check(output_type)


def test_it_has_fields_for_machines() -> None:
    """Findings, cuts and verdict are values; of a Decimal the digits are told by name, not by our keyword for them."""
    explanation = sg.check(Order)
    found = {(finding.pointer, finding.keyword): finding for finding in explanation.findings}
    assert found["#/properties/name", "maxLength"] == sg.Finding("#/properties/name", "maxLength", "exact")
    digits = [advice for (pointer, _), advice in found.items() if pointer == "#/properties/price"]
    assert any("8 in all" in finding.advice for finding in digits)
    assert not any(finding.keyword.startswith("x-") for finding in explanation.findings)
    assert ("#/properties/day", "format") in [
        (finding.pointer, finding.keyword) for finding in explanation.findings if finding.status == "narrower"
    ]
    assert not explanation.is_exact
    assert "1 keyword is narrower" in explanation.verdict
    assert sg.check(int).is_exact


@pytest.mark.parametrize(
    ("output_type", "name"),
    [
        (Order, "Order"),
        (list[int], "list[int]"),
        (sg.JsonSchema({}), "JSON"),
        (sg.Regex("a"), "the regular expression"),
        (sg.Choice(["a"]), "the choice"),
        (sg.Lark('start: "a"'), "the grammar"),
        (sg.ToolSet([get_weather]), "the tools"),
    ],
)
def test_one_name_serves_everywhere(output_type: Any, name: str) -> None:
    """An explanation and what generates (messages, metrics) call a type by the same name."""
    assert sg.check(output_type).name == name
    assert lower(output_type).name == name


def test_the_policy_is_told_as_it_was_given() -> None:
    """What the policy bounds is listed with its place and the bound; without a policy nothing is bounded."""
    schema = sg.JsonSchema({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}})
    explanation = sg.check(schema, policy=sg.Policy(max_digits=5))
    assert ("#/properties/a", "integer: at most 5 digits in a row") in explanation.bounds
    assert ("#", "key: at most 5 digits in a row") in explanation.bounds
    assert sg.check(schema, policy=None).bounds == ()
    spaces = sg.Lark('start: "a" "b"\n%ignore /\\s+/')
    assert "at most 3 characters of white space" in str(sg.check(spaces, policy=sg.Policy(max_whitespace=3)))


def test_options_are_checked() -> None:
    """An option of the call is an error of the call."""
    with pytest.raises(sg.OptionError, match="property_order"):
        sg.check(int, property_order="sorted")  # type: ignore[arg-type]
    with pytest.raises(sg.OptionError, match="policy"):
        sg.check(int, policy="none")  # type: ignore[arg-type]


def test_keys_in_every_order_are_explained_as_such() -> None:
    """What cannot be written in any order is told for that order only."""
    many = {name: {} for name in "abcdefghi"}
    schema = sg.JsonSchema({"properties": many, "required": list(many), "additionalProperties": False})
    assert "narrower" not in {finding.status for finding in explain(schema).findings}
    found = explain(schema, property_order="any")
    assert found.error is None
    assert [finding.keyword for finding in found.findings if finding.status == "narrower"] == ["properties"]


def test_an_automaton_explains_a_schema() -> None:
    """`explain` of an automaton takes data or text, and says what each keyword became."""
    automaton = sg.compile(bool, sg.Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), b""], stop_ids=[256]))
    for schema in ({"type": "string", "format": "color"}, '{"type": "string", "format": "color"}'):
        explanation = automaton.explain(schema)
        assert [(found.keyword, found.status) for found in explanation.findings] == [
            ("type", "exact"),
            ("format", "annotation"),
        ]
        assert explanation.error is None
    with pytest.raises(sg.GrammarSyntaxError, match="line 1"):
        automaton.explain("{")


def test_the_table_is_aligned_and_the_repr_is_short() -> None:
    """Columns begin at one place; the repr is one line."""
    explanation = sg.check(Order)
    header, *rows = str(explanation).split("\n\n")[0].splitlines()
    start = header.index("becomes")
    assert all(row[start - 1] == " " and row[start] != " " for row in rows)
    assert repr(explanation).startswith("Explanation('Order', 'sound")
    assert "\n" not in repr(explanation)


def test_a_tool_set_says_what_may_be_written() -> None:
    """Whether free text may come first, and which tools there are."""

    def look(city: bool) -> None:
        """Look."""

    assert sg.check(sg.ToolSet([look])).notes[0] == "free text, then at most one call of: look"
    assert sg.check(sg.ToolSet([look], min_calls=1)).notes[0] == "one call of: look"
