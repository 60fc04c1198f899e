"""The promised law of a draw in float64, with plain loops and a full sort."""

from __future__ import annotations

import math
from collections.abc import Mapping

from structgen.config import PenaltyScope, Sampling


class Reference:
    """The promised law in float64 with plain loops and a full sort; shares no code with the sampler."""

    def __init__(self, sampling: Sampling, generated: list[int]) -> None:
        self.sampling = sampling
        self.generated = generated
        self.borders: list[float] = []  # how near a decision was to turning out otherwise

    def law(self, logits: list[float], legal: set[int], free_text: set[int]) -> list[float]:
        """Return the probability of each token."""
        option = self.sampling
        scaled: dict[int, float] = {}
        bias: Mapping[int, float] = option.logit_bias or {}
        for token_id in sorted(legal):
            logit = logits[token_id] + bias.get(token_id, 0.0)
            is_in_scope = option.penalty_scope is PenaltyScope.EVERYWHERE or token_id in free_text
            num_times = self.generated.count(token_id)
            if is_in_scope and num_times:
                logit = logit / option.repetition_penalty if logit > 0 else logit * option.repetition_penalty
                logit -= option.presence_penalty + option.frequency_penalty * num_times
            scaled[token_id] = logit / option.temperature
        total = math.fsum(math.exp(value) for value in scaled.values())
        share = {token_id: math.exp(value) / total for token_id, value in scaled.items()}
        # Twelve digits: tokens that are equal but for rounding are equal.
        order = sorted(share, key=lambda token_id: (-round(share[token_id], 12), token_id))
        kept = {t: share[t] for t in self._kept(order, share)}
        mass = math.fsum(kept.values())
        return [kept.get(token_id, 0.0) / mass for token_id in range(len(logits))]

    def _kept(self, order: list[int], share: dict[int, float]) -> list[int]:
        option = self.sampling
        num = min(len(order), option.top_k or len(order))
        if option.top_p is not None and option.top_p < 1.0:
            mass = 0.0
            for i, token_id in enumerate(order):
                mass += share[token_id]
                self.borders.append(abs(mass - option.top_p))
                if mass >= option.top_p:
                    num = min(num, i + 1)
                    break
        kept = order[:num]
        if option.min_p:
            for token_id in kept:
                self.borders.append(abs(share[token_id] / share[order[0]] - option.min_p))
            kept = [t for t in kept if share[t] >= option.min_p * share[order[0]]]
        return kept
