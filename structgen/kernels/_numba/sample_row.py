"""A draw on the CPU: one read of the logits for masses and best values, then only of the groups that still matter.

The law and the plain form are in structgen/kernels/sample.py.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit
from structgen.kernels._numba.border import Cut, Prefix, end_of_prefix, is_kept, place_of_equal, total_quanta
from structgen.kernels._numba.gumbel import draw_of_few, draw_of_row, place_of
from structgen.kernels._numba.row import (
    BLOCK,
    GROUP,
    Array,
    Changes,
    Row,
    candidates,
    change,
    change_named,
    has_legal,
    load,
    mask,
    padded,
)
from structgen.kernels._numba.weights import (
    ONE,
    clear_illegal,
    fill_exponentials,
    fill_quanta,
    fill_tops,
    largest_of,
    sum_of,
)

# Weights of legal tokens that are so far below the largest logit are summed relative to their own best one.
_FAR = 60.0

_MOST_FLOAT = np.float32(3.4028235e38)
_INFINITY = np.float32(math.inf)


class Sums(NamedTuple):
    """What is known of the logits so far, as they were given.

    Attributes:
        largest: (2,) float32, of all of them, and of the legal ones.
        free: (1,) sum of exponentials of all relative to their largest.
        legal: (1,) of the legal ones, relative to the same.
    """

    largest: Array
    free: Array
    legal: Array


@jit()
def masses_of(row: Row, changes: Changes, sums: Sums) -> Any:
    """Return the log-sum-exp of a row without nan, and -log of the legal share of it."""
    largest, best_legal = np.float64(sums.largest[0]), np.float64(sums.largest[1])
    log_sum = largest if math.isinf(largest) else largest + math.log(sums.free[0])
    # Whoever has an infinity has all of the mass.
    if largest == math.inf or best_legal == -math.inf:
        return log_sum, math.inf
    if best_legal < largest - _FAR:
        # As they were given: without the changes of any token.
        no_changes = Changes(
            changes.ids[:0], changes.bias, changes.counts, changes.free_words, changes.is_everywhere,
            changes.repetition, changes.presence, changes.frequency,
        )  # fmt: skip
        every = np.full(padded(row.num, BLOCK) // GROUP, _INFINITY)
        total = total_quanta(row, no_changes, every, best_legal, 1.4426950408889634)
        return log_sum, log_sum - (best_legal + math.log(total / ONE))
    return log_sum, max(0.0, -math.log(sums.legal[0] / sums.free[0]))


@jit()
def add_free(z: Array, tops: Array, weights: Array, whole: Array, sums: Sums) -> Any:
    """Write the best of each group of a block, add its exponentials, and return what was added; see `measure`."""
    fill_tops(z, tops)
    largest = largest_of(tops)
    if largest > sums.largest[0]:
        peak, before = min(largest, _MOST_FLOAT), max(sums.largest[0], -_MOST_FLOAT)
        shrink = math.exp(np.float64(before) - np.float64(peak))
        sums.free[0] *= shrink
        sums.legal[0] *= shrink
        sums.largest[0] = largest
    fill_exponentials(z, max(min(sums.largest[0], _MOST_FLOAT), -_MOST_FLOAT), weights, whole)
    added = sum_of(weights)
    sums.free[0] += added
    return added


@jit()
def measure(row: Row, changes: Changes, has_masses: bool, tops: Array) -> Any:  # noqa: FBT001  # no keywords there
    """Write the best logit of each group; return the log-sum-exp of the row and -log of the legal share, or nan."""
    z = np.empty(BLOCK, dtype=np.float32)
    weights, whole = np.empty(BLOCK, dtype=np.float32), np.empty(BLOCK, dtype=np.float32)
    sums = Sums(np.full(2, -_INFINITY), np.zeros(1, dtype=np.float64), np.zeros(1, dtype=np.float64))
    num_nans = 0
    for first in range(0, row.num, BLOCK):
        block_tops = tops[first // GROUP : (first + BLOCK) // GROUP]
        has_legal_here = has_legal(row, first)
        if has_masses or has_legal_here:
            num_nans += load(row, first, z)
        added = add_free(z, block_tops, weights, whole, sums) if has_masses else np.float32(0.0)
        if not has_legal_here:
            block_tops[:] = -_INFINITY
            continue
        is_all = mask(row, first, z)
        if not (has_masses and is_all):
            fill_tops(z, block_tops)
        if has_masses:
            sums.largest[1] = max(sums.largest[1], largest_of(block_tops))
            if not is_all:
                clear_illegal(weights, z)
                added = sum_of(weights)
            sums.legal[0] += added
        if change(row, changes, first, z):
            fill_tops(z, block_tops)
    if not has_masses or num_nans > 0:
        return math.nan, math.nan
    return masses_of(row, changes, sums)


@jit()
def end_of_weighed(values: Array, total: int, best: float, inverse_temperature: float, top_k: int, share: float) -> Any:
    """Return where the shorter of the prefixes of top_k and top_p ends, see `end_of_prefix`."""
    mass = max(1, math.ceil(share * total)) if share < 1.0 else 1 << 62
    scale = inverse_temperature * 1.4426950408889634
    return end_of_prefix(values, Prefix(top_k, mass, best, scale, share < 1.0))


@jit()
def quanta_of(values: Array, best: float, inverse_temperature: float) -> Any:
    """Return the sum of the weights of a few values."""
    quanta = np.empty(values.shape[0], dtype=np.int64)
    fill_quanta(values, values.shape[0], best, inverse_temperature * 1.4426950408889634, quanta)
    return quanta.sum()


@jit()
def cut_of(
    row: Row,
    changes: Changes,
    tops: Array,
    ids: Array,
    best: float,
    temperature: float,
    top_k: int,
    share: float,
    least: float,
) -> Cut:
    """Return what of a row may be drawn.

    Args:
        row: the logits.
        changes: bias and penalties.
        tops: the best logit of each group; where tokens are named, the logits of these instead.
        ids: the tokens that are named, in ascending order; empty where the row is of all.
        best: the best logit.
        temperature: of the weights.
        top_k: the most tokens.
        share: of the probability; 1 or more is all of it.
        least: the least logit.
    """
    inverse_temperature, is_named = 1.0 / temperature, ids.shape[0] > 0
    uncut = Cut(np.float32(least), np.int64(1 << 62))
    if top_k >= row.num and share >= 1.0:
        return uncut
    total = 0
    if share < 1.0 and is_named:
        total = quanta_of(tops, best, inverse_temperature)
    elif share < 1.0:
        total = total_quanta(row, changes, tops, best, inverse_temperature * 1.4426950408889634)
    if is_named:
        border, num_equal = end_of_weighed(tops, total, best, inverse_temperature, top_k, share)
        return uncut if border < least else Cut(border, ids[min(place_of_equal(tops, border, num_equal), row.num - 1)])
    bound = np.float32(least)
    if share < 1.0:
        # All that is smaller together has less than half of what is left out.
        smallest = 0.5 * (1.0 - share) * (total / ONE) / row.num
        bound = max(bound, np.float32(best + temperature * math.log(smallest)))
    bound = max(bound, end_of_weighed(tops, total, best, inverse_temperature, top_k, share)[0])
    values, found = candidates(row, changes, tops, bound)
    border, num_equal = end_of_weighed(values, total, best, inverse_temperature, top_k, share)
    place = min(place_of_equal(values, border, num_equal), found.shape[0] - 1)
    return uncut if border < least else Cut(border, np.int64(found[place]))


@jit()
def write_kept(row: Row, changes: Changes, tops: Array, ids: Array, cut: Cut, kept: Array) -> None:
    """Write the logits that may be drawn, -inf elsewhere; `tops` and `ids` as in `cut_of`."""
    kept[:] = np.float32(-math.inf)
    if ids.shape[0] > 0:
        for place in range(ids.shape[0]):
            if is_kept(tops[place], ids[place], cut):
                kept[place] = tops[place]
        return
    values, found = candidates(row, changes, tops, cut.border)
    for place in range(found.shape[0]):
        if is_kept(values[place], found[place], cut):
            kept[found[place]] = values[place]


_FLOATS = array(types.float32)
_RESULT = types.Tuple((types.int64, types.float32, types.float64, types.float64))  # type: ignore[no-untyped-call]  # numba has no stubs


@jit(
    _RESULT(
        _FLOATS, array(types.uint16), types.boolean, array(types.int32), array(types.int64), types.int64,
        array(types.int64), _FLOATS, array(types.int32), array(types.int32), types.boolean,
        array(types.float64), types.int64, array(types.uint64), types.boolean, types.float32[::1],
    )
)  # fmt: skip
def sample_row(
    floats: Array,
    halves: Array,
    is_bfloat16: bool,  # noqa: FBT001  # no keywords there
    words: Array,
    ids: Array,
    num: int,
    changed_ids: Array,
    bias: Array,
    counts: Array,
    free_words: Array,
    is_everywhere: bool,  # noqa: FBT001  # no keywords there
    numbers: Array,
    top_k: int,
    key: Array,
    has_masses: bool,  # noqa: FBT001  # no keywords there
    kept: Array,
) -> Any:
    """Draw from a row, or write what is drawn from.

    Args:
        floats: see `Row`; the three that follow too.
        halves: see there.
        is_bfloat16: see there.
        words: see there.
        ids: the tokens that the logits are of, in ascending order; empty where they are of all.
        num: of tokens that the logits are of.
        changed_ids: see `Changes`, `ids`; the four that follow too.
        bias: see there.
        counts: see there.
        free_words: see there.
        is_everywhere: see there.
        numbers: temperature, share of top_p, logarithm of min_p, repetition, presence and frequency penalty.
        top_k: the most tokens.
        key: of the noise; empty to draw nothing, as where `kept` is wanted.
        has_masses: whether the masses are wanted; of named tokens there are none.
        kept: (num,) for what is drawn from; empty if nobody wants it.

    Returns:
        The token that is drawn, -1 if none; the best logit: infinity if one is no number, and nothing is drawn then,
        nor if it is -inf; the log-sum-exp of the row, and -log of the legal share of it, or nan.
    """
    row = Row(floats, halves, is_bfloat16, words, num)
    changes = Changes(
        changed_ids, bias, counts, free_words, is_everywhere,
        np.float32(numbers[3]), np.float32(numbers[4]), np.float32(numbers[5]),
    )  # fmt: skip
    is_named = ids.shape[0] > 0
    log_sum, lost = math.nan, math.nan
    # The best logit of each group, or else the logits of the tokens that are named.
    tops = np.full(padded(num if is_named else padded(num, BLOCK) // GROUP, BLOCK), -_INFINITY)
    if is_named:
        for first in range(0, num, BLOCK):
            load(row, first, tops[first:])
        change_named(ids, changes, tops)
    else:
        log_sum, lost = measure(row, changes, has_masses, tops)
    tops = tops[: padded(num if is_named else padded(num, BLOCK) // GROUP, GROUP)]
    best_logit = largest_of(tops)
    best = np.float64(best_logit)
    if math.isinf(best) or (key.shape[0] == 0 and kept.shape[0] == 0):
        return -1, best_logit, log_sum, lost
    token_id = np.int64(-1)
    temperature = numbers[0] if numbers[0] > 0.0 else 1.0
    cut = Cut(-_INFINITY, np.int64(num))
    if numbers[0] > 0.0:  # greedy: the best token is in every truncation
        least = np.float64(np.float32(best + temperature * numbers[2]))
        cut = cut_of(row, changes, tops, ids, best, temperature, top_k, numbers[1], least)
    if kept.shape[0] > 0:
        write_kept(row, changes, tops, ids, cut, kept)
    elif numbers[0] == 0.0:
        token_id = ids[place_of(tops, best)] if is_named else np.int64(candidates(row, changes, tops, best_logit)[1][0])
    elif is_named:
        token_id = ids[draw_of_few(tops, ids, best, 1.0 / temperature, cut, key)]
    else:
        token_id = draw_of_row(row, changes, tops, best, 1.0 / temperature, cut, key)
    return token_id, best_logit, log_sum, lost
