"""String formats, as assertions: each a regular expression that accepts nothing invalid.

Where what is written is less than the standard allows, the table says so; the complement of such a format is that
of what it could be at most, or refused where that is not known. A format that no row names is an annotation. What
one of the rows for Python types accepts is also accepted by pydantic for the matching type (so no second 60, no year
0000, bounded fractions and durations). Left out: the standards' grammars (format_patterns).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from structgen.grammar.json_schema import format_patterns as patterns
from structgen.grammar.json_schema.format_patterns import DATE, HEX, IPV4, IPV6, OFFSET, uuid
from structgen.grammar.json_schema.format_tables import language
from structgen.grammar.json_schema.strings import StringShape


class Format(NamedTuple):
    """One row.

    Attributes:
        pattern: ECMA-262 pattern of the whole text.
        exact: whether that is all of the standard's language.
        note: what to know about it.
        possible: pattern of the texts that can be valid at all, "" where it is the same or not known.
        max_length: greatest number of code points, None where the pattern says it all.
        plain: whether its texts need no escapes, and are written without.
    """

    pattern: str
    exact: bool
    note: str
    possible: str = ""
    max_length: int | None = None
    plain: bool = True


FORMATS: dict[str, Format] = {
    "date": Format(
        DATE, exact=False, note="RFC 3339: years 0001 to 9999, leap years exact", possible=patterns.DATE_OR_YEAR_0
    ),
    "time": Format(
        patterns.TIME,
        exact=False,
        note="RFC 3339: with offset; second 60 only where it is 23:59:60 in UTC, and the offset in half hours",
        possible=patterns.TIME_OR_ANY_60,
    ),
    "date-time": Format(
        patterns.DATE_TIME,
        exact=False,
        note="RFC 3339: a date, T, a time; leap seconds at offsets of whole hours",
        possible=patterns.DATE_TIME_OR_ANY_60,
    ),
    "duration": Format(patterns.duration("[0-9]+"), exact=True, note="RFC 3339, appendix A"),
    "uuid": Format(uuid(HEX, HEX), exact=True, note="RFC 9562, either case"),
    "ipv4": Format(IPV4, exact=True, note="RFC 2673: dotted quad without leading zeros"),
    "ipv6": Format(IPV6, exact=True, note="RFC 4291 text forms, no zone"),
    "hostname": Format(
        patterns.HOSTNAME,
        exact=False,
        note="RFC 1123: no A-labels (`xn--`), whose validity no automaton can see",
        possible=patterns.HOSTNAME_OR_RESERVED,
        max_length=patterns.MAX_NAME,
    ),
    "idn-hostname": Format(
        patterns.IDN_HOSTNAME,
        exact=False,
        note="RFC 5890: hostnames, and up to 4 labels of 11 letters that are Latin, Greek, Cyrillic, Devanagari, Han, "
        "Kana, Hangul, Hebrew or Arabic",
        max_length=patterns.MAX_NAME,
        plain=False,
    ),
    "email": Format(
        patterns.EMAIL,
        exact=False,
        note="RFC 5321: nothing in quotes, literals only of IP addresses",
        possible=patterns.WITH_AT,
        max_length=patterns.MAX_MAILBOX,
    ),
    "idn-email": Format(
        patterns.IDN_EMAIL,
        exact=False,
        note="RFC 6531: an email, with idn-hostnames and with at most 16 characters of any script before the @",
        possible=patterns.WITH_AT,
        max_length=patterns.MAX_MAILBOX,
        plain=False,
    ),
    "uri": Format(patterns.URI.absolute, exact=True, note="RFC 3986"),
    "uri-reference": Format(patterns.URI.either, exact=True, note="RFC 3986"),
    "iri": Format(patterns.IRI.absolute, exact=True, note="RFC 3987", plain=False),
    "iri-reference": Format(patterns.IRI.either, exact=True, note="RFC 3987", plain=False),
    "uri-template": Format(patterns.URI_TEMPLATE, exact=True, note="RFC 6570, all levels", plain=False),
    "json-pointer": Format(patterns.JSON_POINTER, exact=True, note="RFC 6901", plain=False),
    "relative-json-pointer": Format(patterns.RELATIVE_JSON_POINTER, exact=True, note="the Internet draft", plain=False),
    "regex": Format(
        patterns.regex(depth=3),
        exact=False,
        note="ECMA-262, as far as Python reads it too; groups at most 3 deep, look-behind of single characters",
        plain=False,
    ),
}
"""The formats of JSON Schema that are asserted."""

_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_N = "[0-9]{1,6}"
_CLOCK_PART = rf"(?:T(?=[0-9])(?:{_N}H)?(?:{_N}M)?(?:{_N}(?:\.[0-9]{{1,6}})?S)?)?"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9]|-[A-Za-z0-9])*"
_ATOM = "[A-Za-z0-9_%+'-]"
_TOP = "[A-Za-z]{2,6}"
_NO_TOP = "(?:arpa|invalid|local|onion|test)"
_HOST = rf"(?:{_LABEL}\.)*[A-Za-z](?:[A-Za-z0-9]|-[A-Za-z0-9])*"
_PCHAR = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_URI_TAIL = rf"{_HOST}(?::[1-9][0-9]{{0,3}})?(?:/{_PCHAR}*)*(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"


_BITS_4 = "(?:3[0-2]|[12]?[0-9])"
_BITS_6 = "(?:12[0-8]|1[01][0-9]|[1-9]?[0-9])"
_WHOLE_15 = "(?:0|[1-9][0-9]{0,14})"


def _network_4(bits: int) -> str:
    """Return the IPv4 networks with so many bits: those after them are 0."""
    whole, part = divmod(bits, 8)
    octets = [patterns.OCTET] * whole
    if part:
        octets.append("(?:" + "|".join(str(n) for n in range(0, 256, 1 << (8 - part))) + ")")
    return r"\.".join(octets + ["0"] * (4 - len(octets))) + f"/{bits}"


_NETWORK_4 = "|".join(_network_4(bits) for bits in range(33))
_NETWORK_6 = "|".join(
    ["::/0", f"(?:{IPV6})/128"] + [f"{patterns.GROUP}(?::{patterns.GROUP}){{{n - 1}}}::/{16 * n}" for n in range(1, 8)]
)
_INTERFACE_4 = f"{IPV4}/{_BITS_4}"
_INTERFACE_6 = f"(?:{IPV6})/{_BITS_6}"
_QUARTETS = "(?:[{0}]{{4}})*(?:[{0}][AQgw]==|[{0}]{{2}}[AEIMQUYcgkosw048]=)?"


PYTHON_FORMATS: dict[str, Format] = {
    "naive-time": Format(_CLOCK, exact=False, note="without offset"),
    "any-time": Format(f"{_CLOCK}(?:{OFFSET})?", exact=False, note="offset optional"),
    "naive-date-time": Format(f"{DATE}T{_CLOCK}", exact=False, note="without offset"),
    "aware-time": Format(_CLOCK + OFFSET, exact=False, note="with offset; no second 60; at most 6 digits of fraction"),
    "aware-date-time": Format(f"{DATE}T{_CLOCK}{OFFSET}", exact=False, note="with offset; no second 60"),
    "any-date-time": Format(f"{DATE}T{_CLOCK}(?:{OFFSET})?", exact=False, note="offset optional"),
    "timedelta": Format(
        rf"-?P(?:(?=[0-9T])(?:{_N}Y)?(?:{_N}M)?(?:{_N}D)?{_CLOCK_PART}|{_N}W)",
        exact=False,
        note="a duration, or a negative one; at most 6 digits of a fraction",
    ),
    "mailbox": Format(
        rf"(?={_ATOM}[A-Za-z0-9_%+'.-]{{0,63}}@){_ATOM}+(?:\.{_ATOM}+)*@"
        rf"(?:[A-Za-z0-9]{{1,30}}(?:-[A-Za-z0-9]{{1,20}})?\.){{1,3}}(?!{_NO_TOP}$){_TOP}",
        exact=False,
        note="dot-atom local part, 2 to 4 labels, a top label of 2 to 6 letters that is not reserved",
    ),
    "host-url": Format(
        f"[A-Za-z][A-Za-z0-9+.-]*://{_URI_TAIL}", exact=False, note="scheme://host, ASCII, ports below 10000"
    ),
    "http-url": Format(f"https?://{_URI_TAIL}", exact=False, note="http or https"),
    "password": Format(r"[\s\S]*", exact=True, note="any text", plain=False),
    "path": Format(r"[\s\S]*", exact=True, note="any text", plain=False),
    "binary": Format(r"[\s\S]*", exact=True, note="any text", plain=False),
    "int-key": Format("-?[1-9][0-9]{0,17}|0", exact=False, note="an integer as a key"),
    "number-key": Format(rf"-?{_WHOLE_15}(?:\.[0-9]{{1,15}})?", exact=False, note="a decimal as a key"),
    "fraction": Format("(?:-?[1-9][0-9]{0,14}|0)(?:/[1-9][0-9]{0,14})?", exact=False, note="at most 15 digits each"),
    "hex": Format(f"(?:{HEX}{{2}})*", exact=True, note="bytes as hexadecimal digits"),
    "base64": Format(_QUARTETS.format("A-Za-z0-9+/"), exact=True, note="padded, unused bits 0"),
    "base64url": Format(_QUARTETS.format("A-Za-z0-9_-"), exact=True, note="padded, unused bits 0"),
    "ipv4network": Format(_NETWORK_4, exact=False, note="with its prefix length"),
    "ipv6network": Format(_NETWORK_6, exact=False, note="prefix lengths in steps of 16"),
    "ipv4interface": Format(_INTERFACE_4, exact=False, note="with its prefix length"),
    "ipv6interface": Format(_INTERFACE_6, exact=False, note="with its prefix length"),
    "ipvanyaddress": Format(f"{IPV4}|{IPV6}", exact=False, note="either version"),
    "ipvanynetwork": Format(f"{_NETWORK_4}|{_NETWORK_6}", exact=False, note="either version"),
    "ipvanyinterface": Format(f"{_INTERFACE_4}|{_INTERFACE_6}", exact=False, note="either version"),
    **{f"uuid{n}": Format(uuid(str(n), "[89ABab]"), exact=True, note=f"version {n}") for n in range(1, 9)},
}
"""Formats that the schemas of Python types use."""


@lru_cache(maxsize=64)
def format_shape(name: str) -> StringShape | None:
    """Return the decoded texts of a format, None where it is not known."""
    row = find_format(name)
    if row is None:
        return None
    return StringShape(
        language(row.pattern),
        possible=language(row.possible) if row.possible else None,
        high=row.max_length,
        exact=row.exact or bool(row.possible),
        plain=row.plain,
    )


def find_format(name: str) -> Format | None:
    """Return the row of a format, None where it is not known."""
    return FORMATS.get(name) or PYTHON_FORMATS.get(name)


def all_patterns() -> list[str]:
    """Return every pattern of a known format."""
    rows = [*FORMATS.values(), *PYTHON_FORMATS.values()]
    return list(dict.fromkeys(text for row in rows for text in (row.pattern, row.possible) if text))


def format_table() -> str:
    """Return the table of formats in Markdown."""
    lines = ["| format | language | notes |", "|---|---|---|"]
    lines += [f"| `{name}` | {'exact' if row.exact else 'narrower'} | {row.note} |" for name, row in FORMATS.items()]
    return "\n".join(lines)
