"""Walks over real vocabularies: a string interior, a key, a number; compiled, against the obvious form on a part.

Run: python benchmarks/trie_walk.py TOKENIZER_FOLDER [TOKENIZER_FOLDER ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

from measuring import least_us, median_us
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg
from structgen.grammar import dfa, lexemes
from structgen.grammar.ir import Lexeme
from structgen.grammar.terminal import build_terminal
from structgen.kernels.trie_walk import CountedDfa, TrieWalker, reference_walk


def cases() -> dict[str, tuple[CountedDfa, int]]:
    """Return name -> (DFA, state)."""
    string, _ = build_terminal(lexemes.json_string(None))
    number, _ = build_terminal(lexemes.json_number())
    key, _ = build_terminal(Lexeme(dfa.literal(b', "a_long_property_name": ')))
    if string is None or number is None or key is None:
        raise ValueError("the benchmark's lexemes are empty")
    interior = int(string.dfa.delta[0, ord('"')])
    after_backslash = int(string.dfa.delta[interior, ord("\\")])
    return {
        "string interior": (string.counted_dfa, interior),
        "after a backslash": (string.counted_dfa, after_backslash),
        "number": (number.counted_dfa, 0),
        "key": (key.counted_dfa, 0),
    }


def main(folders: list[str]) -> None:
    """Print a table per run."""
    table = Table("vocabulary", "from", "tokens that stay", "compiled, us", "obvious form, us", "ratio")
    for folder in folders:
        walker = TrieWalker(sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(folder)).trie)
        for name, (one, state) in cases().items():
            walk = walker.walk(one, state, 0, walker.whole)
            fast = median_us(lambda w=walker, o=one, s=state: w.walk(o, s, 0, w.whole), 20)
            slow = least_us(lambda w=walker, o=one, s=state: reference_walk(w.trie, o, s, 0, w.whole), 1)
            figures = (f"{len(walk.stay):,}", f"{fast:,.1f}", f"{slow:,.0f}", f"{slow / fast:,.0f}")
            table.add_row(Path(folder).name, name, *figures)
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
