"""Best logits, exponentials and sums of neighbours on the CPU, in loops that the compiler makes vectors of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import jit
from structgen.kernels._numba.row import BLOCK, GROUP, Array

# Adding it rounds a number to a whole one, which then is in the lowest bits.
_ROUNDING_32 = np.float32(12582912.0)
_ROUNDING_64 = 6755399441055744.0

# Below it exp(x) is no normal float32.
_LEAST_EXPONENT = np.float32(-87.0)

# A weight is a whole number of quanta, so sums have no order: 2 ** 20 tokens as good as the best one fit 64 bits. Added
# to a weight, _UNIT makes the quanta its lowest bits.
ONE = 1 << 43
_UNIT = 512.0
_UNIT_BITS = 4647714815446351872


@jit()
def fill_tops(z: Array, tops: Array) -> None:
    """Write the largest of each group of a block, which has no nan."""
    quarters = np.empty(16, dtype=np.float32)
    for number in range(BLOCK // GROUP):
        group = z[number * GROUP : (number + 1) * GROUP]
        for i in range(16):
            one = group[i] if group[i] > group[16 + i] else group[16 + i]
            other = group[32 + i] if group[32 + i] > group[48 + i] else group[48 + i]
            quarters[i] = one if one > other else other
        for i in range(4):
            one = quarters[i] if quarters[i] > quarters[4 + i] else quarters[4 + i]
            other = quarters[8 + i] if quarters[8 + i] > quarters[12 + i] else quarters[12 + i]
            quarters[i] = one if one > other else other
        tops[number] = max(max(quarters[0], quarters[1]), max(quarters[2], quarters[3]))


@jit()
def largest_of(values: Array) -> Any:
    """Return the largest of a few values, of which none is nan."""
    largest = values[0]
    for i in range(1, values.shape[0]):
        largest = max(largest, values[i])
    return largest


@jit(fastmath={"contract"})
def fill_exponentials(x: Array, peak: Any, weights: Array, whole: Array) -> None:
    """Write exp(value - peak) in float32, to the rounding of the difference; what is below exp(-87) is that.

    Args:
        x: a block of values, none above peak.
        peak: float32.
        weights: result.
        whole: scratch.
    """
    for i in range(BLOCK):
        exponent = x[i] - peak
        exponent = exponent if exponent > _LEAST_EXPONENT else _LEAST_EXPONENT
        power = exponent * np.float32(1.4426950408889634) + _ROUNDING_32
        whole[i] = power
        power -= _ROUNDING_32
        # What is left is in -log(2) / 2 .. log(2) / 2; log(2) is in two parts, so that nothing is lost.
        left = exponent - power * np.float32(0.693359375)
        left = left - power * np.float32(-2.12194440e-4)
        series = np.float32(1.9875691500e-4)
        series = series * left + np.float32(1.3981999507e-3)
        series = series * left + np.float32(8.3334519073e-3)
        series = series * left + np.float32(4.1665795894e-2)
        series = series * left + np.float32(1.6666665459e-1)
        series = series * left + np.float32(5.0000001201e-1)
        weights[i] = series * left * left + left + np.float32(1.0)
    bits = weights.view(np.int32)
    powers = whole.view(np.int32)
    for i in range(BLOCK):
        bits[i] += powers[i] << 23


@jit(fastmath={"reassoc"})
def sum_of(weights: Array) -> Any:
    """Return the sum of the weights of a block, in any order."""
    total = np.float32(0.0)
    for i in range(BLOCK):
        total += weights[i]
    return total


@jit()
def clear_illegal(weights: Array, z: Array) -> None:
    """Write 0, in place, for the weights of a block whose logit is -inf."""
    for i in range(BLOCK):
        weights[i] *= np.float32(z[i] > np.float32(-math.inf))


@jit(types.void(types.float32[::1], types.int64, types.float64, types.float64, types.int64[::1]), fastmath={"contract"})
def fill_quanta(z: Array, num: int, best: float, scale: float, quanta: Array) -> None:
    """Write 2 ** ((value - best) * scale) of num values in quanta, to 2e-10 of it and half a quantum; 0 for -inf.

    Args:
        z: values, none above best.
        num: how many.
        best: has ONE.
        scale: 1 / (temperature * log 2).
        quanta: int64 result.
    """
    weights = quanta.view(np.float64)
    whole = np.empty(num, dtype=np.int64)
    powers = whole.view(np.float64)
    for i in range(num):
        exponent: Any = (np.float64(z[i]) - best) * scale
        exponent = exponent if exponent > -1000.0 else -1000.0
        shifted = exponent + _ROUNDING_64
        x = exponent - (shifted - _ROUNDING_64)
        # The series of 2 ** x, |x| <= 1/2.
        series = 1.3215486790144307e-06
        series = series * x + 1.5252733804059840e-05
        series = series * x + 1.5403530393381610e-04
        series = series * x + 1.3333558146428443e-03
        series = series * x + 9.6181291076284772e-03
        series = series * x + 5.5504108664821580e-02
        series = series * x + 2.4022650695910071e-01
        series = series * x + 6.9314718055994531e-01
        weights[i] = series * x + 1.0
        powers[i] = shifted
    for i in range(num):
        quanta[i] += whole[i] << 52
    for i in range(num):
        weights[i] += _UNIT
    for i in range(num):
        quanta[i] -= _UNIT_BITS
