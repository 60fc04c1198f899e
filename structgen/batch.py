"""Rows of a batch: each is tried, whatever happens to the others. Left out: several rows in one pass of the model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from structgen.errors import BatchError, StructgenError

T = TypeVar("T")

# Rows from which on a batch shows a progress bar on a terminal.
_LONG_BATCH = 8


def run_rows(rows: Sequence[Callable[[], T]]) -> list[T]:
    """Call each in turn, with a bar on a terminal if there are many, and return what they give.

    Raises:
        BatchError: some failed; it has the results of the others.
    """
    results: list[T | StructgenError] = []
    for row in progress(rows):
        try:
            results.append(row())
        except StructgenError as error:
            results.append(error)
    done = [result for result in results if not isinstance(result, StructgenError)]
    if len(done) < len(results):
        first = next(result for result in results if isinstance(result, StructgenError))
        raise BatchError(tuple(results)) from first
    return done


def progress(rows: Sequence[T]) -> Iterable[T]:
    """Iterate over the rows of a batch, with a bar on a terminal if there are many."""
    if len(rows) < _LONG_BATCH or not sys.stderr.isatty():
        return rows
    from rich.console import Console
    from rich.progress import track

    return track(rows, description="generating", console=Console(file=sys.stderr), transient=True)
