"""tally: the plain form against a loop over Python numbers, and the kernel against the plain form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from structgen.kernels.sample import Sampled
from structgen.kernels.tally import Drawn, Tally, tally_, tally_reference_
from triton_scripts import AHEAD_OF_TIME, run_script


def random_step(num_rows: int, num_nodes: int, seed: int, *, has_draft: bool) -> Drawn:
    """Return a step with places that were not asked, draws that failed, and masses that are no numbers."""
    generator = torch.Generator().manual_seed(seed)
    num_places = num_rows * num_nodes

    def numbers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator, dtype=torch.int32)

    sampled = Sampled.empty(num_places, num_tokens=50, device="cpu")
    sampled.token_id.copy_(numbers(-1, 50, num_places))
    mass = -torch.rand(num_places, generator=generator)
    mass[numbers(0, 6, num_places) == 0] = math.nan
    sampled.log_legal_mass.copy_(mass)
    mask_row = numbers(-1, 3, num_places)
    if not has_draft:
        return Drawn(mask_row=mask_row, sampled=sampled)
    parent = numbers(-1, 2, num_rows, num_nodes)
    return Drawn(mask_row=mask_row, sampled=sampled, parent=parent, num_accepted=numbers(0, num_nodes, num_rows))


def by_numbers(tally: Tally, drawn: Drawn) -> dict[str, list[float]]:
    """Add by plain loops."""
    found = {field.name: getattr(tally, field.name).tolist() for field in fields(tally)}
    num_rows = len(tally.last)
    num_nodes = len(drawn.mask_row) // num_rows
    for row in range(num_rows):
        places = range(row * num_nodes, (row + 1) * num_nodes)
        if drawn.mask_row[places[0]] < 0:
            continue
        met = 0 if drawn.num_accepted is None else int(drawn.num_accepted[row])
        for node, place in enumerate(places):
            if node <= met and drawn.mask_row[place] >= 0 and drawn.sampled.token_id[place] >= 0:
                lost = -float(drawn.sampled.log_legal_mass[place])
                found["lost"][row] += lost
                found["most"][row] = max(found["most"][row], lost)
        if drawn.sampled.token_id[places[met]] >= 0:
            found["last"][row] = int(drawn.sampled.token_id[places[met]])
        found["num_passes"][row] += 1
        if drawn.parent is not None:
            found["num_drafted"][row] += int((drawn.parent[row] >= 0).sum())
            found["num_accepted"][row] += met
    return found


def check_tallies(operation: Callable[[Tally, Drawn], None]) -> int:
    """Add some steps one after the other, and compare after each."""
    num_compared = 0
    for num_rows, num_nodes, has_draft in ((1, 1, False), (7, 1, False), (3, 5, True), (40, 2, True)):
        tally = Tally.new(num_rows)
        for seed in range(3):
            step = random_step(num_rows, num_nodes, seed, has_draft=has_draft)
            wanted = by_numbers(tally, step)
            operation(tally, step)
            for name, values in wanted.items():
                found = getattr(tally, name).tolist()
                assert found == pytest.approx(values, rel=1e-6, nan_ok=True), (name, num_rows, num_nodes, seed)
                num_compared += 1
    return num_compared


def test_the_plain_form_equals_plain_loops() -> None:
    """Also by the op, which is the plain form on the CPU."""
    assert check_tallies(tally_reference_) == check_tallies(tally_) == 72


def test_what_does_not_fit_is_refused() -> None:
    """By shape, and by layout."""
    with pytest.raises(ValueError, match="places does not fit"):
        tally_(Tally.new(2), random_step(3, 1, 0, has_draft=False))
    step = random_step(2, 2, 0, has_draft=True)
    with pytest.raises(ValueError, match="places does not fit"):
        tally_(Tally.new(2), Drawn(mask_row=step.mask_row, sampled=step.sampled, parent=step.parent))
    spread = step.mask_row.repeat_interleave(2)[::2]
    with pytest.raises(ValueError, match="must be contiguous"):
        tally_(Tally.new(2), replace(step, mask_row=spread))
    with pytest.raises(ValueError, match="must be contiguous"):
        tally_(Tally.new(2), replace(step, sampled=replace(step.sampled, token_id=spread)))


INTERPRETED = """
from structgen.kernels.tally import _tally_triton_
from test_tally import check_tallies
assert check_tallies(_tally_triton_) == 72
print("checked")
"""


def test_the_triton_kernel_in_the_interpreter() -> None:
    """The CUDA kernel, run by Triton's interpreter, adds the same."""
    pytest.importorskip("triton")
    assert run_script(INTERPRETED, TRITON_INTERPRET="1") == "checked"


COMPILED = (
    AHEAD_OF_TIME
    + """
from structgen.kernels._triton.tally import tally_kernel

signature = {"last": "*i32", "lost": "*fp64", "most": "*fp32", "num_passes": "*i64", "num_drafted": "*i64",
             "num_accepted": "*i64", "mask_row": "*i32", "token_id": "*i32", "log_legal_mass": "*fp32",
             "parent": "*i32", "accepted": "*i32", "num_rows": "i32", "num_nodes": "i32"}
for has_draft in (True, False):
    build(tally_kernel, signature, {"HAS_DRAFT": has_draft, "BLOCK": 32})
print("checked")
"""
)


def test_the_triton_kernel_compiles_for_ampere_and_hopper(tmp_path: Path) -> None:
    """Ahead of time to sm_80 and sm_90 machine code, without a GPU."""
    pytest.importorskip("triton")
    assert run_script(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "checked"
