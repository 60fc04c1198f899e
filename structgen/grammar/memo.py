"""A bounded memo for threads: each value is made once, by the first thread that asks for it.

Leaves out what outlives the process (array_store.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Gate:
    """Held by the thread that makes a value; it lives as long as some thread wants that value."""

    __slots__ = ("lock", "num_threads")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.num_threads = 0


class Memo(Generic[K, V]):
    """Values by key; those used longest ago go. Threads wait for each other only where they want the same value."""

    def __init__(self, max_size: int) -> None:
        """Start empty.

        Args:
            max_size: how many values are kept.
        """
        self._max_size = max_size
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()
        self._gates: dict[K, _Gate] = {}

    def __len__(self) -> int:
        """Count the values at hand, and those that are being made."""
        with self._lock:
            return len(self._values.keys() | self._gates.keys())

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made now if it is not at hand; what `make` raises is not kept.

        Args:
            key: what is asked for.
            make: makes the value; it must not ask this memo for the same key.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            gate = self._gates.setdefault(key, _Gate())
            gate.num_threads += 1
        try:
            with gate.lock:
                with self._lock:
                    if key in self._values:  # made while this thread waited
                        return self._values[key]
                value = make()
                with self._lock:
                    self._values[key] = value
                    if len(self._values) > self._max_size:
                        self._values.popitem(last=False)
                return value
        finally:
            with self._lock:
                gate.num_threads -= 1
                if not gate.num_threads:
                    del self._gates[key]
