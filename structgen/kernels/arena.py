"""Arena: the tables of many frozen machines as one set of tensors, so that rows of a batch may follow different ones.

States, mask rows and places in next_state are numbered through all machines. Machines are only added; what was added
keeps its numbers, so a row that is under way is never disturbed, and where there is room left nothing even moves.
Leaves out the steps (advance.py) and the draws.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from structgen.errors import VocabularyError
from structgen.frozen_machine import STOP_CLASS, FrozenMachine

if TYPE_CHECKING:
    import torch

Device: TypeAlias = "torch.device | str"

NOTHING_FOLLOWS: Final = 1 << 30
"""least_after of a state that no text token leaves."""

UNKNOWN: Final = -1
"""least_after of a state that the tables name but do not describe."""

_FIRST_ROOM: Final = 64


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Tables:
    """The tensors of an arena, all on one device, with room behind what is used.

    G machines, S states, R mask rows, W = ceil(V / 32) words. A state that its machine names but does not describe has
    least_after -1, cost_after -1, and the row where nothing is legal.

    Attributes:
        token_class: (G, 32 W) int16, the bits of a uint16: the class of each token for each machine, 0 beyond V.
        next_state: int32, the state after each class, -1 where it is not legal: a row for each state.
        step_start: (S,) int64, where the row of each state begins in next_state.
        machine: (S,) int32, whose state it is.
        mask_row: (S,) int32, its row in mask_rows.
        mask_rows: (R, W) int32. The first num_private_rows belong to the places of a step, for rows that a budget cuts.
        list_start: (R + 1,) int64, where the list of a row begins in list_ids; empty where a row has none.
        list_ids: int32, ascending token ids.
        free_row: (S,) int32, the row of the tokens that stay inside free text, -1 where none is live.
        accepting: (S,) bool, whether the text may end.
        cost: (S,) int32, how many tokens are enough to end.
        cost_after: (S,) int32, the greatest cost after any legal token.
        least_after: (S,) int32, the least cost after any legal token that is text; NOTHING_FOLLOWS where there is none.
        num_tokens: V.
        num_private_rows: how many places a step may have.
    """

    token_class: torch.Tensor
    next_state: torch.Tensor
    step_start: torch.Tensor
    machine: torch.Tensor
    mask_row: torch.Tensor
    mask_rows: torch.Tensor
    list_start: torch.Tensor
    list_ids: torch.Tensor
    free_row: torch.Tensor
    accepting: torch.Tensor
    cost: torch.Tensor
    cost_after: torch.Tensor
    least_after: torch.Tensor
    num_tokens: int
    num_private_rows: int


class Arena:
    """Machines of one vocabulary on one device; thread-safe, but growth is no step of a graph."""

    def __init__(
        self, *, vocabulary_digest: str, num_tokens: int, num_private_rows: int, device: Device = "cpu"
    ) -> None:
        """Start with no machine.

        Args:
            vocabulary_digest: of the vocabulary that all machines must have.
            num_tokens: V.
            num_private_rows: how many places a step may have: rows of the batch, times one more than are drafted.
            device: where the tensors lie.
        """
        num_words = (num_tokens + 31) // 32
        self._digest = vocabulary_digest
        self._num_tokens, self._num_words, self._num_private_rows = num_tokens, num_words, num_private_rows
        self._lock = threading.Lock()
        self._machines: list[tuple[FrozenMachine, int]] = []
        shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
            "token_class": (np.int16, (32 * num_words,)),
            "mask_rows": (np.int32, (num_words,)),
            "accepting": (np.bool_, ()),
            **dict.fromkeys(("step_start", "list_start"), (np.int64, ())),
            **dict.fromkeys(("next_state", "machine", "mask_row", "free_row", "list_ids"), (np.int32, ())),
            **dict.fromkeys(("cost", "cost_after", "least_after"), (np.int32, ())),
        }
        self._tensors = {
            name: _Growing(np.empty((0, *shape), dtype), device) for name, (dtype, shape) in shapes.items()
        }
        # The row behind the private ones is the one where nothing is legal; neither has a list.
        self._append("mask_rows", np.zeros((num_private_rows + 1, num_words), np.int32))
        self._append("list_start", np.zeros(num_private_rows + 2, np.int64))
        # In one place, so that nobody finds a version with older tables.
        self._published = 0, self._snapshot()

    def __repr__(self) -> str:
        """Show the sizes."""
        return f"Arena({len(self._machines)} machines, states={self.num_states}, {self.num_bytes / 2**20:.1f} MiB)"

    @property
    def num_states(self) -> int:
        """How many states all machines have."""
        return self._tensors["machine"].size

    @property
    def num_bytes(self) -> int:
        """How much memory the tensors take, room included."""
        return sum(one.tensor.nbytes for one in self._tensors.values())

    @property
    def version(self) -> int:
        """Changes whenever tensors have moved: take `tables` anew then, and capture graphs anew."""
        return self._published[0]

    @property
    def tables(self) -> Tables:
        """The tensors as they are now; never older than a version that was read before."""
        return self._published[1]

    def __contains__(self, machine: FrozenMachine) -> bool:
        """Say whether a machine is there already."""
        with self._lock:
            return any(one is machine for one, _ in self._machines)

    def add(self, machine: FrozenMachine) -> int:
        """Take a machine and return the number of its start state; one that is there already keeps its numbers.

        Raises:
            VocabularyError: it is for another vocabulary.
        """
        return self.first_state(machine) + machine.start

    def first_state(self, machine: FrozenMachine) -> int:
        """Take a machine and return what is added to the numbers of its states here.

        Raises:
            VocabularyError: it is for another vocabulary.
        """
        if machine.vocabulary_digest != self._digest or machine.num_tokens != self._num_tokens:
            raise VocabularyError(
                f"this frozen machine is for another vocabulary ({machine.vocabulary_digest[:12]}, not "
                f"{self._digest[:12]}): freeze it with the vocabulary of the arena, or make another arena"
            )
        with self._lock:
            known = [first for one, first in self._machines if one is machine]
            if known:
                return known[0]
            before = {name: (one.tensor, one.size) for name, one in self._tensors.items()}
            try:
                first = self._add(machine)
            except BaseException:  # of a key that was pressed too: machines after it would stand in the wrong place
                for name, (tensor, size) in before.items():
                    self._tensors[name].tensor, self._tensors[name].size = tensor, size
                raise
            moves = any(one.tensor is not before[name][0] for name, one in self._tensors.items())
            self._published = self.version + moves, self._snapshot()
            self._machines.append((machine, first))
            return first

    def machine_of(self, state: int) -> tuple[FrozenMachine, int]:
        """Return whose state it is, and its number there.

        Raises:
            IndexError: no machine has it.
        """
        if not 0 <= state < self.num_states:
            raise IndexError(f"there is no state {state}: the arena has {self.num_states}")
        machine, first = next(one for one in reversed(self._machines) if one[1] <= state)
        return machine, state - first

    def _add(self, machine: FrozenMachine) -> int:
        first, number = self.num_states, self._tensors["token_class"].size
        first_row, first_id = self._tensors["mask_rows"].size, self._tensors["list_ids"].size
        is_known = machine.mask_row >= 0
        nothing = np.int32(self._num_private_rows)
        padded = np.zeros(32 * self._num_words, np.uint16)
        padded[: machine.num_tokens] = machine.token_class
        starts = np.arange(machine.num_states, dtype=np.int64) * machine.num_classes
        # Whoever reads while this goes on finds no state that leads to what is not there yet.
        self._append("step_start", starts + self._tensors["next_state"].size)
        self._append("token_class", padded.view(np.int16)[None])
        self._append("next_state", _shifted(machine.next_state.reshape(-1), first))
        self._append("mask_rows", machine.mask_rows)
        self._append("list_start", machine.list_start[1:] + first_id)
        self._append("list_ids", machine.list_ids)
        self._append("mask_row", np.where(is_known, machine.mask_row + np.int32(first_row), nothing))
        self._append("free_row", _shifted(machine.free_row, first_row))
        self._append("accepting", machine.accepting)
        self._append("cost", machine.cost)
        self._append("cost_after", np.where(is_known, machine.cost_after, np.int32(UNKNOWN)))
        self._append("least_after", np.where(is_known, least_costs_after(machine), np.int32(UNKNOWN)))
        self._append("machine", np.full(machine.num_states, number, np.int32))
        return first

    def _append(self, name: str, values: np.ndarray[Any, Any]) -> None:
        self._tensors[name].append(values)

    def _snapshot(self) -> Tables:
        tensors = {name: one.tensor for name, one in self._tensors.items()}
        # A list for each row: the room behind both is of one length, too.
        num_rows = min(len(tensors["mask_rows"]), len(tensors["list_start"]) - 1)
        tensors["mask_rows"] = tensors["mask_rows"][:num_rows]
        tensors["list_start"] = tensors["list_start"][: num_rows + 1]
        return Tables(num_tokens=self._num_tokens, num_private_rows=self._num_private_rows, **tensors)


def least_costs_after(machine: FrozenMachine) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return (S,) int32: the least cost after any legal token that is text, NOTHING_FOLLOWS where there is none."""
    cost = np.append(machine.cost, np.int32(NOTHING_FOLLOWS))  # its last place is what -1 takes
    after = machine.next_state[:, STOP_CLASS + 1 :]
    least: np.ndarray[Any, np.dtype[np.int32]] = cost[after].min(axis=1, initial=np.int32(NOTHING_FOLLOWS))
    return least


class _Growing:
    """A tensor with room behind its rows."""

    def __init__(self, empty: np.ndarray[Any, Any], device: Device) -> None:
        import torch

        self.size = 0
        self.tensor = torch.from_numpy(empty).to(device)

    def append(self, values: np.ndarray[Any, Any]) -> None:
        """Write rows behind the last one; the tensor moves if it has to."""
        import torch

        end = self.size + len(values)
        if end > len(self.tensor):
            room = max(_FIRST_ROOM, 2 * end)
            grown = torch.zeros((room, *self.tensor.shape[1:]), dtype=self.tensor.dtype, device=self.tensor.device)
            grown[: self.size] = self.tensor[: self.size]
            self.tensor = grown
        self.tensor[self.size : end] = torch.from_numpy(np.array(values))
        self.size = end


def _shifted(numbers: np.ndarray[Any, np.dtype[np.int32]], by: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the numbers moved up, -1 left as it is."""
    return np.where(numbers >= 0, numbers + np.int32(by), np.int32(-1))
