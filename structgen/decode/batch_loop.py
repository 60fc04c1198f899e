"""The loop over a batch: one round after another of all its rows, in as few passes of the target as pay.

A round begins for every row, which says what it has to read; the rows read together, and each draws for itself. A row
that has ended leaves at once, and one that waits joins. Rows are started by the length of their prompts, the longest
first, so that those in one pass are alike: a pass is as wide as its widest row, and keys and values are held for as
many positions as the longest row has. What is narrower or shorter is padding, which is computed and held for nothing.
So drafts are cut to the length that is best for all rows together; rows of very unlike width read in passes of their
own, a prompt beside single tokens above all; and a row waits while it would be mostly padding.

A row that fails leaves, and nothing else changes. Left out: rows in device mode (device_batch.py), several devices, and
rows that come while others run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from structgen.decode.pass_groups import grouped
from structgen.decode.rounds import PassTimes, Rounds, draw_behind
from structgen.decode.speculation_model import best_length
from structgen.decode.target import Target, TargetBatch, Tokens
from structgen.errors import StructgenError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Rows hold up to so many times the positions that they need, and some more.
_MOST_PADDING = 2
_SPARE_POSITIONS = 1024


class Row(Protocol[T_co]):
    """A row of a batch before its turn."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of its prompt."""

    def start(self, target: Target) -> Rounds:
        """Return the text before its first token.

        Args:
            target: its sequence.

        Raises:
            StructgenError: it cannot be made.
        """

    def result(self) -> T_co:
        """Return what came of the text, which has ended.

        Raises:
            StructgenError: the text is not what its type needs.
        """


@dataclass(slots=True)
class _Live(Generic[T]):
    """A row on its way.

    Attributes:
        number: its place in the batch that was asked for.
        tokens: what it has to read in this round.
    """

    number: int
    row: Row[T]
    target: Target
    rounds: Rounds
    tokens: Tokens


def run_rows(batch: TargetBatch, rows: dict[int, Row[T]], *, max_rows: int) -> Iterator[tuple[int, T | StructgenError]]:
    """Yield the number of each row with its result, or with the error that it failed with, as they come.

    Args:
        batch: an empty one.
        rows: what is to be made, by number; a row is taken out when it has ended, so that nothing of it is kept.
        max_rows: most rows that share passes; where rows have passes of their own there is one at a time.
    """
    yield from _BatchLoop(batch, rows, max_rows if batch.alone_because is None else 1).run()


class _BatchLoop(Generic[T]):
    """One batch on its way."""

    def __init__(self, batch: TargetBatch, rows: dict[int, Row[T]], max_rows: int) -> None:
        self._batch = batch
        self._rows = rows
        self._max_rows = max_rows
        self._waiting = deque(sorted(rows, key=lambda number: -rows[number].num_prompt_tokens if max_rows > 1 else 0))
        self._live: list[_Live[T]] = []
        self._done: deque[tuple[int, T | StructgenError]] = deque()

    def run(self) -> Iterator[tuple[int, T | StructgenError]]:
        """Make rounds until no row is left."""
        while self._live or self._waiting:
            for one in list(self._live):
                self._begin(one)
            self._join()
            self._narrow()
            groups = grouped([len(one.tokens.token_ids) for one in self._live])
            for group in [[self._live[index] for index in group] for group in groups]:
                self._read(group)
            while self._done:
                yield self._done.popleft()

    def _join(self) -> None:
        """Start rows that wait, as long as there is room."""
        while self._waiting and len(self._live) < self._max_rows and self._is_alike(self._waiting[0]):
            number = self._waiting.popleft()
            row, target = self._rows[number], self._batch.join()
            try:
                one = _Live(number, row, target, row.start(target), Tokens(()))
            except StructgenError as error:
                self._batch.leave(target)
                self._end_of(number, error)
            else:
                self._live.append(one)
                self._begin(one)

    def _is_alike(self, number: int) -> bool:
        """Say whether the rows would still be mostly text and not padding with one more."""
        lengths = [max(one.target.num_cached_tokens, one.row.num_prompt_tokens) for one in self._live]
        lengths.append(self._rows[number].num_prompt_tokens)
        return len(lengths) * max(lengths) <= _MOST_PADDING * sum(lengths) + _SPARE_POSITIONS

    def _begin(self, one: _Live[T]) -> None:
        """Begin a round of a row; one that has ended, or fails, leaves."""
        num_rows = min(self._max_rows, len(self._live) + len(self._waiting))
        try:
            tokens = one.rounds.begin_round(num_rows=num_rows)
            if tokens is None:
                self._leave(one, one.row.result())
            else:
                one.tokens = tokens
        except StructgenError as error:
            self._leave(one, error)

    def _narrow(self) -> None:
        """Cut the drafts of all rows to one length: who reads fewer tokens than the others reads padding."""
        offered = [(one, offer) for one in self._live if (offer := one.rounds.offer()) is not None]
        offered = [(one, offer) for one, offer in offered if not one.tokens.num_prompt_tokens]
        if len(offered) < 2:
            return
        offers = [offer for _, offer in offered]
        length = best_length(
            [offer.survivals for offer in offers], lambda number: sum(offer.price(number) for offer in offers)
        )
        for one, offer in offered:
            if len(offer.survivals) > length:
                one.tokens = one.rounds.narrow(length)

    def _read(self, group: Sequence[_Live[T]]) -> None:
        """Let rows read in one pass, and draw."""
        started = time.perf_counter()
        states = self._batch.extend([(one.target, one.tokens) for one in group])
        times, failed = draw_behind([one.rounds for one in group], states, self._batch.heads, started=started)
        for number, one in enumerate(group):
            if number in failed:
                self._leave(one, failed[number])
            else:
                self._end(one, times)

    def _end(self, one: _Live[T], times: PassTimes) -> None:
        try:
            one.rounds.end_round(times)
        except StructgenError as error:
            self._leave(one, error)

    def _leave(self, one: _Live[T], result: T | StructgenError) -> None:
        self._live.remove(one)
        self._batch.leave(one.target)
        self._end_of(one.number, result)

    def _end_of(self, number: int, result: T | StructgenError) -> None:
        del self._rows[number]
        self._done.append((number, result))
