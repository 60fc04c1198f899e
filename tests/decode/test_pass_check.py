"""Models of families that no test knows are tried once, and what their passes cannot do is refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    RobertaConfig,
    RobertaForCausalLM,
)

from structgen.decode.causal_model import CausalModel, text_config
from structgen.decode.pass_check import TESTED, check_passes
from structgen.decode.target import Tokens
from structgen.decode.transformers_target import TransformersBatch
from structgen.errors import OptionError
from tiny_models import BUILDERS, SHAPE, tiny_model


def _checked(model: Any) -> CausalModel:
    causal = CausalModel(model)
    check_passes(model, causal)
    return causal


def _replace(monkeypatch: pytest.MonkeyPatch, model: Any, forward: Callable[[Any, dict[str, Any]], Any]) -> None:
    def changed(cache: Any = None, attention_mask: Any = None, position_ids: Any = None, **options: Any) -> Any:
        if attention_mask is None and cache is None:
            return inner(position_ids=position_ids, **options)
        name = "cache" if "cache" in known else "past_key_values"  # before transformers 5.24
        return forward({name: cache}, {"attention_mask": attention_mask, "position_ids": position_ids, **options})

    inner = model.model.forward
    known = inspect.signature(inner).parameters
    monkeypatch.setattr(model.model, "forward", changed)


def test_every_known_family_is_tested() -> None:
    """A family is skipped only if the programs of test_target_programs.py run over it."""
    assert {text_config(build().config).model_type for build in BUILDERS.values()} == TESTED


def test_an_unknown_family_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose passes are right is not refused, in any dtype."""
    monkeypatch.setattr("structgen.decode.pass_check.TESTED", frozenset())
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert _checked(tiny_model("gemma3, window of 6").to(dtype)).no_masks_because is None


def test_a_mask_that_is_not_heeded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tree has other logits than its paths, trees and batches are out, and chains still work."""
    monkeypatch.setattr("structgen.decode.pass_check.TESTED", frozenset())
    model = tiny_model("llama")
    inner = model.model.forward
    _replace(monkeypatch, model, lambda cache, options: inner(**cache, **options | {"attention_mask": None}))
    monkeypatch.setattr("structgen.decode.causal_model._why_no_masks", lambda *_: None)
    causal = _checked(model)
    assert causal.no_masks_because == "it does not attend as they say"
    row: Any = TransformersBatch(causal).join()
    assert not row.takes_trees
    row.prefill([1, 2])
    with pytest.raises(OptionError, match="neither trees nor batches: it does not attend"):
        row.extend(Tokens([1, 2], [-1, -1]))
    with pytest.raises(OptionError, match="cannot have a fixed width"):
        TransformersBatch(causal, width=4)


def test_a_cache_that_is_not_heeded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that reads every piece as a text of its own is refused."""
    monkeypatch.setattr("structgen.decode.pass_check.TESTED", frozenset())
    model = tiny_model("llama")
    inner = model.model.forward
    _replace(monkeypatch, model, lambda _, options: inner(**options | {"use_cache": False}))
    with pytest.raises(OptionError, match="other logits with a KV cache than without"):
        _checked(model)


def test_models_that_take_no_masks() -> None:
    """Positions that are weighed by a mask of the model's own leave chains; what reads to both sides is refused."""
    small = {"vocab_size": 61, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    bloom = _checked(BloomForCausalLM(BloomConfig(vocab_size=61, hidden_size=32, n_head=2, n_layer=2)).eval())
    assert bloom.no_masks_because == "BloomModel.forward() takes no position_ids"
    falcon = _checked(FalconForCausalLM(FalconConfig(**small, alibi=True)).eval())
    assert "alibi" in (falcon.no_masks_because or "")
    flex = tiny_model("llama")
    flex.config._attn_implementation = "flash_attention_2"
    assert "attn_implementation='sdpa'" in (CausalModel(flex).no_masks_because or "")
    shape = {name: value for name, value in SHAPE.items() if name != "num_key_value_heads"}
    with pytest.raises(OptionError, match="from both sides"):
        CausalModel(RobertaForCausalLM(RobertaConfig(**shape)).eval())
