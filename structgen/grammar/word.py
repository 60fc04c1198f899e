"""Terminals of one word, such as a key: what a lexeme of one literal is to the parser, without an automaton."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from structgen.grammar.dfa import Dfa, literal
from structgen.grammar.terminal import UNBOUNDED, Edge, Terminal
from structgen.kernels.trie_walk import CountedDfa


class Word(Terminal):
    """A terminal of one word, which has no automaton until somebody asks: a large object has a word for each key."""

    def __init__(self, text: bytes) -> None:
        """Take the word, at least one byte."""
        self.__dict__.update(
            text=text,
            min_length=0,
            max_length=None,
            free_text=False,
            need=(0,) * (len(text) + 1),
            most=(UNBOUNDED,) * (len(text) + 1),
            name=repr(text.decode("utf-8", "replace")),
            is_counted=False,
        )

    text: bytes

    @cached_property
    def dfa(self) -> Dfa:
        """The DFA of the word."""
        return literal(self.text)

    @cached_property
    def counted_dfa(self) -> CountedDfa:
        """The same for the kernels."""
        need, most = np.array(self.need, np.int32), np.array(self.most, np.int32)
        return CountedDfa(self.dfa.delta, self.dfa.tick_bytes, self.dfa.accepting, need, most)

    @property
    def key(self) -> tuple[bytes, int, int | None, bool]:
        """What makes two words the same one."""
        return (b"word " + self.text, 0, None, False)

    def edges(self, state: int) -> tuple[Edge, ...]:
        """Return the only step from a state, none at the end."""
        return ((state + 1, False, (self.text[state],)),) if state < len(self.text) else ()

    def num_bytes(self, state: int) -> int:
        """Return how many bytes a state goes on with."""
        return int(state < len(self.text))

    def accepts_at(self, state: int, count: int) -> bool:  # as in Terminal
        """Return whether the word ends in this state."""
        return state == len(self.text)

    def step(self, state: int, count: int, byte: int) -> tuple[int, int] | None:
        """Return (state, count) after one byte, or None if the word goes on otherwise."""
        return (state + 1, count) if state < len(self.text) and self.text[state] == byte else None


@lru_cache(maxsize=4096)
def build_word(text: bytes) -> Word:
    """Return the terminal of one word that is not empty."""
    return Word(text)
