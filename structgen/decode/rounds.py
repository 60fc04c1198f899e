"""A text on its way in rounds, as who makes its passes sees it: what to read next, and what came of it.

Alone a text makes its own passes; in a batch a pass is of several texts, which share its seconds. On CUDA a pass is
under way when it has been started: the texts make their masks meanwhile, then head and draws are started behind it, and
while these run the texts prepare what may come next. So the device waits for the host only where masks take longer than
the pass, and how long it waited is measured. On the CPU a pass is over when it returns, and the order costs nothing.

Implementations are decode/loop.py and decode/exact_choice.py; batches are in decode/batch_loop.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from structgen.decode.pass_watch import watch
from structgen.errors import StructgenError

if TYPE_CHECKING:
    from structgen.decode.control import Offer
    from structgen.decode.target import Target, Tokens


@dataclass(frozen=True, slots=True)
class PassTimes:
    """What a text has of a pass that it took part in: the same for each of them.

    Attributes:
        seconds: of the pass and of the head, and on CUDA of the draws; without what the device waited for masks.
        mask_wait_s: seconds that no pass was under way because masks were being made.
        num_rows: texts that took part.
        width: tokens of each of them, padding included.
    """

    seconds: float
    mask_wait_s: float
    num_rows: int
    width: int


class Rounds(Protocol):
    """A text on its way; its methods are called in this order."""

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

    def make_masks(self) -> None:
        """Make what does not depend on the pass, which may be under way.

        Raises:
            StructgenError: the text cannot go on.
        """

    def asked(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return those of the hidden states of the pass that logits of all tokens are needed of; there may be none."""

    def start_draws(self, hidden: torch.Tensor, logits: torch.Tensor) -> None:
        """Start to draw, on CUDA without waiting for anything.

        Args:
            hidden: (tokens, hidden_size) of the pass.
            logits: (asked, logits_width) of the hidden states that `asked` named.

        Raises:
            StructgenError: the text cannot go on.
        """

    def prepare(self, is_done: Callable[[], bool]) -> None:
        """Make what may be needed after this round, until the device has done with the pass and the draws."""

    def end_round(self, times: PassTimes) -> None:
        """Take what came of the pass.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """


def make_round(target: Target, rounds: Rounds) -> bool:
    """Make one round of a text alone; say whether there was one."""
    tokens = rounds.begin_round()
    if tokens is None:
        return False
    started = time.perf_counter()
    hidden = target.extend(tokens)
    times, failed = draw_behind([rounds], [hidden], lambda asked: [whole_logits(target, asked[0])], started=started)
    for error in failed.values():
        raise error
    rounds.end_round(times)
    return True


def draw_behind(
    rounds: Sequence[Rounds],
    hidden: Sequence[torch.Tensor],
    heads: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    *,
    started: float,
) -> tuple[PassTimes, dict[int, StructgenError]]:
    """Make masks while a pass is under way, start heads and draws behind it, and wait for them.

    Args:
        rounds: the texts that take part.
        hidden: for each of them (tokens, hidden_size) of the pass.
        heads: returns the logits of some hidden states of each.
        started: time.perf_counter() before the pass.

    Returns:
        What each text has of it, and those that failed by their number; the others are not touched by that.
    """
    watched, failed = watch(hidden[0]), dict[int, StructgenError]()

    def each(do: Callable[[int], None]) -> None:
        for number in range(len(rounds)):
            if number not in failed:
                try:
                    do(number)
                except StructgenError as error:
                    failed[number] = error

    each(lambda number: rounds[number].make_masks())
    watched.masks_are_ready()
    asked = [rows[:0] if n in failed else rounds[n].asked(rows) for n, rows in enumerate(hidden)]
    logits = heads(asked)
    each(lambda number: rounds[number].start_draws(hidden[number], logits[number]))
    watched.draws_are_started()
    each(lambda number: rounds[number].prepare(watched.is_done))
    mask_wait_s = watched.wait()
    times = PassTimes(
        seconds=(time.perf_counter() - started - mask_wait_s) / len(rounds),
        mask_wait_s=mask_wait_s / len(rounds),
        num_rows=len(rounds),
        width=max(rows.shape[0] for rows in hidden),
    )
    return times, failed


def whole_logits(target: Target, hidden: torch.Tensor) -> torch.Tensor:
    """Return (rows, logits_width) logits of all tokens of (rows, hidden_size) hidden states, or of none."""
    return target.head(hidden) if len(hidden) else hidden.new_empty((0, target.logits_width))
