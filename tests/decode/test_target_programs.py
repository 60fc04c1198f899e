"""Random programs of rows, chains, trees, rollbacks: each logit against one full pass over the text of its path."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from structgen.decode.causal_model import CausalModel
from structgen.decode.target import Target, Tokens
from structgen.decode.transformers_target import TransformersBatch
from tiny_models import BUILDERS, SHAPE, full_logits, tiny_model

# Some parts of these run in float32 whatever the weights are.
_TOLERANCE = {"llama4, chunks of 8": 1e-6, "gemma2, soft caps": 1e-6}
_MOST_TOKENS = 50


@dataclass
class _Row:
    """A row, and the text that it should hold."""

    target: Target
    token_ids: list[int] = field(default_factory=list)

    def crop(self, num_tokens: int) -> None:
        self.target.crop(num_tokens)
        del self.token_ids[num_tokens:]


class _Program:
    def __init__(self, model: Any, seed: int) -> None:
        self._random = random.Random(seed)
        self._model = model
        self._batch = TransformersBatch(CausalModel(model))
        self._rows: list[_Row] = []
        self.worst = 0.0
        self.num_moved = 0

    def step(self) -> None:
        kind = self._random.random()
        if not self._rows or (kind < 0.15 and len(self._rows) < 4):
            self._rows.append(_Row(self._batch.join()))
        elif kind < 0.22 and len(self._rows) > 1:
            row = self._rows.pop(self._random.randrange(len(self._rows)))
            self._batch.leave(row.target)
        elif kind < 0.35:
            row = self._random.choice(self._rows)
            row.crop(self._random.randint(0, len(row.token_ids)))
        else:
            self._pass(self._random.sample(self._rows, self._random.randint(1, len(self._rows))))
        for row in self._rows:
            assert row.target.num_cached_tokens == len(row.token_ids)

    def _pass(self, rows: list[_Row]) -> None:
        parts = [(row, self._tokens(row)) for row in rows]
        hidden = self._batch.extend([(row.target, tokens) for row, tokens in parts])
        for (row, tokens), states in zip(parts, hidden, strict=True):
            self._check(row, tokens, states)

    def _tokens(self, row: _Row) -> Tokens:
        count = self._random.choice([1, 1, 2, 5, 9])
        if len(row.token_ids) + count > _MOST_TOKENS:
            row.crop(3)
        token_ids = [self._random.randrange(SHAPE["vocab_size"]) for _ in range(count)]
        if self._random.random() < 0.5:
            return Tokens(token_ids)
        return Tokens(token_ids, [self._random.randint(-1, index - 1) for index in range(count)])

    def _check(self, row: _Row, tokens: Tokens, hidden: torch.Tensor) -> None:
        paths: list[list[int]] = []
        for index in range(len(tokens.token_ids)):
            parent = index - 1 if tokens.parents is None else tokens.parents[index]
            paths.append([*(paths[parent] if parent >= 0 else []), index])
        logits = row.target.head(hidden)
        for path, found in zip(paths, logits, strict=True):
            truth = full_logits(self._model, row.token_ids + [tokens.token_ids[index] for index in path])[-1]
            self.worst = max(self.worst, float((found - truth).abs().max()))
        some = sorted(self._random.sample(range(SHAPE["vocab_size"]), 5))
        self.worst = max(self.worst, float((row.target.head(hidden, some) - logits[:, some]).abs().max()))
        path = self._random.choice(paths)
        path = path[: self._random.randint(0, len(path))]
        row.target.keep(path)
        row.token_ids += [tokens.token_ids[index] for index in path]
        self.num_moved += path != list(range(len(path)))


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_programs_equal_full_passes(name: str) -> None:
    """Whatever was appended, kept, cropped, joined and left: the logits are those of a fresh pass over the text."""
    program = _Program(tiny_model(name), seed=3)
    for _ in range(40):
        program.step()
    assert program.worst < _TOLERANCE.get(name, 1e-9)
    assert program.num_moved > 3


def test_a_row_leaves_before_another_has_run() -> None:
    """A row that was in no pass yet takes the index of one that leaves, and is as good as new."""
    model = tiny_model(sorted(BUILDERS)[0])
    batch = TransformersBatch(CausalModel(model))
    first = batch.join()
    batch.extend([(first, Tokens([1, 2, 3]))])
    waiting = batch.join()
    batch.leave(first)
    assert waiting.num_cached_tokens == 0
    (hidden,) = batch.extend([(waiting, Tokens([4, 5]))])
    assert float((waiting.head(hidden)[-1] - full_logits(model, [4, 5])[-1]).abs().max()) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_more_programs_equal_full_passes(name: str, seed: int) -> None:
    """The same, with other programs."""
    program = _Program(tiny_model(name), seed)
    for _ in range(60):
        program.step()
    assert program.worst < _TOLERANCE.get(name, 1e-9)
