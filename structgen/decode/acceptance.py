"""How much of a draft is accepted, and what is drawn after it, as functions of laws and coins alone.

Every rule here gives exactly the target's law, whatever was drafted. `descend` is for tokens that were named, or drawn
with the noise of the text: the ordinary draw is made at every place, and where it meets the draft, nothing is lost.
`verify_block` is for a chain whose tokens were drawn from laws of their own, with other noise: block verification
(Sun et al. 2025, "Block Verification Accelerates Speculative Decoding"), which accepts as much as can be.

Laws are float64 and sum to 1. Left out: where they come from (sampler.py), and what is done with the result (loop.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from structgen.kernels.gumbel import LEAST_TEMPERATURE

if TYPE_CHECKING:
    import torch

FloatArray: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


def descend(children: Callable[[int], Mapping[int, int]], draw: Callable[[int], int | None]) -> list[int]:
    """Draw at node 0, go on to the child that was drawn, and so on; return the nodes that were met after node 0.

    Args:
        children: the nodes after a node, by their token.
        draw: draws the text's next token at a node; None once the text has ended there.
    """
    path: list[int] = []
    node = 0
    while (token_id := draw(node)) is not None:
        child = children(node).get(token_id)
        if child is None:
            break
        path.append(child)
        node = child
    return path


@dataclass(frozen=True, slots=True)
class BlockVerification:
    """What to do with a chain of drafted tokens.

    Attributes:
        thresholds: (drafted,) the first i + 1 tokens may be accepted if the coin of i is below; the most that may be
            are.
        laws: (drafted + 1, vocabulary) that of the token after as many accepted ones.
    """

    thresholds: FloatArray
    laws: FloatArray

    def num_accepted(self, coins: Sequence[float]) -> int:
        """Return how many tokens are accepted.

        Args:
            coins: (drafted,) independent and uniform in [0, 1).
        """
        passed = [number for number, coin in enumerate(coins, 1) if coin < self.thresholds[number - 1]]
        return max(passed, default=0)


def verify_block(target_laws: FloatArray, draft_laws: FloatArray, token_ids: Sequence[int]) -> BlockVerification:
    """Compare a chain with the target.

    With w_0 = 1, w_i = min(1, w_(i-1) P_(i-1)(d_i) / Q_(i-1)(d_i)) and R_i the sum of max(w_i P_i - Q_i, 0), the first
    i tokens are accepted with R_i / (R_i + 1 - w_i), all of them with w_k. What follows i < k accepted ones is drawn
    from max(w_i P_i - Q_i, 0), normalised; what follows all of them from P_k.

    Args:
        target_laws: (drafted + 1, vocabulary) P_i, the target's law after i drafted tokens.
        draft_laws: (drafted, vocabulary) Q_i, the law that token i was drawn from.
        token_ids: (drafted,) the tokens d.
    """
    num_drafted = len(token_ids)
    thresholds = np.empty(num_drafted)
    laws = np.array(target_laws)
    weight = 1.0
    for number in range(num_drafted):
        residual = np.maximum(weight * target_laws[number] - draft_laws[number], 0.0)
        mass = float(residual.sum())
        if number > 0:
            # Nothing remains and nothing is lost: the two laws agree, and what was accepted so far stays.
            thresholds[number - 1] = 1.0 if mass == 0.0 and weight == 1.0 else mass / (mass + 1.0 - weight)
        if mass > 0.0:
            laws[number] = residual / mass
        drawn = token_ids[number]
        weight = min(1.0, weight * float(target_laws[number, drawn] / draft_laws[number, drawn]))
    if num_drafted:
        thresholds[-1] = weight
    return BlockVerification(thresholds, laws)


def law_of(row: torch.Tensor, temperature: float) -> FloatArray:
    """Return the law that a processed row is drawn from.

    Args:
        row: (vocabulary,) of `Sampler.process`.
        temperature: not yet applied; 0 puts everything on the largest entry, the lowest id of equals.
    """
    logits: FloatArray = row.detach().cpu().numpy().astype(np.float64)
    if temperature == 0.0:
        law = np.zeros_like(logits)
        law[int(np.argmax(logits))] = 1.0
        return law
    weights: FloatArray = np.exp((logits - logits.max()) / max(temperature, LEAST_TEMPERATURE))
    total: FloatArray = weights / weights.sum()
    return total


def draw_from(law: FloatArray, coin: float) -> int:
    """Return the token at which the sum of a law passes a coin in [0, 1)."""
    sums = np.cumsum(law)
    token_id = int(np.searchsorted(sums, coin * sums[-1], side="right"))
    # Rounding may lead past the last token that has a probability.
    return min(token_id, int(np.flatnonzero(law)[-1]))
