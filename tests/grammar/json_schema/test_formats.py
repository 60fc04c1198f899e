"""format: each accepts what is valid and nothing else, by checks that know nothing of our patterns."""

from __future__ import annotations

import datetime
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, AwareDatetime, Field, TypeAdapter

import structgen as sg
from json_cases import check, table
from json_oracle import FORMATS, sample
from oracle.recognise import accepts
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.json_schema import format_tables, lower_schema
from structgen.grammar.json_schema.formats import FORMATS as TABLE
from structgen.grammar.json_schema.formats import all_patterns, format_shape

_TABLES = Path(format_tables.__file__).with_name(format_tables.FILE)


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
        ['"24:00:00Z"', '"10:00:60Z"', '"23:59:60+01:00"', '"10:00:00"', '"10:00Z"'],
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


@table(
    ("an unknown format", _format("color"), ['"red"', '""'], ["5"]),
    ("an unknown format of a number", {"type": "integer", "format": "int64"}, ["5"], ['"5"']),
    ("not a date", {"type": "string", "not": {"format": "date"}}, ['"2023-02-29"', '""'], ['"2024-02-29"']),
    (
        "not a hostname",
        {"type": "string", "not": {"format": "hostname"}},
        ['"-a"', '"a..b"', f'"{"a" * 64}"'],
        ['"a.b"', f'"{"a" * 63}"'],
    ),
    (
        "a date or else short",
        {"type": "string", "oneOf": [{"format": "date"}, {"maxLength": 5}]},
        ['"2024-02-29"', '"abc"'],
        ['"2024-02-30"', '"abcdef"'],
    ),
)
def test_formats_among_other_keywords(schema: Any, words: list[str], others: list[str]) -> None:
    """A format that is not known asserts nothing; a known one can be negated where its greatest language is known."""
    check(schema, words, others)


def test_what_may_be_valid_is_in_no_complement() -> None:
    """The year 0 and odd leap seconds are not written as dates and times, and not as what is none either."""
    for name, text in [("date", "0000-02-29"), ("time", "12:34:60+07:11"), ("hostname", "xn--a")]:
        assert not accepts(lower_schema(_format(name)), f'"{text}"'.encode())
        assert not accepts(lower_schema({"type": "string", "not": {"format": name}}), f'"{text}"'.encode())


EXAMPLES: list[tuple[str, list[str], list[str]]] = [
    (
        "time",
        ["23:59:60Z", "08:59:60.5+09:00", "00:29:60-23:30", "08:30:06z", "00:00:00.0000000000Z"],
        ["23:58:60Z", "23:59:60+01:00", "23:59:61Z", "12:00:00+24:00", "12:00:00.Z", "12:00:00Z "],
    ),
    (
        "date-time",
        ["1998-12-31T23:59:60Z", "1998-12-31T15:59:60.123-08:00", "1963-06-19t08:30:06.283185z"],
        ["1998-12-31 23:59:59Z", "1998-12-31T23:58:60Z", "1998-12-31T23:59:60+01:00"],
    ),
    ("duration", ["P1Y2M3DT4H5M6S", "PT1S", "P2W", "P" + "9" * 40 + "D"], ["P", "PT", "1D", "P1S", "PT1D", "P1W2D"]),
    ("hostname", ["a" * 63 + ".b", "a--b", ".".join(["a" * 62] * 4)], ["a" * 64, "xn--a", "ab--c", "a.", ".a"]),
    ("hostname", [".".join(["a" * 50] * 4 + ["a" * 49])], [".".join(["a" * 50] * 5), ".".join(["a" * 51] * 5)]),
    (
        "idn-hostname",
        ["실례.테스트", "παράδειγμα.com", "a。b", "אבג.example", "host-name", "ß"],
        ["a..b", "〮실례", "-a", "0a.אבג", "aא", "ä" * 60, "", "a b"],
    ),
    (
        "email",
        ["anna.b+x@mail.example.org", "te~st@example.com", "a@[127.0.0.1]", "a@[IPv6:::1]", "a" * 64 + "@b"],
        ["@b.de", "a b@c.de", "a..b@c.de", ".a@c.de", "a.@c.de", "a@-c.de", "a@[127.0.0.300]", "a" * 65 + "@b"],
    ),
    ("email", ["a@" + ".".join(["b" * 62] * 4)], ["ab@" + ".".join(["b" * 62] * 4) + "c", "a@b@c", "a@", "a"]),
    ("idn-email", ["δοκιμή@example.com", "a@실례.테스트", "𝕏@a.b"], ["2962", "a＠b.c", "a b@c.d", "é" * 17 + "@b"]),
    (
        "uri",
        ["https://a.example/c?d=1#e", "urn:a:b", "mailto:a@b.c", "ldap://[2001:db8::7]/c?d", "a:", "file:///etc"],
        ["//a.b", "a.b", "http://a b", "http://a.b/%2", "http:/[::1]", "1a:b", "http://[::01.2.3.4]", "a://b:c", "é:a"],
    ),
    ("uri-reference", ["", "a", "//", "?q", "#f", "./a:b", "/a"], ["1:b", "//a@b@c/", "/[::1]", "a\\b", "é", "/%zz"]),
    ("iri", ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "a:\U00010300"], ["/abc", "âππ", "http://ƒ ", "a:\ue000", "a:\ufdd0"]),
    ("iri-reference", ["âππ", "?\ue000", ""], ["#ƒräg\\mênt", "\ue000", "#\ue000"]),
    (
        "uri-template",
        ["", "a/{term:1}/{?x,y*}{#a.b}", "{+%41}", "a'b", "%41é"],
        ["{", "{}", "a}", "{v:0}", "{v:01}", "{v:10000}", "{a,}", "{a..b}", "{,+a}", "a b", "%4"],
    ),
    ("json-pointer", ["", "/a~1b/0", '/q\\"é'], ["a", "/~2", "/~", "#/a"]),
    (
        "relative-json-pointer",
        ["0", "120/foo", "0#", "2/~0~1", "1+1/a", "0-1#"],
        ["", "/a", "-1/a", "01", "0##", "1#/a", "0/~2", "0+0"],
    ),
    (
        "regex",
        [r"^[a-z\\d_]+$", r"(a|(b|(c){2,})*?)", r"(?=a)b(?!c)(?<=d)", "", "[^-\\\\w]", r"\\u00e9\\x41\\."],
        ["(", "a)", "[", "*", "a**", "[z-a]", r"\\Z", r"\\a", "(?P<n>a)", "a{2,1}", "{1}", "(?i)a", r"\\"],
    ),
    ("mailbox", ["anna.b+x@mail.example.org"], ["a@b", "a@c.test", "a@-c.de", "a" * 65 + "@b.de"]),
    ("host-url", ["ftp://x.y/%20"], ["urn:a:b", "http://", "http://a.b/%2"]),
]


@pytest.mark.parametrize(("name", "words", "others"), EXAMPLES)
def test_examples_of_the_standards(name: str, words: list[str], others: list[str]) -> None:
    """Each format holds examples of its standard, at the edges of every count, and none of the near misses."""
    grammar = lower_schema(_format(name))
    assert [text for text in words if not accepts(grammar, f'"{text}"'.encode())] == []
    assert [text for text in others if accepts(grammar, f'"{text}"'.encode())] == []


def _texts(language: CharDfa, rng: random.Random) -> Iterator[str]:
    """Yield 100 random texts of a language: walks that turn home after a while."""
    distance = [0 if accepts_here else language.num_states for accepts_here in language.accepting]
    for _ in distance:
        for state, row in enumerate(language.table.tolist()):
            distance[state] = min([distance[state], *(distance[below] + 1 for below in row if below >= 0)])
    for _ in range(100):
        wander, state, text = rng.randint(0, 12), 0, ""
        while len(text) < wander or not language.accepting[state]:
            row = language.table[state].tolist()
            columns = [column for column, below in enumerate(row) if below >= 0]
            if len(text) >= wander:
                columns = [column for column in columns if distance[row[column]] < distance[state]]
            if not columns:
                break
            column = rng.choice(columns)
            first, last = rng.choice(language.class_set(column).ranges)
            text, state = text + chr(rng.randint(first, last)), row[column]
        if language.accepting[state]:
            yield text


@pytest.mark.parametrize("name", [name for name in TABLE if name in FORMATS.checkers])
def test_words_of_a_format_pass_its_checker(name: str) -> None:
    """Random words of each format are valid."""
    shape = format_shape(name)
    assert shape is not None
    assert shape.language is not None
    for text in _texts(shape.language, random.Random(name)):
        if shape.contains(text):
            assert FORMATS.conforms(text, name), text


def test_every_format_has_a_checker_of_its_own() -> None:
    """Formats whose words nothing checks are those whose whole grammar is a line."""
    assert set(TABLE) - set(FORMATS.checkers) == {"json-pointer", "relative-json-pointer", "uri-template", "duration"}


def test_the_file_of_tables_holds_each_pattern() -> None:
    """What is shipped are the patterns of today, and no others."""
    with np.load(_TABLES) as shipped:
        assert set(shipped) == set(map(format_tables.name_of, all_patterns())), "run scripts/build_formats.py"


@pytest.mark.slow
def test_the_file_of_tables_is_what_the_patterns_come_to() -> None:
    """The automata are those that the engine of today makes."""
    with np.load(_TABLES) as shipped, np.load(io.BytesIO(format_tables.packed_file(all_patterns()))) as fresh:
        assert all(np.array_equal(shipped[name], fresh[name]) for name in fresh), "run scripts/build_formats.py"


@given(st.datetimes(timezones=st.just(datetime.timezone(datetime.timedelta(hours=2)))))
def test_every_moment_is_a_date_time(moment: datetime.datetime) -> None:
    """What datetime writes is accepted, for every day of the calendar."""
    assert accepts(lower_schema(_format("date-time")), f'"{moment.isoformat()}"'.encode())


@given(st.ip_addresses(v=6))
def test_every_address_is_an_ipv6(address: Any) -> None:
    """What ipaddress writes is accepted, short and long."""
    for text in (str(address), address.exploded):
        assert accepts(lower_schema(_format("ipv6")), f'"{text}"'.encode())


@pytest.mark.parametrize(
    ("name", "output_type"),
    [
        ("timedelta", datetime.timedelta),
        ("aware-date-time", AwareDatetime),
        ("any-date-time", datetime.datetime),
        ("aware-time", datetime.time),
        ("date", datetime.date),
        ("host-url", AnyUrl),
    ],
)
def test_words_of_a_format_are_read_by_pydantic(name: str, output_type: Any) -> None:
    """Random words of a format are values of its Python type."""
    grammar = lower_schema(_format(name))
    rng = random.Random(name)
    for _ in range(60):
        TypeAdapter(output_type).validate_json(sample(grammar, rng))


def test_types_hold_texts_to_what_pydantic_reads() -> None:
    """An email of a type is narrower than the standard's, and a format that nothing is known of is refused there."""
    email = Annotated[str, Field(json_schema_extra={"format": "email"})]
    assert [found.status for found in sg.check(email).findings if found.keyword == "format"] == ["narrower"]
    vocabulary = sg.Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), b""], stop_ids=[256])
    for declared, legal in ((email, False), (sg.JsonSchema({"type": "string", "format": "email"}), True)):
        state = sg.compile(declared, vocabulary).start()
        state.advance(ord('"'))
        assert state.allows(ord("~")) == legal
    with pytest.raises(sg.UnsupportedTypeError, match="the format 'phone'"):
        sg.check(Annotated[str, Field(json_schema_extra={"format": "phone"})])
