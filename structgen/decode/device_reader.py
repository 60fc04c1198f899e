"""How the host sees what the device wrote: copies that it takes without waiting, and looks at when they are there.

A copy goes into memory that the device can write by itself (pinned), behind the steps that were started before it. The
host waits for the oldest copy only, while newer steps are under way, so the device has work all the time. Left out:
what is read, and how far ahead the host goes (device_session.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch


class DeviceReader:
    """Copies of some tensors, oldest first."""

    def __init__(self, tensors: Sequence[torch.Tensor], *, num_slots: int) -> None:
        """Make room.

        Args:
            tensors: what is read; they stay where they are.
            num_slots: most copies that are under way or not yet read.
        """
        new_event: Any = torch.cuda.Event  # torch has no types there
        is_cuda = tensors[0].device.type == "cuda"
        self._tensors = list(tensors)
        self._free: list[tuple[list[torch.Tensor], Any]] = []
        for _ in range(num_slots):
            room = [torch.empty(one.shape, dtype=one.dtype, device="cpu", pin_memory=is_cuda) for one in tensors]
            self._free.append((room, new_event() if is_cuda else None))
        self._taken: deque[tuple[list[torch.Tensor], Any]] = deque()

    @property
    def num_taken(self) -> int:
        """Copies that were not read yet."""
        return len(self._taken)

    def take(self) -> None:
        """Start a copy of what the tensors are after everything that was started before."""
        room, event = slot = self._free.pop()
        for target, source in zip(room, self._tensors, strict=True):
            target.copy_(source, non_blocking=True)
        if event is not None:
            event.record()
        self._taken.append(slot)

    def read(self) -> list[torch.Tensor]:
        """Return the oldest copy once it is there; it stays as it is until the next `read`."""
        room, event = slot = self._taken.popleft()
        if event is not None:
            event.synchronize()
        self._free.insert(0, slot)
        return room

    def drop(self) -> None:
        """Forget what was not read; what is still under way may come."""
        while self._taken:
            self._free.insert(0, self._taken.popleft())
