"""Masks, finishing costs and states of the token automaton, against the plainest search there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import masks
from oracle.strategies import bounds, class_star, grammars, vocabularies
from oracle.walks import automaton_of, tokens_of
from structgen.errors import TokenRejectedError, UnsatisfiableError, VocabularyError
from structgen.grammar.ir import Choice, Grammar, Lexeme, Literal, Reference, Repeat, Sequence
from structgen.vocabulary import Vocabulary


@given(grammars(), vocabularies(), st.data())
def test_mask_equals_backward_search_at_every_state(grammar, vocabulary, data):
    """A token is legal iff some sequence of tokens after it reaches an accepting end."""
    (stop,) = vocabulary.stop_ids
    expected = masks.legal_tokens(grammar, vocabulary, b"")
    try:
        state = automaton_of(grammar, vocabulary).start()
    except (UnsatisfiableError, VocabularyError):
        assert not expected
        assert not masks.may_end(grammar, b"")
        return
    text = b""
    for _ in range(6):
        legal = tokens_of(state.mask(), vocabulary)
        expected = masks.legal_tokens(grammar, vocabulary, text)
        ends = masks.may_end(grammar, text)

        assert legal == expected | ({stop} if ends else set()), text
        assert state.is_accepting == ends
        for token in set(range(vocabulary.size)) - legal:
            with pytest.raises(TokenRejectedError):
                state.advance(token)
        if not expected:
            assert ends
            break
        token = data.draw(st.sampled_from(sorted(expected)))
        state.advance(token)
        text += vocabulary.token_bytes(token)
        assert state.text_bytes == text


@given(grammars(), vocabularies(), st.data())
def test_finishing_cost_is_inductive(grammar, vocabulary, data):
    """Unless the text may end, some legal token lowers the finishing cost; no budget at or over it fails."""
    try:
        state = automaton_of(grammar, vocabulary).start()
    except (UnsatisfiableError, VocabularyError):
        return
    budget = state.tokens_to_end_bound + data.draw(st.integers(0, 4))
    stop = set(vocabulary.stop_ids)
    while True:
        cost = state.tokens_to_end_bound
        assert cost <= budget
        assert (cost == 0) == state.is_accepting
        legal = tokens_of(state.mask(), vocabulary) - stop
        after = {}
        for token in legal:
            state.advance(token)
            after[token] = state.tokens_to_end_bound
            state.rollback(1)
        if not state.is_accepting:
            assert min(after.values()) <= cost - 1
        within = tokens_of(state.mask_within(budget), vocabulary) - stop
        assert within == {token for token in legal if after[token] <= budget - 1}
        if not within or budget == 0:
            assert state.is_accepting
            break
        # The hardest choice for the budget: the legal token that leads farthest from an end.
        token = max(within, key=lambda one: (after[one], one))
        state.advance(token)
        budget -= 1


@given(grammars(), vocabularies(), st.data())
def test_rollback_restores_and_states_do_not_disturb_each_other(grammar, vocabulary, data):
    """Advance then rollback restores the mask bit for bit; two states over one automaton are independent."""
    try:
        automaton = automaton_of(grammar, vocabulary)
    except (UnsatisfiableError, VocabularyError):
        return
    state, other = automaton.start(), automaton.start()
    for _ in range(4):
        before = state.mask().copy()
        legal = sorted(tokens_of(before, vocabulary))
        if not legal:
            break
        token = data.draw(st.sampled_from(legal))
        state.advance(token)
        state.rollback(1)

        assert np.array_equal(state.mask(), before)

        fork = state.fork()
        state.advance(token)

        assert np.array_equal(fork.mask(), before)
        assert np.array_equal(other.mask(), automaton.start().mask())


@given(bounds(), bounds(), st.sampled_from([b"a,", b",", b""]), st.data())
def test_masks_and_costs_along_a_whole_count(inner, outer, separator, data):
    """Counts go from nothing past their bounds, nested, with tokens much shorter than the bounds."""
    item = Sequence((Literal(b"<"), Lexeme(class_star("a"), *inner), Literal(b">")))
    between = Literal(separator) if separator else None
    grammar = Grammar({"s": Sequence((Literal(b"["), Repeat(item, *outer, between), Literal(b"]")))}, "s")
    tokens = [b"a", b"aa", b"<", b">", b"><", b",", b"a,", b"[", b"]", b"<a"]
    vocabulary = Vocabulary.from_bytes([*tokens, b""], stop_ids=[len(tokens)])
    state = automaton_of(grammar, vocabulary).start()
    budget = state.tokens_to_end_bound + data.draw(st.integers(0, 6))
    text = b""
    while not state.is_accepting:
        legal = tokens_of(state.mask(), vocabulary)
        if len(text) % 5 == 0:
            assert legal == masks.legal_tokens(grammar, vocabulary, text)
        within = tokens_of(state.mask_within(budget), vocabulary)
        after = {}
        for token in legal:
            state.advance(token)
            after[token] = state.tokens_to_end_bound
            state.rollback(1)

        assert within == {token for token in legal if after[token] <= budget - 1}
        assert within
        token = data.draw(st.sampled_from(sorted(within)))
        state.advance(token)
        text += vocabulary.token_bytes(token)
        budget -= 1


def test_a_count_that_decides_what_can_be_spelled():
    """Where tokens cross the items of a count, its parity decides what is legal, however far the bounds are."""
    item = Choice((Literal(b"a"), Literal(b"b")))
    grammar = Grammar({"s": Sequence((Literal(b"x"), Repeat(item, 50, 50)))}, "s")
    vocabulary = Vocabulary.from_bytes([b"x", b"aa", b""], stop_ids=[2])
    state = automaton_of(grammar, vocabulary).start()
    state.advance(0)
    for _ in range(25):
        assert tokens_of(state.mask(), vocabulary) == {1}
        state.advance(1)

    assert tokens_of(state.mask(), vocabulary) == {2}


def test_repeat_over_its_minimum_can_end():
    """A repeat that has more items than its minimum already is still finished by the cost strategy."""
    rules = {"s": Choice((Literal("éa".encode()), Repeat(Literal(b""), 0, 3, Reference("s"))))}
    vocabulary = Vocabulary.from_bytes([b"a", "é".encode(), b""], stop_ids=[2])
    state = automaton_of(Grammar(rules, "s"), vocabulary).start()

    for token in [1, 0, 1, 0, 1]:
        state.advance(token)

    assert tokens_of(state.mask(), vocabulary) == {0}
