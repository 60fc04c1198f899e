"""A row of logits on the CPU, block by block: what is read, what is legal, what bias and penalties make of it.

The law and the plain form are in structgen/kernels/sample.py.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from structgen.kernels._numba import jit

Array = np.ndarray[Any, Any]

# Neighbours whose noise is made together, and whose best logit is known.
# No plain int: numba would compile what takes it once more for the literal.
GROUP: Any = np.int64(64)

# Neighbours that are read together, 8 groups: their numbers stay in the nearest cache, and of loops over so many the
# compiler makes vectors without a remainder, three times as fast as those of a length that it does not know.
BLOCK: Any = np.int64(512)

_INFINITY = np.float32(math.inf)


class Row(NamedTuple):
    """The logits of one row.

    Attributes:
        floats: (width,) float32; empty where they are of two bytes.
        halves: (width,) uint16, the bits of float16 or bfloat16 logits.
        is_bfloat16: which of the two.
        words: packed mask of the legal ones.
        num: how many there are; those past the width are -inf.
    """

    floats: Array
    halves: Array
    is_bfloat16: bool
    words: Array
    num: int


class Changes(NamedTuple):
    """Bias and penalties of a few tokens.

    Attributes:
        ids: (n,) the tokens, ascending.
        bias: (n,) float32, added to the logit.
        counts: (n,) how often each was generated.
        free_words: packed mask of the tokens that the penalties touch.
        is_everywhere: whether they touch all instead.
        repetition: float32, like the two that follow.
        presence: subtracted once.
        frequency: subtracted per count.
    """

    ids: Array
    bias: Array
    counts: Array
    free_words: Array
    is_everywhere: bool
    repetition: Any
    presence: Any
    frequency: Any


@jit()
def padded(num: int, size: int) -> Any:
    """Return the next multiple of a size."""
    return (num + size - 1) // size * size


@jit()
def widen(halves: Array, is_bfloat16: bool, x: Array) -> None:  # noqa: FBT001  # compiled code takes no keywords
    """Write the float32 of bits of two bytes, by shifts alone: there are no such numbers here."""
    bits = x.view(np.uint32)
    if is_bfloat16:
        for i in range(halves.shape[0]):
            bits[i] = np.uint32(halves[i]) << np.uint32(16)
        return
    for i in range(halves.shape[0]):
        bits[i] = (np.uint32(halves[i]) & np.uint32(0x7FFF)) << np.uint32(13)
    for i in range(halves.shape[0]):
        x[i] *= np.float32(2.0**112)  # the bias of the exponent; right for the smallest numbers too
    for i in range(halves.shape[0]):
        is_special = (np.uint32(halves[i]) & np.uint32(0x7C00)) == np.uint32(0x7C00)
        special = np.uint32(0x7F800000) if is_special else np.uint32(0)
        bits[i] |= special | (np.uint32(halves[i]) & np.uint32(0x8000)) << np.uint32(16)


@jit()
def load(row: Row, first: int, x: Array) -> Any:
    """Write the logits of a block as float32, infinity for nan; say whether one is nan."""
    is_wide = row.floats.shape[0] > 0
    known = max(0, min(BLOCK, (row.floats.shape[0] if is_wide else row.halves.shape[0]) - first))
    if not is_wide:
        widen(row.halves[first : first + known], row.is_bfloat16, x)
    elif known == BLOCK:
        part = row.floats[first : first + BLOCK]
        for i in range(BLOCK):
            x[i] = part[i]
    else:
        for i in range(known):
            x[i] = row.floats[first + i]
    for i in range(known, BLOCK):
        x[i] = -_INFINITY
    has_nan = False
    for i in range(BLOCK):
        has_nan |= x[i] != x[i]
    if has_nan:
        for i in range(BLOCK):
            x[i] = _INFINITY if x[i] != x[i] else x[i]
    return has_nan


@jit()
def word_of(words: Array, index: int) -> Any:
    """Return a word of a mask, which has no bits past its end."""
    return words[index] if index < words.shape[0] else np.int32(0)


@jit()
def has_bit(words: Array, token_id: int) -> Any:
    """Say whether a token is in a mask."""
    return (word_of(words, token_id >> 5) >> (token_id & 31)) & 1 == 1


@jit()
def has_legal(row: Row, first: int) -> Any:
    """Say whether any of a block is legal."""
    found = np.int32(0)
    for number in range(BLOCK // 32):
        found |= word_of(row.words, (first >> 5) + number)
    return found != 0


@jit()
def mask(row: Row, first: int, z: Array) -> Any:
    """Write -inf for the illegal logits of a block, in place; say whether all are legal."""
    is_all = True
    for start in range(0, BLOCK, 32):
        word = word_of(row.words, (first + start) >> 5)
        is_all &= word == -1
        if word == -1:  # the two common cases: inside a string, and beside it
            continue
        if word == 0:
            for j in range(32):
                z[start + j] = -_INFINITY
            continue
        for j in range(32):
            # Not what stands there or -inf: that would become a branch for each token.
            most = _INFINITY if (word >> j) & 1 else -_INFINITY
            z[start + j] = z[start + j] if z[start + j] < most else most
    return is_all


@jit()
def first_at_least(ids: Array, token_id: int) -> Any:
    """Return the first place of an ascending list at which an id is not below."""
    low, high = 0, ids.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < token_id:
            low = middle + 1
        else:
            high = middle
    return low


@jit()
def changed(z: Any, changes: Changes, place: int) -> Any:
    """Return a logit with the bias and the penalties of its token, infinity for nan."""
    z = np.float32(z + changes.bias[place])
    count = changes.counts[place]
    if count > 0 and (changes.is_everywhere or has_bit(changes.free_words, changes.ids[place])):
        if changes.repetition != np.float32(1.0):
            z = z / changes.repetition if z > np.float32(0.0) else z * changes.repetition
        z = np.float32(z - changes.presence)
        z = np.float32(z - np.float32(changes.frequency * np.float32(count)))
    return _INFINITY if z != z else z


@jit()
def change(row: Row, changes: Changes, first: int, z: Array) -> Any:
    """Apply bias and penalties to the legal logits of a block, in place; say whether there was anything to do."""
    if changes.ids.shape[0] == 0:
        return False
    is_done = False
    place = first_at_least(changes.ids, first)
    while place < changes.ids.shape[0] and changes.ids[place] < min(first + BLOCK, row.num):
        token_id = changes.ids[place]
        # An illegal token stays illegal, whatever is added.
        if has_bit(row.words, token_id):
            z[token_id - first] = changed(z[token_id - first], changes, place)
            is_done = True
        place += 1
    return is_done


@jit()
def change_named(ids: Array, changes: Changes, z: Array) -> None:
    """Apply bias and penalties, in place, to the logits of tokens that are named in ascending order."""
    for place in range(changes.ids.shape[0]):
        column = first_at_least(ids, changes.ids[place])
        if column < ids.shape[0] and ids[column] == changes.ids[place]:
            z[column] = changed(z[column], changes, place)


@jit()
def legal_logits(row: Row, changes: Changes, first: int, z: Array) -> None:
    """Write the logits of a block as they are drawn from, before temperature and truncation; -inf for illegal ones."""
    load(row, first, z)
    mask(row, first, z)
    change(row, changes, first, z)


@jit()
def reaches(tops: Array, group: int, bound: Any) -> Any:
    """Say whether the best logit of any group of a block, beginning with one, is at least a bound and above -inf."""
    found = False
    for number in range(group, min(group + BLOCK // GROUP, tops.shape[0])):
        found |= (tops[number] >= bound) & (tops[number] > -_INFINITY)
    return found


@jit()
def candidates(row: Row, changes: Changes, tops: Array, bound: Any) -> Any:
    """Return the logits that are at least a bound and above -inf, padded with -inf, and their tokens, ascending."""
    num = GROUP
    for group in range(tops.shape[0]):
        num += GROUP * ((tops[group] >= bound) & (tops[group] > -_INFINITY))
    # There is room for one more than there can be: each is written before it is known to be one.
    values, ids = np.empty(num, dtype=np.float32), np.empty(num, dtype=np.int32)
    z = np.empty(BLOCK, dtype=np.float32)
    place = 0
    for first in range(0, row.num, BLOCK):
        if not reaches(tops, first // GROUP, bound):
            continue
        legal_logits(row, changes, first, z)
        for start in range(0, BLOCK, GROUP):
            top = tops[(first + start) // GROUP]
            if top >= bound and top > -_INFINITY:
                for i in range(start, start + GROUP):
                    values[place] = z[i]
                    ids[place] = np.int32(first + i)
                    place += (z[i] >= bound) & (z[i] > -_INFINITY)
    end = padded(place, GROUP)
    values[place:end] = -_INFINITY
    return values[:end], ids[:place]
