"""What the loop needs of a parser state; structgen.grammar's is one, tests and benchmarks have simpler ones."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import numpy as np


class DecodeState(Protocol):
    """A walk over a token automaton, as far as decoding needs it.

    Masks are packed int32, (ceil(vocabulary / 32),), bit 1 = legal, stop ids exactly where the text may end.
    """

    @property
    def tokens_to_end_bound(self) -> int:
        """A number of text tokens that is enough to end from here, whatever the model prefers."""

    @property
    def is_accepting(self) -> bool:
        """Whether the text may end here."""

    @property
    def description(self) -> str:
        """Where the state is, for messages."""

    @property
    def key(self) -> Hashable:
        """A key that is the same wherever the same tokens are legal: what drafters learn by."""

    def mask(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return the legal tokens."""

    def mask_within(self, budget: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return the legal tokens after which the text can still end within budget - 1 more."""

    def free_text_mask(self) -> np.ndarray[Any, np.dtype[np.int32]] | None:
        """Return the tokens that stay inside free text, None where there is none."""

    def forced_tokens(self) -> list[int]:
        """Return the canonical tokens of the bytes that every continuation starts with."""

    def advance(self, token_id: int) -> None:
        """Take a legal token."""

    def rollback(self, num_tokens: int) -> None:
        """Undo the last tokens."""
