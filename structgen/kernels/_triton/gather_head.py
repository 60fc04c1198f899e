"""The head kernel for CUDA: a few rows of the weights times one hidden state, read once."""

from __future__ import annotations

import triton
import triton.language as tl


# Mask rows are read one by one, and may be a part of those of a batch: where they begin makes no other kernel.
@triton.jit(do_not_specialize_on_alignment=["mask_row"])  # type: ignore[untyped-decorator]  # triton ships no types
def gather_head_kernel(  # type: ignore[no-untyped-def]  # the pointers and strides have no Python type
    logits,
    hidden,
    weight,
    bias,
    soft_cap,
    mask_row,
    list_start,
    list_ids,
    logits_row_stride,
    logits_column_stride,
    hidden_row_stride,
    weight_row_stride,
    num_tokens,
    size,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute the logits of ROWS listed ids of one row; bias and soft_cap may be None."""
    row = tl.program_id(0).to(tl.int64)
    number = tl.load(mask_row + row)
    if number < 0:
        return
    start = tl.load(list_start + number)
    num = tl.load(list_start + number + 1) - start
    first = tl.program_id(1) * ROWS
    if first >= num:
        return
    place = first + tl.arange(0, ROWS)
    # Lists are ascending, so where the first id is padding all are.
    if tl.load(list_ids + start + first) >= num_tokens:
        return
    ids = tl.load(list_ids + start + place, mask=place < num, other=0)
    is_known = (place < num) & (ids < num_tokens)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for left in range(0, size, COLUMNS):
        column = left + tl.arange(0, COLUMNS)
        state = tl.load(hidden + row * hidden_row_stride + column, mask=column < size, other=0.0).to(tl.float32)
        rows = weight + ids.to(tl.int64)[:, None] * weight_row_stride + column[None, :]
        part = tl.load(rows, mask=is_known[:, None] & (column < size)[None, :], other=0.0).to(tl.float32)
        total += part * state[None, :]
    value = tl.sum(total, axis=1)
    if bias is not None:
        value += tl.load(bias + ids, mask=is_known, other=0.0).to(tl.float32)
    if soft_cap is not None:
        # tanh by a power that cannot overflow.
        power = tl.exp(-2.0 * tl.abs(value / soft_cap))
        bounded = soft_cap * (1.0 - power) / (1.0 + power)
        value = tl.where(value < 0.0, -bounded, bounded)
    target = logits + row * logits_row_stride + ids.to(tl.int64) * logits_column_stride
    tl.store(target, value.to(logits.dtype.element_ty), mask=is_known)
