"""Rows as high and low parts, and their products put together: one pass over memory each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit

_F32 = np.float32
_INFINITY_BITS = np.int32(0x7F800000)
_WITHOUT_SIGN = np.int32(0x7FFFFFFF)


@jit(types.void(array(types.float32, 2), array(types.int32, 2), types.float32[:, ::1], types.float32[::1]))
def split(
    rows: np.ndarray[Any, Any], bits: np.ndarray[Any, Any], parts: np.ndarray[Any, Any], scales: np.ndarray[Any, Any]
) -> None:
    """Write high parts, low parts and scales; `bits` are the same rows as whole numbers.

    Without their sign, floats are in the order of their bits, with nan above all; and the largest of whole numbers is
    found many at a time, that of floats one by one.
    """
    num_rows, width = rows.shape
    for row in range(num_rows):
        most = np.int32(0)
        for column in range(width):
            most = np.int32(max(most, bits[row, column] & _WITHOUT_SIGN))
        if most >= _INFINITY_BITS:
            scales[row] = np.nan
            for column in range(width):
                parts[row, column] = _F32(0)
                parts[num_rows + row, column] = _F32(0)
            continue
        largest = max(np.int32(most).view(np.float32), _F32(1e-30))
        factor = _F32(8127) / largest
        scales[row] = largest / _F32(8127)
        for column in range(width):
            steps = np.rint(rows[row, column] * factor)
            high = np.rint(steps * _F32(0.0078125))
            parts[row, column] = high
            parts[num_rows + row, column] = steps - _F32(128) * high


@jit(types.void(array(types.float32, 2), array(types.float32), types.float32[:, ::1]))
def join(products: np.ndarray[Any, Any], scales: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> None:
    """Write (128 * high + low) * scale."""
    num_rows, width = found.shape
    for row in range(num_rows):
        scale = scales[row]
        for column in range(width):
            found[row, column] = (_F32(128) * products[row, column] + products[num_rows + row, column]) * scale
