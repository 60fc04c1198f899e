"""Small explicit automata, a walk over them, and models whose logits are a function of the tokens so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from structgen.decode.target import Tokens
from structgen.errors import TokenRejectedError
from structgen.vocabulary import Vocabulary

TOKENS = [b'"', b"a", b"b", b"\xc3", b"\xa9", b"{", b"}", b"", b"", b'a"', b""]
QUOTE, A, B, C3, A9, OPEN, CLOSE, STOP, OTHER_STOP, A_QUOTE, NOTHING = range(11)
VOCABULARY = Vocabulary.from_bytes(TOKENS, stop_ids=(STOP, OTHER_STOP))

Automaton = dict[str, dict[int, str]]

# "a..b", any number of a, b and é inside; the body is free text.
STRING: Automaton = {
    "start": {QUOTE: "body"},
    "body": {A: "body", B: "body", C3: "half", QUOTE: "end", A_QUOTE: "end"},
    "half": {A9: "body"},
    "end": {},
}
# {{}}: at most 3 deep, ending is possible at depth 0 only, and closing costs as many tokens as are open.
NESTED: Automaton = {
    "0": {OPEN: "1"},
    "1": {OPEN: "2", CLOSE: "end"},
    "2": {OPEN: "3", CLOSE: "1"},
    "3": {CLOSE: "2"},
    "end": {},
}
# a*: may end at any time.
STAR: Automaton = {"end": {A: "end"}}


class State:
    """A walk over an explicit automaton that ends in "end"; costs by breadth-first search."""

    def __init__(self, automaton: Automaton, state: str | None = None) -> None:
        self.automaton = automaton
        self.history: list[str] = []
        self.state = state or next(iter(automaton))
        self.costs = {"end": 0}
        while len(self.costs) < len(automaton):
            for name, edges in automaton.items():
                known = [self.costs[target] for target in edges.values() if target in self.costs]
                if known:
                    self.costs[name] = min(self.costs.get(name, 99), min(known) + 1)

    @property
    def tokens_to_end_bound(self) -> int:
        return self.costs[self.state]

    @property
    def is_accepting(self) -> bool:
        return self.state == "end"

    @property
    def description(self) -> str:
        return f"explicit state {self.state!r}"

    @property
    def key(self) -> str:
        return self.state

    def mask(self) -> np.ndarray:
        return self.mask_within(10**9)

    def mask_within(self, budget: int) -> np.ndarray:
        legal = [t for t, target in self.automaton[self.state].items() if self.costs[target] <= budget - 1]
        return packed(legal + ([STOP, OTHER_STOP] if self.is_accepting else []))

    def free_text_mask(self) -> np.ndarray | None:
        inside = [t for t, target in self.automaton[self.state].items() if target in ("body", "half")]
        return packed(inside) if self.state in ("body", "half") else None

    def advance(self, token_id: int) -> None:
        if token_id not in self.automaton[self.state]:
            raise TokenRejectedError(token_id, "illegal")
        self.history.append(self.state)
        self.state = self.automaton[self.state][token_id]

    def rollback(self, num_tokens: int) -> None:
        for _ in range(num_tokens):
            self.state = self.history.pop()

    def forced_tokens(self) -> list[int]:
        """Return the tokens up to where there is a choice, or an end."""
        forced, state = [], self.state
        while state != "end" and len(edges := self.automaton[state]) == 1:
            ((token_id, state),) = edges.items()
            forced.append(token_id)
        return forced


def packed(token_ids: list[int]) -> np.ndarray:
    """Pack ids below 32 into one word."""
    return np.array([sum(1 << t for t in token_ids)], dtype=np.int32)


class Model:
    """A target whose logits are a function of the tokens so far; it keeps a log of how many it read.

    It computes the logits of few tokens alone where it is told how few; `num_few_heads` counts how often.
    """

    logits_width = 16  # wider than the vocabulary
    device = torch.device("cpu")
    takes_trees = True
    device_side = None

    def __init__(self, logits: Callable[[list[int]], torch.Tensor], *, most_legal_rows: int = 0) -> None:
        self.logits = logits
        self.most_legal_rows = most_legal_rows
        self.num_few_heads = 0
        self.tokens: list[int] = []
        self.calls: list[int] = []

    @property
    def num_cached_tokens(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Tokens) -> torch.Tensor:
        self.calls.append(len(tokens.token_ids))
        self.last = (len(self.tokens), tokens)
        paths = paths_of(self.tokens, tokens)
        self.tokens += tokens.token_ids
        return torch.stack([self.logits(path) for path in paths])

    def keep(self, path: list[int]) -> None:
        start, tokens = self.last
        self.tokens[start:] = [tokens.token_ids[index] for index in path]

    def head(self, hidden: torch.Tensor, token_ids: Any = None) -> torch.Tensor:
        self.num_few_heads += token_ids is not None
        return hidden if token_ids is None else hidden[:, torch.as_tensor(token_ids)]

    def crop(self, num_tokens: int) -> None:
        del self.tokens[num_tokens:]


def paths_of(before: list[int], tokens: Tokens) -> list[list[int]]:
    """Return all tokens up to each one of a chain or a tree."""
    paths: list[list[int]] = []
    for index, token_id in enumerate(tokens.token_ids):
        parent = index - 1 if tokens.parents is None else tokens.parents[index]
        paths.append([*(before if parent < 0 else paths[parent]), token_id])
    return paths


def random_logits(tokens: list[int]) -> torch.Tensor:
    """Depend on every token so far."""
    generator = torch.Generator().manual_seed(hash(tuple(tokens)) % 2**31)
    return torch.randn(16, generator=generator) * 2


def favourite(token_id: int, strength: float = 50.0) -> Callable[[list[int]], torch.Tensor]:
    """Always prefer one token, and the padding columns even more."""

    def logits(_: list[int]) -> torch.Tensor:
        row = torch.zeros(16)
        row[token_id] = strength
        row[12:] = 2 * strength
        return row

    return logits
