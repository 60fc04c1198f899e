"""Kernels that device mode does not run: heads of few tokens, mask rows from bytes, block verification (see gpu.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from gpu_kernels import BATCHES, SIZES, Case, compiled, new_case, new_tables
from gpu_machines import NUM_DRAFTED, Prepared, made_up
from gpu_report import Report, bytes_per_us, microseconds

from structgen.kernels import accept, byte_walk, gather_head
from structgen.kernels.accept import BatchDraft, ChainLaws
from structgen.kernels.byte_walk import TokenTexts
from structgen.kernels.gather_head import HeadWeights
from structgen.kernels.sample import Masks

_WIDTH = 2_048
_SMALL_SIZE, _SMALL_WIDTH, _SMALL_BATCHES = 1_000, 300, (1, 3)
_NUM_STATES = 372
_NUM_LETTERS = 26


class Walk(NamedTuple):
    """What the kernel of mask rows reads."""

    texts: TokenTexts
    byte_class: torch.Tensor
    table: torch.Tensor
    state: torch.Tensor


def check_other_kernels(report: Report, device: torch.device, _machines: Sequence[Prepared]) -> None:
    """Compare each with its plain form on the same device."""
    size = _SMALL_SIZE if report.is_check else SIZES[0]
    tables = new_tables(made_up(size), device)
    for batch in _SMALL_BATCHES if report.is_check else (1, 7, 64):
        case = new_case(tables, batch, device)
        hidden, head, masks = _new_head(case, _SMALL_WIDTH, torch.float32)
        found, wanted = (torch.full_like(case.logits, 7.0, dtype=torch.float32) for _ in range(2))
        compiled(gather_head, "gather_head_", "_gather_triton_")(found, hidden, head, masks)
        gather_head.gather_head_reference_(wanted, hidden, head, masks)
        is_close = torch.allclose(found, wanted, rtol=1e-3, atol=1e-3)
        report.expect(is_close, f"gather_head is another than its plain form ({size} tokens, {batch} rows)")
        draft, laws = _new_chains(batch, _SMALL_SIZE, device, torch.float64)
        one, other = (torch.full((batch, 1 + NUM_DRAFTED), -9, dtype=torch.int32, device=device) for _ in range(2))
        compiled(accept, "decide_by_ratio_", "_decide_by_ratio_triton_")(draft, laws, one)
        accept.decide_by_ratio_reference_(draft, laws, other)
        report.expect(torch.equal(one, other), f"decide_by_ratio is another than its plain form ({batch} rows)")
    walk = _new_walk(size, 16, device)
    rows, plain = _room(walk, size), _room(walk, size)
    compiled(byte_walk, "byte_walk_", "_byte_walk_triton_")(*walk, rows)
    byte_walk.byte_walk_reference_(*walk, plain)
    report.expect(torch.equal(rows, plain), f"byte_walk is another than its plain form ({size} tokens)")


def time_other_kernels(report: Report, device: torch.device, _machines: Sequence[Prepared]) -> None:
    """Time each beside the bytes that it has to read."""
    speed = bytes_per_us(device)
    for size in (_SMALL_SIZE,) if report.is_check else SIZES:
        walk = _new_walk(size, 16 if report.is_check else _NUM_STATES, device)
        rows = _room(walk, size)
        run = compiled(byte_walk, "byte_walk_", "_byte_walk_triton_")
        us = microseconds(lambda walk=walk, rows=rows, run=run: run(*walk, rows), device)
        report.add("Other kernels", "byte_walk, a row for each state", vocabulary=size, batch=len(rows), us=us)
        tables = new_tables(made_up(size), device)
        for batch in _SMALL_BATCHES if report.is_check else BATCHES:
            if not report.has_time(f"other kernels, {size} ids, {batch} rows"):
                return
            case = new_case(tables, batch, device)
            for what, (call, num_bytes) in _timed(case, is_check=report.is_check).items():
                floor = None if speed == 1 else num_bytes / speed
                us = microseconds(call, device)
                report.add("Other kernels", what, vocabulary=size, batch=batch, us=us, floor_us=floor)


def _timed(case: Case, *, is_check: bool) -> dict[str, tuple[Callable[[], object], int]]:
    """Return calls of one batch, each with the bytes that it has to read."""
    batch, size = case.logits.shape
    hidden, head, masks = _new_head(case, _SMALL_WIDTH if is_check else _WIDTH, torch.bfloat16)
    row = case.masks.row.long()
    num_listed = int((case.tables.list_start[row + 1] - case.tables.list_start[row]).sum())
    draft, laws = _new_chains(batch, size, case.logits.device, torch.float32)
    drawn = torch.zeros((batch, 1 + NUM_DRAFTED), dtype=torch.int32, device=case.logits.device)
    gather = compiled(gather_head, "gather_head_", "_gather_triton_")
    decide = compiled(accept, "decide_by_ratio_", "_decide_by_ratio_triton_")
    return {
        "gather_head": (lambda: gather(case.logits, hidden, head, masks), num_listed * hidden.shape[1] * 2),
        "decide_by_ratio": (lambda: decide(draft, laws, drawn), laws.target.nbytes + laws.draft.nbytes),
    }


def _new_head(case: Case, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, HeadWeights, Masks]:
    """Return hidden states, weights, and mask rows with their lists."""
    batch, size = case.logits.shape
    device = case.logits.device
    torch.manual_seed(batch)
    hidden = torch.randn((batch, width), device=device, dtype=dtype)
    weight = torch.randn((size, width), device=device, dtype=dtype)
    return hidden, HeadWeights(weight), replace(case.masks, lists=(case.tables.list_start, case.tables.list_ids))


def _new_chains(batch: int, size: int, device: torch.device, dtype: torch.dtype) -> tuple[BatchDraft, ChainLaws]:
    """Return chains of ragged length, drawn from laws that are near those of the target."""
    torch.manual_seed(batch)
    target = torch.rand((batch, 1 + NUM_DRAFTED, size), device=device, dtype=dtype).pow_(8)
    law = target[:, :-1] * (0.5 + torch.rand((batch, NUM_DRAFTED, size), device=device, dtype=dtype))
    target /= target.sum(dim=2, keepdim=True)
    law /= law.sum(dim=2, keepdim=True)
    tokens = torch.multinomial(law.flatten(0, 1), 1).view(batch, NUM_DRAFTED).int()
    num_drafted = torch.randint(0, NUM_DRAFTED + 1, (batch,), device=device, dtype=torch.int32)
    is_drafted = torch.arange(NUM_DRAFTED, device=device) < num_drafted[:, None]
    tokens = torch.where(is_drafted, tokens, -1)
    draft = BatchDraft.chain(torch.cat([torch.full_like(tokens[:, :1], -1), tokens], dim=1))
    coins = torch.rand((batch, 1 + NUM_DRAFTED), device=device, dtype=dtype)
    return draft, ChainLaws(target=target, draft=law, num_drafted=num_drafted, coins=coins)


def _new_walk(num_tokens: int, num_states: int, device: torch.device) -> Walk:
    """Return tokens of one to eight letters, and a machine in which some letters lead on from each state."""
    rng = np.random.default_rng(num_states)
    letters = rng.integers(97, 97 + _NUM_LETTERS, (num_tokens, 8)).astype(np.uint8)
    texts = TokenTexts.of([bytes(word[: 1 + index % 8]) for index, word in enumerate(letters)], device=device)
    byte_class = np.zeros(256, np.int32)
    byte_class[97 : 97 + _NUM_LETTERS] = np.arange(1, 1 + _NUM_LETTERS)
    table = rng.integers(-num_states, num_states, (num_states, 1 + _NUM_LETTERS)).clip(-1).astype(np.int32)
    table[:, 0] = -1
    state = np.arange(num_states, dtype=np.int32)
    return Walk(texts, *(torch.from_numpy(one).to(device) for one in (byte_class, table, state)))


def _room(walk: Walk, num_tokens: int) -> torch.Tensor:
    """Return room for a row of each state."""
    return torch.empty((len(walk.state), -(-num_tokens // 32)), dtype=torch.int32, device=walk.state.device)
