"""The compiled trie walks equal the obvious ones, on random tries, DFAs, bounds and parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structgen.kernels.trie_walk import (
    CountedDfa,
    TrieWalker,
    length_costs,
    reference_length_costs,
    reference_token_costs,
    reference_walk,
    set_tokens_,
)
from structgen.trie import ByteTrie

INFINITE = 1 << 28

tries = st.lists(st.text("abc", max_size=4).map(str.encode), max_size=12).map(ByteTrie.build)


@st.composite
def dfas(draw: st.DrawFn) -> CountedDfa:
    """Draw a DFA over three letters with consistent distances; not trimmed, which no walk relies on."""
    size = draw(st.integers(1, 4))
    delta = np.full((size, 256), -1, np.int32)
    ticks = np.zeros((size, 256), np.bool_)
    for state in range(size):
        for byte in b"abc":
            delta[state, byte] = draw(st.integers(-1, size - 1))
            ticks[state, byte] = delta[state, byte] >= 0 and draw(st.booleans())
    accepting = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), np.bool_)
    distances = st.lists(st.integers(0, 3), min_size=size, max_size=size).map(lambda one: np.array(one, np.int32))
    low = draw(st.integers(0, 3))
    high = draw(st.just(-1) | st.integers(low, 5))
    return CountedDfa(delta, ticks, accepting, draw(distances), draw(distances) + 2, low, high)


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


@given(tries, st.data())
def test_layers_keep_parts_apart(trie, data):
    """Every part is in one layer, the parts of a layer are apart, and there are no more layers than nested parts."""
    inner = [node for node in range(trie.num_nodes) if trie.subtree_end[node] > node + 1]
    chosen = data.draw(st.lists(st.sampled_from(inner), unique=True)) if inner else []
    parts = np.array([[node + 1, trie.subtree_end[node]] for node in chosen], np.int32).reshape(-1, 2)

    layers = TrieWalker(trie).layers(parts)

    assert sorted(map(tuple, np.concatenate([parts[:0], *layers]).tolist())) == sorted(map(tuple, parts.tolist()))
    for layer in layers:
        held = [node for first, last in layer.tolist() for node in range(first, last)]
        assert len(held) == len(set(held))
    nested = [sum(first <= one < last for first, last in parts.tolist()) for one, _ in parts.tolist()]
    assert len(layers) <= max(nested, default=0)


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
