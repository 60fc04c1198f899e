"""What became of a declaration: every kind of output type, what the policy cuts, and how it reads."""

from __future__ import annotations

import datetime
import decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

import structgen as sg
from structgen.explanation import explain, explain_declaration
from structgen.grammar.policy import apply_policy
from structgen.output_type import lower


class Order(BaseModel):
    name: str = Field(max_length=40)
    count: int
    price: decimal.Decimal = Field(max_digits=8, decimal_places=2)
    day: datetime.date


USABLE: list[tuple[Any, str]] = [
    (Order, "#/properties/name"),
    (Literal["a", "b"], "enum"),
    (str, "any text"),
    (sg.JsonSchema({"type": "integer"}), "at most 32 digits in a row"),
    (sg.Regex("[a-z]{2,500}"), "1 rule, 1 terminal"),
    (sg.Regex("[a-z]{2,500}"), "counted, not unrolled: 1 length"),
    (sg.Choice(["yes", "no"]), "2 answers"),
    (sg.Lark('start: "a" B+\nB: /b+/\nWS: /\\s+/\n%ignore WS'), "ignored between terminals: WS"),
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
        (sg.JsonSchema({"maxLenght": 1, "nullable": True}), sg.UnsupportedSchemaError, "2 keywords are refused"),
        (sg.JsonSchema({"type": "null", "const": 1}), sg.UnsatisfiableError, "contradicts 'const'"),
        (sg.Regex(r"(a)\1"), sg.GrammarSyntaxError, "back-reference"),
        (sg.Lark('start: "go " start'), sg.UnsatisfiableError, "cannot be used"),
        (sg.Lark("start: missing"), sg.GrammarSyntaxError, "missing"),
        (sg.JsonSchema({"contains": {}, "minContains": 300}), sg.LimitError, "up to 256"),
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
    """More properties than can be written in any order are refused for that order only."""
    schema = sg.JsonSchema({"properties": {name: {} for name in "abcdefghij"}, "additionalProperties": False})
    assert explain(schema).error is None
    found = explain(schema, property_order="any")
    assert [finding.keyword for finding in found.findings if finding.status == "refused"] == ["properties"]


def test_a_declaration_in_use_is_explained() -> None:
    """What a generator has at hand is enough: its declaration, and what its policy cut."""
    declaration = lower(Order)
    cuts = apply_policy(declaration.grammar, sg.Policy())[1]
    assert explain_declaration(declaration, cuts, is_closed=True) == sg.check(Order)
    assert "1 rule" in str(explain_declaration(lower(sg.Regex("a+")), is_closed=True))


def test_an_automaton_explains_a_schema() -> None:
    """`explain` of an automaton takes data or text, and says what each keyword became."""
    automaton = sg.compile(bool, sg.Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), b""], stop_ids=[256]))
    for schema in ({"type": "string", "format": "color"}, '{"type": "string", "format": "color"}'):
        explanation = automaton.explain(schema)
        assert [(found.keyword, found.status) for found in explanation.findings] == [
            ("type", "exact"),
            ("format", "refused"),
        ]
        assert isinstance(explanation.error, sg.UnsupportedSchemaError)
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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"acceptance": 0.8, "draft_tokens": 4, "draft_cost": 0.05}, 2.80),
        ({"acceptance": 0.2, "draft_tokens": 4, "draft_cost": 0.10}, 0.89),
        ({"acceptance": 1, "draft_tokens": 7, "draft_cost": 0}, 8.0),
        ({"acceptance": 0, "draft_tokens": 4, "draft_cost": 0.25}, 0.5),
        ({"acceptance": 0.5, "draft_tokens": 0, "draft_cost": 1, "verify_cost": 2}, 0.5),
        ({"acceptance": 1 - 1e-12, "draft_tokens": 9, "draft_cost": 0}, 10.0),
    ],
)
def test_speedup(options: dict[str, Any], expected: float) -> None:
    """Tokens per round over the cost of a round, at the published points and at both ends."""
    assert round(sg.speedup(**options), 2) == expected
    acceptance, length = options["acceptance"], options["draft_tokens"]
    tokens = sum(acceptance**i for i in range(length + 1))
    cost = length * options["draft_cost"] + options.get("verify_cost", 1)
    assert sg.speedup(**options) == pytest.approx(tokens / cost)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"acceptance": 1.1, "draft_cost": 0}, "acceptance"),
        ({"acceptance": float("nan"), "draft_cost": 0}, "acceptance"),
        ({"acceptance": 0.5, "draft_cost": -1}, "draft_cost"),
        ({"acceptance": 0.5, "draft_cost": 0, "verify_cost": 0}, "costs nothing"),
        ({"acceptance": 0.5, "draft_cost": 0, "draft_tokens": True}, "draft_tokens"),
        ({"acceptance": 0.5, "draft_cost": 0, "draft_tokens": 2.0}, "draft_tokens"),
    ],
)
def test_speedup_refuses_what_is_no_number_in_range(options: dict[str, Any], name: str) -> None:
    """A value that means nothing is refused by name."""
    with pytest.raises(sg.OptionError, match=name):
        sg.speedup(**options)
