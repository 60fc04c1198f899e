"""A driver of Triton that has no card: a launch goes all the way to where CUDA would take it.

For fresh interpreters, see triton_scripts.py: Triton's interpreter knows neither how arguments are bound, nor that an
argument which is 1 becomes a constant. Kernels are compiled for Hopper where `compiles` is asked for; else only their
arguments are looked at, as the launcher of CUDA takes them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

_TARGET = GPUTarget("cuda", 90, 32)
# What is before the arguments of a kernel: stream, function, two kinds of metadata, two hooks.
_NUM_BEFORE = 6


class Launch(NamedTuple):
    """What would have been launched; the variant is what Triton compiles it for."""

    kernel: str
    grid: tuple[int, int, int]
    variant: str


launches: list[Launch] = []


class _Kernel:
    """Stands for a compiled kernel."""

    function = packed_metadata = None

    def __init__(self, kernel: Any, variant: str, signature: dict[str, Any]) -> None:
        self._name, self._variant, self._kinds = kernel.fn.__name__, variant, tuple(signature.values())

    def launch_metadata(self, *_: Any) -> None:
        """Tell nothing."""

    def run(self, *values: Any) -> None:
        """Look at the grid and at the arguments."""
        grid, arguments = values[:3], values[3 + _NUM_BEFORE :]
        assert all(0 < size < most for size, most in zip(grid, (1 << 31, 1 << 16, 1 << 16), strict=True)), grid
        for value, kind in _taken(arguments, self._kinds):
            is_pointer = kind.startswith("*")
            assert isinstance(value, torch.Tensor if is_pointer else int | float), (self._name, kind, value)
        launches.append(Launch(self._name, grid, self._variant))


def _taken(values: Any, kinds: Any) -> list[tuple[Any, str]]:
    """Return the values that a kernel gets, which are no constants, with their kinds; tuples are taken apart."""
    found = []
    for value, kind in zip(values, kinds, strict=True):
        if isinstance(kind, tuple):
            found += _taken(tuple(value), kind)
        elif kind != "constexpr":
            found.append((value, kind))
    return found


class _Driver:
    """Stands for the driver of one card."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return _TARGET


def use_no_card(*, compiles: bool = False) -> None:
    """Take the launches of this interpreter from now on."""

    def make(
        self: Any, key: str, signature: Any, device: int, constants: Any, options: Any, attributes: Any, _: bool
    ) -> _Kernel:
        if compiles:
            source = self.ASTSource(self, signature, constants, attributes)
            self.compile(source, target=_TARGET, options=options.__dict__)
        self.device_caches[device][0][key] = kernel = _Kernel(self, key, signature)
        return kernel

    driver.set_active(_Driver())
    JITFunction._do_compile = make
