"""Packed linear layers against the plain ones that they stand for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

from structgen.decode.causal_model import CausalModel, logits_width
from structgen.decode.digests import model_digest
from structgen.decode.models import load_model
from structgen.decode.packed_linear import PackedLinear
from structgen.decode.packing import num_weights, pack_linear_layers, weight_bytes, why_not_packed
from structgen.decode.target import Tokens
from structgen.decode.transformers_target import TransformersBatch
from structgen.errors import OptionError
from tiny_models import SHAPE
from tiny_tokenizer import byte_tokenizer, tiny_llama

_WHY_NOT = why_not_packed(tiny_llama().float())
pytestmark = pytest.mark.skipif(_WHY_NOT is not None, reason=f"nothing can be packed here: {_WHY_NOT}")


def _llama(*, tied: bool = False) -> Any:
    torch.manual_seed(3)
    return LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=tied)).eval()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 33), (2, 33), (3, 33), (9, 33), (2, 5, 33), (1, 1, 33)])
def test_a_layer_gives_what_the_plain_one_gives(shape: tuple[int, ...], bias: bool) -> None:
    """Any number of rows, with and without a bias; and the plain weights can be read back."""
    linear = torch.nn.Linear(33, 70, bias=bias)
    packed = PackedLinear(linear, is_shared=False)
    states = torch.randn(shape)
    with torch.no_grad():
        torch.testing.assert_close(packed(states), linear(states), rtol=1e-5, atol=1e-5)
    assert torch.equal(packed.weight, linear.weight)
    assert packed.plain_weight is None


def test_rows_do_not_see_each_other() -> None:
    """A row gives the same bits alone, where it is padded, and beside others within that width."""
    packed = PackedLinear(torch.nn.Linear(64, 96), is_shared=False)
    packed._least_rows = 4
    states = torch.randn(4, 64)
    with torch.no_grad():
        together = packed(states)
        for index in range(4):
            padded = torch.cat([states[index:], torch.zeros(index, 64)])
            assert torch.equal(packed(padded)[0], packed(states[index : index + 1])[0])
        torch.testing.assert_close(together[:1], packed(states[:1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_keeps_its_logits_and_its_digest(tied: bool) -> None:
    """Chains, trees and heads of a few rows; plain weights are held only where the embedding needs them."""
    plain, model = _llama(tied=tied), _llama(tied=tied)
    packing = pack_linear_layers(model)
    head = model.get_output_embeddings()
    assert packing.num_layers == 3 * 7 + 1
    assert packing.extra_bytes == (61 * 32 * 4 if tied else 0)
    assert (head.plain_weight is not None) is tied
    assert str(packing) == "22 layers, 0 MB more"
    assert logits_width(model) == 61
    assert model_digest(model) == model_digest(plain)
    assert model.state_dict().keys() == plain.state_dict().keys()
    rows = []
    for one in (plain, model):
        target = TransformersBatch(CausalModel(one)).join()
        logits = [target.prefill([5, 6, 7])[None], target.head(target.extend(Tokens([8, 9, 10], [-1, -1, 0])))]
        rows.append(torch.cat(logits))
        target.keep([0, 2])
        rows.append(target.head(target.extend(Tokens([1])), [3, 60]))
    torch.testing.assert_close(rows[:2], rows[2:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_weights_count_packed_or_not(tied: bool, is_int8: bool) -> None:
    """A packed model has as many weights as before; its bytes are those of the packed ones and of what stays plain."""
    plain, model = _llama(tied=tied), _llama(tied=tied)
    num_all = sum(one.numel() for one in plain.parameters())
    num_plain = sum(one.numel() for name, one in plain.named_parameters() if "norm" in name or "embed" in name)
    packing = pack_linear_layers(model, is_int8=is_int8)
    assert num_weights(model) == num_weights(plain) == num_all
    assert weight_bytes(plain) == 4 * num_all
    packed_bytes = (num_all - num_plain) * (1 if is_int8 else 4)
    assert weight_bytes(model) == 4 * num_plain + packed_bytes + packing.extra_bytes


def test_what_is_no_plain_layer_stays() -> None:
    """A layer of a class of its own, and one with a hook, are left alone."""
    model = PhiForCausalLM(PhiConfig(**SHAPE)).eval()

    class Own(torch.nn.Linear):
        pass

    model.model.layers[0].mlp.fc1 = Own(32, 48)
    model.model.layers[0].mlp.fc2.register_forward_hook(lambda *_: None)
    pack_linear_layers(model)
    assert type(model.model.layers[0].mlp.fc1) is Own
    assert type(model.model.layers[0].mlp.fc2) is torch.nn.Linear
    assert isinstance(model.model.layers[1].mlp.fc1, PackedLinear)


def test_why_nothing_is_packed() -> None:
    """Other dtypes and other devices are said by name, and packed=True refuses them."""
    assert "float64" in (pack_linear_layers(tiny_llama()).unpacked_because or "")
    assert "meta" in (pack_linear_layers(copy.deepcopy(_llama()).to("meta")).unpacked_because or "")


def test_loading(tmp_path: Any) -> None:
    """packed= decides; "auto" packs what can be packed; the digest is that of plain weights."""
    model, tokenizer = tiny_llama().float(), byte_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    packed, plain = load_model(tmp_path, device="cpu"), load_model(tmp_path, device="cpu", packed=False)
    assert packed.packing is not None
    assert packed.packing.num_layers == 8
    assert plain.packing is None
    assert packed.model_digest == plain.model_digest
    wide = load_model(tmp_path, device="cpu", dtype="float64")
    assert wide.packing is not None
    assert str(wide.packing).startswith("no, its dtype is float64")
    with pytest.raises(OptionError, match="cannot be packed: its dtype is float64"):
        load_model(tmp_path, device="cpu", dtype="float64", packed=True)
    with pytest.raises(OptionError, match="packed='yes' is unknown"):
        load_model(tmp_path, packed="yes")  # type: ignore[arg-type]  # what is tested
