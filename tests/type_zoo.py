"""Output types of every kind, by hand: for each, texts that must be accepted and read, and texts that must not.

The texts keep a type from losing a part of its language; the random walks of test_round_trips.py keep it from having
too much. `value_texts` of tests/type_generator.py gives more of them by way of pydantic's own serializer.
"""

from __future__ import annotations

import collections
import datetime
import ipaddress
import pathlib
import re
import uuid
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Optional,
    Union,
)

from annotated_types import Interval, Len
from pydantic import (
    AfterValidator,
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    ByteSize,
    Field,
    HttpUrl,
    IPvAnyAddress,
    IPvAnyNetwork,
    JsonValue,
    NaiveDatetime,
    PositiveInt,
    RedisDsn,
    SecretBytes,
    SecretStr,
    StrictInt,
    StringConstraints,
    UrlConstraints,
    WebsocketUrl,
)
from pydantic.types import UUID4

import zoo_types as z
from structgen.type_names import type_name

UUID_TEXT = '"12345678-1234-4234-9234-123456789abc"'


class Specimen(NamedTuple):
    """One type.

    Attributes:
        output_type: the type.
        texts: texts of it.
        others: texts that are not of it.
        dump: what pydantic writes of a value: a text of the type, another one (a Decimal as a string, the name of a
            field for its alias), or the value itself is not of the type any more ("read differently").
    """

    output_type: Any
    texts: list[str]
    others: list[str]
    dump: Literal["the same", "another", "read differently"] = "the same"

    def __str__(self) -> str:
        """Return the name in test ids."""
        return type_name(self.output_type)


NUMBERS = [
    Specimen(int, ["3", "-1", "0"], ["3.5", "-0", "01", '"3"']),
    Specimen(float, ["3", "1e5", "0.1", "-2.5E-3"], ["1e999", "NaN", ".5"]),
    Specimen(bool, ["true", "false"], ["1", "True"]),
    Specimen(None, ["null"], ["0", '""']),
    Specimen(StrictInt, ["5"], ["5.0"]),
    Specimen(PositiveInt, ["1", "99"], ["0", "-1"]),
    Specimen(z.UserId, ["7"], ["7.5"]),
    Specimen(Annotated[int, Field(ge=3, lt=6, multiple_of=2)], ["4"], ["2", "6", "5"]),
    Specimen(Annotated[int, Interval(gt=0, le=2)], ["1", "2"], ["0", "3"]),
    Specimen(Annotated[int | None, Field(ge=3)], ["3", "null"], ["2"]),
    Specimen(Annotated[int, AfterValidator(abs)], ["-3"], ["x"]),
    Specimen(Annotated[float, Field(gt=0, le=1)], ["0.1", "1"], ["0", "-1", "1.01"]),
    Specimen(Annotated[float, Field(multiple_of=0.5, ge=-1, lt=1)], ["-0.5", "0.5"], ["0.3", "1"]),
    Specimen(Decimal, ["1.50", "0.25", "-3"], ['"."', "1e3"], dump="another"),
    Specimen(
        Annotated[Decimal, Field(max_digits=4, decimal_places=2, ge=0)],
        ["12.34", "0.25", "12"],
        ["123", "1.234", "-1"],
        dump="another",
    ),
    Specimen(
        Annotated[Decimal, Field(max_digits=2, decimal_places=2)], ["0.25"], ["1.25", "0", "0.255"], dump="another"
    ),
    Specimen(Annotated[Decimal, Field(gt=0, multiple_of=Decimal("0.5"))], ["0.5", "2"], ["0", "0.25"], dump="another"),
    Specimen(
        Annotated[Decimal, Field(ge=Decimal("0.1"), le=Decimal("9.99"))],
        ["0.1", "9.99"],
        ["0.09", "10"],
        dump="another",
    ),
    Specimen(Annotated[Decimal, Field(decimal_places=0)], ["12", "-3"], ["1.5"], dump="another"),
    Specimen(Fraction, ['"3/4"', '"-1"', '"0"'], ['"1/0"', '"3/04"', "0.5"]),
    Specimen(ByteSize, ["1024"], ["-1", '"1KB"']),
]

TEXTS = [
    Specimen(Annotated[str, Field(max_length=3)], ['"abc"', '"😀😀😀"', '"\\n"'], ['"abcd"', "abc"]),
    Specimen(Annotated[str, StringConstraints(pattern=r"^\d{2}-\w+$")], ['"12-ab"'], ['"1-ab"', '"12-"', '"१२-ab"']),
    Specimen(Annotated[str, Field(pattern=r"\bfoo\b")], ['"a foo"', '"ä foo!"'], ['"afoo"', '"a\u0301foo"']),
    Specimen(Annotated[str, Field(pattern=r"^\W$")], ['"!"', '"-"'], ['"a"', '"\u0321"']),
    Specimen(Annotated[str, Field(pattern=r"(?i)^id$")], ['"ID"', '"id"'], ['"\u0131d"']),
    Specimen(Annotated[str, Field(pattern=re.compile("b"))], ['"abc"'], ['"ac"']),
    Specimen(Annotated[str | None, Field(pattern="^a")], ['"ab"', "null"], ['"b"']),
    Specimen(Annotated[str, StringConstraints(strip_whitespace=True)], ['"a b"', '""'], ['" a"', '"a\u0085"']),
    Specimen(Annotated[str, StringConstraints(to_upper=True, max_length=2)], ['"ab"'], ['"abc"']),
    Specimen(SecretStr, ['"a"'], ["1"], dump="another"),
    Specimen(Annotated[SecretStr, Field(min_length=2)], ['"ab"'], ['"a"'], dump="another"),
    Specimen(SecretBytes, ['"a"'], ["1"], dump="another"),
    Specimen(bytes, ['"ab"', '"ü"'], ["1"]),
    Specimen(Annotated[bytes, Field(min_length=1, max_length=3)], ['"abc"'], ['""', '"abcd"', '"üü"', '"ü"']),
    Specimen(Base64Bytes, ['"YQ=="', '"+/8="', '""'], ['"YQ"', '"-_8="', '"YR=="'], dump="read differently"),
    Specimen(pathlib.Path, ['"a/b"', '""'], ["1"]),
    Specimen(pathlib.PurePosixPath, ['"/tmp"'], ["null"]),
    Specimen(uuid.UUID, [UUID_TEXT], ['"x"']),
    Specimen(UUID4, [UUID_TEXT], ['"12345678-1234-1234-9234-123456789abc"']),
    Specimen(ipaddress.IPv4Address, ['"192.168.0.1"'], ['"256.1.1.1"', '"1.2.3"', '"01.2.3.4"']),
    Specimen(ipaddress.IPv6Address, ['"::1"', '"fe80::1:2"'], ['":::"', '"1.2.3.4"']),
    Specimen(
        ipaddress.IPv4Network, ['"10.0.0.0/8"', '"10.1.2.0/23"', '"0.0.0.0/0"'], ['"10.0.0.1/8"', '"10.1.3.0/23"']
    ),
    Specimen(ipaddress.IPv6Network, ['"::/0"', '"2001:db8::/32"', '"::1/128"'], ['"2001:db8::1/32"']),
    Specimen(ipaddress.IPv4Interface, ['"10.0.0.1/8"'], ['"10.0.0.1/33"']),
    Specimen(ipaddress.IPv6Interface, ['"::1/64"'], ['"::1/129"']),
    Specimen(IPvAnyAddress, ['"1.2.3.4"', '"::"'], ['"1.2.3"']),
    Specimen(IPvAnyNetwork, ['"1.2.3.0/24"', '"1::/16"'], ['"1.2.3.4/24"']),
    Specimen(
        HttpUrl,
        ['"https://a.example/c?d=1"', '"http://localhost:80"'],
        ['"ftp://a.b"', '"https://"', '"https://1.2.3.999"'],
    ),
    Specimen(AnyUrl, ['"https://a.example"'], ['"a"']),
    Specimen(WebsocketUrl, ['"wss://a.example/x"'], ['"https://a"']),
    Specimen(RedisDsn, ['"redis://host:6379/0"'], ['"http://host"']),
    Specimen(
        Annotated[AnyUrl, UrlConstraints(allowed_schemes=["https"], max_length=12)],
        ['"https://a.bc"'],
        ['"http://a"', '"https://a.bcd"'],
        dump="another",
    ),
]

TIMES = [
    Specimen(datetime.date, ['"2000-02-29"'], ['"1900-02-29"', '"2000-02-29T00:00:00"', '"0000-01-01"']),
    Specimen(
        Annotated[datetime.date, Field(ge=datetime.date(2019, 9, 30), lt=datetime.date(2024, 3, 1))],
        ['"2019-09-30"', '"2020-01-01"', '"2024-02-29"'],
        ['"2019-09-29"', '"2024-03-01"', '"1999-12-31"'],
    ),
    Specimen(Annotated[datetime.date, Field(gt=datetime.date(9999, 12, 30))], ['"9999-12-31"'], ['"9999-12-30"']),
    Specimen(datetime.time, ['"10:00:00"', '"10:00:00.5Z"'], ['"24:00:00"', '"10:00:60"']),
    Specimen(
        datetime.datetime,
        ['"2024-02-29T10:00:00"', '"2024-02-29T10:00:00.5+02:00"'],
        ['"2023-02-29T10:00:00"', '"x"'],
    ),
    Specimen(AwareDatetime, ['"2024-02-29T10:00:00Z"'], ['"2024-02-29T10:00:00"']),
    Specimen(NaiveDatetime, ['"2024-02-29T10:00:00"'], ['"2024-02-29T10:00:00Z"']),
    Specimen(datetime.timedelta, ['"P1DT2H"', '"PT0.5S"'], ['"P"', '"1 day"']),
]

LISTED = [
    Specimen(z.Colour, ['"red"', "2", "null"], ['"2"', "3", '"RED"']),
    Specimen(z.Level, ["1", "2"], ["3", '"1"']),
    Specimen(z.Odd, ['"a\\"b\\\\c"', '"ü\\n"'], ['"QUOTED"']),
    Specimen(z.Half, ["0.5", "1"], ["2", '"0.5"'], dump="another"),
    Specimen(z.Access, ["1", "2"], ["4", '"READ"']),
    Specimen(Literal["a", 1, None, True], ['"a"', "1", "null", "true"], ["false", '"1"']),
    Specimen(Literal['say "ü"\\', "\t"], ['"say \\"ü\\"\\\\"', '"\\t"'], ['"ü"']),
    Specimen(Literal[z.Odd.LINES, 5], ['"ü\\n"', "5"], ["6"]),
    Specimen(Annotated[Literal["a", "bbb"], Field(max_length=2)], ['"a"'], ['"bbb"']),
]

ARRAYS = [
    Specimen(list[int], ["[]", "[1, 2]"], ["[null]"]),
    Specimen(list, ['[1, "a", null]'], ["{}"]),
    Specimen(Sequence[int], ["[1]"], ["1"]),
    Specimen(Annotated[list[int], Field(min_length=1, max_length=2)], ["[1]", "[1, 2]"], ["[]", "[1, 2, 3]"]),
    Specimen(Annotated[list[int] | None, Len(2, 2)], ["[1, 2]", "null"], ["[1]"]),
    Specimen(Annotated[Sequence[int], Field(min_length=1)], ["[1]"], ["[]"]),
    Specimen(deque[int], ["[1, 2]"], ['["a"]']),
    Specimen(Annotated[deque[int], Field(max_length=1)], ["[1]", "[]"], ["[1, 2]"]),
    Specimen(set[int], ["[]", "[1, 2]", "[1, 1]"], ['["a"]']),
    Specimen(set, ['[1, "a", null]'], ["[[]]", "[{}]"]),
    Specimen(set[Literal["a", "b"]], ["[]", '["b", "a"]'], ['["a", "a"]']),
    Specimen(set[z.Level], ["[]", "[2, 1]"], ["[1, 1]", "[3]"]),
    Specimen(set[bool | None], ["[null, true, false]"], ["[true, true]"]),
    Specimen(set[Literal[1, True, "1"]], ['[1, "1"]', "[true]"], ["[1, true]", "[1, 1]"]),
    Specimen(set[Annotated[int, Field(ge=1, le=3)]], ["[3, 1]"], ["[1, 1]", "[4]"]),
    Specimen(
        Annotated[set[Literal[1, 2, 3]], Field(min_length=2, max_length=2)], ["[3, 1]"], ["[1]", "[1, 1]", "[1, 2, 3]"]
    ),
    Specimen(Annotated[set[Literal[1, True, 2]], Field(min_length=2)], ["[1, 2]", "[2, true]"], ["[1, true]"]),
    Specimen(Annotated[set[int], Field(min_length=1, max_length=2)], ["[5]", "[5, 6]"], ["[]", "[1, 2, 3]"]),
    Specimen(set[z.Letters], ['["j", "a"]'], ['["z"]', '["a", "a"]']),
    Specimen(set[z.Frozen], ['[{"a": 1}]'], ["[1]"]),
    Specimen(set[z.Spot], ['[{"x": 1}]'], ["[1]"]),
    Specimen(set[tuple[int, bool]], ["[[1, true]]"], ["[[1]]"]),
    Specimen(frozenset[str], ['["a"]'], ["[1]"]),
    Specimen(frozenset[z.Colour], ['["red", null]'], ['["red", "red"]']),
    Specimen(tuple[int, str], ['[1, "a"]'], ["[1]", '[1, "a", 2]', '["a", 1]']),
    Specimen(tuple[int, ...], ["[]", "[1, 2]"], ['["a"]']),
    Specimen(tuple[()], ["[]"], ["[1]"]),
    Specimen(z.Pair, ["[1]", '[1, "q"]'], ["[]", '[1, "q", 2]']),
    Specimen(z.Untyped, ['[1, "a"]'], ["[1]"]),
    Specimen(z.Numbers, ["[1, 2]"], ['{"root": [1]}']),
]

DICTS = [
    Specimen(dict[str, int], ["{}", '{"a": 1, "b": 2}'], ['{"a": "x"}']),
    Specimen(dict, ['{"a": [1]}'], ["[]"]),
    Specimen(Mapping[str, bool], ['{"a": true}'], ['{"a": 1}']),
    Specimen(dict[int, str], ['{"1": "a"}', '{"-20": "a"}'], ['{"a": "a"}', '{"01": "a"}']),
    Specimen(dict[PositiveInt, int], ['{"1": 1}'], ['{"0": 1}', '{"-1": 1}']),
    Specimen(dict[Annotated[int, Field(ge=1, lt=3)], int], ['{"1": 0, "2": 0}'], ['{"3": 0}', '{"1": 0, "1": 0}']),
    Specimen(dict[bool, int], ['{"true": 1}', '{"true": 1, "false": 2}'], ['{"x": 1}', '{"true": 1, "true": 1}']),
    Specimen(dict[Decimal, int], ['{"1.50": 1}'], ['{"x": 1}']),
    Specimen(dict[z.Colour, int], ['{"red": 1}', "{}"], ['{"blue": 1}', '{"2": 1}', '{"red": 1, "red": 2}']),
    Specimen(dict[z.Level, int], ['{"1": 1, "2": 2}', '{"2": 2}'], ['{"LOW": 1}', '{"3": 1}', '{"1": 1, "1": 2}']),
    Specimen(dict[z.Odd, int], ['{"a\\"b\\\\c": 1}'], ['{"QUOTED": 1}']),
    Specimen(dict[Literal["v", "u"], int], ['{"u": 1}', "{}", '{"v": 1, "u": 2}'], ['{"w": 1}', '{"v": 1, "v": 1}']),
    Specimen(dict[z.Level | Literal["a"], int], ['{"1": 1, "a": 2}'], ['{"b": 1}']),
    Specimen(Annotated[dict[Literal["v", "u"], int], Field(min_length=2)], ['{"v": 1, "u": 2}'], ['{"v": 1}']),
    Specimen(
        Annotated[dict[str, int], Field(min_length=1, max_length=2)], ['{"a": 1}'], ["{}", '{"a": 1, "b": 1, "c": 1}']
    ),
    Specimen(dict[Annotated[str, Field(pattern="^k")], int], ['{"k1": 1}'], ['{"b": 1}']),
    Specimen(dict[uuid.UUID, int], [f"{{{UUID_TEXT}: 1}}"], ['{"b": 1}']),
    Specimen(dict[datetime.date, int], ['{"2024-02-29": 1}'], ['{"2023-02-29": 1}']),
    Specimen(dict[ipaddress.IPv4Address, int], ['{"1.2.3.4": 1}'], ['{"1.2.3": 1}']),
    Specimen(dict[pathlib.Path, int], ['{"a/b": 1}'], ['{"a": null}']),
    Specimen(OrderedDict[z.Level, int], ['{"1": 1, "2": 2}'], ['{"3": 1}']),
    Specimen(defaultdict[str, list[int]], ['{"a": [1]}'], ['{"a": 1}']),
    Specimen(collections.Counter[str], ['{"a": 3}'], ['{"a": "x"}']),
    Specimen(z.Scores, ['{"a": null, "b": 1}'], ['{"a": "x"}']),
]

UNIONS = [
    Specimen(Optional[int], ["null", "1"], ['""']),  # noqa: UP045 - the old spelling is in use, so it is tested
    Specimen(Union[int, list[str]], ["1", '["a"]'], ["null", "[1]"]),  # noqa: UP007 - the same
    Specimen(Annotated[int, Field(ge=10)] | bool, ["10", "true"], ["9"]),
    Specimen(Decimal | Literal["many"], ["1.5", '"many"'], ['"few"'], dump="another"),
    Specimen(
        z.Owner,
        ['{"pet": {"kind": "cat", "lives": 9}}', '{"pet": {"kind": "dog"}}', '{"pet": {"kind": "wolf", "owner": "x"}}'],
        ['{"pet": {"lives": 9}}', '{"pet": {"kind": "dog", "lives": 9}}', "{}"],
    ),
    Specimen(
        Annotated[z.Aliased | z.OtherAliased, Field(discriminator="tag")],
        ['{"kindOf": "x"}', '{"kindOf": "y", "next": {"kindOf": "x"}}'],
        ['{"tag": "x"}', "{}"],
    ),
    Specimen(
        Annotated[z.Inner | z.Cat, Field(discriminator="kind")],
        ['{"kind": "in", "sort": "b", "size": 1}', '{"kind": "in", "sort": "a"}', '{"kind": "cat", "lives": 1}'],
        ['{"kind": "in", "sort": "a", "size": 1}', '{"sort": "a"}'],
    ),
    Specimen(
        Annotated[z.TaggedOdd | z.TaggedLines, Field(discriminator="tag")],
        ['{"tag": "a\\"b\\\\c"}', '{"tag": "ü\\n", "size": 1}'],
        ['{"tag": "x"}'],
    ),
    Specimen(
        Annotated[z.One | z.NoTag, Field(discriminator="tag")],
        ['{"tag": 1, "a": 2}', '{"tag": null, "b": 2}'],
        ['{"tag": 1, "b": 2}'],
    ),
    Specimen(
        list[z.Cat | z.Dog], ['[{"kind": "cat", "lives": 1}, {"kind": "dog"}]', '[{"lives": 1}]'], ['[{"kind": "x"}]']
    ),
]

OBJECTS = [
    Specimen(
        z.Node,
        ['{"value": 1, "children": [{"value": 2, "children": []}]}', '{"value": 1}'],
        ['{"children": []}', '{"value": 1, "x": 2}'],
    ),
    Specimen(z.Tree, ["{}", '{"left": {"left": null}, "named": {"a": {}}}'], ['{"left": 1}']),
    Specimen(z.Ping, ["{}", '{"pong": {"pings": [{}, {"pong": null}]}}'], ['{"pong": {}}']),
    Specimen(z.Nested, ["1", "[[1], []]"], ['["a"]']),
    Specimen(JsonValue, ['{"a": [1, null]}'], [""]),
    Specimen(Any, ['{"a": [1, null, "x"]}', "true"], [""]),
    Specimen(object, ["[]"], [""]),
    Specimen(Hashable, ['"a"', "1.5", "null"], ["[]", "{}"]),
    Specimen(z.Empty, ["{}"], ['{"a": 1}']),
    Specimen(z.LongCat, ['{"kind": "cat", "lives": 1, "metres": 0.5}', '{"lives": 1, "metres": 2}'], ['{"lives": 1}']),
    Specimen(z.Loose, ['{"a": 1, "z": [2]}', '{"a": 1}'], ["{}"]),
    Specimen(z.LooseCounts, ['{"a": "x", "z": 2}'], ['{"a": "x", "z": "y"}']),
    Specimen(
        z.LooseAliased,
        ['{"first": 1, "second": 2, "z": null}', "{}"],
        ['{"a": 1}', '{"third": 1}', '{"fourth": [1]}', '{"b": 1}'],
        dump="another",
    ),
    Specimen(z.Closed, ['{"a": 1}'], ['{"a": 1, "b": 1}']),
    Specimen(z.Stripped, ['{"a": "b c"}'], ['{"a": ""}', '{"a": " "}', '{"a": " b"}', '{"a": "b\u0085"}']),
    Specimen(
        z.Quoted,
        ['{"say \\"ü\\"\\\\": 1, "x y": 2}', '{"say \\"ü\\"\\\\": 1}'],
        ['{"a": 1}', '{"z": 1}'],
        dump="another",
    ),
    Specimen(z.ByName, ['{"a": 1}'], ['{"A": 1}'], dump="another"),
    Specimen(z.EitherName, ['{"A": 1}'], ['{"a": 1}']),
    Specimen(z.Chosen, ['{"y": 1}'], ['{"x": [1]}', '{"z": 1}', '{"a": 1}'], dump="another"),
    Specimen(z.Shouted, ['{"FOO": 1, "BAR": 2}'], ['{"foo": 1}']),
    Specimen(
        z.Strict,
        [
            f'{{"count": 1, "ratio": 2, "day": "2024-01-01", "key": {UUID_TEXT}, "level": 1, "seen": [1], '
            '"pair": [1, "a"], "data": "x", "price": 1.5, "path": "p", "host": "1.2.3.4", "ranks": {"1": 2}}'
        ],
        ["{}"],
        dump="another",
    ),
    Specimen(z.Area, ['{"side": 2}'], ['{"side": 2, "area": 4}'], dump="another"),
    Specimen(
        z.Hidden,
        ['{"name": "a", "count": 2}', '{"name": "a"}'],
        ['{"count": 2}', '{"name": "a", "_private": 1}'],
        dump="another",
    ),
    Specimen(z.Doubled, ['{"a": 2}'], ['{"a": "2"}'], dump="another"),
    Specimen(z.Described, ['{"a": 2}'], ['{"a": 2, "hint": "x"}']),
    Specimen(
        z.Bounded,
        ['{"age": 3, "name": "ab", "tags": ["a", "a"]}'],
        ['{"age": 150, "name": "a"}', '{"age": 3, "name": ""}'],
    ),
    Specimen(z.Coded, ['{"data": "YQ=="}', '{"data": "-_8="}'], ['{"data": "!"}', '{"data": "+/8="}']),
    Specimen(z.Hexed, ['{"data": "aF09"}'], ['{"data": "a"}', '{"data": "xx"}'], dump="another"),
    Specimen(z.ByPython, ['{"code": "bca"}'], ['{"code": "abc"}']),
    Specimen(z.Box[int], ['{"item": 1}', '{"item": 1, "more": [2]}'], ['{"item": "a"}']),
    Specimen(z.Box[z.Box[bool]], ['{"item": {"item": true}, "more": []}'], ['{"item": true}']),
    Specimen(z.Place, ['{"city": "a", "zip": null}', '{"city": "a"}'], ["{}", '{"zip": 1}']),
    Specimen(z.KeywordOnly, ['{"a": 1, "b": [2]}'], ['{"a": 1, "made": 2}'], dump="another"),
    Specimen(z.Seeded, ['{"seed": 1, "value": 2}'], ['{"value": 2}'], dump="another"),
    Specimen(z.Holder[int], ['{"item": 1}'], ['{"item": "a"}']),
    Specimen(z.Linked, ['{"value": 3, "next": {"value": 4, "next": null}}'], ['{"value": 2}']),
    Specimen(z.Movie, ['{"title": "a", "year": 1}', '{"title": "a", "seen": true}'], ['{"year": 1}']),
    Specimen(z.Fixed, ['{"key": 1, "note": "a"}', '{"key": 1}'], ['{"note": "a"}']),
    Specimen(z.Sealed, ['{"a": 1}'], ['{"a": 1, "b": 1}']),
    Specimen(z.Wrapped[int], ['{"item": 1}'], ['{"item": "a"}']),
]

ZOO = [*NUMBERS, *TEXTS, *TIMES, *LISTED, *ARRAYS, *DICTS, *UNIONS, *OBJECTS]
