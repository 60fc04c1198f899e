"""Linear layers whose weights lie as the CPU's kernels want them, so that a pass over a few tokens costs what one does.

A plain linear layer over two to sixteen tokens rearranges its weights in every call, and torch's choice for two or
three of them is three times as dear as for one. oneDNN rearranges once, ahead of time: the packed weights take the
place of the plain ones and the same memory. Only where the plain ones are needed as well, as the embedding that shares
them with the head, are they held twice.

For one token a call costs as much as the weights of a small layer. Layers that read the same, such as those of queries,
keys and values, are therefore packed together: the first that a model calls computes the product of all, and the
others, called with the same tensor, take their part of it.

The sums are taken in another order than by the plain layers, so logits differ in their last digits. Left out: which
layers are packed, and which together (packing.py).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import torch

# The layout that oneDNN chooses depends on how many rows it is told to expect; told one it keeps the plain layout.
_EXPECTED_ROWS = 16
# With AVX-512 one to three rows take longer than four. Known of the processor and not measured, so that the same
# machine never computes in two ways.
_LEAST_ROWS = {"AVX512": 4}
PACKED_DTYPES = (torch.float32, torch.bfloat16)
"""Element types that layers are packed in."""


class PackedWeights:
    """The weights of one or several linear layers that read the same.

    Attributes:
        bounds: where the outputs of each layer begin in those of all, and their number.
        biases: of each layer, views of one tensor; None where they have none.
    """

    can_be_read_by_rows = True
    """Whether an embedding that shares them has the same weights."""

    def __init__(self, linears: Sequence[torch.nn.Linear]) -> None:
        """Pack the weights of layers, all with a bias or none, which are not changed."""
        self._in_features = linears[0].in_features
        self.bounds = [0, *itertools.accumulate(linear.out_features for linear in linears)]
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        self._bias = _joined(biases) if biases else None
        self.biases = None if self._bias is None else torch.split(self._bias, [len(bias) for bias in biases])
        # Not parameters: what reads or moves parameters cannot do it with these.
        self._packed: Any = self._pack(_joined([linear.weight.detach() for linear in linears]))
        self._least_rows = _LEAST_ROWS.get(torch.backends.cpu.get_cpu_capability(), 1)

    def weight(self, layer: int) -> torch.Tensor:
        """Return the plain weights of one of the layers, made anew."""
        plain = self._unpack()
        return plain if len(self.bounds) == 2 else plain[self.bounds[layer] : self.bounds[layer + 1]].clone()

    def part(self, layer: int, states: torch.Tensor) -> torch.Tensor:
        """Return (rows, out_features) of one of the layers; what others will ask for is held for them."""
        held = _HELD.product
        if held is None or not held.is_for(self, layer, states):
            held = _Product(self, states, self._product(states.reshape(-1, self._in_features)))
        held.waiting.discard(layer)
        _HELD.product = held if held.waiting else None
        return self._columns(held.found, self.bounds[layer], self.bounds[layer + 1])

    @staticmethod
    def bytes_per_weight(weight: torch.Tensor) -> int:
        """Return what one takes when it is packed."""
        return weight.dtype.itemsize

    def _pack(self, weight: torch.Tensor) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(weight, _EXPECTED_ROWS)

    def _unpack(self) -> torch.Tensor:
        plain: torch.Tensor = self._packed.to_dense()
        return plain

    def _product(self, rows: torch.Tensor) -> Any:
        """Return what all layers give for (rows, in_features), in a form that `_columns` reads."""
        num_rows = rows.shape[0]
        if num_rows < self._least_rows:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, self._least_rows - num_rows))
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")[:num_rows]

    def _columns(self, found: Any, first: int, end: int) -> torch.Tensor:
        """Return (rows, end - first), contiguous as every linear layer's output is."""
        columns: torch.Tensor = found[:, first:end].contiguous()
        return columns


class _Product:
    """A product that some layers have yet to take their parts of, each once: what was taken may be written to."""

    def __init__(self, weights: PackedWeights, states: torch.Tensor, found: Any) -> None:
        self._weights, self._states, self.found = weights, states, found
        self._version = _version(states)
        self.waiting = set(range(len(weights.bounds) - 1))

    def is_for(self, weights: PackedWeights, layer: int, states: torch.Tensor) -> bool:
        """Return whether it is what the layer would compute: of the same tensor, not written to since."""
        is_same = self._weights is weights and self._states is states and layer in self.waiting
        return is_same and self._version is not None and self._version == _version(states)


class _Held(threading.local):
    """What was computed last and is not all taken: one for each thread, since several may run one model."""

    product: _Product | None = None


_HELD = _Held()


class PackedLinear(torch.nn.Module):
    """Stands for a plain linear layer.

    Attributes:
        num_weights: weights that are in no parameter of the model.
        num_bytes: memory of its packed weights.
        plain_weight: its weights, None if they are not held.
    """

    def __init__(self, linear: torch.nn.Linear, weights: PackedWeights, layer: int, *, is_shared: bool) -> None:
        """Take the place of a layer.

        Args:
            linear: the layer, which is not changed.
            weights: where its weights are packed.
            layer: which of the layers there it is.
            is_shared: whether the plain weights live on elsewhere; they are held then, to be read by rows.
        """
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        bias = None if weights.biases is None else weights.biases[layer]
        self.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
        self._weights, self._layer = weights, layer
        self.plain_weight = linear.weight.detach() if is_shared and weights.can_be_read_by_rows else None
        self.num_weights = 0 if is_shared else linear.weight.numel()
        self.num_bytes = linear.weight.numel() * weights.bytes_per_weight(linear.weight)

    @property
    def weight(self) -> torch.Tensor:
        """The plain weights; made anew if they are not held, for model code that looks at them."""
        return self._weights.weight(self._layer) if self.plain_weight is None else self.plain_weight

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001 - torch's own signature
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight  # so that a saved model has plain weights

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return (..., out_features) of (..., in_features)."""
        return self._weights.part(self._layer, states).view(*states.shape[:-1], self.out_features)


def packed_together(
    linears: Sequence[torch.nn.Linear], kind: type[PackedWeights], *, is_shared: bool = False
) -> list[PackedLinear]:
    """Return what stands for layers that read the same, or for a single one.

    Args:
        linears: the layers, all with a bias or none.
        kind: how they are packed.
        is_shared: whether their plain weights live on elsewhere.
    """
    weights = kind(linears)
    return [PackedLinear(linear, weights, layer, is_shared=is_shared) for layer, linear in enumerate(linears)]


def why_no_packed_layers(dtype: torch.dtype) -> str | None:
    """Return why layers of a dtype cannot be packed here, None if they can."""
    if dtype not in PACKED_DTYPES:
        return f"its dtype is {str(dtype).removeprefix('torch.')}; layers are packed in float32 and bfloat16"
    if torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"} or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch has no types there
        return "this processor, or this build of torch, has no oneDNN kernels that gain by it"
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.zeros((16, 16), dtype=dtype), _EXPECTED_ROWS)
    except (AttributeError, RuntimeError) as error:  # another torch, or a dtype that the processor has no kernels for
        return f"torch cannot pack it here ({type(error).__name__})"
    return None


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _version(states: torch.Tensor) -> int | None:
    """Return what grows when a tensor is written to, None where torch does not count that."""
    return None if states.is_inference() else states._version
