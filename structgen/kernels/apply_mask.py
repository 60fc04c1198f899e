"""Set the logits of illegal tokens to minus infinity, in place.

A mask is packed int32: bit t % 32 of word t // 32 says whether token t is allowed. Logits may be wider than the mask
(models pad their heads): columns without a bit are no tokens and are masked too. This is elementwise; the largest
legal logit, legal mass and draw belong to the sampler.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import torch

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]] | torch.Tensor"

BITS_PER_WORD: Final = 32
_TRITON_BLOCK: Final = 1024


def apply_mask_(logits: torch.Tensor, mask: Mask) -> None:
    """Set every logit whose mask bit is 0, or which has no bit, to minus infinity, in place.

    Args:
        logits: (batch, width) or (width,) float16, bfloat16, float32 or float64; any strides, width >= vocabulary.
        mask: (batch, ceil(vocabulary / 32)), (1, ...) or (...,) int32, a numpy array or a tensor on any device.

    Raises:
        TypeError: the logits are not floating point, or the mask is not int32.
        ValueError: the shapes do not belong together, or rows of the logits share memory.
    """
    rows, mask_rows = _checked(logits, mask)
    device_type = logits.device.type
    if device_type == "cpu":
        _apply_numba_(rows, mask_rows)
    elif device_type == "cuda" and importlib.util.find_spec("triton") is not None:
        _apply_triton_(rows, _as_tensor(mask_rows, rows))
    else:
        apply_mask_reference_(rows, _as_tensor(mask_rows, rows))


def apply_mask_reference_(logits: torch.Tensor, mask: torch.Tensor) -> None:
    """Do the same by unpacking the bits with torch, on any device: the plain form that the kernels are held to.

    Args:
        logits: (batch, width) floating point.
        mask: (batch or 1, words) int32 on the same device.
    """
    import torch

    shifts = torch.arange(BITS_PER_WORD, dtype=torch.int32, device=mask.device)
    bits = ((mask[:, :, None] >> shifts) & 1).bool().flatten(1)
    allowed = torch.zeros((mask.shape[0], logits.shape[1]), dtype=torch.bool, device=logits.device)
    num_known = min(bits.shape[1], logits.shape[1])
    allowed[:, :num_known] = bits[:, :num_known]
    logits.masked_fill_(~allowed, float("-inf"))


def _checked(logits: torch.Tensor, mask: Mask) -> tuple[torch.Tensor, Mask]:
    """Return both with two dimensions, or say what does not fit."""
    if not logits.dtype.is_floating_point or logits.dtype.itemsize == 1:
        raise TypeError(f"logits must be float16, bfloat16, float32 or float64, not {logits.dtype}")
    if str(mask.dtype).removeprefix("torch.") != "int32":
        raise TypeError(f"the mask must be packed int32, not {mask.dtype}")
    rows = logits.detach()
    rows = rows if rows.dim() != 1 else rows[None]
    mask_rows: Mask = mask if mask.ndim != 1 else mask[None]
    if rows.dim() != 2 or mask_rows.ndim != 2:
        raise ValueError(f"logits {tuple(logits.shape)} and mask {tuple(mask.shape)} must have one or two dimensions")
    if mask_rows.shape[0] not in (1, rows.shape[0]):
        raise ValueError(f"{mask_rows.shape[0]} mask rows do not fit {rows.shape[0]} rows of logits")
    if rows.shape[1] <= BITS_PER_WORD * (mask_rows.shape[1] - 1):
        raise ValueError(f"the mask has {mask_rows.shape[1]} words, too many for {rows.shape[1]} logits")
    if any(size > 1 and stride == 0 for size, stride in zip(rows.shape, rows.stride(), strict=True)):
        raise ValueError("rows of the logits share memory (an expanded tensor): clone them first")
    return rows, mask_rows


def _as_tensor(mask: Mask, logits: torch.Tensor) -> torch.Tensor:
    """Return the mask on the device of the logits."""
    import torch

    return torch.as_tensor(np.array(mask) if isinstance(mask, np.ndarray) else mask, device=logits.device)


def _apply_numba_(logits: torch.Tensor, mask: Mask) -> None:
    """Mask on the CPU through the bit patterns."""
    import torch

    from structgen.kernels._numba.apply_mask import fill_illegal

    as_integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[logits.dtype.itemsize]
    bit_patterns: dict[torch.dtype, np.signedinteger[Any]] = {
        torch.float16: np.int16(-0x0400),
        torch.bfloat16: np.int16(-0x0080),
        torch.float32: np.int32(-0x00800000),
        torch.float64: np.int64(-0x0010000000000000),
    }
    words = mask if isinstance(mask, np.ndarray) else mask.cpu().numpy()
    fill_illegal(logits.view(as_integers).numpy(), words, bit_patterns[logits.dtype])


def _apply_triton_(logits: torch.Tensor, mask: torch.Tensor) -> None:
    """Mask on CUDA."""
    import torch

    from structgen.kernels._triton.apply_mask import apply_mask_kernel

    num_rows, num_columns = logits.shape
    grid = (num_rows, -(-num_columns // _TRITON_BLOCK))
    mask_row_stride = mask.stride(0) if mask.shape[0] > 1 else 0
    # Triton launches on the current device; `torch.device` as a context only says where new tensors go.
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]  # torch has no types there
        apply_mask_kernel[grid](
            logits,
            mask,
            num_columns,
            mask.shape[1],
            logits.stride(0),
            logits.stride(1),
            mask_row_stride,
            mask.stride(1),
            BLOCK=_TRITON_BLOCK,
            enable_fp_fusion=False,
        )
