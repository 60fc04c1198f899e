"""Byte DFAs against sets of words and a naive reference automaton."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.errors import LimitError
from structgen.grammar import dfa as dfas
from structgen.grammar import table as tables
from structgen.grammar.dfa import Dfa

ALPHABET = b"abc"
WORDS = [bytes(word) for length in range(6) for word in itertools.product(ALPHABET, repeat=length)]

words = st.frozensets(st.binary(max_size=5).map(lambda data: bytes(ALPHABET[byte % 3] for byte in data)), max_size=12)


@st.composite
def raw_automata(draw: st.DrawFn, *, counted: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Draw (delta, accepting, tick_bytes, start), neither trimmed nor minimal."""
    num_states = draw(st.integers(1, 7))
    delta = np.full((num_states, 256), -1, np.int32)
    ticks = np.zeros((num_states, 256), np.bool_)
    for state in range(num_states):
        for byte in ALPHABET:
            delta[state, byte] = draw(st.integers(-1, num_states - 1))
            ticks[state, byte] = counted and draw(st.booleans())
    accepting = np.array(draw(st.lists(st.booleans(), min_size=num_states, max_size=num_states)))
    return delta, accepting, ticks, draw(st.integers(0, num_states - 1))


def run(raw: tuple[np.ndarray, np.ndarray, np.ndarray, int], word: bytes) -> tuple[bool, list[bool]]:
    """Walk a raw automaton by the book; return the verdict and which steps count."""
    delta, accepting, ticks, state = raw
    counted = []
    for byte in word:
        counted.append(bool(ticks[state, byte]))
        state = delta[state, byte]
        if state < 0:
            return False, []
    return bool(accepting[state]), counted


def language(dfa: Dfa) -> set[bytes]:
    """Return the accepted words of at most five letters."""
    return {word for word in WORDS if dfas.matches(dfa, word)}


def state_language(dfa: Dfa, state: int) -> frozenset[tuple[bytes, tuple[bool, ...]]]:
    """Return what is accepted from a state, with the counted steps, up to as many letters as there are states."""
    found: set[tuple[bytes, tuple[bool, ...]]] = set()
    frontier: list[tuple[int, bytes, tuple[bool, ...]]] = [(state, b"", ())]
    for _ in range(dfa.num_states + 1):
        found |= {(word, ticks) for at, word, ticks in frontier if dfa.accepting[at]}
        frontier = [
            (int(dfa.delta[at, byte]), word + bytes([byte]), (*ticks, bool(dfa.tick_bytes[at, byte])))
            for at, word, ticks in frontier
            for byte in ALPHABET
            if dfa.delta[at, byte] >= 0
        ]
    return frozenset(found)


@given(raw_automata(counted=True))
def test_build_keeps_words_and_counted_steps(raw: tuple[np.ndarray, np.ndarray, np.ndarray, int]) -> None:
    """Accepts the same words as the raw automaton, and on each of them the same steps count."""
    delta, accepting, ticks, start = raw
    dfa = Dfa.build(delta, accepting, ticks, start)
    for word in WORDS:
        verdict, counted = run(raw, word)
        assert dfas.matches(dfa, word) == verdict
        if verdict:
            assert dfas.count_ticks(dfa, word) == sum(counted)


@given(raw_automata(counted=True))
def test_build_is_trimmed_minimal_and_numbered_breadth_first(
    raw: tuple[np.ndarray, np.ndarray, np.ndarray, int],
) -> None:
    """Every state accepts something, no two states mean the same, and first visits in byte order count up."""
    delta, accepting, ticks, start = raw
    dfa = Dfa.build(delta, accepting, ticks, start)
    if dfa.is_empty:
        assert dfa.num_states == 1
        assert (dfa.delta == -1).all()
        assert not dfa.tick_bytes.any()
        return
    languages = [state_language(dfa, state) for state in range(min(dfa.num_states, 5))]
    assert all(languages)
    assert len(set(languages)) == len(languages)
    order = [0]
    for state in order:
        order += [at for at in dict.fromkeys(dfa.delta[state].tolist()) if at >= 0 and at not in order]
    assert order == list(range(dfa.num_states))
    assert not (dfa.tick_bytes & (dfa.delta < 0)).any()


@given(raw_automata(counted=True), st.randoms(use_true_random=False))
def test_equal_languages_are_equal_values(raw: tuple[np.ndarray, np.ndarray, np.ndarray, int], random: object) -> None:
    """Renumbered and doubled states do not change the digest; another language does."""
    delta, accepting, ticks, start = raw
    dfa = Dfa.build(delta, accepting, ticks, start)
    num_states = len(accepting)
    order = list(range(num_states))
    random.shuffle(order)  # type: ignore[attr-defined]
    renumber = np.array([*np.argsort(order), -1])
    # Each state twice; steps go to the other copy half of the time.
    twice = np.concatenate([renumber[delta[order]], renumber[delta[order]]])
    twice[: num_states // 2][twice[: num_states // 2] >= 0] += num_states
    again = Dfa.build(twice, np.tile(accepting[order], 2), np.tile(ticks[order], (2, 1)), int(np.argsort(order)[start]))
    assert again == dfa
    assert hash(again) == hash(dfa)
    assert (again.delta == dfa.delta).all()
    other = Dfa.build(delta, ~accepting, ticks, start)
    assert other != dfa  # they differ on the empty word


@given(words)
def test_from_words_is_exactly_these_words(some: frozenset[bytes]) -> None:
    """A word is accepted iff it was given."""
    dfa = dfas.from_words(some)
    assert language(dfa) == some
    assert dfa.is_empty == (not some)
    assert dfa.accepts_empty == (b"" in some)


@given(words, words)
def test_operations_are_set_operations(some: frozenset[bytes], others: frozenset[bytes]) -> None:
    """Union, intersection, difference and concatenation of finite sets are those of Python's sets."""
    first, second = dfas.from_words(some), dfas.from_words(others)
    assert dfas.union(first, second) == dfas.from_words(some | others)
    assert dfas.intersection(first, second) == dfas.from_words(some & others)
    assert dfas.difference(first, second) == dfas.from_words(some - others)
    assert dfas.concatenation(first, second) == dfas.from_words(a + b for a in some for b in others)


@given(raw_automata(), raw_automata())
def test_operations_on_cyclic_automata(
    some: tuple[np.ndarray, np.ndarray, np.ndarray, int], others: tuple[np.ndarray, np.ndarray, np.ndarray, int]
) -> None:
    """The same on infinite languages, seen up to five letters."""
    first, second = Dfa.build(some[0], some[1], None, some[3]), Dfa.build(others[0], others[1], None, others[3])
    left, right = language(first), language(second)
    assert language(dfas.union(first, second)) == left | right
    assert language(dfas.intersection(first, second)) == left & right
    assert language(dfas.difference(first, second)) == left - right
    pairs = {a + b for a in left for b in right}
    assert language(dfas.concatenation(first, second)) == {word for word in pairs if len(word) <= 5}


@given(raw_automata(counted=True), raw_automata(counted=True))
def test_intersection_and_difference_count_as_the_first(
    some: tuple[np.ndarray, np.ndarray, np.ndarray, int], others: tuple[np.ndarray, np.ndarray, np.ndarray, int]
) -> None:
    """Each word of the result has the count that the first operand gives it."""
    first, second = Dfa.build(*some[:3], some[3]), Dfa.build(*others[:3], others[3])
    for result in (dfas.intersection(first, second), dfas.difference(first, second)):
        for word in language(result):
            assert dfas.count_ticks(result, word) == dfas.count_ticks(first, word)


@given(raw_automata(counted=True), raw_automata(counted=True))
def test_union_counts_as_its_operands(
    some: tuple[np.ndarray, np.ndarray, np.ndarray, int], others: tuple[np.ndarray, np.ndarray, np.ndarray, int]
) -> None:
    """Each word of a union, where there is one, counts as in the operand that has it."""
    first, second = Dfa.build(*some[:3], some[3]), Dfa.build(*others[:3], others[3])
    left, right = language(first), language(second)
    try:
        both = dfas.union(first, second)
    except ValueError:
        return  # what is refused is claimed by a test of its own
    for word in left | right:
        operand = first if word in left else second
        assert dfas.count_ticks(both, word) == dfas.count_ticks(operand, word)


@given(st.binary(min_size=1, max_size=4), st.binary(max_size=4), st.lists(st.binary(max_size=3), max_size=3))
def test_concatenation_counts_both_parts(head: bytes, tail: bytes, plain: list[bytes]) -> None:
    """A counted word in front of, or behind, words that do not count adds its own bytes."""
    counted = counted_literal(head)
    behind = dfas.concatenation(counted, dfas.from_words([tail, *plain]))
    assert dfas.count_ticks(behind, head + tail) == len(head)
    front = dfas.concatenation(dfas.literal(tail), counted)
    assert dfas.count_ticks(front, tail + head) == len(head)


def counted_literal(text: bytes) -> Dfa:
    """Return a literal of which every byte counts."""
    plain = dfas.literal(text)
    return Dfa.build(plain.delta, plain.accepting, plain.delta >= 0)


@given(words.filter(bool), st.data())
def test_union_counts_either_operand(some: frozenset[bytes], data: st.DataObject) -> None:
    """With different first bytes nothing can disagree: each side keeps its own count."""
    counted = dfas.concatenation(counted_literal(b"x"), dfas.from_words(some))
    plain = dfas.concatenation(dfas.literal(b"y"), dfas.from_words(some))
    for both in (dfas.union(counted, plain), dfas.union(plain, counted)):
        word = data.draw(st.sampled_from(sorted(some)))
        assert dfas.count_ticks(both, b"x" + word) == 1
        assert dfas.count_ticks(both, b"y" + word) == 0


def test_union_refuses_to_mix_counted_and_uncounted_steps() -> None:
    """The same byte may not count in one operand and not in the other; different bytes may."""
    with pytest.raises(ValueError, match="counted by one operand"):
        dfas.union(counted_literal(b"ab"), dfas.literal(b"ac"))
    with pytest.raises(ValueError, match="counted by one operand"):
        dfas.concatenation(dfas.from_words([b"", b"a"]), counted_literal(b"a"))
    mixed = dfas.union(counted_literal(b"ab"), dfas.literal(b"cd"))
    assert [dfas.count_ticks(mixed, word) for word in (b"ab", b"cd")] == [2, 0]
    joined = dfas.concatenation(counted_literal(b"ab"), dfas.literal(b"cd"))
    assert dfas.count_ticks(joined, b"abcd") == 2


def test_a_finished_operand_counts_nothing() -> None:
    """Where only one operand goes on, the steps of the other, dead one do not matter."""
    loop = np.full((1, 256), -1, np.int32)
    loop[0, ord("x")] = 0
    counted = Dfa.build(loop, [True], loop >= 0)
    for both in (dfas.union(counted, dfas.literal(b"yx")), dfas.union(dfas.literal(b"yx"), counted)):
        assert [dfas.count_ticks(both, word) for word in (b"xxx", b"yx")] == [3, 0]


def test_counted_steps_keep_states_apart() -> None:
    """Two states with equal words but different counted steps are not merged."""
    delta = np.full((4, 256), -1, np.int32)
    delta[0, ord("a")], delta[0, ord("b")] = 1, 2
    delta[1, ord("c")] = delta[2, ord("c")] = 3
    ticks = np.zeros((4, 256), np.bool_)
    assert Dfa.build(delta, [0, 0, 0, 1], ticks).num_states == 3
    ticks[1, ord("c")] = True
    dfa = Dfa.build(delta, [0, 0, 0, 1], ticks)
    assert dfa.num_states == 4
    assert [dfas.count_ticks(dfa, word) for word in (b"ac", b"bc")] == [1, 0]


def test_arrays_are_read_only() -> None:
    """A shared DFA cannot be changed by one of its users."""
    dfa = dfas.literal(b"ab")
    for array in (dfa.delta, dfa.accepting, dfa.tick_bytes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_long_chains_and_cycles_are_minimised_without_quadratic_work() -> None:
    """20,000 states, of which the last tells all of them apart, or none: refined in a fraction of a second."""
    num_states = 20_000
    table = np.roll(np.arange(num_states, dtype=np.int32), -1)[:, None]
    one = np.zeros(num_states, np.bool_)
    one[-1] = True
    no_label, no_distance = np.zeros((num_states, 1), np.bool_), np.zeros(num_states, np.int32)
    assert len(tables.quotient(table, one, no_label, no_distance)[0]) == num_states
    assert len(tables.quotient(table, ~one, no_label, no_distance)[0]) == num_states
    every_fifth = np.arange(num_states) % 5 == 0
    assert len(tables.quotient(table, every_fifth, no_label, no_distance)[0]) == 5


def test_limit_is_an_error_that_names_it() -> None:
    """Products and determinisation stop at max_states."""
    table = np.roll(np.arange(7, dtype=np.int32), -1)[:, None]
    other = np.roll(np.arange(11, dtype=np.int32), -1)[:, None]
    with pytest.raises(LimitError) as caught:
        tables.product(table, other, needs_first=True, needs_second=True, max_states=76)
    assert caught.value.limit == "states"
    tables.product(table, other, needs_first=True, needs_second=True, max_states=77)


def test_shapes_must_fit() -> None:
    """A short accepting or tick array is an error, not a guess."""
    with pytest.raises(ValueError, match="do not fit"):
        Dfa.build(np.full((2, 256), -1), [True])
    with pytest.raises(ValueError, match="do not fit"):
        Dfa.build(np.full((2, 256), -1), [True, True], np.zeros((1, 256), np.bool_))


def test_count_ticks_refuses_a_text_that_leads_nowhere() -> None:
    """Counting a text that no accepted word begins with is an error."""
    with pytest.raises(ValueError, match="no accepted word"):
        dfas.count_ticks(dfas.literal(b"ab"), b"b")
