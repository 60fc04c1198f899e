"""Rows of numbers as two rows of 7 bits each, for products with weights of one byte, and those products put together.

A row becomes steps of 1/8127 of its largest element, and each number of steps 128 * high + low, both from -64 to 64.
What is computed with high and with low, by whole numbers, is put together again. On the CPU only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

STEP: Final = 128
"""What a high part counts for."""

LARGEST: Final = STEP * 63 + 63
_TINY: Final = 1e-30  # of a row of zeros; its inverse is a number, too


def split_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split rows; one that holds nan or an infinity gets the scale nan, and its parts are anything.

    Args:
        rows: (rows, width) float32 on the CPU.

    Returns:
        (2 * rows, width) float32, the high parts and then the low ones; and (rows,) float32, what a step is.
    """
    import torch

    from structgen.kernels._numba.byte_rows import split

    _check(rows)
    rows = rows.detach().contiguous()
    parts, scales = rows.new_empty((2 * rows.shape[0], rows.shape[1])), rows.new_empty(rows.shape[0])
    split(rows.numpy(), rows.view(torch.int32).numpy(), parts.numpy(), scales.numpy())
    return parts, scales


def join_rows(products: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return (rows, width) float32, each row (128 * high + low) * scale.

    Args:
        products: (2 * rows, width) float32 on the CPU, those of the high parts and then those of the low ones.
        scales: (rows,) float32.
    """
    from structgen.kernels._numba.byte_rows import join

    _check(products)
    if products.shape[0] != 2 * scales.shape[0]:
        raise ValueError(f"{products.shape[0]} rows of products are not two for each of {scales.shape[0]} scales")
    found = products.new_empty((scales.shape[0], products.shape[1]))
    join(products.detach().contiguous().numpy(), scales.numpy(), found.numpy())
    return found


def split_rows_reference(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what `split_rows` does, with torch's own operations: the plain form."""
    import torch

    largest = rows.abs().amax(1, keepdim=True)
    # A number divided by a tensor is its product with the inverse in torch, which rounds twice.
    factor = torch.full_like(largest, LARGEST).div(largest.clamp_min(_TINY))
    steps = (rows * factor).round()
    high = (steps / STEP).round()
    scales = torch.where(largest.isfinite(), largest.clamp_min(_TINY) / LARGEST, torch.nan)
    return torch.cat([high, steps - STEP * high]), scales[:, 0]


def join_rows_reference(products: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Do what `join_rows` does, with torch's own operations: the plain form."""
    return (STEP * products[: len(scales)] + products[len(scales) :]) * scales[:, None]


def _check(rows: torch.Tensor) -> None:
    if str(rows.dtype) != "torch.float32" or rows.device.type != "cpu":
        raise TypeError(f"rows must be float32 on the CPU, not {rows.dtype} on {rows.device}")
    if rows.dim() != 2:
        raise ValueError(f"rows of shape {tuple(rows.shape)} must have two dimensions")
