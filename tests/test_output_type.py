"""Output types: what each Python type and declared value admits, and that pydantic reads every word back."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import random
import re
import uuid
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar, Union

import pytest
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    Json,
    NaiveDatetime,
    PastDate,
    SecretStr,
    StringConstraints,
    Tag,
    TypeAdapter,
    ValidationError,
)
from typing_extensions import TypedDict

from json_oracle import sample
from oracle.recognise import accepts
from structgen.config import Whitespace
from structgen.declarations import Choice, JsonSchema, Lark, Regex
from structgen.errors import (
    GrammarSyntaxError,
    OptionError,
    OutputError,
    UnsupportedSchemaError,
    UnsupportedTypeError,
)
from structgen.output_type import _lark_parser, lower


class Colour(enum.Enum):
    RED = "red"
    TWO = 2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    owner: str | None = None


class Aliased(BaseModel):
    tag: Literal["x"] = Field(alias="kindOf")


class OtherAliased(BaseModel):
    tag: Literal["y"] = Field(alias="kindOf")


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Empty(BaseModel):
    pass


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True, str_min_length=1)
    a: str


Item = TypeVar("Item")


class Box(BaseModel, Generic[Item]):
    item: Item
    more: list[Item] = []


class Point(NamedTuple):
    x: int
    name: str = "p"


@dataclasses.dataclass
class Place:
    city: str
    zip: int | None = None


class Movie(TypedDict, total=False):
    title: str
    year: int


TYPES: list[tuple[Any, list[str], list[str]]] = [
    (int, ["3", "-1", "0"], ["3.5", "-0", "01", '"3"']),
    (float, ["3", "1e5", "0.1", "-2.5E-3"], ["1e999", "NaN", ".5"]),
    (bool, ["true", "false"], ["1", "True"]),
    (Decimal, ["1.50", "0.25", "-3"], ['"."', "1e3"]),
    (Annotated[Decimal, Field(max_digits=4, decimal_places=2, ge=0)], ["12.34", "0.25", "12"], ["123", "1.234", "-1"]),
    (Annotated[Decimal, Field(max_digits=2, decimal_places=2)], ["0.25"], ["1.25", "0", "0.255"]),
    (Annotated[Decimal, Field(gt=0, multiple_of=Decimal("0.5"))], ["0.5", "2"], ["0", "0.25"]),
    (datetime.date, ['"2000-02-29"'], ['"1900-02-29"', '"2000-02-29T00:00:00"', '"0000-01-01"']),
    (datetime.time, ['"10:00:00"', '"10:00:00.5Z"'], ['"24:00:00"', '"10:00:60"']),
    (datetime.datetime, ['"2024-02-29T10:00:00"', '"2024-02-29T10:00:00.5+02:00"'], ['"2023-02-29T10:00:00"', '"x"']),
    (AwareDatetime, ['"2024-02-29T10:00:00Z"'], ['"2024-02-29T10:00:00"']),
    (NaiveDatetime, ['"2024-02-29T10:00:00"'], ['"2024-02-29T10:00:00Z"']),
    (datetime.timedelta, ['"P1DT2H"'], ['"P"', '"1 day"']),
    (uuid.UUID, ['"12345678-1234-1234-1234-123456789abc"'], ['"x"']),
    (Colour, ['"red"', "2"], ['"2"', "3", '"RED"']),
    (Literal["a", 1, None, True], ['"a"', "1", "null", "true"], ["false", '"1"']),
    (list[int], ["[]", "[1, 2]"], ["[null]"]),
    (Annotated[list[int], Field(min_length=1, max_length=2)], ["[1]", "[1, 2]"], ["[]", "[1, 2, 3]"]),
    (set[int], ["[]", "[1, 2]", "[1, 1]"], ['["a"]']),
    (set[Literal["a", "b"]], ["[]", '["b", "a"]'], ['["a", "a"]']),
    (frozenset[str], ['["a"]'], ["[1]"]),
    (tuple[int, str], ['[1, "a"]'], ["[1]", '[1, "a", 2]', '["a", 1]']),
    (tuple[int, ...], ["[]", "[1, 2]"], ['["a"]']),
    (Point, ["[1]", '[1, "q"]'], ["[]", '[1, "q", 2]']),
    (dict[str, int], ["{}", '{"a": 1, "b": 2}'], ['{"a": "x"}']),
    (dict[int, str], ['{"1": "a"}', '{"-20": "a"}'], ['{"a": "a"}', '{"01": "a"}']),
    (dict[Colour, int], ['{"red": 1}'], ['{"blue": 1}']),
    (dict[Literal["u", "v"], int], ['{"v": 1}', "{}"], ['{"w": 1}']),
    (dict[Annotated[str, Field(pattern="^k")], int], ['{"k1": 1}'], ['{"b": 1}']),
    (dict[uuid.UUID, int], ['{"12345678-1234-1234-1234-123456789abc": 1}'], ['{"b": 1}']),
    (Optional[int], ["null", "1"], ['""']),  # noqa: UP045 - the old spelling is in use, so it is tested
    (Union[int, list[str]], ["1", '["a"]'], ["null", "[1]"]),  # noqa: UP007 - the same
    (
        Owner,
        ['{"pet": {"kind": "cat", "lives": 9}}', '{"pet": {"kind": "dog"}}'],
        ['{"pet": {"lives": 9}}', '{"pet": {"kind": "dog", "lives": 9}}', "{}"],
    ),
    (Annotated[Aliased | OtherAliased, Field(discriminator="tag")], ['{"kindOf": "x"}'], ['{"tag": "x"}', "{}"]),
    (
        Node,
        ['{"value": 1, "children": [{"value": 2, "children": []}]}', '{"value": 1}'],
        ['{"children": []}', '{"value": 1, "x": 2}'],
    ),
    (Box[int], ['{"item": 1}', '{"item": 1, "more": [2]}'], ['{"item": "a"}']),
    (Place, ['{"city": "a", "zip": null}', '{"city": "a"}'], ["{}", '{"zip": 1}']),
    (Movie, ["{}", '{"title": "a", "year": 1}'], ['{"year": "a"}']),
    (Empty, ["{}"], ['{"a": 1}']),
    (Loose, ['{"a": 1, "z": [2]}', '{"a": 1}'], ["{}"]),
    (Stripped, ['{"a": "b c"}'], ['{"a": ""}', '{"a": " "}', '{"a": " b"}', '{"a": "b\u0085"}']),
    (Any, ['{"a": [1, null, "x"]}', "true"], [""]),
    (
        HttpUrl,
        ['"https://a.example/c?d=1"', '"http://localhost:80"'],
        ['"ftp://a.b"', '"https://"', '"https://1.2.3.999"'],
    ),
    (SecretStr, ['"a"'], ["1"]),
    (Annotated[str, StringConstraints(pattern=r"^\d{2}-\w+$")], ['"12-ab"'], ['"1-ab"', '"12-"', '"१२-ab"']),
    (Annotated[str, Field(pattern=re.compile("b"))], ['"abc"'], ['"ac"']),
    (Annotated[float, Field(gt=0, le=1)], ["0.1", "1"], ["0", "-1", "1.01"]),
    (Annotated[int, Field(ge=3, lt=6, multiple_of=2)], ["4"], ["2", "6", "5"]),
]


@pytest.mark.parametrize(("output_type", "words", "others"), TYPES)
def test_python_types(output_type: Any, words: list[str], others: list[str]) -> None:
    """Each type has the words that it should have, and pydantic reads them."""
    declared = lower(output_type)
    for text in words:
        assert accepts(declared.grammar, text.encode()), text
        declared.parse(text)
    for text in others:
        assert not accepts(declared.grammar, text.encode()), text


@pytest.mark.parametrize("output_type", [row[0] for row in TYPES])
def test_every_word_is_read_back(output_type: Any) -> None:
    """Random words of a type's grammar are values of the type."""
    declared = lower(output_type)
    rng = random.Random(5)
    for _ in range(25):
        text = sample(declared.grammar, rng).decode()
        try:
            declared.parse(text)
        except ValidationError as error:
            pytest.fail(f"{text}: {error}")


@pytest.mark.parametrize(
    ("output_type", "part"),
    [
        (complex, "two floats"),
        (type, "no JSON form"),
        (object(), "no JSON form"),
        (PastDate, "now_op"),
        (Annotated[datetime.date, Field(ge=datetime.date(2020, 1, 1))], "with ge"),
        (Annotated[datetime.timedelta, Field(lt=datetime.timedelta(1))], "with lt"),
        (Json[int], "the type itself"),
        (dict[float, int], "keys of type float"),
        (Annotated[bytes, Field(max_length=3)], "use str"),
        (Annotated[str, Field(pattern=re.compile("b", re.IGNORECASE))], "flags"),
        (Annotated[str, StringConstraints(to_lower=True, pattern="a")], "to_lower"),
        (Annotated[Annotated[Cat, Tag("c")] | Annotated[Dog, Tag("d")], Discriminator(lambda value: "c")], "function"),
    ],
)
def test_types_without_a_grammar_are_refused(output_type: Any, part: str) -> None:
    """A type whose validator checks more than a grammar can say is refused, with a way out."""
    with pytest.raises(UnsupportedTypeError, match=re.escape(part)):
        lower(output_type)


@pytest.mark.parametrize(
    ("output_type", "keyword"),
    [
        (Annotated[set[int], Field(min_length=2)], "uniqueItems"),
        (Annotated[dict[str, int], Field(min_length=2)], "minProperties"),
        (re.Pattern, "format"),
    ],
)
def test_keywords_that_a_type_needs_are_refused_by_name(output_type: Any, keyword: str) -> None:
    """Where only a keyword cannot be exact, that keyword is named."""
    with pytest.raises(UnsupportedSchemaError) as caught:
        lower(output_type)
    assert caught.value.keyword == keyword


def test_values_are_typed() -> None:
    """The value is an object of the type."""
    assert lower(Node).parse('{"value": 1, "children": [{"value": 2}]}') == Node(value=1, children=[Node(value=2)])
    assert lower(tuple[int, str]).parse('[1, "a"]') == (1, "a")
    assert lower(Place).parse('{"city": "Oslo"}') == Place("Oslo")


def test_plain_str_is_any_text() -> None:
    """Str stands for text as it is, without quotes; a constrained str is JSON."""
    declared = lower(str)
    for text in ("", 'say "x"\n', "é😀", "{"):
        assert accepts(declared.grammar, text.encode())
        assert declared.parse(text) == text
    assert not accepts(declared.grammar, b"\xff")
    assert not accepts(declared.grammar, "😀".encode()[:3])
    assert accepts(lower(Annotated[str, Field(max_length=3)]).grammar, b'"abc"')


def test_choice() -> None:
    """Choice gives back the chosen item, whatever it is."""
    declared = lower(Choice(["red", "green", Colour.TWO]))
    assert accepts(declared.grammar, b"red")
    assert not accepts(declared.grammar, b"re")
    assert declared.parse("red") == "red"
    assert declared.parse(str(Colour.TWO)) is Colour.TWO
    assert accepts(lower(Choice(["one"])).grammar, b"one")


@pytest.mark.parametrize("items", [[], [""], ["a", "b", "a"], [1, "1"]])
def test_choices_must_be_told_apart(items: list[Any]) -> None:
    """No items, an empty one, or two that are written alike are an option error."""
    with pytest.raises(OptionError, match="Choice needs"):
        Choice(items)


def test_regex() -> None:
    """Regex matches as a whole, in Python's syntax."""
    declared = lower(Regex(r"[A-Z]{2}\d{2}"))
    assert accepts(declared.grammar, b"AB12")
    assert not accepts(declared.grammar, b"xAB12")
    assert declared.parse("AB12") == "AB12"
    with pytest.raises(GrammarSyntaxError):
        lower(Regex("("))


def test_lark() -> None:
    """Lark gives the text, or the tree with parse=True."""
    text = 'start: "a" start | NUMBER\nNUMBER: /[0-9]+/\n'
    declared = lower(Lark(text))
    assert accepts(declared.grammar, b"aa12")
    assert not accepts(declared.grammar, b"a")
    assert declared.parse("a1") == "a1"
    assert lower(Lark(text, parse=True)).parse("a1").data == "start"
    with pytest.raises(OptionError, match="lexer"):
        Lark(text, lexer="greedy")  # type: ignore[arg-type]


def test_json_schema_values_are_plain_data() -> None:
    """A JsonSchema gives what json.loads gives; its own whitespace comes first."""
    declared = lower(JsonSchema({"type": "array"}, whitespace="compact"), whitespace="pretty")
    assert declared.parse("[1,[]]") == [1, []]
    assert accepts(declared.grammar, b"[1,[]]")
    assert not accepts(declared.grammar, b"[1, []]")
    assert JsonSchema('{"type": "array"}') == JsonSchema({"type": "array"})
    assert len({JsonSchema(True), JsonSchema("true"), JsonSchema({})}) == 2
    assert json.loads(JsonSchema({"b": 1, "a": 2}).text) == {"b": 1, "a": 2}


@pytest.mark.parametrize("whitespace", list(Whitespace))
def test_whitespace_of_types(whitespace: Whitespace) -> None:
    """The style of the call is that of a type; AUTO is spaced where no model is known."""
    spelled = {"compact": '{"value":1}', "pretty": '{\n  "value": 1\n}'}.get(whitespace.value, '{"value": 1}')
    assert accepts(lower(Node, whitespace=whitespace).grammar, spelled.encode())


def test_property_order_of_types() -> None:
    """Fields come in the order of the class, or in any order on request."""
    text = b'{"zip": 1, "city": "a"}'
    assert not accepts(lower(Place).grammar, text)
    assert accepts(lower(Place, property_order="any").grammar, text)
    with pytest.raises(OptionError, match="property_order"):
        lower(Place, property_order="sorted")  # type: ignore[call-overload]
    with pytest.raises(OptionError, match="Whitespace"):
        lower(Place, whitespace="wide")


def test_our_schema_is_no_wider_than_pydantic() -> None:
    """Keywords that pydantic itself would emit for a model are all still there."""
    ours = json.loads(lower(Owner).schema or "")
    theirs = TypeAdapter(Owner).json_schema()
    assert ours["$defs"]["Dog"] == theirs["$defs"]["Dog"]
    assert ours["required"] == theirs["required"]


def test_lark_reads_a_text_as_the_lexer_says() -> None:
    """The tree is that of the lexer that was declared: contextual keeps NAME and a keyword apart, dynamic does not."""
    grammar = 'start: a | b\na: "if"\nb: NAME\nNAME: /[a-z]+/'
    assert _lark_parser(Lark(grammar, parse=True, lexer="contextual"))("if").children[0].data == "a"
    texts = "start: A B\nA: /a+/\nB: /a+b/"
    assert _lark_parser(Lark(texts, parse=True))("aab").children == ["a", "ab"]
    with pytest.raises(OutputError):
        _lark_parser(Lark(texts, parse=True, lexer="contextual"))("aab")
