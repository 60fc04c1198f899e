"""The generation policy: it takes texts away and adds none, and only endless runs are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.recognise import accepts
from structgen.config import Policy
from structgen.declarations import JsonSchema, Lark, Regex
from structgen.grammar.ir import Grammar
from structgen.grammar.policy import Bounded, apply_policy
from structgen.output_type import lower

POLICY = Policy(max_whitespace=3, max_digits=4)


def grammar_of(declared: object) -> Grammar:
    """Return the exact grammar."""
    return lower(declared).grammar


@pytest.mark.parametrize(
    ("declared", "kept", "lost"),
    [
        (JsonSchema({"type": "integer"}), ["0", "-1234"], ["12345"]),
        (JsonSchema({"type": "number"}), ["1234.5678e12", "0.0001"], ["1.00000", "1e00000"]),
        (JsonSchema({"type": "string"}), ['"1234567890"', '"      "'], []),
        (JsonSchema({"type": "integer", "minimum": 0, "maximum": 999999}), ["999999"], []),
        (JsonSchema({"type": "integer", "minimum": 100000}), ["100000", "1234567"], []),
        (Regex(r"\d+"), ["1234"], ["12345"]),
        (Regex(r"[0-9]{6}"), ["123456"], []),
        (Regex(r"\d{6}"), ["123456"], []),
        (Regex("[0-9]{200,900}"), ["1" * 300], []),
        (Regex("[0-9a-f]{300,}"), ["1" * 300], []),
        (Regex("[ ]{150}x"), [" " * 150 + "x"], []),
        (Lark('start: D+ "x"\nD: "0".."9"'), ["1234x"], ["12345x"]),
        (Lark('start: D~6 "x"\nD: "0".."9"'), ["123456x"], []),
        (Lark('start: A+ "x"\nA: /[0-9]+/'), ["1x", "1234x"], ["12345x", "123456789x"]),
        (Lark('start: A+ "x"\nA: /[0-9]{3}/'), ["123x"], ["123456x"]),
        (Lark('start: A* "x"\nA: /[0-9]{6}/'), ["x", "123456x"], ["123456123456x"]),
        (Lark('start: A+ "x"\nA: /[0-9]{6,}/'), ["123456x", "1234567890123x"], []),
        (Lark('start: A~2..99 "x"\nA: /[0-9]{4}/'), ["1" * 8 + "x", "1" * 40 + "x"], []),
        (Lark('start: ("0" | "12")+ "x"'), ["00x", "1212x"], ["12120x", "00000x"]),
        (Lark('start: ("0" D~2)+ "x"\nD: /[0-9]/'), ["012x"], ["012012x"]),
        (Lark('start: (D "a")+\nD: /[0-9]/'), ["1a" * 9], []),
        (JsonSchema({"type": "array", "maxItems": 0}, whitespace="any"), ["[]", "[   ]"], ["[    ]", "[\n \n \n]"]),
        (Lark('start: "a" "b"\n%ignore /\\s+/'), ["ab", "a   b", "a\n\nb"], ["a    b", "a\n\n\n\nb"]),
    ],
)
def test_what_is_cut(declared: object, kept: list[str], lost: list[str]) -> None:
    """Endless runs become short; finite ones, string bodies and what would be left empty stay."""
    exact = grammar_of(declared)
    bounded, _ = apply_policy(exact, POLICY)

    assert all(accepts(exact, text.encode()) for text in [*kept, *lost])
    assert all(accepts(bounded, text.encode()) for text in kept)
    assert not any(accepts(bounded, text.encode()) for text in lost)


def test_no_white_space_at_all() -> None:
    """A bound of 0 leaves none where none is needed, and what is needed."""
    none = Policy(max_whitespace=0)
    gap, _ = apply_policy(grammar_of(JsonSchema({"type": "array", "maxItems": 0}, whitespace="any")), none)
    repeat, _ = apply_policy(grammar_of(Lark('start: "a" WS* "b" WS+ "c"\nWS: " "')), none)

    assert accepts(gap, b"[]")
    assert not accepts(gap, b"[ ]")
    assert accepts(repeat, b"ab c")
    assert not accepts(repeat, b"a b c")
    assert not accepts(repeat, b"ab  c")


@pytest.mark.parametrize("item", ["[0-9]+", "[0-9]{2}", "[0-9]{1,3}", "[0-9]{6}"])
def test_a_repeat_keeps_the_bound_that_is_told(item: str) -> None:
    """No digits run on past the bound which the cut names, however many of them an item has."""
    bounded, cuts = apply_policy(grammar_of(Lark(f"start: A+\nA: /{item}/")), POLICY)
    (maximum,) = {cut.maximum for cut in cuts}

    assert any(accepts(bounded, b"1" * length) for length in range(1, maximum + 1))
    assert not any(accepts(bounded, b"1" * length) for length in range(maximum + 1, maximum + 20))


@given(st.text("0123456789ab \n.-e", max_size=14))
def test_it_is_an_intersection(text: str) -> None:
    """A text is left iff it was there and has no longer run."""
    exact = grammar_of(Regex(r"(\d+|[ab\n ]+|[.e-])*"))
    bounded, _ = apply_policy(exact, POLICY)
    short = not re.search(r"\d{5}|[ \n]{4}", text)

    assert accepts(exact, text.encode())
    assert accepts(bounded, text.encode()) == short


def test_what_was_cut_is_told() -> None:
    """Each lexeme that was cut is named with the bound; nothing is cut in silence."""
    _, cuts = apply_policy(grammar_of(JsonSchema({"type": "integer"})), POLICY)

    assert [(cut.run, cut.maximum) for cut in cuts] == [("digits", 4)]
    assert all(isinstance(cut, Bounded) for cut in cuts)

    _, none = apply_policy(grammar_of(JsonSchema({"type": "string"})), POLICY)

    assert none == ()
