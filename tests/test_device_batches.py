"""Batches in device mode from the public names: each row gets the text of host mode alone, whoever is beside it.

There is no GPU here: the pool of the model is told to choose device mode on the CPU too.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel

import structgen as sg
from structgen.decode import device_pool
from structgen.decode.device_loop import RowFollower
from structgen.decode.device_pool import DevicePool
from structgen.decode.device_session import DeviceSession, RowStart
from structgen.grammar.frozen_automaton import FrozenAutomaton
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Order(BaseModel):
    customer: Literal["first", "second"]
    quantity: Literal[1, 2, 30]


TYPES: list[Any] = [Order, bool, sg.Regex("(ab|ba){4,9}-[0-9]{3}"), str, sg.Choice(["one", "two", "three"])]
NOT_FROZEN = sg.Regex("[xy]{2,8}z")
EXACT = sg.Choice(["one", "two", "three"], exact=True)
PROMPTS = [sg.Raw(text) for text in ("x", "a longer prompt than the others: " + "la " * 20, "y", "what?", "of " * 9)]


@pytest.fixture(scope="module")
def host() -> sg.Model:
    """A tiny model on the CPU, in host mode."""
    return sg.Model(tiny_llama(), byte_tokenizer())


@pytest.fixture
def model() -> sg.Model:
    """The same whose pool is told that device mode is for the CPU too; some of its types are frozen."""
    made = sg.Model(tiny_llama(), byte_tokenizer())
    runtime = made._runtime
    runtime.device_pool = DevicePool(runtime._causal_model, runtime.vocabulary, device_types=("cpu",))
    for output_type in TYPES:
        made.generator(output_type).automaton.freeze()
    return made


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[DeviceSession, dict[int, RowStart]]]]:
    """What was loaded, and into which session."""
    found: list[tuple[DeviceSession, dict[int, RowStart]]] = []
    load = DeviceSession.load

    def told(self: DeviceSession, starts: dict[int, RowStart]) -> None:
        found.append((self, starts))
        load(self, starts)

    monkeypatch.setattr(DeviceSession, "load", told)
    return found


def alone(host: sg.Model, requests: list[tuple[Any, Any]], **options: Any) -> list[Any]:
    """Return what host mode gives of each row by itself, or the error."""
    found: list[Any] = []
    for output_type, prompt in requests:
        try:
            found.append(host.run(output_type, prompt, diagnostics=True, **options))
        except sg.StructgenError as error:
            found.append(error)
    return found


def together(model: sg.Model, requests: list[tuple[Any, Any]], **options: Any) -> list[Any]:
    """Return what a batch gives."""
    try:
        return list(model.run_batch(requests, diagnostics=True, **options))
    except sg.BatchError as error:
        return list(error.results)


def check(found: list[Any], wanted: list[Any]) -> None:
    """Compare what the way to a text must not change."""
    assert [_seen(one) for one in found] == [_seen(one) for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        if isinstance(one, sg.Result):
            assert one.report.num_steps == other.report.num_steps
            assert one.report.legal_mass_lost == pytest.approx(other.report.legal_mass_lost, rel=1e-5, abs=1e-5)


def _seen(result: Any) -> Any:
    if isinstance(result, sg.StructgenError):
        return type(result), str(result).split(":")[0]  # where it was; on the device nobody knows more
    report = result.report
    return result.value, result.text, result.token_ids, report.truncated, report.law, report.record.seed


@pytest.mark.parametrize(
    ("max_rows", "options"),
    [
        (1, {}),
        (3, {"sampling": sg.Sampling(top_k=7, temperature=0.8)}),
        (2, {"sampling": sg.Sampling(repetition_penalty=1.3)}),
        (64, {"sampling": sg.Sampling.greedy(), "speculation": sg.Speculation.off()}),
        (4, {"sampling": sg.Sampling(logit_bias={34: 2.0})}),
    ],
    ids=["alone", "truncation", "penalties", "greedy", "bias"],
)
def test_a_row_gets_what_host_mode_gives_alone(
    model: sg.Model, host: sg.Model, max_rows: int, options: dict[str, Any]
) -> None:
    """Types, prompts and modes mixed, rows that join as others end: values, tokens and figures are the same."""
    requests = [(TYPES[n % len(TYPES)], PROMPTS[(2 * n) % len(PROMPTS)]) for n in range(8)]
    requests[2:2] = [(NOT_FROZEN, PROMPTS[0]), (EXACT, PROMPTS[1])]
    options = options | {"seed": 7 * max_rows, "max_tokens": 60}
    found = together(model, requests, max_rows=max_rows, **options)
    check(found, alone(host, requests, **options))
    for (kind, _), one in zip(requests, found, strict=True):
        if kind is not EXACT:  # the law over whole answers takes few of the options
            assert one.report.mode == ("host" if kind is NOT_FROZEN else "device")


def test_the_reports_say_which_mode_it_was(model: sg.Model) -> None:
    """And why it was not the other one; passes that rows shared are counted once for each."""
    first, second, third = model.run_batch(
        [(Order, PROMPTS[0]), (NOT_FROZEN, PROMPTS[0]), (EXACT, PROMPTS[0])], seed=1, route="modes"
    )
    assert (first.report.mode, first.report.host_mode_because) == ("device", None)
    assert first.report.eager_because == "there are no CUDA graphs on a device of type cpu"
    assert first.report.record.backend.endswith(", device mode")
    assert first.report.forced_tokens > 3
    assert "freeze()" in str(second.report.host_mode_because)
    assert "whole answers" in str(third.report.host_mode_because)
    [slow] = model.run_batch([(Order, PROMPTS[0])], seed=1, deterministic=True)
    assert "width of their own" in str(slow.report.host_mode_because)
    assert model.metrics["modes"].num_requests == 3


def test_rows_join_as_others_end(model: sg.Model, host: sg.Model, loads: list[Any]) -> None:
    """In one session, never more than the limit; the first ones begin together, the others one by one."""
    requests = [(TYPES[2] if n % 3 else TYPES[1], PROMPTS[n % 4]) for n in range(9)]
    found = together(model, requests, seed=5, max_rows=3)
    check(found, alone(host, requests, seed=5))
    assert len({id(session) for session, _ in loads}) == 1
    assert loads[0][0].shape.num_rows == 4  # rounded up, and one of them stays empty
    assert len(loads[0][1]) == 3
    assert len(loads) > 2
    assert {row for _, starts in loads for row in starts} == {0, 1, 2}


def test_rows_join_several_at_a_time(model: sg.Model, host: sg.Model, loads: list[Any]) -> None:
    """Where many are under way one that is free waits for another, and the last ones wait for nobody."""
    requests = [((TYPES[2], bool, TYPES[4])[n % 3], PROMPTS[n % 4]) for n in range(23)]
    found = together(model, requests, seed=5, max_rows=8)
    check(found, alone(host, requests, seed=5))
    sizes = [len(starts) for _, starts in loads]
    assert sizes[0] == 8
    assert len(sizes) > 3
    assert min(sizes[:-1]) >= 2


def test_prompts_that_begin_together_share_a_pass(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of like length do; a long one is no padding of the others."""
    batches: list[int] = []
    extend = type(model._runtime.new_batch()).extend

    def told(self: Any, parts: Any) -> Any:
        batches.append(len(parts))
        return extend(self, parts)

    monkeypatch.setattr(type(model._runtime.new_batch()), "extend", told)
    prompts = [sg.Raw("abc " * 4), sg.Raw("abd " * 4), sg.Raw("abe " * 4), sg.Raw("ab" * 70)]
    model.generate_batch(bool, prompts, seed=1)
    assert sorted(batches) == [1, 3]


def test_results_come_as_they_end(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text does not wait for a long one."""
    order: list[int] = []

    def told(work: Any, total: int) -> Any:
        for number, result in work:
            order.append(number)
            yield number, result

    monkeypatch.setattr("structgen.batch.progress", told)
    model.run_batch([(sg.Regex("(ab|ba){4,9}-[0-9]{3}"), PROMPTS[0]), (bool, PROMPTS[0])], seed=1)
    assert order == [1, 0]


def test_short_rows_do_not_pay_for_long_ones(model: sg.Model, host: sg.Model, loads: list[Any]) -> None:
    """A row that needs a quarter of the positions of another one has the next session."""
    long = sg.Raw("x" * 900)
    requests = [(bool, PROMPTS[0]), (bool, long), (bool, PROMPTS[2]), (bool, PROMPTS[3]), (bool, sg.Raw("y" * 500))]
    found = together(model, requests, seed=3, max_rows=8, max_tokens=20)
    check(found, alone(host, requests, seed=3, max_tokens=20))
    rows: dict[tuple[int, int], int] = {}
    for session, starts in loads:
        key = session.shape.num_slots, session.shape.num_rows
        rows[key] = rows.get(key, 0) + len(starts)
    assert rows == {(1024, 2): 2, (256, 4): 3}


def test_a_row_that_fails_fails_alone(model: sg.Model, host: sg.Model) -> None:
    """A budget that is too small, a ban that one row meets in the middle of its text, a prompt that is none."""
    comma = byte_tokenizer()("-", add_special_tokens=False)["input_ids"][0]
    options: dict[str, Any] = {
        "seed": 1,
        "max_tokens": 60,
        "sampling": sg.Sampling(logit_bias={comma: float("-inf")}),
    }
    requests: list[tuple[Any, Any]] = [
        (bool, PROMPTS[0]),
        (TYPES[2], PROMPTS[0]),
        (Order, PROMPTS[1]),
        (bool, 5),
        (sg.Choice(["one", "two", "three"]), PROMPTS[3]),
    ]
    with pytest.raises(sg.BatchError, match="2 of 5 rows failed, first row 1: NoLegalTokenError") as caught:
        model.run_batch(requests, max_rows=2, diagnostics=True, **options)
    check(list(caught.value.results), alone(host, requests, **options))
    small = options | {"max_tokens": 23}
    found, wanted = together(model, requests, max_rows=2, **small), alone(host, requests, **small)
    check(found, wanted)
    assert any(isinstance(one, sg.BudgetError) for one in found)


def test_a_validator_that_refuses_fails_its_row(model: sg.Model) -> None:
    """The text is there, and its type does not want it."""

    class Never(BaseModel):
        is_so: bool

        def model_post_init(self, _: Any) -> None:
            raise ValueError("no")

    model.generator(Never).automaton.freeze()
    found = together(model, [(Never, PROMPTS[0]), (bool, PROMPTS[0])], seed=1)
    assert isinstance(found[0], sg.OutputError)
    assert found[1].report.mode == "device"


def test_stop_strings_end_free_text(model: sg.Model, host: sg.Model) -> None:
    """Each row by its own text."""
    options: dict[str, Any] = {"seed": 3, "max_tokens": 40, "stop": ["e", "th"]}
    requests = [(str, prompt) for prompt in PROMPTS]
    found, wanted = together(model, requests, **options), alone(host, requests, **options)
    assert [one.text for one in found] == [one.text for one in wanted]
    assert [one.report.stopped_by for one in found] == [one.report.stopped_by for one in wanted]
    assert any(one.report.stopped_by for one in found)
    assert {one.report.mode for one in found} == {"device"}


@pytest.mark.parametrize("max_rows", [2, 8])
def test_where_the_tables_end_the_host_goes_on(
    model: sg.Model, host: sg.Model, monkeypatch: pytest.MonkeyPatch, max_rows: int
) -> None:
    """Rows leave the device in the middle of their texts, share passes on the host, and give what they always give."""
    left: list[int] = []
    go_on = RowFollower.go_on
    monkeypatch.setattr(
        RowFollower, "go_on", lambda self, target: left.append(len(self.token_ids)) or go_on(self, target)
    )
    for seed, output_type in enumerate((Order, TYPES[2])):
        automaton = model.generator(output_type).automaton
        walked = automaton.start().automaton
        assert isinstance(walked, FrozenAutomaton)
        machine = walked.machine
        unknown = np.random.default_rng(seed).random(machine.num_states) < 0.1
        unknown[[machine.start, machine.end]] = False
        monkeypatch.setattr(walked, "machine", replace(machine, mask_row=np.where(unknown, -1, machine.mask_row)))
    requests = [((Order, TYPES[2], bool)[n % 3], PROMPTS[n % 5]) for n in range(9)]
    options: dict[str, Any] = {"seed": 2, "max_tokens": 60, "sampling": sg.Sampling(presence_penalty=0.5)}
    found = together(model, requests, max_rows=max_rows, **options)
    check(found, alone(host, requests, **options))
    assert len(left) > 3
    assert max(left) > 2
    assert {one.report.mode for one in found} == {"device"}
    reasons = [one.report.host_mode_because for one in found if one.report.num_device_steps < one.report.num_steps]
    assert len(reasons) == len(left)
    assert all(reason is not None and "tables of the device end" in reason for reason in reasons)


@pytest.mark.parametrize("max_rows", [2, 8])
def test_parts_and_whole_machines_share_a_session(
    model: sg.Model, host: sg.Model, loads: list[Any], max_rows: int
) -> None:
    """A row that waits until its state is described holds up nobody, and rows join meanwhile."""
    nested = sg.Lark('start: "(" start ")" start | "x"')
    model.generator(nested).automaton.freeze_part(num_states=3)
    requests = [((nested, TYPES[1], nested, TYPES[2])[n % 4], PROMPTS[n % 5]) for n in range(9)]
    options: dict[str, Any] = {"seed": max_rows, "max_tokens": 40, "sampling": sg.Sampling(temperature=2.0)}
    found = together(model, requests, max_rows=max_rows, **options)
    check(found, alone(host, requests, **options))
    assert {one.report.mode for one in found} == {"device"}
    assert sum(one.report.num_device_waits for one in found) > 2
    assert len({id(session) for session, _ in loads}) == 1


def test_who_ends_a_batch_early_gives_the_session_back(model: sg.Model, loads: list[Any]) -> None:
    """Nobody reads on: the next batch takes the same session; after an error that is not ours it takes another."""
    requests = [(bool, prompt) for prompt in PROMPTS[:3]]
    pool = model._runtime.device_pool

    def ended() -> Any:
        from structgen import batch

        rows = dict(enumerate(model.generator(kind)._result_row(prompt, _settings()) for kind, prompt in requests))
        return batch._ended(model._runtime.new_batch(), pool, rows, 3)

    work = ended()
    next(work)
    work.close()
    assert len(list(ended())) == 3
    assert len({id(session) for session, _ in loads}) == 1
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeviceSession, "news", lambda _: (_ for _ in ()).throw(RuntimeError("of the device")))
        with pytest.raises(RuntimeError, match="of the device"):
            list(ended())
    assert len(list(ended())) == 3
    assert len({id(session) for session, _ in loads}) == 2


def _settings() -> Any:
    from structgen.call_options import CallSettings

    return CallSettings(seed=1)


def test_who_leaves_a_stream_early_gives_the_session_back(model: sg.Model, loads: list[Any]) -> None:
    """Closed, or thrown away in a cycle while the locks of the pool are held: nothing waits, and no graph is lost."""
    generator = model.generator(Order)
    stream = generator.stream(PROMPTS[0], seed=1)
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # streams are generators
    cycle: dict[str, Any] = {"stream": generator.stream(PROMPTS[0], seed=2)}
    cycle["self"] = cycle
    next(cycle["stream"])
    pool = model._runtime.device_pool
    del cycle
    with pool._lock, pool._lane._lock:
        gc.collect()
    wanted = generator.run(PROMPTS[0], seed=1).text
    assert generator.run(PROMPTS[0], seed=1).text == wanted
    assert len({id(session) for session, _ in loads}) == 1
    unread = generator.stream(PROMPTS[0], seed=2)
    del unread
    bias = {token_id: -float("inf") for token_id in range(264)}
    with pytest.raises(sg.NoLegalTokenError):
        generator.run(PROMPTS[0], sampling=sg.Sampling(logit_bias=bias))
    assert len(loads) == 5


def test_batches_and_calls_of_several_threads(model: sg.Model, host: sg.Model) -> None:
    """They share tables and sessions come and go; each gets its own texts."""
    requests = [(TYPES[n % 3], PROMPTS[n % 5]) for n in range(5)]
    options = [{"seed": seed, "max_tokens": 50} for seed in range(4)]
    wanted = [alone(host, requests, **one) for one in options]

    def run(number: int) -> list[Any]:
        if number % 2:
            return [model.run(*request, **options[number]) for request in requests]
        return together(model, requests, max_rows=3, **options[number])

    with ThreadPoolExecutor(4) as threads:
        for found, one in zip(threads.map(run, range(4)), wanted, strict=True):
            check(found, one)


def test_tables_that_are_full_part_a_batch(
    model: sg.Model, host: sg.Model, monkeypatch: pytest.MonkeyPatch, loads: list[Any]
) -> None:
    """Rows whose machines have no room have a session of other tables."""
    monkeypatch.setattr(device_pool, "_MOST_TABLE_BYTES", 1)
    requests = [(TYPES[n % 3], PROMPTS[n % 5]) for n in range(6)]
    found = together(model, requests, seed=2, max_tokens=30)
    check(found, alone(host, requests, seed=2, max_tokens=30))
    assert {one.report.mode for one in found} == {"device"}
    assert len({id(session.arena) for session, _ in loads}) == 3


def test_memory_bounds_the_rows(model: sg.Model, monkeypatch: pytest.MonkeyPatch, loads: list[Any]) -> None:
    """A session takes half of what is free at most, and one row always; who waits joins later."""
    pool = model._runtime.device_pool
    cache_bytes = pool._bytes_of_a_position * 256
    row_bytes = cache_bytes + 5 * model.vocabulary.size * device_pool._BYTES_OF_A_LOGIT
    free = 0.0
    monkeypatch.setattr(device_pool, "_free_bytes", lambda _: int(free - sum(cache_bytes * one for one in kept())))

    def kept() -> list[int]:
        return [session.shape.num_rows for session in pool._free.values()]

    made: dict[int, DeviceSession] = {}  # none of them goes, so that no other one has its number
    for num_rows_free, num_rows, num_kept in (
        (5.5, 4, [4]),
        (5.5, 4, [4]),
        (1.5, 1, [1]),
        (0.0, 1, [1]),
        (90.0, 8, [1, 8]),
    ):
        free = 2 * num_rows_free * row_bytes
        loads.clear()
        assert len(model.generate_batch(bool, PROMPTS + PROMPTS[:3], seed=1, max_tokens=20)) == 8
        assert {session.shape.num_rows for session, _ in loads} == {num_rows}
        assert all(session.num_cache_bytes == num_rows * cache_bytes for session, _ in loads)
        made |= {id(session): session for session, _ in loads}
        assert kept() == num_kept
    assert len(made) == 3  # what was there was taken again, also where it was all that there was room for


def test_what_nobody_uses_takes_no_more_than_the_weights(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the sessions that were given back the newest are kept, as many as that allows."""
    pool = model._runtime.device_pool
    monkeypatch.setattr(device_pool, "_LEAST_KEPT_BYTES", 0)
    monkeypatch.setattr(pool._model, "num_bytes", int(pool._bytes_of_a_position * 256 * 5.5))
    for num_rows, kept in ((1, [1]), (4, [1, 4]), (2, [2]), (8, []), (2, [2])):
        model.generate_batch(bool, [PROMPTS[0]] * num_rows, seed=1, max_tokens=20)
        assert [session.shape.num_rows for session in pool._free.values()] == kept
