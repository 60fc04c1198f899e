"""Masks of our own: who sees whom in a pass over several rows of different lengths, over trees, and with padding.

A query sees what its row had before the pass, its ancestors among the new tokens, and itself. Windows and chunks count
by positions in the text, which in a tree is the depth and not the place in the buffer. `RowLayout` knows on the host
where rows stand; `chain_mask` reads it from a tensor, so that nothing waits for the device. Left out: masks of chains
of one row, which models make best themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a layer looks back.

    Attributes:
        kind: what transformers calls layers of this kind.
        window: positions seen, the query's own included; None for all.
        chunk: the query sees positions of its own chunk of this many only; None for all.
    """

    kind: str
    window: int | None = None
    chunk: int | None = None


class RowLayout:
    """The new tokens of one row in a pass, padding behind them.

    Attributes:
        depths: (width,) how many new tokens stand before each one on its path; padding has the last one's.
    """

    def __init__(self, start: int, parents: Sequence[int], width: int) -> None:
        """Lay a chain or tree out.

        Args:
            start: tokens of the row before the pass.
            parents: for each new token the index of the one before it, -1 for none.
            width: tokens of the pass.
        """
        self._start = start
        self._num_tokens = len(parents)
        # (width, width): padding sees itself, so that its softmax is of something.
        self._sees: BoolArray = np.eye(width, dtype=np.bool_)
        self.depths: IntArray = np.zeros(width, dtype=np.int64)
        for index, parent in enumerate(parents):
            if parent >= 0:
                self._sees[index] |= self._sees[parent]
                self.depths[index] = self.depths[parent] + 1
        self.depths[self._num_tokens :] = self.depths[self._num_tokens - 1] if parents else 0

    @property
    def positions(self) -> IntArray:
        """(width,) position in the text of each token."""
        return self._start + self.depths

    def mask(self, num_positions: int, reach: Reach) -> BoolArray:
        """Return (width, num_positions), True where the query sees what the buffer has there."""
        width = len(self.depths)
        seen = np.zeros((width, num_positions), dtype=np.bool_)
        seen[: self._num_tokens, : self._start] = True
        seen[:, self._start : self._start + width] = self._sees
        positions = np.arange(num_positions)
        positions[self._start : self._start + width] = self.positions
        if reach.window is not None:
            seen &= self.positions[:, None] - positions < reach.window
        if reach.chunk is not None:
            seen &= self.positions[:, None] // reach.chunk == positions // reach.chunk
        return seen


def chain_mask(positions: torch.Tensor, num_positions: int, reach: Reach, dtype: torch.dtype) -> torch.Tensor:
    """Return what is added to the scores of chains whose tokens stand in the buffer at their positions in the text.

    Args:
        positions: (rows, width) int64, where the new tokens stand.
        num_positions: positions of the buffer.
        reach: how far the layers look back.
        dtype: of the model.

    Returns:
        (rows, 1, width, num_positions), 0 where the query sees.
    """
    here = positions[:, :, None]
    there = torch.arange(num_positions, device=positions.device)
    hidden = there > here
    if reach.window is not None:
        hidden |= here - there >= reach.window
    if reach.chunk is not None:
        hidden |= here // reach.chunk != there // reach.chunk
    mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None]
