"""Whole texts and whole steps on a GPU: legal to the end, and what a constraint costs beside a free step."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from gpu_machines import NUM_DRAFTED, Prepared, everything, made_up
from gpu_report import Report, event_microseconds, microseconds
from transformers import LlamaConfig, LlamaForCausalLM

from structgen.config import Sampling
from structgen.decode import device_step
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_drafts import DeviceDrafts
from structgen.decode.device_graph import GraphedStep, Lane
from structgen.decode.device_session import DeviceSession, RowStart
from structgen.decode.device_step import StepShape
from structgen.decode.kv_cache import PlacedPass
from structgen.kernels import accept, advance, sample, tally
from structgen.kernels.advance import RUNNING
from structgen.kernels.arena import Arena

_VOCABULARY = 128_256
_PROMPT, _POSITIONS = 128, 512
_STEPS = 16
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


def new_session(model: CausalModel, prepared: Sequence[Prepared], shape: StepShape) -> DeviceSession:
    """Return a session of some machines."""
    machine = prepared[0].machine
    arena = Arena(
        vocabulary_digest=machine.vocabulary_digest,
        num_tokens=machine.num_tokens,
        num_private_rows=shape.num_rows * shape.num_nodes,
        device=model.device,
    )
    drafts = DeviceDrafts(arena, num_drafted=shape.num_drafted, device=model.device)
    for one in prepared:
        drafts.add(one.machine, lambda one=one: one.drafts[:, : shape.num_drafted])
    return DeviceSession(model, arena, shape, drafts=drafts)


def load(session: DeviceSession, row: int, prepared: Prepared, *, seed: int, max_tokens: int) -> None:
    """Load a row with a prompt of some tokens."""
    prompt = torch.randint(0, prepared.machine.num_tokens, (_PROMPT,), generator=torch.Generator().manual_seed(seed))
    start = RowStart(
        prompt_token_ids=tuple(prompt.tolist()),
        machine=prepared.machine,
        max_tokens=max_tokens,
        seed=seed,
        stream=0,
        sampling=Sampling(),
    )
    session.load({row: start})


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
    """Make texts of all machines in one batch; each token has to be legal, and each text has to end."""
    known = [made_up(1_000)] if report.is_check or not machines else list(machines)
    model = new_model("tiny", known[0].machine.num_tokens, device)
    for num_drafted in (0, NUM_DRAFTED):
        shape = StepShape(num_rows=3 if report.is_check else 12, num_positions=_POSITIONS, num_drafted=num_drafted)
        with interpreted(is_check=report.is_check):
            session = new_session(model, known, shape)
            budget = 8 if report.is_check else 300
            for row in range(shape.num_rows):
                load(session, row, known[row % len(known)], seed=row, max_tokens=budget)
            texts = _texts(session)
        for row, (token_ids, status) in enumerate(texts):
            machine = known[row % len(known)].machine
            state = machine.start
            for token_id in token_ids:
                state = int(machine.next_state[state, machine.token_class[token_id]]) if state >= 0 else state
            name = f"row {row}, {num_drafted} drafted"
            report.expect(state >= 0, f"a text has an illegal token ({name})")
            is_over = status == advance.ENDED if machine.accepting.any() else len(token_ids) > 0
            report.expect(is_over, f"a text did not end ({name}, status {status})")
        report.note(f"texts with {num_drafted} drafted: {sum(len(ids) for ids, _ in texts)} tokens, all legal")


def _texts(session: DeviceSession) -> list[tuple[list[int], int]]:
    """Run to the end, or for as long as a budget could last."""
    found: list[tuple[list[int], int]] = [([], RUNNING) for _ in range(session.shape.num_rows)]
    for _ in range(_POSITIONS):
        for row, news in enumerate(session.news()):
            found[row] = ([*found[row][0], *news.token_ids], news.is_done)
        if all(status != RUNNING for _, status in found):
            break
    return found


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
    free = bare_step(model, batch)
    bare_us = _time_step(free, model.device)
    add = {"vocabulary": num_tokens, "batch": batch}
    report.add("Steps", f"{size}: pass, head, argmax of torch", us=bare_us, **add, more={"beside it": "1.000"})
    for prepared in (everything(num_tokens), made_up(num_tokens)):
        for num_drafted in (0, NUM_DRAFTED):
            if num_drafted and prepared.name == "everything":
                continue
            shape = StepShape(num_rows=batch, num_positions=_POSITIONS, num_drafted=num_drafted)
            session = new_session(model, [prepared], shape)
            for row in range(batch):
                load(session, row, prepared, seed=row, max_tokens=_POSITIONS - _PROMPT)
            us = _time_step(session._step, model.device)
            sums = session._state.tally
            num_passes, num_accepted = int(sums.num_passes.sum()), int(sums.num_accepted.sum())
            more = {
                "beside it": f"{us / bare_us:.3f}",
                "tokens a pass": f"{1 + num_accepted / max(num_passes, 1):.2f}",
                "graph": session.eager_because or "yes",
                "waits of a step": waits_of(session._step, model.device),
            }
            what = "free, our sampler" if prepared.name == "everything" else f"constrained, {num_drafted} drafted"
            report.add("Steps", f"{size}: {what}", us=us, **add, more=more)
            if model.device.type == "cuda":
                eager = event_microseconds(session._step._step)
                report.add("Steps", f"{size}: {what}, no graph", us=eager, **add)


def _time_step(step: GraphedStep, device: torch.device) -> float:
    if device.type == "cpu":
        return microseconds(step, device)

    torch.cuda.synchronize()  # what was loaded was started on another stream

    def steps() -> None:
        for _ in range(_STEPS):
            step()

    return event_microseconds(steps, per=_STEPS, rounds=5)


def bare_step(model: CausalModel, batch: int) -> GraphedStep:
    """Return the least that a step can be: one pass over the same cache, the head, the largest logit."""
    from structgen.decode.kv_cache import KvCache

    cache = KvCache(least_rows=batch, least_positions=_POSITIONS)
    cache.lengths = [0] * batch
    position = torch.full((batch, 1), _PROMPT, dtype=torch.int64, device=model.device)
    last = torch.zeros((batch, 1), dtype=torch.int64, device=model.device)

    def step() -> None:
        cache.begin(PlacedPass(position, _POSITIONS))
        hidden = model.run_chains(last, position, cache, _POSITIONS)
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
