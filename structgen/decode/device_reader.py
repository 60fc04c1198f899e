"""How the host sees what the device wrote: copies that it takes without waiting, and looks at when they are there.

A copy goes into memory that the device can write by itself (pinned), behind the steps that were started before it. The
host waits for the oldest copy only, while newer steps are under way, so the device has work all the time. What is read
is in one piece of memory, because each copy has a price of its own. Left out: what is read, and how far ahead the host
goes (device_session.py).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

Layout: TypeAlias = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
"""Tensors in one piece of memory: dtype and shape by name; the larger elements come first."""


def in_one_piece(layout: Layout, device: torch.device | str, *, pinned: bool = False) -> torch.Tensor:
    """Return zeroed memory for a layout."""
    num_bytes = sum(math.prod(shape) * dtype.itemsize for dtype, shape in layout.values())
    return torch.zeros(num_bytes, dtype=torch.uint8, device=device, pin_memory=pinned)


def views_of(memory: torch.Tensor, layout: Layout) -> dict[str, torch.Tensor]:
    """Return the tensors of a layout, which are views."""
    found, start = {}, 0
    for name, (dtype, shape) in layout.items():
        end = start + math.prod(shape) * dtype.itemsize
        found[name] = memory[start:end].view(dtype).view(shape)
        start = end
    return found


class DeviceReader:
    """Copies of some tensors, oldest first."""

    def __init__(self, memory: torch.Tensor, layout: Layout, *, num_slots: int) -> None:
        """Make room.

        Args:
            memory: what is read, made by `in_one_piece`.
            layout: what it holds.
            num_slots: most copies that are under way or not yet read.
        """
        is_cuda = memory.device.type == "cuda"
        new_event: Any = torch.cuda.Event  # torch has no types there
        self._memory = memory
        self._layout = layout
        self._free: list[tuple[torch.Tensor, Any]] = []
        for _ in range(num_slots):
            self._free.append((in_one_piece(layout, "cpu", pinned=is_cuda), new_event() if is_cuda else None))
        self._taken: deque[tuple[torch.Tensor, Any]] = deque()

    @property
    def num_taken(self) -> int:
        """Copies that were not read yet."""
        return len(self._taken)

    def take(self) -> None:
        """Start a copy of what the tensors are after everything that was started before."""
        room, event = slot = self._free.pop()
        room.copy_(self._memory, non_blocking=True)
        if event is not None:
            event.record()
        self._taken.append(slot)

    def read(self) -> dict[str, torch.Tensor]:
        """Return the oldest copy once it is there; it stays as it is until the next `take`."""
        room, event = slot = self._taken.popleft()
        if event is not None:
            event.synchronize()
        self._free.insert(0, slot)
        return views_of(room, self._layout)
