"""Linear layers whose weights lie as the CPU's kernels want them, so that a pass over a few tokens costs what one does.

A plain linear layer over two to sixteen tokens rearranges its weights in every call, and torch's choice for two or
three of them is three times as dear as for one. oneDNN rearranges once, ahead of time: the packed weights take the
place of the plain ones and the same memory. Only where the plain ones are needed as well, as the embedding that shares
them with the head, are they held twice.

The sums are taken in another order than by the plain layers, so logits differ in their last digits. Left out: layers
that are no plain `torch.nn.Linear`, and other devices than the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# The layout that oneDNN chooses depends on how many rows it is told to expect; told one it keeps the plain layout.
_EXPECTED_ROWS = 16
# With AVX-512 one to three rows take longer than four. Known of the processor and not measured, so that the same
# machine never computes in two ways.
_LEAST_ROWS = {"AVX512": 4}
_DTYPES = (torch.float32, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Packing:
    """What became of the linear layers of a model.

    Attributes:
        num_layers: how many were packed.
        extra_bytes: memory that the packed weights take beside plain ones that are still needed.
        unpacked_because: why nothing was packed, None if something was.
    """

    num_layers: int
    extra_bytes: int
    unpacked_because: str | None = None

    def __str__(self) -> str:
        """Say what it costs."""
        if self.unpacked_because is not None:
            return f"no, {self.unpacked_because}"
        return f"{self.num_layers} layers, {self.extra_bytes / 1e6:.0f} MB more"


class PackedLinear(torch.nn.Module):
    """Stands for a plain linear layer."""

    def __init__(self, linear: torch.nn.Linear, *, keeps_rows: bool) -> None:
        """Pack the weights of a layer.

        Args:
            linear: the layer, which is not changed.
            keeps_rows: whether the plain weights live on elsewhere, and are kept to be read by rows.
        """
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        # Not parameters: what reads or moves parameters cannot do it with these.
        self._packed: Any = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _EXPECTED_ROWS)
        self.plain_weight = linear.weight.detach() if keeps_rows else None
        self._least_rows = _LEAST_ROWS.get(torch.backends.cpu.get_cpu_capability(), 1)

    @property
    def weight(self) -> torch.Tensor:
        """The plain weights; made anew if they are not held, for model code that looks at them."""
        return self._packed.to_dense() if self.plain_weight is None else self.plain_weight

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001 - torch's own signature
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight  # so that a saved model has plain weights

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return (..., out_features) of (..., in_features)."""
        rows = states.reshape(-1, self.in_features)
        num_rows = rows.shape[0]
        if num_rows < self._least_rows:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, self._least_rows - num_rows))
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
        return found[:num_rows].reshape(*states.shape[:-1], self.out_features)


def pack_linear_layers(model: Any) -> Packing:
    """Put packed layers in the place of a model's plain ones, one by one, so that little is held twice on the way."""
    reason = why_not_packed(model)
    if reason is not None:
        return Packing(0, 0, reason)
    shared = {parameter.data_ptr() for module in model.modules() for parameter in _other_parameters(module)}
    num_layers = extra_bytes = 0
    for parent in list(model.modules()):
        for name, linear in list(parent.named_children()):
            if type(linear) is not torch.nn.Linear or linear.weight.dtype not in _DTYPES or _is_hooked(linear):
                continue
            keeps_rows = linear.weight.data_ptr() in shared
            setattr(parent, name, PackedLinear(linear, keeps_rows=keeps_rows))
            num_layers += 1
            extra_bytes += linear.weight.nbytes if keeps_rows else 0
    return Packing(num_layers, extra_bytes, None if num_layers else "it has no plain linear layers")


def why_not_packed(model: Any) -> str | None:
    """Return why the layers of a model cannot be packed, None if they can."""
    if torch.device(model.device).type != "cpu":
        return f"it is on {model.device}; layers are packed on the CPU only"
    if model.dtype not in _DTYPES:
        return f"its dtype is {str(model.dtype).removeprefix('torch.')}; layers are packed in float32 and bfloat16"
    if torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"} or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch has no types there
        return "this processor, or this build of torch, has no oneDNN kernels that gain by it"
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.zeros((16, 16), dtype=model.dtype), _EXPECTED_ROWS)
    except (AttributeError, RuntimeError) as error:  # another torch, or a dtype that the processor has no kernels for
        return f"torch cannot pack it here ({type(error).__name__})"
    return None


def _other_parameters(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return what a module holds by itself and is not a linear layer's."""
    return [] if type(module) is torch.nn.Linear else list(module.parameters(recurse=False))


def _is_hooked(module: torch.nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)
