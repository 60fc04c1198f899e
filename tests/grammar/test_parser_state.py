"""The walk: what is forced, what the end means, and how it is undone."""

from __future__ import annotations

from typing import Any

import numpy as np
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


@pytest.mark.parametrize("value", [None, "t", b"t", 1.0, True, [1], np.array([1, 2]), object()])
def test_what_is_no_number_is_refused_and_changes_nothing(value: Any) -> None:
    """Token ids and counts are ints; everything else is our error, by the name of the argument."""
    state = start()
    for call in (state.advance, state.allows):
        with pytest.raises(sg.OptionError, match="token_id must be an int"):
            call(value)
    with pytest.raises(sg.OptionError, match="num_tokens must be an int"):
        state.rollback(value)
    with pytest.raises(sg.OptionError, match="budget must be an int"):
        state.mask_within(value)
    assert state.token_ids == ()


def test_integers_of_numpy_are_numbers() -> None:
    """A token id often comes out of an array."""
    state = start()
    token_id = np.int64(TOKENS.index(b'{"'))
    assert state.allows(token_id)  # type: ignore[arg-type]
    state.advance(token_id)  # type: ignore[arg-type]
    assert state.token_ids == (token_id,)
    assert type(state.token_ids[0]) is int


@pytest.mark.parametrize("token_id", [-1, len(TOKENS), 10**30])
def test_a_token_outside_the_vocabulary_is_rejected(token_id: int) -> None:
    """It is told what the ids are."""
    state = start()
    assert not state.allows(token_id)
    with pytest.raises(sg.TokenRejectedError, match=f"is none of the vocabulary, 0 to {len(TOKENS) - 1}") as caught:
        state.advance(token_id)
    assert caught.value.token_id == token_id


@pytest.mark.parametrize("num_tokens", [-1, 1])
def test_a_rollback_beyond_the_start_is_refused(num_tokens: int) -> None:
    """The message says how many there are."""
    with pytest.raises(sg.OptionError, match="pass a number from 0 to 0"):
        start().rollback(num_tokens)


def test_reprs_are_short_and_say_where_the_walk_is() -> None:
    """Neither shows masks or tables."""
    state = start()
    for byte in b'{"name":"ab"}':
        state.advance(byte)
    assert repr(state).startswith("ParserState(13 tokens taken, may end, ")
    automaton = sg.compile(bool, VOCABULARY)
    assert repr(automaton).startswith(f"TokenAutomaton(terminals=1, vocabulary={len(TOKENS)} tokens, ")
    assert len(repr(automaton)) < 150
