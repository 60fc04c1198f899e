"""What the loop needs of a model: one sequence with its KV cache, alone or as a row of a batch.

A pass gives hidden states; logits are asked for where they are needed, and only for the tokens that may be drawn there
if those are few. Drafts are verified in the pass that appends them: a chain, or a tree in which several tokens follow
the same one. Afterwards `crop` or `keep` says what of it stays. Implementations are beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import torch

    from structgen.decode.mask_table import DeviceSide

TokenIds: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a pass appends to a sequence.

    Attributes:
        token_ids: the tokens, at least one.
        parents: None for a chain; else for each token the index in token_ids of the one it follows, smaller than its
            own, or -1 where it follows what is in the cache.
        num_prompt_tokens: how many of them are a prompt, which is read at once where passes have a fixed width.
    """

    token_ids: Sequence[int]
    parents: Sequence[int] | None = None
    num_prompt_tokens: int = 0


class Target(Protocol):
    """One request's sequence in a target model; never shared between requests."""

    @property
    def num_cached_tokens(self) -> int:
        """How many tokens of the sequence the KV cache holds; nodes of a tree count until `keep`."""

    @property
    def logits_width(self) -> int:
        """Columns of the logits; padded heads have more than the vocabulary has ids."""

    @property
    def device(self) -> torch.device:
        """Where hidden states and logits are."""

    @property
    def device_side(self) -> DeviceSide | None:
        """What draws on the device share with those of other requests; None where the host draws."""

    @property
    def takes_trees(self) -> bool:
        """Whether `extend` reads trees; some models cannot be given a mask of ours."""

    @property
    def most_legal_rows(self) -> int:
        """Longest list of token ids for which `head` is faster with the list than without; 0 where none is."""

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

    def extend(self, tokens: Tokens) -> torch.Tensor:
        """Append a chain or a tree, in one pass; after a tree, `keep` or `crop` comes before the next one.

        Returns:
            (len(token_ids), hidden_size) hidden states for `head`; row i is for the token after token_ids[i].
        """

    def head(self, hidden: torch.Tensor, token_ids: Sequence[int] | TokenIds | None = None) -> torch.Tensor:
        """Return logits of hidden states, which may be of any sequence of the same model.

        Args:
            hidden: (rows, hidden_size) of `extend`.
            token_ids: the columns that are wanted; None for all.

        Returns:
            (rows, logits_width) logits or (rows, len(token_ids)); the caller may change them.
        """

    def crop(self, num_tokens: int) -> None:
        """Keep the first tokens of the sequence and forget the rest."""

    def keep(self, path: Sequence[int]) -> None:
        """Keep of what the last `extend` appended only these tokens, and what was before them.

        Args:
            path: their indices; the first has the parent -1, each other one the index before it; may be empty.
        """


class TargetBatch(Protocol):
    """Sequences that take their passes together; one thread uses it at a time."""

    @property
    def alone_because(self) -> str | None:
        """Why every row has passes of its own, so that several at a time gain nothing; None if they share them."""

    def join(self) -> Target:
        """Return an empty sequence, a new row of the batch."""

    def leave(self, row: Target) -> None:
        """Take a row out of the batch; it cannot be used afterwards."""

    def extend(self, parts: Sequence[tuple[Target, Tokens]]) -> list[torch.Tensor]:
        """Append to several rows in one pass, of whatever lengths and widths; a row stands in it once.

        Returns:
            for each part the hidden states that `Target.extend` of the row alone would give.
        """

    def heads(self, hidden: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return what `Target.head` gives of each of these hidden states, in one go where that changes no promise."""
