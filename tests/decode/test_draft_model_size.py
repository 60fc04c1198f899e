"""What a draft model takes, against what the caches of transformers really hold."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from structgen.decode.draft_model_size import draft_model_size, kv_bytes_per_token
from tiny_tokenizer import tiny_llama


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


def test_a_size_that_seldom_pays_is_warned_of() -> None:
    """As large as its target: a warning that says what to do, and figures that add up."""
    model = tiny_llama()
    size = draft_model_size(model, model)
    assert size.share == 1.0
    assert size.lost_kv_rows == sum(one.nbytes for one in model.parameters()) // kv_bytes_per_token(model)
    with pytest.warns(UserWarning, match="between 1/50 and 1/8 is usual: its drafts will cost"):
        size.warn_if_unsuitable()


def test_a_usual_size_is_not_warned_of() -> None:
    """A sixteenth of the target is fine; a hundredth is told."""
    small, large = tiny_llama(), tiny_llama()
    size = draft_model_size(small, large)
    usual = type(size)(
        **{name: getattr(size, name) for name in size.__slots__} | {"num_target_parameters": size.num_parameters * 16}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        usual.warn_if_unsuitable()
    assert usual.in_words.startswith("the draft model has 1/16 of the target's parameters")
    tiny = type(size)(
        **{name: getattr(size, name) for name in size.__slots__} | {"num_target_parameters": size.num_parameters * 100}
    )
    with pytest.warns(UserWarning, match="may guess too badly"):
        tiny.warn_if_unsuitable()
