"""Rows of numbers as two rows of 7 bits each, for products with weights of one byte, and those products put together.

A row becomes steps of 1/8127 of its largest element, and each number of steps 128 * high + low, both from -64 to 64.
What is computed with high and with low, by whole numbers, is put together again. On the CPU only.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

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
    _check(rows)
    num_rows, width = rows.shape
    rows = rows.contiguous()
    parts, scales = rows.new_empty((2 * num_rows, width)), rows.new_empty(num_rows)
    _compiled().split(rows.data_ptr(), num_rows, width, parts.data_ptr(), scales.data_ptr())
    return parts, scales


def join_rows(
    products: torch.Tensor, scales: torch.Tensor, *, first: int = 0, num_columns: int | None = None
) -> torch.Tensor:
    """Return (rows, num_columns) float32, each row (128 * high + low) * scale.

    Args:
        products: (2 * rows, width) float32 on the CPU, those of the high parts and then those of the low ones.
        scales: (rows,) float32.
        first: the first column of the products that is wanted.
        num_columns: how many are wanted; None for all from there on.
    """
    _check(products)
    num_rows, width = len(scales), products.shape[1]
    wanted = width - first if num_columns is None else num_columns
    if scales.dtype != products.dtype or not scales.is_cpu:
        raise TypeError(f"scales must be float32 on the CPU, not {scales.dtype} on {scales.device}")
    if products.shape[0] != 2 * num_rows:
        raise ValueError(f"{products.shape[0]} rows of products are not two for each of {num_rows} scales")
    if not 0 <= first <= first + wanted <= width:
        raise ValueError(f"there are no {wanted} columns from {first} on in products of {width}")
    products, scales = products.contiguous(), scales.contiguous()
    found = products.new_empty((num_rows, wanted))
    addresses = products.data_ptr(), scales.data_ptr()
    _compiled().join(*addresses, num_rows, width, first, wanted, found.data_ptr())
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


@functools.cache
def _compiled() -> Any:
    """Import numba when it is needed; an import statement in a function would take as long as what it is for."""
    from structgen.kernels._numba import byte_rows

    return byte_rows


def _check(rows: torch.Tensor) -> None:
    if str(rows.dtype) != "torch.float32" or not rows.is_cpu:
        raise TypeError(f"rows must be float32 on the CPU, not {rows.dtype} on {rows.device}")
    if rows.dim() != 2:
        raise ValueError(f"rows of shape {tuple(rows.shape)} must have two dimensions")
