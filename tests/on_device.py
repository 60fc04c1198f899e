"""Tensors that refuse to tell the host anything, and operations on them as kernels run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

_ASKS = {
    getattr(torch.Tensor, name)
    for name in (
        *("item", "tolist", "numpy", "cpu", "nonzero", "is_nonzero", "equal", "allclose", "unique", "masked_select"),
        *("__array__", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__", "__repr__"),
    )
} | {torch.nonzero, torch.equal, torch.allclose, torch.unique, torch.masked_select, torch.is_nonzero, torch.bincount}


class WaitError(Exception):
    """Somebody asked the device for a value."""


class OnDevice(torch.Tensor):
    """A tensor that stands for one on a device, of which the host must not know anything but its shape."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse what waits for the device, and let the rest through."""
        options = kwargs or {}
        moves = func is torch.Tensor.to and any(str(value) == "cpu" for value in (*args[1:], *options.values()))
        finds = func is torch.where and len(args) + len(options) == 1
        if func in _ASKS or moves or finds or _has_sizes_of_values(func, args):
            raise WaitError(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, options)


def _has_sizes_of_values(func: Any, args: Any) -> bool:
    """Say whether a shape would depend on values: an index by truth, or repeats that are a tensor."""
    if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in index)
    repeats = (torch.repeat_interleave, torch.Tensor.repeat_interleave)
    return func in repeats and any(isinstance(one, torch.Tensor) for one in args[1:])


def as_tensors(value: Any, kind: type[torch.Tensor]) -> Any:
    """Return tensors, and values that hold some, with the same memory and of another class."""
    if isinstance(value, torch.Tensor):
        return value.as_subclass(kind)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: as_tensors(getattr(value, one.name), kind) for one in fields(value)})
    if isinstance(value, tuple):
        parts = [as_tensors(one, kind) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def by_the_device(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation as a kernel runs it: on plain memory, which the host is not told of."""

    def run(*values: Any, out: Any = None, **options: Any) -> Any:
        plain = [as_tensors(value, torch.Tensor) for value in values]
        found = operation(*plain, **{name: as_tensors(value, torch.Tensor) for name, value in options.items()})
        return found if out is None else out.copy_(found)

    return run
