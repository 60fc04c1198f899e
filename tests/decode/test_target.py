"""TransformersTarget against one full forward pass of the same model, on tiny random models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Gemma3Config, LlamaConfig, Qwen3_5Config, xLSTMConfig

from structgen.decode import kv_cache
from structgen.decode.causal_model import CausalModel, check_model, logits_width, text_config
from structgen.decode.kv_cache import KvCache, PlacedPass
from structgen.decode.target import Tokens
from structgen.decode.transformers_target import TransformersBatch, TransformersTarget
from structgen.errors import OptionError
from tiny_models import BUILDERS, full_logits, tiny_model

_TOKENS = [5, 17, 3, 60, 22, 41, 8, 8, 13, 29, 7, 55, 31, 12, 44, 9, 26, 38, 50, 4]


@pytest.fixture(params=["llama", "gpt2", "mistral, window of 6", "gemma3, window of 6"])
def model(request: pytest.FixtureRequest) -> Any:
    """A tiny random model of each kind, in float64."""
    return tiny_model(request.param)


def _target(model: Any) -> TransformersTarget:
    return TransformersBatch(CausalModel(model)).join()


def test_steps_equal_one_full_pass(model: Any) -> None:
    """Prefill and single steps give the logits of one pass over the whole sequence."""
    truth = full_logits(model, _TOKENS)
    target = _target(model)
    rows = [target.prefill(_TOKENS[:4])]
    for token in _TOKENS[4:]:
        rows.append(target.forward([token])[0])
    torch.testing.assert_close(torch.stack(rows), truth[3:], rtol=0, atol=1e-9)
    assert target.num_cached_tokens == len(_TOKENS)


def test_several_tokens_at_once(model: Any) -> None:
    """A forward pass over n tokens gives n rows, those of the full pass."""
    truth = full_logits(model, _TOKENS)
    target = _target(model)
    target.prefill(_TOKENS[:3])
    first = target.forward(_TOKENS[3:9])
    second = target.forward(_TOKENS[9:])
    torch.testing.assert_close(torch.cat([first, second]), truth[3:], rtol=0, atol=1e-9)


def test_crop_then_continue_equals_a_fresh_run(model: Any) -> None:
    """What was cropped leaves no trace, also in two crops and beyond a sliding window."""
    target = _target(model)
    target.prefill(_TOKENS[:12])
    for token in (9, 9, 9, 33, 2, 2):
        target.forward([token])
    target.crop(14)
    target.crop(7)
    assert target.num_cached_tokens == 7
    rows = target.forward(_TOKENS[7:])
    torch.testing.assert_close(rows, full_logits(model, _TOKENS)[7:], rtol=0, atol=1e-9)


def test_crop_to_nothing_and_prefill_start_over(model: Any) -> None:
    """Both an empty crop and a second prefill forget the sequence."""
    target = _target(model)
    target.prefill([40, 41, 42])
    target.crop(0)
    assert target.num_cached_tokens == 0
    torch.testing.assert_close(target.forward(_TOKENS), full_logits(model, _TOKENS), rtol=0, atol=1e-9)
    torch.testing.assert_close(target.prefill(_TOKENS[:5]), full_logits(model, _TOKENS[:5])[-1], rtol=0, atol=1e-9)
    assert target.num_cached_tokens == 5


def test_targets_over_one_model_are_independent(model: Any) -> None:
    """Two sequences over one model do not disturb each other."""
    first, second = _target(model), _target(model)
    first.prefill(_TOKENS[:5])
    second.prefill([30, 31])
    row = first.forward(_TOKENS[5:6])[0]
    torch.testing.assert_close(row, full_logits(model, _TOKENS[:6])[-1], rtol=0, atol=1e-9)


def test_width_and_changeable_logits() -> None:
    """The width is that of the head, and a sampler may change the rows in place."""
    target = _target(BUILDERS["llama"]())
    row = target.prefill([1, 2, 3])
    assert target.logits_width == row.shape[-1] == 61
    assert not row.requires_grad
    row.fill_(0.0)
    assert target.device == torch.device("cpu")


def test_bad_calls_are_refused() -> None:
    """No tokens, or more tokens to keep than there are, is an error and changes nothing."""
    target = _target(BUILDERS["llama"]())
    target.prefill([1, 2, 3])
    with pytest.raises(ValueError, match="at least one token"):
        target.forward([])
    for count in (4, -1):
        with pytest.raises(ValueError, match="cannot keep"):
            target.crop(count)
    assert target.num_cached_tokens == 3


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (object(), "transformers model is needed"),
        (SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=True), forward=len), "encoder-decoder"),
        (SimpleNamespace(config=SimpleNamespace(layer_types=["mamba"]), forward=len), "mamba"),
        (SimpleNamespace(config=Qwen3_5Config(), forward=lambda cache: None), "linear_attention"),
        (SimpleNamespace(config=xLSTMConfig(), _is_stateful=True, forward=lambda cache: None), "recurrent"),
        (SimpleNamespace(config=SimpleNamespace(vocab_size=3), forward=len), "takes a KV cache"),
        (SimpleNamespace(config=SimpleNamespace(), forward=lambda cache: None), "no language model head"),
    ],
)
def test_models_that_cannot_be_targets(model: Any, message: str) -> None:
    """Each kind of unusable model is refused by a sentence that names the reason."""
    with pytest.raises(OptionError, match=message):
        check_model(model)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_usable_models_pass(name: str) -> None:
    """The models of these tests are accepted."""
    check_model(BUILDERS[name]())


@pytest.mark.parametrize(
    ("config", "length"),
    [(Gemma3Config(), 131072), (Qwen3_5Config(), 32768), (LlamaConfig(max_position_embeddings=77), 77)],
)
def test_the_text_part_of_a_configuration(config: Any, length: int) -> None:
    """The context bound and the layers of a multimodal model stand in the text part of its configuration."""
    part = text_config(config)
    assert part.max_position_embeddings == length
    assert hasattr(part, "hidden_size")


def test_a_multimodal_configuration_with_attention_layers_passes() -> None:
    """A model is not refused for the other parts of its configuration."""
    body = SimpleNamespace(forward=lambda cache: None)
    model = SimpleNamespace(config=Gemma3Config(), forward=lambda cache: None, base_model=body)
    check_model(model)
    assert logits_width(model) == 262208


@pytest.mark.parametrize("name", BUILDERS)
def test_chains_whose_places_only_the_device_knows(name: str) -> None:
    """Passes of a fixed shape, by a tensor of positions, give the logits of a full pass, rows of any length at once."""
    model = CausalModel(tiny_model(name))
    if model.no_masks_because is not None:
        pytest.skip(model.no_masks_because)
    cache = KvCache(least_rows=2, least_positions=32)
    batch = TransformersBatch(model, cache=cache)
    texts = [_TOKENS[:5], _TOKENS[6:15]]
    for row, text in zip([batch.join(), batch.join()], texts, strict=True):
        row.extend(Tokens(text))
    addresses = [layer.keys.data_ptr() for layer in cache._own if layer.keys is not None]
    positions = torch.tensor([[len(text) + place for place in range(3)] for text in texts])
    cache.begin(PlacedPass(positions, 32))
    more = [[1, 2, 3], [4, 5, 6]]
    hidden = model.run_chains(torch.tensor(more), positions, cache, 32)
    logits = model.head.logits(hidden.flatten(0, 1)).view(2, 3, -1)
    for text, added, found in zip(texts, more, logits, strict=True):
        truth = full_logits(tiny_model(name), [*text, *added])[len(text) :]
        torch.testing.assert_close(found, truth, rtol=0, atol=1e-6)
    assert addresses == [layer.keys.data_ptr() for layer in cache._own if layer.keys is not None]


def test_numbers_of_rows_and_nodes_are_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers share them: an index by a list would make the host wait for the device in every layer."""
    counted: list[list[int]] = []
    monkeypatch.setattr(kv_cache, "sent", lambda one, device: counted.append(one.tolist()) or one.to(device))
    batch = TransformersBatch(CausalModel(tiny_model("llama")))
    first, _, last = rows = [batch.join() for _ in range(3)]
    batch.extend([(row, Tokens(_TOKENS[:4])) for row in rows])
    assert counted == []  # a row beside the other is a view
    batch.extend([(first, Tokens([5])), (last, Tokens([7, 8, 9], parents=[-1, -1, 1]))])
    last.keep([1, 2])
    assert counted == [[0, 2], [5, 6]]
    truth = full_logits(tiny_model("llama"), [*_TOKENS[:4], 8, 9, 3])[-1]
    torch.testing.assert_close(last.forward([3])[0], truth, rtol=0, atol=1e-6)
