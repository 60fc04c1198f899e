"""Walk a frozen automaton beside the lazy one that it was made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from structgen.errors import TokenRejectedError
from structgen.grammar.parser_state import ParserState
from structgen.vocabulary import Vocabulary


def check_alike(lazy: ParserState, frozen: ParserState) -> None:
    """Assert that two walks that took the same tokens answer alike, but for the numbers that they give states."""
    assert np.array_equal(lazy.mask(), frozen.mask()), lazy.text_bytes
    assert not frozen.mask().flags.writeable
    assert lazy.is_accepting == frozen.is_accepting
    assert lazy.is_finished == frozen.is_finished
    assert lazy.token_ids == frozen.token_ids
    cost = lazy.tokens_to_end_bound
    assert frozen.tokens_to_end_bound == cost
    for budget in (-1, 0, 1, cost - 1, cost, cost + 1, cost + 2, cost + 5, 1 << 40):
        assert np.array_equal(lazy.mask_within(budget), frozen.mask_within(budget)), (lazy.text_bytes, budget)
    assert lazy.forced_bytes() == frozen.forced_bytes()
    one, two = lazy.free_text_mask(), frozen.free_text_mask()
    assert (one is None) == (two is None), lazy.text_bytes
    assert one is None or two is None or np.array_equal(one, two), lazy.text_bytes
    assert without_number(f"state {lazy.description}") == without_number(f"state {frozen.description}")


def without_number(text: str) -> str:
    """Return a message without the number of the state that it names."""
    return re.sub(r"state \d+ \(", "state # (", text)


def refusal(state: ParserState, token: int) -> str:
    """Return how a walk refuses a token, and assert that it stays where it is."""
    before = state.configuration
    with pytest.raises(TokenRejectedError) as caught:
        state.advance(token)
    assert caught.value.token_id == token
    assert state.configuration == before
    return without_number(str(caught.value))


def check_refusals(lazy: ParserState, frozen: ParserState, tokens: Sequence[int]) -> None:
    """Assert that both refuse these tokens, with the same words, and stay where they are."""
    for token in tokens:
        assert refusal(lazy, token) == refusal(frozen, token)


def legal_tokens(state: ParserState, vocabulary: Vocabulary) -> list[int]:
    """Return the legal ids, ascending."""
    bits = np.unpackbits(state.mask().view(np.uint8), bitorder="little")
    return np.flatnonzero(bits[: vocabulary.size]).tolist()


def check_all_states(
    lazy: ParserState, frozen: ParserState, vocabulary: Vocabulary, *, most: int, look: Callable[[ParserState], None]
) -> int:
    """Check walks to all states, at most so many of them, every token at each; return how many were met.

    Args:
        lazy: at the start.
        frozen: at the start.
        vocabulary: of both.
        most: states to look at.
        look: called with the lazy walk at each state.
    """
    known = {(lazy.configuration, frozen.configuration)}
    todo = [(lazy, frozen)]
    num_checked = 0
    while todo and num_checked < most:
        lazy, frozen = todo.pop(0)
        num_checked += 1
        check_alike(lazy, frozen)
        look(lazy)
        legal = legal_tokens(lazy, vocabulary)
        check_refusals(lazy, frozen, sorted(set(range(vocabulary.size)) - set(legal)))
        for token in legal:
            before = lazy.configuration, frozen.configuration
            lazy.advance(token)
            frozen.advance(token)
            here = lazy.configuration, frozen.configuration
            if lazy.is_finished or here not in known:
                check_alike(lazy, frozen)
            if not lazy.is_finished and here not in known:
                known.add(here)
                todo.append((lazy.fork(), frozen.fork()))
            lazy.rollback(1)
            frozen.rollback(1)
            assert (lazy.configuration, frozen.configuration) == before
    return num_checked
