"""Device mode from the public names: who gets it, what the report says, and that nothing else changes.

There is no GPU here: the pool of the model is told to choose device mode on the CPU too.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import structgen as sg
from structgen.decode import device_pool
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_pool import DevicePool
from structgen.errors import BudgetError
from tiny_tokenizer import byte_tokenizer, tiny_llama

SCHEMA = sg.JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "kind": {"enum": ["true", "false"]}},
        "required": ["name", "kind"],
        "additionalProperties": False,
    },
    whitespace="compact",
)


def on_a_device() -> sg.Model:
    """Return a tiny model on the CPU, whose pool is told that device mode is for the CPU too."""
    made = sg.Model(tiny_llama(), byte_tokenizer())
    runtime = made._runtime
    runtime.device_pool = DevicePool(runtime._causal_model, runtime.vocabulary, device_types=("cpu",))
    return made


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """The model of most tests."""
    return on_a_device()


@pytest.fixture(scope="module")
def frozen(model: sg.Model) -> sg.Generator[Any]:
    """A generator whose automaton is frozen."""
    made = model.generator(SCHEMA)
    made.automaton.freeze()
    return made


def plain(seed: int, **options: Any) -> sg.Result[Any]:
    """Run in host mode, with a model of its own, every step measured as device mode measures it."""
    return sg.Model(tiny_llama(), byte_tokenizer()).run(SCHEMA, sg.Raw("hello"), seed=seed, diagnostics=True, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling": sg.Sampling.greedy()},
        {"sampling": sg.Sampling(top_k=3, repetition_penalty=1.2)},
        {"speculation": sg.Speculation.off()},
        {"max_tokens": 24},
    ],
    ids=str,
)
def test_the_result_is_that_of_host_mode(frozen: sg.Generator[Any], options: dict[str, Any]) -> None:
    """Value, text, tokens and counts are the same; the report says who made the text, and why steps are no graphs."""
    for seed in (1, 2**64 - 1):
        found, wanted = frozen.run(sg.Raw("hello"), seed=seed, **options), plain(seed, **options)
        assert (found.value, found.text, found.token_ids) == (wanted.value, wanted.text, wanted.token_ids)
        report = found.report
        assert (report.mode, report.host_mode_because) == ("device", None)
        assert report.eager_because == "there are no CUDA graphs on a device of type cpu"
        assert report.num_measured_steps == wanted.report.num_measured_steps
        assert report.truncated == wanted.report.truncated
        assert report.record.backend.endswith(", device mode")


def test_forced_runs_are_drafted_where_speculation_is_on(frozen: sg.Generator[Any]) -> None:
    """The report counts them; without speculation each token has a pass."""
    drafted = frozen.run(sg.Raw("hello"), seed=3).report
    alone = frozen.run(sg.Raw("hello"), seed=3, speculation=sg.Speculation.off()).report
    assert drafted.forced_tokens > 3
    assert drafted.num_target_passes < alone.num_target_passes
    assert alone.drafted == {}


def test_drafts_are_no_longer_than_was_asked(frozen: sg.Generator[Any]) -> None:
    """With short drafts there are more passes than with long ones, and fewer than with none; the text is the same."""
    runs = [
        frozen.run(sg.Raw("hello"), seed=3, speculation=sg.Speculation(max_draft_tokens=n)) for n in (0, 1, 2, 4, 8)
    ]
    assert len({run.text for run in runs}) == 1
    passes = [run.report.num_target_passes for run in runs]
    assert passes[0] > passes[1] > passes[2] > passes[3] == passes[4]
    assert [run.report.drafted == {} for run in runs] == [True, False, False, False, False]


def test_a_stream_gives_the_text_as_it_comes(frozen: sg.Generator[Any]) -> None:
    """The parts are the text, and the last one has the result."""
    parts = list(frozen.stream(sg.Raw("hello"), seed=1))
    assert "".join(part.new_text for part in parts) == plain(1).text
    assert parts[-1].result is not None
    assert parts[-1].result.report.mode == "device"
    assert len(parts) > 3


TREE = sg.Lark('start: NAME ("(" start ("," start)* ")")?\nNAME: /[a-z]{1,3}/')


@pytest.fixture(scope="module")
def nested(model: sg.Model) -> sg.Generator[Any]:
    """A generator whose states have no end, with a small part of them frozen."""
    made = model.generator(TREE)
    with pytest.raises(sg.LimitError):
        made.automaton.freeze()
    made.automaton.freeze_part(num_states=8)
    return made


def test_a_part_is_followed_and_grows(model: sg.Model, nested: sg.Generator[Any]) -> None:
    """Where states have no end: the report says how often the device waited; batches and streams are as without."""
    host = sg.Model(tiny_llama(), byte_tokenizer())
    wanted = {
        seed: host.run(TREE, sg.Raw("hello"), seed=seed, max_tokens=40, diagnostics=True) for seed in (1, 2, 3, 4)
    }
    first = nested.run(sg.Raw("hello"), seed=1, max_tokens=40)
    assert first.text == wanted[1].text
    report = first.report
    assert (report.mode, report.host_mode_because) == ("device", None)
    assert report.num_device_steps == report.num_steps == wanted[1].report.num_steps
    assert (wanted[1].report.num_device_steps, wanted[1].report.num_device_waits) == (0, 0)
    assert 0 < report.mask_wait_s == report.mask_s
    again = nested.run(sg.Raw("hello"), seed=1, max_tokens=40)
    assert again.text == first.text
    assert again.report.num_device_waits == 0
    parts = list(nested.stream(sg.Raw("hello"), seed=2, max_tokens=40))
    assert "".join(part.new_text for part in parts) == wanted[2].text
    rows = model.run_batch([(TREE, sg.Raw("hello"))] * 3, seed=1, max_tokens=40)
    assert all(row.report.mode == "device" for row in rows)
    assert rows[0].text == first.text


def test_who_leaves_a_stream_early_disturbs_nobody(frozen: sg.Generator[Any]) -> None:
    """The next call is as ever."""
    next(iter(frozen.stream(sg.Raw("hello"), seed=1)))
    assert frozen.run(sg.Raw("hello"), seed=2).text == plain(2).text


def test_a_stop_string_ends_free_text(model: sg.Model) -> None:
    """What the device wrote after it is not in the text."""
    free = model.generator(str)
    free.automaton.freeze()
    whole = free.run(sg.Raw("hello"), seed=5, max_tokens=30)
    stop = whole.text[4:6]
    found = free.run(sg.Raw("hello"), seed=5, max_tokens=30, stop=[stop])
    assert whole.report.mode == found.report.mode == "device"
    assert found.text == whole.text[: whole.text.index(stop)]
    assert found.report.stopped_by == stop


def test_tables_do_not_grow_for_ever(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room the tables begin anew; a text on its way keeps its own, and no session is mixed up."""
    types = [sg.Regex("[ab]{3,9}"), sg.Regex("[cd]{2,8}-[0-9]"), bool]
    host = sg.Model(tiny_llama(), byte_tokenizer())
    generators = [model.generator(one) for one in types]
    for one in generators:
        one.automaton.freeze()
    monkeypatch.setattr(device_pool, "_MOST_TABLE_BYTES", 1)
    pool = model._runtime.device_pool
    pool._tables = None

    def check(number: int, seed: int, parts: list[sg.Partial[Any]]) -> None:
        assert "1 machines" in str(pool._tables)
        wanted = host.run(types[number], sg.Raw("hello"), seed=seed).text
        assert "".join(part.new_text for part in parts) == wanted
        assert parts[-1].result is not None
        assert parts[-1].result.report.mode == "device"

    for number in (1, 0, 1, 2, 2):
        check(number, number, list(generators[number].stream(sg.Raw("hello"), seed=number)))
    slow, other = (generators[number].stream(sg.Raw("hello"), seed=9) for number in (1, 0))
    first, second = next(slow), next(other)
    check(1, 9, [first, *slow])  # its session comes back, and is not for machines of the tables that came after
    check(0, 3, list(generators[0].stream(sg.Raw("hello"), seed=3)))
    check(0, 9, [second, *other])


def test_a_budget_that_is_too_small_is_refused(frozen: sg.Generator[Any]) -> None:
    """With the number that is enough, as on the host."""
    with pytest.raises(BudgetError):
        frozen.run(sg.Raw("hello"), max_tokens=3)


def test_an_unfit_bias_fails_its_own_call(frozen: sg.Generator[Any]) -> None:
    """The error says where the grammar stood; the next call is as ever."""
    bias = {token_id: -float("inf") for token_id in range(264)}
    with pytest.raises(sg.NoLegalTokenError, match="logit_bias"):
        frozen.run(sg.Raw("hello"), sampling=sg.Sampling(logit_bias=bias))
    assert frozen.run(sg.Raw("hello"), seed=2).text == plain(2).text


def test_replay_says_that_the_device_made_it(model: sg.Model, frozen: sg.Generator[Any]) -> None:
    """The host runs the record again: the same tokens, and a warning that it is another way to them."""
    record = frozen.run(sg.Raw("hello"), seed=4).report.record
    with pytest.warns(UserWarning, match="device mode"):
        again = sg.replay(record, model=model)
    assert again.is_same


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({"deterministic": True}, "a width of their own"),
        ({"speculation": sg.Speculation(drafters=[sg.drafters.PromptLookup()])}, "PromptLookup"),
        ({"speculation": sg.Speculation(branches=2)}, "branches"),
    ],
)
def test_what_device_mode_cannot_do_runs_on_the_host(
    frozen: sg.Generator[Any], options: dict[str, Any], because: str
) -> None:
    """And the report says why."""
    report = frozen.run(sg.Raw("hello"), seed=1, **options).report
    assert report.mode == "host"
    assert because in str(report.host_mode_because)
    assert report.eager_because is None


def test_the_report_says_what_is_missing(model: sg.Model) -> None:
    """An automaton that is not frozen, and a model that is not on CUDA."""
    report = model.run(sg.Regex("[ab]{3}"), sg.Raw("hello")).report
    assert "freeze()" in str(report.host_mode_because)
    assert "needs cuda" in str(plain(1).report.host_mode_because)


def test_a_model_on_several_devices_draws_on_the_host() -> None:
    """Its passes move from one to the next, so nothing of ours is beside all of it."""
    whole = tiny_llama()
    whole.model.layers[0].mlp.to("meta")
    spread = CausalModel(whole, device_types=("cpu",))
    assert spread.device_side is None
    assert spread.head.gathered is None
    pool = DevicePool(spread, sg.Vocabulary.from_tokenizer(byte_tokenizer()), device_types=("cpu",))
    assert "several devices" in str(pool.host_mode_because(None, sg.Speculation(), deterministic=False))


def test_a_caller_may_be_in_inference_mode() -> None:
    """A session that was made in it is taken by a call that is not: its tensors can be changed there, too."""
    generator = on_a_device().generator(SCHEMA)
    generator.automaton.freeze()
    with torch.inference_mode():
        first = generator.run(sg.Raw("hello"), seed=7)
    again = generator.run(sg.Raw("hello"), seed=7)
    assert (first.report.mode, again.report.mode) == ("device", "device")
    assert first.text == again.text
