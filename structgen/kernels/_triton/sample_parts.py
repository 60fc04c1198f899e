"""Parts that the sampler's kernels for CUDA share: rows of options, logits with bias and penalties, sums and bests."""

from __future__ import annotations

import triton
import triton.language as tl

from structgen.kernels import gumbel
from structgen.kernels._sample_codes import EVERYWHERE
from structgen.kernels._triton.draw import NO_ID

# In Workspace.kind: nothing is left to do for the row, or it is still to be cut and drawn from.
DONE = tl.constexpr(0)
TRUNCATED = tl.constexpr(1)

LEAST_TEMPERATURE = tl.constexpr(gumbel.LEAST_TEMPERATURE)
_EVERYWHERE = tl.constexpr(EVERYWHERE)


@triton.jit
def inverse_temperature_of(chosen, row):  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    temperature = tl.maximum(tl.load(chosen.temperature + row).to(tl.float64), LEAST_TEMPERATURE)
    return (1.0 / temperature).to(tl.float32)


@triton.jit
def is_row_truncated(chosen, row):  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    """Say whether any truncation is on in a row that is not greedy."""
    is_on = tl.full((), 0, tl.int32) > 0
    if chosen.top_k is not None:
        is_on |= tl.load(chosen.top_k + row) > 0
    if chosen.top_p is not None:
        is_on |= tl.load(chosen.top_p + row) < 1.0
    if chosen.min_p is not None:
        is_on |= tl.load(chosen.min_p + row) > 0.0
    return is_on & (tl.load(chosen.temperature + row) != 0.0)


@triton.jit
def has_list(masks, mask_row):  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    result = tl.full((), 0, tl.int32) > 0
    if masks.list_start is not None:
        place = masks.list_start + tl.maximum(mask_row, 0)
        result = tl.load(place + 1) > tl.load(place)
    return result


@triton.jit
def load_logits(logits, row, ids, is_wanted):  # type: ignore[no-untyped-def]  # tuples of pointers
    place = row.to(tl.int64) * logits.row_stride + ids.to(tl.int64) * logits.column_stride
    z = tl.load(logits.data + place, mask=is_wanted & (ids < logits.width), other=float("-inf"))
    return z.to(tl.float32)


@triton.jit
def changed(raw, ids, is_legal, row, masks, changes):  # type: ignore[no-untyped-def]  # tuples of pointers
    """Return float32 logits with bias, mask and penalties, -0 as 0."""
    z = raw
    if changes.bias is not None:
        bias_row = tl.load(changes.bias_row + row).to(tl.int64)
        if bias_row >= 0:
            z += tl.load(changes.bias + bias_row * changes.bias_stride + ids, mask=is_legal, other=0.0)
    if changes.counts is not None:
        free_row = tl.load(changes.free_row + row).to(tl.int64)
        if free_row != -1:
            count = tl.load(changes.counts + row.to(tl.int64) * changes.counts_stride + ids, mask=is_legal, other=0)
            place = masks.words + tl.maximum(free_row, 0) * masks.row_stride + ids // 32
            words = tl.where(free_row == _EVERYWHERE, -1, tl.load(place, mask=is_legal, other=0))
            is_touched = (((words >> (ids % 32)) & 1) != 0) & (count > 0)
            factor = tl.load(changes.repetition + row)
            lower = tl.where(z > 0.0, tl.div_rn(z, factor + tl.zeros_like(z)), z * factor)
            lower = tl.where(factor == 1.0, z, lower) - tl.load(changes.presence + row)
            lower -= tl.load(changes.frequency + row) * count.to(tl.float32)
            z = tl.where(is_touched, lower, z)
    z = tl.where(z == 0.0, 0.0, z)
    return tl.where(is_legal, z, float("-inf"))


@triton.jit
def largest_of(z):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return the largest value that is a number."""
    return tl.max(tl.where(z == z, z, float("-inf")), axis=None)


@triton.jit
def sum_exp(z, largest):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return the sum of exp(z - largest): 1 where that is infinite, nan where a value is."""
    total = tl.sum(tl.exp(z - tl.where(largest == float("-inf"), 0.0, largest)), axis=None)
    has_nan = tl.max((z != z).to(tl.int32), axis=None) > 0
    return tl.where((largest == float("inf")) & (not has_nan), 1.0, total)


@triton.jit
def best_of(z):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return the largest value, infinity if one is nan."""
    has_nan = tl.max((z != z).to(tl.int32), axis=None) > 0
    return tl.where(has_nan, float("inf"), largest_of(z))


@triton.jit
def least_id(is_wanted, ids):  # type: ignore[no-untyped-def]  # tensors have no Python type
    return tl.min(tl.where(is_wanted, ids, NO_ID), axis=None)
