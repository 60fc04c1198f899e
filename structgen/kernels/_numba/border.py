"""Where a truncation cuts some logits on the CPU, without sorting them.

They are counted in bins by their distance from the best one, and the end of the prefix of top_k and top_p is looked for
among the members of one bin. Weights are whole numbers, so nothing hangs on an order: the legal tokens alone are cut as
they are among all. The best logits of groups bound the border from below, by the same search: if those of k groups
reach a value, so do k logits, and the same goes for their weights.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from structgen.kernels._numba import jit
from structgen.kernels._numba.row import BLOCK, GROUP, Array, Changes, Row, legal_logits, padded, reaches
from structgen.kernels._numba.weights import fill_quanta

_MOST_BINS = 2048

# Beyond this many times the temperature a weight is less than half a quantum.
_WEIGHED_REACH = 31.0


class Cut(NamedTuple):
    """What may be drawn: logits above a border, and its equals up to a token.

    Attributes:
        border: float32; -inf where nothing is cut.
        last_id: of those equal to it.
    """

    border: Any
    last_id: Any


class Prefix(NamedTuple):
    """What ends the prefix of top_k and top_p.

    Attributes:
        most: number of tokens.
        mass: sum of weights, in quanta.
        best: the best logit, which has the weight ONE.
        scale: of the weights.
        is_weighed: whether the mass is looked at.
    """

    most: int
    mass: int
    best: float
    scale: float
    is_weighed: bool


@jit()
def total_quanta(row: Row, changes: Changes, tops: Array, best: float, scale: float) -> Any:
    """Return the sum of the weights of the legal tokens."""
    z, quanta = np.empty(BLOCK, dtype=np.float32), np.empty(BLOCK, dtype=np.int64)
    least = best - _WEIGHED_REACH / (scale * math.log(2.0))
    total = 0
    for first in range(0, row.num, BLOCK):
        if reaches(tops, first // GROUP, least):
            legal_logits(row, changes, first, z)
            fill_quanta(z, BLOCK, best, scale, quanta)
            for i in range(BLOCK):
                total += quanta[i]
    return total


@jit()
def lowest_of(values: Array, best: float) -> Any:
    """Return the lowest value above -inf."""
    lowest = best
    for i in range(values.shape[0]):
        lowest = min(lowest, np.float64(values[i]) if values[i] > -math.inf else best)
    return lowest


@jit()
def fill_bins(values: Array, best: float, by_distance: float, num_bins: int, bins: Array) -> None:
    """Write the bin of each value by its distance from the best one, past the last for -inf."""
    most = np.float64(num_bins)
    for i in range(values.shape[0]):
        distance = (best - values[i]) * by_distance
        # Of what is -inf there may be much, which would wait for each other in one place.
        bins[i] = np.uint32(distance) if values[i] > -math.inf else np.uint32(most + (i & 7))


@jit()
def key_of(z: Any) -> Any:
    """Return an integer in the order of the values, of which none is nan; the same for both zeros."""
    bits = np.int64(np.float32(z + np.float32(0.0)).view(np.int32))
    return bits if bits >= 0 else np.int64(-0x80000000) - bits


@jit()
def end_among(members: Array, quanta: Array, num_left: int, mass_left: int) -> Any:
    """Return the value at which a prefix of some values ends, and how many of its equals are in it.

    Args:
        members: values, at least one; the prefix ends among them.
        quanta: their weights.
        num_left: the most values it takes.
        mass_left: the sum of weights at which it ends.
    """
    low, high = key_of(members[0]), key_of(members[0])
    for i in range(1, members.shape[0]):
        low, high = min(low, key_of(members[i])), max(high, key_of(members[i]))
    while low < high:
        middle = (low + high + 1) >> 1
        num, mass = 0, 0
        for i in range(members.shape[0]):
            is_in = key_of(members[i]) >= middle
            num += is_in
            mass += quanta[i] if is_in else 0
        if num >= num_left or mass >= mass_left:
            low = middle
        else:
            high = middle - 1
    value, weight = np.float32(0.0), 1
    for i in range(members.shape[0]):
        key = key_of(members[i])
        if key > low:
            num_left -= 1
            mass_left -= quanta[i]
        elif key == low:
            value, weight = members[i], max(1, quanta[i])
    return value, min(num_left, (mass_left - 1) // weight + 1)


@jit()
def end_of_prefix(values: Array, prefix: Prefix) -> Any:
    """Return the value at which a prefix ends, and how many of its equals are in it; -inf if it takes all.

    Args:
        values: a multiple of GROUP of them, none above the best.
        prefix: what ends it.
    """
    bins, quanta = np.empty(BLOCK, dtype=np.uint32), np.zeros(BLOCK, dtype=np.int64)
    num_bins = min(_MOST_BINS, values.shape[0])
    lowest = lowest_of(values, prefix.best)
    # A bit less, so that rounding does not lead past the last bin.
    by_distance = 0.0 if lowest == prefix.best else (num_bins - 1e-6) / (prefix.best - lowest)
    counts, masses = np.zeros(num_bins + 8, dtype=np.int64), np.zeros(num_bins + 8, dtype=np.int64)
    for first in range(0, values.shape[0], BLOCK):
        part = values[first : first + BLOCK]
        fill_bins(part, prefix.best, by_distance, num_bins, bins)
        if prefix.is_weighed:
            fill_quanta(part, part.shape[0], prefix.best, prefix.scale, quanta)
        for i in range(part.shape[0]):
            counts[bins[i]] += 1
            masses[bins[i]] += quanta[i]
    num_left, mass_left, end = prefix.most, prefix.mass, 0
    while end < num_bins and counts[end] < num_left and masses[end] < mass_left:
        num_left -= counts[end]
        mass_left -= masses[end]
        end += 1
    if end == num_bins:
        return np.float32(-math.inf), 0
    # There is room for one more: each is written before it is known to be a member.
    members = np.full(padded(counts[end] + 1, GROUP), np.float32(-math.inf))
    place = 0
    for first in range(0, values.shape[0], BLOCK):
        part = values[first : first + BLOCK]
        fill_bins(part, prefix.best, by_distance, num_bins, bins)
        for i in range(part.shape[0]):
            members[place] = part[i]
            place += bins[i] == end
    weights = np.zeros(members.shape[0], dtype=np.int64)
    if prefix.is_weighed:
        fill_quanta(members, members.shape[0], prefix.best, prefix.scale, weights)
    return end_among(members[:place], weights[:place], num_left, mass_left)


@jit()
def place_of_equal(values: Array, value: Any, number: int) -> Any:
    """Return the place of the equal of this number, the first being 1; the last place if there are fewer."""
    for place in range(values.shape[0]):
        number -= values[place] == value
        if number <= 0:
            return place
    return values.shape[0] - 1


@jit()
def is_kept(value: Any, token_id: int, cut: Cut) -> Any:
    """Say whether a token may be drawn."""
    return (value > cut.border) | ((value == cut.border) & (token_id <= cut.last_id) & (value > -math.inf))
