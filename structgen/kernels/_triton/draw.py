"""Parts of the sampler for CUDA: noise, and the border of a truncation among values in memory."""

from __future__ import annotations

import triton
import triton.language as tl

NO_ID = tl.constexpr(0x7FFFFFFF)

# Weights are summed as whole multiples of this share of the best one's, so that no order changes a sum.
_QUANTA = tl.constexpr(float(1 << 40))


@triton.jit
def exponential_of_words(words):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return -log1p(-(w + 1/2) / 2**32): the noise is minus its logarithm."""
    u = (words.to(tl.float32) + 0.5) * 2.0**-32
    rest = ((words ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * 2.0**-32
    # What rounding took from 1 - u is put back by the quotient, which is 1 where u is large.
    return tl.where(rest == 1.0, u, -tl.log(rest) * (u / tl.where(rest == 1.0, 1.0, 1.0 - rest)))


@triton.jit
def words_of_ids(ids, seed, position, stream):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return the word of each id, in any order."""
    c0, c1, c2, c3 = tl.philox(seed, (ids >> 2).to(tl.uint32), position.to(tl.uint32), stream.to(tl.uint32), 0)
    place = ids & 3
    return tl.where(place == 0, c0, tl.where(place == 1, c1, tl.where(place == 2, c2, c3)))


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def words_of_blocks(first, seed, position, stream, NUM: tl.constexpr):  # type: ignore[no-untyped-def]  # tensors
    """Return the words of 4 * NUM neighbours, four of each block."""
    blocks = (first // 4 + tl.arange(0, NUM)).to(tl.uint32)
    c0, c1, c2, c3 = tl.philox(seed, blocks, position.to(tl.uint32), stream.to(tl.uint32), 0)
    return tl.interleave(tl.interleave(c0, c2), tl.interleave(c1, c3))


@triton.jit
def key_of(z):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return int32 in the order of the values, none of which is nan or -0."""
    bits = z.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def logit_of(key):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return the value of a key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def quanta_of(weight):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return a weight, or a sum of weights, as a whole number."""
    return (weight * _QUANTA).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def amount_from(values, num, key, best, inverse_temperature, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]  # pointers
    """Return how many of the values have this key or a greater one, and the sum of their weights in quanta."""
    count = tl.zeros((CHUNK,), tl.int32)
    mass = tl.zeros((CHUNK,), tl.int64)
    for first in range(0, num, CHUNK):
        place = first + tl.arange(0, CHUNK)
        z = tl.load(values + place, mask=place < num, other=float("-inf"))
        is_in = key_of(z) >= key
        count += is_in.to(tl.int32)
        mass += tl.where(is_in, quanta_of(tl.exp((z - best) * inverse_temperature)), 0)
    return tl.sum(count), tl.sum(mass)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def border_key(  # type: ignore[no-untyped-def]  # pointers have no Python type
    values, num, least, best, inverse_temperature, most, target, CHUNK: tl.constexpr
):
    """Return the greatest key from which on there are `most` values or `target` quanta; that of least if there is none.

    Args:
        values: (num,) float32 in memory, none above best.
        num: how many there are.
        least: no border is below it.
        best: has the weight 1.
        inverse_temperature: of the weights.
        most: number of values.
        target: sum of weights.
        CHUNK: how many are looked at at once.
    """
    low = key_of(least).to(tl.int64)
    high = key_of(best).to(tl.int64)
    while low < high:
        middle = (low + high + 1) >> 1
        count, mass = amount_from(values, num, middle.to(tl.int32), best, inverse_temperature, CHUNK)
        is_enough = (count >= most) | (mass >= target)
        low = tl.where(is_enough, middle, low)
        high = tl.where(is_enough, high, middle - 1)
    return low.to(tl.int32)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def last_kept_id(  # type: ignore[no-untyped-def]  # pointers have no Python type
    values, ids, num, value, num_kept, num_tokens, CHUNK: tl.constexpr
):
    """Return the id up to which exactly num_kept of the values equal to one are, which are more."""
    low = 0
    high = num_tokens - 1
    while low < high:
        middle = (low + high) >> 1
        count = tl.zeros((CHUNK,), tl.int32)
        for first in range(0, num, CHUNK):
            place = first + tl.arange(0, CHUNK)
            z = tl.load(values + place, mask=place < num, other=float("-inf"))
            token = tl.load(ids + place, mask=place < num, other=NO_ID)
            count += ((z == value) & (token <= middle)).to(tl.int32)
        is_enough = tl.sum(count) >= num_kept
        high = tl.where(is_enough, middle, high)
        low = tl.where(is_enough, low, middle + 1)
    return low
