"""Compiled: the mask row of each place within its budget; its checks are in kernels/advance.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from structgen.kernels._numba import array, jit

_INTS = array(types.int32)
_OUT = types.int32[::1]
_OUT_TABLE = types.int32[:, ::1]

Array = np.ndarray[Any, Any]


@jit(
    types.void(
        array(types.uint16, 2), _INTS, array(types.int64), _INTS, _INTS, _OUT_TABLE, _INTS, _INTS,
        _INTS, _INTS, types.int64, _OUT,
    )
)  # fmt: skip
def mask_rows_within(
    token_class: Array,
    next_state: Array,
    step_start: Array,
    machine: Array,
    mask_row: Array,
    mask_rows: Array,
    cost: Array,
    cost_after: Array,
    state: Array,
    num_left: Array,
    stop_class: int,
    out: Array,
) -> None:
    """Fill out with the mask row of each place; where the budget binds that is the private one, which is written."""
    for place in range(state.shape[0]):
        here = state[place]
        if num_left[place] > cost_after[here]:
            out[place] = mask_row[here]
            continue
        out[place] = place
        row = mask_rows[place]
        row[:] = 0
        classes = token_class[machine[here]]
        steps = step_start[here]
        for token in range(32 * row.shape[0]):
            after = next_state[steps + classes[token]]
            if after >= 0 and (classes[token] == stop_class or cost[after] <= num_left[place] - 1):
                row[token >> 5] |= np.int32(1) << np.int32(token & 31)
