"""The byte trie against a dict of dicts, and its order against sorted()."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.trie import ByteTrie

TOKENS = st.lists(st.one_of(st.binary(max_size=4), st.text("ab\0", max_size=6).map(str.encode)), max_size=40)


def strings_of(trie):
    """Spell each node by walking up its parents."""
    spelled = [b""]
    for node in range(1, trie.num_nodes):
        spelled.append(spelled[trie.parent[node]] + bytes([trie.node_byte[node]]))
    return spelled


@given(TOKENS)
def test_nodes_are_the_prefixes_in_sorted_order(tokens):
    """The nodes are exactly the prefixes of the tokens, each once, in the order of sorted()."""
    prefixes = {token[:end] for token in tokens for end in range(len(token) + 1)} | {b""}
    trie = ByteTrie.build(tokens)
    assert strings_of(trie) == sorted(prefixes)


@given(TOKENS)
def test_ids_stand_at_the_node_of_their_bytes(tokens):
    """Each non-empty token stands once, at its own node, ids ascending; empty tokens stand nowhere."""
    ids_by_bytes = {}
    for token_id, token in enumerate(tokens):
        if token:
            ids_by_bytes.setdefault(token, []).append(token_id)
    trie = ByteTrie.build(tokens)
    found = {}
    for node, spelled in enumerate(strings_of(trie)):
        ids = trie.token_ids[trie.token_start[node] : trie.token_start[node + 1]].tolist()
        if ids:
            found[spelled] = ids
    assert found == ids_by_bytes
    assert trie.token_start[0] == 0
    assert trie.token_start[-1] == len(trie.token_ids)


@given(TOKENS)
def test_subtree_depth_and_children(tokens):
    """A subtree is the run of nodes that start with the node's string; depth is its length."""
    trie = ByteTrie.build(tokens)
    spelled = strings_of(trie)
    for node, prefix in enumerate(spelled):
        inside = [other for other, text in enumerate(spelled) if text.startswith(prefix)]
        assert inside == list(range(node, trie.subtree_end[node]))
        assert trie.depth[node] == len(prefix)
    assert trie.max_depth == max(map(len, tokens), default=0)


def test_empty_vocabulary_has_only_a_root():
    """No token at all, or only empty ones, gives the root alone."""
    for tokens in ([], [b"", b""]):
        trie = ByteTrie.build(tokens)
        assert trie.num_nodes == 1
        assert trie.subtree_end.tolist() == [1]
        assert trie.token_start.tolist() == [0, 0]


def test_arrays_are_typed_and_read_only():
    """Loops that are compiled once for these types may rely on them, and nobody can write."""
    trie = ByteTrie.build([b"a", b"ab"])
    assert trie.node_byte.dtype == np.uint8
    for name in ("subtree_end", "depth", "parent", "token_start", "token_ids"):
        array = getattr(trie, name)
        assert array.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_long_tokens_cost_no_more_than_their_length():
    """Tokens of ten thousand bytes that differ at the last one build in well under a second."""
    stem = b"x" * 10_000
    begin = time.process_time()
    trie = ByteTrie.build([stem + b"a", stem + b"b", stem])
    assert time.process_time() - begin < 2
    assert trie.num_nodes == 10_003
