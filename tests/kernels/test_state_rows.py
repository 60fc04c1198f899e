"""Rows of states, walked or made from those of others, equal the obvious walk, on random tries and DFAs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structgen.kernels.state_rows import StateRows
from structgen.kernels.trie_walk import CountedDfa, TrieWalker, reference_walk, set_tokens_
from structgen.trie import ByteTrie
from trie_strategies import dfas, tries

long_tries = st.lists(st.text("abé0", max_size=9).map(str.encode), max_size=40).map(ByteTrie.build)


@given(tries | long_tries, dfas(), st.booleans())
def test_survivors_are_the_tokens_of_a_walk(trie, dfa, is_loop):
    """Same tokens, same exits, whether or not subtrees stay in one state."""
    delta = dfa.delta.copy()
    if is_loop:
        delta[0, list(b"abcdef0123456789\xc3\xa9")] = 0
    free = CountedDfa(delta, dfa.tick_bytes & (delta >= 0), dfa.accepting, dfa.need * 0, dfa.most * 0)
    rows_of = StateRows(trie)
    for state in range(len(dfa.accepting)):
        walk = reference_walk(trie, free, state, 0, TrieWalker(trie).whole)
        row, expected = np.zeros(2, np.int32), np.zeros(2, np.int32)
        set_tokens_(expected, np.ascontiguousarray(walk.stay[:, 0]), trie)

        exits, num_tokens = rows_of.survivors(free, state, row)

        assert np.array_equal(row, expected)
        assert np.array_equal(exits, walk.exits)
        assert num_tokens == np.bitwise_count(expected.view(np.uint32)).sum()


@given(tries, dfas(), st.sampled_from([None, 10_000]))
def test_the_row_of_a_state_from_that_of_any_other(trie, dfa, most_nodes):
    """Whatever two states have in common, what is changed makes the one's row and ends of the other's."""
    rows_of = StateRows(trie)
    free = CountedDfa(dfa.delta, dfa.tick_bytes, dfa.accepting, dfa.need * 0, dfa.most * 0)
    walks = [reference_walk(trie, free, state, 0, TrieWalker(trie).whole) for state in range(len(dfa.accepting))]
    rows = [np.zeros(1, np.int32) for _ in walks]
    for row, walk in zip(rows, walks, strict=True):
        set_tokens_(row, np.ascontiguousarray(walk.stay[:, 0]), trie)
    for state, walk in enumerate(walks):
        for other, other_walk in enumerate(walks):
            row = rows[other].copy()

            changed = rows_of.differ(free, state, other, row, most_nodes=most_nodes)

            assert np.array_equal(row, rows[state])
            nodes = set(changed[:, 0].tolist())
            exits = [one for one in other_walk.exits.tolist() if one[0] not in nodes]
            for node, after, ticks in changed.tolist():
                if after >= 0 and dfa.accepting[after] and trie.subtree_end[node] > node + 1:
                    exits.append([node, ticks])
            assert sorted(exits) == walk.exits.tolist()


@given(tries, st.integers(1, 6), st.integers(0, 6), st.integers(0, 40))
def test_states_that_part_late_are_compared_only_where_they_may(trie, length, ahead, most_nodes):
    """Of a counted run, states far from its end differ nowhere, those near it below long tokens; or None is said."""
    size = length + 1
    delta = np.full((size, 256), -1, np.int32)
    for state in range(length):
        delta[state, list(b"ab")] = state + 1
    accepting = np.arange(size) > 0
    nothing = np.zeros(size, np.int32)
    dfa = CountedDfa(delta, delta >= 0, accepting, nothing, nothing)
    rows_of = StateRows(trie)
    one, other = 0, min(ahead, length)
    walk, known = (reference_walk(trie, dfa, state, 0, TrieWalker(trie).whole) for state in (one, other))
    row, expected = np.zeros(1, np.int32), np.zeros(1, np.int32)
    set_tokens_(row, np.ascontiguousarray(known.stay[:, 0]), trie)
    set_tokens_(expected, np.ascontiguousarray(walk.stay[:, 0]), trie)

    changed = rows_of.differ(dfa, one, other, row, most_nodes=most_nodes)

    if changed is None:
        assert trie.num_nodes > most_nodes
    else:
        assert np.array_equal(row, expected)
        exits = [one for one in known.exits.tolist() if one[0] not in set(changed[:, 0].tolist())]
        ends = [[node, ticks] for node, after, ticks in changed.tolist() if after >= 0 and accepting[after]]
        ends = [end for end in ends if trie.subtree_end[end[0]] > end[0] + 1]
        assert sorted(exits + ends) == walk.exits.tolist()


def test_a_look_at_few_nodes_is_enough_for_states_that_part_late() -> None:
    """Of 2,000 tokens none is as long as what is left of a run, so that no node tells two of its states apart."""
    trie = ByteTrie.build([format(number, "b").encode() for number in range(2_000)])
    delta = np.full((40, 256), -1, np.int32)
    for state in range(39):
        delta[state, list(b"01")] = state + 1
    nothing = np.zeros(40, np.int32)
    dfa = CountedDfa(delta, delta >= 0, np.arange(40) > 0, nothing, nothing)
    row = np.zeros(63, np.int32)

    changed = StateRows(trie).differ(dfa, 3, 11, row, most_nodes=0)

    assert changed is not None
    assert not len(changed)


def test_states_that_part_at_once_or_at_the_last_byte_are_told_apart() -> None:
    """After one byte only the one ends a word; or only the one goes on, to the end of the longest token."""
    trie = ByteTrie.build([b"a", b"ab"])
    nothing = np.zeros(5, np.int32)
    for ends_word, goes_on in ((False, True), (True, False)):
        delta = np.full((5, 256), -1, np.int32)
        delta[0, ord("a")], delta[2, ord("a")], delta[1, ord("b")] = 1, 3, 4
        delta[3, ord("b")] = 4 if goes_on else -1
        dfa = CountedDfa(delta, delta < -1, np.array([False, True, False, ends_word, True]), nothing, nothing)
        known, walk = (reference_walk(trie, dfa, state, 0, TrieWalker(trie).whole) for state in (2, 0))
        row, expected = np.zeros(1, np.int32), np.zeros(1, np.int32)
        set_tokens_(row, np.ascontiguousarray(known.stay[:, 0]), trie)
        set_tokens_(expected, np.ascontiguousarray(walk.stay[:, 0]), trie)

        changed = StateRows(trie).differ(dfa, 0, 2, row, most_nodes=10)

        assert changed is not None
        assert np.array_equal(row, expected)
        assert changed[0].tolist() == [1, 1, 0]
        assert row[0] == 3
