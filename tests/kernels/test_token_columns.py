"""Columns of tokens, masks and lists made of them equal the obvious ones, on random tries and machines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.kernels import token_columns as op
from structgen.kernels.token_columns import ByteMachine, ClassTokens, reference_columns, reference_masks, token_lists
from structgen.trie import ByteTrie

texts = st.lists(st.text("abc", max_size=5).map(str.encode), max_size=14)


@st.composite
def machines(draw: st.DrawFn) -> ByteMachine:
    """Draw a machine over up to three letters: shifted runs, loops and dead places."""
    num_states = draw(st.integers(1, 8))
    byte_class = np.zeros(256, np.int32)
    num_classes = draw(st.integers(1, 4))
    for byte in b"abc":
        byte_class[byte] = draw(st.integers(0, num_classes - 1))
    table = np.full((num_states, num_classes), -1, np.int32)
    for c in range(1, num_classes):
        if draw(st.booleans()):
            shift = draw(st.integers(-2, 2))
            moved = np.arange(num_states) + shift
            table[:, c] = np.where((moved >= 0) & (moved < num_states), moved, -1)
        else:
            table[:, c] = draw(st.lists(st.integers(-1, num_states - 1), min_size=num_states, max_size=num_states))
    return ByteMachine(byte_class, table)


@given(texts, machines(), st.booleans())
def test_columns_equal_the_obvious_ones(tokens, machine, has_little_room):
    """The same numbers for the same maps, node by node, and the same maps, however often room runs out."""
    trie = ByteTrie.build(tokens)
    of_node, after = reference_columns(trie, machine)
    looks = []
    with pytest.MonkeyPatch.context() as patch:
        if has_little_room:
            patch.setattr(op, "_FIRST_ROOM", 2)
            patch.setattr(op, "_WORK_PER_LOOK", 1)

        columns = op.token_columns(trie, machine, looks.append)

    assert np.array_equal(columns.of_node, of_node)
    assert columns.num_columns == len(after)
    out = np.full((len(machine.table), len(after)), -1, np.int32)
    columns.expand(np.arange(len(after)), out)
    assert out.T.tolist() == [list(one) for one in after]
    assert has_little_room or not looks
    assert all(size > 0 for size in looks)

    token_class, column_of = columns.classes(trie, len(tokens))
    assert column_of[0] == op.DEAD_COLUMN
    assert (np.diff(column_of) > 0).all()
    node_of = {int(token): node for node in range(trie.num_nodes) for token in _ids(trie, node)}
    for token in range(len(tokens)):
        expected = of_node[node_of[token]] if token in node_of else op.DEAD_COLUMN
        assert column_of[token_class[token]] == expected


def _ids(trie: ByteTrie, node: int) -> list[int]:
    return trie.token_ids[trie.token_start[node] : trie.token_start[node + 1]].tolist()


def test_a_long_walk_can_be_ended_from_outside() -> None:
    """What `look` raises comes through: that is how limits bind."""
    trie = ByteTrie.build([bytes([one, two]) for one in range(256) for two in range(256)])
    rng = np.random.default_rng(3)
    machine = ByteMachine(np.arange(256, dtype=np.int32), rng.integers(0, 50, (50, 256)).astype(np.int32))

    def stop(num_bytes: int) -> None:
        raise TimeoutError(str(num_bytes))

    with pytest.raises(TimeoutError):
        op.token_columns(trie, machine, stop)


@given(st.data())
def test_masks_and_lists_equal_the_obvious_ones(data):
    """Rows made of the row before are right, and a list has just the tokens of its row, or none where it is long."""
    num_classes = data.draw(st.integers(1, 5))
    token_class = np.array(data.draw(st.lists(st.integers(0, num_classes - 1), min_size=1, max_size=70)), np.uint16)
    row = st.lists(st.booleans(), min_size=num_classes, max_size=num_classes)
    legal = np.array(data.draw(st.lists(row, max_size=6)), np.bool_).reshape(-1, num_classes)

    masks = ClassTokens.of(token_class, num_classes).masks(legal)

    assert np.array_equal(masks, reference_masks(legal, token_class))
    most = data.draw(st.integers(0, 70))
    num_legal = np.bitwise_count(masks.view(np.uint32)).sum(axis=1, dtype=np.int32)
    start, ids = token_lists(masks, num_legal, most)
    for index, one in enumerate(legal):
        expected = [token for token, k in enumerate(token_class.tolist()) if one[k]]
        assert ids[start[index] : start[index + 1]].tolist() == (expected if len(expected) <= most else [])
