"""Masks of states never seen before, over a real vocabulary: compiled, against the obvious form.

Run: python benchmarks/lane_walk.py TOKENIZER_FOLDER [TOKENIZER_FOLDER ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measuring import least_us, median_us
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg
from structgen.grammar import dfa, lexemes
from structgen.grammar.ir import Lexeme
from structgen.grammar.terminal import build_terminal
from structgen.kernels.lane_walk import LaneTrie, LaneWalker, reference_ends
from structgen.kernels.trie_walk import CountedDfa


def readers() -> list[CountedDfa]:
    """Return what may stand in an object: white space, a key, a colon, a string, a number, a comma."""
    parts = [lexemes.json_string(None), lexemes.json_number()]
    parts += [Lexeme(dfa.literal(text)) for text in (b'"name"', b":", b",")]
    parts.append(Lexeme(dfa.from_words([b" " * n for n in range(1, 20)] + [b"\\n" + b" " * n for n in range(20)])))
    terminals = [build_terminal(part)[0] for part in parts]
    return [one.counted_dfa for one in terminals if one is not None]


def main(folders: list[str]) -> None:
    """Print a table per run; every reader follows every other."""
    table = Table("vocabulary", "tokens", "compiled, us", "obvious form, us", "ratio")
    for folder in folders:
        trie = sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(folder)).trie
        walker = LaneWalker(LaneTrie(trie))
        parts = readers()
        numbers = [walker.add_reader(one) for one in parts]
        first = [walker.add_lane(number) for number in numbers]
        gate = walker.add_gate(tuple(numbers))
        starts = [(lane, 0, 0) for lane in first]

        def reader(lane: int, parts: list[CountedDfa] = parts) -> tuple[CountedDfa, Callable[[], range]]:
            return parts[lane % len(parts)], lambda: range(len(parts), 2 * len(parts))

        fast = median_us(
            lambda mask, w=walker, s=starts, g=gate: w.walk(mask, s, [], lambda _: g),
            50,
            prepare=lambda t=trie: np.zeros(len(t.token_ids) // 32 + 1024, np.int32),
        )
        slow = least_us(lambda t=trie, r=reader, s=starts: reference_ends(t, r, s), 1)
        num_ends = len({node for node, *_ in reference_ends(trie, reader, starts)})
        figures = (f"{num_ends:,}", f"{fast:,.1f}", f"{slow:,.0f}", f"{slow / fast:,.0f}")
        table.add_row(Path(folder).name, *figures)
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
