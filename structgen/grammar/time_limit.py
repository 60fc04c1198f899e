"""The time that a compilation may take: set where one begins, looked at wherever work may grow with what was declared.

The limit belongs to the thread that compiles. What is made later, when a text gets there, stands under none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from structgen.errors import LimitError


class Deadline:
    """The end of the time that a compilation may take."""

    def __init__(self, seconds: float) -> None:
        """Start the clock."""
        self.seconds = seconds
        self._started = time.monotonic()

    @property
    def spent(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._started

    def check(self, what: str) -> None:
        """Raise LimitError if the time is over; `what` says what was being worked on."""
        spent = self.spent
        if spent > self.seconds:
            reason = f"compiling took too long, at {what}; make it smaller, or raise Limits.compile_seconds"
            raise LimitError(reason, "compile_seconds", spent)


_current: ContextVar[Deadline | None] = ContextVar("structgen_deadline", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Bound what is done inside; a limit around this one still holds.

    Args:
        seconds: how long it may take.
    """
    outer = _current.get()
    if outer is not None:
        seconds = min(seconds, outer.seconds - outer.spent)
    token = _current.set(Deadline(seconds))
    try:
        yield
    finally:
        _current.reset(token)


def check_time(what: str) -> None:
    """Raise LimitError if there is a limit, and it has passed; `what` says what was being worked on."""
    deadline = _current.get()
    if deadline is not None:
        deadline.check(what)
