"""The language model head of the tokens of a list only: hidden states times the rows of the weights that may be drawn.

A state with few legal tokens needs few logits, and the head is a fifth of the bytes of a step on small models. Rows of
logits whose mask row has a list (`Masks.lists`) get the logits of its ids, at their columns; whatever else stands in
the logits stays: other rows are the full head's, and `sample` with `has_masses=False` reads no other column.

A bias of the head and soft capping are here; a model that does more to its logits keeps its own head
(structgen/decode/head.py).
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final, NamedTuple

from structgen.kernels.sample import MAX_LISTED_TOKENS, Masks, allowed

if TYPE_CHECKING:
    import torch

# Rows of the weights in one block, and how much of each at once.
ROWS: Final = 16
COLUMNS: Final = 256


class HeadWeights(NamedTuple):
    """A linear head.

    Attributes:
        weight: (rows, size) float16, bfloat16 or float32, a row per token id.
        bias: (rows,), or None.
        soft_cap: logits are soft_cap * tanh(logits / soft_cap); None does nothing.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    soft_cap: float | None = None


def gather_head_(logits: torch.Tensor, hidden: torch.Tensor, head: HeadWeights, masks: Masks) -> None:
    """Write the logits of listed tokens, in place.

    Args:
        logits: (B, width) floating point, any strides; ids past the width or the weights are left out.
        hidden: (B, size) of the dtype of the weights.
        head: the weights.
        masks: mask rows, with lists of ids.

    Raises:
        TypeError: the dtypes differ.
        ValueError: the shapes do not belong together, or there are no lists.
    """
    _check(logits, hidden, head, masks)
    if logits.device.type == "cpu":
        _gather_rows_(logits, hidden, head, masks)
    elif logits.device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        _gather_triton_(logits, hidden, head, masks)
    else:
        gather_head_reference_(logits, hidden, head, masks)


def gather_head_reference_(logits: torch.Tensor, hidden: torch.Tensor, head: HeadWeights, masks: Masks) -> None:
    """Compute the whole head in float32 and keep what is listed, on any device without waiting for it: the plain form.

    Args:
        logits: (B, width).
        hidden: (B, size).
        head: the weights.
        masks: mask rows, with lists of ids.
    """
    import torch

    if masks.lists is None:
        raise ValueError("there are no lists of ids in masks.lists")
    bias = None if head.bias is None else head.bias.float()
    whole = _capped(torch.nn.functional.linear(hidden.float(), head.weight.float(), bias), head.soft_cap)
    row = masks.row.clamp(min=0).long()
    has_list = masks.lists[0][row + 1] > masks.lists[0][row]
    num = min(logits.shape[1], whole.shape[1], masks.num_tokens)
    is_listed = allowed(masks.words, masks.row, num) & has_list[:, None]
    logits[:, :num].copy_(torch.where(is_listed, whole[:, :num].to(logits.dtype), logits[:, :num]))


def _capped(logits: torch.Tensor, soft_cap: float | None) -> torch.Tensor:
    """Return logits within the cap."""
    return logits if soft_cap is None else (logits / soft_cap).tanh() * soft_cap


def _check(logits: torch.Tensor, hidden: torch.Tensor, head: HeadWeights, masks: Masks) -> None:
    """Say what does not fit, without reading any value."""
    weight, bias = head.weight, head.bias
    if not weight.is_floating_point() or hidden.dtype != weight.dtype or not logits.is_floating_point():
        raise TypeError(f"hidden states of {hidden.dtype} and weights of {weight.dtype} must be of one floating dtype")
    if logits.dim() != 2 or hidden.shape != (len(logits), weight.shape[1]):
        raise ValueError(f"hidden states {tuple(hidden.shape)} do not fit weights {tuple(weight.shape)} and the batch")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"a bias of {tuple(bias.shape)} does not fit weights {tuple(weight.shape)}")
    if masks.lists is None or masks.row.shape != (len(logits),):
        raise ValueError("masks must have lists of ids, and a row for each row of logits")
    read = (hidden, weight, masks.row, *masks.lists, *(() if bias is None else (bias,)))
    if any(tensor.stride(-1) != 1 for tensor in read if tensor.shape[-1] > 1):
        raise ValueError("hidden states, weights, bias, mask rows and lists must be contiguous in their last dimension")


def _gather_rows_(logits: torch.Tensor, hidden: torch.Tensor, head: HeadWeights, masks: Masks) -> None:
    """Compute the listed rows on the CPU, one row of the batch after the other."""
    import torch

    if masks.lists is None:  # refused by the check
        return
    starts, ids = masks.lists
    num = min(logits.shape[1], head.weight.shape[0])
    for row, mask_row in enumerate(masks.row.tolist()):
        if mask_row < 0:
            continue
        listed = ids[int(starts[mask_row]) : int(starts[mask_row + 1])].long()
        listed = listed[listed < num]
        bias = None if head.bias is None else head.bias[listed]
        some = torch.nn.functional.linear(hidden[row : row + 1], head.weight.index_select(0, listed), bias)
        logits[row, listed] = _capped(some[0], head.soft_cap).to(logits.dtype)


def _gather_triton_(logits: torch.Tensor, hidden: torch.Tensor, head: HeadWeights, masks: Masks) -> None:
    """Compute them on CUDA; the grid is that of the longest list there may be, and blocks past a list's end return."""
    import torch

    from structgen.kernels._triton.gather_head import gather_head_kernel

    if masks.lists is None:  # refused by the check
        return
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]  # torch has no types there
        gather_head_kernel[len(logits), MAX_LISTED_TOKENS // ROWS](
            logits,
            hidden,
            head.weight,
            head.bias,
            head.soft_cap,
            masks.row,
            *masks.lists,
            logits.stride(0),
            logits.stride(1),
            hidden.stride(0),
            head.weight.stride(0),
            min(logits.shape[1], head.weight.shape[0], masks.num_tokens),
            hidden.shape[1],
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            enable_fp_fusion=True,
        )
