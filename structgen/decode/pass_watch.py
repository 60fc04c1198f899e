"""How a pass is followed while the host does something else: whether it is done, and how long it waited for masks.

On CUDA a call returns when the work is in the queue of a stream. Two pairs of events say how long the device stood idle
for the host's sake: from the end of the pass until the masks were there and the head could be started, and from the end
of the draws until the host had done with what it prepared meanwhile. Where the host was first the pair lies directly
one behind the other, a few microseconds at most.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class PassWatch(Protocol):
    """A pass that has been started; the methods are called in this order."""

    def masks_are_ready(self) -> None:
        """Note that what follows needs nothing more of the host."""

    def draws_are_started(self) -> None:
        """Note that nothing more is started in this round."""

    def is_done(self) -> bool:
        """Say whether everything that was started is done."""

    def wait(self) -> float:
        """Wait for it; return the seconds for which nothing was under way because of masks."""


class DonePass:
    """A pass on a device that returns when it is done: everything that is made after it is waited for."""

    def __init__(self) -> None:
        """Begin when the pass has returned."""
        self._returned = time.perf_counter()
        self._wait_s = 0.0

    def masks_are_ready(self) -> None:
        """Note how long they took."""
        self._wait_s = time.perf_counter() - self._returned

    def draws_are_started(self) -> None:
        """Note nothing: they are done."""

    def is_done(self) -> bool:
        """Return True."""
        return True

    def wait(self) -> float:
        """Return the seconds that masks took."""
        return self._wait_s


class CudaPass:
    """A pass in the queue of the current stream of its device."""

    def __init__(self, device: torch.device) -> None:
        """Begin when the pass has been started.

        Args:
            device: where it runs.
        """
        self._stream: Any = torch.cuda.current_stream(device)
        self._events = [self._event()]

    def masks_are_ready(self) -> None:
        """Put an event behind the pass: the device gets there at once, or when the pass is done."""
        self._events.append(self._event())

    def draws_are_started(self) -> None:
        """Put an event behind the draws."""
        self._events.append(self._event())

    def is_done(self) -> bool:
        """Ask the last event."""
        return bool(self._events[-1].query())

    def wait(self) -> float:
        """Wait for the last event, and for one behind it that was put there after what was prepared."""
        self._events.append(self._event())
        self._events[-1].synchronize()
        passed, ready, drawn, prepared = self._events
        return float(passed.elapsed_time(ready) + drawn.elapsed_time(prepared)) * 1e-3

    def _event(self) -> Any:
        new: Any = torch.cuda.Event  # torch has no types there
        event = new(enable_timing=True)
        event.record(self._stream)
        return event


def watch(hidden: torch.Tensor) -> PassWatch:
    """Return what follows the pass that has just been started, and gives these hidden states."""
    return CudaPass(hidden.device) if hidden.device.type == "cuda" else DonePass()
