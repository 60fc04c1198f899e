"""Time of one step of a batch over an arena on the CPU: the token, and the mask row within a budget.

    python benchmarks/advance.py

One thread, after a warm-up, median microseconds; a schema over a made-up vocabulary of 128,256 tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from measuring import median_us

import structgen as sg
from structgen.frozen_machine import FrozenMachine
from structgen.kernels.advance import Registers, advance_, mask_row_within_, next_states
from structgen.kernels.arena import Arena, Tables
from structgen.vocabulary import Vocabulary

NUM_TOKENS = 128_256
SCHEMA = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("name", "street", "city")},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["customer", "supplier", "other"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 5},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def frozen() -> FrozenMachine:
    """Return the machine of the schema."""
    letters = np.random.default_rng(0).integers(97, 123, (NUM_TOKENS - 257, 6)).astype(np.uint8)
    words = [bytes(word[: 2 + index % 5]) for index, word in enumerate(letters)]
    vocabulary = Vocabulary.from_bytes([*(bytes([b]) for b in range(256)), *words, b""], stop_ids=[NUM_TOKENS - 1])
    automaton = sg.compile(sg.JsonSchema(SCHEMA), vocabulary, cache=None)
    automaton.freeze()
    machine = automaton.frozen_machine
    if machine is None:
        raise RuntimeError("freeze leaves a machine")
    return machine


def new_arena(machine: FrozenMachine) -> Arena:
    """Return an arena for machines of its vocabulary, with nothing in it."""
    return Arena(vocabulary_digest=machine.vocabulary_digest, num_tokens=machine.num_tokens, num_private_rows=64)


def in_arena() -> tuple[FrozenMachine, Tables, int]:
    """Return the machine of the schema, the tables of an arena that has it, and its first state there."""
    torch.set_num_threads(1)
    machine = frozen()
    arena = new_arena(machine)
    start = arena.add(machine)
    return machine, arena.tables, start


def main() -> None:
    """Print a row for each batch size."""
    machine, tables, start = in_arena()
    print(f"{machine!r}\n{'rows':>6}{'step':>10}{'advance_':>10}{'own row':>10}{'cut row':>10}")
    for num_rows in (1, 8, 64):
        registers = Registers.new(num_rows, ring_size=64)
        registers.state.fill_(start)
        registers.num_left.fill_(1 << 20)
        token = torch.full((num_rows,), ord("{"), dtype=torch.int32)
        out, starts = torch.zeros_like(token), torch.full_like(token, start)
        few = tables.cost_after[starts]

        def step(registers: Registers = registers, token: torch.Tensor = token) -> None:
            registers.state.fill_(start)
            registers.is_done.zero_()
            advance_(tables, registers, token)

        times = [
            median_us(lambda r=registers, t=token: next_states(tables, r.state, t)),
            median_us(step),
            median_us(lambda r=registers, o=out: mask_row_within_(tables, r.state, r.num_left, o)),
            median_us(lambda s=starts, o=out, f=few: mask_row_within_(tables, s, f, o), 30),
        ]
        print(f"{num_rows:>6}" + "".join(f"{one:>10.0f}" for one in times))


if __name__ == "__main__":
    main()
