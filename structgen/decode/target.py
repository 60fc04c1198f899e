"""What the loop needs of a model: one sequence with its KV cache. Implementations are beside this file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Target(Protocol):
    """One request's sequence in a target model; never shared between requests."""

    @property
    def num_cached_tokens(self) -> int:
        """How many tokens of the sequence the KV cache holds."""

    @property
    def logits_width(self) -> int:
        """Columns of the logits; padded heads have more than the vocabulary has ids."""

    @property
    def device(self) -> torch.device:
        """Where the logits are."""

    def prefill(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Start the sequence over with these tokens.

        Returns:
            (logits_width,) logits for the token after the last one.
        """

    def forward(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Append these tokens.

        Returns:
            (len(token_ids), logits_width) logits; row i is for the token after token_ids[i].
        """

    def crop(self, num_tokens: int) -> None:
        """Keep the first tokens of the sequence and forget the rest."""
