"""The rows of a batch in device mode: as many in one session as fit together, and each joins as another one ends.

Rows that need the most room begin, so that those of one session are alike; those that are too short to share it have
the next one, once its last row has ended. A pass over prompts takes as long as some steps, whether it is over one of
them or over several, and everybody waits for it: so rows join several at a time. What a row is, and what comes of it,
is as in the loop on the host (batch_loop.py): a row that fails leaves, and nothing else changes. A row that comes to
where the tables of the device end is handed on, to go on there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

from structgen.decode.batch_loop import Row
from structgen.decode.device_loop import DeviceRequest, RowFollower, SessionRows
from structgen.decode.device_pool import DevicePool
from structgen.errors import StructgenError

# Rows join where the part of the seats that is free is one by so many, or more. Reckoned and not measured: where a
# pass over prompts takes as long as 4 to 8 steps and a text 60, this takes 0.8 to 0.9 of the time with 8 rows, and 0.5
# to 0.7 with 64, of what it takes if rows join as soon as they can.
_JOIN_BY: Final = 4

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class DeviceRow(Row[T_co], Protocol[T_co]):
    """A row of a batch that can run in device mode; where it has left the device, `start` goes on with its text."""

    @property
    def asked(self) -> DeviceRequest:
        """What is asked of the device."""

    def follow(self) -> RowFollower:
        """Return the text before its first token.

        Raises:
            StructgenError: it cannot be made.
        """


def run_device_rows(
    pool: DevicePool, rows: dict[int, DeviceRow[T]], *, max_rows: int, left: dict[int, Row[T]]
) -> Iterator[tuple[int, T | StructgenError]]:
    """Yield the number of each row with its result, or with the error that it failed with, as they come.

    Args:
        pool: of the model.
        rows: what is to be made, by number; a row is taken out when it is over, so that nothing of it is kept.
        max_rows: most rows that are under way at a time.
        left: gets the rows that have left the device.
    """
    waiting = sorted(rows, key=lambda number: -rows[number].asked.shape.num_slots)
    while waiting:
        session = pool.open([rows[number].asked for number in waiting], most_rows=max_rows)
        try:
            yield from _SessionLoop(session, rows, waiting, left).run()
        except GeneratorExit:  # nobody wants more
            session.close()
            raise
        session.close()


class _SessionLoop(Generic[T]):
    """One session on its way, until no row that it takes is left."""

    def __init__(
        self, session: SessionRows, rows: dict[int, DeviceRow[T]], waiting: list[int], left: dict[int, Row[T]]
    ) -> None:
        self._session = session
        self._rows = rows
        self._waiting = waiting
        self._left = left
        self._number_of: dict[RowFollower, int] = {}

    def run(self) -> Iterator[tuple[int, T | StructgenError]]:
        """Let rows join, and wait for news, until no row is left."""
        while True:
            yield from self._join()
            if not self._number_of:
                return
            for follower, error in self._session.step():
                number = self._number_of.pop(follower)
                row = self._rows.pop(number)
                if follower.has_left:
                    self._left[number] = row
                else:
                    yield number, _result_of(row) if error is None else error

    def _join(self) -> Iterator[tuple[int, StructgenError]]:
        """Start rows that wait, as long as there is room; yield those that cannot be started."""
        session, joining = self._session, dict[RowFollower, int]()
        takes = (number for number in self._waiting if session.takes(self._rows[number].asked))
        numbers = list(itertools.islice(takes, session.num_free))
        if self._number_of and len(numbers) == session.num_free < session.num_rows // _JOIN_BY:
            return
        for number in numbers:
            self._waiting.remove(number)
            try:
                follower = self._rows[number].follow()
            except StructgenError as error:
                del self._rows[number]
                yield number, error
            else:
                joining[follower] = number
        if joining:
            session.seat(list(joining))
            self._number_of |= joining


def _result_of(row: Row[T]) -> T | StructgenError:
    try:
        return row.result()
    except StructgenError as error:
        return error
