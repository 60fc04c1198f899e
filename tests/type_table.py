"""The tables of docs/types.md: what each type is written as and comes back as, and what is refused.

They drive tests/test_output_type.py and scripts/build_docs.py; the classes are those of the page's first Python block.
"""

from __future__ import annotations

import re
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parent.parent / "docs" / "types.md"


class Row(NamedTuple):
    """One type, as an expression; a text of it; the value of that text, as an expression; what to know."""

    code: str
    text: str
    value: str
    note: str = ""


class Refusal(NamedTuple):
    """One type that is refused, as an expression, and a part of the message that says why or what to do."""

    code: str
    part: str


ROWS = (
    Row("str", "any text", "'any text'", "the whole answer, without quotes; inside other types a JSON string"),
    Row("Annotated[str, Field(max_length=9)]", '"a \\"b\\""', "'a \"b\"'", "lengths count code points"),
    Row(
        'Annotated[str, Field(pattern="^[A-Z]{2}$")]',
        '"NO"',
        "'NO'",
        "searched for, as pydantic does; stripping is honoured",
    ),
    Row("int", "-12", "-12", "no fraction, no exponent; `ge`, `gt`, `le`, `lt`, `multiple_of` exact"),
    Row("float", "2.5e3", "2500.0", "finite; the exponent has at most 2 digits; bounds exact"),
    Row("bool", "true", "True"),
    Row("None", "null", "None"),
    Row("Decimal", "1.50", "Decimal('1.5')", "a number of at most 15 digits, which no reader rounds"),
    Row(
        "Annotated[Decimal, Field(max_digits=4, decimal_places=2)]",
        "12.25",
        "Decimal('12.25')",
        "digits as pydantic counts them; bounds exact",
    ),
    Row("Fraction", '"3/4"', "Fraction(3, 4)", "at most 15 digits each; no bounds"),
    Row("datetime.date", '"2024-02-29"', "datetime.date(2024, 2, 29)", "years 0001 to 9999, leap years; bounds exact"),
    Row("datetime.time", '"10:30:00"', "datetime.time(10, 30)", "offset optional; no second 60; no bounds"),
    Row(
        "datetime.datetime",
        '"2024-02-29T10:30:00"',
        "datetime.datetime(2024, 2, 29, 10, 30)",
        "offset optional; `AwareDatetime` and `NaiveDatetime` settle it; no bounds",
    ),
    Row("datetime.timedelta", '"P1DT2H"', "datetime.timedelta(days=1, hours=2)", "ISO 8601, at most 6 digits each"),
    Row(
        "uuid.UUID",
        '"12345678-1234-4234-9234-123456789abc"',
        "uuid.UUID('12345678-1234-4234-9234-123456789abc')",
        "`UUID1` to `UUID8` have their version",
    ),
    Row("pathlib.Path", '"a/b.txt"', "pathlib.Path('a/b.txt')", "any text"),
    Row("bytes", '"abc"', "b'abc'", "UTF-8; with a length ASCII only; `val_json_bytes` base64 or hex is honoured"),
    Row("Base64Bytes", '"YWJj"', "b'abc'", "padded"),
    Row("HttpUrl", '"https://a.example/b"', "HttpUrl('https://a.example/b')", "an ASCII host, ports below 10000"),
    Row(
        "ipaddress.IPv4Address",
        '"10.0.0.1"',
        "ipaddress.IPv4Address('10.0.0.1')",
        "IPv6 too; networks and interfaces with their prefix length (IPv6 networks in steps of 16)",
    ),
    Row("SecretStr", '"s3cret"', "SecretStr('s3cret')", "any text"),
    Row("ByteSize", "1024", "ByteSize(1024)", "a number of bytes, no units"),
    Row("Colour", '"red"', "Colour.RED", "the value of a member: text, number, bool or None, mixed too"),
    Row("Access", "2", "Access.WRITE", "single members, no combinations"),
    Row('Literal["a", 1, None]', "null", "None", "members of an Enum only where JSON gives them back"),
    Row("list[int]", "[1, 2]", "[1, 2]", "lengths exact; `Sequence` and `deque` alike"),
    Row("tuple[int, str]", '[1, "a"]', "(1, 'a')", "`tuple[int, ...]` as a list"),
    Row(
        'set[Literal["a", "b"]]',
        '["b", "a"]',
        "{'a', 'b'}",
        "**at most 8 possible items** (Literal, Enum, bool, small int): none is written twice; lengths exact",
    ),
    Row(
        "set[int]",
        "[3, 3, 1]",
        "{1, 3}",
        "**all other sets**: may be written twice, and are deduplicated when read; `frozenset` alike",
    ),
    Row("dict[str, int]", '{"x": 1}', "{'x': 1}", "a key may be written twice, the last one counts"),
    Row(
        "dict[Level, int]",
        '{"1": 5, "2": 6}',
        "{Level.LOW: 5, Level.HIGH: 6}",
        "Enum, Literal, bool and few int: these keys, in their order, each at most once, none required",
    ),
    Row("dict[int, bool]", '{"-3": true}', "{-3: True}", "as do date, UUID, Decimal, Path and other keys with a text"),
    Row("int | None", "null", "None"),
    Row("int | list[str]", '["a"]', "['a']", "the value is of a part of the union; pydantic chooses which"),
    Row(
        'Annotated[Cat | Dog, Field(discriminator="kind")]',
        '{"kind": "dog"}',
        "Dog(kind='dog')",
        "by the tag, which is always written",
    ),
    Row(
        "Person",
        '{"full name": "Anna"}',
        "Person(**{'full name': 'Anna'})",
        "by alias; what has a default may be left out; computed fields are not written",
    ),
    Row("Place", '{"city": "Oslo"}', "Place('Oslo')", "fields with `init=False` are not written"),
    Row("Movie", '{"title": "Alien"}', "{'title': 'Alien'}", "`Required`, `NotRequired`, `total` honoured"),
    Row("Point", "[1, 2]", "Point(1, 2)", "a NamedTuple is an array; what has a default may be left out"),
    Row("Box[int]", '{"item": 1}', "Box[int].model_construct(item=1)", "generic models, dataclasses, TypedDicts"),
    Row("Node", '{"next": {"next": null}}', "Node(next=Node())", "recursive; cut before readers give up"),
    Row("Numbers", "[1]", "Numbers([1])", "a RootModel is what it holds"),
    Row("Any", '{"a": [1]}', "{'a': [1]}", "any JSON"),
)

REFUSED = (
    Refusal("complex", "two floats"),
    Refusal("Json[int]", "the type itself"),
    Refusal("re.Pattern", "use str"),
    Refusal("ImportString", "Literal or an Enum"),
    Refusal("FilePath", "use Path"),
    Refusal("FileUrl", "use Path"),
    Refusal("Base64Str", "Base64Bytes"),
    Refusal("bytearray", "use bytes"),
    Refusal("Collection[int]", "use list"),
    Refusal("Iterable[int]", "use list"),
    Refusal("Plain", "make it a dataclass"),
    Refusal("list[Plain]", "make it a dataclass"),
    Refusal("MyStr", "use str"),
    Refusal("Place('Oslo')", "pass a type"),
    Refusal("5", "pass a type"),
    Refusal("Callable[[int], int]", "name what it returns"),
    Refusal("type", "that no text gives back"),
    Refusal("type[int]", "Enum of names"),
    Refusal("int | Callable[[], int]", "leave it out of the type"),
    Refusal("PastDate", "now_op"),
    Refusal("Annotated[datetime.datetime, Field(ge=datetime.datetime(2020, 1, 1))]", "with ge"),
    Refusal("Annotated[datetime.timedelta, Field(lt=datetime.timedelta(1))]", "with lt"),
    Refusal("Annotated[int | str, Field(gt=3)]", "write it on the type inside"),
    Refusal("Annotated[pathlib.Path, Field(max_length=3)]", "write it on the type inside"),
    Refusal("Annotated[str, Field(pattern=re.compile('b', re.IGNORECASE))]", "flags"),
    Refusal("Annotated[str, Field(pattern=r'^[a-z&&b]$')]", "without operations on classes"),
    Refusal("Annotated[str, Field(pattern=r'(?i)^\\P{L}$')]", "leave out (?i)"),
    Refusal("Annotated[SecretBytes, Field(max_length=3)]", "write it on the type inside"),
    Refusal("dict[Numbers, int]", "cannot hash"),
    Refusal("Annotated[str, StringConstraints(to_lower=True, pattern='a')]", "to_lower"),
    Refusal("Literal[b'x']", "use str, int, float, bool or None"),
    Refusal("Literal[Colour.TWO]", "use the value"),
    Refusal("Corner", "use str, int, float, bool or None"),
    Refusal("set[list[int]]", "cannot hash"),
    Refusal("set[Person]", "make the items frozen"),
    Refusal("Annotated[set[int], Field(min_length=2)]", "use list[...]"),
    Refusal("dict[tuple[int, int], str]", "a list of pairs"),
    Refusal("Annotated[dict[str, int], Field(min_length=2)]", "Literal or Enum keys"),
    Refusal("Annotated[Annotated[Cat, Tag('c')] | Annotated[Dog, Tag('d')], Discriminator(str)]", "use a field"),
    Refusal("Inside", "give it an alias"),
    Refusal("Twice", "two fields"),
    Refusal("Annotated[dict[bool | Level, int], Field(min_length=2)]", "one key"),
    Refusal("Unseen", "leave it in"),
)


def evaluated(code: str) -> Any:
    """Return what an expression of a table means."""
    return eval(code, dict(vars(_page())))


@cache
def _page() -> types.ModuleType:
    module = types.ModuleType("classes_of_types_md")
    sys.modules[module.__name__] = module
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    exec(block[1], vars(module))
    return module


def type_rows() -> str:
    """Return the table of types in Markdown."""
    lines = ["| Python type | a text | comes back as | bounds and notes |", "|---|---|---|---|"]
    lines += [f"| {_code(row.code)} | {_code(row.text)} | {_code(row.value)} | {row.note} |" for row in ROWS]
    return "\n".join(lines)


def refused_rows() -> str:
    """Return the table of what is refused in Markdown, with the messages that are given now."""
    lines = ["| not an output type | message |", "|---|---|"]
    lines += [f"| {_code(case.code)} | {_escaped(_message(case)).replace('<', '&lt;')} |" for case in REFUSED]
    return "\n".join(lines)


def _message(refusal: Refusal) -> str:
    import structgen as sg

    try:
        sg.check(evaluated(refusal.code))
    except sg.UnsupportedTypeError as error:
        return " ".join(str(error).split())
    raise LookupError(f"{refusal.code} is not refused")


def _code(text: str) -> str:
    return f"`{_escaped(text)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
