"""Each line that the public contract shows under "Load and generate" and "Output types", run as written.

SmolLM2 everywhere, bar the .gguf file, which is a tiny model written here (the embedded one came as a .gguf itself).
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import re
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NotRequired, Optional, Required, TypeVar, Union

import jsonschema
import lark
import pytest
from annotated_types import Ge, Le, MaxLen
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic takes that of typing from Python 3.12 on

import structgen as sg
from tiny_gguf import write_gguf
from tiny_tokenizer import byte_tokenizer, tiny_llama

pytestmark = pytest.mark.model


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


class Invoice(BaseModel):
    number: str = Field(pattern="^[A-Z]{2}[0-9]{3}$")


PROMPT = "Anna is 31 years old."


# --- load and generate ------------------------------------------------------------------------------------------------


def test_load_the_embedded_model() -> None:
    """`sg.load()` without a name is SmolLM2 from the user's cache."""
    model = sg.load()
    assert isinstance(model, sg.Model)
    assert "smollm2" in repr(model).lower()


def test_load_a_folder_and_a_device_and_dtype(smollm2: sg.Model) -> None:
    """A folder is loaded as named; device and dtype are names too."""
    assert smollm2.folder is not None
    for options in ({"device": "auto", "dtype": "auto"}, {"device": "cpu", "dtype": "bfloat16"}):
        model = sg.load(str(smollm2.folder), **options)
        assert model.generate(Literal["yes"], PROMPT) == "yes"
    assert "bfloat16" in repr(model)


def test_load_a_gguf_file(tmp_path: Path) -> None:
    """A .gguf file gives the model that it was written from: the same texts for the same seeds."""
    write_gguf(tmp_path / "tiny.gguf", tiny_llama(), byte_tokenizer())
    loaded = sg.load(tmp_path / "tiny.gguf", dtype="float64")
    original = sg.Model(tiny_llama(), byte_tokenizer())
    for seed in range(5):
        options: Any = {"seed": seed, "whitespace": "compact"}
        assert loaded.run(list[bool], "x", **options).text == original.run(list[bool], "x", **options).text


def test_wrap_what_the_application_loaded(smollm2: sg.Model) -> None:
    """`sg.Model(hf_model, hf_tokenizer)` is as good as a loaded one."""
    model = sg.Model(smollm2.hf_model, smollm2.hf_tokenizer)
    assert model.generate(bool, PROMPT, seed=1) == smollm2.generate(bool, PROMPT, seed=1)


def test_generate_and_batches(smollm2: sg.Model) -> None:
    """One object; a list in order; a result; types that differ within a batch."""
    model = smollm2
    person: Person = model.generate(Person, "Anna is 31 years old.", sampling=sg.Sampling.greedy())
    assert person == Person(name="Anna", age=31)
    people = model.generate_batch(Person, ["Bo is 4.", PROMPT], sampling=sg.Sampling.greedy(), max_tokens=60)
    assert [type(one) for one in people] == [Person, Person]
    assert people[1] == person
    result = model.run(Person, PROMPT, sampling=sg.Sampling.greedy())
    assert result.value == person == Person.model_validate_json(result.text)
    assert b"".join(map(model.vocabulary.token_bytes, result.token_ids)).decode() == result.text
    assert result.report.num_tokens == len(result.token_ids)
    results = model.run_batch([(Person, PROMPT), (Invoice, "Invoice AB123.")], seed=1)
    assert [type(one.value) for one in results] == [Person, Invoice]


def test_stream_and_generator(smollm2: sg.Model) -> None:
    """A stream ends with the object; a generator is called, run and streamed."""
    model = smollm2
    partials = []
    for partial in model.stream(Person, PROMPT, sampling=sg.Sampling.greedy()):
        partials.append(partial)
        assert partial.text.startswith(partials[0].text)
    assert [partial.complete for partial in partials] == [False] * (len(partials) - 1) + [True]
    assert partials[-1].value == Person(name="Anna", age=31)
    assert {"name": "Anna"} in [partial.value for partial in partials[:-1]]
    gen = model.generator(Person)
    assert gen(PROMPT, sampling=sg.Sampling.greedy()) == partials[-1].value
    assert gen.run(PROMPT, seed=3).text == list(gen.stream(PROMPT, seed=3))[-1].text


def test_prompts_and_options(smollm2: sg.Model) -> None:
    """Each form of a prompt, each common option."""
    model = smollm2
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": PROMPT}]
    for prompt in (PROMPT, messages, sg.Raw("Anna's age: ")):
        assert isinstance(model.generate(int, prompt, seed=1, max_tokens=40), int)
    text = model.generate(
        str,
        "Name three colours, one per line.",
        sampling=sg.Sampling(temperature=0.7, top_p=0.9),
        speculation=sg.Speculation.off(),
        max_tokens=24,
        stop=["\n\n", "."],
        route="colours",
        seed=5,
        deterministic=True,
    )
    assert not re.search(r"\n\n|\.", text)
    assert model.metrics["colours"].num_requests == 1
    for style, shown in (("compact", '{"name":"'), ("spaced", '{"name": "'), ("pretty", '{\n  "name": "')):
        result = model.run(Person, PROMPT, whitespace=style, property_order="declared", policy=None, seed=1)
        assert result.text.startswith(shown)


# --- output types -----------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: Annotated[int, Ge(0), Le(9)]
    y: Annotated[int, Ge(0), Le(9)]


class Node(BaseModel):
    value: int = Field(ge=0, le=9)
    children: list[Node] = Field(default=[], max_length=2)


ContentT = TypeVar("ContentT")


class Parcel(BaseModel, Generic[ContentT]):
    content: ContentT


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool


class Aliased(BaseModel):
    value: bool = Field(alias='le "prix" €')


class Options(TypedDict):
    level: Required[Literal[1, 2]]
    quiet: NotRequired[bool]


Short = Annotated[str, MaxLen(6)]

TYPES: list[Any] = [
    str,
    int,
    float,
    bool,
    Decimal,
    datetime.datetime,
    datetime.date,
    datetime.time,
    uuid.UUID,
    Literal["a", 1, True, None],
    Colour,
    list[Annotated[int, Le(99), Ge(0)]],
    set[Colour],
    tuple[bool, Short],
    dict[Literal["k", "l"], bool],
    Optional[Colour],  # noqa: UP045 - one of the ways to write it
    Union[bool, Short],  # noqa: UP007 - likewise
    Point,
    Options,
    Person,
    Node,
    Parcel[Colour],
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Aliased,
    Annotated[int, Ge(5), Le(7)],
]


@pytest.mark.parametrize("output_type", TYPES, ids=str)
def test_python_types(smollm2: sg.Model, output_type: Any) -> None:
    """What comes back is what pydantic makes of the text, and is of the type."""
    result = smollm2.run(output_type, "Answer with an example.", seed=2, max_tokens=28)
    if output_type is str:
        assert result.value == result.text
        return
    adapter = TypeAdapter(output_type)
    assert result.value == adapter.validate_json(result.text)
    assert adapter.validate_python(result.value, strict=True, by_name=True) == result.value


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": ["S", "M", 3]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("style", ["auto", "compact", "spaced", "pretty", "any"])
def test_json_schema(smollm2: sg.Model, style: str) -> None:
    """`sg.JsonSchema(dict_or_text, whitespace=...)`: the value is what json.loads gives."""
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        result = smollm2.run(sg.JsonSchema(schema, whitespace=style), "A shop in Oslo.", seed=1, max_tokens=60)
        assert result.value == json.loads(result.text)
        jsonschema.validate(result.value, SCHEMA)


def test_regex(smollm2: sg.Model) -> None:
    """`sg.Regex(...)`: the value is the text."""
    plate = smollm2.generate(sg.Regex(r"[A-Z]{2}\d{4}"), "Make up a number plate.", seed=1)
    assert re.fullmatch(r"[A-Z]{2}\d{4}", plate)


@pytest.mark.parametrize("exact", [False, True])
def test_choice(smollm2: sg.Model, exact: bool) -> None:
    """`sg.Choice([...], exact=...)`: the value is the item, and the report says which law was sampled."""
    result = smollm2.run(
        sg.Choice(["red", "green"], exact=exact), "The colour of grass?", sampling=sg.Sampling.greedy()
    )
    assert result.value in ("red", "green")
    assert result.report.law == ("exact choice" if exact else "masked target")


def test_lark(smollm2: sg.Model) -> None:
    """`sg.Lark(text, start=..., lexer=...)`: the value is the text, with parse=True the tree."""
    grammar = 'start: term ("+" term)*\nterm: /[0-9]/ | "(" start ")"'
    options: Any = {"seed": 1, "max_tokens": 20}
    text = smollm2.generate(sg.Lark(grammar, start="start", lexer="dynamic"), "Write a sum.", **options)
    tree = smollm2.generate(sg.Lark(grammar, parse=True), "Write a sum.", **options)
    assert isinstance(tree, lark.Tree)
    assert tree == lark.Lark(grammar, parser="earley", lexer="dynamic_complete").parse(text)


@sg.tool
def get_weather(city: Annotated[str, MaxLen(20)], unit: Literal["C", "F"] = "C") -> str:
    """Tell the weather of a city."""
    return f"{city}: 7 {unit}"


def search(query: Annotated[str, MaxLen(20)]) -> str:
    """Search the web."""
    return query


def test_tool_set(smollm2: sg.Model) -> None:
    """`sg.ToolSet([...], min_calls=0, max_calls=1)`: a list of calls; free text where none is required."""
    calls = smollm2.generate(sg.ToolSet([get_weather]), "Weather in Oslo?", seed=1, max_tokens=30)
    assert all(isinstance(call, sg.ToolCall) for call in calls)
    tools = sg.ToolSet([get_weather, search], min_calls=1, max_calls=1)
    (call,) = smollm2.generate(tools, "Weather in Oslo?", seed=0, max_tokens=50)
    assert call.name in ("get_weather", "search")
    assert call.invoke()
