"""A hostile model with SmolLM2's tokenizer and shape: one random layer, and a head that loves one token."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from pydantic import BaseModel, Field, TypeAdapter
from transformers import LlamaConfig, LlamaForCausalLM

import structgen as sg

pytestmark = pytest.mark.model


class Tree(BaseModel):
    name: str = Field(min_length=3, max_length=50)
    kind: Literal["leaf", "node"]
    weight: float
    children: list[Tree]


TYPES: dict[str, Any] = {"tree": Tree, "map": dict[str, int], "text": str}
FAVOURITES = ["\n", "0", '"', "["]


class Biased(torch.nn.Linear):
    """A head without weights that prefers one token by far."""

    def __init__(self, width: int, size: int, favourite: int) -> None:
        super().__init__(width, size)
        torch.nn.init.normal_(self.weight, std=0.02)
        torch.nn.init.zeros_(self.bias)
        with torch.no_grad():
            self.bias[favourite] = 30.0


@pytest.fixture(scope="module")
def hostile(smollm2: sg.Model) -> dict[str, sg.Model]:
    """Return a model per favourite token."""
    torch.manual_seed(0)
    real = smollm2.hf_model.config
    config = LlamaConfig(**{**real.to_dict(), "num_hidden_layers": 1, "tie_word_embeddings": False})
    models = {}
    for favourite in FAVOURITES:
        model = LlamaForCausalLM(config).eval()
        (token_id,) = smollm2.hf_tokenizer.encode(favourite, add_special_tokens=False)
        model.lm_head = Biased(config.hidden_size, config.vocab_size, token_id)
        models[favourite] = sg.Model(model, smollm2.hf_tokenizer)
    return models


@pytest.mark.parametrize("whitespace", ["spaced", "any"])
@pytest.mark.parametrize("favourite", FAVOURITES)
@pytest.mark.parametrize("kind", TYPES)
def test_every_result_validates_at_every_budget(
    hostile: dict[str, sg.Model], kind: str, favourite: str, whitespace: str
) -> None:
    """From the finishing cost of the start to 200 tokens."""
    generator = hostile[favourite].generator(TYPES[kind], whitespace=whitespace)
    least = generator.automaton.start().tokens_to_end_bound
    # The small budgets decide; the longest is tried with the model that is known to write for ever.
    for max_tokens in [least, least + 1, 40, *([200] if favourite == "\n" else [])]:
        if max_tokens < least:
            continue
        result = generator.run("Make one.", max_tokens=max_tokens, seed=1)

        TypeAdapter(TYPES[kind]).validate_python(result.value)
        assert len(result.token_ids) <= max_tokens
