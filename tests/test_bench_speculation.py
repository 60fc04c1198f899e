"""`structgen bench speculation`: the arithmetic on known figures, and the command on a tiny model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import structgen as sg
from records import make_record
from structgen import bench_speculation as bench
from structgen.bench_speculation import Figures, Pass, StepTable
from structgen.cli import app
from structgen.cli_bench import read_prompts
from structgen.decode.acceptance_estimates import AcceptanceEstimates, Place
from tiny_tokenizer import byte_tokenizer, tiny_llama

SMOLLM2 = {1: 0.051, 2: 0.083, 4: 0.093, 8: 0.092, 16: 0.097}


@pytest.fixture(scope="module")
def report() -> sg.Report:
    """A real report, to be changed."""
    return sg.Model(tiny_llama(), byte_tokenizer()).run(bool, "x", seed=0).report


def figures(report: sg.Report, name: str, total_s: float, passes: list[Pass], **fields: Any) -> Figures:
    """Return the figures of one answer that took so long."""
    plain: dict[str, Any] = {"total_s": total_s, "ttft_s": 0.0, "mask_s": 0.0, "sample_s": 0.0, "draft_s": 0.0}
    return Figures(name, [dataclasses.replace(report, **plain | fields)], 0, passes)


def test_rounds_are_read_from_drafts_and_tokens() -> None:
    """A draft that is right, one that is wrong at its second token, none, and one past the end of the text."""
    record = make_record(token_ids=(1, 2, 3, 4, 5, 6, 7, 8), drafts=((), (2, 3), (5, 9, 7), (), (8, 5)))
    assert bench.passes_of(record) == [Pass(0, 0), Pass(2, 2), Pass(3, 1), Pass(0, 0), Pass(2, 1)]


def test_tokens_drawn_by_themselves_are_compared_too() -> None:
    """In a record they stand as -1 - id."""
    record = make_record(token_ids=(1, 2, 3, 4), drafts=((), (2, -4, -9)))
    assert bench.passes_of(record) == [Pass(0, 0), Pass(3, 2)]


def test_the_prediction_is_that_of_the_formula(report: sg.Report) -> None:
    """Rounds of one length: sg.speedup itself; half of them without a draft: tokens of both over costs of both."""
    steps = StepTable({1: SMOLLM2})
    # 8 of 10 that were compared: 4 drafted tokens each, two passes whole, two cut at the first.
    passes = [Pass(4, 4), Pass(4, 4), Pass(4, 0), Pass(4, 0)]
    plain = figures(report, "off", 1.0, [Pass(0, 0)] * 20)
    drafted = figures(report, "on", 1.0, passes, draft_s=16 * 0.0051)
    assert drafted.acceptance == pytest.approx(0.8)
    cost = steps.ratio(5)
    expected = sg.speedup(acceptance=0.8, draft_tokens=4, draft_cost=0.1, verify_cost=cost)
    assert bench.predicted(drafted, plain, steps) == pytest.approx(expected)
    mixed = figures(report, "on", 1.0, passes + [Pass(0, 0)] * 4, draft_s=16 * 0.0051)
    price = 0.4 + cost
    assert bench.predicted(mixed, plain, steps) == pytest.approx((expected * price + 1) / (price + 1))


def test_masks_and_draws_are_not_saved_by_drafts(report: sg.Report) -> None:
    """Half of the time in the sampler bounds the speed-up by two."""
    steps = StepTable({1: {1: 0.05, 16: 0.05}})
    plain = figures(report, "off", 1.0, [Pass(0, 0)] * 10, sample_s=10 * 0.05)
    drafted = figures(report, "on", 1.0, [Pass(9, 9)] * 3)
    assert 1.7 < bench.predicted(drafted, plain, steps) < 2.0


@pytest.mark.parametrize(
    ("adaptive", "fixed", "words"),
    [
        (0.6, 0.7, ["Leave speculation on", "0.60"]),
        (1.0, 1.0, ["makes no difference", "1.00"]),
        (1.2, 1.3, ["speculation=sg.Speculation.off()", "1.20"]),
        (0.6, 0.5, ["Leave speculation on", "fastest way here was 'fixed'"]),
    ],
)
def test_the_recommendation_follows_the_figures(
    report: sg.Report, adaptive: float, fixed: float, words: list[str]
) -> None:
    """On, off, or no matter; and whichever way was faster than both."""
    found = {
        "off": figures(report, "off", 1.0, []),
        "fixed": figures(report, "fixed", fixed, []),
        "adaptive": figures(report, "adaptive", adaptive, []),
    }
    advice = " ".join(bench.recommend(found, {}))
    assert all(word in advice for word in words), advice
    assert "other tokens" not in advice
    found["fixed"].num_other = 2
    assert "2 answers have other tokens" in " ".join(bench.recommend(found, {}))


def test_prompts_are_read_by_the_suffix(tmp_path: Path) -> None:
    """A line each, or JSON lines of every form; blank lines are left out."""
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert read_prompts(tmp_path / "a.txt") == ["one", "two"]
    chat = [{"role": "user", "content": "hi"}]
    lines = ['"one"', '{"prompt": "two"}', json.dumps(chat), json.dumps({"messages": chat})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read_prompts(tmp_path / "a.jsonl") == ["one", "two", chat, chat]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "", "has no prompt"),
        ("a.jsonl", "x", "line 1 is no JSON"),
        ("a.jsonl", '"x"\n{"text": 1}', "line 2 has no prompt"),
        ("a.jsonl", "5", "line 1 has no prompt"),
        ("b.txt", None, "cannot be read"),
    ],
)
def test_files_without_prompts_are_refused(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    """With the place, and what to write."""
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(sg.OptionError, match=words):
        read_prompts(tmp_path / name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with prompts and a schema, and a tiny model that every load gives."""
    (tmp_path / "prompts.txt").write_text("one\ntwo\n")
    (tmp_path / "legs.json").write_text(
        json.dumps(
            {
                "type": "object",
                "properties": {"legs": {"enum": [2, 4]}, "wings": {"type": "boolean"}},
                "required": ["legs", "wings"],
                "additionalProperties": False,
            }
        )
    )
    model = sg.Model(tiny_llama(), byte_tokenizer())
    monkeypatch.setattr(sg, "load", lambda _=None: model)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_prints_tables_and_advice(folder: Path) -> None:
    """Each way, each drafter, each batch, and what to do; nothing but the loading goes to stderr."""
    done = CliRunner().invoke(
        app,
        ["bench", "speculation", "--prompts", "prompts.txt", "--schema", "legs.json", "--max-tokens", "40"],
        env={"COLUMNS": "140"},
    )
    assert done.exit_code == 0, done.output
    for word in ("off", "fixed", "adaptive", "ForcedRun", "rows of a batch", "predicted"):
        assert word in done.stdout
    assert any(word in done.stdout for word in ("Leave speculation on", "no difference", "Speculation.off()"))
    assert done.stderr == "loading SmolLM2-135M-Instruct ...\n"


def test_the_command_as_json(folder: Path) -> None:
    """The same figures for other programs: those of plain decoding are 1, and drafts were accepted."""
    command = ["bench", "speculation", "--prompts", "prompts.txt", "--schema", "legs.json", "--json", "--repeats", "2"]
    done = CliRunner().invoke(app, [*command, "--batch-sizes", "1,3", "--max-tokens", "40", "--greedy"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    ways = {row["way"]: row for row in found["ways"]}
    assert list(ways) == ["off", "fixed", "adaptive"]
    assert ways["off"]["times_faster"] == ways["off"]["predicted"] == 1.0
    assert ways["fixed"]["tokens_per_pass"] > 1.2
    assert 0 < ways["fixed"]["acceptance"] <= 1
    assert found["drafters"]["fixed"]["ForcedRun"]["accepted"] > 0
    assert set(found["pass_seconds"]) == {"1", "3"}
    assert [row["rows"] for row in found["batches"]] == [1, 3]


def test_the_command_with_a_draft_model(folder: Path) -> None:
    """One way more, and what the model takes; a doubtful size is told on stderr."""
    command = ["bench", "speculation", "--prompts", "prompts.txt", "--schema", "legs.json", "--json", "--greedy"]
    done = CliRunner().invoke(app, [*command, "--draft-model", "x", "--batch-sizes", "1"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [row["way"] for row in found["ways"]] == ["off", "fixed", "adaptive", "draft model"]
    assert "more tokens" in found["draft_model"]
    assert "between 1/50 and 1/8 is usual" in done.stderr


@pytest.mark.parametrize(
    ("num_accepted", "num_trials", "told"),
    [
        (0, 0, "60% of its tokens are expected to be accepted, after 0 trials"),
        (0, 1, "48% of its tokens are expected to be accepted, after 1 trial,"),
        (0, 9, "19% of its tokens are expected to be accepted, after 9 trials"),
        (35, 35, "96% of its tokens are expected to be accepted, after 35 trials"),
        (36, 36, "96% of its tokens are accepted,"),
    ],
)
def test_what_was_hardly_measured_is_called_expected(num_accepted: int, num_trials: int, told: str) -> None:
    """As long as a tenth of a share or more comes from what was guessed beforehand."""
    estimates = AcceptanceEstimates()
    for number in range(num_trials):
        estimates.record(Place("PromptLookup"), accepted=number < num_accepted)
    status = sg.DrafterStatus(
        acceptance=estimates.mean("PromptLookup"),
        num_trials=estimates.num_trials("PromptLookup"),
        needed=0.4,
        read_share=1.0,
        draft_tokens=3.0,
        token_cost=0.0,
        has_drafted=True,
    )
    assert told in status.reason


@pytest.mark.parametrize("sizes", ["x", "0", "1,,2", "-1", "5000"])
def test_batch_sizes_that_are_none_are_refused(folder: Path, sizes: str) -> None:
    """In a line."""
    command = ["bench", "speculation", "--prompts", "prompts.txt", "--batch-sizes", sizes]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "--batch-sizes takes numbers such as 1,4,16" in done.stderr


def test_a_type_that_is_refused_is_told_before_the_model_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is ignored in it is told as well."""

    def load(_: object = None) -> sg.Model:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(sg, "load", load)
    (folder / "bad.json").write_text('{"type": "object", "maxPropertys": 2, "properties": {"a": {"minItems": -1}}}')
    done = CliRunner().invoke(app, ["bench", "speculation", "--prompts", "prompts.txt", "--schema", "bad.json"])
    assert done.exit_code == 1, done.exception
    assert "'minItems' must be" in done.stderr
    assert "'maxProperties' was probably meant" in done.stderr
