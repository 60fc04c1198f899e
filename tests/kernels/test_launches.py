"""Every launch as CUDA would get it: arguments are bound, specialised, and taken out of their tuples."""

from __future__ import annotations

import json

import pytest

from triton_scripts import run_script

_LAUNCH_ALL = """
import importlib
import json
import sys
from dataclasses import replace

sys.path.insert(0, "benchmarks")
import torch
from gpu_kernels import new_case, new_tables, with_truncation
from gpu_machines import made_up
from launching import launches, use_no_card
from structgen.kernels import accept, advance, apply_mask, byte_walk, gather_head
from structgen.kernels.sample import Bias, Penalties, Workspace

use_no_card(compiles=COMPILES)
sample, tally = (importlib.import_module("structgen.kernels." + name) for name in ("sample", "tally"))
for num_tokens, batch in SIZES:
    tables = new_tables(made_up(num_tokens), torch.device("cpu"))
    case = new_case(tables, batch, torch.device("cpu"))
    out = replace(case.out, workspace=Workspace.empty(batch, num_tokens=num_tokens, device="cpu"))
    words = case.masks.words[case.masks.row.long()]
    apply_mask._apply_triton_(case.logits, words)
    none = torch.zeros(batch)
    penalties = Penalties(
        counts=torch.zeros((batch, num_tokens), dtype=torch.int32), free_row=case.masks.row,
        repetition=none, presence=none, frequency=none,
    )
    bias = Bias(values=torch.zeros((batch, num_tokens)), row=case.masks.row)
    everything = replace(
        with_truncation(case.options), top_k=case.masks.row, min_p=none, bias=bias, penalties=penalties
    )
    listed = replace(case.masks, lists=(tables.list_start, tables.list_ids))
    for masks in (case.masks, listed):
        for options in (case.options, with_truncation(case.options), everything):
            for has_masses in (True, False):
                asked = replace(options, has_masses=has_masses)
                sample._sample_triton(case.logits, masks, asked, case.noise, out)
    advance._mask_row_within_triton_(tables, case.registers.state, case.registers.num_left, case.masks.row)
    advance._advance_triton_(tables, case.registers, case.legal)
    advance._advance_triton_(tables, case.registers, None)
    for num_nodes in (1, 2, 5):
        tokens = case.legal[:, None].repeat(1, num_nodes)
        draft = accept.BatchDraft.chain(tokens)
        accept._draft_places_triton_(tables, case.registers, draft, accept.Places.new(batch, num_nodes))
        accept._accept_triton_(tables, case.registers, draft, tokens, accept.Accepted.new(batch, num_nodes))
        laws = accept.ChainLaws(
            target=torch.rand((batch, num_nodes, num_tokens)), draft=torch.rand((batch, num_nodes - 1, num_tokens)),
            num_drafted=torch.zeros(batch, dtype=torch.int32), coins=torch.rand((batch, num_nodes)),
        )
        accept._decide_by_ratio_triton_(draft, laws, tokens)
        for parent, accepted in ((None, None), (draft.parent, case.masks.row)):
            places = case.masks.row.repeat(1 if parent is None else num_nodes)
            drawn = sample.Sampled.empty(len(places), num_tokens=num_tokens, device="cpu")
            step = tally.Drawn(mask_row=places, sampled=drawn, parent=parent, num_accepted=accepted)
            tally._tally_triton_(tally.Tally.new(batch), step)
    hidden, weight = torch.zeros((batch, 32)), torch.zeros((num_tokens, 32))
    for head in (gather_head.HeadWeights(weight), gather_head.HeadWeights(weight, torch.zeros(num_tokens), 30.0)):
        gather_head._gather_triton_(case.logits, hidden, head, listed)
    texts = byte_walk.TokenTexts.of([b"ab"] * num_tokens)
    numbers = torch.zeros((4, 256), dtype=torch.int32)
    byte_walk._byte_walk_triton_(texts, numbers[0], numbers, case.registers.state, torch.empty_like(words))
print(json.dumps(launches))
"""


_DRAW_AT = """
import importlib
import json
import sys

sys.path.insert(0, "benchmarks")
import torch
from gpu_kernels import new_case, new_tables
from gpu_machines import made_up
from launching import launches, use_no_card
from structgen.config import Sampling
from structgen.decode import device_draws
from structgen.decode.sampler import DrawPlace, Sampler
from structgen.kernels.sample import Workspace

use_no_card()
sample = importlib.import_module("structgen.kernels.sample")
tables = new_tables(made_up(4_096), torch.device("cpu"))
workspace = Workspace.empty(16, num_tokens=4_096, device="cpu")
sampler = Sampler(Sampling(top_p=0.9), seed=3, vocabulary_size=4_096)
for num in range(1, 10):
    case = new_case(tables, num, torch.device("cpu"))
    options, noise = sampler.for_places([DrawPlace(position=at) for at in range(num)], torch.device("cpu"))
    memory = device_draws._new_memory(num, torch.device("cpu"))
    sample._sample_triton(case.logits, case.masks, options, noise, device_draws._sampled(memory[:, :num], workspace))
print(json.dumps(launches))
"""


def launches_of(sizes: list[tuple[int, int]], *, compiles: bool) -> list[tuple[str, list[int], str]]:
    """Launch everything for vocabularies and batches of these sizes; return the launches."""
    script = f"SIZES, COMPILES = {sizes}, {compiles}\n" + _LAUNCH_ALL
    found: list[tuple[str, list[int], str]] = json.loads(run_script(script).splitlines()[-1])
    return found


def test_every_kernel_can_be_launched() -> None:
    """With whatever is optional, and with sizes that are 1, odd, or multiples of 16, which Triton treats apart."""
    found = launches_of([(1_000, 1), (1_024, 3), (4_096, 16)], compiles=False)
    assert {name for name, _, _ in found} == {
        *("apply_mask_kernel", "tile_kernel", "row_kernel", "candidate_kernel", "select_kernel"),
        *("advance_kernel", "mask_row_within_kernel", "draft_places_kernel", "accept_kernel", "tally_kernel"),
        *("block_weights_kernel", "block_masses_kernel", "block_draw_kernel", "gather_head_kernel", "byte_walk_kernel"),
    }
    assert len({(name, variant) for name, _, variant in found}) > 100


def test_the_number_of_places_makes_no_other_kernel() -> None:
    """What a round draws has views of any length; compiling a kernel in the middle of a text takes about a second."""
    found = json.loads(run_script(_DRAW_AT).splitlines()[-1])
    assert len(found) == 9 * 4
    assert len({(name, variant) for name, _, variant in found}) == 4


@pytest.mark.slow
def test_every_variant_compiles() -> None:
    """An argument that is 1 is a constant, and what a kernel does with it has to compile too."""
    assert launches_of([(1_000, 1)], compiles=True)
