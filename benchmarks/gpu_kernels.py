"""Each kernel against its plain form, and against the bytes that it has to read (see gpu.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpu_machines import NUM_DRAFTED, Prepared, made_up
from gpu_report import Report, bytes_per_us, microseconds

from structgen.kernels import accept, advance, apply_mask, sample, tally
from structgen.kernels.accept import Accepted, BatchDraft, Places
from structgen.kernels.advance import RUNNING, Registers
from structgen.kernels.arena import Arena, Tables
from structgen.kernels.sample import Masks, Sampled, SampleNoise, SampleOptions
from structgen.kernels.tally import Drawn, Tally

SIZES = (128_256, 262_144)
BATCHES = (1, 8, 64, 256)
_SMALL_SIZES, _SMALL_BATCHES = (1_000,), (1, 3)
_PRIVATE_ROWS = 1_280
_NEAR = 1e-5
"""Two scores that are nearer may change places, as float32 rounds."""


@dataclass(slots=True)
class Case:
    """Inputs of all kernels for one vocabulary and batch."""

    tables: Tables
    registers: Registers
    logits: torch.Tensor
    masks: Masks
    options: SampleOptions
    noise: SampleNoise
    out: Sampled
    legal: torch.Tensor


def new_case(tables: Tables, batch: int, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Case:
    """Return rows that stand in states all over the machine, each with a legal token."""
    generator = torch.Generator().manual_seed(batch)
    num_states = int(tables.machine.numel() and (tables.mask_row > 0).sum()) - 1
    registers = Registers.new(batch, ring_size=64, device=device)
    registers.state.copy_(torch.randint(0, num_states, (batch,), generator=generator))
    registers.num_left.fill_(1 << 30)
    registers.position.fill_(100)
    registers.is_done.fill_(RUNNING)
    masks = Masks(
        words=tables.mask_rows, row=tables.mask_row[registers.state.long()].clone(), num_tokens=tables.num_tokens
    )
    logits = torch.randn((batch, tables.num_tokens), generator=generator).mul_(3).to(device=device, dtype=dtype)
    number = torch.arange(batch, device=device)
    legal = sample.allowed(masks.words, masks.row, masks.num_tokens).int().argmax(dim=1).int()
    return Case(
        tables=tables,
        registers=registers,
        logits=logits,
        masks=masks,
        options=SampleOptions(temperature=torch.ones(batch, device=device)),
        noise=SampleNoise(number + 7, registers.position, torch.zeros_like(number)),
        out=new_sampled(batch, tables.num_tokens, device),
        legal=legal,
    )


def new_sampled(batch: int, num_tokens: int, device: torch.device) -> Sampled:
    """Return room for draws."""
    return Sampled.empty(batch, num_tokens=num_tokens, device=device)


def new_tables(prepared: Prepared, device: torch.device) -> Tables:
    """Return an arena's tables with one machine."""
    arena = Arena(
        vocabulary_digest=prepared.machine.vocabulary_digest,
        num_tokens=prepared.machine.num_tokens,
        num_private_rows=_PRIVATE_ROWS,
        device=device,
    )
    arena.add(prepared.machine)
    return arena.tables


def with_truncation(options: SampleOptions) -> SampleOptions:
    """Return the same with top_p."""
    return replace(options, top_p=torch.full_like(options.temperature, 0.95))


def compiled(module: Any, operation: str, kernel: str) -> Callable[..., Any]:
    """Return the operation, or in the interpreter what it launches on CUDA."""
    return getattr(module, kernel if os.environ.get("TRITON_INTERPRET") else operation)


def sample_into(case: Case, options: SampleOptions) -> Sampled:
    """Draw by the kernels."""
    if os.environ.get("TRITON_INTERPRET"):
        sample._sample_triton(case.logits, case.masks, options, case.noise, case.out)
    else:
        sample.sample(case.logits, masks=case.masks, options=options, noise=case.noise, out=case.out)
    return case.out


def check_kernels(report: Report, device: torch.device, machines: Sequence[Prepared]) -> None:
    """Compare every kernel with its plain form on the same device, and note draws that differ with their margin."""
    for prepared in [made_up(1_000), *([] if report.is_check else [made_up(SIZES[0]), *machines])]:
        tables = new_tables(prepared, device)
        for batch in _SMALL_BATCHES if report.is_check else (1, 7, 64):
            case = new_case(tables, batch, device, torch.float32)
            name = f"{prepared.name}, {batch} rows"
            _check_apply_mask(report, case, name)
            _check_sample(report, case, name)
            _check_steps(report, case, name)


def _check_apply_mask(report: Report, case: Case, name: str) -> None:
    words = case.masks.words[case.masks.row.long()]
    found, wanted = case.logits.clone(), case.logits.clone()
    compiled(apply_mask, "apply_mask_", "_apply_triton_")(found, words)
    apply_mask.apply_mask_reference_(wanted, words)
    report.expect(torch.equal(found, wanted), f"apply_mask is another than its plain form ({name})")


def _check_sample(report: Report, case: Case, name: str) -> None:
    greedy = replace(case.options, temperature=torch.zeros_like(case.options.temperature))
    top_k = replace(case.options, top_k=torch.full_like(case.masks.row, 20))
    for options in (case.options, greedy, top_k, with_truncation(case.options)):
        found = sample_into(case, options)
        wanted = sample.sample_reference(case.logits, masks=case.masks, options=options, noise=case.noise)
        # Two best within rounding of each other may change places; whoever is drawn without noise may not.
        margins = _margins(case, options)[found.token_id != wanted.token_id].tolist()
        is_near = all(0 < margin < _NEAR for margin in margins)
        report.expect(is_near, f"sample: draws are others, the best by {margins} above the second ({name})")
        if margins:
            report.note(
                f"sample: {len(margins)} of {len(case.logits)} draws are others, by margins of {margins} ({name})"
            )
        is_close = torch.allclose(found.log_legal_mass, wanted.log_legal_mass, rtol=1e-4, atol=1e-4)
        report.expect(is_close, f"sample: the legal mass is another ({name})")


def _margins(case: Case, options: SampleOptions) -> torch.Tensor:
    """Return how far the best score of each row is above the second; 0 where the largest logit is taken."""
    raw = sample._vocabulary_columns(case.logits, case.masks.num_tokens)
    z = sample._changed(raw, case.masks, options)
    legal = sample.allowed(case.masks.words, case.masks.row, case.masks.num_tokens)
    z = z.masked_fill(~legal, -torch.inf).double()
    best = sample._scores(z, z.amax(1, keepdim=True), options, case.noise).topk(2, dim=1).values
    return torch.where(options.temperature == 0, 0.0, best[:, 0] - best[:, 1])


def _check_steps(report: Report, case: Case, name: str) -> None:
    tables, registers = case.tables, case.registers
    tight = torch.full_like(registers.num_left, 1)
    found, wanted = torch.empty_like(tight), torch.empty_like(tight)
    compiled(advance, "mask_row_within_", "_mask_row_within_triton_")(tables, registers.state, tight, found)
    rows = tables.mask_rows[found.long()].clone()
    advance.mask_row_within_reference_(tables, registers.state, tight, wanted)
    is_same = torch.equal(rows, tables.mask_rows[wanted.long()])
    report.expect(is_same, f"mask_row_within is another than its plain form ({name})")
    one, other = _copies(registers)
    compiled(advance, "advance_", "_advance_triton_")(tables, one, case.legal)
    advance.advance_reference_(tables, other, case.legal)
    report.expect(_are_same(one, other), f"advance is another than its plain form ({name})")
    one, other = _copies(registers)
    draft, drawn = _draft(case)
    places = [Places.new(*drawn.shape, device=drawn.device) for _ in range(2)]
    compiled(accept, "draft_places_", "_draft_places_triton_")(tables, one, draft, places[0])
    accept.draft_places_reference_(tables, other, draft, places[1])
    report.expect(torch.equal(places[0].state, places[1].state), f"draft_places is another ({name})")
    made = [Accepted.new(*drawn.shape, device=drawn.device) for _ in range(2)]
    compiled(accept, "accept_", "_accept_triton_")(tables, one, draft, drawn, made[0])
    accept.accept_reference_(tables, other, draft, drawn, made[1])
    is_same = torch.equal(made[0].num_accepted, made[1].num_accepted) and _are_same(one, other)
    report.expect(is_same, f"accept is another than its plain form ({name})")
    tallies = [Tally.new(len(case.logits), device=case.logits.device) for _ in range(2)]
    compiled(tally, "tally_", "_tally_triton_")(tallies[0], _step(case))
    tally.tally_reference_(tallies[1], _step(case))
    is_same = torch.equal(tallies[0].last, tallies[1].last) and torch.allclose(tallies[0].lost, tallies[1].lost)
    report.expect(is_same, f"tally is another than its plain form ({name})")


def _step(case: Case) -> Drawn:
    return Drawn(mask_row=case.masks.row, sampled=sample_into(case, case.options))


def _draft(case: Case) -> tuple[BatchDraft, torch.Tensor]:
    """Return chains of tokens that are legal as far as the first of each is, and draws that meet some of them."""
    token_id = case.legal[:, None].repeat(1, 1 + NUM_DRAFTED)
    return BatchDraft.chain(token_id), token_id.clone()


def _copies(registers: Registers) -> tuple[Registers, Registers]:
    names = ("state", "num_left", "position", "is_done", "error", "ring", "ring_end")
    one, other = ({name: getattr(registers, name).clone() for name in names} for _ in range(2))
    return Registers(**one), Registers(**other)


def _are_same(one: Registers, other: Registers) -> bool:
    names = ("state", "num_left", "position", "is_done", "error", "ring", "ring_end")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def time_kernels(report: Report, device: torch.device, machines: Sequence[Prepared]) -> None:
    """Time each kernel beside the bytes that it has to read."""
    speed = bytes_per_us(device)
    report.note(f"a copy of 1 GiB moves {speed * 1e6 / 1e12:.2f} TB/s" if speed > 1 else "no card, no floors")
    if device.type == "cuda":
        held = torch.cuda.get_device_properties(device).L2_cache_size / 2**20
        report.note(f"what fits into the {held:.0f} MiB of the L2 cache stays there, and may be read below the floor")
    for size in _SMALL_SIZES if report.is_check else SIZES:
        tables = new_tables(made_up(size), device)
        for batch in _SMALL_BATCHES if report.is_check else BATCHES:
            if not report.has_time(f"kernels, {size} ids, {batch} rows"):
                return
            _time_case(report, new_case(tables, batch, device), speed)


def _time_case(report: Report, case: Case, speed: float) -> None:
    batch, size = case.logits.shape
    device = case.logits.device
    mask_bytes = batch * case.masks.words.shape[1] * 4
    logits_bytes = case.logits.nbytes
    words = case.masks.words[case.masks.row.long()]
    draft, drawn = _draft(case)
    truncated = with_truncation(case.options)
    accepted, places = Accepted.new(*drawn.shape, device=device), Places.new(*drawn.shape, device=device)
    rows = torch.empty_like(case.masks.row)
    tables, registers = case.tables, case.registers
    start = registers.state.clone()

    def again(operation: str, kernel: str, module: Any, *arguments: Any) -> Callable[[], object]:
        run = compiled(module, operation, kernel)

        def call() -> None:
            run(*arguments)
            registers.state.copy_(start)  # what is drawn stays legal

        return call

    timed: dict[str, tuple[Callable[[], object], int | None]] = {
        "apply_mask alone": (
            lambda: compiled(apply_mask, "apply_mask_", "_apply_triton_")(case.logits, words),
            logits_bytes + mask_bytes,
        ),
        "sample": (lambda: sample_into(case, case.options), logits_bytes + mask_bytes),
        "sample, top_p": (lambda: sample_into(case, truncated), logits_bytes + mask_bytes),
        "argmax of torch, no mask": (lambda: case.logits.argmax(dim=1), logits_bytes),
        "mask_row_within, no cut": (
            again("mask_row_within_", "_mask_row_within_triton_", advance, tables, start, registers.num_left, rows),
            None,
        ),
        "advance": (again("advance_", "_advance_triton_", advance, tables, registers, case.legal), None),
        "draft_places": (
            again("draft_places_", "_draft_places_triton_", accept, tables, registers, draft, places),
            None,
        ),
        "tally": (again("tally_", "_tally_triton_", tally, Tally.new(batch, device=device), _step(case)), None),
        "accept": (again("accept_", "_accept_triton_", accept, tables, registers, draft, drawn, accepted), None),
    }
    for what, (call, num_bytes) in timed.items():
        floor = None if num_bytes is None or speed == 1 else num_bytes / speed
        us = microseconds(call, device)
        report.add("Kernels", what, vocabulary=size, batch=batch, us=us, floor_us=floor)
    _time_xgrammar(report, case)


def _time_xgrammar(report: Report, case: Case) -> None:
    """Time the mask kernel of xgrammar, where it is installed."""
    try:
        import xgrammar
    except ImportError:
        return
    words = case.masks.words[case.masks.row.long()].contiguous()
    logits = case.logits.float()
    us = microseconds(lambda: xgrammar.apply_token_bitmask_inplace(logits, words), logits.device)
    report.add("Kernels", "apply_mask of xgrammar", vocabulary=logits.shape[1], batch=len(logits), us=us)
