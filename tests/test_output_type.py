"""Output types: what each Python type and declared value admits, and that pydantic reads every word back."""

from __future__ import annotations

import enum
import json
import random
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import Field, TypeAdapter
from typing_extensions import ReadOnly, TypedDict

import zoo_types as z
from json_oracle import sample
from oracle.recognise import accepts
from structgen.config import Whitespace
from structgen.declarations import Choice, JsonSchema, Lark, Regex
from structgen.errors import GrammarSyntaxError, OptionError, OutputError, UnsupportedTypeError
from structgen.output_type import _lark_parser, lower
from structgen.type_names import type_name
from type_table import REFUSED, ROWS, Refusal, Row, evaluated
from type_zoo import ZOO, Specimen


@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_python_types(specimen: Specimen) -> None:
    """Each type has the words that it should have, and pydantic reads them; it has none of the others."""
    declared = lower(specimen.output_type)
    for text in specimen.texts:
        assert accepts(declared.grammar, text.encode()), text
        declared.parse(text)
    for text in specimen.others:
        assert not accepts(declared.grammar, text.encode()), text


@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_every_word_is_read_back(specimen: Specimen) -> None:
    """Random words of a type's grammar, out of all corners of it, are values of the type."""
    declared = lower(specimen.output_type)
    rng = random.Random(5)
    for _ in range(25):
        declared.parse(sample(declared.grammar, rng).decode())


@pytest.mark.parametrize("refusal", REFUSED, ids=lambda refusal: refusal.code)
def test_types_without_a_grammar_are_refused(refusal: Refusal) -> None:
    """A type whose validator checks more than a grammar can say is refused, in words about types, with a way out."""
    with pytest.raises(UnsupportedTypeError, match=re.escape(refusal.part)):
        lower(evaluated(refusal.code))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code)
def test_the_table_of_types_is_true(row: Row) -> None:
    """Each row of docs/types.md: the text is of the type, and the value that comes back is the one that is shown."""
    declared = lower(evaluated(row.code))
    assert accepts(declared.grammar, row.text.encode())
    value = declared.parse(row.text)
    expected = evaluated(row.value)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.filterwarnings("ignore:Item 'key':UserWarning")
def test_read_only_keys_are_written_like_others() -> None:
    """Pydantic warns of ReadOnly; the language is the same."""

    class Sealed(TypedDict):
        key: ReadOnly[int]

    assert accepts(lower(Sealed).grammar, b'{"key": 1}')


def test_names_of_types_in_messages() -> None:
    """Messages name a type as one would write it."""
    names = {
        Annotated[list[int], Field(min_length=1)]: "list[int]",
        dict[str, list[z.Cat | None]]: "dict[str, list[Cat | None]]",
        Literal["a", 1]: "Literal['a', 1]",
        tuple[int, ...]: "tuple[int, ...]",
        Callable[[int], None]: "Callable[[int], None]",
        Any: "Any",
    }
    assert {written: type_name(written) for written in names} == names


def test_values_are_typed() -> None:
    """The value is an object of the type."""
    read = lower(z.Node).parse('{"value": 1, "children": [{"value": 2}]}')
    assert read == z.Node(value=1, children=[z.Node(value=2)])
    assert lower(tuple[int, str]).parse('[1, "a"]') == (1, "a")
    assert lower(z.Place).parse('{"city": "Oslo"}') == z.Place("Oslo")


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
    declared = lower(Choice(["red", "green", z.Colour.TWO]))
    assert accepts(declared.grammar, b"red")
    assert not accepts(declared.grammar, b"re")
    assert declared.parse("red") == "red"
    assert declared.parse("2") is z.Colour.TWO
    assert accepts(lower(Choice(["one"])).grammar, b"one")


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("a b", "a b"),
        (7, "7"),
        (True, "True"),
        (0.5, "0.5"),
        (Decimal("1.50"), "1.50"),
        (date(2026, 1, 2), "2026-01-02"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        (z.Colour.TWO, "2"),
    ],
)
def test_a_choice_takes_what_has_a_text(item: object, text: str) -> None:
    """An item is written as its str, a member of an Enum as its value, and given back as it is."""
    declared = lower(Choice([item]))
    assert accepts(declared.grammar, text.encode())
    assert declared.parse(text) is item


class _Pair(enum.Enum):
    ONE = (1, 2)


@pytest.mark.parametrize("item", [None, {"a": 1}, ["a"], ("a",), b"a", int, object(), len, _Pair.ONE])
def test_a_choice_refuses_what_has_none(item: object) -> None:
    """What only repr shows, or what means a type, is no answer that a model could write."""
    with pytest.raises(OptionError, match=r"has no text of its own: .*sg\.JsonSchema"):
        Choice(["a", item])


def test_what_servers_take_around_a_schema_is_no_schema() -> None:
    """Read as a schema an envelope would allow every value; a schema that names a field 'schema' is one."""
    schema = {"type": "object", "properties": {"schema": {"type": "object"}}, "required": ["schema"]}
    assert json.loads(JsonSchema(schema).text) == schema
    envelope = {"name": "x", "description": "y", "schema": schema, "strict": True}
    for wrong in (envelope, {"type": "json_schema", "json_schema": envelope}):
        for source in (wrong, json.dumps(wrong)):
            with pytest.raises(OptionError, match=r'pass what is inside, .*\["schema"\]'):
                JsonSchema(source)


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
    assert accepts(lower(z.Node, whitespace=whitespace).grammar, spelled.encode())


def test_property_order_of_types() -> None:
    """Fields come in the order of the class, or in any order on request."""
    text = b'{"zip": 1, "city": "a"}'
    assert not accepts(lower(z.Place).grammar, text)
    assert accepts(lower(z.Place, property_order="any").grammar, text)
    with pytest.raises(OptionError, match="property_order"):
        lower(z.Place, property_order="sorted")  # type: ignore[call-overload]
    with pytest.raises(OptionError, match="Whitespace"):
        lower(z.Place, whitespace="wide")


def test_our_schema_is_no_wider_than_pydantic() -> None:
    """Keywords that pydantic itself would emit for a model are all still there."""
    ours = json.loads(lower(z.Owner).schema or "")
    theirs = TypeAdapter(z.Owner).json_schema()
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
