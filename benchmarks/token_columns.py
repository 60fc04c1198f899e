"""What each token of real vocabularies does to all states at once; compiled, against the obvious form on few states.

Run: python benchmarks/token_columns.py TOKENIZER_FOLDER [TOKENIZER_FOLDER ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from measuring import least_us
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg
from structgen.grammar.lexemes import json_string
from structgen.grammar.terminal import build_terminal
from structgen.kernels.token_columns import ByteMachine, reference_columns, token_columns


def counted_strings(max_length: int) -> ByteMachine:
    """Return a machine that reads JSON strings of so many characters at the most; counts stand in a row."""
    terminal, _ = build_terminal(json_string(None))
    if terminal is None:
        raise ValueError("the benchmark's lexeme is empty")
    dfa = terminal.dfa
    count = np.arange(max_length + 1)[None, :, None] + dfa.tick_bytes[:, None, :]
    after = dfa.delta[:, None, :] * (max_length + 1) + count
    table = np.where((dfa.delta[:, None, :] >= 0) & (count <= max_length), after, -1).reshape(-1, 256)
    columns, byte_class = np.unique(table, axis=1, return_inverse=True)
    dead = np.full((len(table), 1), -1)
    return ByteMachine((byte_class + 1).astype(np.int32), np.hstack([dead, columns]).astype(np.int32))


def main(folders: list[str]) -> None:
    """Print a table per run."""
    table = Table("vocabulary", "states", "columns", "compiled, ms", "obvious form, ms", "ratio")
    for folder in folders:
        trie = sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(folder)).trie
        for max_length in (2, 50, 1000):
            machine = counted_strings(max_length)
            columns = token_columns(trie, machine, lambda size: None)
            fast, slow = least_us(lambda t=trie, m=machine: token_columns(t, m, lambda size: None), 10), None
            if max_length == 2:
                slow = least_us(lambda t=trie, m=machine: reference_columns(t, m), 1)
            table.add_row(
                Path(folder).name,
                f"{len(machine.table):,}",
                f"{columns.num_columns:,}",
                f"{fast / 1e3:.2f}",
                "" if slow is None else f"{slow / 1e3:,.0f}",
                "" if slow is None else f"{slow / fast:,.0f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
