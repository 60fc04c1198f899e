"""Streams: pieces add up to the text of `run`, nothing that was shown is taken back, stop strings end free text."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
import string
import threading
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import structgen as sg
from structgen.decode.stop_strings import StopStrings
from structgen.metrics import Metrics
from structgen.partial import json_so_far
from tiny_tokenizer import byte_tokenizer, tiny_llama

GREEDY = sg.Sampling.greedy()


class Pet(BaseModel):
    name: str = Field(max_length=6)
    legs: int = Field(ge=0, le=8)


TYPES: dict[str, Any] = {
    "text": str,
    "model": Pet,
    "list": list[int],
    "integer": int,
    "regex": sg.Regex("[a-zé🌀]{0,9}x"),
    "choice": sg.Choice(["red", "green"]),
    "lark": sg.Lark('start: "go " ("left" | "right" | start)'),
    "tree": sg.Lark('start: "go " ("left" | "right" | start)', parse=True),
    "schema": sg.JsonSchema({"properties": {"a": {"type": "string", "maxLength": 9}}}),
}


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """The tiny model, wrapped."""
    return sg.Model(tiny_llama(), byte_tokenizer())


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TYPES)
def test_a_stream_gives_what_run_gives(model: sg.Model, name: str) -> None:
    """Texts only grow, pieces add up, the last one alone is complete and has the result of `run`."""
    for seed in range(5):
        whole = model.run(TYPES[name], "x", seed=seed, max_tokens=60)
        partials = list(model.stream(TYPES[name], "x", seed=seed, max_tokens=60))
        assert [partial.complete for partial in partials] == [False] * (len(partials) - 1) + [True]
        assert "".join(partial.new_text for partial in partials) == partials[-1].text == whole.text
        for before, after in itertools.pairwise(partials):
            assert after.text == before.text + after.new_text
            assert before.result is None
        assert all(partial.new_text for partial in partials[:-1])
        last = partials[-1]
        assert last.result is not None
        assert last.value == last.result.value == whole.value
        assert last.result.token_ids == whole.token_ids


def test_text_comes_as_it_is_made(model: sg.Model) -> None:
    """Free text arrives in many pieces, and the value of each is the text so far."""
    partials = list(model.stream(str, "x", seed=1, max_tokens=80, speculation=sg.Speculation.off()))
    assert len(partials) > 5
    assert all(partial.value == partial.text for partial in partials)


def test_a_choice_is_not_guessed(model: sg.Model) -> None:
    """Until it is complete a Choice has no value, though the first letter may tell."""
    *early, last = model.stream(sg.Choice([1, 23]), "x", seed=1)
    assert all(partial.value is None for partial in early)
    assert last.value in (1, 23)


def test_a_stream_is_checked_when_it_is_asked_for(model: sg.Model) -> None:
    """Neither a bad option nor a small budget waits for the first piece."""
    with pytest.raises(sg.BudgetError):
        model.stream(Pet, "x", max_tokens=2)
    with pytest.raises(sg.OptionError, match=r"did you mean seed=\.\.\."):
        model.stream(Pet, "x", sed=2)  # type: ignore[call-overload]  # the mistake is what is tested


def test_a_stream_that_is_left_costs_nothing_more(model: sg.Model) -> None:
    """Closing the iterator stops the model, and the model serves the next call."""
    passes = 0

    def counted(*_: object) -> None:
        nonlocal passes
        passes += 1

    hook = model.hf_model.model.register_forward_hook(counted)
    try:
        stream = model.stream(str, "x", seed=1, max_tokens=100)
        assert passes == 0
        next(stream)
        met = passes
        assert 0 < met < 20
        stream.close()  # type: ignore[attr-defined]  # an iterator by contract, a generator in fact
        assert passes == met
    finally:
        hook.remove()
    assert model.run(str, "x", seed=1, max_tokens=100).text == model.run(str, "x", seed=1, max_tokens=100).text


def test_streams_run_side_by_side(model: sg.Model) -> None:
    """Two streams of one generator, read in turns, do not meet."""
    # With drafts the pieces hang on what was written before, the texts do not.
    generator, off = model.generator(str), sg.Speculation.off()
    alone = [[p.text for p in generator.stream("x", seed=seed, max_tokens=40, speculation=off)] for seed in (1, 2)]
    streams = [generator.stream("x", seed=seed, max_tokens=40, speculation=off) for seed in (1, 2)]
    together: list[list[str]] = [[], []]
    for _ in range(200):
        for stream, texts in zip(streams, together, strict=True):
            partial = next(stream, None)
            if partial is not None:
                texts.append(partial.text)
    assert together == alone


# --- stop strings -----------------------------------------------------------------------------------------------------


def first_stop(text: str, stops: list[str]) -> str:
    """Return the text up to its first stop string, by looking at every beginning of it."""
    for end in range(len(text) + 1):
        met = [stop for stop in stops if text[:end].endswith(stop)]
        if met:
            return text[: end - max(map(len, met))]
    return text


@given(
    text=st.text("ab", max_size=20),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 20), max_size=6),
)
def test_stop_strings_do_not_depend_on_the_pieces(text: str, stops: list[str], cuts: list[int]) -> None:
    """However a text is cut, what comes out is the text before the first stop, and nothing is shown too early."""
    looked_for = StopStrings(stops)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    shown = ""
    for begin, end in itertools.pairwise(places):
        shown += looked_for.feed(text[begin:end])
        assert first_stop(text, stops).startswith(shown)
        if looked_for.found is not None:
            break
    shown += looked_for.flush()
    assert shown == first_stop(text, stops)
    assert (looked_for.found is None) == (not any(stop in text for stop in stops))


def test_nothing_is_held_back_that_no_stop_begins_with() -> None:
    """What cannot become a stop string is shown at once."""
    looked_for = StopStrings(["</end>"])
    assert [looked_for.feed(piece) for piece in ("a<", "b", "</e", "nt", "</end", ">x")] == [
        "a",
        "<b",
        "",
        "</ent",
        "",
        "",
    ]
    assert looked_for.found == "</end>"


@pytest.mark.parametrize("stop", ["e", "\n", "zz", "é"])
def test_stop_ends_free_text(model: sg.Model, stop: str) -> None:
    """The text is that of a run without stop, up to the stop string; the report says which one it was."""
    for seed in range(8):
        free = model.run(str, "x", seed=seed, max_tokens=60)
        stopped = model.run(str, "x", seed=seed, max_tokens=60, stop=[stop, "\x00\x00\x00"])
        assert stopped.text == first_stop(free.text, [stop, "\x00\x00\x00"])
        assert stopped.report.stopped_by == (stop if stop in free.text else None)
        assert free.token_ids[: len(stopped.token_ids)] == stopped.token_ids
        streamed = list(model.stream(str, "x", seed=seed, max_tokens=60, stop=[stop, "\x00\x00\x00"]))
        assert streamed[-1].text == stopped.text
        assert not any(stop in partial.text for partial in streamed)


@pytest.mark.parametrize("output_type", [Pet, sg.Regex("a+"), sg.JsonSchema({}), list[str]])
def test_stop_belongs_to_free_text(model: sg.Model, output_type: Any) -> None:
    """A grammar says itself where it ends."""
    with pytest.raises(sg.OptionError, match="leave stop out"):
        model.generate(output_type, "x", stop=["x"])


# --- what is certain of a JSON text -----------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def is_part_of(part: object, whole: object) -> bool:
    """Whether all that `part` says stays true of `whole`: strings may grow, containers may get more."""
    if isinstance(part, str):
        return isinstance(whole, str) and whole.startswith(part)
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(part) <= len(whole)
            and all(is_part_of(a, b) for a, b in zip(part, whole, strict=False))
        )
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_part_of(part[key], whole[key]) for key in part)
    return type(part) is type(whole) and part == whole


@given(value=json_values, indent=st.sampled_from([None, 2]), ascii_only=st.booleans())
def test_a_beginning_says_nothing_untrue(value: Any, indent: int | None, ascii_only: bool) -> None:
    """Of each beginning of a JSON text only what holds for the whole is told; no number is cut short."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for end in range(len(text)):
        part = json_so_far(text[:end])
        assert part is None or is_part_of(part, value)
    assert json_so_far(text + " ") == value


def test_fields_show_before_the_end() -> None:
    """What is complete is there, and a string while it grows."""
    assert json_so_far('{"name": "An') == {"name": "An"}
    assert json_so_far('{"name": "Anna 3", "age": 3') == {"name": "Anna 3"}
    assert json_so_far('{"name": "Anna 3') == {"name": "Anna 3"}
    assert json_so_far('["say \\"4') == ['say "4']
    assert json_so_far("12") is None


def test_deep_nesting_takes_nothing_back() -> None:
    """A text nested deeper than pydantic reads keeps what was shown of it; brackets in strings do not count."""
    text = '[ "[{", {"a": ' * 300
    values = [json_so_far(text[:end]) for end in range(2, len(text), 7)]
    assert all(is_part_of(before, after) for before, after in itertools.pairwise(values))
    assert values[-1] == json_so_far(text[:1400])
    assert json.dumps(values[-1]).count('"a"') > 90


# --- options and sums -------------------------------------------------------------------------------------------------


def test_help_shows_each_option() -> None:
    """`inspect.signature` names the options with their defaults, for Model and for Generator."""
    shown = inspect.signature(sg.Model.generate).parameters
    assert shown["stop"].default == ()
    assert shown["policy"].default == sg.Policy()
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in shown.values())
    assert "whitespace" not in inspect.signature(sg.Generator.run).parameters


def test_a_generator_explains_its_cuts(model: sg.Model) -> None:
    """What the policy takes away is told, and nothing is where it is off."""
    told = model.generator(Pet).explain()
    assert {finding.keyword for finding in told.findings} >= {"maxLength", "maximum"}
    assert told.policy == ()  # all of it is bounded
    assert [cut.maximum for cut in model.generator(int, policy=sg.Policy(max_digits=9)).explain().policy] == [9]
    assert model.generator(int, policy=None).explain().policy == ()


def test_metrics_sum_by_route() -> None:
    """A route counts its calls, streams that ended included; without one the output type's name is the route."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    assert model.metrics == {}
    reports = [model.run(Pet, "x", seed=seed, route="pets").report for seed in range(3)]
    reports.append(list(model.stream(Pet, "x", seed=9, route="pets"))[-1].result.report)  # type: ignore[union-attr]  # the last one has it
    model.generate(Literal["a"], "x")
    next(model.stream(str, "x", seed=1))
    pets = model.metrics["pets"]
    assert pets.num_requests == 4
    assert pets.num_tokens == sum(report.num_tokens for report in reports)
    assert pets.mask_s == pytest.approx(sum(report.mask_s for report in reports))
    assert pets.tokens_per_target_pass == pets.num_tokens / pets.num_target_passes
    assert len(model.metrics) == 2


def test_what_cannot_be_measured_does_not_spoil_a_sum() -> None:
    """One call whose legal mass is not a number is counted, and the sum stays that of the others."""
    report = sg.Model(tiny_llama(), byte_tokenizer()).run(Pet, "x", seed=1).report
    metrics = Metrics()
    for lost in (0.5, math.nan, 0.25):
        metrics.add("pets", dataclasses.replace(report, legal_mass_lost=lost))
    assert (metrics.snapshot()["pets"].legal_mass_lost, metrics.snapshot()["pets"].num_unmeasured) == (0.75, 1)


def test_one_model_in_eight_threads() -> None:
    """Eight threads with types, streams and batches of their own get what they would have got alone."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    jobs: list[tuple[Any, int]] = [(TYPES[name], seed) for name in TYPES for seed in range(3)]
    alone = [
        sg.Model(tiny_llama(), byte_tokenizer()).run(kind, "x", seed=seed, max_tokens=60).text
        for kind, seed in jobs[:6]
    ]
    texts: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait(30)
        for place in range(len(jobs)):
            kind, seed = jobs[(place + number) % len(jobs)]
            if number % 2:
                texts[number].append(list(model.stream(kind, "x", seed=seed, max_tokens=60))[-1].text)
            else:
                texts[number].append(model.run(kind, "x", seed=seed, max_tokens=60).text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    straight = [texts[number][-number:] + texts[number][:-number] if number else texts[number] for number in range(8)]
    assert all(row == straight[0] for row in straight)
    assert straight[0][:6] == alone
    assert sum(route.num_requests for route in model.metrics.values()) == 8 * len(jobs)


def test_same_seed_same_text_and_other_seed_other_text(model: sg.Model) -> None:
    """The seed says all: twice the same, and in general not the same for another."""
    pattern = sg.Regex(f"[{string.ascii_lowercase}]{{20}}")
    texts = [model.generate(pattern, "x", seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
