"""A text on its way in rounds, as who makes its passes sees it: what to read next, and what came of it.

Alone a text makes its own passes; in a batch a pass is of several texts, which share its logits and its seconds.
Implementations are decode/loop.py and decode/exact_choice.py; batches are in decode/batch_loop.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from structgen.decode.control import Offer
    from structgen.decode.target import Target, Tokens


@dataclass(frozen=True, slots=True)
class SharedPass:
    """What a text is given of a pass that it shared.

    Attributes:
        logits: (asked, logits_width) of the hidden states that `Rounds.asked` named.
        seconds: its part of the pass and of the head: the same for each row that took part.
        num_rows: rows that took part.
        width: tokens of each of them, padding included.
    """

    logits: torch.Tensor
    seconds: float
    num_rows: int
    width: int


class Rounds(Protocol):
    """A text on its way."""

    def begin_round(self, *, num_rows: int = 1) -> Tokens | None:
        """Return what the target has to read next, None where the text has ended.

        Args:
            num_rows: texts that share the passes at present.

        Raises:
            NoLegalTokenError: no token is legal, and the text may not end.
        """

    def offer(self) -> Offer | None:
        """Return what the drafted tokens of the round are worth, None if they are to be read whatever they cost."""

    def narrow(self, num_drafted: int) -> Tokens:
        """Give up the drafted tokens of the round but the first so many, and return what is left to read."""

    def asked(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return those of the hidden states of the pass that logits of all tokens are needed of; there may be none."""

    def end_round(self, hidden: torch.Tensor, started: float, shared: SharedPass | None = None) -> None:
        """Take what the target made of the tokens that begin_round gave.

        Args:
            hidden: (tokens, hidden_size) of the pass.
            started: time.perf_counter() before what this text alone has to pay: the pass where it had one of its own.
            shared: what it has of a pass that it shared; None makes the logits here.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """


def make_round(target: Target, rounds: Rounds) -> bool:
    """Make one round of a text alone; say whether there was one."""
    tokens = rounds.begin_round()
    if tokens is not None:
        started = time.perf_counter()
        rounds.end_round(target.extend(tokens), started)
    return tokens is not None


def wait_for(tensor: torch.Tensor) -> None:
    """Wait until a tensor is there: whoever reads it would wait anyway, and so the times stay apart."""
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)
