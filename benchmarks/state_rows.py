"""Rows of states over real vocabularies: walked, and made from the row of another state, beside a walk to all ends.

Run: python benchmarks/state_rows.py TOKENIZER_FOLDER [TOKENIZER_FOLDER ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from measuring import median_us
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg
from structgen.grammar import regex_grammar
from structgen.grammar.dfa import Dfa
from structgen.grammar.ir import Lexeme
from structgen.kernels.state_rows import StateRows
from structgen.kernels.trie_walk import CountedDfa, TrieWalker
from structgen.trie import ByteTrie

PATTERNS = {
    "any text but quotes": r'"[^"]*"',
    "words": r"[a-zA-Z0-9_-]+",
    "up to 64 letters, twice": r"[a-z]{1,64}@[a-z]{1,64}",
}


def main(folders: list[str]) -> None:
    """Print a table per run."""
    table = Table("vocabulary", "pattern", "tokens", "walked, us", "from another state, us", "walk to all ends, us")
    for folder in folders:
        trie = sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(folder)).trie
        for name, pattern in PATTERNS.items():
            num_tokens, times = measure(trie, lexeme_of(pattern).dfa)
            table.add_row(Path(folder).name, name, f"{num_tokens:,}", *(f"{one:,.0f}" for one in times))
    Console().print(table)


def measure(trie: ByteTrie, dfa: Dfa) -> tuple[int, list[float]]:
    """Return how many tokens the second state survives, and three times; the other state is the next one after an a."""
    rows, walker = StateRows(trie), TrieWalker(trie)
    nothing = np.zeros(dfa.num_states, np.int32)
    one = CountedDfa(dfa.delta, dfa.tick_bytes, dfa.accepting, nothing, nothing)
    state = int(dfa.delta[0, ord('"')]) if dfa.delta[0, ord('"')] >= 0 else int(dfa.delta[0, ord("a")])
    other = int(dfa.delta[state, ord("a")])
    empty = np.zeros(int(trie.token_ids.max()) // 32 + 1, np.int32)
    row = empty.copy()
    rows.survivors(one, other, row)
    num_tokens = rows.survivors(one, state, empty.copy())[1]
    return num_tokens, [
        median_us(lambda: rows.survivors(one, state, empty.copy()), 20),
        median_us(lambda: rows.differ(one, state, other, row.copy(), most_nodes=10_000), 20),
        median_us(lambda: walker.walk(one, state, 0, walker.whole), 20),
    ]


def lexeme_of(pattern: str) -> Lexeme:
    """Return the lexeme of a pattern."""
    grammar = regex_grammar.lower_regex(pattern)
    (body,) = grammar.rules.values()
    if not isinstance(body, Lexeme):
        raise TypeError(f"{pattern} is more than one lexeme")
    return body


if __name__ == "__main__":
    main(sys.argv[1:])
