"""format: each accepts what is valid and nothing else, by checks that know nothing of our patterns."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from json_cases import check, table
from json_oracle import FORMATS, sample
from oracle.recognise import accepts
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.json_schema.formats import FORMATS as TABLE


def _format(name: str) -> dict[str, str]:
    return {"type": "string", "format": name}


@table(
    (
        "date",
        _format("date"),
        ['"2000-02-29"', '"2024-12-31"', '"0001-01-01"'],
        ['"1900-02-29"', '"2023-04-31"', '"2023-13-01"', '"0000-01-01"', '"2023-1-1"'],
    ),
    (
        "time",
        _format("time"),
        ['"23:59:59Z"', '"00:00:00.25+01:30"'],
        ['"24:00:00Z"', '"10:00:60Z"', '"10:00:00"', '"10:00Z"'],
    ),
    (
        "date-time",
        _format("date-time"),
        ['"2020-02-29T08:30:00.5-05:00"', '"1999-01-01T00:00:00Z"'],
        ['"2020-02-29"', '"2021-02-29T08:30:00Z"', '"2020-02-29T25:30:00Z"', '"2020-02-29T08:30:00"'],
    ),
    (
        "uuid",
        _format("uuid"),
        ['"0aB1c2d3-0000-4000-8000-0123456789ef"'],
        ['"0ab1c2d3000040008000-0123456789ef"', '"x"'],
    ),
    ("ipv4", _format("ipv4"), ['"0.10.200.255"'], ['"256.0.0.1"', '"1.2.3"', '"01.2.3.4"']),
    (
        "ipv6",
        _format("ipv6"),
        ['"::"', '"1:2:3:4:5:6:7:8"', '"fe80::1"', '"::ffff:1.2.3.4"', '"1:2:3:4:5:6:1.2.3.4"', '"1::8"'],
        ['"1:2:3"', '"1::2::3"', '":::"', '"12345::"', '"1:2:3:4:5:6:7:8:9"', '"::1.2.3.256"'],
    ),
    (
        "hostname",
        _format("hostname"),
        ['"a.b-c.example"', '"localhost"', '"3com.com"'],
        ['"-a"', '"a-"', '"a..b"', '""', '"a_b"'],
    ),
)
def test_formats(schema: Any, words: list[str], others: list[str]) -> None:
    """Formats are assertions."""
    check(schema, words, others)


@pytest.mark.parametrize(
    ("name", "words", "others"),
    [
        (
            "email",
            ["anna.b+x@mail.example.org"],
            ["a@b", "@b.de", "a b@c.de", "a..b@c.de", ".a@c.de", "a@c.test", "a@-c.de"],
        ),
        (
            "uri",
            ["https://a.example/c?d=1#e", "ftp://x.y/%20"],
            ["//a.b", "a.b", "http://a b", "http://", "http://a.b/%2"],
        ),
        ("duration", ["P1Y2M3DT4H5M6S", "PT1S", "P2W"], ["P", "PT", "1D", "P1S", "PT1D", "P1YT", "P1W2D"]),
        ("json-pointer", ["", "/a~1b/0", '/q\\"é'], ["a", "/~2", "/~"]),
    ],
)
def test_formats_without_a_checker(name: str, words: list[str], others: list[str]) -> None:
    """Formats for which no checker is installed are held to examples of their standards."""
    grammar = lower_schema(_format(name))
    assert [text for text in words if not accepts(grammar, f'"{text}"'.encode())] == []
    assert [text for text in others if accepts(grammar, f'"{text}"'.encode())] == []


@pytest.mark.parametrize("name", [name for name in TABLE if name in FORMATS.checkers])
def test_words_of_a_format_pass_its_checker(name: str) -> None:
    """Random words of each format are valid."""
    grammar = lower_schema(_format(name))
    rng = random.Random(name)
    for _ in range(60):
        text = sample(grammar, rng).decode().strip('"')
        assert FORMATS.conforms(text, name), text


@given(st.datetimes(timezones=st.just(datetime.timezone(datetime.timedelta(hours=2)))))
def test_every_moment_is_a_date_time(moment: datetime.datetime) -> None:
    """What datetime writes is accepted, for every day of the calendar."""
    assert accepts(lower_schema(_format("date-time")), f'"{moment.isoformat()}"'.encode())


@given(st.ip_addresses(v=6))
def test_every_address_is_an_ipv6(address: Any) -> None:
    """What ipaddress writes is accepted, short and long."""
    for text in (str(address), address.exploded):
        assert accepts(lower_schema(_format("ipv6")), f'"{text}"'.encode())


@pytest.mark.parametrize(("name", "output_type"), [("duration", datetime.timedelta), ("date-time", datetime.datetime)])
def test_words_of_a_format_are_read_by_pydantic(name: str, output_type: type) -> None:
    """Random words of a format are values of its Python type."""
    grammar = lower_schema(_format(name))
    rng = random.Random(name)
    for _ in range(60):
        TypeAdapter(output_type).validate_json(sample(grammar, rng))
