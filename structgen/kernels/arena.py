"""Arena: the tables of many frozen machines as one set of tensors, so that rows of a batch may follow different ones.

States, mask rows and places in next_state are numbered through all machines. Machines are only added, and those that
grow get more pieces; what was added keeps its numbers, so a row that is under way is never disturbed, and where there
is room left nothing even moves. A state that was only named is described in place: a row that waits there may go on.
Leaves out the steps (advance.py) and the draws.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from structgen.errors import VocabularyError
from structgen.frozen_machine import STOP_CLASS, Bools, FrozenMachine, Ints, Longs
from structgen.frozen_pieces import GrowingMachine, Piece

if TYPE_CHECKING:
    import torch

Device: TypeAlias = "torch.device | str"

NOTHING_FOLLOWS: Final = 1 << 30
"""least_after of a state that no text token leaves."""

UNKNOWN: Final = -1
"""least_after of a state that the tables name but do not describe."""

_FIRST_ROOM: Final = 64

_IN_PLACE: Final = ("step_start", "machine", "mask_row", "free_row", "cost_after", "least_after")
"""What is written when a named state is described; the last one makes it known."""


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
        # By the first of the states that came with it: the machine, and the numbers of these states there.
        self._blocks: list[tuple[int, FrozenMachine, Longs]] = []
        self._growing: list[_Grown] = []
        # While something is added: what to go back to.
        self._before: dict[str, tuple[torch.Tensor, int]] = {}
        self._overwritten: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
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
        return f"Arena({len(self._blocks)} machines, states={self.num_states}, {self.num_bytes / 2**20:.1f} MiB)"

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

    def __contains__(self, machine: FrozenMachine | GrowingMachine) -> bool:
        """Say whether a machine is there already; of one that grows, its first piece."""
        with self._lock:
            is_whole = any(one is machine for _, one, _ in self._blocks)
            return is_whole or any(one.machine is machine for one in self._growing)

    def add(self, machine: FrozenMachine | GrowingMachine) -> int:
        """Take a machine and return the number of its start state; what is there already keeps its numbers.

        Of one that grows all pieces are taken that it has by now.

        Raises:
            VocabularyError: it is for another vocabulary.
        """
        if isinstance(machine, GrowingMachine):
            return int(self.states_of(machine)[machine.start])
        return self.first_state(machine) + machine.start

    def first_state(self, machine: FrozenMachine) -> int:
        """Take a machine and return what is added to the numbers of its states here.

        Raises:
            VocabularyError: it is for another vocabulary.
        """
        self._check(machine)
        with self._lock:
            known = [first for first, one, _ in self._blocks if one is machine]
            if known:
                return known[0]
            first, local = self.num_states, np.arange(machine.num_states)
            with self._all_or_nothing():
                self._add(machine, first + local, np.ones(len(local), np.bool_), self._add_rows(machine, None))
            self._blocks.append((first, machine, local))
            return first

    def states_of(self, machine: GrowingMachine) -> Longs:
        """Take all pieces that a machine has by now, and return the number here of each of its states.

        Raises:
            VocabularyError: it is for another vocabulary.
        """
        self._check(machine.pieces[0].machine)
        with self._lock:
            grown = next((one for one in self._growing if one.machine is machine), None)
            if grown is None:
                grown = _Grown(machine)
                self._growing.append(grown)
            for piece in machine.pieces[grown.num_pieces :]:
                self._add_piece(grown, piece)
            return grown.states

    def machine_of(self, state: int) -> tuple[FrozenMachine, int]:
        """Return whose state it is, and its number there; of a machine that grows, the piece that named it first.

        Raises:
            IndexError: no machine has it.
        """
        if not 0 <= state < self.num_states:
            raise IndexError(f"there is no state {state}: the arena has {self.num_states}")
        first, machine, local = next(one for one in reversed(self._blocks) if one[0] <= state)
        return machine, int(local[state - first])

    def _check(self, machine: FrozenMachine) -> None:
        if machine.vocabulary_digest != self._digest or machine.num_tokens != self._num_tokens:
            raise VocabularyError(
                f"this frozen machine is for another vocabulary ({machine.vocabulary_digest[:12]}, not "
                f"{self._digest[:12]}): freeze it with the vocabulary of the arena, or make another arena"
            )

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Publish what is added inside, or leave all as it was."""
        self._before = before = {name: (one.tensor, one.size) for name, one in self._tensors.items()}
        self._overwritten.clear()
        try:
            yield
            moves = any(one.tensor is not before[name][0] for name, one in self._tensors.items())
            if moves:  # graphs are captured anew, so whatever would move soon moves now
                for one in self._tensors.values():
                    if 2 * one.size > len(one.tensor):
                        one.move(room=2 * len(one.tensor))
            snapshot = self._snapshot()
        except BaseException:  # of a key that was pressed too: machines after it would stand in the wrong place
            for tensor, at, values in reversed(self._overwritten):
                tensor[at] = values
            for name, (tensor, size) in before.items():
                self._tensors[name].tensor, self._tensors[name].size = tensor, size
            raise
        self._published = self.version + moves, snapshot

    def _add_piece(self, grown: _Grown, piece: Piece) -> None:
        is_new = piece.numbers >= len(grown.states)
        first, num_new = self.num_states, int(np.count_nonzero(is_new))
        states = np.concatenate([grown.states, np.zeros(num_new, np.int64)])
        states[piece.numbers[is_new]] = first + np.arange(num_new)
        row_of = dict(grown.row_of)
        with self._all_or_nothing():
            self._add(piece.machine, states[piece.numbers], is_new, self._add_rows(piece.machine, row_of))
        if num_new:
            self._blocks.append((first, piece.machine, np.flatnonzero(is_new)))
        grown.states, grown.row_of, grown.num_pieces = states, row_of, grown.num_pieces + 1

    def _add_rows(self, machine: FrozenMachine, row_of: dict[bytes, int] | None) -> Longs:
        """Append the mask rows that are not here, with their lists; return the number here of each row.

        Args:
            machine: whose rows they are.
            row_of: rows that are here, by digest; extended. None if all are to be appended.
        """
        first, first_id = self._tensors["mask_rows"].size, self._tensors["list_ids"].size
        numbers = np.arange(machine.num_rows) + first
        is_fresh = np.ones(machine.num_rows, np.bool_)
        if row_of is not None:
            for row, mask in enumerate(machine.mask_rows):
                digest = hashlib.blake2b(mask.tobytes(), digest_size=16).digest()
                is_fresh[row] = digest not in row_of
                numbers[row] = row_of.setdefault(digest, first + int(np.count_nonzero(is_fresh[:row])))
        sizes = np.diff(machine.list_start)
        self._append("mask_rows", machine.mask_rows[is_fresh])
        self._append("list_start", first_id + np.cumsum(sizes[is_fresh]))
        self._append("list_ids", machine.list_ids[np.repeat(is_fresh, sizes)])
        return numbers

    def _add(self, machine: FrozenMachine, states: Longs, is_new: Bools, rows: Longs) -> None:
        """Append the states of a machine that are new, and describe in place those that were only named.

        Args:
            machine: some or all states of an automaton.
            states: the number here of each of its states.
            is_new: which are appended, in their order.
            rows: the number here of each of its rows.
        """
        number, num_classes = self._tensors["token_class"].size, machine.num_classes
        is_known = machine.mask_row >= 0
        nothing, unknown = np.int32(self._num_private_rows), np.int32(UNKNOWN)
        padded = np.zeros(32 * self._num_words, np.uint16)
        padded[: machine.num_tokens] = machine.token_class
        # A state that is only named has the steps of the end, which are none.
        steps = np.where(is_known, np.cumsum(is_known), np.count_nonzero(is_known)).astype(np.int64) - 1
        values = {
            "step_start": self._tensors["next_state"].size + steps * num_classes,
            "mask_row": np.where(is_known, _renumbered(machine.mask_row, rows), nothing),
            "free_row": _renumbered(machine.free_row, rows),
            "accepting": machine.accepting,
            "cost": machine.cost,
            "cost_after": np.where(is_known, machine.cost_after, unknown),
            "least_after": np.where(is_known, least_costs_after(machine), unknown),
            "machine": np.full(machine.num_states, number, np.int32),
        }
        # Whoever reads while this goes on finds no state that leads to what is not there yet.
        self._append("token_class", padded.view(np.int16)[None])
        self._append("next_state", _renumbered(machine.next_state[is_known].reshape(-1), states))
        for name, of_states in values.items():
            self._append(name, of_states[is_new])
        is_named_here = is_known & ~is_new
        is_named_here[-1] = False  # the end, which is described from the beginning
        if is_named_here.any():
            self._describe(states[is_named_here], {name: values[name][is_named_here] for name in _IN_PLACE})

    def _describe(self, states: Longs, values: dict[str, np.ndarray[Any, Any]]) -> None:
        """Write where states lead that are here already."""
        import torch

        if any(one.tensor is not self._before[name][0] for name, one in self._tensors.items()):
            # Whoever holds the tensors as they were must not find a state known whose steps are not there.
            for name in _IN_PLACE:
                if self._tensors[name].tensor is self._before[name][0]:
                    self._tensors[name].move()
        at = torch.from_numpy(states)
        for name in _IN_PLACE:
            tensor = self._tensors[name].tensor
            at = at.to(tensor.device)
            self._overwritten.append((tensor, at, tensor[at]))
            tensor[at] = torch.from_numpy(values[name]).to(tensor.device)

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
            self.move(room=max(_FIRST_ROOM, 2 * end))
        self.tensor[self.size : end] = torch.from_numpy(np.array(values))
        self.size = end

    def move(self, *, room: int | None = None) -> None:
        """Make a new tensor of the same rows."""
        import torch

        shape = (len(self.tensor) if room is None else room, *self.tensor.shape[1:])
        grown = torch.zeros(shape, dtype=self.tensor.dtype, device=self.tensor.device)
        grown[: self.size] = self.tensor[: self.size]
        self.tensor = grown


class _Grown:
    """What is here of a machine that grows.

    Attributes:
        machine: it.
        num_pieces: how many of its pieces are here.
        states: (S,) the number here of each of its states.
        row_of: the rows of its pieces that are here, by digest.
    """

    def __init__(self, machine: GrowingMachine) -> None:
        self.machine = machine
        self.num_pieces = 0
        self.states: Longs = np.zeros(0, np.int64)
        self.row_of: dict[bytes, int] = {}


def _renumbered(local: Ints, numbers: Longs) -> Ints:
    """Return the numbers that stand for local ones, -1 left as it is."""
    return np.append(numbers, -1)[local].astype(np.int32)  # its last place is what -1 takes
