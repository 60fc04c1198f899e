"""Linear layers of one byte a weight against exact products, and models that have them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import structgen as sg
from structgen.decode import int8_linear
from structgen.decode.causal_model import CausalModel, logits_width
from structgen.decode.int8_linear import Int8Weights, why_no_int8
from structgen.decode.models import load_model
from structgen.decode.packed_linear import PackedLinear, packed_together
from structgen.decode.packing import pack_linear_layers
from structgen.decode.style import fingerprint
from structgen.decode.transformers_target import TransformersBatch
from structgen.errors import OptionError
from tiny_models import SHAPE
from tiny_tokenizer import byte_tokenizer, tiny_llama

_WHY_NOT = why_no_int8()
pytestmark = pytest.mark.skipif(_WHY_NOT is not None, reason=f"no int8 here: {_WHY_NOT}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model in a folder."""
    tiny_llama().float().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def _layer(num_in: int, num_out: int, *, bias: bool = False) -> tuple[torch.nn.Linear, PackedLinear]:
    torch.manual_seed(num_in)
    linear = torch.nn.Linear(num_in, num_out, bias=bias)
    [packed] = packed_together([linear], Int8Weights)
    return linear, packed


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 33), (2, 33), (3, 33), (17, 33), (2, 5, 33)])
def test_products_are_those_of_the_rounded_weights(shape: tuple[int, ...], bias: bool) -> None:
    """Off by what 14 bits of the largest activation are off; in float64 from the weights that are read back."""
    linear, packed = _layer(33, 70, bias=bias)
    states = torch.randn(shape)
    offset = 0.0 if linear.bias is None else linear.bias.detach().double()
    with torch.no_grad():
        expected = states.double() @ packed.weight.double().T + offset
        found = packed(states)
    bound = 0.5 / 8127 * states.abs().amax(-1, keepdim=True) * packed.weight.abs().sum(1) + 1e-5
    assert found.shape == (*shape[:-1], 70)
    assert bool(((found - expected).abs() <= bound).all())


def test_weights_are_the_nearest_of_their_row() -> None:
    """Each within half a step, and a row of zeros stays one."""
    linear, _ = _layer(64, 96)
    with torch.no_grad():
        linear.weight[5] = 0.0
    [packed] = packed_together([linear], Int8Weights)
    steps = linear.weight.detach().abs().amax(1, keepdim=True) / 127
    assert bool(((packed.weight - linear.weight).abs() <= 0.5 * steps * (1 + 1e-4)).all())
    assert not packed.weight[5].any()


def test_largest_products_do_not_overflow() -> None:
    """All weights and activations at their bounds, of either sign, where 16 bits would be full."""
    for sign in (1.0, -1.0):
        linear = torch.nn.Linear(2048, 3, bias=False)
        with torch.no_grad():
            linear.weight.fill_(sign)
            [packed] = packed_together([linear], Int8Weights)
            for states in (torch.ones(2, 2048), -torch.ones(2, 2048), torch.full((2, 2048), 0.9961)):
                states[:, 0] = states[0, 0].sign()
                expected = states.double() @ linear.weight.double().T
                torch.testing.assert_close(packed(states).double(), expected, rtol=2e-4, atol=0)


def test_rows_do_not_see_each_other() -> None:
    """The same bits alone and beside others, whose activations may be a thousand times as large."""
    _, packed = _layer(64, 96)
    states = torch.randn(9, 64) * torch.logspace(-2, 3, 9)[:, None]
    with torch.no_grad():
        together = packed(states)
        for index in range(9):
            assert torch.equal(packed(states[index : index + 1])[0], together[index])


def test_what_is_no_number_stays_none() -> None:
    """A row with nan, or with infinity, gives no finite number; a row of zeros gives zeros."""
    _, packed = _layer(8, 4)
    states = torch.zeros(3, 8)
    states[0, 3], states[1, 2] = torch.nan, torch.inf
    with torch.no_grad():
        found = packed(states)
    assert not found[:2].isfinite().any()
    assert not found[2].any()


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_that_is_packed(tied: bool) -> None:
    """Logits are near; they are those of a plain model with the rounded weights; and the embedding is not rounded."""
    torch.manual_seed(3)
    plain: Any = LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=tied)).eval()
    model, rounded = copy.deepcopy(plain), copy.deepcopy(plain)
    packing = pack_linear_layers(model, is_int8=True)
    assert (packing.num_layers, packing.is_int8) == (22, True)
    assert packing.extra_bytes == (61 * 32 if tied else 0)
    assert logits_width(model) == 61
    rounded.config.tie_word_embeddings = False
    if tied:
        rounded.lm_head.weight = torch.nn.Parameter(rounded.lm_head.weight.detach().clone())
    rounded.load_state_dict(model.state_dict())
    assert torch.equal(rounded.model.embed_tokens.weight, plain.model.embed_tokens.weight)
    logits = [TransformersBatch(CausalModel(one)).join().prefill([5, 6, 7]) for one in (plain, rounded, model)]
    torch.testing.assert_close(logits[2], logits[1], rtol=0, atol=1e-3)
    assert 1e-5 < float((logits[2] - logits[0]).abs().max()) < 0.1


def test_reports_name_it_and_records_replay(folder: Path) -> None:
    """The dtype is int8 in the repr and in the record, which loads the model anew; float32 is another dtype."""
    model = sg.load(folder, device="cpu", dtype="int8")
    assert "dtype='int8', packed='8 layers" in repr(model)
    record = model.run(int, "a", seed=3, max_tokens=8).report.record
    assert record.dtype == "int8"
    assert record.backend.endswith(", packed layers")
    assert sg.replay(record).is_same
    with pytest.warns(UserWarning, match="dtype float32, was int8"):
        sg.replay(record, model=sg.load(folder, device="cpu"))


def test_rounded_weights_have_a_style_of_their_own(folder: Path) -> None:
    """Which white space a model prefers is kept by what it is, and rounded it is another one."""
    whole, rounded = (sg.load(folder, device="cpu", dtype=dtype)._runtime for dtype in ("float32", "int8"))
    assert whole.dtype == "float32"
    assert fingerprint(rounded) != fingerprint(whole)


def test_a_draft_model_with_rounded_weights_is_known_again(folder: Path) -> None:
    """A record of drafts with noise of their own is replayed with it; plain weights would draw other drafts."""
    model, small = sg.load(folder, device="cpu"), sg.load(folder, device="cpu", dtype="int8")
    way = sg.Speculation(drafters=[sg.drafters.DraftModel(small)], mode="exact_ratio", adaptive=False)
    result = model.run(sg.Regex("[ab]{6,12}"), sg.Raw("x"), seed=1, speculation=way)
    again = sg.replay(result.report.record, model=model, draft_model=small)
    assert again.is_same
    with pytest.raises(sg.OptionError, match="draft model is another one"):
        sg.replay(result.report.record, model=model, draft_model=model)


def test_texts_do_not_depend_on_drafts(folder: Path) -> None:
    """deterministic=True: with drafts and without."""
    model = sg.load(folder, device="cpu", dtype="int8")
    for seed in range(4):
        runs = [
            model.run(list[bool], "a", seed=seed, max_tokens=24, deterministic=True, speculation=one)
            for one in (sg.Speculation.off(), sg.Speculation())
        ]
        assert runs[0].token_ids == runs[1].token_ids


def test_what_cannot_be_had_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """packed=False contradicts it; another device, and a torch or a processor without the kernels, are named."""
    with pytest.raises(OptionError, match="packed=False asks for none"):
        load_model(folder, device="cpu", dtype="int8", packed=False)
    with pytest.raises(OptionError, match="dtype='int8' is for the CPU, not for meta"):
        load_model(folder, device="meta", dtype="int8")

    def fails(*_: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(int8_linear.Int8Weights, "_pack", fails)
    with pytest.raises(OptionError, match=r"cannot be had here: torch has no kernels for it \(NotImplementedError\)"):
        load_model(folder, device="cpu", dtype="int8")
    monkeypatch.setattr(int8_linear.Int8Weights, "_pack", lambda _self, weight: weight)
    monkeypatch.setattr(int8_linear.Int8Weights, "_unpack", lambda self: self._packed)
    monkeypatch.setattr(int8_linear.Int8Weights, "_product", lambda _self, rows: (rows.repeat(2, 1) * 0, rows[:, 0]))
    with pytest.raises(OptionError, match="give something else on this processor"):
        load_model(folder, device="cpu", dtype="int8")
