"""The keyed draw on the CPU: Philox words and the Gumbel-max over one row of logits.

The reference, the counter layout and the reasons are in structgen/kernels/gumbel.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit

# uint64 throughout: numba turns uint64 with a plain int into float64.
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)

# -log of the smallest u is 33 log 2 = 22.87; above it lies no noise. The excess absorbs rounding.
_MOST_NOISE = 22.9

# 1, and more than rounding can take away.
_SLACK = 1.000001

# Blocks of four tokens made at once: enough for the compiler to use vectors, few enough to pass over.
_NUM_BLOCKS = 16


@jit(types.uint32(types.uint64, array(types.uint64), types.uint32[::1]))
def fill_words(first_block: np.uint64, key: np.ndarray[Any, Any], words: np.ndarray[Any, Any]) -> Any:
    """Write the words of 4 * _NUM_BLOCKS neighbouring tokens and return the least of them.

    Args:
        first_block: Philox4x32-10 is taken of the counters (first_block + i, position, stream, 0).
        key: (seed low, seed high, position, stream).
        words: (4 * _NUM_BLOCKS,) result.
    """
    for block in range(_NUM_BLOCKS):
        c0 = (first_block + np.uint64(block)) & _LOW
        c1 = key[2]
        c2 = key[3]
        c3 = np.uint64(0)
        k0 = key[0]
        k1 = key[1]
        for _ in range(10):
            product_0 = _MULTIPLIER_0 * c0
            product_1 = _MULTIPLIER_1 * c2
            c0 = (product_1 >> _HALF) ^ c1 ^ k0
            c1 = product_1 & _LOW
            c2 = (product_0 >> _HALF) ^ c3 ^ k1
            c3 = product_0 & _LOW
            k0 = (k0 + _WEYL_0) & _LOW
            k1 = (k1 + _WEYL_1) & _LOW
        words[4 * block] = np.uint32(c0)
        words[4 * block + 1] = np.uint32(c1)
        words[4 * block + 2] = np.uint32(c2)
        words[4 * block + 3] = np.uint32(c3)
    least = words[0]
    for i in range(1, 4 * _NUM_BLOCKS):
        least = min(least, words[i])
    return least


@jit(types.float64(types.uint32))
def uniform(word: Any) -> Any:
    """Return u in (0, 1)."""
    return (np.float64(word) + 0.5) * 2.0**-32


@jit(types.float64(types.float64))
def least_growth(gap: Any) -> Any:
    """Return a lower bound of exp(gap), 1 if the gap is negative."""
    gap = max(gap, 0.0)
    return 1.0 + gap * (1.0 + gap * (0.5 + gap * (1.0 / 6.0 + gap * (1.0 / 24.0))))


@jit(types.int64(array(types.float32), types.float64))
def index_of(logits: np.ndarray[Any, Any], value: float) -> Any:
    """Return where a value first stands, 0 if nowhere."""
    for token_id in range(logits.shape[0]):
        if logits[token_id] == value:
            return token_id
    return 0


@jit(types.int64(array(types.float32), types.float64, types.float64, array(types.uint64)))
def argmax_with_noise(
    logits: np.ndarray[Any, Any], largest: float, inverse_temperature: float, key: np.ndarray[Any, Any]
) -> Any:
    """Return the id with the largest (logit - largest) * inverse_temperature + noise, the lowest of equals.

    A token can only win if its noise makes up for its gap to the best score so far, and g <= -log(u). So a group of
    neighbours is passed over without noise where even the most noise is too little, and without logarithms unless
    u <= 1 / least_growth(gap), which u <= exp(-gap) implies, for its best logit and least word. These are bounds, not
    approximations: the result is that of all scores.
    """
    num_tokens = logits.shape[0]
    group = 4 * _NUM_BLOCKS
    words = np.empty(group, dtype=np.uint32)
    best = -math.inf
    best_id = num_tokens
    least_logit = -math.inf
    # Starting where the largest logit stands gives a good bound at once.
    start = index_of(logits, largest) // group * group
    for turn in range(-1, (num_tokens + group - 1) // group):
        first = start if turn < 0 else turn * group
        if turn >= 0 and first == start:
            continue
        last = min(first + group, num_tokens)
        most = np.float32(-math.inf)
        for token_id in range(first, last):
            most = max(most, logits[token_id])
        if most < least_logit or most == -math.inf:
            continue
        least_word = fill_words(np.uint64(first // 4), key, words)
        if uniform(least_word) * least_growth(best - (most - largest) * inverse_temperature) > _SLACK:
            continue
        for token_id in range(first, last):
            score = (logits[token_id] - largest) * inverse_temperature
            u = uniform(words[token_id - first])
            if score == -math.inf or u * least_growth(best - score) > _SLACK:
                continue
            score -= math.log(-math.log1p(-u))
            if score > best or (score == best and token_id < best_id):
                best = score
                best_id = token_id
                least_logit = largest + (best - _MOST_NOISE) / inverse_temperature
    return best_id


@jit(types.int64(array(types.float32), array(types.int64), types.float64, types.float64, array(types.uint64)))
def argmax_of_few(
    logits: np.ndarray[Any, Any],
    token_ids: np.ndarray[Any, Any],
    largest: float,
    inverse_temperature: float,
    key: np.ndarray[Any, Any],
) -> Any:
    """Return the same id where only the logits of some tokens are there, which are named in ascending order."""
    group = 4 * _NUM_BLOCKS
    words = np.empty(group, dtype=np.uint32)
    known = np.int64(-1)
    best = -math.inf
    best_id = np.int64(-1)
    start = index_of(logits, largest)
    for turn in range(-1, logits.shape[0]):
        index = start if turn < 0 else turn
        if turn == start:
            continue
        score = (logits[index] - largest) * inverse_temperature
        if score == -math.inf or score + _MOST_NOISE < best:
            continue
        token_id = token_ids[index]
        if token_id // group != known:
            known = token_id // group
            fill_words(np.uint64(known * _NUM_BLOCKS), key, words)
        score -= math.log(-math.log1p(-uniform(words[token_id - known * group])))
        if score > best or (score == best and token_id < best_id):
            best = score
            best_id = token_id
    return best_id
