"""What the user sees while the default model is fetched: a bar on a terminal, one line of text elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def say(text: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"structgen: {text}\n")
    sys.stderr.flush()


class FetchProgress:
    """A progress bar on stderr that shows one step at a time."""

    def __init__(self, title: str) -> None:
        """Decide between bar and line by what stderr is now."""
        self._title = title
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._started = time.monotonic()

    def __enter__(self) -> FetchProgress:
        """Draw the bar, or write the line."""
        if sys.stderr.isatty():
            self._progress = _bar()
            self._progress.console.print(f"structgen: fetching {self._title}")
            self._progress.start()
        else:
            say(f"fetching {self._title} (about a minute)")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away; on a terminal say how long it took."""
        if self._progress is None:
            return
        self._progress.stop()
        if kind is None:
            say(f"the model is ready ({time.monotonic() - self._started:.0f} s); from now on it works offline")

    def start(self, step: str, num_bytes: int | None) -> None:
        """Begin a step of a known size in bytes, or of unknown length."""
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(step, total=num_bytes)

    def update(self, num_bytes: int) -> None:
        """Say how many bytes of the current step are done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=num_bytes)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:>12}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(file=sys.stderr), transient=True)
