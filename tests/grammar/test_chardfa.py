"""Code point DFAs against Python's sets of texts and a naive reference automaton."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.errors import LimitError
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.charset import CharSet

# Neighbours on both sides of the surrogates and the last code point, where intervals go wrong first.
ALPHABET = "a\ud7ff\ue000\U0010ffff"
TEXTS = ["".join(text) for length in range(5) for text in itertools.product(ALPHABET, repeat=length)]
BOUNDARIES = (0, ord("a"), ord("b"), 0xD7FF, 0xE000, 0xE001, 0x10FFFF)
COLUMNS = {"a": 1, "\ud7ff": 3, "\ue000": 4, "\U0010ffff": 6}

finite = st.frozensets(st.text(ALPHABET, max_size=3), max_size=8)
Raw = tuple[list[list[int]], list[bool], int]


@st.composite
def raw_automata(draw: st.DrawFn) -> Raw:
    """Draw (delta over BOUNDARIES, accepting, start), neither trimmed nor minimal; it steps on surrogates too."""
    num_states = draw(st.integers(1, 5))
    target = st.integers(-1, num_states - 1)
    delta = draw(st.lists(st.lists(target, min_size=7, max_size=7), min_size=num_states, max_size=num_states))
    accepting = draw(st.lists(st.booleans(), min_size=num_states, max_size=num_states))
    return delta, accepting, draw(st.integers(0, num_states - 1))


def accepted(raw: Raw) -> set[str]:
    """Return the texts of at most four characters that a raw automaton accepts, by the book."""
    delta, accepting, start = raw
    found = set()
    for text in TEXTS:
        state = start
        for char in text:
            state = delta[state][COLUMNS[char]] if state >= 0 else -1
        if state >= 0 and accepting[state]:
            found.add(text)
    return found


def language(dfa: CharDfa) -> set[str]:
    """Return the accepted texts of at most four characters of the alphabet."""
    return {text for text in TEXTS if dfa.matches(text)}


def build(raw: Raw) -> CharDfa:
    """Build the canonical form."""
    return CharDfa.build(BOUNDARIES, raw[0], raw[1], raw[2])


@given(raw_automata())
def test_build_keeps_the_language_and_drops_surrogates(raw: Raw) -> None:
    """Accepts the same texts as the raw automaton, never one with a surrogate."""
    dfa = build(raw)
    assert language(dfa) == accepted(raw)
    assert not any(dfa.matches(text) for text in ("\ud800", "\udfff", "a\udabc", "\udabca"))
    assert dfa.is_empty == (dfa == CharDfa.empty())
    # `delta` and `accepting` say the same, interval by interval.
    assert dfa.boundaries[0] == 0
    for state, point in itertools.product(range(dfa.num_states), (0, ord("a"), 0xD7FF, 0xD800, 0xE000, 0x10FFFF)):
        interval = sum(start <= point for start in dfa.boundaries) - 1
        assert dfa.delta[state][interval] == dfa.step(state, point)
    assert dfa.accepting[0] == dfa.accepts_empty == ("" in accepted(raw))


@given(raw_automata(), raw_automata())
def test_operations_are_set_operations(some: Raw, others: Raw) -> None:
    """The language of a result is the operation on the languages, seen up to four characters."""
    first, second, left, right = build(some), build(others), accepted(some), accepted(others)
    assert language(first.union(second)) == left | right
    assert language(first.intersection(second)) == left & right
    assert language(first.difference(second)) == left - right
    assert language(first.complement()) == set(TEXTS) - left
    assert language(first.concatenation(second)) == {a + b for a in left for b in right if len(a + b) <= 4}


@given(raw_automata(), raw_automata())
def test_equal_languages_are_equal_values(some: Raw, others: Raw) -> None:
    """Laws of sets hold as equality of digests."""
    first, second = build(some), build(others)
    assert first.complement().complement() == first
    assert first.union(second) == second.union(first)
    assert first.intersection(second) == first.complement().union(second.complement()).complement()
    assert first.difference(second).union(first.intersection(second)) == first
    assert hash(first.union(first)) == hash(first)
    assert (first == second) == (first.difference(second).is_empty and second.difference(first).is_empty)


@given(raw_automata(), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3)))
def test_repeat_is_repeated_concatenation(raw: Raw, minimum: int, extra: int | None) -> None:
    """`repeat` equals the union of powers; the star is what it must be."""
    dfa = build(raw)
    power = CharDfa.epsilon()
    for _ in range(minimum):
        power = power.concatenation(dfa)
    if extra is None:
        star = dfa.star()
        assert star == CharDfa.epsilon().union(dfa.concatenation(star))
        texts = accepted(raw)
        expected = {""}
        for _ in range(4):
            expected |= {a + b for a in expected for b in texts if len(a + b) <= 4}
        assert language(star) == expected
        assert dfa.repeat(minimum, None) == power.concatenation(star)
        return
    expected_dfa = power
    for _ in range(extra):
        power = power.concatenation(dfa)
        expected_dfa = expected_dfa.union(power)
    assert dfa.repeat(minimum, minimum + extra) == expected_dfa


@given(raw_automata(), st.integers(0, 4), st.one_of(st.none(), st.integers(0, 4)))
def test_bounded_keeps_the_lengths(raw: Raw, low: int, extra: int | None) -> None:
    """Exactly the texts whose length in code points lies within."""
    high = None if extra is None else low + extra
    expected = {text for text in accepted(raw) if low <= len(text) and (high is None or len(text) <= high)}
    assert language(build(raw).bounded(low, high)) == expected


@given(finite)
def test_finite_sets(some: frozenset[str]) -> None:
    """A finite set gives back its words, their number and lengths."""
    dfa = CharDfa.from_words(some)
    assert dfa.words(8) == sorted(some)
    assert dfa.num_words == len(some)
    assert dfa.is_finite
    assert dfa.min_length == min(map(len, some), default=None)
    assert dfa.max_length == max(map(len, some), default=None)
    assert language(dfa) == some
    union = CharDfa.empty()
    for text in some:
        union = union.union(CharDfa.literal(text))
    assert union == dfa


@given(raw_automata())
def test_finiteness(raw: Raw) -> None:
    """A language is finite iff it has no text as long as there are states; then `words` lists it."""
    dfa = build(raw)
    beyond = dfa.bounded(dfa.num_states, None)
    assert dfa.is_finite == beyond.is_empty
    if not dfa.is_finite:
        assert dfa.num_words is None
        assert dfa.max_length is None
        with pytest.raises(LimitError):
            dfa.words(10**9)
    elif dfa.num_words is not None and dfa.num_words < 1000:
        assert CharDfa.from_words(dfa.words(1000)) == dfa


def test_words_has_a_limit() -> None:
    """More words than asked for is an error that says how many."""
    dfa = CharDfa.from_words(["a", "b", "c"])
    with pytest.raises(LimitError) as caught:
        dfa.words(2)
    assert caught.value.size == 3


@pytest.mark.parametrize(
    "chars", [CharSet.any(), CharSet.empty(), CharSet.from_text("aé\U0010ffff\0"), ~CharSet.from_text("a")]
)
def test_from_charset(chars: CharSet) -> None:
    """Exactly the texts of one character of the set."""
    dfa = CharDfa.from_charset(chars)
    assert dfa.is_empty == chars.is_empty
    assert dfa.num_words == chars.size
    for point in (0, 1, ord("a"), 0xE9, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0x10FFFE, 0x10FFFF):
        assert dfa.matches(chr(point)) == (point in chars)
    assert not dfa.matches("")
    assert not dfa.matches("aa")
    if chars.ranges:
        step = dfa.table[0].tolist()
        live = CharSet.empty()
        for column, target in enumerate(step):
            live = live | (dfa.class_set(column) if target >= 0 else CharSet.empty())
        assert live == chars


def test_any_text() -> None:
    """All texts, no surrogate; its complement is empty, and it is the star of any character."""
    dfa = CharDfa.any_text()
    assert dfa.matches("")
    assert dfa.matches("\0\U0010ffff")
    assert not dfa.matches("\ud800")
    assert dfa.complement() == CharDfa.empty()
    assert dfa == CharDfa.from_charset(CharSet.any()).star()
    assert CharDfa.epsilon() == CharDfa.literal("") == CharDfa.any_text().bounded(0, 0)


def test_limit_is_an_error_that_names_it() -> None:
    """Blow-ups stop at max_states: products, subsets, copies and counters."""
    a, any_char = CharDfa.literal("a"), CharDfa.from_charset(CharSet.from_text("ab"))
    sevens, elevens = a.repeat(7, 7).star(), a.repeat(11, 11).star()
    exponential = any_char.star().concatenation(a)
    calls = [
        lambda: sevens.intersection(elevens, max_states=50),
        lambda: sevens.union(elevens, max_states=50),
        lambda: sevens.difference(elevens, max_states=50),
        lambda: exponential.concatenation(any_char.repeat(12, 12), max_states=1000),
        lambda: a.repeat(0, 5000, max_states=1000),
        lambda: a.bounded(0, 5000, max_states=1000),
    ]
    for call in calls:
        with pytest.raises(LimitError) as caught:
            call()
        assert caught.value.limit == "states"
    assert sevens.intersection(elevens) == a.repeat(77, 77).star()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CharDfa.build([1], [[0]], [True]), "ascend from 0"),
        (lambda: CharDfa.build([0, 5, 5], [[0, 0, 0]], [True]), "ascend from 0"),
        (lambda: CharDfa.build([0], [[0], [0]], [True]), "do not fit"),
        (lambda: CharDfa.from_words(["\udc00"]), "lone surrogate"),
        (lambda: CharDfa.literal("a").repeat(2, 1), "cannot repeat"),
        (lambda: CharDfa.literal("a").bounded(2, 1), "at least 2"),
    ],
)
def test_wrong_arguments_are_errors(call: object, message: str) -> None:
    """Arguments that contradict themselves are errors, not guesses."""
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
