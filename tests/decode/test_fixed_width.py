"""Passes of a fixed width: the same bits for a token, whatever was drafted around it and whoever shares the batch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from structgen.decode.causal_model import CausalModel
from structgen.decode.target import Tokens
from structgen.decode.transformers_target import DETERMINISTIC_WIDTH, TransformersBatch
from tiny_models import BUILDERS, full_logits, tiny_model

if TYPE_CHECKING:
    from structgen import Model

_PROMPT = 5


def _logits(batch: TransformersBatch, text: list[int], seed: int) -> torch.Tensor:
    """Return the logits after each token past the prompt, read in random pieces with wrong drafts behind them."""
    pieces = random.Random(seed)
    row, found = batch.join(), []
    row.prefill(text[:_PROMPT])
    first = _PROMPT
    while first < len(text):
        count = 1 if seed == 0 else min(pieces.choice([1, 2, 3, 5, 8, 11]), len(text) - first)
        wrong = [] if seed == 0 else [3] * pieces.choice([0, 0, 1, 4])
        hidden = row.extend(Tokens([*text[first : first + count], *wrong]))
        row.crop(first + count)
        found.append(row.head(hidden[:count]))
        first += count
    return torch.cat(found)


def _text(count: int, highest: int) -> list[int]:
    generator = random.Random(1)
    return [generator.randrange(highest) for _ in range(count)]


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_bits_do_not_depend_on_the_drafts(name: str) -> None:
    """In float32, over chains of every length and rollbacks; what is computed is what a full pass computes."""
    model, text = tiny_model(name).float(), _text(45, 61)
    batch = TransformersBatch(CausalModel(model), width=DETERMINISTIC_WIDTH)
    one_by_one = _logits(batch, text, seed=0)
    torch.testing.assert_close(one_by_one, full_logits(model, text)[_PROMPT:], rtol=1e-3, atol=1e-3)
    for seed in (1, 2, 3):  # each a row more in the batch
        assert torch.equal(_logits(batch, text, seed), one_by_one)


@pytest.mark.model
def test_bits_of_smollm2(smollm2: Model) -> None:
    """The same with real weights, beyond the first 64 positions; without a fixed width bits differ."""
    model, text = CausalModel(smollm2.hf_model), _text(80, 40000)
    one_by_one, drafted = (_logits(TransformersBatch(model, width=8), text, seed) for seed in (0, 1))
    assert torch.equal(one_by_one, drafted)
    assert not torch.equal(one_by_one, _logits(TransformersBatch(model), text, seed=1))


def test_trees_are_refused() -> None:
    """In a tree sums over earlier tokens have gaps, which round otherwise."""
    row: Any = TransformersBatch(CausalModel(tiny_model("llama")), width=4).join()
    assert not row.takes_trees
    with pytest.raises(ValueError, match="chains only"):
        row.extend(Tokens([1, 2], [-1, -1]))
