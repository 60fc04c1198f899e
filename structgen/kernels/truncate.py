"""Which tokens of a masked row stay in the draw: top-k, top-p and min-p, without sorting the row.

All tokens are put in one order, more probable first and the lower id of equals first. top_k keeps its first k, top_p
the fewest first ones whose probabilities reach p (to a millionth); both are sizes of a prefix, so the smaller one wins.
min_p is a threshold on the same distribution. Probabilities are those of the whole masked row: nothing is renormalised
in between.

Tokens are binned by their distance from the best one, and only the bin in which the prefix ends is sorted. Sums are
taken token by token in the order of ids, so a row of the legal tokens only gives the bits that a row of all tokens
gives. Batches on a device are truncated by structgen/kernels/sample.py, by the same law.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from structgen.kernels.gumbel import LEAST_TEMPERATURE

if TYPE_CHECKING:
    import torch

# Probabilities come from float32 logits: without it, two equal tokens would not reach top_p=0.5 with the first of them.
MASS_SLACK: Final = 1e-6


class Truncation(NamedTuple):
    """What is kept; None keeps all.

    Attributes:
        top_k: the most tokens, at least 1.
        top_p: the least share of the probability.
        min_p: the least share of the best token's probability.
    """

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None


def truncate_(row: torch.Tensor, largest: float, temperature: float, truncation: Truncation) -> None:
    """Set every token outside the truncations to -inf, in place.

    A row on another device is copied to the CPU and back, which costs less than the launches of a search.

    Args:
        row: (vocabulary,) float32, illegal tokens at -inf, no nan.
        largest: its largest entry, finite.
        temperature: divides the logits, above 0.
        truncation: what is kept.

    Raises:
        TypeError: the row is not float32 or has other dimensions.
    """
    import torch

    from structgen.kernels._numba.truncate import truncate_row

    if row.dtype != torch.float32 or row.dim() != 1:
        raise TypeError(f"logits must be one row of float32, not {tuple(row.shape)} {row.dtype}")
    top_k, top_p, least = _numbers(largest, temperature, truncation)
    if top_k >= row.shape[0] and top_p >= 1.0 and least == -math.inf:
        return
    share = top_p - MASS_SLACK if top_p < 1.0 else math.inf
    here = row.detach().contiguous().cpu()
    truncate_row(here.numpy(), largest, 1.0 / max(temperature, LEAST_TEMPERATURE), top_k, share, least)
    if here.data_ptr() != row.data_ptr():
        row.copy_(here)


def truncate_reference_(row: torch.Tensor, largest: float, temperature: float, truncation: Truncation) -> None:
    """Do the same by a full sort in float64: the plain form."""
    import torch

    top_k, top_p, least = _numbers(largest, temperature, truncation)
    values, order = row.double().sort(descending=True, stable=True)
    weights = ((values - largest) / max(temperature, LEAST_TEMPERATURE)).exp()
    mass_before = weights.cumsum(0) - weights
    is_out = torch.arange(len(row), device=row.device) >= top_k
    if top_p < 1.0:
        is_out |= mass_before >= (top_p - MASS_SLACK) * weights.sum()
        is_out[0] = False
    row[order[is_out]] = -math.inf
    row[row.double() < least] = -math.inf


def _numbers(largest: float, temperature: float, truncation: Truncation) -> tuple[int, float, float]:
    """Return the most tokens, the share of the probability, and the least logit by min_p, rounded to float32."""
    import numpy as np

    least = -math.inf
    if truncation.min_p:
        least = float(np.float32(largest + max(temperature, LEAST_TEMPERATURE) * math.log(truncation.min_p)))
    return truncation.top_k or 1 << 62, 1.0 if truncation.top_p is None else truncation.top_p, least
