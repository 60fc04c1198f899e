"""Walk the byte trie of a vocabulary over several lexemes at once, and over what follows them inside a token.

A *reader* is the DFA of a lexeme, or its only word. A *lane* is a reader with what follows its words: a *gate*, at
which lanes start side by side. Which gate follows a lane is asked of the caller when some token gets there, and kept.
Knows neither grammar nor model. The obvious form at the end of the file is what the compiled one
(_numba/lane_walk.py) is tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from structgen.kernels.trie_walk import CountedDfa, Ints
from structgen.trie import ByteTrie

if TYPE_CHECKING:
    from structgen.kernels._numba.lane_walk import Nodes, Scratch, Tables

_UNKNOWN = -1
_FIRST_ROOM = 1024


_Kept = CountedDfa | npt.NDArray[np.uint8]

Start = tuple[int, int, int]
"""Where a walk begins at the root: (lane, state, count)."""


@dataclass(frozen=True, eq=False, slots=True)
class Exits:
    """Nodes at which a word has ended, so that what follows it goes on below them.

    Attributes:
        gate: what follows.
        nodes: (n, 2) int32, rows (node, ticks of the word before it); no node twice.
        count: ticks before the token.
        low: least number of ticks of a word.
        high: greatest number of ticks, -1 for no bound.
    """

    gate: int
    nodes: Ints
    count: int = 0
    low: int = 0
    high: int = -1


@dataclass(frozen=True, eq=False, slots=True)
class Ends:
    """Where tokens end inside lanes.

    Attributes:
        ends: (n, 3) int32, the distinct (lane, state, count).
        places: (m, 2) int32, rows (node that holds tokens, number of the end).
    """

    ends: Ints
    places: Ints


class LaneTrie:
    """A trie as walks read it, with scratch memory for them; shared by threads."""

    def __init__(self, trie: ByteTrie) -> None:
        """List the children of each node side by side."""
        from structgen.kernels._numba import lane_walk as compiled

        place_of = np.empty(trie.num_nodes, np.int32)
        byte = np.empty(trie.num_nodes, np.uint8)
        about = np.empty((trie.num_nodes, compiled.NUM_ABOUT_COLUMNS), np.int32)
        compiled.lay_out(trie.parent, trie.node_byte, trie.token_start, trie.token_ids, place_of, byte, about)
        for item in (place_of, byte, about):
            item.setflags(write=False)
        self.place_of = place_of
        self.nodes: Nodes = compiled.Nodes(byte, about, trie.token_start, trie.token_ids)
        self._free: list[_Memory] = []

    def borrow(self, least_room: int) -> _Memory:
        """Return scratch memory of at least some size, for this thread until it is given back."""
        try:
            memory = self._free.pop()
        except IndexError:  # to look first would leave time for another thread to take the last one
            memory = _Memory(_new_scratch(_FIRST_ROOM))
        return memory if len(memory.scratch.work) >= least_room else _Memory(_new_scratch(least_room))

    def give_back(self, memory: _Memory) -> None:
        """Take scratch memory for other walks."""
        self._free.append(memory)


class _Memory:
    """Scratch memory, and the frame that a walk finds it by.

    Attributes:
        scratch: the arrays.
        frame: their addresses, behind those of the trie and of the tables, which the walker fills in.
    """

    __slots__ = ("frame", "scratch")

    def __init__(self, scratch: Scratch) -> None:
        from structgen.kernels._numba import lane_walk as compiled

        self.scratch = scratch
        self.frame = np.zeros(compiled.FRAME_SIZE, np.int64)
        self.frame[compiled.FRAME_OF_SCRATCH :] = _places_of(scratch)


class LaneWalker:
    """Readers, lanes and gates, and the walks over them; for one thread at a time."""

    def __init__(self, trie: LaneTrie) -> None:
        """Start without any lane; num_lanes is how many there are."""
        self._trie = trie
        # Of each reader: what its row points into, which must live as long, and which bytes its words may begin with.
        self._readers: list[tuple[_Kept, int]] = []
        self._first_bytes_of_gates: dict[tuple[int, ...], npt.NDArray[np.int64]] = {}
        self.num_lanes = 0
        self._num_gates = 0
        self._use(_new_tables())

    def add_reader(self, dfa: CountedDfa) -> int:
        """Return the number of a new reader."""
        return self._add_reader(dfa, *_reader_row(dfa))

    def add_word(self, text: bytes) -> int:
        """Return the number of a new reader of one word, which is not empty."""
        from structgen.kernels._numba import lane_walk as compiled

        word = np.frombuffer(text, np.uint8)
        row = np.zeros(compiled.NUM_READER_COLUMNS, np.int64)
        row[compiled.WORD], row[compiled.LAST] = word.ctypes.data, len(text)
        return self._add_reader(word, row, 1 << text[0])

    def _add_reader(self, kept: _Kept, row: npt.NDArray[np.int64], first_bytes: int) -> int:
        number = len(self._readers)
        if number == len(self._tables.readers):
            self._use(self._tables._replace(readers=_grown(self._tables.readers)))
        self._tables.readers[number] = row
        self._readers.append((kept, first_bytes))
        return number

    def add_lane(self, reader: int) -> int:
        """Return the number of a new lane, which no gate starts."""
        lane = self.num_lanes
        self._place_lanes([reader])
        self.num_lanes = lane + 1
        return lane

    def add_gate(self, readers: tuple[int, ...]) -> int:
        """Return the number of a new gate; the next lanes start there, one a reader."""
        first, gate = self.num_lanes, self._num_gates
        self._place_lanes(readers)
        if gate == len(self._tables.gates):
            self._use(self._tables._replace(gates=_grown(self._tables.gates)))
        row = self._tables.gates[gate]
        row[0], row[1] = first, first + len(readers)
        row[2:] = self._first_bytes_of(readers)
        # Whoever is interrupted before this has added nothing.
        self.num_lanes, self._num_gates = first + len(readers), gate + 1
        return gate

    def _first_bytes_of(self, readers: tuple[int, ...]) -> npt.NDArray[np.int64]:
        known = self._first_bytes_of_gates.get(readers)
        if known is None:
            together = reduce(or_, [self._readers[reader][1] for reader in readers], 0)
            known = self._first_bytes_of_gates[readers] = np.frombuffer(together.to_bytes(32, "little"), np.int64)
        return known

    def _use(self, tables: Tables) -> None:
        frame = np.array([*_places_of(self._trie.nodes), *_places_of(tables)], np.int64)
        # Nothing can come in between: a frame must not outlive the tables that it points to.
        self._tables, self._frame = tables, frame

    def _place_lanes(self, readers: Sequence[int]) -> None:
        """Write lanes behind those that there are."""
        first, last = self.num_lanes, self.num_lanes + len(readers)
        while last > len(self._tables.lanes):
            self._use(self._tables._replace(lanes=_grown(self._tables.lanes)))
        # What follows a new lane is not known, as the table says from the start.
        if len(readers) == 1:
            self._tables.lanes[first, 0] = readers[0]
        else:
            self._tables.lanes[first:last, 0] = readers

    def walk(self, mask: Ints, starts: Sequence[Start], exits: Sequence[Exits], follow: Callable[[int], int]) -> None:
        """Set, in place, the bits of the tokens that go through from the starts, and from below the exits.

        Args:
            mask: (ceil(V / 32),) int32.
            starts: the lanes at the root.
            exits: where words that began before have ended.
            follow: gives the gate that follows a lane.
        """
        self._run(mask, starts, exits, follow, wants_ends=False)

    def walk_to_ends(
        self, mask: Ints, starts: Sequence[Start], exits: Sequence[Exits], follow: Callable[[int], int]
    ) -> Ends:
        """Do as walk, and return where the tokens end."""
        ends = self._run(mask, starts, exits, follow, wants_ends=True)
        if ends is None:
            raise ValueError("a walk that was to note ends has not done so")
        return ends

    def _run(
        self,
        mask: Ints,
        starts: Sequence[Start],
        exits: Sequence[Exits],
        follow: Callable[[int], int],
        *,
        wants_ends: bool,
    ) -> Ends | None:
        room = 1 + len(starts)
        while True:
            memory = self._trie.borrow(room)  # a walk that fails keeps it
            has_run = self._has_run(memory, mask, starts, exits, follow, wants_ends=wants_ends)
            found = _ends_in(memory.scratch) if has_run and wants_ends else None
            self._trie.give_back(memory)
            if has_run:
                return found
            room = 4 * len(memory.scratch.work)

    def _has_run(
        self,
        memory: _Memory,
        mask: Ints,
        starts: Sequence[Start],
        exits: Sequence[Exits],
        follow: Callable[[int], int],
        *,
        wants_ends: bool,
    ) -> bool:
        """Do the whole walk; return False if the scratch memory is too small."""
        from structgen.kernels._numba import lane_walk as compiled

        scratch, frame = memory.scratch, memory.frame
        scratch.sizes.fill(0)
        scratch.seen.fill(-1)
        if wants_ends:
            scratch.end_keys.fill(-1)
        if starts:
            scratch.work[: len(starts)] = [(lane, 0, state, count) for lane, state, count in starts]
        scratch.sizes[compiled.NUM_WORK] = len(starts)
        for one in exits:
            if not compiled.leave(self._trie.place_of, frame, one.nodes, one.gate, one.count, one.low, one.high):
                return False
        while True:
            frame[: compiled.FRAME_OF_SCRATCH] = self._frame  # which what was asked last may have replaced
            if not compiled.walk(frame, mask, wants_ends):
                return False
            num_asked = int(scratch.sizes[compiled.NUM_ASKED])
            if not num_asked:
                return True
            for lane in scratch.asked[:num_asked].tolist():
                gate = follow(lane)  # may replace the tables
                self._tables.lanes[lane, 1] = gate


@lru_cache(maxsize=4096)
def _reader_row(dfa: CountedDfa) -> tuple[npt.NDArray[np.int64], int]:
    """Return the row of a reader, and a bit for each byte that its words may begin with."""
    from structgen.kernels._numba import lane_walk as compiled

    row = np.zeros(compiled.NUM_READER_COLUMNS, np.int64)
    first_bytes = np.empty(4, np.int64)
    compiled.describe_reader(dfa.delta, dfa.tick_bytes, dfa.accepting, dfa.need, dfa.most, row, first_bytes)
    row[compiled.LOW], row[compiled.HIGH] = dfa.low, dfa.high
    row[compiled.IS_COUNTED] = int(dfa.low > 0 or dfa.high >= 0)
    return row, int.from_bytes(first_bytes.tobytes(), "little")


def _ends_in(scratch: Scratch) -> Ends:
    from structgen.kernels._numba import lane_walk as compiled

    num_ends, num_places = scratch.sizes[compiled.NUM_ENDS], scratch.sizes[compiled.NUM_PLACES]
    return Ends(scratch.ends[:num_ends].copy(), scratch.places[:num_places].copy())


def _new_tables() -> Tables:
    from structgen.kernels._numba import lane_walk as compiled

    return compiled.Tables(
        np.zeros((16, compiled.NUM_READER_COLUMNS), np.int64),
        np.full((64, 2), _UNKNOWN, np.int32),
        np.zeros((16, compiled.NUM_GATE_COLUMNS), np.int64),
    )


def _new_scratch(room: int) -> Scratch:
    """Return scratch memory; its hash tables need a power of two of places, or a search goes round without an end."""
    from structgen.kernels._numba import lane_walk as compiled

    room = 1 << (room - 1).bit_length()
    return compiled.Scratch(
        np.zeros(compiled.NUM_SIZES, np.int64),
        np.zeros((room, 4), np.int32),
        np.zeros((room, 2), np.int32),
        np.zeros(room, np.int32),
        np.full(2 * room, -1, np.int64),
        np.zeros((room, 3), np.int32),
        np.full(2 * room, -1, np.int64),
        np.zeros(2 * room, np.int32),
        np.zeros((4 * room, 2), np.int32),
    )


def _places_of(arrays: Iterable[npt.NDArray[np.generic]]) -> list[int]:
    """Return the address and the number of rows of each array."""
    return [number for item in arrays for number in (item.ctypes.data, len(item))]


def _grown(table: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return np.concatenate([table, np.full_like(table, _UNKNOWN)])


# ---------------------------------------------------------------------------------- obvious form, for the tests


def reference_ends(
    trie: ByteTrie,
    lanes: Callable[[int], tuple[CountedDfa, Callable[[], Sequence[int]]]],
    starts: Sequence[Start],
) -> set[tuple[int, int, int, int]]:
    """Return the (node, lane, state, count) at which nodes that hold tokens are reached, one byte after the other.

    Args:
        trie: the vocabulary.
        lanes: gives the DFA of a lane, and the lanes that follow it.
        starts: the lanes at the root.
    """
    at: dict[int, set[tuple[int, int, int]]] = {0: set(starts)}
    found = set()
    for node in range(1, trie.num_nodes):
        byte = int(trie.node_byte[node])
        reached: set[tuple[int, int, int]] = set()
        todo = list(at[int(trie.parent[node])])
        for lane, state, count in todo:
            after = _read(lanes(lane)[0], state, count, byte)
            if after is not None:
                reached.add((lane, *after))
        at[node] = set(reached)
        for lane, state, count in reached:
            dfa, following = lanes(lane)
            if dfa.accepting[state] and count >= dfa.low:
                at[node] |= {(one, 0, 0) for one in following()}
        if trie.token_start[node + 1] > trie.token_start[node]:
            found |= {(node, *place) for place in reached}
    return found


def _read(dfa: CountedDfa, state: int, count: int, byte: int) -> tuple[int, int] | None:
    after = int(dfa.delta[state, byte])
    if after < 0:
        return None
    if dfa.low == 0 and dfa.high < 0:
        return after, 0
    count += int(dfa.tick_bytes[state, byte])
    if dfa.high < 0:
        count = min(count, dfa.low)
    elif count + dfa.need[after] > dfa.high:
        return None
    return None if count + dfa.most[after] < dfa.low else (after, count)
