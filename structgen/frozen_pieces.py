"""A frozen machine that grows: tables of an automaton whose states have no end, made piece by piece.

Each piece is a frozen machine that describes some states and names those that they lead to; a later piece describes
some of these. Needs nothing but numpy, like the machines. Leaves out how pieces are made (grammar/frozen_part.py), and
how a device looks them up (kernels/arena.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from structgen.frozen_machine import FrozenMachine, Longs


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Piece:
    """States that were described together.

    Attributes:
        machine: these states first, then those that they lead to, then the end; numbered by itself.
        numbers: (S,) int64, the number of each of its states among those of all pieces.
        forced: by described state, the first canonical tokens of what every text goes on with, where that is known.
    """

    machine: FrozenMachine
    numbers: Longs
    forced: Sequence[Sequence[int]]

    @property
    def num_described(self) -> int:
        """How many states it describes, the end left out."""
        return len(self.forced)


class GrowingMachine:
    """The pieces of one automaton; pieces are only added, and a state keeps its number, also when it is described.

    Attributes:
        pieces: in the order in which they were made; read it once and it stays as it is.
        num_states: how many states are described or named, the end included.
    """

    def __init__(self, machine: FrozenMachine, *, forced: Sequence[Sequence[int]]) -> None:
        """Begin with the piece of the start, whose numbers are its own.

        Args:
            machine: that piece.
            forced: see Piece.
        """
        self.num_states = machine.num_states
        numbers = np.arange(self.num_states, dtype=np.int64)
        self.pieces: tuple[Piece, ...] = (Piece(machine=machine, numbers=numbers, forced=forced),)

    def __repr__(self) -> str:
        """Show the sizes."""
        return f"GrowingMachine({len(self.pieces)} pieces, states={self.num_states}, {self.num_bytes / 2**20:.1f} MiB)"

    @property
    def start(self) -> int:
        """The state before any text."""
        return self.pieces[0].machine.start

    @property
    def end(self) -> int:
        """The state after a stop token."""
        return self.pieces[0].machine.end

    @property
    def num_described(self) -> int:
        """How many states are described, the end left out."""
        return sum(piece.num_described for piece in self.pieces)

    @property
    def num_bytes(self) -> int:
        """How much memory the machines take."""
        return sum(piece.machine.num_bytes for piece in self.pieces)

    def add(self, piece: Piece) -> None:
        """Take a piece; its new states are numbered from num_states on, in any order. One thread adds at a time."""
        num_states, pieces = max(self.num_states, int(piece.numbers.max()) + 1), (*self.pieces, piece)
        self.pieces, self.num_states = pieces, num_states  # one right after the other: nobody interrupts in between
