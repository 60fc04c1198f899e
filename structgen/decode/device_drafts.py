"""What a device drafts by itself: the canonical tokens of the forced run of every state, as one table.

The tokens are those that drafters.ForcedRun names on the host: the bytes that every legal text goes on with, in the
tokenizer's own tokens. A draft and no promise, so the text is the same. Made once for each machine, on the host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from structgen.frozen_machine import FrozenMachine
from structgen.kernels.arena import Arena

if TYPE_CHECKING:
    from structgen.grammar.frozen_automaton import FrozenAutomaton


class DeviceDrafts:
    """The drafts of all machines of an arena.

    Attributes:
        num_drafted: most tokens of a draft.
        tensor: (S, num_drafted) int32, -1 from where there is no more; by the numbers of the arena.
        version: changes whenever the tensor has moved.
    """

    def __init__(self, arena: Arena, *, num_drafted: int, device: torch.device) -> None:
        """Start without machines.

        Args:
            arena: numbers the states.
            num_drafted: most tokens of a draft.
            device: where the tensor lies.
        """
        self.num_drafted = num_drafted
        self.version = 0
        self.tensor = torch.full((0, num_drafted), -1, dtype=torch.int32, device=device)
        self._arena = arena
        self._lock = threading.Lock()
        self._known: set[int] = set()

    def add(self, machine: FrozenMachine, make_runs: Callable[[], npt.NDArray[np.int32]]) -> None:
        """Take the drafts of a machine, unless it is there already.

        Args:
            machine: whose states they follow.
            make_runs: gives (S, num_drafted), as `forced_runs` does.
        """
        first = self._arena.first_state(machine)
        with self._lock:
            if first in self._known:
                return
            rows = torch.from_numpy(make_runs()).to(self.tensor.device)
            end = first + len(rows)
            if end > len(self.tensor):
                grown = self.tensor.new_full((max(end, 2 * len(self.tensor)), self.num_drafted), -1)
                grown[: len(self.tensor)] = self.tensor
                self.tensor = grown
                self.version += 1
            self.tensor[first:end] = rows
            self._known.add(first)


def forced_runs(automaton: FrozenAutomaton, num_drafted: int) -> npt.NDArray[np.int32]:
    """Return (S, num_drafted): the first canonical tokens of what is forced in each state, -1 behind them."""
    num_states = automaton.machine.num_states
    runs = np.full((num_states, num_drafted), -1, np.int32)
    known: dict[bytes, list[int]] = {}
    for state in range(num_states):
        forced = automaton.forced_bytes(state)
        if forced not in known:
            known[forced] = automaton.vocabulary.encode(forced)[:num_drafted]
        runs[state, : len(known[forced])] = known[forced]
    return runs
