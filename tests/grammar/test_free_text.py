"""Free text: penalties may touch the tokens inside string bodies, and no quote, key or number."""

from __future__ import annotations

import pytest

import structgen as sg

TOKENS = [bytes([byte]) for byte in range(256)] + [b"hello", b'hi"', b'"a', b'": "', b"\\n", b"\xc3\xa9t", b""]
VOCABULARY = sg.Vocabulary.from_bytes(TOKENS, stop_ids=[len(TOKENS) - 1])
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": {"type": "boolean"},
}


def free_tokens(text: bytes, declared: object = None) -> set[bytes] | None:
    """Return the tokens that are free text after a text."""
    state = sg.compile(sg.JsonSchema(SCHEMA) if declared is None else declared, VOCABULARY).start()
    for byte in text:
        state.advance(byte)
    mask = state.free_text_mask()
    if mask is None:
        return None
    return {token for i, token in enumerate(TOKENS) if int(mask[i >> 5]) >> (i & 31) & 1}


def test_inside_a_string_only_what_stays_inside_is_free() -> None:
    """Letters, escapes and characters of several bytes; not the closing quote, alone or in a token."""
    free = free_tokens(b'{"name": "x')

    assert free is not None
    assert {b"a", b"hello", b"\\n", b"\xc3\xa9t", b"\\"} <= free
    assert not {b'"', b'hi"', b'": "', b'"a'} & free


@pytest.mark.parametrize(
    "text", [b"", b'{"na', b'{"name": ', b'{"name": "x"', b'{"name": "x", "age": 1', b'{"name": "x", "age": 1, "new_k']
)
def test_structure_is_not_free(text: bytes) -> None:
    """Brackets, quotes, declared and open keys, and numbers."""
    assert free_tokens(text) is None


def test_plain_text_is_free_from_its_first_token() -> None:
    """A str has no quotes: all of it is free."""
    free = free_tokens(b"", str)

    assert free is not None
    assert {b'"', b"hello", b'hi"'} <= free
