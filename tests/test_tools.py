"""Tools: signatures as schemas, calls as texts and back, confirmations, findings, and what a prompt says of them."""

from __future__ import annotations

import asyncio
import datetime
import enum
import functools
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from annotated_types import Ge, Le
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

import structgen as sg
from json_oracle import sample
from oracle.recognise import accepts
from oracle.walks import automaton_of, tokens_of
from structgen.decode.tool_prompt import tools_note
from structgen.output_type import lower
from structgen.tools import Tool, ToolCall, ToolSet, tool
from structgen.vocabulary import Vocabulary
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


class Point(BaseModel):
    x: int
    y: Annotated[float, Field(ge=0, le=1)] = 0.5


@tool
def get_weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """Return the weather of a city."""
    return f"{city}: 7 {unit}"


@tool(destructive=True)
def delete_rows(table: Literal["logs"], older_than_days: Annotated[int, Ge(1)]) -> int:
    """Delete old rows."""
    return len(table) * older_than_days


def plot(points: list[Point], when: datetime.date, unit: Unit = Unit.C) -> int:
    """Plot points."""
    return len(points)


def now() -> str:
    """Return the time."""
    return "12:00"


def odd(model_config: int, schema: str | None = None, self: str = "me", copy: int = 3) -> int:
    """Take parameters that a pydantic model could not have as fields."""
    return model_config


ALL = [get_weather, delete_rows, plot, now, odd]
OSLO = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def read_back(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a text as the standard library reads them."""
    found = re.fullmatch(r"[\s\S]*?<tool_call>\n([\s\S]*)\n</tool_call>", text)
    if found is None:
        return []
    call = json.loads(found[1])
    return [(call["name"], call["arguments"])]


def test_a_required_call_is_exactly_the_form_that_templates_ask_for() -> None:
    """With min_calls=1 there is nothing but one call; with 0 there may be text before it, or only text."""
    required = lower(ToolSet([get_weather], min_calls=1)).grammar
    optional = lower(ToolSet([get_weather])).grammar
    assert accepts(required, OSLO.encode())
    assert accepts(optional, OSLO.encode())
    for text in ("", "Hello", "<tool_cal", "a < b", f"Let me see.\n{OSLO}", f"<{OSLO}", f"<tool_call{OSLO}"):
        assert not accepts(required, text.encode())
        assert accepts(optional, text.encode()), text
    for text in ("<tool_call>", "say <tool_call> now", f"{OSLO}\n", OSLO + OSLO, OSLO.replace("\n", "")):
        assert not accepts(optional, text.encode()), text


@given(pieces=st.lists(st.sampled_from(["<", "<tool", "_call", ">", "<tool_call>", "é", "\n"]), max_size=8))
def test_free_text_is_all_text_without_the_marker(pieces: list[str]) -> None:
    """The free part is exactly the complement of "contains <tool_call>"."""
    text = "".join(pieces)
    grammar = lower(ToolSet([now])).grammar
    assert accepts(grammar, text.encode()) == ("<tool_call>" not in text)


def test_arguments_belong_to_the_tool_that_is_named() -> None:
    """Each name has its own arguments, with defaults left out or not, and no others."""
    grammar = lower(ToolSet(ALL, min_calls=1)).grammar
    arguments = [
        ("get_weather", {"city": "Oslo"}, True),
        ("get_weather", {"city": "Oslo", "unit": "F"}, True),
        ("get_weather", {"city": "Oslo", "unit": "K"}, False),
        ("get_weather", {}, False),
        ("now", {}, True),
        ("now", {"city": "Oslo"}, False),
        ("delete_rows", {"table": "logs", "older_than_days": 1}, True),
        ("delete_rows", {"table": "logs", "older_than_days": 0}, False),
        ("odd", {"model_config": 1, "schema": None, "self": "x", "copy": 2}, True),
        ("other", {}, False),
    ]
    for name, given_arguments, legal in arguments:
        body = json.dumps({"name": name, "arguments": given_arguments})
        assert accepts(grammar, f"<tool_call>\n{body}\n</tool_call>".encode()) == legal, body


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "pretty"])
def test_only_the_json_of_a_call_follows_the_style(whitespace: str) -> None:
    """The style of the call is that of the JSON; the markers keep their lines."""
    shown = {
        "compact": '{"name":"now","arguments":{}}',
        "spaced": '{"name": "now", "arguments": {}}',
        "pretty": '{\n  "name": "now",\n  "arguments": {}\n}',
    }
    text = f"<tool_call>\n{shown[whitespace]}\n</tool_call>"
    declared = lower(ToolSet([now], min_calls=1), whitespace=whitespace)
    assert accepts(declared.grammar, text.encode())
    assert declared.parse(text) == [ToolCall("now", {})]


def test_values_are_typed_and_defaults_are_the_functions_own() -> None:
    """Arguments are what the annotations say; what is not written is not there."""
    text = '<tool_call>\n{"name": "plot", "arguments": {"points": [{"x": 1}], "when": "2026-03-01"}}\n</tool_call>'
    (call,) = lower(ToolSet([plot])).parse(f"Here:\n{text}")
    assert call == ToolCall("plot", {"points": [Point(x=1)], "when": datetime.date(2026, 3, 1)})
    assert call.invoke() == 1
    assert lower(ToolSet([plot])).parse("No call.") == []


@pytest.mark.parametrize("min_calls", [0, 1])
@pytest.mark.parametrize("property_order", ["declared", "any"])
def test_every_word_is_read_back(min_calls: int, property_order: Any) -> None:
    """Random words of the grammar are read, as the calls that the standard library sees in them."""
    declared = lower(ToolSet(ALL, min_calls=min_calls), property_order=property_order)
    schema = json.loads(declared.schema or "")
    rng = random.Random(3)
    names = set()
    for _ in range(60):
        text = sample(declared.grammar, rng).decode()
        expected, calls = read_back(text), declared.parse(text)
        assert [(call.name, set(call.arguments)) for call in calls] == [(name, set(has)) for name, has in expected]
        for name, arguments in expected:
            jsonschema.validate({"name": name, "arguments": arguments}, schema)
            names.add(name)
    assert names == {"get_weather", "delete_rows", "plot", "now", "odd"}


VOCABULARY = Vocabulary.from_bytes(
    [bytes([byte]) for byte in range(256)]
    + [b"<tool_call>\n", b'{"name": "now", ', b'"arguments": ', b"}\n</tool_call>", b"}}\n", b""],
    stop_ids=[261],
)


def test_walks_over_the_automaton_are_read_back() -> None:
    """Whatever tokens are drawn, what the automaton lets end is read as the call that it spells."""
    declared = lower(ToolSet([now, odd]))
    automaton = automaton_of(declared.grammar, VOCABULARY)
    (stop,) = VOCABULARY.stop_ids
    rng = random.Random(11)
    num_calls = 0
    for _ in range(60):
        state, text = automaton.start(), b""
        begin = rng.choice([b"", b"a < b", b"<tool_call>\n", "é<<tool_call>\n".encode()])
        for byte in begin:
            state.advance(byte)
            text += bytes([byte])
        for _ in range(60):
            legal = sorted(tokens_of(state.mask(), VOCABULARY) - {stop})
            # Long tokens spell what a call needs.
            token = rng.choice([token for token in legal if token >= 256] or legal)
            state.advance(token)
            text += VOCABULARY.token_bytes(token)
            if state.is_accepting and (b"</tool" in text or rng.random() < 0.1):
                break
        if state.is_accepting:
            calls = declared.parse(text.decode())
            assert [(call.name, set(call.arguments)) for call in calls] == [
                (name, set(has)) for name, has in read_back(text.decode())
            ]
            num_calls += len(calls)
    assert num_calls >= 10


def test_a_tool_is_still_its_function() -> None:
    """A tool is called as before, and shows the docstring and the name of the function."""
    assert get_weather("Oslo", unit="F") == "Oslo: 7 F"
    assert (get_weather.name, get_weather.description) == ("get_weather", "Return the weather of a city.")
    assert repr(delete_rows) == "Tool(delete_rows, destructive=True)"
    assert get_weather.__doc__ == get_weather.description


def test_sets_of_the_same_functions_are_the_same() -> None:
    """A set that is written again finds the automaton of the first; other bounds or tools do not."""
    assert ToolSet([plot, now]) == ToolSet([plot, now])
    assert len({ToolSet([plot, now]), ToolSet([plot, now]), ToolSet([tool(plot), now])}) == 1
    others = [ToolSet([now, plot]), ToolSet([plot]), ToolSet([plot, now], min_calls=1)]
    assert len({ToolSet([plot, now]), *others}) == 4
    assert ToolSet([plot]) != ToolSet([tool(destructive=True)(plot)])
    assert Tool(plot) != plot


class Clock:
    def at(self, zone: str) -> str:
        """Return the time in a zone."""
        return f"12:00 {zone}"


def test_methods_and_wrapped_functions_are_tools() -> None:
    """A bound method and a function behind functools.wraps have the signature that they are called with."""
    clock = Clock()
    assert ToolCall("at", {"zone": "CET"}, tool=clock.at).invoke() == "12:00 CET"
    assert ToolSet([clock.at]) == ToolSet([clock.at])
    assert ToolSet([clock.at]) != ToolSet([Clock().at])

    @functools.wraps(plot)
    def counted(*args: Any, **kwargs: Any) -> int:
        return plot(*args, **kwargs)

    assert Tool(counted).parameters == Tool(plot).parameters


def _unannotated(a, b: int = 1): ...  # type: ignore[no-untyped-def]
def _starred(*values: int) -> None: ...
def _keywords(**values: int) -> None: ...
def _positional(value: int, /) -> None: ...
def _imaginary(good: int, value: complex) -> None: ...
def _field_default(value: int = Field(default=3)) -> None: ...
def _field_twice(value: Annotated[int, Field(default=3)]) -> None: ...
def _aliased(value: Annotated[int, Field(alias="v")]) -> None: ...
def _unknown(value: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - that is the mistake


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (_unannotated, ["'a'", "unannotated", "write its type"]),
        (_starred, ["'*values'", "starred"]),
        (_keywords, ["'**values'", "keywords"]),
        (_positional, ["'value'", "positional-only"]),
        (_imaginary, ["'value'", "imaginary", "two floats"]),
        (_field_default, ["'value'", "Annotated"]),
        (_field_twice, ["'value'", "into the signature"]),
        (_aliased, ["'value'", "alias"]),
        (_unknown, ["Missing", "top of the module"]),
        (Clock.at, ["'self'", "object.method"]),
        (int, ["int", "def"]),
        (lambda: 1, ["lambda", "def"]),
        (functools.partial(now), ["partial", "def"]),
        (print, ["'*args'"]),
        (type("F", (), {"__call__": lambda self: 1, "__name__": "f", "__signature__": 3})(), ["does not say"]),
    ],
)
def test_signatures_without_a_schema_are_refused(function: Callable[..., Any], parts: Sequence[str]) -> None:
    """What no schema can say is refused with the name of the parameter, and with what to do."""
    with pytest.raises(sg.UnsupportedTypeError) as caught:
        ToolSet([function])
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: ToolSet([]), "at least one"),
        (lambda: ToolSet(get_weather), "a list"),  # type: ignore[arg-type]
        (lambda: ToolSet("now"), "a list"),  # type: ignore[arg-type]
        (lambda: ToolSet([3]), "made of a function"),  # type: ignore[list-item]
        (lambda: ToolSet([now, tool(now)]), "two tools are named 'now'"),
        (lambda: ToolSet([now], max_calls=2), "not available yet"),
        (lambda: ToolSet([now], min_calls=2), "not available yet"),
        (lambda: ToolSet([now], max_calls=0), "room for a call"),
        (lambda: ToolSet([now], min_calls=-1), "min_calls"),
        (lambda: ToolSet([now], min_calls=True), "must be an int"),
        (lambda: tool(destructive=1)(now), "destructive"),  # type: ignore[call-overload]
        (lambda: ToolCall(3, {}), "a string"),  # type: ignore[arg-type]
        (lambda: ToolCall("now", []), "a dict"),  # type: ignore[arg-type]
        (lambda: ToolCall("later", {}, tool=now), "name the same"),
        (lambda: ToolCall("get_weather", {"citty": "Oslo"}, tool=get_weather), "citty"),
        (lambda: ToolCall("get_weather", {}, tool=get_weather), "city: Field required"),
        (lambda: ToolCall("now", {}).invoke(), "tool=function"),
        (lambda: ToolCall("now", {}, tool=now).invoke(confirm="yes"), "confirm"),  # type: ignore[arg-type]
    ],
)
def test_bad_options_are_refused(make: Callable[[], object], part: str) -> None:
    """Each mistake is an OptionError that says what to change."""
    with pytest.raises(sg.OptionError, match=re.escape(part)):
        make()


def test_keywords_that_a_parameter_needs_are_refused_by_name() -> None:
    """A type that a grammar cannot hold exactly is refused where it is, by its parameter."""

    def pick(some: Annotated[set[int], Field(min_length=2)]) -> None: ...

    with pytest.raises(sg.UnsupportedSchemaError, match=r"properties/some.*uniqueItems"):
        lower(ToolSet([pick]))


def test_a_tool_that_can_never_be_called_is_refused() -> None:
    """A tool without possible arguments does not vanish among the others."""

    def never(value: Annotated[int, Ge(3), Le(2)]) -> None: ...

    with pytest.raises(sg.UnsatisfiableError, match=r"tool never .*#/properties/value"):
        lower(ToolSet([now, never]))


def test_a_model_is_told_of_the_tools_and_calls_one() -> None:
    """From a set of functions to a call that can be invoked, with a model that knows nothing."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    result = model.run(ToolSet([get_weather, now], min_calls=1), "Hi", seed=1)
    prompt = model.hf_tokenizer.decode(result.report.record.prompt_token_ids)
    assert f"system: {tools_note(lower(ToolSet([get_weather, now])).tools)}<|end|>user: Hi" in prompt
    assert [call.name for call in result.value] == [name for name, _ in read_back(result.text)]
    assert isinstance(result.value[0].invoke(), str)
    assert model.generate(ToolSet([now]), "Hi", max_tokens=9, seed=1) == []


def test_arguments_by_hand_are_made_into_their_types() -> None:
    """With a tool, arguments are validated; without one, nothing is known of them."""
    call = ToolCall("plot", {"points": [{"x": 1}], "when": "2026-03-01", "unit": "fahrenheit"}, tool=plot)
    assert call.arguments == {"points": [Point(x=1)], "when": datetime.date(2026, 3, 1), "unit": Unit.F}
    assert repr(ToolCall("f", {"a": 1})) == "ToolCall(name='f', arguments={'a': 1})"
    assert ToolCall("now", {}) == ToolCall("now", {}, tool=now)
    assert ToolCall("f", {"a": 1}) != ToolCall("f", {"a": 2})
    assert len({ToolCall("f", {"a": 1}), ToolCall("f", {"a": 1})}) == 1


def test_a_destructive_tool_asks_first() -> None:
    """Only True agrees: nothing, False and any other answer leave the function uncalled."""
    call = ToolCall("delete_rows", {"table": "logs", "older_than_days": 2}, tool=delete_rows)
    asked: list[ToolCall] = []
    for confirm in (None, False, lambda call: False, lambda call: "no", asked.append):
        with pytest.raises(sg.ConfirmationRequired, match="delete_rows"):
            call.invoke(confirm=confirm)  # type: ignore[arg-type]
    assert asked == [call]
    assert call.invoke(confirm=True) == call.invoke(confirm=lambda one: one is call) == 8
    assert ToolCall("now", {}, tool=now).invoke(confirm=False) == "12:00"


def test_what_a_function_raises_comes_through() -> None:
    """Errors of the function are its own; an async function gives its coroutine."""

    def fail() -> None:
        raise ZeroDivisionError

    async def later(value: int) -> int:
        return value + 1

    with pytest.raises(ZeroDivisionError):
        ToolCall("fail", {}, tool=fail).invoke()
    assert asyncio.run(ToolCall("later", {"value": 1}, tool=later).invoke()) == 2


def refuse_seven(value: int) -> int:
    """Refuse one number."""
    if value == 7:
        raise ValueError("not seven")
    return value


def test_a_validator_of_a_parameter_may_refuse() -> None:
    """A validator that no grammar can see refuses with the whole text in the error, or by hand with an OptionError."""

    def count(value: Annotated[int, AfterValidator(refuse_seven)]) -> None: ...

    text = '!<tool_call>\n{"name": "count", "arguments": {"value": 7}}\n</tool_call>'
    with pytest.raises(sg.OutputError, match=r"arguments\.value: .*not seven") as caught:
        lower(ToolSet([count])).parse(text)
    assert caught.value.text == text
    with pytest.raises(sg.OptionError, match="not seven"):
        ToolCall("count", {"value": 7}, tool=count)


def test_what_a_prompt_is_given() -> None:
    """The tools are told of in the form of chat templates, with a valid schema and the defaults that JSON can write."""
    described = lower(ToolSet([get_weather, plot])).tools
    assert described[0] == {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Return the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                },
                "required": ["city"],
            },
        },
    }
    for one in described:
        jsonschema.Draft202012Validator.check_schema(one["function"]["parameters"])
        json.dumps(one, allow_nan=False)


@tool(destructive=True)
def wipe(path: Path, what: Any, names: list[str], count: int, options: dict[str, int], at: Point, also: str | None):  # type: ignore[no-untyped-def]  # noqa: D103 - lint reports it
    return path


@tool(destructive=True)
def precise(
    table: Literal["a", "b"],
    name: Annotated[str, Field(max_length=9)],
    day: datetime.date,
    share: Annotated[float, Ge(0), Le(1)],
    units: Annotated[list[Unit], Field(max_length=2)],
    limits: dict[Unit, Annotated[int, Le(9)]],
    sure: bool,
) -> None:
    """Leave nothing open."""


def test_lint() -> None:
    """Vague parameters of destructive tools and missing words are reported, each with the place and an advice."""
    found = [(one.parameter, one.problem) for one in ToolSet([wipe]).lint()]
    assert found == [
        (None, "no docstring"),
        (None, "no return annotation"),
        ("path", "any text"),
        ("what", "any value at all"),
        ("names", "a list without a greatest length"),
        ("names", "any text"),
        ("count", "a number without bounds"),
        ("options", "a dict with any keys"),
        ("at", "a number without bounds"),
        ("also", "any text"),
    ]
    assert ToolSet([get_weather, delete_rows, precise, plot]).lint() == []
    assert str(ToolSet([wipe]).lint()[2]).startswith("wipe(path): any text; use Literal")
