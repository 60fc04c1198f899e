"""The mask loop on the CPU, on the bit patterns of the logits, so that half and bfloat16 rows need no conversion."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit


def _signature(dtype: Any) -> Any:
    """Return the signature for logits whose bit patterns are of this integer type; rows and columns may be strided."""
    return types.void(types.Array(dtype, 2, "A"), array(types.int32, 2, "A"), dtype)


@jit(_signature(types.int16), _signature(types.int32), _signature(types.int64))
def fill_illegal(
    logits: np.ndarray[Any, Any], mask: np.ndarray[Any, Any], minus_infinity: np.signedinteger[Any]
) -> None:
    """Write minus_infinity wherever the mask has no bit; one mask row serves every row of the logits."""
    num_rows, num_columns = logits.shape
    num_words = mask.shape[1]
    for row in range(num_rows):
        mask_row = row if mask.shape[0] > 1 else 0
        for word_index in range(num_words):
            word = mask[mask_row, word_index]
            first = word_index * 32
            last = min(first + 32, num_columns)
            if word == -1:  # the two common cases: inside a string, and beside it
                continue
            if word == 0:
                for column in range(first, last):
                    logits[row, column] = minus_infinity
                continue
            for column in range(first, last):
                if (word >> (column - first)) & 1 == 0:
                    logits[row, column] = minus_infinity
        for column in range(num_words * 32, num_columns):
            logits[row, column] = minus_infinity
