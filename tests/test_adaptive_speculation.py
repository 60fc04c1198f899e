"""Speculation control in real calls: the text never depends on it, what it decides is seen, a replay repeats it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import structgen as sg
from drafts import Guess
from structgen.bench_speculation import passes_of
from structgen.decode.control import FixedControl
from structgen.decode.request_control import RequestControl
from structgen.drafter import DraftMemory, DraftView
from structgen.replaying import _decoding
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Order(BaseModel):
    """A type with long forced runs."""

    customer: Literal["first", "second"]
    quantity: int
    delivered: bool


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """A tiny model with random weights, in float64."""
    return sg.Model(tiny_llama(max_position_embeddings=512), byte_tokenizer())


def wrong(view: DraftView) -> Iterable[int]:
    """Guess the highest legal tokens: legal, and as good as never right."""
    while True:
        legal = [token_id for token_id in range(256) if int(view.mask[token_id >> 5]) >> (token_id & 31) & 1]
        if not legal:
            return
        yield legal[-1]


OPTIONS: dict[str, Any] = {"whitespace": "spaced", "max_tokens": 120}


@pytest.mark.parametrize(
    "output_type", [Order, str, sg.Regex("(ab|ba){4,9}-[0-9]{6}")], ids=["object", "text", "pattern"]
)
def test_the_text_is_that_of_plain_decoding(model: sg.Model, output_type: Any) -> None:
    """Whatever was measured by then, a seed gives the same tokens as without drafts; some were accepted, some not."""
    drafted = accepted = 0
    ways = [
        sg.Speculation(),
        sg.Speculation(max_draft_tokens=3),
        sg.Speculation(adaptive=False),
        sg.Speculation(drafters=[sg.drafters.ForcedRun(), Guess(wrong)]),
    ]
    for seed in range(6):
        options = OPTIONS | {"seed": seed, "max_tokens": 60, "sampling": sg.Sampling(temperature=0.05)}
        plain = model.run(output_type, "x", speculation=sg.Speculation.off(), **options)
        for way in ways:
            result = model.run(output_type, "x", speculation=way, **options)
            assert result.token_ids == plain.token_ids, (seed, way)
            drafted += sum(result.report.drafted.values())
            accepted += sum(result.report.accepted.values())
    assert 0 < accepted < drafted


def test_what_was_decided_is_in_the_metrics(model: sg.Model) -> None:
    """Each drafter of a route with figures and a reason that fit what was decided; a forced run is on."""
    drafters = [sg.drafters.ForcedRun(), Guess(wrong)]
    for seed in range(6):
        model.run(Order, "x", route="seen", seed=seed, speculation=sg.Speculation(drafters=drafters), **OPTIONS)
    sums = model.metrics["seen"]
    assert sums.drafters.keys() == {"ForcedRun", "Guess"}
    assert sums.drafters["ForcedRun"].is_on, sums.drafters
    # What a guess needs hangs on how long passes took on this machine; that a bad one is left is shown by simulation.
    for status in sums.drafters.values():
        assert status.is_on == status.reason.startswith("on: "), status
        assert 0 < status.acceptance < 1, status
        assert status.needed > 0, status
    assert sums.drafted["ForcedRun"] > sums.drafted["Guess"]
    assert 0 < sums.mean_tpot_s < sums.seconds_per_request
    assert sums.mean_ttft_s + sums.mean_tpot_s * (sums.num_tokens / sums.num_requests - 1) == pytest.approx(
        sums.seconds_per_request
    )
    assert sums.draft_s < sums.total_s


def test_routes_and_ways_are_told_apart(model: sg.Model) -> None:
    """Plain decoding decides nothing; a route that nobody used is not there."""
    model.run(Order, "x", route="plain", seed=1, speculation=sg.Speculation.off(), **OPTIONS)
    assert model.metrics["plain"].drafters == {}
    model.run(Order, "x", route="usual", seed=1, **OPTIONS)
    assert list(model.metrics["usual"].drafters) == ["ForcedRun", "StateTable", "PromptLookup"]
    assert "unused" not in model.metrics


@pytest.mark.parametrize(
    ("speculation", "deterministic", "kind"),
    [
        (sg.Speculation(), False, RequestControl),
        (sg.Speculation(), True, FixedControl),
        (sg.Speculation(adaptive=False), False, FixedControl),
        (sg.Speculation.off(), False, FixedControl),
    ],
)
def test_what_is_asked_to_be_fixed_does_not_adapt(
    model: sg.Model, speculation: sg.Speculation, deterministic: bool, kind: type
) -> None:
    """`adaptive=False` and `deterministic=True` leave nothing to what was measured."""
    setup = model._runtime.route_controls.setup(
        speculation, route="any", memory=DraftMemory(), deterministic=deterministic
    )
    assert type(setup.control) is kind


def test_a_replay_makes_the_passes_of_the_run(model: sg.Model) -> None:
    """The drafts are in the record, read by as many passes; without drafters, whatever the control knows by then."""
    found = 0
    for seed in range(4):
        result = model.run(Order, "x", seed=seed, **OPTIONS)
        record = sg.ReplayRecord.from_json(result.report.record.to_json())
        again = _decoding(record, model._runtime, None)
        again.run()
        assert tuple(again.token_ids) == result.token_ids
        assert again.trace.num_target_passes == result.report.num_target_passes < result.report.num_tokens
        assert tuple(again.trace.drafts) == record.drafts
        found += sum(map(len, record.drafts))
    assert found > 20


def test_the_passes_of_a_record_are_those_of_the_report(model: sg.Model) -> None:
    """What the drafts of a record were accepted of, told from its tokens, is what the engine counted."""
    for seed in range(6):
        report = model.run(Order, "x", seed=seed, speculation=sg.Speculation(adaptive=False), **OPTIONS).report
        passes = passes_of(report.record)
        assert len(passes) == report.num_target_passes
        assert sum(one.num_drafted for one in passes) == sum(report.drafted.values()) > 0
        assert sum(one.num_accepted for one in passes) == sum(report.accepted.values())
