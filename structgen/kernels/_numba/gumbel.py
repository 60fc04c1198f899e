"""The keyed draw on the CPU: Philox words and the Gumbel-max over one row of logits.

The reference, the counter layout and the reasons are in structgen/kernels/gumbel.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit
from structgen.kernels._numba.border import Cut, is_kept
from structgen.kernels._numba.row import BLOCK, GROUP, Array, Changes, Row, legal_logits

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

# Four tokens share a block of the generator.
_NUM_BLOCKS = 16


@jit(types.uint32(types.int64, array(types.uint64), types.uint32[::1]))
def fill_words(group: int, key: Array, words: Array) -> Any:
    """Write the words of a group of tokens and return the least of them.

    Args:
        group: Philox4x32-10 is taken of the counters (block, position, stream, 0) of its blocks.
        key: (seed low, seed high, position, stream).
        words: (GROUP,) result; see `word_of_token`.
    """
    # Words of one kind stand together, so that the compiler can use vectors.
    for block in range(_NUM_BLOCKS):
        c0 = (np.uint64(group * _NUM_BLOCKS) + np.uint64(block)) & _LOW
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
        words[block] = np.uint32(c0)
        words[_NUM_BLOCKS + block] = np.uint32(c1)
        words[2 * _NUM_BLOCKS + block] = np.uint32(c2)
        words[3 * _NUM_BLOCKS + block] = np.uint32(c3)
    least = np.empty(_NUM_BLOCKS, dtype=np.uint32)
    for i in range(_NUM_BLOCKS):
        one = min(words[i], words[_NUM_BLOCKS + i])
        least[i] = min(one, min(words[2 * _NUM_BLOCKS + i], words[3 * _NUM_BLOCKS + i]))
    for i in range(4):
        least[i] = min(min(least[i], least[4 + i]), min(least[8 + i], least[12 + i]))
    return min(min(least[0], least[1]), min(least[2], least[3]))


@jit()
def word_of_token(words: Array, token_id: int) -> Any:
    """Return the word of a token among those of its group."""
    return words[(token_id & 3) * _NUM_BLOCKS + ((token_id & (GROUP - 1)) >> 2)]


@jit()
def uniform(word: Any) -> Any:
    """Return u in (0, 1)."""
    return (np.float64(word) + 0.5) * 2.0**-32


@jit()
def least_growth(gap: float) -> Any:
    """Return a lower bound of exp(gap), 1 if the gap is negative."""
    gap = max(gap, 0.0)
    return 1.0 + gap * (1.0 + gap * (0.5 + gap * (1.0 / 6.0 + gap * (1.0 / 24.0))))


@jit()
def place_of(values: Array, value: Any) -> Any:
    """Return where a value first stands; it is there."""
    place = 0
    while values[place] != value:
        place += 1
    return place


@jit()
def score_of(scaled: float, u: float, most: float) -> Any:
    """Return a score with its noise, -inf where a bound says that it is below most."""
    if u * least_growth(most - scaled) > _SLACK:
        return -math.inf
    return scaled - math.log(-math.log1p(-u))


@jit()
def draw_of_row(
    row: Row, changes: Changes, tops: Array, best: float, inverse_temperature: float, cut: Cut, key: Array
) -> Any:
    """Return the kept token with the largest (logit - best) * inverse_temperature + noise, the lowest of equals.

    A token can only win if its noise makes up for its gap to the best score so far, and g <= -log(u). So a group is
    passed over without noise where even the most noise is too little, and without logarithms unless
    u <= 1 / least_growth(gap), which u <= exp(-gap) implies, for its best logit and least word. These are bounds, not
    approximations: the result is that of all scores.
    """
    block, words = np.empty(BLOCK, dtype=np.float32), np.empty(GROUP, dtype=np.uint32)
    most, chosen, least = -math.inf, row.num, np.float64(cut.border)
    # Starting where the best logit stands gives a good bound at once.
    start = place_of(tops, best)
    for turn in range(-1, tops.shape[0]):
        group = start if turn < 0 else turn
        if turn == start or tops[group] < least or tops[group] == -math.inf:
            continue
        least_word = fill_words(group, key, words)
        if uniform(least_word) * least_growth(most - (tops[group] - best) * inverse_temperature) > _SLACK:
            continue
        legal_logits(row, changes, GROUP * group // BLOCK * BLOCK, block)
        z = block[GROUP * group % BLOCK :]
        for i in range(GROUP):
            token_id = GROUP * group + i
            if not is_kept(z[i], token_id, cut):
                continue
            score = score_of((z[i] - best) * inverse_temperature, uniform(word_of_token(words, i)), most)
            if score > most or (score == most and token_id < chosen):
                most, chosen = score, token_id
                least = max(least, best + (most - _MOST_NOISE) / inverse_temperature)
    return chosen


@jit()
def draw_of_few(values: Array, ids: Array, best: float, inverse_temperature: float, cut: Cut, key: Array) -> Any:
    """Return the place of the same token where only some are there, which are named in ascending order."""
    words = np.empty(GROUP, dtype=np.uint32)
    known = -1
    most, chosen = -math.inf, ids.shape[0]
    start = place_of(values, best)
    for turn in range(-1, ids.shape[0]):
        place = start if turn < 0 else turn
        scaled = (values[place] - best) * inverse_temperature
        if turn == start or scaled + _MOST_NOISE < most or not is_kept(values[place], ids[place], cut):
            continue
        if ids[place] // GROUP != known:
            known = ids[place] // GROUP
            fill_words(known, key, words)
        score = score_of(scaled, uniform(word_of_token(words, ids[place])), most)
        if score > most or (score == most and place < chosen):
            most, chosen = score, place
    return chosen
