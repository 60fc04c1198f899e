"""Rows as high and low parts, and their products put together: one pass over memory each.

These run some hundred times in a pass over a token, for a microsecond each, so they take addresses: to make arrays of
tensors would take longer than the work. Pointers are read by their index alone; an array's index may be negative, which
would keep loops from doing many numbers at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import jit, pointer_to

_F32 = np.float32
_BYTES = 4
_INFINITY_BITS = np.int32(0x7F800000)
_WITHOUT_SIGN = np.int32(0x7FFFFFFF)
_floats_at = pointer_to(types.float32)
_ints_at = pointer_to(types.int32)


@jit(types.void(*(types.int64,) * 5))
def split(rows_at: Any, num_rows: Any, width: Any, parts_at: Any, scales_at: Any) -> None:
    """Write (2 * num_rows, width) high parts and then low parts, and (num_rows,) scales, of (num_rows, width) float32.

    Without their sign, floats are in the order of their bits, with nan above all; and the largest of whole numbers is
    found many at a time, that of floats one by one.
    """
    scales = _floats_at(scales_at)
    for row in range(num_rows):
        here = _BYTES * row * width
        values, bits = _floats_at(rows_at + here), _ints_at(rows_at + here)
        highs, lows = _floats_at(parts_at + here), _floats_at(parts_at + _BYTES * num_rows * width + here)
        most = np.int32(0)
        for column in range(width):
            most = np.int32(max(most, bits[column] & _WITHOUT_SIGN))
        if most >= _INFINITY_BITS:
            scales[row] = np.nan
            for column in range(width):
                highs[column] = _F32(0)
                lows[column] = _F32(0)
            continue
        largest = max(np.int32(most).view(np.float32), _F32(1e-30))
        factor = _F32(8127) / largest
        scales[row] = largest / _F32(8127)
        for column in range(width):
            steps = np.rint(values[column] * factor)
            high = np.rint(steps * _F32(0.0078125))
            highs[column] = high
            lows[column] = steps - _F32(128) * high


@jit(types.void(*(types.int64,) * 7))
def join(
    products_at: Any, scales_at: Any, num_rows: Any, width: Any, first: Any, num_columns: Any, found_at: Any
) -> None:
    """Write (num_rows, num_columns) float32, (128 * high + low) * scale.

    Args:
        products_at: (2 * num_rows, width) float32.
        scales_at: (num_rows,) float32.
        num_rows: rows that are written.
        width: columns of the products.
        first: the first column that is read.
        num_columns: how many are.
        found_at: what is written.
    """
    scales = _floats_at(scales_at)
    for row in range(num_rows):
        highs = _floats_at(products_at + _BYTES * (row * width + first))
        lows = _floats_at(products_at + _BYTES * ((num_rows + row) * width + first))
        found, scale = _floats_at(found_at + _BYTES * row * num_columns), scales[row]
        for column in range(num_columns):
            found[column] = (_F32(128) * highs[column] + lows[column]) * scale
