"""What a draft model takes, against what the caches of transformers really hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import structgen as sg
from structgen.decode.draft_model_size import draft_model_size, kv_bytes_per_token
from tiny_tokenizer import byte_tokenizer, tiny_llama


@pytest.mark.parametrize("options", [{}, {"num_key_value_heads": 1}, {"head_dim": 24}, {"num_hidden_layers": 3}])
def test_a_token_takes_what_the_cache_of_transformers_takes(options: dict[str, Any]) -> None:
    """The keys and values of seven tokens are counted."""
    plain = {
        "vocab_size": 32,
        "hidden_size": 32,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    model = LlamaForCausalLM(LlamaConfig(**plain | options))
    with torch.no_grad():
        output = model(torch.zeros((1, 7), dtype=torch.long), use_cache=True)
    (cache,) = [value for value in output.values() if isinstance(value, DynamicCache)]
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert kv_bytes_per_token(model) * 7 == held


def test_the_figures_of_a_draft_model_add_up() -> None:
    """As large as its target: what it takes is told in tokens of the target's cache."""
    model = tiny_llama()
    size = draft_model_size(model, model)
    assert size.share == 1.0
    assert size.lost_kv_rows == sum(one.nbytes for one in model.parameters()) // kv_bytes_per_token(model)
    assert f"could cache {size.lost_kv_rows} more tokens" in size.in_words


@pytest.mark.parametrize(
    ("times", "doubt"),
    [(1, "will cost much"), (7, "will cost much"), (8, None), (16, None), (50, None), (51, "may guess too badly")],
)
def test_a_size_that_seldom_pays_is_told(times: int, doubt: str | None) -> None:
    """Between 1/50 and 1/8 of the target is usual."""
    model = tiny_llama()
    size = draft_model_size(model, model)
    size = dataclasses.replace(size, num_target_parameters=size.num_parameters * times)
    assert size.in_words.startswith(f"the draft model has 1/{times} of the target's parameters")
    assert (size.doubt is None) == (doubt is None)
    if doubt is not None:
        assert doubt in str(size.doubt)


def test_a_call_with_such_a_model_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the doubt once per pair of models, and the metrics what the draft model takes."""
    model, draft_model = (sg.Model(tiny_llama(), byte_tokenizer()) for _ in range(2))
    for number in range(2):
        speculation = sg.Speculation(drafters=[sg.drafters.DraftModel(draft_model)])
        model.run(bool, "x", seed=number, speculation=speculation, route="drafted")
    (record,) = caplog.records
    assert "between 1/50 and 1/8 is usual" in record.getMessage()
    assert "more tokens" in model.metrics["drafted"].drafters["DraftModel"].note
