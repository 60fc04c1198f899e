"""Which tokens of a masked row stay in the draw: top-k, top-p and min-p, without sorting the row.

All tokens are put in one order, more probable first and the lower id of equals first. top_k keeps its first k, top_p
the fewest first ones whose probabilities reach p (to a millionth); both are sizes of a prefix, so the smaller one wins. min_p is a
threshold on the same distribution. Probabilities are those of the whole masked row: nothing is renormalised in between.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from structgen.config import Sampling
from structgen.kernels.gumbel import LEAST_TEMPERATURE

# How many of the best tokens are looked at first for top_p, and how many times as many when they lack the mass.
_NUM_FIRST: Final = 256
_WIDENING: Final = 8

# Probabilities come from float32 logits: without it, two equal tokens would not reach top_p=0.5 with the first of them.
_SLACK: Final = 1e-6


def truncated(row: torch.Tensor, largest: float, sampling: Sampling) -> torch.Tensor:
    """Return the row with every token outside the truncations at -inf; the row itself may be changed.

    Args:
        row: (vocabulary,) float32, illegal tokens at -inf.
        largest: its largest entry, finite.
        sampling: options, with a temperature above 0.
    """
    has_top_p = sampling.top_p is not None and sampling.top_p < 1.0
    # In logits: p >= min_p * largest p.
    border = largest + sampling.temperature * math.log(sampling.min_p) if sampling.min_p else -math.inf
    if has_top_p or sampling.top_k is not None:
        values, token_ids = _prefix(row, largest, sampling) if has_top_p else _leading(row, sampling.top_k or 1)
        row = torch.full_like(row, -math.inf)
        row[token_ids] = values
    if border > -math.inf:
        row[row < border] = -math.inf
    return row


def _leading(row: torch.Tensor, num: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values and ids of the first tokens of the order, equals at the border by lower id."""
    if num >= row.shape[0]:
        return row, torch.arange(row.shape[0], device=row.device)
    values, token_ids = row.topk(num)
    num_above = int((values > values[-1]).sum())
    tied = (row == values[-1]).nonzero()[: num - num_above, 0]
    return values, torch.cat([token_ids[:num_above], tied])


def _prefix(row: torch.Tensor, largest: float, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values and ids of the shorter one of the prefixes that top_p and top_k keep."""
    temperature = max(sampling.temperature, LEAST_TEMPERATURE)
    num_most = min(row.shape[0], sampling.top_k or row.shape[0])
    # Probabilities relative to the best token's, whose own is exp(log_best).
    log_best = float(torch.log_softmax((row - largest) / temperature, 0).amax())
    num = min(_NUM_FIRST, num_most)
    while True:
        values = row.topk(num).values
        mass = (((values.double() - largest) / temperature + log_best).exp()).cumsum(0)
        num_kept = int((mass < (sampling.top_p or 1.0) - _SLACK).sum())
        if num_kept < num or num == num_most:
            return _leading(row, min(num_kept + 1, num_most))
        num = min(num * _WIDENING, num_most)
