"""The walk: what is forced, what the end means, and how it is undone."""

from __future__ import annotations

import pytest

import structgen as sg

TOKENS = [*(bytes([byte]) for byte in range(256)), b"na", b"name", b'":', b'{"', b""]
STOP = len(TOKENS) - 1
VOCABULARY = sg.Vocabulary.from_bytes(TOKENS, stop_ids=[STOP])
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["ab", "ac"]}},
    "required": ["name"],
    "additionalProperties": False,
}


def start() -> sg.ParserState:
    """Return a walk over a small object."""
    return sg.compile(sg.JsonSchema(SCHEMA, whitespace="compact"), VOCABULARY).start()


def test_forced_bytes_are_what_every_text_goes_on_with() -> None:
    """They end where texts part, and where a text may end."""
    state = start()

    assert state.forced_bytes() == b'{"name":"a'

    for byte in b'{"name":"ab':
        state.advance(byte)

    assert state.forced_bytes() == b'"}'

    for byte in b'"}':
        state.advance(byte)

    assert state.forced_bytes() == b""


def test_forced_tokens_spell_the_forced_bytes_and_are_legal() -> None:
    """A draft of them can be taken as it is."""
    state = start()
    forced = state.forced_tokens()

    assert b"".join(TOKENS[token] for token in forced) == state.forced_bytes()
    for token in forced:
        assert state.allows(token)
        state.advance(token)


def test_nothing_is_legal_after_the_end_until_it_is_undone() -> None:
    """The stop token ends the walk; a rollback opens it again."""
    state = start()
    for byte in b'{"name":"ab"}':
        state.advance(byte)
    state.advance(STOP)

    assert state.is_finished
    assert state.text_bytes == b'{"name":"ab"}'
    assert not state.mask().any()
    assert state.tokens_to_end_bound == 0
    assert state.forced_tokens() == []
    with pytest.raises(sg.TokenRejectedError, match="after the end"):
        state.advance(STOP)

    state.rollback(1)

    assert not state.is_finished
    assert state.is_accepting
    assert state.allows(STOP)


def test_the_stop_token_is_refused_inside_the_text() -> None:
    """And the state is unchanged."""
    state = start()
    before = state.mask()

    with pytest.raises(sg.TokenRejectedError, match="cannot end"):
        state.advance(STOP)

    assert state.mask() is before
