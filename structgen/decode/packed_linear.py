"""Linear layers whose weights lie as the CPU's kernels want them, so that a pass over a few tokens costs what one does.

A plain linear layer over two to sixteen tokens rearranges its weights in every call, and torch's choice for two or
three of them is three times as dear as for one. oneDNN rearranges once, ahead of time: the packed weights take the
place of the plain ones and the same memory. Only where the plain ones are needed as well, as the embedding that shares
them with the head, are they held twice.

The sums are taken in another order than by the plain layers, so logits differ in their last digits. Left out: which
layers are packed (packing.py).
"""

from __future__ import annotations

from typing import Any

import torch

# The layout that oneDNN chooses depends on how many rows it is told to expect; told one it keeps the plain layout.
_EXPECTED_ROWS = 16
# With AVX-512 one to three rows take longer than four. Known of the processor and not measured, so that the same
# machine never computes in two ways.
_LEAST_ROWS = {"AVX512": 4}
PACKED_DTYPES = (torch.float32, torch.bfloat16)
"""Element types that layers are packed in."""


class PackedLinear(torch.nn.Module):
    """Stands for a plain linear layer.

    Attributes:
        num_weights: weights that are in no parameter of the model.
        num_bytes: memory of the packed weights.
    """

    _has_plain_rows = True

    def __init__(self, linear: torch.nn.Linear, *, is_shared: bool) -> None:
        """Pack the weights of a layer.

        Args:
            linear: the layer, which is not changed.
            is_shared: whether the plain weights live on elsewhere; they are held then, to be read by rows.
        """
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        # Not parameters: what reads or moves parameters cannot do it with these.
        self._packed: Any = self._pack(linear.weight.detach())
        self.plain_weight = linear.weight.detach() if is_shared and self._has_plain_rows else None
        self.num_weights = 0 if is_shared else linear.weight.numel()
        self.num_bytes = linear.weight.numel() * self._bytes_per_weight(linear.weight)
        self._least_rows = _LEAST_ROWS.get(torch.backends.cpu.get_cpu_capability(), 1)

    @staticmethod
    def _bytes_per_weight(weight: torch.Tensor) -> int:
        return weight.dtype.itemsize

    def _pack(self, weight: torch.Tensor) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(weight, _EXPECTED_ROWS)

    def _unpack(self) -> torch.Tensor:
        plain: torch.Tensor = self._packed.to_dense()
        return plain

    @property
    def weight(self) -> torch.Tensor:
        """The plain weights; made anew if they are not held, for model code that looks at them."""
        return self._unpack() if self.plain_weight is None else self.plain_weight

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001 - torch's own signature
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight  # so that a saved model has plain weights

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return (..., out_features) of (..., in_features)."""
        rows = states.reshape(-1, self.in_features)
        return self._product(rows).reshape(*states.shape[:-1], self.out_features)

    def _product(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (rows, out_features) of (rows, in_features)."""
        num_rows = rows.shape[0]
        if num_rows < self._least_rows:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, self._least_rows - num_rows))
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
        return found[:num_rows]


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
