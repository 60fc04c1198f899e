"""Model and Generator over a tiny random model: what comes back, what is recorded, what is refused."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import threading
from pathlib import Path
from typing import Any, Literal

import lark
import pytest
from pydantic import BaseModel, Field, TypeAdapter

import structgen as sg
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Pet(BaseModel):
    name: str = Field(max_length=6)
    legs: int = Field(ge=0, le=8)


@dataclasses.dataclass
class Point:
    x: bool
    y: bool | None


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


GRAMMAR = 'start: "go " ("left" | "right" | start)'

TYPES: dict[str, Any] = {
    "model": Pet,
    "dataclass": Point,
    "enum": Colour,
    "literal": Literal["a", 3, None],
    "bool": bool,
    "list": list[Literal[1, 2]],
    "tuple": tuple[bool, Literal["x"]],
    "optional": Literal["yes"] | None,
    "bounded": dict[Literal["k"], bool],
}


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """The tiny model, wrapped."""
    return sg.Model(tiny_llama(), byte_tokenizer())


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TYPES))
def test_python_types(model: sg.Model, name: str) -> None:
    """The value is what pydantic itself makes of the text, at several seeds."""
    for seed in range(3):
        result = model.run(TYPES[name], "x", seed=seed, max_tokens=60)
        assert result.value == TypeAdapter(TYPES[name]).validate_json(result.text)


def test_declared_values(model: sg.Model) -> None:
    """Each kind of declared value gives what it says."""
    assert re.fullmatch(r"[A-Z]{2}\d", model.generate(sg.Regex(r"[A-Z]{2}\d"), "x", seed=1))
    items = [1, "1.5", False]
    assert model.generate(sg.Choice(items), "x", seed=1) in items
    parser = lark.Lark(GRAMMAR)
    assert parser.parse(model.generate(sg.Lark(GRAMMAR), "x", seed=1, max_tokens=40))
    tree = model.generate(sg.Lark(GRAMMAR, parse=True), "x", seed=1, max_tokens=40)
    assert isinstance(tree, lark.Tree)
    value = model.generate(sg.JsonSchema({"type": "array", "items": {"enum": ["p", 4]}, "minItems": 2}), "x", seed=1)
    assert len(value) >= 2
    assert set(value) <= {"p", 4}
    assert isinstance(model.generate(str, "x", seed=1, max_tokens=12), str)


def test_equal_choices_of_different_items_are_not_confused(model: sg.Model) -> None:
    """Choice([1]) equals Choice([True]) in Python, but each call gets its own item back."""
    assert type(model.generate(sg.Choice([1]), "x")) is int
    assert type(model.generate(sg.Choice([True]), "x")) is bool


# --- results and reports ----------------------------------------------------------------------------------------------


def test_result(model: sg.Model) -> None:
    """Tokens spell the text, the stop is not among them, and the report counts them."""
    result = model.run(Pet, "x", seed=3, max_tokens=50)
    report = result.report
    assert model.vocabulary.decode(result.token_ids).decode() == result.text
    assert set(result.token_ids).isdisjoint(model.vocabulary.stop_ids)
    assert report.num_tokens == len(result.token_ids) <= 50
    assert report.num_target_passes >= 1
    assert report.num_prompt_tokens == len(report.record.prompt_token_ids)
    record = report.record
    assert (record.seed, record.max_tokens, record.token_ids) == (3, 50, result.token_ids)
    assert (record.device, record.dtype) == ("cpu", "float64")
    assert {"structgen", "torch", "transformers"} <= set(record.versions)


def test_same_seed_same_text(model: sg.Model) -> None:
    """A seed makes a call repeatable; other seeds give other texts; the record of a drawn seed repeats the call."""
    texts = [model.run(Pet, "x", seed=seed, max_tokens=60).text for seed in (1, 1, 2, 3, 4)]
    assert texts[0] == texts[1]
    assert len(set(texts)) >= 3
    drawn = model.run(Pet, "x", max_tokens=60)
    assert model.run(Pet, "x", seed=drawn.report.record.seed, max_tokens=60).token_ids == drawn.token_ids
    assert model.run(Pet, "x", max_tokens=60).report.record.seed != drawn.report.record.seed


def test_greedy_needs_no_seed(model: sg.Model) -> None:
    """Greedy decoding gives one text, whatever the seed."""
    texts = {model.run(Pet, "x", sampling=sg.Sampling.greedy(), max_tokens=60, seed=seed).text for seed in (1, 2, None)}
    assert len(texts) == 1


def test_compiled_once() -> None:
    """The report says where the automaton came from: compiled for the first call, there for the next."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    own = sg.Regex(f"once{id(model)}")
    assert model.run(own, "x").report.compile_cache == "miss"
    assert model.run(own, "x").report.compile_cache == "hit"
    generator = model.generator(sg.Regex(f"once{id(model)}"))
    assert generator.run("x").report.compile_cache == "hit"
    assert model.generator(own) is model.generator(own)


# --- budget -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TYPES))
def test_the_least_budget_is_enough_and_one_less_is_refused(model: sg.Model, name: str) -> None:
    """At d(start) tokens every type succeeds; below, the error has the number."""
    with pytest.raises(sg.BudgetError) as caught:
        model.generate(TYPES[name], "x", max_tokens=0)
    needed = caught.value.needed
    for seed in range(3):
        result = model.run(TYPES[name], "x", max_tokens=needed, seed=seed)
        assert len(result.token_ids) <= needed
        TypeAdapter(TYPES[name]).validate_json(result.text)
    with pytest.raises(sg.BudgetError, match=f"needs {needed}"):
        model.generate(TYPES[name], "x", max_tokens=needed - 1)


def test_default_budget_grows_with_the_type(model: sg.Model) -> None:
    """A text of 600 letters needs no option, although the default budget is smaller."""
    assert len(model.generate(sg.Regex("[a-c]{600}"), "x", seed=1)) == 600


def test_context_bounds_the_answer() -> None:
    """Prompt and answer fit into the context together, or the call is refused with the numbers."""
    model = sg.Model(tiny_llama(max_position_embeddings=64), byte_tokenizer())
    result = model.run(str, sg.Raw("a" * 40), seed=1)
    assert result.report.record.max_tokens == 24
    with pytest.raises(sg.OptionError, match="has 64 tokens and the model reads 64"):
        model.generate(bool, sg.Raw("a" * 64))
    with pytest.raises(sg.OptionError, match="leaves 4 of the model's 64 tokens"):
        model.generate(sg.Regex("[ab]{10}"), sg.Raw("a" * 60))


# --- several calls ----------------------------------------------------------------------------------------------------


def test_generator(model: sg.Model) -> None:
    """A generator gives what the model gives, with and without the report."""
    generator = model.generator(Pet)
    assert generator("x", seed=5, max_tokens=60) == model.generate(Pet, "x", seed=5, max_tokens=60)
    assert generator.run("x", seed=5, max_tokens=60).text == model.run(Pet, "x", seed=5, max_tokens=60).text
    assert generator.automaton.vocabulary == model.vocabulary


def test_batches_keep_their_order(model: sg.Model) -> None:
    """A batch is its rows one by one, in order, each with the seed."""
    prompts = ["x", "y", sg.Raw("z")]
    expected = [model.generate(Pet, prompt, seed=2, max_tokens=60) for prompt in prompts]
    assert model.generate_batch(Pet, prompts, seed=2, max_tokens=60) == expected
    mixed = model.run_batch([(Pet, "x"), (bool, "y"), (sg.Choice(["c"]), "z")], seed=2, max_tokens=60)
    assert mixed[0].value == expected[0]
    assert isinstance(mixed[1].value, bool)
    assert mixed[2].value == "c"


def test_a_batch_compiles_before_it_runs(model: sg.Model) -> None:
    """A type that cannot be honoured is refused before the first row costs anything."""
    with pytest.raises(sg.UnsupportedTypeError, match=r"^row 1: .*complex"):
        model.run_batch([(bool, "x"), (complex, "y")])
    refused = sg.JsonSchema({"properties": {"a": {"type": "string", "pattern": "(a)\\1"}}})
    with pytest.raises(sg.UnsupportedSchemaError, match=r"^row 2: #/properties/a") as caught:
        model.run_batch([(bool, "x"), (bool, "y"), (refused, "z")])
    assert caught.value.pointer == "#/properties/a"


def test_threads(model: sg.Model) -> None:
    """Eight threads that compile and run eight types on one model give what they give one after the other."""
    names = sorted(TYPES)[:8]
    expected = [model.run(TYPES[name], f"p{i}", seed=i, max_tokens=60).text for i, name in enumerate(names)]
    fresh = sg.Model(model.hf_model, model.hf_tokenizer)
    got: dict[int, str] = {}
    start = threading.Barrier(len(names))

    def call(i: int) -> None:
        start.wait()
        for _ in range(3):
            got[i] = fresh.run(TYPES[names[i]], f"p{i}", seed=i, max_tokens=60).text

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(len(names))] == expected


# --- the model --------------------------------------------------------------------------------------------------------


def test_stop_ids_come_from_everywhere() -> None:
    """Tokenizer, model configuration, generation configuration and chat template each name an end."""
    hf_model, tokenizer = tiny_llama(), byte_tokenizer()
    end_of_text, end_of_turn = tokenizer.convert_tokens_to_ids(["</s>", "<|end|>"])
    hf_model.config.eos_token_id = 5
    hf_model.generation_config.eos_token_id = [6, 7]
    assert sg.Model(hf_model, tokenizer).vocabulary.stop_ids == tuple(sorted([5, 6, 7, end_of_text, end_of_turn]))


def test_stop_ids_of_a_configuration_that_the_tokenizer_does_not_have() -> None:
    """A configuration that was copied from a larger model stops nothing: its ids are left out, the rest stays."""
    hf_model, tokenizer = tiny_llama(), byte_tokenizer()
    kept = sg.Model(hf_model, tokenizer).vocabulary.stop_ids
    hf_model.generation_config.eos_token_id = [-1, 266, 151645, 3]
    size = sg.Model(hf_model, tokenizer).vocabulary.size
    assert size == 266
    assert sg.Model(hf_model, tokenizer).vocabulary.stop_ids == (3, *kept)


@pytest.mark.parametrize(
    "prompt", ["hello", [{"role": "user", "content": "hello"}], sg.Raw("<s>user: hello<|end|>assistant: ")]
)
def test_prompts(model: sg.Model, prompt: Any) -> None:
    """A string is one user turn; messages and Raw say the same in full."""
    expected = model.hf_tokenizer("<s>user: hello<|end|>assistant: ", add_special_tokens=False)["input_ids"]
    assert list(model.run(bool, prompt).report.record.prompt_token_ids) == expected


def test_loaded_folder_equals_wrapped_model(tmp_path: Path) -> None:
    """What is saved and loaded gives the same text as what is wrapped, and knows where it came from."""
    hf_model, tokenizer = tiny_llama(), byte_tokenizer()
    hf_model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, wrapped = sg.load(tmp_path, device="cpu", dtype="float64"), sg.Model(hf_model, tokenizer)
    options: dict[str, Any] = {"seed": 4, "max_tokens": 60}
    assert loaded.run(Pet, "x", **options).token_ids == wrapped.run(Pet, "x", **options).token_ids
    assert (loaded.folder, wrapped.folder) == (tmp_path, None)
    assert repr(loaded) == f"Model({str(tmp_path)!r}, device='cpu', dtype='float64')"


@pytest.mark.parametrize("favourite", ["\n", "0", '"', " ", "9", "\\", "{"])
def test_a_model_that_wants_one_token_for_ever(favourite: str) -> None:
    """Whatever token the model prefers, the value is whole, from the least budget to a large one."""
    hf_model, tokenizer = tiny_llama(), byte_tokenizer()
    token_id = tokenizer.encode(favourite, add_special_tokens=False)[0]
    model = sg.Model(hf_model, tokenizer)
    biased = sg.Sampling(logit_bias={token_id: 1000.0})
    for output_type in (Pet, list[int], str | None, dict[str, float]):
        for style in ("spaced", "any"):
            with pytest.raises(sg.BudgetError) as caught:
                model.generate(output_type, "x", max_tokens=0, whitespace=style)
            for max_tokens in (caught.value.needed, caught.value.needed + 5, 80):
                result = model.run(
                    output_type, "x", max_tokens=max_tokens, whitespace=style, sampling=biased, seed=max_tokens
                )
                assert result.value == TypeAdapter(output_type).validate_json(result.text)


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("compact", '{"legs":0,"tags":["a","a"]}'),
        ("spaced", '{"legs": 0, "tags": ["a", "a"]}'),
        ("pretty", '{\n  "legs": 0,\n  "tags": [\n    "a",\n    "a"\n  ]\n}'),
    ],
)
def test_whitespace(model: sg.Model, style: str, text: str) -> None:
    """The style is that of json.dumps, for the call or for one schema; the schema's own comes first."""
    schema = {
        "type": "object",
        "properties": {"legs": {"const": 0}, "tags": {"enum": [["a", "a"]]}},
        "required": ["legs", "tags"],
        "additionalProperties": False,
    }
    assert model.run(sg.JsonSchema(schema), "x", whitespace=style).text == text
    assert model.run(sg.JsonSchema(schema, whitespace=style), "x", whitespace="any").text == text
    assert json.loads(text) == {"legs": 0, "tags": ["a", "a"]}


def test_property_order(model: sg.Model) -> None:
    """With property_order="any" the keys come in other orders too."""
    seen = {
        tuple(json.loads(model.run(Pet, "x", property_order="any", seed=seed, max_tokens=60).text))
        for seed in range(12)
    }
    assert seen == {("name", "legs"), ("legs", "name")}


def test_policy(model: sg.Model) -> None:
    """Digit runs are bounded unless the exact language is asked for, and by as much as is asked for."""
    nine = model.hf_tokenizer.encode("9", add_special_tokens=False)[0]
    options: dict[str, Any] = {"sampling": sg.Sampling(logit_bias={nine: 1000.0}), "seed": 1, "max_tokens": 60}
    assert model.generate(int, "x", **options) == int("9" * 32)
    assert model.generate(int, "x", policy=sg.Policy(max_digits=5), **options) == 99999
    assert model.generate(int, "x", policy=None, **options) == int("9" * 60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "greedy"}, "sampling must be a Sampling"),
        ({"speculation": 4}, "speculation must be a Speculation"),
        ({"max_tokens": 2.5}, "max_tokens must be an int"),
        ({"max_tokens": "9"}, "max_tokens must be an int"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 0.5}, "seed must be"),
        ({"whitespace": "wide"}, "compact"),
        ({"sede": 1}, r"did you mean seed=\.\.\."),
        ({"temperature": 0}, r"sampling=Sampling\(temperature=\.\.\.\)"),
        ({"stop": "x"}, "list of strings"),
        ({"stop": [1]}, "is no string"),
        ({"stop": [""]}, "empty string"),
        ({"stop": ["x"]}, "leave stop out"),
        ({"route": 5}, "route must be"),
        ({"deterministic": 1}, "deterministic must be"),
        ({"diagnostics": "yes"}, "diagnostics must be"),
        ({"policy": 16}, "policy must be a Policy"),
        ({"property_order": "sorted"}, "property_order"),
        ({"property_order": ["any"]}, "property_order"),
        ({"whitespace": ["any"]}, "compact"),
    ],
)
def test_bad_options(model: sg.Model, options: dict[str, Any], message: str) -> None:
    """An option that is misspelt or out of range is our error, and says what is possible."""
    with pytest.raises(sg.OptionError, match=message):
        model.generate(bool, "x", **options)


@pytest.mark.parametrize("options", [{"max_tokens": -1}, {"seed": 1 << 64}, {"route": 5}, {"stop": "x"}])
def test_bad_options_are_told_first(model: sg.Model, options: dict[str, Any]) -> None:
    """No time goes into compiling a type for a call that cannot be made, and a batch fails as a whole."""
    with pytest.raises(sg.OptionError, match=next(iter(options))):
        model.generate(complex, "x", **options)
    with pytest.raises(sg.OptionError, match=next(iter(options))):
        model.generate_batch(bool, ["x", "y"], **options)


def test_speculation_off_is_accepted(model: sg.Model) -> None:
    """Plain decoding can be asked for by name."""
    assert model.generate(bool, "x", speculation=sg.Speculation.off()) in {True, False}


def test_types_without_a_grammar_are_refused(model: sg.Model) -> None:
    """What cannot be exact is refused before the model runs."""
    with pytest.raises(sg.UnsupportedTypeError, match="complex"):
        model.generate(complex, "x")


# --- without a model --------------------------------------------------------------------------------------------------


def test_compile_and_check() -> None:
    """The grammar layer needs no model: compile gives an automaton, check only says whether there is one."""
    vocabulary = sg.Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), b""], stop_ids=[256])
    state = sg.compile(Pet, vocabulary, whitespace="compact").start()
    for byte in b'{"name":"Rex","legs":4}':
        state.advance(byte)
    assert state.is_accepting
    assert sg.compile(bool, vocabulary) is sg.compile(bool, vocabulary)
    assert sg.compile(bool, vocabulary, cache=None) is not sg.compile(bool, vocabulary, cache=None)
    sg.check(Pet)
    with pytest.raises(sg.UnsupportedTypeError):
        sg.check(complex)
    with pytest.raises(sg.UnsatisfiableError):
        sg.check(sg.JsonSchema({"type": "integer", "minimum": 3, "maximum": 2}))
