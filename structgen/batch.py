"""A batch: rows are checked, decoded together, and each is tried, whatever happens to the others."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from structgen.calls import DeviceCallRow
from structgen.errors import BatchError, StructgenError

if TYPE_CHECKING:
    from structgen.decode.batch_loop import Row
    from structgen.decode.device_batch import DeviceRow
    from structgen.decode.device_pool import DevicePool
    from structgen.decode.target import TargetBatch

T = TypeVar("T")

_log = logging.getLogger("structgen")

# Rows from which on a batch shows a progress bar on a terminal.
_LONG_BATCH = 8


@contextlib.contextmanager
def named_row(number: int) -> Iterator[None]:
    """Let an error that ends a batch before it begins say which row it is about."""
    try:
        yield
    except StructgenError as error:
        error.args = (f"row {number}: {error}",)
        raise


def run_batch(
    batch: TargetBatch, pool: DevicePool, makers: Sequence[Callable[[], Row[T]]], *, max_rows: int
) -> list[T]:
    """Make every row, decode them together, and return what they give, in order; with a bar if there are many.

    Args:
        batch: an empty one, for the rows in host mode.
        pool: for those in device mode.
        makers: each gives a row, or raises what is wrong with it.
        max_rows: most rows that share passes.

    Raises:
        BatchError: some failed; it has the results of the others.
    """
    results: dict[int, T | StructgenError] = {}
    rows: dict[int, Row[T]] = {}
    for number, make in enumerate(makers):
        try:
            rows[number] = make()
        except StructgenError as error:
            results[number] = error
    num_rows, ended = len(rows), _ended(batch, pool, rows, max_rows)
    for number, result in progress(ended, num_rows):
        results[number] = result
    ordered = [results[number] for number in range(len(makers))]
    done = [result for result in ordered if not isinstance(result, StructgenError)]
    if len(done) < len(ordered):
        first = next(result for result in ordered if isinstance(result, StructgenError))
        raise BatchError(tuple(ordered)) from first
    return done


def _ended(
    batch: TargetBatch, pool: DevicePool, rows: dict[int, Row[T]], max_rows: int
) -> Iterator[tuple[int, T | StructgenError]]:
    """Yield what rows come to: first those that the device makes, then the others, and those that have left it."""
    from structgen.decode.batch_loop import run_rows
    from structgen.decode.device_batch import run_device_rows

    on_device: dict[int, DeviceRow[T]] = {}
    on_device |= {number: row for number, row in rows.items() if isinstance(row, DeviceCallRow)}
    for number in on_device:
        del rows[number]
    yield from run_device_rows(pool, on_device, max_rows=max_rows, left=rows)
    if batch.alone_because is not None and len(rows) > 1:
        _log.info("the rows of this batch are read one after the other: %s", batch.alone_because)
    yield from run_rows(batch, rows, max_rows=max_rows)


def progress(work: Iterable[T], total: int) -> Iterable[T]:
    """Iterate over what is done of a batch, with a bar on a terminal if there is much of it."""
    if total < _LONG_BATCH or not sys.stderr.isatty():
        return work
    from rich.console import Console
    from rich.progress import track

    return track(work, description="generating", total=total, console=Console(file=sys.stderr), transient=True)
