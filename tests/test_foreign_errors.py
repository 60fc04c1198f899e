"""No error of Python, pydantic or Lark leaves the package: what is wrong with a declaration or an output is ours."""

from __future__ import annotations

import contextlib
import enum
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import lark
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

import structgen as sg
from structgen.grammar.json_schema import keywords
from structgen.output_type import lower
from tiny_tokenizer import byte_tokenizer, tiny_llama

LONG = 10**5000  # more digits than Python writes


class Range(BaseModel):
    low: int = Field(ge=0, le=9)
    high: int = Field(ge=0, le=9)

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.high < self.low:
            raise ValueError("high is below low")
        return self


def refuses(value: object, **_: object) -> object:
    """Fail as code of a user may."""
    raise ValueError("never")


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """A tiny model, wrapped."""
    return sg.Model(tiny_llama(), byte_tokenizer())


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_a_validator_that_refuses_is_an_output_error(model: sg.Model) -> None:
    """Where the type's own validator refuses a text of the schema, the error has the text, and pydantic's as cause."""
    never = Annotated[bool, BeforeValidator(lambda value: refuses(value))]
    with pytest.raises(sg.OutputError, match=r"own validator of .* refused it: .*never") as caught:
        model.generate(never, "x", seed=1)
    assert caught.value.text in {"true", "false"}
    assert isinstance(caught.value.__cause__, ValidationError)
    with pytest.raises(sg.OutputError, match=r"Range refused it: .*high is below low"):
        lower(Range).parse('{"low": 5, "high": 4}')
    assert lower(Range).parse('{"low": 4, "high": 5}') == Range(low=4, high=5)


def test_a_text_that_lark_does_not_parse_is_an_output_error() -> None:
    """The tree comes from Lark's own parser; where that refuses, its error is the cause."""
    parse = lower(sg.Lark('start: "a"+', parse=True)).parse
    assert parse("aa") == lark.Tree("start", [])
    with pytest.raises(sg.OutputError, match="Lark's own parser refused it") as caught:
        parse("ab")
    assert caught.value.text == "ab"
    assert isinstance(caught.value.__cause__, lark.exceptions.LarkError)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000])
def test_json_that_python_does_not_read_is_an_output_error(text: str) -> None:
    """Without a policy a model may write more digits, or deeper lists, than json.loads takes."""
    with pytest.raises(sg.OutputError, match="Python's json"):
        lower(sg.JsonSchema({})).parse(text)


# --- declarations -----------------------------------------------------------------------------------------------------

DECLARATIONS: dict[str, tuple[Callable[[], object], type[sg.StructgenError], str]] = {
    "infinite minLength": (lambda: sg.JsonSchema('{"minLength": 1e999}'), sg.UnsupportedSchemaError, "minLength"),
    "infinite minItems": (lambda: sg.JsonSchema({"minItems": 1e400}), sg.UnsupportedSchemaError, "minItems"),
    "infinite minProperties": (lambda: sg.JsonSchema({"minProperties": 1e400}), sg.UnsupportedSchemaError, "minProp"),
    "nan": (lambda: sg.JsonSchema({"maxItems": float("nan")}), sg.UnsupportedSchemaError, "maxItems"),
    "surrogate choice": (lambda: sg.Choice(["a", "\ud800"]), sg.OptionError, "surrogate"),
    "surrogate property": (
        lambda: sg.JsonSchema({"allOf": [{"properties": {"\ud800": {}}}]}),
        sg.UnsupportedSchemaError,
        "#/allOf/0: 'properties' .*surrogate",
    ),
    "surrogate in a constant": (
        lambda: sg.JsonSchema({"items": {"const": {"a": ["\ud800"]}}}),
        sg.UnsupportedSchemaError,
        "#/items/const: 'a' .*surrogate",
    ),
    "surrogate dependency": (
        lambda: sg.JsonSchema({"dependentRequired": {"\ud800": ["a"]}}),
        sg.UnsupportedSchemaError,
        "#: 'dependentRequired' .*surrogate",
    ),
    "surrogate Lark": (
        lambda: sg.Lark('start: "a"\n  | "\ud800"'),
        sg.GrammarSyntaxError,
        "surrogate.*line 2, column 6",
    ),
    "surrogate Literal": (lambda: Literal["\ud800"], sg.UnsupportedTypeError, "ud800"),
    "number as Regex": (lambda: sg.Regex(5), sg.OptionError, "pattern of Regex"),  # type: ignore[arg-type]
    "bytes as Regex": (lambda: sg.Regex(b"a"), sg.OptionError, "bytes"),  # type: ignore[arg-type]
    "number as Lark": (lambda: sg.Lark(5), sg.OptionError, "grammar of Lark"),  # type: ignore[arg-type]
    "number as start": (lambda: sg.Lark('start: "a"', start=5), sg.OptionError, "start"),  # type: ignore[arg-type]
    "text as parse": (lambda: sg.Lark('start: "a"', parse="no"), sg.OptionError, "parse"),  # type: ignore[arg-type]
    "number as schema": (lambda: sg.JsonSchema(5), sg.OptionError, "JSON text"),  # type: ignore[arg-type]
    "list as schema": (lambda: sg.JsonSchema([1]), sg.OptionError, "list"),  # type: ignore[arg-type]
    "number as Choice": (lambda: sg.Choice(5), sg.OptionError, "in one list"),  # type: ignore[arg-type]
    "exact choice": (lambda: sg.Choice(range(5000), exact=True), sg.OptionError, "not 5000; leave exact=True out"),
    "itself": (lambda: sg.JsonSchema({"$ref": "#"}), sg.UnsupportedSchemaError, "back to itself"),
    "a key twice": (lambda: sg.JsonSchema('{"items": {"a": 1, "b": 2, "a": 3}}'), sg.GrammarSyntaxError, "'a' twice"),
    "long index": (
        lambda: sg.JsonSchema({"allOf": [{}], "$ref": "#/allOf/" + "9" * 5000}),
        sg.UnsupportedSchemaError,
        "points to nothing",
    ),
    "long integer in text": (lambda: sg.JsonSchema('{"minimum": ' + "1" * 5000 + "}"), sg.LimitError, "1000 digits"),
    "long integer in data": (lambda: sg.JsonSchema({"minimum": LONG}), sg.GrammarSyntaxError, "1000 digits"),
    "long integer in a choice": (lambda: sg.Choice([LONG]), sg.OptionError, "int"),
    "long integer in a type": (lambda: Annotated[int, Field(ge=LONG)], sg.UnsupportedTypeError, "digits"),
    "long count in a Regex": (lambda: sg.Regex("a{" + "9" * 5000 + "}"), sg.GrammarSyntaxError, "18 digits"),
    "long count in Lark": (lambda: sg.Lark('start: "a"~' + "9" * 5000), sg.GrammarSyntaxError, "too many digits"),
    "deep text": (lambda: sg.JsonSchema("[" * 100_000), sg.LimitError, "nested"),
    "contains": (
        lambda: sg.JsonSchema({"contains": {"type": "integer"}, "minContains": 200_000}),
        sg.LimitError,
        "up to 256",
    ),
    "a class as value": (lambda: type[int], sg.UnsupportedTypeError, "type"),
    "no type": (lambda: 5, sg.UnsupportedTypeError, "no JSON form"),
    "no end": (lambda: sg.Lark('start: start "a"'), sg.UnsatisfiableError, "no text fits"),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_a_wrong_declaration_is_an_error_of_ours(name: str) -> None:
    """Exactly the class that a reader of the error tree expects, and no advice to change Python's settings."""
    declare, error, message = DECLARATIONS[name]
    with pytest.raises(error, match=message) as caught:
        sg.check(declare())
    assert type(caught.value) is error
    assert "sys.set_int_max_str_digits" not in str(caught.value)


def test_what_is_just_small_enough_is_taken() -> None:
    """The limits refuse nothing below them."""
    sg.check(sg.JsonSchema({"contains": {"type": "integer"}, "minContains": 256}))
    sg.check(sg.JsonSchema({"const": 10**999}))
    sg.check(sg.JsonSchema({"minLength": 2.0, "maxLength": 1e2, "description": "a\U0001f600"}))
    sg.check(sg.JsonSchema('{"a": 1, "x-b": {"x-c": 1}}'.replace('"a"', '"x-a"')))


def test_a_prompt_with_half_a_character_is_our_error(model: sg.Model) -> None:
    """The tokenizers library calls it a wrong type."""
    for prompt in ("\ud800", sg.Raw("\ud800"), [{"role": "user", "content": "\ud800"}]):
        with pytest.raises(sg.OptionError, match="surrogate"):
            model.generate(bool, prompt)


# --- anything at all --------------------------------------------------------------------------------------------------

TEXTS = st.text(alphabet='ab0195{}[]()\\"/|*+?~.,-^$:<=! \n\ud800\udfffé\U0001f600usx', max_size=14)
NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.floats(),
    st.sampled_from([10**4000, -(10**1500), 10**400, 1e308, 5e-324, True, False]),
)
KEYWORDS = st.sampled_from([*(name for name, row in keywords.KEYWORDS.items() if row.status != "annotation"), "x-a"])
WORDS = st.sampled_from(["#", "#/allOf/0", "#/$defs/a", "string", "integer", "object", "array", "number", "date", "a"])
VALUES = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS, WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(KEYWORDS, TEXTS), inner, max_size=3),
    ),
    max_leaves=6,
)
ANYTHING = st.one_of(VALUES, st.binary(max_size=3), st.tuples(VALUES, VALUES), st.just(object()), st.just(int))


def only_our_errors(work: Callable[[], object]) -> None:
    """Let nothing out but what the tree of errors has."""
    with contextlib.suppress(sg.StructgenError):
        work()


@pytest.mark.filterwarnings("ignore:.*is ignored")  # a keyword that is probably misspelt is told
@given(st.dictionaries(KEYWORDS, VALUES, max_size=4))
def test_any_schema(schema: dict[str, Any]) -> None:
    """Any keywords with any values, as data and as text."""
    only_our_errors(lambda: sg.check(sg.JsonSchema(schema)))
    with contextlib.suppress(ValueError):  # integers that Python does not write
        text = json.dumps(schema)
        only_our_errors(lambda: sg.check(sg.JsonSchema(text), property_order="any"))


@pytest.mark.filterwarnings("ignore:.*is ignored")  # a keyword that is probably misspelt is told
@given(ANYTHING)
def test_any_argument(value: Any) -> None:
    """Each public constructor, and the type itself, takes anything or refuses it."""
    only_our_errors(lambda: sg.check(sg.JsonSchema(value)))
    only_our_errors(lambda: sg.check(sg.Regex(value)))
    only_our_errors(lambda: sg.check(sg.Choice(value)))
    only_our_errors(lambda: sg.check(sg.Lark(value)))
    only_our_errors(lambda: sg.check(value))


@given(TEXTS)
def test_any_text(text: str) -> None:
    """Patterns, grammars and schemas out of loose characters."""
    only_our_errors(lambda: sg.check(sg.Regex(text)))
    only_our_errors(lambda: sg.check(sg.Lark(f"start: {text}")))
    only_our_errors(lambda: sg.check(sg.Lark('start: "a"', start=text)))
    only_our_errors(lambda: sg.check(sg.JsonSchema({"pattern": text, "properties": {text: {"const": text}}})))
    only_our_errors(lambda: sg.check(sg.JsonSchema(text)))


def test_the_fuzz_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign error does get through the net that these tests hold."""
    monkeypatch.setattr(sys.modules["structgen.explanation"], "lower", refuses)
    with pytest.raises(ValueError, match="never"):
        only_our_errors(lambda: sg.check(bool))


@pytest.mark.parametrize(
    "no_type",
    [
        "__import__('os').getpid()",
        "a prompt",
        "",
        {"type": "string"},
        re.compile("a"),
        len,
        lambda: 1,
        [int],
        (int, str),
    ],
)
def test_what_is_no_type_is_refused_and_never_run(no_type: object) -> None:
    """A string is not evaluated, a function is not called, a dict is not taken for pydantic's own schema."""
    with pytest.raises(sg.UnsupportedTypeError):
        sg.check(no_type)


class Color(enum.Enum):
    RED = "red"
    BLUE = 2


def test_the_members_of_an_enum_are_choices() -> None:
    """The class stands for its members; each is written as its value, and comes back as the member."""
    for choice in (sg.Choice(Color), sg.Choice([Color.RED, Color.BLUE])):
        assert choice.items == (Color.RED, Color.BLUE)
        assert [lower(choice).parse(text) for text in ("red", "2")] == [Color.RED, Color.BLUE]
    with pytest.raises(sg.OptionError, match="at least one item"):
        sg.Choice(enum.Enum("Nothing", {}))  # type: ignore[var-annotated]


@pytest.mark.parametrize(
    ("declare", "hint"),
    [
        (lambda: sg.JsonSchema(Range), r"not the class Range; .* model\.generate\(Range, prompt\)"),
        (lambda: sg.JsonSchema("schemas/person.json"), r"'schemas/person.json' looks like .*read_text\(\)"),
        (lambda: sg.JsonSchema(Path("person")), r"looks like the name of a file"),
        (lambda: sg.Lark("my grammars/sums.lark"), r"Lark takes the text of the grammar: read it"),
        (lambda: sg.Lark("C:\\sums.lark"), r"Lark takes the text of the grammar: read it"),
        (lambda: sg.Lark(Path("sums")), r"looks like the name of a file"),
        (lambda: sg.Regex(re.compile("a")), r"write Regex\(pattern\.pattern\)"),
        (lambda: sg.Choice("abc"), r"such as Choice\(\['yes', 'no'\]\), not 'abc'"),
        (lambda: sg.Choice(["a"], exact="yes"), "exact must be True or False, not 'yes'"),
        (lambda: sg.Lark('start: "a"', lexer=["dynamic"]), "no lexer: use 'dynamic' or 'contextual'"),
    ],
)
def test_a_likely_slip_is_told_what_to_write(declare: Callable[[], object], hint: str) -> None:
    """What is near to a declaration, but none."""
    with pytest.raises(sg.OptionError, match=hint):
        declare()


def test_what_only_looks_a_little_like_a_path_is_read() -> None:
    """A schema and a grammar that end in the name of a file."""
    sg.check(sg.JsonSchema('{"const": "a.json"}'))
    sg.check(sg.Lark('start: "a" // see notes.txt'))


@pytest.mark.parametrize("items", ["abc", b"ab", {"a": 1}])
def test_choice_takes_a_list(items: object) -> None:
    """A string is not a list of letters."""
    with pytest.raises(sg.OptionError, match="list of answers"):
        sg.Choice(items)


def test_compile_names_what_is_no_vocabulary() -> None:
    """A tokenizer is a likely slip."""
    with pytest.raises(sg.OptionError, match="from_tokenizer"):
        sg.compile(bool, object())
