"""What a device drafts by itself: the canonical tokens of the forced run of every state, as one table.

The tokens are those that drafters.ForcedRun names on the host: the bytes that every legal text goes on with, in the
tokenizer's own tokens. A draft and no promise, so the text is the same. Made on the host, once for each machine, or
piece of one that grows; there the bytes end where nobody has looked further.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from structgen.frozen_machine import FrozenMachine, Longs
from structgen.frozen_pieces import GrowingMachine
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
        self._num_pieces: dict[GrowingMachine, int] = {}

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
            runs = make_runs()
            self.make_room()
            self._write(np.arange(first, first + len(runs)), runs)
            self._known.add(first)

    def follow(self, machine: GrowingMachine) -> None:
        """Take the drafts of the pieces that a machine has by now, wherever the arena has taken these."""
        pieces = machine.pieces
        states = self._arena.states_of(machine)
        with self._lock:
            num_known = self._num_pieces.get(machine, 0)
            for piece in pieces[num_known:]:
                self.make_room()
                self._write(states[piece.numbers[: piece.num_described]], _padded(piece.forced, self.num_drafted))
            self._num_pieces[machine] = max(num_known, len(pieces))

    def make_room(self) -> None:
        """Let there be a row for each state that the arena has room for: this moves when its tables move, and not else.

        Whoever holds older tensors may find there that a state was described since, and go on to new ones.
        """
        num_states = len(self._arena.tables.machine)
        if num_states > len(self.tensor):
            grown = self.tensor.new_full((num_states, self.num_drafted), -1)
            grown[: len(self.tensor)] = self.tensor
            self.tensor = grown
            self.version += 1

    def _write(self, states: Longs, runs: npt.NDArray[np.int32]) -> None:
        device = self.tensor.device
        self.tensor[torch.from_numpy(states).to(device)] = torch.from_numpy(runs).to(device)


def forced_runs(automaton: FrozenAutomaton, num_drafted: int) -> npt.NDArray[np.int32]:
    """Return (S, num_drafted): the first canonical tokens of what is forced in each state, -1 behind them."""
    texts = [automaton.forced_bytes(state) for state in range(automaton.machine.num_states)]
    tokens = {text: automaton.vocabulary.encode(text) for text in dict.fromkeys(texts)}
    return _padded([tokens[text] for text in texts], num_drafted)


def _padded(forced: Sequence[Sequence[int]], num_drafted: int) -> npt.NDArray[np.int32]:
    runs = np.full((len(forced), num_drafted), -1, np.int32)
    for state, token_ids in enumerate(forced):
        first = token_ids[:num_drafted]
        runs[state, : len(first)] = first
    return runs
