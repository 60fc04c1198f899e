"""Which linear layers of a model are packed, and how: in the dtype they have, or as weights of one byte.

Left out: layers that are no plain `torch.nn.Linear`, and other devices than the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from structgen.decode.int8_linear import Int8Weights, why_no_int8
from structgen.decode.packed_linear import (
    PACKED_DTYPES,
    PackedLinear,
    PackedWeights,
    packed_together,
    why_no_packed_layers,
)

# Children of one module that read the same, as transformers names them. Where the names mislead, nothing is wrong: a
# layer that is called with another tensor than its fellows computes a product of its own, only a wider one than needed.
_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@dataclass(frozen=True, slots=True)
class Packing:
    """What became of the linear layers of a model.

    Attributes:
        num_layers: how many were packed.
        extra_bytes: memory that the packed weights take beside plain ones that are still needed.
        unpacked_because: why nothing was packed, None if something was.
        is_int8: whether their weights were rounded to one byte.
    """

    num_layers: int
    extra_bytes: int
    unpacked_because: str | None = None
    is_int8: bool = False

    def __str__(self) -> str:
        """Say what it costs."""
        if self.unpacked_because is not None:
            return f"no, {self.unpacked_because}"
        return f"{self.num_layers} layers, {self.extra_bytes / 1e6:.0f} MB more"


def pack_linear_layers(model: Any, *, is_int8: bool = False) -> Packing:
    """Put packed layers in the place of a model's plain ones, few at a time, so that little is held twice by then."""
    reason = why_not_packed(model, is_int8=is_int8)
    if reason is not None:
        return Packing(0, 0, reason)
    kind: type[PackedWeights] = Int8Weights if is_int8 else PackedWeights
    shared = {parameter.data_ptr() for module in model.modules() for parameter in _other_parameters(module)}
    num_layers = extra_bytes = 0
    for parent in list(model.modules()):
        for names in _packed_names(parent, shared):
            linears = [getattr(parent, name) for name in names]
            is_shared = linears[0].weight.data_ptr() in shared
            for name, packed in zip(names, packed_together(linears, kind, is_shared=is_shared), strict=True):
                setattr(parent, name, packed)
                num_layers += 1
                extra_bytes += packed.num_bytes if is_shared else 0
    return Packing(num_layers, extra_bytes, None if num_layers else "it has no plain linear layers", is_int8=is_int8)


def _packed_names(parent: torch.nn.Module, shared: set[int]) -> list[tuple[str, ...]]:
    """Return the names of a module's layers that can be packed, those together that read the same."""
    plain: dict[str, Any] = {name: module for name, module in parent.named_children() if _can_be_packed(module)}
    found = []
    for names in _TOGETHER:
        linears = [plain[name] for name in names if name in plain]
        forms = {(linear.in_features, linear.weight.dtype, linear.bias is None) for linear in linears}
        is_any_shared = any(linear.weight.data_ptr() in shared for linear in linears)
        if len(linears) == len(names) and len(forms) == 1 and not is_any_shared:
            found.append(names)
    together = {name for names in found for name in names}
    return [*found, *((name,) for name in plain if name not in together)]


def _can_be_packed(module: torch.nn.Module) -> bool:
    return type(module) is torch.nn.Linear and module.weight.dtype in PACKED_DTYPES and not _is_hooked(module)


def why_not_packed(model: Any, *, is_int8: bool = False) -> str | None:
    """Return why the layers of a model cannot be packed, None if they can."""
    if torch.device(model.device).type != "cpu":
        return f"it is on {model.device}; layers are packed on the CPU only"
    return why_no_int8() if is_int8 else why_no_packed_layers(model.dtype)


def num_weights(model: torch.nn.Module) -> int:
    """Return how many weights a model has, packed or not; what is shared between layers counts once."""
    return sum(one.numel() for one in model.parameters()) + sum(one.num_weights for one in _packed_layers(model))


def weight_bytes(model: torch.nn.Module) -> int:
    """Return what they take; what is held plain and packed counts twice."""
    plain = {tensor.data_ptr(): tensor.nbytes for tensor in model.parameters()}
    return sum(plain.values()) + sum(one.num_bytes for one in _packed_layers(model))


def _packed_layers(model: torch.nn.Module) -> list[PackedLinear]:
    return [module for module in model.modules() if isinstance(module, PackedLinear)]


def _other_parameters(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return what a module holds by itself and is not a linear layer's."""
    return [] if type(module) is torch.nn.Linear else list(module.parameters(recurse=False))


def _is_hooked(module: torch.nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)
