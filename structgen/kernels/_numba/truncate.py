"""Truncation of a row on the CPU; the law and the plain form are in structgen/kernels/truncate.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit

_NUM_BINS = 2048
_LAST_BIN = float(_NUM_BINS)

# Weights of this many values are made at once.
_BLOCK = 512

# Bins reach this far below the best token, in nats after the temperature: all that lies lower is less than the slack.
_REACH = 32.0

# Adding it rounds a number to a whole one, which then is in the lowest bits.
_ROUNDING = 6755399441055744.0

# A logit, and how many of its equals are kept.
_BORDER = types.UniTuple(types.float64, 2)  # type: ignore[no-untyped-call]  # numba ships no types


@jit(types.void(array(types.float32), types.int64, types.int64, types.float64, types.float64, types.float64[::1]))
def fill_weights(
    values: np.ndarray[Any, Any], first: int, last: int, largest: float, scale: float, weights: np.ndarray[Any, Any]
) -> None:
    """Write 2 ** ((value - largest) * scale), to 2e-10 of it and the same for a value wherever it stands; 0 for -inf.

    Args:
        values: (n,) no nan, none above largest.
        first: the first value that is taken.
        last: the one after the last; last - first is at most _BLOCK.
        largest: has the weight 1.
        scale: 1 / (temperature * log 2).
        weights: (_BLOCK,) result.
    """
    # Loops that the compiler can use vectors for: from 0, by one branch-free expression.
    block = values[first:last]
    whole = np.empty(_BLOCK, dtype=np.float64)
    for i in range(block.shape[0]):
        exponent = (block[i] - largest) * scale
        exponent = exponent if exponent > -1000.0 else -1000.0
        shifted = exponent + _ROUNDING
        x = exponent - (shifted - _ROUNDING)
        # The series of 2 ** x, |x| <= 1/2.
        total = 1.3215486790144307e-06
        total = total * x + 1.5252733804059840e-05
        total = total * x + 1.5403530393381610e-04
        total = total * x + 1.3333558146428443e-03
        total = total * x + 9.6181291076284772e-03
        total = total * x + 5.5504108664821580e-02
        total = total * x + 2.4022650695910071e-01
        total = total * x + 6.9314718055994531e-01
        weights[i] = total * x + 1.0
        whole[i] = shifted
    bits = weights.view(np.int64)
    powers = whole.view(np.int64)
    for i in range(block.shape[0]):
        bits[i] += powers[i] << 52
    for i in range(block.shape[0]):
        weights[i] = weights[i] if block[i] > -math.inf else 0.0


@jit(_BORDER(array(types.float32), types.int64[::1], types.float64, types.float64, types.int64, types.float64))
def end_of_prefix(
    values: np.ndarray[Any, Any],
    order: np.ndarray[Any, Any],
    largest: float,
    scale: float,
    num_left: int,
    mass_left: float,
) -> Any:
    """Return the value at which a prefix ends, and how many of the values equal to it are in it.

    Args:
        values: values of which the prefix takes some; there may be none, and the end is -inf.
        order: their places, greatest value first.
        largest: has the weight 1.
        scale: of the weights.
        num_left: the most values it takes.
        mass_left: the sum of weights at which it ends.
    """
    weights = np.empty(_BLOCK, dtype=np.float64)
    mass = 0.0
    one = np.empty(1, dtype=np.float32)
    value = np.float32(math.inf)
    num_equal = 0
    for number in range(order.shape[0]):
        if values[order[number]] != value:
            value = values[order[number]]
            num_equal = 0
            one[0] = value
            fill_weights(one, 0, 1, largest, scale, weights)
        num_equal += 1
        mass += weights[0]
        if number + 1 >= num_left or mass >= mass_left:
            return float(value), float(num_equal)
    # Rounding may lead past the last one; where there is none nothing is cut.
    return (float(value), float(num_equal)) if num_equal else (-math.inf, 0.0)


@jit(_BORDER(array(types.float32), types.float64, types.float64, types.int64, types.float64))
def border(row: np.ndarray[Any, Any], largest: float, inverse_temperature: float, top_k: int, share: float) -> Any:
    """Return the least logit of the shorter prefix, and how many of its equals are kept; -inf if nothing is cut."""
    num_tokens = row.shape[0]
    is_weighed = share < 1.0
    scale = inverse_temperature * 1.4426950408889634
    # Flat rows are binned finely too; without top_p the temperature is nothing to the order.
    reach = _REACH * (min(1.0 / inverse_temperature, 2.0) if is_weighed else 2.0)
    by_distance = _NUM_BINS / reach
    # The last bin has all that is farther. Illegal tokens go to further ones: in one they would wait for each other.
    counts = np.zeros(_NUM_BINS + 9, dtype=np.int64)
    masses = np.zeros(_NUM_BINS + 9, dtype=np.float64)
    weights = np.zeros(_BLOCK, dtype=np.float64)
    bins = np.zeros(_BLOCK, dtype=np.uint32)  # unsigned: numba wraps negative places
    for first in range(0, num_tokens, _BLOCK):
        last = min(first + _BLOCK, num_tokens)
        if is_weighed:
            fill_weights(row, first, last, largest, scale, weights)
        block = row[first:last]
        for i in range(block.shape[0]):
            distance = (largest - block[i]) * by_distance
            place = np.uint32(distance if distance < _LAST_BIN else _LAST_BIN)
            bins[i] = place if block[i] > -math.inf else np.uint32(_NUM_BINS + 1 + (i & 7))
        if is_weighed:
            for i in range(block.shape[0]):
                counts[bins[i]] += 1
                masses[bins[i]] += weights[i]
        else:
            for i in range(block.shape[0]):
                counts[bins[i]] += 1
    target = share * masses.sum() if is_weighed else math.inf
    num_before = 0
    mass_before = 0.0
    end = 0
    while end < _NUM_BINS and num_before + counts[end] < top_k and mass_before + masses[end] < target:
        num_before += counts[end]
        mass_before += masses[end]
        end += 1
    members = np.empty(counts[end], dtype=np.float32)
    num = 0
    for token_id in range(num_tokens):
        distance = min((largest - row[token_id]) * by_distance, _LAST_BIN)
        if distance >= end and distance < end + 1 and row[token_id] > -math.inf:
            members[num] = row[token_id]
            num += 1
    members = members[:num]
    return end_of_prefix(members, np.argsort(-members), largest, scale, top_k - num_before, target - mass_before)


@jit(types.void(types.float32[::1], types.float64, types.float64, types.int64, types.float64, types.float64))
def truncate_row(
    row: np.ndarray[Any, Any], largest: float, inverse_temperature: float, top_k: int, share: float, least: float
) -> None:
    """Write -inf outside the first top_k, outside the prefix that has the share of the mass, and below least."""
    num_tokens = row.shape[0]
    value = -math.inf
    num_kept = 0.0
    if top_k < num_tokens or share < 1.0:
        value, num_kept = border(row, largest, inverse_temperature, top_k, share)
    bound = np.float32(max(value, least))
    for token_id in range(num_tokens):
        row[token_id] = row[token_id] if row[token_id] >= bound else np.float32(-math.inf)
    if value >= least and value > -math.inf:
        for token_id in range(num_tokens):
            if row[token_id] == bound:
                if num_kept <= 0.0:
                    row[token_id] = -math.inf
                num_kept -= 1.0
