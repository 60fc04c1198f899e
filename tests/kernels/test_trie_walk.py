"""The compiled trie walks equal the obvious ones, on random tries, DFAs, bounds and parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structgen.kernels.trie_walk import (
    CountedDfa,
    TrieWalker,
    are_equal,
    fingerprint,
    length_costs,
    reach,
    reference_length_costs,
    reference_token_costs,
    reference_walk,
    set_groups_,
    set_tokens_,
)
from structgen.trie import ByteTrie
from trie_strategies import dfas, tries

INFINITE = 1 << 28


@given(tries, dfas(), st.data())
def test_walk_equals_the_obvious_walk(trie, dfa, data):
    """Same tokens, same ends, same exits, from the root and from parts below it."""
    walker = TrieWalker(trie)
    inner = [node for node in range(trie.num_nodes) if trie.subtree_end[node] > node + 1]
    chosen = data.draw(st.sampled_from(inner)) if inner else None
    below = np.empty((0, 2)) if chosen is None else np.array([[chosen + 1, trie.subtree_end[chosen]]])
    for parts in [walker.whole, below.astype(np.int32)]:
        for state in range(len(dfa.accepting)):
            found = walker.walk(dfa, state, 1, parts)
            expected = reference_walk(trie, dfa, state, 1, parts)

            assert np.array_equal(found.stay, expected.stay)
            assert np.array_equal(found.exits, expected.exits)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9), st.data())
def test_fingerprints_tell_masks_apart(words, data):
    """Equal masks have one fingerprint, a mask with any other bit has another one; equality is looked at as a whole."""
    mask = np.array(words, np.int32)
    other = mask.copy()
    other[data.draw(st.integers(0, len(words) - 1))] ^= np.int32(1) << np.int32(data.draw(st.integers(0, 31)))

    assert fingerprint(mask) == fingerprint(mask.copy()) >= 0
    assert fingerprint(mask) != fingerprint(other)
    assert are_equal(mask, mask.copy())
    assert not are_equal(mask, other)


@given(dfas(), st.integers(1, 5))
def test_reach_numbers_states_breadth_first(dfa, most):
    """Each state once, in the order in which bytes first lead there, no more than asked for."""
    order = [0]
    for state in order:
        order += [one for one in dict.fromkeys(dfa.delta[state].tolist()) if one >= 0 and one not in order]

    found, number = reach(dfa.delta, 0, most)

    assert found.tolist() == order[:most]
    assert [number[state] for state in found] == list(range(len(found)))


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4), st.data())
def test_set_groups_sets_the_chosen_groups(groups, data):
    """The tokens of nodes of other groups stay as they are."""
    trie = ByteTrie.build([b"a", b"b", b"c", b"a"])
    start = np.cumsum([0, *map(len, groups)]).astype(np.int32)
    nodes = np.array([node for group in groups for node in group], np.int32)
    chosen = data.draw(st.lists(st.booleans(), min_size=len(groups), max_size=len(groups)))
    found, expected = np.zeros(1, np.int32), np.zeros(1, np.int32)

    set_groups_(found, nodes, start, np.array(chosen), trie)
    for group, wanted in zip(groups, chosen, strict=True):
        if wanted:
            set_tokens_(expected, np.array(group, np.int32), trie)

    assert np.array_equal(found, expected)


def test_overlapping_parts_are_refused() -> None:
    """The scratch memory has room for each node once, and nothing is written beyond it."""
    trie = ByteTrie.build([b"a", b"ab", b"abc"])
    dfa = CountedDfa(
        *(np.zeros((1, 256), kind) for kind in (np.int32, np.bool_)),
        *[np.ones(1, np.bool_)],
        *[np.zeros(1, np.int32)] * 2,
    )

    with pytest.raises(ValueError, match="overlap"):
        TrieWalker(trie).walk(dfa, 0, 0, np.array([[1, 4], [2, 4]], np.int32))


@given(tries, dfas())
def test_token_costs_equal_the_obvious_ones(trie, dfa):
    """Fewest tokens to acceptance, by relaxation of every edge."""
    expected = reference_token_costs(trie, dfa, INFINITE)

    assert np.array_equal(TrieWalker(trie).token_costs(dfa, INFINITE), expected)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=8),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
@settings(max_examples=400)
def test_length_costs_equal_the_obvious_ones(edges, accepting):
    """Fewest tokens to acceptance over each exact length."""
    table = np.array(edges, np.int32).reshape(-1, 3)
    ends = np.array(accepting, np.bool_)

    found = length_costs(table, ends, 6, INFINITE)

    assert np.array_equal(found, reference_length_costs(table, ends, 6, INFINITE))


@pytest.mark.parametrize("size", [1, 31, 32, 33, 95])
def test_set_tokens_sets_exactly_the_tokens_of_the_nodes(size):
    """Bits of every word of the mask, the sign bit included; several ids on one node; other bits stay."""
    tokens = [bytes([97 + i % 3]) * (1 + i % 5) for i in range(size)]
    trie = ByteTrie.build(tokens)
    mask = np.zeros((size + 31) // 32, np.int32)
    nodes = np.arange(0, trie.num_nodes, 2, dtype=np.int32)
    ends = {id_ for node in nodes for id_ in trie.token_ids[trie.token_start[node] : trie.token_start[node + 1]]}

    set_tokens_(mask, nodes, trie)

    assert {i for i in range(size) if int(mask[i >> 5]) >> (i & 31) & 1} == ends
