"""The compiled walk of many lanes equals the obvious one, on random tries, DFAs and graphs of what follows what."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.kernels import lane_walk
from structgen.kernels.lane_walk import Exits, LaneTrie, LaneWalker, reference_ends
from structgen.kernels.trie_walk import CountedDfa
from structgen.trie import ByteTrie
from trie_strategies import dfas, tries


class Lanes:
    """Readers with a gate after each, made in the walker when it asks; lane -> (reader, readers that follow)."""

    def __init__(self, trie: ByteTrie, readers: list[CountedDfa | bytes], after: list[list[int]]) -> None:
        self.trie, self.after = trie, after
        self.readers = [counted_word(one) if isinstance(one, bytes) else one for one in readers]
        self.walker = LaneWalker(LaneTrie(trie))
        add_word, add_reader = self.walker.add_word, self.walker.add_reader
        self.numbers = [add_word(one) if isinstance(one, bytes) else add_reader(one) for one in readers]
        self.reader_of: list[int] = []
        self.gates: dict[int, tuple[int, list[int]]] = {}

    def lane(self, reader: int) -> int:
        """Add a lane."""
        self.reader_of.append(reader)
        return self.walker.add_lane(self.numbers[reader])

    def gate(self, lane: int) -> int:
        """Return the gate after a lane: a new one for each lane, so that walks must not mix them up."""
        if lane not in self.gates:
            following = self.after[self.reader_of[lane]]
            gate = self.walker.add_gate(tuple(self.numbers[reader] for reader in following))
            first = len(self.reader_of)
            self.reader_of += following
            self.gates[lane] = gate, list(range(first, first + len(following)))
        return self.gates[lane][0]

    def lanes_after(self, lane: int) -> list[int]:
        """Return the lanes that start after one."""
        self.gate(lane)
        return self.gates[lane][1]

    def expected(self, starts: list[tuple[int, int, int]]) -> set[tuple[int, int, int, int]]:
        """Return (node, lane, state, count) by the obvious walk."""
        return reference_ends(
            self.trie, lambda lane: (self.readers[self.reader_of[lane]], lambda: self.lanes_after(lane)), starts
        )


def counted_word(text: bytes) -> CountedDfa:
    """Return the DFA of one word."""
    delta = np.full((len(text) + 1, 256), -1, np.int32)
    for state, byte in enumerate(text):
        delta[state, byte] = state + 1
    accepting = np.arange(len(text) + 1) == len(text)
    ints = np.zeros(len(text) + 1, np.int32)
    return CountedDfa(delta, np.zeros(delta.shape, np.bool_), accepting, ints, ints)


@st.composite
def lanes(draw: st.DrawFn) -> Lanes:
    """Draw a trie, up to three readers, and which of them follow each."""
    words = st.lists(st.sampled_from(b"ab"), min_size=1, max_size=3).map(bytes)
    readers = draw(st.lists(dfas() | words, min_size=1, max_size=3))
    after = [draw(st.lists(st.integers(0, len(readers) - 1), max_size=3)) for _ in readers]
    return Lanes(draw(tries), readers, after)


def tokens_at(trie: ByteTrie, nodes: set[int]) -> set[int]:
    """Return the ids whose bytes end at nodes."""
    return {int(i) for node in nodes for i in trie.token_ids[trie.token_start[node] : trie.token_start[node + 1]]}


def tokens_in(mask: np.ndarray) -> set[int]:
    """Return the ids whose bit is set."""
    return {i for i in range(32 * len(mask)) if int(mask[i >> 5]) >> (i & 31) & 1}


@pytest.fixture(params=[1, 1024])
def _room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with hardly any scratch memory, and with enough."""
    monkeypatch.setattr(lane_walk, "_FIRST_ROOM", request.param)


@pytest.mark.usefixtures("_room")
def test_walks_equal_the_obvious_walk() -> None:
    """Same tokens and same ends, asked for twice, whether or not the gates are known yet."""

    @given(lanes(), st.data())
    def holds(drawn: Lanes, data: st.DataObject) -> None:
        starts = []
        for reader in data.draw(st.lists(st.integers(0, len(drawn.readers) - 1), max_size=3)):
            state = data.draw(st.integers(0, len(drawn.readers[reader].accepting) - 1))
            is_counted = drawn.readers[reader].low > 0 or drawn.readers[reader].high >= 0
            starts.append((drawn.lane(reader), state, int(is_counted)))
        mask, again = np.zeros(1, np.int32), np.zeros(1, np.int32)

        drawn.walker.walk(mask, starts, [], drawn.gate)
        found = drawn.walker.walk_to_ends(again, starts, [], drawn.gate)
        expected = drawn.expected(starts)

        assert tokens_in(mask) == tokens_in(again) == tokens_at(drawn.trie, {node for node, *_ in expected})
        assert {(node, *found.ends[end].tolist()) for node, end in found.places.tolist()} == expected
        assert len(set(map(tuple, found.ends.tolist()))) == len(found.ends)

    holds()


@pytest.mark.parametrize("room", [1, 2, 3, 1025])
def test_hash_tables_have_a_power_of_two_of_places(room: int) -> None:
    """Whatever room is asked for, as for 1,024 starts: among 6 places a search went round two of them for ever."""
    scratch = LaneTrie(ByteTrie.build([b"a"])).borrow(room).scratch
    sizes = [len(scratch.seen), len(scratch.end_keys)]

    assert all(size.bit_count() == 1 and size >= 2 * room for size in sizes)


@given(lanes(), st.integers(0, 2), st.integers(0, 3), st.integers(-1, 3))
def test_exits_go_on_below_their_nodes(drawn, count, low, high):
    """A gate is passed at the nodes whose ticks are within bounds, as if its lanes started there."""
    lane = drawn.lane(0)
    exits = np.array([[node, node % 3] for node in range(0, drawn.trie.num_nodes, 2)], np.int32).reshape(-1, 2)
    mask = np.zeros(1, np.int32)

    drawn.walker.walk(mask, [], [Exits(drawn.gate(lane), exits, count, low, high)], drawn.gate)

    expected = set()
    for node, ticks in exits.tolist():
        if low <= ticks + count and (high < 0 or ticks + count <= high):
            ends = reference_ends(
                sub_trie(drawn.trie, node),
                lambda one: (drawn.readers[drawn.reader_of[one]], lambda: drawn.lanes_after(one)),
                [(one, 0, 0) for one in drawn.lanes_after(lane)],
            )
            expected |= {node + end for end, *_ in ends}
    assert tokens_in(mask) == tokens_at(drawn.trie, expected)


def sub_trie(trie: ByteTrie, node: int) -> ByteTrie:
    """Return the part of a trie below a node, with that node as its root; its nodes keep their order."""
    last = int(trie.subtree_end[node])
    part = slice(node, last)
    parent = np.maximum(trie.parent[part] - node, 0).astype(np.int32)
    return ByteTrie(
        trie.node_byte[part].copy(),
        (trie.subtree_end[part] - node).astype(np.int32),
        (trie.depth[part] - trie.depth[node]).astype(np.int32),
        parent,
        trie.token_start[node : last + 1].copy(),
        trie.token_ids.copy(),
    )


def test_a_word_that_may_follow_itself_for_ever_ends_the_search() -> None:
    """Gates are passed once at a node, however many ways lead there."""
    trie = ByteTrie.build([b"a" * length for length in range(1, 41)])
    delta = np.full((2, 256), -1, np.int32)
    delta[:, ord("a")] = 1
    some = CountedDfa(
        delta, np.zeros((2, 256), np.bool_), np.array([False, True]), np.zeros(2, np.int32), np.zeros(2, np.int32)
    )
    drawn = Lanes(trie, [some, some], [[0, 1], [0, 1]])
    gates: dict[int, int] = {}

    def gate(lane: int) -> int:
        reader = drawn.reader_of[lane]
        if reader not in gates:
            gates[reader] = drawn.walker.add_gate((0, 1))
            drawn.reader_of += [0, 1]
        return gates[reader]

    mask = np.zeros(2, np.int32)
    drawn.walker.walk(mask, [(drawn.lane(0), 0, 0)], [], gate)

    assert tokens_in(mask) == set(range(40))


def test_arrays_of_another_kind_are_refused() -> None:
    """Their addresses are all that the compiled walk sees."""
    ints = np.zeros(1, np.int32)
    wide = CountedDfa(np.zeros((1, 256), np.int64), np.zeros((1, 256), np.bool_), np.ones(1, np.bool_), ints, ints)

    with pytest.raises(TypeError, match="No matching definition"):
        LaneWalker(LaneTrie(ByteTrie.build([b"a"]))).add_reader(wide)


def test_walkers_of_several_threads_do_not_share_scratch_memory() -> None:
    """Two walks at once over one trie, both in the middle of asking what follows, find what each finds alone."""
    trie = LaneTrie(ByteTrie.build([b"a", b"ab", b"abb", b"b"]))
    both = threading.Barrier(2)

    def masks(letters: bytes) -> list[int]:
        walker = LaneWalker(trie)
        readers = []
        for letter in letters:
            delta = np.full((2, 256), -1, np.int32)
            delta[0, letter] = 1
            ints = np.zeros(2, np.int32)
            one = CountedDfa(delta, np.zeros((2, 256), np.bool_), np.array([False, True]), ints, ints)
            readers.append(walker.add_reader(one))
        lane = walker.add_lane(readers[0])

        following = iter([(readers[1],), ()])

        def follow(asked: int) -> int:
            if asked == lane:
                both.wait(30)
            return walker.add_gate(next(following))

        mask = np.zeros(1, np.int32)
        walker.walk(mask, [(lane, 0, 0)], [], follow)
        return sorted(tokens_in(mask))

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(masks, [b"ab", b"aa"]))
    assert found == [[0, 1], [0]]


def test_the_last_scratch_memory_may_be_taken_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that saw free scratch memory, which another one then took, makes its own."""

    class Taken(list[Any]):
        def __len__(self) -> int:
            return 1

    trie = LaneTrie(ByteTrie.build([b"a"]))
    monkeypatch.setattr(trie, "_free", Taken())
    assert len(trie.borrow(8).scratch.work) >= 8
