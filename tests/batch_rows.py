"""Rows of a batch, and what each should be by its own frozen automaton and the rules of host mode alone."""

from __future__ import annotations

import numpy as np
import torch

from frozen_machines import VOCABULARY, legal_tokens, machines, start
from structgen.errors import TokenRejectedError
from structgen.kernels.advance import ENDED, FAILED, ILLEGAL_TOKEN, NO_LEGAL_TOKEN, RUNNING, Registers
from structgen.kernels.arena import Arena

RING = 4
STOPS = set(VOCABULARY.stop_ids)


def arena(num_private_rows: int) -> Arena:
    """Return an arena of all machines."""
    result = Arena(vocabulary_digest=VOCABULARY.digest, num_tokens=VOCABULARY.size, num_private_rows=num_private_rows)
    for machine in machines():
        result.add(machine)
    return result


class Row:
    """What a row should be, by its frozen automaton alone."""

    def __init__(self, number: int, budget: int, position: int) -> None:
        self.machine = machines()[number]
        self.state = start(self.machine)
        self.left = budget
        self.position = position
        self.tokens: list[int] = []
        self.is_done, self.error = RUNNING, 0
        self.settle()

    def mask(self) -> np.ndarray:
        """Return what host mode would draw from."""
        return self.state.mask_within(self.left)

    def settle(self) -> None:
        """End where nothing but a stop can come."""
        if not set(legal_tokens(self.mask())) - STOPS:
            self.is_done = ENDED if self.state.is_accepting else FAILED
            self.error = 0 if self.state.is_accepting else NO_LEGAL_TOKEN

    def take(self, token: int) -> None:
        """Take a token, as the loop of host mode does."""
        try:
            self.state.advance(token)
        except TokenRejectedError:
            self.is_done, self.error = FAILED, NO_LEGAL_TOKEN if token < 0 else ILLEGAL_TOKEN
            return
        if token in STOPS:
            self.is_done = ENDED
            return
        self.tokens.append(token)
        self.left -= 1
        self.position += 1
        self.settle()


def begin(rows: list[Row], arena_: Arena) -> Registers:
    """Return registers before the first token, not yet settled."""
    registers = Registers.new(len(rows), ring_size=RING)
    registers.state.copy_(torch.tensor([arena_.add(row.machine) for row in rows]))
    registers.num_left.copy_(torch.tensor([row.left for row in rows]))
    registers.position.copy_(torch.tensor([row.position for row in rows]))
    registers.is_done.fill_(RUNNING)
    return registers


def check_registers(registers: Registers, rows: list[Row], arena_: Arena) -> None:
    """Assert that registers say what the rows say."""
    assert registers.is_done.tolist() == [row.is_done for row in rows]
    assert registers.error.tolist() == [row.error for row in rows]
    assert registers.position.tolist() == [row.position for row in rows]
    assert registers.num_left.tolist() == [row.left for row in rows]
    assert registers.ring_end.tolist() == [len(row.tokens) for row in rows]
    for index, row in enumerate(rows):
        machine, state = arena_.machine_of(int(registers.state[index]))
        assert machine is row.machine
        assert state == (machine.end if row.state.is_finished else row.state.configuration)
        ring = registers.ring[index].tolist()
        for number in range(max(0, len(row.tokens) - RING), len(row.tokens)):
            assert ring[number % RING] == row.tokens[number]
