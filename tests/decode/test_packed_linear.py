"""Packed linear layers against the plain ones that they stand for."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

from structgen.decode.causal_model import CausalModel, logits_width
from structgen.decode.digests import model_digest
from structgen.decode.int8_linear import Int8Weights, why_no_int8
from structgen.decode.models import load_model
from structgen.decode.packed_linear import PackedLinear, PackedWeights, packed_together
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
    [packed] = packed_together([linear], PackedWeights)
    states = torch.randn(shape)
    with torch.no_grad():
        torch.testing.assert_close(packed(states), linear(states), rtol=1e-5, atol=1e-5)
    assert torch.equal(packed.weight, linear.weight)
    assert packed.plain_weight is None


def test_rows_do_not_see_each_other() -> None:
    """A row gives the same bits alone, where it is padded, and beside others within that width."""
    [packed] = packed_together([torch.nn.Linear(64, 96)], PackedWeights)
    packed._weights._least_rows = 4
    states = torch.randn(4, 64)
    with torch.no_grad():
        together = packed(states)
        for index in range(4):
            padded = torch.cat([states[index:], torch.zeros(index, 64)])
            assert torch.equal(packed(padded)[0], packed(states[index : index + 1])[0])
        torch.testing.assert_close(together[:1], packed(states[:1]), rtol=1e-5, atol=1e-5)


class Counted:
    """Count the products of a kind of weights."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[PackedWeights]) -> None:
        self.num_products = 0
        plain = kind._product

        def product(weights: PackedWeights, rows: torch.Tensor) -> Any:
            self.num_products += 1
            return plain(weights, rows)

        monkeypatch.setattr(kind, "_product", product)


_NO_INT8 = pytest.mark.skipif(why_no_int8() is not None, reason=f"no int8 here: {why_no_int8()}")
KINDS = [PackedWeights, pytest.param(Int8Weights, marks=_NO_INT8)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_read_the_same_take_one_product(
    kind: type[PackedWeights], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, each its own columns, contiguous and free to be written to; weights are those of each layer."""
    torch.manual_seed(1)
    linears = [torch.nn.Linear(33, width, bias=bias) for width in (70, 5, 16)]
    layers = packed_together(linears, kind)
    alone = [packed_together([linear], kind)[0] for linear in linears]
    counted = Counted(monkeypatch, kind)
    for shape, order in (((1, 1, 33), (0, 1, 2)), ((2, 9, 33), (2, 0, 1)), ((0, 33), (1, 2, 0)), ((7, 33), (1, 0, 2))):
        states = torch.randn(shape)
        expected = [layer(states) for layer in alone]
        counted.num_products = 0
        for layer in order:
            found = layers[layer](states)
            assert found.is_contiguous()
            assert found.shape == expected[layer].shape
            torch.testing.assert_close(found, expected[layer], rtol=0, atol=0 if kind is not PackedWeights else 1e-5)
            found.fill_(torch.nan)
        assert counted.num_products == 1
    for layer, one in zip(layers, alone, strict=True):
        assert torch.equal(layer.weight, one.weight)
        assert layer.weight.untyped_storage().nbytes() == 33 * layer.out_features * 4
        assert (layer.bias is None) is not bias
        assert bias is False or torch.equal(layer.bias, one.bias)


def test_what_is_held_is_of_the_same_tensor_and_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other states, equal ones too, states written to, a second call, and tensors that count no writes are anew."""
    torch.manual_seed(1)
    linears = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)]
    first, second = packed_together(linears, PackedWeights)
    counted = Counted(monkeypatch, PackedWeights)

    def check(layer: PackedLinear, states: torch.Tensor, *, num_products: int) -> None:
        counted.num_products = 0
        expected = linears[0 if layer is first else 1](states)
        torch.testing.assert_close(layer(states), expected, rtol=1e-5, atol=1e-5)
        assert counted.num_products == num_products

    states = torch.randn(3, 8)
    with torch.no_grad():
        check(first, states, num_products=1)
        check(first, states, num_products=1)  # what it took before may have been written to
        check(second, states, num_products=0)
        check(second, states, num_products=1)
        states[1, 2] = 7.0
        check(first, states, num_products=1)  # and not what was held since the call before
        states.view(24)[5] = -3.0
        check(second, states, num_products=1)
        check(first, states.clone(), num_products=1)
        check(second, torch.randn(3, 8), num_products=1)  # written to as often as the one that is held: never
    with torch.inference_mode():
        uncounted = torch.randn(3, 8)
        check(first, uncounted, num_products=1)
        uncounted[0, 0] = 9.0
        check(second, uncounted, num_products=1)


def test_threads_hold_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads call the same layers by turns, each with states of its own and with some of all."""
    torch.manual_seed(1)
    linears = [torch.nn.Linear(8, 8) for _ in range(3)]
    layers = packed_together(linears, PackedWeights)
    counted = Counted(monkeypatch, PackedWeights)
    barrier, common = threading.Barrier(4), torch.randn(4, 8)

    def work(seed: int) -> None:
        own = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
        for index in range(6):
            states = common if index % 2 else own
            for layer, linear in zip(layers, linears, strict=True):
                barrier.wait(timeout=60)
                torch.testing.assert_close(layer(states), linear(states), rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert counted.num_products == 4 * 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_takes_four_products_a_layer(kind: type[PackedWeights], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of attention's inputs, attention's output, gates and ups, and downs; and one of the head."""
    model = _llama()
    pack_linear_layers(model, is_int8=kind is not PackedWeights)
    target = TransformersBatch(CausalModel(model)).join()
    counted = Counted(monkeypatch, kind)
    target.prefill([5, 6, 7])
    assert counted.num_products == 3 * 4 + 1
    counted.num_products = 0
    with torch.inference_mode():
        target.forward([8])
    assert counted.num_products == 3 * 4 + 1


def test_layers_that_cannot_go_together_are_packed_alone() -> None:
    """One with a bias among others without, and one whose weights are an embedding's too."""
    model = _llama()
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[1].mlp
    attention.k_proj = torch.nn.Linear(32, attention.k_proj.out_features, bias=True)
    mlp.table = torch.nn.Embedding(mlp.up_proj.out_features, 32)
    mlp.up_proj.weight = mlp.table.weight
    expected = TransformersBatch(CausalModel(copy.deepcopy(model))).join().prefill([5, 6, 7])
    packing = pack_linear_layers(model)
    assert packing.extra_bytes == mlp.table.weight.nbytes
    assert attention.q_proj._weights is not attention.v_proj._weights
    assert mlp.gate_proj._weights is not mlp.up_proj._weights
    together = model.model.layers[2].self_attn
    assert together.q_proj._weights is together.k_proj._weights is together.v_proj._weights
    found = TransformersBatch(CausalModel(model)).join().prefill([5, 6, 7])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


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
