"""Compiled walk of many lanes over a byte trie; what the arrays hold is said in kernels/lane_walk.py.

The tables of the readers stay where they are: a row of `readers` holds the addresses of their arrays, so that a
reader with thousands of states is added without a copy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]  # numba has no stubs

from structgen.kernels._numba import array, jit, pointer_to

Array = np.ndarray[Any, Any]

# Columns of readers; WORD is the address of the only word, 0 for a reader with tables, and then LAST is its length.
DELTA, TICKS, ACCEPTING, NEED, MOST, LOW, HIGH, LAST, IS_COUNTED, WORD = range(10)
NUM_READER_COLUMNS = 10

# Columns of gates: two of lanes, four words of 64 bits.
FIRST_LANE, LAST_LANE, FIRST_BYTES = range(3)
NUM_GATE_COLUMNS = 6

# Columns of what is known about a place of the trie; TOKEN is the only id there, NO_TOKEN or SEVERAL_TOKENS.
TOKEN, NODE, FIRST_CHILD, LAST_CHILD = range(4)
NUM_ABOUT_COLUMNS = 4
NO_TOKEN = -1
SEVERAL_TOKENS = -2

# Entries of sizes.
NUM_WORK, NUM_PENDING, NUM_ASKED, NUM_SEEN, NUM_ENDS, NUM_PLACES = range(6)
NUM_SIZES = 6


# A frame holds an address and a number of rows for each array of Nodes, Tables and Scratch, in this order: one argument
# instead of sixteen, each of which takes longer to hand over than a step of a walk.
FRAME_OF_SCRATCH, FRAME_SIZE = 14, 32


class Nodes(NamedTuple):
    """The trie by places: a node's children are side by side; place 0 is the root."""

    byte: Array
    about: Array
    token_start: Array
    token_ids: Array


class Tables(NamedTuple):
    """Readers, lanes and gates."""

    readers: Array
    lanes: Array
    gates: Array


class Scratch(NamedTuple):
    """What a walk has still to do, where it has been, and what it found."""

    sizes: Array
    work: Array
    pending: Array
    asked: Array
    seen: Array
    ends: Array
    end_keys: Array
    end_numbers: Array
    places: Array


_INTS = array(types.int32)
_OUT = types.int32[:, ::1]
_FLAGS = array(types.boolean, 2)
_LONGS = types.int64[::1]
_SCRATCH: Any = types.NamedTuple(  # type: ignore[no-untyped-call]  # numba has no stubs
    [_LONGS, _OUT, _OUT, types.int32[::1], _LONGS, _OUT, _LONGS, types.int32[::1], _OUT], Scratch
)
_ROW = types.int32[::1]


_ints_at = pointer_to(types.int32)
_bytes_at = pointer_to(types.uint8)
_longs_at = pointer_to(types.int64)


@jit(_SCRATCH(_LONGS))
def _scratch_at(frame: Array) -> Any:
    """Return the scratch memory of a frame."""
    at = frame[FRAME_OF_SCRATCH:]
    return Scratch(
        carray(_longs_at(at[0]), (at[1],)),
        carray(_ints_at(at[2]), (at[3], 4)),
        carray(_ints_at(at[4]), (at[5], 2)),
        carray(_ints_at(at[6]), (at[7],)),
        carray(_longs_at(at[8]), (at[9],)),
        carray(_ints_at(at[10]), (at[11], 3)),
        carray(_longs_at(at[12]), (at[13],)),
        carray(_ints_at(at[14]), (at[15],)),
        carray(_ints_at(at[16]), (at[17], 2)),
    )


@jit(types.int64(types.int64, types.int64, types.int64))
def _first_slot(high: Any, low: Any, num_slots: Any) -> Any:
    """Return where the search for a pair of numbers begins in a hash table of a power of two of slots."""
    mixed = np.uint64(high) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(low) * np.uint64(0xC2B2AE3D27D4EB4F)
    return np.int64(mixed >> np.uint64(32)) & (num_slots - 1)


@jit(types.boolean(_SCRATCH, *(types.int64,) * 4))
def _note_end(scratch: Scratch, lane: Any, node: Any, state: Any, count: Any) -> bool:
    """Note where a token ends: (lane, state, count) once, and (node, number of these); False if there is no room."""
    sizes = scratch.sizes
    keys = scratch.end_keys
    if 2 * sizes[NUM_ENDS] >= keys.shape[0] or sizes[NUM_PLACES] >= scratch.places.shape[0]:
        return False
    key = (lane << 32) | state
    slot = _first_slot(key, count, keys.shape[0])
    while keys[slot] >= 0 and (keys[slot] != key or scratch.ends[scratch.end_numbers[slot], 2] != count):
        slot = (slot + 1) & (keys.shape[0] - 1)
    if keys[slot] < 0:
        number = sizes[NUM_ENDS]
        keys[slot] = key
        scratch.end_numbers[slot] = number
        scratch.ends[number, 0] = lane
        scratch.ends[number, 1] = state
        scratch.ends[number, 2] = count
        sizes[NUM_ENDS] = number + 1
    scratch.places[sizes[NUM_PLACES], 0] = node
    scratch.places[sizes[NUM_PLACES], 1] = scratch.end_numbers[slot]
    sizes[NUM_PLACES] += 1
    return True


@jit(types.int64(_OUT, types.int64, types.int32[::1]))
def _list_asked(pending: Array, num_pending: Any, asked: Array) -> Any:
    """Fill the distinct lanes that are pending; return how many there are."""
    num_asked = 0
    for k in range(num_pending):
        is_known = False
        for i in range(num_asked - 1, -1, -1):
            if asked[i] == pending[k, 0]:
                is_known = True
                break
        if not is_known:
            asked[num_asked] = pending[k, 0]
            num_asked += 1
    return num_asked


@jit(types.boolean(_LONGS, _ROW, types.boolean))
def walk(  # noqa: C901, PLR0915  # one loop: an inner call that passes arrays on costs more than a step of the walk
    frame: Array,
    mask: Array,
    wants_ends: bool,  # noqa: FBT001  # compiled functions take no keywords
) -> bool:
    """Go on until nothing is left but what is pending; False if there is no room, and all is to do again.

    What was pending before comes first: the gates that follow the lanes asked for must be known by now.
    """
    scratch = _scratch_at(frame)
    bytes_of = carray(_bytes_at(frame[0]), (frame[1],))
    about = carray(_ints_at(frame[2]), (frame[3], NUM_ABOUT_COLUMNS))
    token_start = carray(_ints_at(frame[4]), (frame[5],))
    token_ids = carray(_ints_at(frame[6]), (frame[7],))
    readers = carray(_longs_at(frame[8]), (frame[9], NUM_READER_COLUMNS))
    lanes = carray(_ints_at(frame[10]), (frame[11], 2))
    gates = carray(_longs_at(frame[12]), (frame[13], NUM_GATE_COLUMNS))
    sizes, work, pending, seen = scratch.sizes, scratch.work, scratch.pending, scratch.seen
    num_work = sizes[NUM_WORK]
    if num_work + sizes[NUM_PENDING] > work.shape[0]:
        return False
    for k in range(sizes[NUM_PENDING]):
        work[num_work, 0] = ~lanes[pending[k, 0], 1]
        work[num_work, 1] = pending[k, 1]
        num_work += 1
    num_pending = 0
    num_seen = sizes[NUM_SEEN]
    while num_work > 0:
        num_work -= 1
        first = np.int64(work[num_work, 0])
        place = np.int64(work[num_work, 1])
        from_state = np.int64(work[num_work, 2])
        from_count = np.int64(work[num_work, 3])
        last = first + 1
        gate = ~first
        if gate >= 0:
            key = (gate << 32) | place
            slot = _first_slot(gate, place, seen.shape[0])
            while seen[slot] >= 0 and seen[slot] != key:
                slot = (slot + 1) & (seen.shape[0] - 1)
            if seen[slot] == key:
                continue
            seen[slot] = key
            num_seen += 1
            if 2 * num_seen >= seen.shape[0]:
                return False
            first = gates[gate, FIRST_LANE]
            last = gates[gate, LAST_LANE]
            from_state = from_count = np.int64(0)
        for child in range(about[place, FIRST_CHILD], about[place, LAST_CHILD]):
            byte = np.int64(bytes_of[child])
            if gate >= 0 and not (gates[gate, FIRST_BYTES + (byte >> 6)] >> (byte & 63)) & 1:
                continue
            for lane in range(first, last):
                reader = lanes[lane, 0]
                word = readers[reader, WORD]
                if word:
                    if from_state >= readers[reader, LAST] or _bytes_at(word)[from_state] != byte:
                        continue
                    after = from_state + 1
                else:
                    after = np.int64(_ints_at(readers[reader, DELTA])[(from_state << 8) + byte])
                    if after < 0:
                        continue
                count = from_count
                low = readers[reader, LOW]
                if readers[reader, IS_COUNTED]:
                    count += _bytes_at(readers[reader, TICKS])[(from_state << 8) + byte]
                    high = readers[reader, HIGH]
                    if high < 0:
                        count = min(count, low)
                    elif count + _ints_at(readers[reader, NEED])[after] > high:
                        continue
                    if count + _ints_at(readers[reader, MOST])[after] < low:
                        continue
                token = about[child, TOKEN]
                if token != NO_TOKEN:
                    if token != SEVERAL_TOKENS:
                        mask[token >> 5] |= np.int32(1) << np.int32(token & 31)
                    else:
                        node = about[child, NODE]
                        for k in range(token_start[node], token_start[node + 1]):
                            token = token_ids[k]
                            mask[token >> 5] |= np.int32(1) << np.int32(token & 31)
                    if wants_ends and not _note_end(scratch, lane, about[child, NODE], after, count):
                        return False
                if about[child, FIRST_CHILD] == about[child, LAST_CHILD]:
                    continue
                if num_work + 2 > work.shape[0]:
                    return False
                if after != readers[reader, LAST]:
                    work[num_work, 0] = lane
                    work[num_work, 1] = child
                    work[num_work, 2] = after
                    work[num_work, 3] = count
                    num_work += 1
                if word:
                    is_end = after == readers[reader, LAST]
                else:
                    is_end = count >= low and _bytes_at(readers[reader, ACCEPTING])[after] != 0
                if is_end:
                    following = np.int64(lanes[lane, 1])
                    if following < 0:
                        if num_pending >= pending.shape[0]:
                            return False
                        pending[num_pending, 0] = lane
                        pending[num_pending, 1] = child
                        num_pending += 1
                    elif gates[following, FIRST_LANE] < gates[following, LAST_LANE]:
                        work[num_work, 0] = ~following
                        work[num_work, 1] = child
                        num_work += 1
    sizes[NUM_WORK] = 0
    sizes[NUM_PENDING] = num_pending
    sizes[NUM_ASKED] = _list_asked(pending, num_pending, scratch.asked)
    sizes[NUM_SEEN] = num_seen
    return True


@jit(types.boolean(_INTS, _LONGS, array(types.int32, 2), *(types.int64,) * 4))
def leave(place_of: Array, frame: Array, exits: Array, gate: int, count: int, low: int, high: int) -> bool:
    """Make work of the gate at each node of exits, rows (node, ticks), whose ticks and count are within bounds.

    False if there is no room; high is -1 for no bound.
    """
    scratch = _scratch_at(frame)
    sizes, work = scratch.sizes, scratch.work
    num_work = sizes[NUM_WORK]
    if num_work + exits.shape[0] > work.shape[0]:
        return False
    for k in range(exits.shape[0]):
        total = count + exits[k, 1]
        if total >= low and (high < 0 or total <= high):
            work[num_work, 0] = ~gate
            work[num_work, 1] = place_of[exits[k, 0]]
            num_work += 1
    sizes[NUM_WORK] = num_work
    return True


@jit(types.void(array(types.int32, 2), _FLAGS, array(types.boolean), _INTS, _INTS, _LONGS, _LONGS))
def describe_reader(
    delta: Array, tick_bytes: Array, accepting: Array, need: Array, most: Array, row: Array, first_bytes: Array
) -> None:
    """Fill the columns of a reader that its arrays say, and a bit for each byte that its words may begin with."""
    row[DELTA] = delta.ctypes.data
    row[TICKS] = tick_bytes.ctypes.data
    row[ACCEPTING] = accepting.ctypes.data
    row[NEED] = need.ctypes.data
    row[MOST] = most.ctypes.data
    row[LAST] = -1  # a state that goes on with nothing accepts
    for state in range(delta.shape[0] - 1, -1, -1):
        if accepting[state]:
            is_last = True
            for byte in range(256):
                if delta[state, byte] >= 0:
                    is_last = False
                    break
            if is_last:
                row[LAST] = state
    first_bytes[:] = 0
    for byte in range(256):
        if delta[0, byte] >= 0:
            first_bytes[byte >> 6] |= np.int64(1) << np.int64(byte & 63)


@jit(types.void(_INTS, array(types.uint8), _INTS, _INTS, _ROW, types.uint8[::1], _OUT))
def lay_out(
    parent: Array,
    node_byte: Array,
    token_start: Array,
    token_ids: Array,
    place_of: Array,
    byte: Array,
    about: Array,
) -> None:
    """Fill the place of each node, and the byte and the facts of each place; nodes come depth first, 0 is the root."""
    num_nodes = parent.shape[0]
    start = np.zeros(num_nodes + 1, np.int32)
    for node in range(1, num_nodes):
        start[parent[node] + 1] += 1
    start[0] = 1  # the place after the root's
    for node in range(num_nodes):
        start[node + 1] += start[node]
    free = start[:num_nodes].copy()
    place_of[0] = 0
    for node in range(1, num_nodes):
        place_of[node] = free[parent[node]]
        free[parent[node]] += 1
    for node in range(num_nodes):
        place = place_of[node]
        num_tokens = token_start[node + 1] - token_start[node]
        byte[place] = node_byte[node]
        about[place, TOKEN] = NO_TOKEN
        if num_tokens == 1:
            about[place, TOKEN] = token_ids[token_start[node]]
        elif num_tokens > 1:
            about[place, TOKEN] = SEVERAL_TOKENS
        about[place, NODE] = node
        about[place, FIRST_CHILD] = start[node]
        about[place, LAST_CHILD] = start[node + 1]
