"""A step touches no memory of the host, which a graph cannot hold: it runs on tensors that have no values at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from structgen.decode.causal_model import CausalModel
from structgen.decode.device_step import DeviceStep, StepShape, StepState, StepTables
from structgen.decode.kv_cache import KvCache
from structgen.kernels.arena import Arena
from tiny_models import BUILDERS, SHAPE

META = torch.device("meta")
NUM_TOKENS = SHAPE["vocab_size"]
PLAIN = StepShape(num_rows=2, num_positions=40, has_truncation=True, has_bias=True, has_penalties=True)
DRAFTED = StepShape(num_rows=2, num_positions=40, num_drafted=3)


# What copies values of Python to a device, below where operations are seen.
_COPIES = {torch.tensor, torch.as_tensor, torch.Tensor.new_tensor}


class FromPython(TorchFunctionMode):
    """Notes the calls that make tensors of lists and numbers of Python, in indices too."""

    def __init__(self, found: list[str]) -> None:
        """Say where to."""
        super().__init__()
        self._found = found

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at a call, and make it."""
        is_index = func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
        index = (args[1] if isinstance(args[1], tuple) else (args[1],)) if is_index else ()
        if func in _COPIES or any(isinstance(one, list) for one in index):
            self._found.append(str(func))
        return func(*args, **(kwargs or {}))


class OnHost(TorchDispatchMode):
    """Notes the operations that read or write a tensor which is not on the device."""

    def __init__(self, found: list[str]) -> None:
        """Say where to."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types there
        self._found = found

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at what it takes and gives."""
        found = func(*args, **(kwargs or {}))
        if any(isinstance(one, torch.Tensor) and one.device != META for one in tree_leaves((args, kwargs, found))):
            self._found.append(str(func))
        return found


def host_operations_of(step: DeviceStep) -> list[str]:
    """Return what a step does with memory of the host, once the first one has made the buffers."""
    found: list[str] = []
    step()
    with FromPython(found), OnHost(found):
        step()
    return found


def step_of(model: Any, shape: StepShape) -> DeviceStep:
    """Return a step of a model that is moved to where there are no values."""
    looked_at = CausalModel(model)
    model.to(META)
    looked_at.device = META
    arena = Arena(vocabulary_digest="", num_tokens=NUM_TOKENS, num_private_rows=8, device=META)
    drafts = torch.zeros((8, shape.num_drafted), dtype=torch.int32, device=META) if shape.num_drafted else None
    cache = KvCache(least_rows=shape.num_rows, least_positions=shape.num_slots)
    for _ in range(shape.num_rows):
        cache.add_row()
    state = StepState(shape, num_tokens=NUM_TOKENS, ring_size=8, device=META)
    return DeviceStep(looked_at, cache, StepTables(arena=arena.tables, drafts=drafts), shape, state)


@pytest.mark.parametrize(("name", "shape"), [("llama", PLAIN), *((name, DRAFTED) for name in BUILDERS)])
def test_a_step_stays_on_its_device(name: str, shape: StepShape) -> None:
    """Whatever the family: nothing is copied from the host or to it."""
    assert host_operations_of(step_of(BUILDERS[name]().eval(), shape)) == []


PLANTED: dict[str, Callable[[torch.Tensor], object]] = {
    "a table of the host": lambda one: one * torch.tensor([2.0]).to(one.device),
    "a list as index": lambda one: one[:, [0]],
    "a list": lambda one: torch.tensor([1.0, 2.0], device=one.device),
}


@pytest.mark.parametrize("name", PLANTED)
def test_memory_of_the_host_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof can fail."""
    step = step_of(BUILDERS["llama"]().eval(), PLAIN)
    run_chains = CausalModel.run_chains

    def touches(self: CausalModel, *arguments: Any) -> Any:
        hidden = run_chains(self, *arguments)
        PLANTED[name](hidden)
        return hidden

    monkeypatch.setattr(CausalModel, "run_chains", touches)
    assert host_operations_of(step)
