"""Terminals: distances and the gap check, against the lengths of words found by search."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structgen.grammar.dfa import Dfa
from structgen.grammar.encode import encode_json_string
from structgen.grammar.ir import Lexeme
from structgen.grammar.regex_grammar import pattern_chardfa
from structgen.grammar.terminal import _lengths_have_no_gap, build_terminal


@st.composite
def ticking_dfas(draw: st.DrawFn) -> Dfa:
    """Draw a DFA over two letters, some of whose steps count."""
    size = draw(st.integers(1, 5))
    delta = np.full((size, 256), -1, np.int32)
    ticks = np.zeros((size, 256), np.bool_)
    for state in range(size):
        for byte in b"ab":
            delta[state, byte] = draw(st.integers(-1, size - 1))
            ticks[state, byte] = delta[state, byte] >= 0 and draw(st.booleans())
    accepting = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return Dfa.build(delta, accepting, ticks)


def lengths_from(dfa: Dfa, start: int, longest: int) -> set[int]:
    """Return the numbers of ticks, up to the longest, of the words from a state."""
    seen, todo = {(start, 0)}, [(start, 0)]
    while todo:
        state, count = todo.pop()
        for byte in b"ab":
            after = (int(dfa.delta[state, byte]), count + int(dfa.tick_bytes[state, byte]))
            if after[0] >= 0 and after[1] <= longest and after not in seen:
                seen.add(after)
                todo.append(after)
    return {count for state, count in seen if dfa.accepting[state]}


@given(ticking_dfas(), st.integers(1, 6), st.integers(0, 6))
def test_counters_are_used_only_where_no_length_is_missing(dfa: Dfa, low: int, more: int) -> None:
    """If the check finds no gap, each state has every length between its fewest and its most."""
    if dfa.is_empty or not _lengths_have_no_gap(dfa, low, low + more):
        return
    for state in range(dfa.num_states):
        found = lengths_from(dfa, state, 60)

        assert found == set(range(min(found), max(found) + 1))


@given(ticking_dfas(), st.integers(0, 4), st.none() | st.integers(0, 4))
def test_bounded_words_are_exact(dfa: Dfa, low: int, more: int | None) -> None:
    """A terminal takes a word iff the DFA does and its ticks are within the bounds."""
    high = None if more is None else low + more
    terminal, has_empty_word = build_terminal(Lexeme(dfa, low, high))
    for length in range(7):
        for number in range(2**length):
            word = bytes(b"ab"[number >> place & 1] for place in range(length))
            state, count = (-1 if dfa.is_empty else 0), 0
            for byte in word:
                if state >= 0:
                    count += int(dfa.tick_bytes[state, byte])
                    state = int(dfa.delta[state, byte])
            expected = state >= 0 and bool(dfa.accepting[state]) and low <= count <= (count if high is None else high)
            if not word:
                assert has_empty_word == expected
                continue
            place = (0, 0) if terminal is not None else None
            for byte in word:
                place = None if place is None or terminal is None else terminal.step(*place, byte)

            assert (place is not None and terminal is not None and terminal.accepts_at(*place)) == expected


def test_unicode_classes_are_counted() -> None:
    """A bound on a class of many code points costs no states, however many byte states the class has."""
    dfa = encode_json_string(pattern_chardfa(r"^\p{L}*$"))

    terminal, _ = build_terminal(Lexeme(dfa, 3, 3000))

    assert terminal is not None
    assert terminal.is_counted
    assert terminal.dfa.num_states == dfa.num_states > 96
