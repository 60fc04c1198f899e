"""Batches: rows share passes, join and leave; each gets the text that it gets alone, and fails alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
import torch
from pydantic import BaseModel

import structgen as sg
from drafts import Guess
from random_types import random_type
from structgen.decode.sampler import Draw, Sampler, Step
from structgen.decode.target import Target, Tokens
from structgen.decode.transformers_target import TransformersBatch
from test_adaptive_speculation import wrong
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Order(BaseModel):
    customer: Literal["first", "second"]
    quantity: int
    delivered: bool


TYPES: list[Any] = [
    Order,
    str,
    sg.Regex("(ab|ba){4,9}-[0-9]{6}"),
    sg.Choice(["one", "two", "three", "one and a half"], exact=True),
    bool,
    list[Order],
    sg.JsonSchema({"type": "object", "additionalProperties": {"type": "integer"}}),
    *(random_type(seed) for seed in (1, 4, 9)),
]
PROMPTS = ["x", "a longer prompt than the others, by far: " + "la " * 30, "y", "what?", "tell me of " + "it " * 9, "z"]
WAYS = {
    "off": sg.Speculation.off(),
    "as it comes": sg.Speculation(),
    "in every round": sg.Speculation(adaptive=False, max_draft_tokens=5),
    "wrong": sg.Speculation(drafters=[sg.drafters.StateTable(), Guess(wrong)], adaptive=False),
}


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """A tiny model with random weights, in float64."""
    return sg.Model(tiny_llama(), byte_tokenizer())


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[tuple[int, int]]]]:
    """Of each pass, for each of its rows: tokens that it had before, and tokens that it reads."""
    found: list[list[tuple[int, int]]] = []
    extend = TransformersBatch.extend

    def told(self: TransformersBatch, parts: Sequence[tuple[Target, Tokens]]) -> list[torch.Tensor]:
        found.append([(row.num_cached_tokens, len(tokens.token_ids)) for row, tokens in parts])
        return extend(self, parts)

    monkeypatch.setattr(TransformersBatch, "extend", told)
    return found


def alone(model: sg.Model, requests: Sequence[tuple[Any, str]], options: dict[str, Any]) -> list[Any]:
    """Return what each row gives by itself, or the error."""
    found: list[Any] = []
    for output_type, prompt in requests:
        try:
            found.append(model.run(output_type, prompt, **options))
        except sg.StructgenError as error:
            found.append(error)
    return found


def together(model: sg.Model, requests: Sequence[tuple[Any, str]], options: dict[str, Any], max_rows: int) -> list[Any]:
    """Return what a batch of them gives."""
    try:
        return list(model.run_batch(requests, max_rows=max_rows, **options))
    except sg.BatchError as error:
        return list(error.results)


def seen(result: Any) -> Any:
    """Return everything of a result that company must not change."""
    if isinstance(result, sg.StructgenError):
        return type(result), str(result)
    report = result.report
    return (
        result.text,
        result.token_ids,
        report.truncated,
        report.num_tokens,
        report.num_measured_steps,
        report.law,
        round(report.legal_mass_lost, 6),
        report.record.seed,
        report.record.prompt_token_ids,
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("max_rows", [2, 4])
def test_a_row_gets_what_it_gets_alone(model: sg.Model, way: str, max_rows: int) -> None:
    """Types, prompts and seeds mixed, some with too small a budget: the same tokens, figures and errors."""
    drafted = accepted = 0
    for seed in range(3):
        requests = [(TYPES[(seed + 3 * n) % len(TYPES)], PROMPTS[(n * n + seed) % len(PROMPTS)]) for n in range(9)]
        options: dict[str, Any] = {
            "seed": seed,
            "max_tokens": 60,
            "speculation": WAYS[way],
            "sampling": sg.Sampling(temperature=0.05 if seed else 1.0),
        }
        expected = alone(model, requests, options)
        found = together(model, requests, options, max_rows)
        assert [seen(one) for one in found] == [seen(one) for one in expected]
        for one in found:
            if isinstance(one, sg.Result):
                drafted += sum(one.report.drafted.values())
                accepted += sum(one.report.accepted.values())
    assert (drafted == 0) if way == "off" else (0 < accepted < drafted)


def test_rows_join_where_others_leave(model: sg.Model, passes: list[list[tuple[int, int]]]) -> None:
    """More rows than the limit: never more in a pass, as many as that mostly, in fewer passes than alone."""
    requests = [(sg.Regex(f"a{{{3 * n + 2}}}b"), "x" * (n + 1)) for n in range(8)]
    options: dict[str, Any] = {"seed": 3, "speculation": sg.Speculation.off(), "max_tokens": 40}
    expected = alone(model, requests, options)
    num_alone = len(passes)
    passes.clear()
    found = together(model, requests, options, 3)
    assert [seen(one) for one in found] == [seen(one) for one in expected]
    assert max(map(len, passes)) == 3
    assert len(passes) < 0.6 * num_alone
    # Somebody read single tokens beside a row that is elsewhere in its text, and joined after it.
    assert any(len({before for before, _ in rows}) == 3 and all(count == 1 for _, count in rows) for rows in passes)
    joined = [number for number, rows in enumerate(passes) if any(before == 0 for before, _ in rows)]
    assert joined[-1] > 5


def test_prompts_are_no_padding_of_other_rows(model: sg.Model, passes: list[list[tuple[int, int]]]) -> None:
    """Single tokens are not read as wide as a prompt that joins, and a short prompt not as wide as a long one."""
    requests = [(sg.Regex("[ab]{4,30}"), text) for text in ("x" * 200, "y" * 190, "z", "z", "w", "v" * 120)]
    model.run_batch(requests, seed=1, max_rows=3, max_tokens=40)
    for rows in passes:
        widths = [count for _, count in rows]
        assert len(widths) * max(widths) - sum(widths) <= 24 * len(widths)
    assert any(len(rows) > 1 and min(count for _, count in rows) > 100 for rows in passes)


def test_a_row_that_fails_on_its_way_fails_alone(model: sg.Model) -> None:
    """A ban that one row meets in the middle of its text, a budget that is too small, a prompt that is none."""
    banned = byte_tokenizer()("c", add_special_tokens=False)["input_ids"][0]
    options: dict[str, Any] = {
        "seed": 1,
        "max_tokens": 12,
        "sampling": sg.Sampling(logit_bias={banned: float("-inf")}),
    }
    requests: list[Any] = [
        (sg.Regex("[ab]{5,12}"), "x"),
        (sg.Regex("[ab]{6}c"), "x"),
        (sg.Regex("d{20}"), "x"),
        (sg.Regex("[de]{7,12}"), "y"),
        (bool, 5),
        (sg.Regex("[de]{2,12}"), "z"),
    ]
    with pytest.raises(sg.BatchError, match="3 of 6 rows failed, first row 1: NoLegalTokenError") as caught:
        model.run_batch(requests, max_rows=4, **options)
    results = caught.value.results
    kinds = [type(one) for one in results]
    assert kinds == [sg.Result, sg.NoLegalTokenError, sg.BudgetError, sg.Result, sg.OptionError, sg.Result]
    for number in (0, 3, 5):
        assert seen(results[number]) == seen(model.run(*requests[number], **options))


def test_an_error_that_is_not_ours_ends_a_batch(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no row can help, such as a key that the user pressed, is not collected; the model is as before."""
    draw, count = Sampler.draw, iter(range(1000))

    def interrupt(self: Sampler, logits: torch.Tensor, step: Step) -> Draw:
        if next(count) == 5:
            raise KeyboardInterrupt
        return draw(self, logits, step)

    expected = model.generate_batch(Order, ["x", "y"], seed=2)
    with monkeypatch.context() as patched:
        patched.setattr(Sampler, "draw", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.generate_batch(Order, ["x", "y"], seed=2)
    assert model.generate_batch(Order, ["x", "y"], seed=2) == expected


def test_seconds_of_passes_are_divided(model: sg.Model) -> None:
    """What the reports say of passes adds up to no more than the batch took; each row waits for the others."""
    requests = [(sg.Regex("[ab]{30}"), f"prompt {n}") for n in range(4)]
    clock = time.perf_counter()
    results = model.run_batch(requests, seed=1, max_rows=4, speculation=sg.Speculation.off(), route="divided")
    wall = time.perf_counter() - clock
    reports = [result.report for result in results]
    passes = [report.prefill_s + report.verify_s for report in reports]
    assert sum(passes) < wall < sum(report.total_s for report in reports)
    for report in reports:
        assert 0 < report.ttft_s < report.total_s <= wall
        assert report.prefill_s > 0 < report.verify_s
    assert model.metrics["divided"].verify_s == pytest.approx(sum(report.verify_s for report in reports))


def test_what_was_decided_names_the_rows(model: sg.Model) -> None:
    """The metrics of a route say in passes of how many rows drafts were decided on lately."""
    options: dict[str, Any] = {"seed": 1, "route": "rows", "max_tokens": 60, "whitespace": "spaced"}
    model.run_batch([(Order, "x")] * 3, max_rows=3, **options)
    told = {name: status.num_rows for name, status in model.metrics["rows"].drafters.items()}
    assert told == {"ForcedRun": 3, "StateTable": 3, "PromptLookup": 3}
    model.run(Order, "x", **options | {"route": "alone"})
    assert model.metrics["alone"].drafters["ForcedRun"].num_rows == 1


def test_a_seed_of_its_own_for_every_row(model: sg.Model) -> None:
    """Without a seed each row draws one, which its record has."""
    results = model.run_batch([(str, "x")] * 4, max_tokens=8)
    assert len({result.report.record.seed for result in results}) == 4
    for result in results:
        assert model.run(str, "x", max_tokens=8, seed=result.report.record.seed).token_ids == result.token_ids


def test_deterministic_rows_are_read_alone(passes: list[list[tuple[int, int]]]) -> None:
    """In float32: passes of one row and one width, so that company cannot move a bit; the texts are those alone."""
    model = sg.Model(tiny_llama().float(), byte_tokenizer())
    requests = [(Order, "x"), (str, "tell me"), (Order, "y" * 50), (TYPES[3], "z")]
    options: dict[str, Any] = {"seed": 4, "max_tokens": 60, "deterministic": True}
    found = together(model, requests, options, 4)
    assert {len(rows) for rows in passes} == {1}
    assert [seen(one) for one in found] == [seen(one) for one in alone(model, requests, options)]


def test_a_model_without_masks_of_ours_reads_rows_in_turn(
    model: sg.Model,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    passes: list[list[tuple[int, int]]],
) -> None:
    """Such a model takes batches all the same, a row at a time, and the log says why."""
    caplog.set_level("INFO", logger="structgen")
    expected = model.generate_batch(Order, ["x", "y", "z"], seed=2)
    assert max(map(len, passes)) == 3
    assert not caplog.records
    passes.clear()
    monkeypatch.setattr(model._runtime._causal_model, "no_masks_because", "it is a test")
    assert model.generate_batch(Order, ["x", "y", "z"], seed=2) == expected
    assert {len(rows) for rows in passes} == {1}
    assert "one after the other: it is a test" in caplog.text


@pytest.mark.parametrize("max_rows", [0, -1, True, "4", 2.0])
def test_a_limit_that_is_none_is_refused(model: sg.Model, max_rows: Any) -> None:
    """Before anything runs."""
    with pytest.raises(sg.OptionError, match="max_rows must be"):
        model.generate_batch(bool, ["x"], max_rows=max_rows)
    with pytest.raises(sg.OptionError, match="max_rows must be"):
        model.run_batch([(bool, "x")], max_rows=max_rows)


def test_a_misspelt_limit_is_told_by_its_name(model: sg.Model) -> None:
    """Of a batch; where there is no batch, the message says where the option belongs."""
    for name in ("maxrows", "max_row"):
        with pytest.raises(sg.OptionError, match=f"'{name}': did you mean max_rows="):
            model.generate_batch(bool, ["x"], **{name: 2})  # type: ignore[call-overload]
        with pytest.raises(sg.OptionError, match=f"'{name}': did you mean max_rows="):
            model.run_batch([(bool, "x")], **{name: 2})  # type: ignore[arg-type]
    with pytest.raises(sg.OptionError, match="'batch_size': write max_rows="):
        model.generate_batch(bool, ["x"], batch_size=2)  # type: ignore[call-overload]
    with pytest.raises(sg.OptionError, match=r"'max_rows': only a batch has rows: call model\.generate_batch"):
        model.generate(bool, "x", max_rows=2)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("request_", "given"), [((bool, "x", "y"), "tuple of 3"), ("ab", "str"), (bool, "type"), ([], "list of 0")]
)
def test_what_is_no_pair_is_told_by_its_row(model: sg.Model, request_: Any, given: str) -> None:
    """Before anything runs."""
    with pytest.raises(sg.OptionError, match=rf"pairs \(output type, prompt\), and row 1 is a {given}$"):
        model.run_batch([(bool, "x"), request_])


def test_stop_strings_are_refused_before_anything_runs(model: sg.Model, passes: list[list[tuple[int, int]]]) -> None:
    """Which types take them is known at the start, so no row has to fail for it after the others have run."""
    with pytest.raises(sg.OptionError, match=r"^row 2: stop ends free text \(str\), and bool says itself"):
        model.run_batch([(str, "x"), (str, "y"), (bool, "z")], stop=["."], max_tokens=8)
    with pytest.raises(sg.OptionError, match=r"^stop ends free text \(str\), and bool says itself"):
        model.generate_batch(bool, ["x", "y"], stop=["."])
    assert not passes
    assert len(model.run_batch([(str, "x"), (str, "y")], stop=["."], max_tokens=8)) == 2


def test_an_option_of_a_batch_is_no_fault_of_a_row(model: sg.Model) -> None:
    """So it is told without one, also where there are no rows."""
    for requests in ([], [(bool, "x")]):
        with pytest.raises(sg.OptionError, match=r"^the call has no option 'sede'"):
            model.run_batch(requests, sede=1)  # type: ignore[arg-type]


def test_an_empty_batch(model: sg.Model) -> None:
    """No rows are no results."""
    assert model.generate_batch(bool, []) == []
    assert model.run_batch([]) == []
