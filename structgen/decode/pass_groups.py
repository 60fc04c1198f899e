"""Which rows share a pass: padding is computed for nothing, and so is a pass of one's own where one could be shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassPrice:
    """What a pass costs, in tokens.

    Attributes:
        first: what it costs before the first token.
        most: tokens of a pass, padding included, past which sharing one gains nothing, and only takes memory.
    """

    first: int = 24
    most: int = 512


ON_A_CORE = PassPrice()
"""SmolLM2 on one core reads 20 to 30 tokens in the time that a pass over a single one takes."""

ON_CUDA = PassPrice(first=256, most=4096)
"""Computed and not measured: up to some hundred tokens a GPU is busy with reading the weights."""


def grouped(widths: Sequence[int], price: PassPrice = ON_A_CORE) -> list[list[int]]:
    """Return which rows share a pass: the cheapest way to part them, where every token costs as much as one.

    Args:
        widths: the tokens that each row has to read.
        price: what a pass costs beside its tokens.
    """
    order = sorted(range(len(widths)), key=lambda index: widths[index])
    # Of the first so many rows in this order: the least cost, and where the last pass begins.
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(order) + 1):
        width = widths[order[end - 1]]
        choices = [
            (best[first][0] + price.first + (end - first) * width, first)
            for first in range(end)
            if first == end - 1 or (end - first) * width <= price.most
        ]
        best.append(min(choices))
    groups, end = [], len(order)
    while end:
        first = best[end][1]
        groups.append(sorted(order[first:end]))
        end = first
    return groups[::-1]
