"""TransformersTarget against one full forward pass of the same model, on tiny random models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3_5Config,
    xLSTMConfig,
)

from structgen.decode.transformers_target import TransformersTarget, check_model, text_config
from structgen.errors import OptionError

_SHAPE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Small models amplify little, so float64 leaves only rounding between the two ways.
_BUILDERS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_SHAPE)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=61, n_embd=32, n_layer=3, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2)
    ),
    "mistral, window of 6": lambda: MistralForCausalLM(MistralConfig(**_SHAPE, sliding_window=6)),
    "gemma3, window of 6": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**_SHAPE, sliding_window=6, head_dim=16)),
}
_TOKENS = [5, 17, 3, 60, 22, 41, 8, 8, 13, 29, 7, 55, 31, 12, 44, 9, 26, 38, 50, 4]


@pytest.fixture(params=sorted(_BUILDERS))
def model(request: pytest.FixtureRequest) -> Any:
    """A tiny random model of each kind, in float64."""
    torch.manual_seed(7)
    return _BUILDERS[request.param]().double().eval()


def _full(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


def test_steps_equal_one_full_pass(model: Any) -> None:
    """Prefill and single steps give the logits of one pass over the whole sequence."""
    truth = _full(model, _TOKENS)
    target = TransformersTarget(model)
    rows = [target.prefill(_TOKENS[:4])]
    for token in _TOKENS[4:]:
        rows.append(target.forward([token])[0])
    torch.testing.assert_close(torch.stack(rows), truth[3:], rtol=0, atol=1e-9)
    assert target.num_cached_tokens == len(_TOKENS)


def test_several_tokens_at_once(model: Any) -> None:
    """A forward pass over n tokens gives n rows, those of the full pass."""
    truth = _full(model, _TOKENS)
    target = TransformersTarget(model)
    target.prefill(_TOKENS[:3])
    first = target.forward(_TOKENS[3:9])
    second = target.forward(_TOKENS[9:])
    torch.testing.assert_close(torch.cat([first, second]), truth[3:], rtol=0, atol=1e-9)


def test_crop_then_continue_equals_a_fresh_run(model: Any) -> None:
    """What was cropped leaves no trace, also in two crops and beyond a sliding window."""
    target = TransformersTarget(model)
    target.prefill(_TOKENS[:12])
    for token in (9, 9, 9, 33, 2, 2):
        target.forward([token])
    target.crop(14)
    target.crop(7)
    assert target.num_cached_tokens == 7
    rows = target.forward(_TOKENS[7:])
    torch.testing.assert_close(rows, _full(model, _TOKENS)[7:], rtol=0, atol=1e-9)


def test_crop_to_nothing_and_prefill_start_over(model: Any) -> None:
    """Both an empty crop and a second prefill forget the sequence."""
    target = TransformersTarget(model)
    target.prefill([40, 41, 42])
    target.crop(0)
    assert target.num_cached_tokens == 0
    torch.testing.assert_close(target.forward(_TOKENS), _full(model, _TOKENS), rtol=0, atol=1e-9)
    torch.testing.assert_close(target.prefill(_TOKENS[:5]), _full(model, _TOKENS[:5])[-1], rtol=0, atol=1e-9)
    assert target.num_cached_tokens == 5


def test_targets_over_one_model_are_independent(model: Any) -> None:
    """Two sequences over one model do not disturb each other."""
    first, second = TransformersTarget(model), TransformersTarget(model)
    first.prefill(_TOKENS[:5])
    second.prefill([30, 31])
    row = first.forward(_TOKENS[5:6])[0]
    torch.testing.assert_close(row, _full(model, _TOKENS[:6])[-1], rtol=0, atol=1e-9)


def test_width_and_changeable_logits() -> None:
    """The width is that of the head, and a sampler may change the rows in place."""
    target = TransformersTarget(_BUILDERS["llama"]())
    row = target.prefill([1, 2, 3])
    assert target.logits_width == row.shape[-1] == 61
    assert not row.requires_grad
    row.fill_(0.0)
    assert target.device == torch.device("cpu")


def test_bad_calls_are_refused() -> None:
    """No tokens, or more tokens to keep than there are, is an error and changes nothing."""
    target = TransformersTarget(_BUILDERS["llama"]())
    target.prefill([1, 2, 3])
    with pytest.raises(ValueError, match="at least one token"):
        target.forward([])
    for count in (4, -1):
        with pytest.raises(ValueError, match="cannot keep"):
            target.crop(count)
    assert target.num_cached_tokens == 3


class _Recorder:
    """Stands for a model of an older transformers, whose forward has only the old name."""

    device = "cpu"

    def __init__(self) -> None:
        self.config = SimpleNamespace(vocab_size=4)
        self.seen: list[dict[str, Any]] = []

    def forward(self, input_ids: torch.Tensor, past_key_values: Any = None, use_cache: bool = True) -> Any:  # noqa: FBT002 - as transformers has it
        self.seen.append({"tokens": input_ids.tolist(), "cache": past_key_values, "use_cache": use_cache})
        return SimpleNamespace(logits=torch.arange(4.0 * input_ids.shape[1]).reshape(1, -1, 4))

    __call__ = forward


def test_old_name_of_the_cache_argument() -> None:
    """A forward without `cache` gets the cache by its old name, and rows are cut where they cannot be chosen."""
    model = _Recorder()
    target = TransformersTarget(model)
    row = target.prefill([3, 1, 2])
    assert row.tolist() == [8.0, 9.0, 10.0, 11.0]
    target.forward([0])
    assert model.seen[0]["cache"] is model.seen[1]["cache"] is not None


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (object(), "transformers model is needed"),
        (SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=True), forward=len), "encoder-decoder"),
        (SimpleNamespace(config=SimpleNamespace(layer_types=["mamba"]), forward=len), "mamba"),
        (SimpleNamespace(config=Qwen3_5Config(), forward=lambda cache: None), "linear_attention"),
        (SimpleNamespace(config=xLSTMConfig(), _is_stateful=True, forward=lambda cache: None), "recurrent"),
        (SimpleNamespace(config=SimpleNamespace(vocab_size=3), forward=lambda input_ids: None), "takes no KV cache"),
        (SimpleNamespace(config=SimpleNamespace(), forward=lambda cache: None), "no language model head"),
    ],
)
def test_models_that_cannot_be_targets(model: Any, message: str) -> None:
    """Each kind of unusable model is refused by a sentence that names the reason."""
    with pytest.raises(OptionError, match=message):
        check_model(model)


@pytest.mark.parametrize("name", sorted(_BUILDERS))
def test_usable_models_pass(name: str) -> None:
    """The models of these tests are accepted."""
    check_model(_BUILDERS[name]())


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
    model = SimpleNamespace(config=Gemma3Config(), forward=lambda cache: None)
    check_model(model)
    assert TransformersTarget(SimpleNamespace(**vars(model), device="cpu")).logits_width == 262208
