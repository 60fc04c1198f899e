"""The mask kernel for CUDA: logits[row, column] = -inf where bit column of mask[row] is 0 or is not there."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def apply_mask_kernel(  # type: ignore[no-untyped-def]  # the pointers and strides have no Python type
    logits,
    mask,
    num_columns,
    num_words,
    logits_row_stride,
    logits_column_stride,
    mask_row_stride,
    mask_column_stride,
    BLOCK: tl.constexpr,
):
    """Mask one tile of BLOCK columns of one row; a mask_row_stride of 0 shares one mask row."""
    # 64-bit offsets: 16,384 rows of 131,072 columns pass 2**31 elements.
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word_index = column // 32
    words = tl.load(
        mask + row * mask_row_stride + word_index.to(tl.int64) * mask_column_stride,
        mask=word_index < num_words,
        other=0,
    )
    is_illegal = ((words >> (column % 32)) & 1) == 0
    tl.store(
        logits + row * logits_row_stride + column.to(tl.int64) * logits_column_stride,
        tl.full((BLOCK,), float("-inf"), logits.dtype.element_ty),
        mask=is_illegal & (column < num_columns),
    )
