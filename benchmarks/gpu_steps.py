"""Whole texts and whole steps on a GPU: legal to the end, and what a constraint costs beside a free step.

Both by the sessions that calls and batches run in: those of a pool, with a follower for each row.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from gpu_machines import NUM_DRAFTED, Prepared, everything, made_up
from gpu_report import Report, event_microseconds, microseconds
from transformers import LlamaConfig, LlamaForCausalLM

from structgen.decode import device_step
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_batch import DeviceRow, run_device_rows
from structgen.decode.device_graph import GraphedStep, Lane
from structgen.decode.device_loop import DeviceRequest, RowFollower, SessionRows
from structgen.decode.device_pool import DevicePool
from structgen.decode.device_session import DeviceSession
from structgen.decode.kv_cache import PlacedPass
from structgen.decode.loop import Request
from structgen.decode.rounds import Rounds
from structgen.decode.target import Target
from structgen.errors import NoLegalTokenError, StructgenError
from structgen.kernels import accept, advance, sample, tally
from structgen.kernels.advance import RUNNING

_VOCABULARY = 128_256
_PROMPT, _SLOTS = 128, 512
_STEPS = 16
_READINGS = 20
_SIZES = {
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
    "tiny": {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2},
}


def new_model(size: str, num_tokens: int, device: torch.device) -> CausalModel:
    """Return a randomly initialised Llama, in bfloat16 on a card."""
    heads, kv_heads = (4, 2) if size == "tiny" else (32, 8)
    config = LlamaConfig(
        vocab_size=num_tokens,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=8192,
        **_SIZES[size],
    )
    torch.manual_seed(0)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return CausalModel(model.to(dtype).eval().requires_grad_(requires_grad=False))


def new_pool(model: CausalModel, prepared: Sequence[Prepared]) -> DevicePool:
    """Return a pool as that of a loaded model, which knows what is drafted."""
    pool = DevicePool(model, prepared[0].automaton.vocabulary, device_types=(model.device.type,))
    for one in prepared:
        _, drafts = pool._shared(one.automaton)
        drafts.add(one.machine, lambda one=one: one.drafts)
    return pool


def asked(prepared: Prepared, *, seed: int, max_tokens: int, num_drafted: int) -> DeviceRequest:
    """Return a request with a prompt of some tokens."""
    prompt = torch.randint(0, prepared.machine.num_tokens, (_PROMPT,), generator=torch.Generator().manual_seed(seed))
    request = Request(prompt_token_ids=tuple(prompt.tolist()), max_tokens=max_tokens, seed=seed)
    return DeviceRequest(automaton=prepared.automaton, request=request, max_draft_tokens=num_drafted)


@dataclass
class TextRow:
    """A row of a batch that gives its tokens (structgen.decode.device_batch.DeviceRow)."""

    asked: DeviceRequest
    num_prompt_tokens: int = _PROMPT

    def follow(self) -> RowFollower:
        """Begin."""
        self._follower = RowFollower(self.asked.automaton, self.asked.request)
        return self._follower

    def start(self, target: Target) -> Rounds:
        """Go on in host mode, which no whole machine asks for."""
        return self._follower.go_on(target)

    def result(self) -> list[int]:
        """Return the text."""
        return self._follower.token_ids


@contextlib.contextmanager
def interpreted(*, is_check: bool) -> Iterator[None]:
    """Let the steps on the CPU run the kernels of CUDA, in Triton's interpreter."""
    changed: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, value: Any) -> None:
        changed.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def by_kernels(logits: Any, *, masks: Any, options: Any, noise: Any, out: Any) -> Any:
        sample._sample_triton(logits, masks, options, noise, out)
        return out

    if is_check and os.environ.get("TRITON_INTERPRET"):
        put(advance, "has_triton", lambda _: True)
        put(accept, "has_triton", lambda _: True)
        put(tally, "has_triton", lambda _: True)
        put(device_step, "sample", by_kernels)
    try:
        yield
    finally:
        for module, name, value in reversed(changed):
            setattr(module, name, value)


def check_texts(report: Report, device: torch.device, machines: Sequence[Prepared]) -> None:
    """Make texts of all machines as a batch does, more of them than rows; each token has to be legal to the end."""
    known = [made_up(1_000)] if report.is_check or not machines else list(machines)
    model = new_model("tiny", known[0].machine.num_tokens, device)
    num_texts, num_rows, budget = (4, 3, 6) if report.is_check else (40, 12, 300)
    with interpreted(is_check=report.is_check):
        pool = new_pool(model, known)
        for num_drafted in (0, NUM_DRAFTED):
            texts = [
                TextRow(asked(known[row % len(known)], seed=row, max_tokens=budget, num_drafted=num_drafted))
                for row in range(num_texts)
            ]
            rows: dict[int, DeviceRow[list[int]]] = dict(enumerate(texts))
            ended = dict(run_device_rows(pool, rows, max_rows=num_rows, left={}))
            for row, text in enumerate(texts):
                _check_text(report, text, ended[row], f"row {row}, {num_drafted} drafted")
            num_tokens = sum(len(text.result()) for text in texts)
            report.note(f"texts with {num_drafted} drafted: {num_tokens} tokens, all legal")


def _check_text(report: Report, text: TextRow, ended: list[int] | StructgenError, name: str) -> None:
    machine, token_ids = text.asked.automaton.machine, text.result()
    state = machine.start
    for token_id in token_ids:
        state = int(machine.next_state[state, machine.token_class[token_id]]) if state >= 0 else state
    report.expect(state >= 0, f"a text has an illegal token ({name})")
    if machine.accepting.any():
        report.expect(ended == token_ids, f"a text did not end ({name}: {ended})")
    else:  # a text without an end fails where its budget does
        is_over = isinstance(ended, NoLegalTokenError) and len(token_ids) == text.asked.request.max_tokens - 1
        report.expect(is_over, f"a text without an end has {len(token_ids)} tokens ({name}: {ended})")


def time_steps(report: Report, device: torch.device, machines: Sequence[Prepared]) -> None:
    """Time constrained and free steps, with and without graphs, and count what waits for the host."""
    sizes, batches = (("tiny",), (1, 2)) if report.is_check else (("1B", "8B"), (1, 8, 64))
    num_tokens = 1_000 if report.is_check else _VOCABULARY
    for size in sizes:
        if not report.has_time(f"steps of the model of {size}"):
            return
        model = new_model(size, num_tokens, device)
        for batch in batches:
            if not report.has_time(f"steps of the model of {size}, {batch} rows"):
                return
            with interpreted(is_check=report.is_check):
                _time_batch(report, model, size, batch, num_tokens)


def _time_batch(report: Report, model: CausalModel, size: str, batch: int, num_tokens: int) -> None:
    bare = bare_step(model, batch)
    bare_us = _time_step(bare, model.device)
    add = {"vocabulary": num_tokens, "batch": batch}
    more: dict[str, str] = {"beside it": "1.000", "graph": bare.eager_because or "yes"}
    report.add("Steps", f"{size}: pass, head, argmax of torch", us=bare_us, **add, more=more)
    prepared = everything(num_tokens), made_up(num_tokens)
    pool = new_pool(model, prepared)
    for one, num_drafted in ((prepared[0], 0), (prepared[1], 0), (prepared[1], NUM_DRAFTED)):
        budget = _SLOTS - _PROMPT - NUM_DRAFTED
        requests = [asked(one, seed=row, max_tokens=budget, num_drafted=num_drafted) for row in range(batch)]
        rows = pool.open(requests, most_rows=batch)
        rows.seat([RowFollower(request.automaton, request.request) for request in requests])
        session = rows._session
        if session is None:
            continue  # it was not given back yet
        begun = _standing(session)
        with_host_us = _time_rows(rows, session, 1 if report.is_check else _READINGS)
        sums = session._state.tally
        num_passes, num_accepted = int(sums.num_passes.sum()), int(sums.num_accepted.sum())
        # Beside the wait for the event of the oldest copy, which torch's watch does not count.
        waits_of_reading = waits_of(rows.step, model.device)
        what = "free, our sampler" if one is prepared[0] else f"constrained, {num_drafted} drafted"
        us = _time_rows_again(report, session, begun, lambda session=session: _time_step(session._step, model.device))
        more = {
            "beside it": f"{us / bare_us:.3f}",
            "with the host, µs": f"{with_host_us:.2f}",
            "tokens a pass": f"{1 + num_accepted / max(num_passes, 1):.2f}",
            "graph": session.eager_because or "yes",
            # Of what is launched: a graph that is there has none, whatever was captured.
            "waits of a step": waits_of(session._step._step, model.device),
            "waits of a reading": waits_of_reading,
        }
        report.add("Steps", f"{size}: {what}", us=us, **add, more=more)
        if model.device.type == "cuda":
            step = session._step._step
            eager = _time_rows_again(report, session, begun, lambda step=step: event_microseconds(step))
            report.add("Steps", f"{size}: {what}, no graph", us=eager, **add)
        rows.close()


def _standing(session: DeviceSession) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return what says where rows stand, with what it says now."""
    if session._state.memory.device.type == "cuda":
        torch.cuda.synchronize()  # it was written on another stream
    registers = session._state.registers
    tensors = [session._state.tally.last, *(getattr(registers, field.name) for field in fields(registers))]
    return [(tensor, tensor.clone()) for tensor in tensors]


def _time_rows_again(
    report: Report,
    session: DeviceSession,
    begun: list[tuple[torch.Tensor, torch.Tensor]],
    time_it: Callable[[], float],
) -> float:
    """Return a time of rows that begin anew, none of which may have ended while it was taken."""
    if session._state.memory.device.type == "cuda":
        torch.cuda.synchronize()
    for tensor, before in begun:
        tensor.copy_(before)
    us = time_it()
    is_done = session._state.registers.is_done
    num_begun = next(int((before == RUNNING).sum()) for tensor, before in begun if tensor is is_done)
    num_running = int((is_done == RUNNING).sum())
    report.expect(num_running == num_begun, f"{num_begun - num_running} rows had ended while steps were timed")
    return us


def _time_rows(rows: SessionRows, session: DeviceSession, num_readings: int) -> float:
    """Return microseconds of a step as a batch makes it: the host waits for news of all rows, and follows each."""
    for _ in range(num_readings // 5):
        rows.step()
    before, started = session.num_steps, time.perf_counter()
    for _ in range(num_readings):
        rows.step()
    return (time.perf_counter() - started) / (session.num_steps - before) * 1e6


def _time_step(step: GraphedStep, device: torch.device) -> float:
    if device.type == "cpu":
        return microseconds(step, device)

    torch.cuda.synchronize()  # what was loaded was started on another stream

    def steps() -> None:
        for _ in range(_STEPS):
            step()

    return event_microseconds(steps, per=_STEPS, rounds=5, is_queued=step.eager_because is None)


def bare_step(model: CausalModel, batch: int) -> GraphedStep:
    """Return the least that a step can be: one pass over the same cache, the head, the largest logit."""
    from structgen.decode.kv_cache import KvCache

    cache = KvCache(least_rows=batch, least_positions=_SLOTS)
    cache.lengths = [0] * batch
    position = torch.full((batch, 1), _PROMPT, dtype=torch.int64, device=model.device)
    last = torch.zeros((batch, 1), dtype=torch.int64, device=model.device)

    def step() -> None:
        cache.begin(PlacedPass(position, _SLOTS))
        hidden = model.run_chains(last, position, cache, _SLOTS)
        last.copy_(model.head.logits(hidden[:, 0]).argmax(dim=1, keepdim=True))

    with Lane(model.device)():
        return GraphedStep(step, model.device)


def waits_of(step: Callable[[], None], device: torch.device) -> str:
    """Return how many times a step makes the host wait, as torch's own watch counts."""
    if device.type == "cpu":
        return "not counted"
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(_STEPS):
                step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    found = [one for one in caught if "synchroniz" in str(one.message)]
    return f"{len(found) / _STEPS:g}"
