"""GeneratorPool: what counts as the same type, who waits for whom; and rows of a batch that fail before they start."""

from __future__ import annotations

import dataclasses
import enum
import threading
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel

import structgen as sg
from structgen import generator_pool as generators
from structgen.generator_pool import identity
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Q(BaseModel):
    yes: bool


class R(BaseModel):
    yes: bool


class Number(enum.IntEnum):
    ONE = 1


class Other(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass(frozen=True)
class Item:
    value: object

    def __str__(self) -> str:
        return "item"


WRITTEN_TWICE: dict[str, Callable[[], object]] = {
    "list": lambda: list[Q],
    "nested": lambda: dict[str, tuple[list[Q], ...]],
    "optional": lambda: Q | None,
    "union": lambda: int | bool,
    "literal": lambda: Literal["a", 1, None],
    "annotated": lambda: Annotated[Q, "note"],
    "regex": lambda: sg.Regex("a+b"),
    "choice": lambda: sg.Choice(["a", 2, 0.5, Number.ONE]),
    "schema": lambda: sg.JsonSchema({"type": "object", "properties": {"a": {}}}),
    "lark": lambda: sg.Lark('start: "a"'),
    "class": lambda: Q,
}
DIFFERENT: list[tuple[object, object]] = [
    (sg.Choice([1]), sg.Choice([True])),
    (sg.Choice([1]), sg.Choice([1.0])),
    (sg.Choice([1]), sg.Choice(["1"])),
    (sg.Choice([0.0]), sg.Choice([-0.0])),
    (sg.Choice([Number.ONE]), sg.Choice([Other.ONE])),
    (sg.Choice([Number.ONE]), sg.Choice([1])),
    (sg.Choice([Item((1,))]), sg.Choice([Item((True,))])),
    (sg.Choice([Item(1)]), sg.Choice([Item(True)])),
    (sg.Choice(["a", "b"]), sg.Choice(["b", "a"])),
    (sg.Choice(["a"]), sg.Regex("a")),
    (Literal[1], Literal[True]),
    (list[Literal[1]], list[Literal[True]]),
    (int | bool, bool | int),
    (list[Q], list[R]),
    (list[Q], set[Q]),
    (list[Q], Optional[Q]),  # noqa: UP045 - as people write it
    (Q, R),
    (sg.JsonSchema({"a": 1} | {"x-b": 1}), sg.JsonSchema({"x-b": 1} | {"a": 1})),
    (sg.JsonSchema({}), sg.JsonSchema({}, whitespace="any")),
    (sg.Lark('start: "a"'), sg.Lark('start: "a"', parse=True)),
]


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """A tiny model, wrapped."""
    return sg.Model(tiny_llama(), byte_tokenizer())


@pytest.mark.parametrize("name", WRITTEN_TWICE)
def test_a_type_that_is_written_again_is_the_same(name: str) -> None:
    """A call with an inline type finds the generator of the call before, although the object is a new one."""
    write = WRITTEN_TWICE[name]
    assert identity(write()) == identity(write())
    assert hash(identity(write())) == hash(identity(write()))


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=str)
def test_types_that_mean_something_else_are_told_apart(one: object, other: object) -> None:
    """Equality in Python is not enough: 1 == True, and unions are equal in any order."""
    assert identity(one) != identity(other)


def test_inline_types_are_lowered_once(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred calls with inline types leave the generators of all of them, and of others, where they are."""
    first = model.generator(Q)
    made = [model.generator(write()) for write in WRITTEN_TWICE.values()]
    for _ in range(100):
        again = [model.generator(write()) for write in WRITTEN_TWICE.values()]
    assert [id(generator) for generator in again] == [id(generator) for generator in made]
    assert model.generator(Q) is first
    assert model.generator(Q, property_order="any") is not first


def test_items_of_a_choice_are_given_back_as_they_are(model: sg.Model) -> None:
    """Two inline choices between objects that look alike each give their own object."""
    items = [Item(1), Item(True)]
    for _ in range(3):
        assert [model.generate(sg.Choice([item]), "x") is item for item in items] == [True, True]


class _Slow:
    """Holds up the lowering of one type until it is let go, and counts lowerings."""

    def __init__(self, real: Callable[..., Any], slow_type: object) -> None:
        self.real = real
        self.slow_type = slow_type
        self.entered, self.may_go = threading.Event(), threading.Event()
        self.calls: list[object] = []

    def __call__(self, output_type: object, **options: Any) -> Any:
        self.calls.append(output_type)
        if output_type is self.slow_type:
            self.entered.set()
            assert self.may_go.wait(20)
        return self.real(output_type, **options)


def test_a_slow_type_holds_up_no_other(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one type is compiled, known ones are found, new ones are compiled, and only its own callers wait."""
    import structgen.output_type as output_types

    fresh = sg.Model(model.hf_model, model.hf_tokenizer)
    known = fresh.generator(bool)
    slow = _Slow(output_types.lower, Q)
    monkeypatch.setattr(output_types, "lower", slow)
    made: list[object] = []
    waiting = [threading.Thread(target=lambda: made.append(fresh.generator(Q))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    assert slow.entered.wait(20)
    assert fresh.generator(bool) is known
    assert fresh.generate(Literal["a"], "x") == "a"
    assert made == []
    slow.may_go.set()
    for thread in waiting:
        thread.join(20)
    assert len(made) == 3
    assert len({id(generator) for generator in made}) == 1
    assert slow.calls.count(Q) == 1


def test_a_compilation_belongs_to_one_call(model: sg.Model) -> None:
    """However many threads call a new generator at once, one report tells of the compilation."""
    never_compiled = sg.Regex(uuid.uuid4().hex + "[ab]{3}")
    generator = model.generator(never_compiled)
    told: list[str] = []
    start = threading.Barrier(8)

    def call(seed: int) -> None:
        start.wait(20)
        told.append(generator.run("x", seed=seed).report.compile_cache)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(told) == ["hit"] * 7 + ["miss"]
    assert model.run(never_compiled, "x", seed=1).report.compile_cache == "hit"


def test_a_failure_is_not_kept(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that failed to compile is tried again, and leaves nothing behind."""
    fresh = sg.Model(model.hf_model, model.hf_tokenizer)
    for _ in range(2):
        with pytest.raises(sg.UnsupportedTypeError):
            fresh.generator(complex)
    assert fresh._generators._gates == {}
    assert not fresh._generators._kept


def test_the_least_recently_used_goes(model: sg.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool keeps as many as it says."""
    monkeypatch.setattr(generators, "_MAX_GENERATORS", 2)
    fresh = sg.Model(model.hf_model, model.hf_tokenizer)
    one, two = fresh.generator(sg.Regex("a")), fresh.generator(sg.Regex("b"))
    assert fresh.generator(sg.Regex("a")) is one
    fresh.generator(sg.Regex("c"))
    assert fresh.generator(sg.Regex("a")) is one
    assert fresh.generator(sg.Regex("b")) is not two


# --- a budget that cuts -----------------------------------------------------------------------------------------------

CUT = sg.Regex("a{3,500}")
# The model goes on as long as it may.
LONG = sg.Sampling(logit_bias={byte_tokenizer()("a", add_special_tokens=False)["input_ids"][0]: 100.0})


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda model: model.generate(CUT, "x", max_tokens=9, sampling=LONG), 1),
        (lambda model: model.generator(CUT)("x", max_tokens=9, sampling=LONG), 1),
        (lambda model: model.generate_batch(CUT, ["x", "y"], max_tokens=9, sampling=LONG), 2),
        (lambda model: model.run(CUT, "x", max_tokens=9, sampling=LONG), 0),
        (lambda model: model.generate(sg.Regex("a{3,5}"), "x", max_tokens=9, sampling=LONG), 0),
        (lambda model: model.generate(str, "x", max_tokens=9), 0),
    ],
    ids=["generate", "generator", "batch", "run", "not cut", "free text"],
)
def test_an_object_that_the_budget_cut_is_told(
    model: sg.Model, caplog: pytest.LogCaptureFixture, call: Callable[[sg.Model], object], count: int
) -> None:
    """Whoever gets only the object gets a line in the log where it may be less than what the model wanted to write."""
    call(model)
    told = [(record.name, record.levelname) for record in caplog.records]
    assert told == [("structgen", "WARNING")] * count
    for record in caplog.records:
        assert "budget of 9 tokens" in record.getMessage()
        assert "pass a larger max_tokens" in record.getMessage()
    named = [f"row {row}: " for row in range(2)] if count == 2 else [""]
    assert {record.getMessage().partition("the regular expression: ")[0] for record in caplog.records} == set(
        named[:count]
    )


def test_a_full_context_asks_for_a_shorter_prompt(model: sg.Model, caplog: pytest.LogCaptureFixture) -> None:
    """More tokens are of no use where the context has none left."""
    result = model.run(CUT, "x", seed=1)
    context = model.hf_model.config.max_position_embeddings
    prompt = "x" * (context - result.report.num_prompt_tokens - 8)
    model.generate(CUT, prompt, sampling=LONG)
    (record,) = caplog.records
    assert f"shorten the prompt, the context has {context}" in record.getMessage()


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_row_that_fails_fails_alone(model: sg.Model) -> None:
    """Every row runs; the error says which failed first and has what the others gave."""
    prompts: list[Any] = ["x", sg.Raw(""), [], "y"]
    with pytest.raises(sg.BatchError, match=r"2 of 4 rows failed, first row 1: OptionError: .*empty") as caught:
        model.generate_batch(Q, prompts, seed=2)
    error = caught.value
    assert error.row == 1
    assert error.results[0] == model.generate(Q, "x", seed=2)
    assert error.results[3] == model.generate(Q, "y", seed=2)
    assert [type(result) for result in error.results] == [Q, sg.OptionError, sg.OptionError, Q]
    assert error.__cause__ is error.results[1]


def test_results_of_a_mixed_batch_are_kept(model: sg.Model) -> None:
    """run_batch does the same with results: a budget that is too small for one type leaves the others whole."""
    with pytest.raises(sg.BatchError, match="1 of 3 rows failed, first row 1: BudgetError") as caught:
        model.run_batch([(bool, "x"), (Q, "x"), (sg.Choice(["c"]), "x")], seed=2, max_tokens=5)
    first, failed, last = caught.value.results
    assert isinstance(first, sg.Result)
    assert isinstance(failed, sg.BudgetError)
    assert isinstance(last, sg.Result)
    assert last.value == "c"
