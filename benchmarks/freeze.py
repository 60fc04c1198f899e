"""Time and size of freezing: a schema of twelve fields, the same with longer texts, and what a step costs afterwards.

    python benchmarks/freeze.py TOKENIZER_FOLDER

Each round freezes another schema (other names), with nothing cached but what lexemes mean for the vocabulary, which is
what a process has after its first schema. Times are of the process, so that other load disturbs them little. One
thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from first_mask import schema
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg
from structgen.frozen_machine import FrozenMachine

ROUNDS = 20
STEPS = 2000


def texts(prefix: str, num_fields: int, max_length: int) -> dict[str, Any]:
    """Return a schema of bounded strings."""
    properties = {f"{prefix}_{index}": {"type": "string", "maxLength": max_length} for index in range(num_fields)}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def cases() -> dict[str, Callable[[str], dict[str, Any]]]:
    """Return name -> schema, given the beginning of its field names."""
    return {
        "12 kinds of field": schema,
        "1 string of 200": lambda prefix: texts(prefix, 1, 200),
        "12 strings of 50": lambda prefix: texts(prefix, 12, 50),
        "12 strings of 200": lambda prefix: texts(prefix, 12, 200),
        "1 string of 2,000": lambda prefix: texts(prefix, 1, 2000),
    }


def milliseconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def machine_of(automaton: sg.TokenAutomaton) -> FrozenMachine:
    """Return the tables of a frozen automaton."""
    machine = automaton.frozen_machine
    if machine is None:
        raise ValueError("the automaton is not frozen")
    return machine


def frozen_rounds(
    make: Callable[[str], dict[str, Any]], vocabulary: sg.Vocabulary
) -> tuple[sg.TokenAutomaton, list[float]]:
    """Freeze one schema after the other; return the last and the times."""
    times = []
    for turn in range(ROUNDS if make is schema else 3):
        declared = sg.JsonSchema(make(f"field{turn}"), whitespace="spaced")
        automaton = sg.compile(declared, vocabulary, cache=None)
        times.append(milliseconds(automaton.freeze))
    return automaton, times


def step_time(automaton: sg.TokenAutomaton) -> float:
    """Return microseconds of a mask and a step, on a path of random legal tokens."""
    rng = np.random.default_rng(0)
    state, tokens = automaton.start(), []
    while len(tokens) < STEPS:
        ids = np.flatnonzero(np.unpackbits(state.mask().view(np.uint8), bitorder="little"))
        token = int(rng.choice(ids))
        state.advance(token)
        if state.is_finished:
            break
        tokens.append(token)

    def walk() -> None:
        state = automaton.start()
        for token in tokens:
            state.mask()
            state.advance(token)

    return min(milliseconds(walk) for _ in range(5)) / len(tokens) * 1e3


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    arguments = parser.parse_args()
    vocabulary = sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(arguments.tokenizer))
    table = Table(title=f"{arguments.tokenizer.name}, {vocabulary.size:,} ids; freezing in ms")
    for column in ("schema", "min", "median", "states", "byte classes", "rows", "token classes", "MB"):
        table.add_column(column, justify="left" if column == "schema" else "right")
    for name, make in cases().items():
        automaton, times = frozen_rounds(make, vocabulary)
        machine = machine_of(automaton)
        sizes = (machine.num_states, machine.byte_next.shape[1], machine.num_rows, machine.num_classes)
        table.add_row(
            name,
            f"{min(times):.1f}",
            f"{statistics.median(times):.1f}",
            *(f"{size:,}" for size in sizes),
            f"{machine.num_bytes / 1e6:.1f}",
        )
        if make is schema:
            first = automaton
    console = Console()
    console.print(table)
    machine = machine_of(first)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "machine.npz")
        saving = milliseconds(lambda: machine.save(path))
        loading = min(milliseconds(lambda: FrozenMachine.load(path)) for _ in range(5))
    lazy = sg.compile(sg.JsonSchema(schema("field"), whitespace="spaced"), vocabulary, cache=None)
    console.print(
        f"12 fields: a mask and a step take {step_time(first):.2f} us frozen, {step_time(lazy):.2f} us lazily with all "
        f"rows at hand; saving {saving:.1f} ms, loading {loading:.1f} ms"
    )


if __name__ == "__main__":
    main()
