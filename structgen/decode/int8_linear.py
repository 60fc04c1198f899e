"""Linear layers with weights of one byte: a scale for each output, and activations that keep 14 bits.

Each weight is the nearest of 255 steps of the largest in its row. Activations of 8 bits would cost ten times the
divergence that the weights do, so a row of them is written as two rows of 7 bits, high and low, and the processor's
own products of bytes do both at once: 14 bits, more than bfloat16 has. Two products of 7 and 8 bits fit into 16 bits,
so nothing overflows on processors that add them there. The sums are of whole numbers and therefore exact, whatever
their order: a row's product depends on that row only, to the last bit, and so does a part of a product of several
layers.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Final

import torch

from structgen.decode.packed_linear import PackedWeights, packed_together
from structgen.kernels.byte_rows import join_rows, split_rows

_LARGEST_WEIGHT: Final = 127
_ZERO: Final = 64  # parts of activations are from -64 to 64, and the product takes 0 to 128
_TINY: Final = torch.finfo(torch.float32).tiny


class Int8Weights(PackedWeights):
    """Those of layers in float32, rounded; `weight` gives the rounded ones."""

    can_be_read_by_rows = False  # those of an embedding are not rounded

    @staticmethod
    def bytes_per_weight(weight: torch.Tensor) -> int:
        """Return 1."""
        return 1

    def _pack(self, weight: torch.Tensor) -> Any:
        scales = weight.abs().amax(1).clamp_min(_TINY) / _LARGEST_WEIGHT
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            # Its tensors of bytes are to go; whoever has a torch without them is told (`why_no_int8`).
            warnings.filterwarnings("ignore", message=".*quantized tensor creation functions", category=UserWarning)
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(rounded, None)

    def _unpack(self) -> torch.Tensor:
        rounded, _ = torch.ops.quantized.linear_unpack(self._packed)
        plain: torch.Tensor = rounded.dequantize()
        return plain

    def _product(self, rows: torch.Tensor) -> Any:
        parts, scales = split_rows(rows)
        # It adds 64 to the parts, which are whole numbers already, and has the product in float32.
        return _product_of_bytes()(parts, 1.0, _ZERO, self._packed), scales

    def _columns(self, found: Any, first: int, end: int) -> torch.Tensor:
        products, scales = found
        columns = join_rows(products, scales, first=first, num_columns=end - first)
        return columns if self._bias is None else columns.add_(self._bias[first:end])


@functools.cache
def _product_of_bytes() -> Any:
    """Return torch's function; to look it up takes a tenth of the time of a small product."""
    return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default


def why_no_int8() -> str | None:
    """Return why such layers cannot be computed here, None if they can; torch's kernels are tried on a small one."""
    weight = torch.arange(-128.0, 128.0).reshape(16, 16)
    linear = torch.nn.Linear(16, 16, bias=False, device="meta")
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    try:
        [layer] = packed_together([linear], Int8Weights)
        found, expected = layer(weight), weight @ layer.weight.T
    except (AttributeError, RuntimeError, NotImplementedError) as error:
        return f"torch has no kernels for it ({type(error).__name__})"
    if not torch.allclose(found, expected, rtol=0, atol=1e-3 * float(expected.abs().max())):
        return "torch's kernels for it give something else on this processor"
    return None
