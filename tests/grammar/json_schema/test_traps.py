"""The traps of JSON, each by its name, through a whole compilation: a word is what the masks let through."""

from __future__ import annotations

import datetime
import json
import math
import re
from decimal import Decimal
from typing import Annotated, Any

import pytest
from annotated_types import Ge
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

import structgen as sg
from json_oracle import verdict
from json_strategies import object_combinations, small_objects
from oracle.recognise import accepts
from structgen.config import DEFAULT_POLICY
from structgen.errors import LimitError, TokenRejectedError, UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.policy import apply_policy
from structgen.output_type import lower

BYTES = sg.Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), b""], stop_ids=[256])
ITEM = {"type": "object", "properties": {"qty": {"type": "integer"}}, "required": ["qty"]}


def is_word(output_type: Any, text: str | bytes) -> bool:
    """Return whether a text is let through byte by byte, and may end."""
    declared = sg.JsonSchema(output_type) if isinstance(output_type, dict) else output_type
    state = sg.compile(declared, BYTES, cache=None).start()
    try:
        for byte in text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text:
            if not state.allows(byte):
                return False
            state.advance(byte)
    except TokenRejectedError:
        return False
    return state.is_accepting


def test_keys_compare_decoded() -> None:
    """An escaped key is the declared one: it can be no other key, however it is written."""
    spelled = ["qty", r"\u0071ty", r"q\u0074y", r"\u0071\u0074\u0079", r"qt\u0079", r"\u0071\u0074y"]
    for key in spelled:
        assert not is_word(ITEM, f'{{"qty": 1, "{key}": "x"}}')
        assert not is_word({**ITEM, "required": []}, f'{{"{key}": "x"}}')
    assert is_word(ITEM, '{"qty": 1, "\\u0071tys": "x"}')
    patterned = {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}
    for key, value, fits in ((r"\u0061b", "1", True), (r"\u0061b", '"x"', False), (r"\u0062", "1", False)):
        assert is_word(patterned, f'{{"{key}": {value}}}') == fits


def test_a_repeated_key_changes_no_verdict() -> None:
    """A declared key is written once; repeated open keys never make up a count, nor take back what is needed."""
    assert not is_word(ITEM, '{"qty": 1, "qty": 2}')
    assert not is_word({"type": "object", "maxProperties": 1}, '{"a": 1, "a": 2}')
    needed = {"type": "object", "not": {"additionalProperties": {"type": "integer"}}}
    assert is_word(needed, '{"a": 1, "a": ""}')
    assert not is_word(needed, '{"a": "", "a": 1}')
    with pytest.raises(UnsupportedSchemaError, match="could be equal"):
        sg.check(sg.JsonSchema({"type": "object", "minProperties": 2}))


PAIRS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "\\u0061"]), st.sampled_from(["1", "2", '"a"', "null"])))


@settings(max_examples=200)
@given(st.one_of(small_objects, object_combinations), PAIRS.filter(lambda pairs: len(pairs) < 6), st.booleans())
def test_texts_with_repeated_keys_that_are_words_are_valid(schema: Any, pairs: Any, any_order: bool) -> None:
    """As a reader that keeps the last of equal keys sees them."""
    schema = {"type": "object", **schema}
    try:
        grammar = lower_schema(schema, property_order="any" if any_order else "declared")
    except (UnsupportedSchemaError, UnsatisfiableError, LimitError):
        reject()
    text = "{" + ", ".join(f'"{key}": {value}' for key, value in pairs) + "}"
    if accepts(grammar, text.encode()):
        assert verdict(schema, text), text


def test_a_lone_surrogate_is_no_text() -> None:
    """Neither escaped nor as bytes, in a string or in a key, whatever stands beside it."""
    string: dict[str, Any] = {"type": "string"}
    for lone in (r"\ud800", r"\udfff", r"\ud83d\u0041", r"\udc00\ud800", r"\uD83Dx", "\ud800"):
        assert not is_word(string, f'"{lone}"')
        assert not is_word({"type": "object"}, f'{{"{lone}": 1}}')
        assert not is_word({"type": "string", "pattern": ".*"}, f'"{lone}"')


def test_a_surrogate_pair_counts_one() -> None:
    """The length is that of the decoded text, however it is written."""
    for written, length in ((r"\ud83d\ude00", 1), ("😀", 1), (r"\u0061b\ud83d\ude00", 3), (r"\n\"", 2)):
        for low in range(5):
            assert is_word({"type": "string", "minLength": low, "maxLength": low}, f'"{written}"') == (length == low)


def test_the_end_of_a_text_is_not_before_a_newline() -> None:
    """`$` is the end, as in ECMA-262; in Python it also stands before a last newline."""
    for schema in ({"type": "string", "pattern": "^a$"}, {"type": "string", "pattern": "a$"}):
        assert is_word(schema, '"a"')
        assert not is_word(schema, r'"a\n"')
        assert not is_word(schema, r'"a\u000a"')
    keys = {"type": "object", "patternProperties": {"^a$": {}}, "additionalProperties": False}
    assert not is_word(keys, '{"a\\n": 1}')


def test_a_negated_pattern_forbids_what_any_reading_of_its_classes_finds() -> None:
    r"""One class as in Python beside a complement as in ECMA-262, whatever else is in that: an escaped bracket, too."""
    for complement in (r"[^\d]", r"[^x\d]", r"[^\]\d]", r"[^\\\d]", r"[^\d\]]"):
        schema = {"type": "string", "not": {"pattern": rf"^\w{complement}$"}}
        assert not is_word(schema, '"é٣"')
        assert is_word(schema, '"é5"')


@pytest.mark.parametrize("char", ["5", "٣", "a", "é", "_", " ", "\xa0", "\ufeff", "\x1c", "ſ", "K", "²"])
def test_classes_hold_what_both_dialects_put_into_them(char: str) -> None:
    r"""`\d`, `\w`, `\s` and their complements are written only where ECMA-262 and Python agree."""
    ecma = {
        r"\d": char in "0123456789",
        r"\w": char.isascii() and (char.isalnum() or char == "_"),
        r"\s": char in " \xa0\ufeff",
    }
    for name, inside in ecma.items():
        in_python = re.fullmatch(name, char) is not None
        spelled = json.dumps(char, ensure_ascii=False)
        outside = not inside and not in_python
        for pattern, fits in ((f"^{name}$", inside and in_python), (f"^{name.upper()}$", outside)):
            assert is_word({"type": "string", "pattern": pattern}, spelled) == fits
        for pattern, fits in ((f"^{name}$", outside), (f"^{name.upper()}$", inside and in_python)):
            assert is_word({"type": "string", "not": {"pattern": pattern}}, spelled) == fits
            assert is_word({"type": "string", "pattern": f"^(?!{pattern[1:]})"}, spelled) == fits


def test_a_format_is_an_assertion() -> None:
    """Which the standard leaves open."""
    assert is_word({"type": "string", "format": "date"}, '"2024-02-29"')
    assert not is_word({"type": "string", "format": "date"}, '"2023-02-29"')


@pytest.mark.parametrize(
    ("output_type", "text"),
    [
        (datetime.time, '"12:30:60Z"'),
        (datetime.time, '"23:59:60Z"'),
        (datetime.datetime, '"2016-12-31T23:59:60Z"'),
        (datetime.date, '"0000-01-01"'),
        (datetime.datetime, '"0000-01-01T00:00:00Z"'),
        (float, "1e999"),
        (float, "-1" + "0" * 400),
        (Annotated[float, Ge(0)], "1e999"),
        (int, "1" + "0" * 4300),
        (list[int], "[-1" + "0" * 4300 + "]"),
        (Decimal, "NaN"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_python_types_hold_no_more_than_their_reader(output_type: Any, text: str) -> None:
    """What the type's own reader refuses, or reads as infinity, is never written; long digits by the policy alone."""
    grammar, _ = apply_policy(lower(output_type).grammar, DEFAULT_POLICY)
    assert not accepts(grammar, text.encode())
    try:
        assert math.isinf(TypeAdapter(output_type).validate_json(text))
    except ValueError:
        return
