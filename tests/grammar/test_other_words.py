"""JSON strings other than a few words, made directly, are what the general way makes: minimised, the same DFA."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.dfa import Dfa
from structgen.grammar.encode import encode_json_string
from structgen.grammar.other_words import json_string_except

WORDS = [
    ("",),
    ("a",),
    ("", "a", "ab", "b"),
    ("name", "value", "type", "names"),
    ('"', "\\", "/", "\b\f\n\r\t", "\x00"),
    ("é", "ü", "한글", "\uffff", "\ue000"),
    ("🌀", "🌀x", "🌁", "x🌀", "\U0010ffff"),
    tuple("`abcdefghijklmno"),
    tuple(chr(0x1F300 + number) for number in range(64)),
    tuple(f"{kind}{number}" for kind in ("spec", "status", "Status") for number in range(12)),
]

text = st.text(
    st.sampled_from('ab"\\/\n\x00\x1féß한\ud7ff\ue000🌀🌁') | st.characters(exclude_categories=["Cs"]), max_size=5
)


def same(words: tuple[str, ...]) -> bool:
    """Whether both ways give one DFA."""
    made = json_string_except(words)
    slow = encode_json_string(CharDfa.any_text().difference(CharDfa.from_words(words)))
    smallest = Dfa.build(made.delta, made.accepting, made.tick_bytes)
    return (
        smallest == slow
        and np.array_equal(smallest.delta, slow.delta)
        and np.array_equal(smallest.accepting, slow.accepting)
        and np.array_equal(smallest.tick_bytes, slow.tick_bytes)
    )


@pytest.mark.parametrize("words", WORDS, ids=repr)
def test_named_words(words: tuple[str, ...]) -> None:
    """Empty words, prefixes, every escape, each length of UTF-8, surrogate pairs, and whole ranges of digits."""
    assert same(words)


@given(st.lists(text, min_size=1, max_size=6, unique=True))
def test_any_words(words: list[str]) -> None:
    """Whatever the words are."""
    assert same(tuple(words))


@given(st.lists(text, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_equal_ones_number_their_states_alike(words: list[str], rng: random.Random) -> None:
    """Scans and rows go by digest and state, across processes too: in whatever order the words come, or how often."""
    others = [*words, rng.choice(words)]
    rng.shuffle(others)
    one, two = json_string_except(tuple(words)), json_string_except(tuple(others))
    assert one == two
    assert np.array_equal(one.delta, two.delta)
    assert np.array_equal(one.accepting, two.accepting)
    assert np.array_equal(one.tick_bytes, two.tick_bytes)


def test_equal_if_the_words_are() -> None:
    """The order of the words, or one named twice, makes no other DFA; other words do."""
    assert json_string_except(("a", "b")) == json_string_except(("b", "a", "b"))
    assert json_string_except(("a", "b")) != json_string_except(("a, b",))
    assert json_string_except(("a", "b")) != json_string_except(("a",))
