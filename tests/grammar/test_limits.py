"""Limits: each is enforced, names itself, and leaves a sound automaton where it can."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest

import structgen as sg
from structgen.config import Limits
from structgen.errors import LimitError, TokenRejectedError, UnsatisfiableError
from structgen.grammar.compile import compile_grammar
from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence, walk
from structgen.grammar.parser_state import ParserState
from structgen.grammar.terminal import build_terminal

VOCABULARY = sg.Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), b""], stop_ids=[256])
NESTED = Grammar({"s": Choice((Sequence((Literal(b"("), Reference("s"), Literal(b")"))), Literal(b"x")))}, "s")


def nest(state: ParserState) -> None:
    """Open fifty brackets."""
    for _ in range(50):
        state.advance(ord("("))


@pytest.mark.parametrize("depth", [1, 5, 40])
@pytest.mark.parametrize(
    "rules",
    [
        NESTED.rules,
        {"s": Choice((Sequence((Literal(b"("), Reference("t"), Literal(b")"))), Literal(b"x"))), "t": Reference("s")},
        {"s": Choice((Sequence((Literal(b"("), Repeat(Reference("s"), 2, 5), Literal(b")"))), Literal(b"xy")))},
        {"s": Sequence((Literal(b"(("), Choice((Reference("s"), Literal(b"x"))), Literal(b"))")))},
    ],
)
def test_nesting_is_bounded_and_the_text_still_ends(rules: dict[str, Expr], depth: int) -> None:
    """A model that opens brackets for ever is led to the end: no dead end, no error, and only legal tokens."""
    tokens = [b"(", b")", b"x", b"y", b"((", b"((((", b"))", b"x)", b"xy)", b""]
    vocabulary = sg.Vocabulary.from_bytes(tokens, stop_ids=[9])
    grammar = Grammar(rules, "s")
    state = compile_grammar(grammar, vocabulary, limits=Limits(depth=depth), cache=None).start()
    free = compile_grammar(grammar, vocabulary, cache=None).start()
    deepest = 0
    # Where brackets hold several brackets the text is as long as a tree of that depth is large: no use at 40.
    branches = any(isinstance(part, Repeat) for part in walk(grammar.rules["s"]))
    for _ in range(0 if branches and depth > 5 else 3000):
        legal = [i for i in range(9) if state.allows(i)]
        for token in set(range(9)) - set(legal):
            with pytest.raises(TokenRejectedError):
                state.advance(token)
        if not legal:
            break
        token = max(legal, key=lambda i: (tokens[i].count(b"(") - tokens[i].count(b")"), len(tokens[i])))
        state.advance(token)
        free.advance(token)
        deepest = max(deepest, state.text_bytes.count(b"(") - state.text_bytes.count(b")"))

    assert state.is_accepting or (branches and depth > 5)
    assert free.is_accepting == state.is_accepting
    assert deepest <= 2 * depth + 12


def test_nesting_within_the_limit_is_exact() -> None:
    """Below the limit the mask is that of the grammar."""
    limited = compile_grammar(NESTED, VOCABULARY, limits=Limits(depth=30), cache=None).start()
    free = compile_grammar(NESTED, VOCABULARY, limits=Limits(depth=3000), cache=None).start()
    for _ in range(28):
        assert np.array_equal(limited.mask(), free.mask())
        limited.advance(ord("("))
        free.advance(ord("("))


def test_states_are_bounded() -> None:
    """So are the configurations."""
    state = compile_grammar(NESTED, VOCABULARY, limits=Limits(states=20), cache=None).start()

    with pytest.raises(LimitError, match="states"):
        nest(state)


def test_new_walks_get_a_fresh_core_when_counters_have_made_it_grow() -> None:
    """An automaton that serves for ever stays within its limit; walks under way are not disturbed."""
    schema = sg.JsonSchema({"type": "array", "items": {"type": "string", "maxLength": 50}, "maxItems": 500})
    automaton = sg.compile(schema, VOCABULARY, limits=Limits(states=600), cache=None)
    old = automaton.start()
    old.advance(ord("["))
    expected = old.mask().copy()
    for shift in range(30):
        state = automaton.start()
        for byte in b"[" + b'"x", ' * shift + b'"' + b"y" * 20:
            state.advance(byte)

    assert automaton.stats.states <= 600
    assert np.array_equal(old.mask(), expected)
    old.advance(ord('"'))
    assert old.allows(ord("z"))


def test_time_is_bounded() -> None:
    """A compilation that takes too long is given up."""
    rules = {"s": Choice(tuple(Sequence((Literal(b"a%d" % n), Reference("s"))) for n in range(500)))}

    with pytest.raises(LimitError, match="compile_seconds"):
        compile_grammar(Grammar(rules, "s"), VOCABULARY, limits=Limits(compile_seconds=1e-6), cache=None)


def test_memory_bound_changes_no_mask() -> None:
    """With hardly any memory for rows the masks are the same, and few are kept."""
    runs = [b"x" * length for length in range(2, 40)]
    vocabulary = sg.Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), *runs, b""], stop_ids=[294])
    schema = sg.JsonSchema({"type": "array", "items": {"type": "string", "maxLength": 60}})
    small = sg.compile(schema, vocabulary, limits=Limits(memory_mb=1e-6), cache=None)
    large = sg.compile(schema, vocabulary, cache=None)
    walks = [small.start(), large.start()]
    for byte in b'["' + b"x" * 60 + b'", "' + b"x" * 50 + b'"]':
        assert np.array_equal(walks[0].mask(), walks[1].mask())
        for one in walks:
            one.advance(byte)

    assert walks[0].is_accepting
    assert small.stats.distinct_rows <= 17 < large.stats.distinct_rows


def test_lengths_with_gaps_are_multiplied_out_or_refused() -> None:
    """A bound that a counter cannot hold exactly is exact all the same, or an error that says what to do."""
    triples = sg.compile(sg.JsonSchema({"type": "string", "pattern": "^(abc)*$", "maxLength": 100}), VOCABULARY)
    state = triples.start()
    for byte in b'"' + b"abc" * 33:
        state.advance(byte)

    assert not state.allows(ord("a"))
    assert state.allows(ord('"'))

    dfa = build_terminal(Lexeme(sg_dfa("(abcdefgh)*")))[0].dfa
    with pytest.raises(LimitError, match="loosen"):
        build_terminal(Lexeme(dfa, 9, 2_000_000))


@pytest.mark.parametrize("bounds", [(8, 2_000_000), (100_000, None)])
def test_one_bound_is_a_counter_whatever_the_gaps(bounds: tuple[int, int | None]) -> None:
    """With a greatest or a least length alone (no word is shorter than 8), a counter is exact."""
    dfa = build_terminal(Lexeme(sg_dfa("(abcdefgh)*")))[0].dfa
    counted, _ = build_terminal(Lexeme(dfa, *bounds))
    assert counted is not None
    assert counted.is_counted


@pytest.mark.parametrize("least", [10_000_000, 2**29, 2**40])
def test_a_least_length_that_costs_too_much_is_refused(least: int) -> None:
    """Costs are a table by length; one too large is refused before it takes the memory of the machine."""

    def bound(length: int) -> int:
        return (
            sg.compile(sg.JsonSchema({"type": "string", "minLength": length}), VOCABULARY).start().tokens_to_end_bound
        )

    with pytest.raises((LimitError, UnsatisfiableError), match=r"minLength|bounds") as caught:
        bound(least)
    if isinstance(caught.value, LimitError):
        assert caught.value.limit == "length_costs"
    assert bound(100_000) == 100_002


@pytest.mark.parametrize("least", [0, 1, 98, 99, 100, 101])
def test_a_least_length_between_gaps_can_always_be_reached_in_time(least: int) -> None:
    """Whatever is drawn within the budget, the text ends in time, long enough."""
    schema = {"type": "string", "pattern": "^(abc|xyzzy)*$", "minLength": least}
    for seed in range(5):
        rng, state, text = random.Random(seed), sg.compile(sg.JsonSchema(schema), VOCABULARY).start(), bytearray()
        budget = state.tokens_to_end_bound + rng.randint(0, 9)
        while True:
            mask = np.unpackbits(state.mask_within(budget).view(np.uint8), bitorder="little")
            token = int(rng.choice(np.flatnonzero(mask).tolist()))
            if token in VOCABULARY.stop_ids:
                break
            budget -= 1
            assert budget >= 0
            text += VOCABULARY.token_bytes(token)
            state.advance(token)

        assert re.fullmatch("(abc|xyzzy)*", json.loads(text))
        assert len(json.loads(text)) >= least


def sg_dfa(pattern: str):
    """Return the DFA of a pattern, code points counted."""
    from structgen.grammar import encode, regex

    return encode.encode_utf8(regex.to_chardfa(regex.parse(pattern, "python"), mode="fullmatch"))
