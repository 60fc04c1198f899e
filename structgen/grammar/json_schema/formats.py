"""String formats, as assertions: each a regular expression that accepts nothing invalid.

Where a format is narrower than its standard the table says so; such a format is never negated. A value
that one of these accepts is also accepted by pydantic for the matching Python type (so no second 60, no
year 0000, bounded fractions and durations). Left out: formats that no row names; they are refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from structgen.grammar import regex
from structgen.grammar.chardfa import CharDfa


class Format(NamedTuple):
    """One row.

    Attributes:
        pattern: ECMA-262 pattern of the whole text.
        exact: whether that is all of the standard's language.
        note: what to know about it.
        max_length: greatest length, None where the pattern says it all.
        plain: whether its texts need no escapes, and are written without.
    """

    pattern: str
    exact: bool
    note: str
    max_length: int | None = None
    plain: bool = True


def _groups(low: int, high: int) -> str:
    """Return between low and high groups of hexadecimal digits with colons between them."""
    if high <= 0:
        return ""
    group = "[0-9A-Fa-f]{1,4}"
    more = f"{group}(?::{group}){{{max(low, 1) - 1},{high - 1}}}"
    return more if low > 0 else f"(?:{more})?"


_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP = "(?:0[48]|[2468][048]|[13579][26])"
_DATE = (
    f"(?:{_YEAR}-(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    f"|{_YEAR}-(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|{_YEAR}-02-(?:0[1-9]|1[0-9]|2[0-8])"
    f"|(?:[0-9]{{2}}{_LEAP}|{_LEAP}00)-02-29)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_OFFSET = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_N = "[0-9]{1,6}"
_DAYS = f"{_N}D"
_MONTHS = f"{_N}M(?:{_DAYS})?"
_YEARS = f"{_N}Y(?:{_MONTHS})?"
_SECONDS = f"{_N}S"
_MINUTES = f"{_N}M(?:{_SECONDS})?"
_HOURS = f"{_N}H(?:{_MINUTES})?"
_TIME = f"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_CLOCK_PART = rf"(?:T(?=[0-9])(?:{_N}H)?(?:{_N}M)?(?:{_N}(?:\.[0-9]{{1,6}})?S)?)?"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_IPV6 = "|".join(
    [_groups(8, 8), f"{_groups(6, 6)}:{_IPV4}"]
    + [f"{_groups(before, before)}::{_groups(0, 7 - before)}" for before in range(8)]
    + [f"{_groups(before, before)}::(?:{_groups(1, 5 - before)}:)?{_IPV4}" for before in range(5)]
    + [f"{_groups(5, 5)}::{_IPV4}"]
)
_HEX = "[0-9A-Fa-f]"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9]|-[A-Za-z0-9])*"
_ATOM = "[A-Za-z0-9_%+'-]"
_TOP = "[A-Za-z]{2,6}"
_NO_TOP = "(?:arpa|invalid|local|onion|test)"
_HOST = rf"(?:{_LABEL}\.)*[A-Za-z](?:[A-Za-z0-9]|-[A-Za-z0-9])*"
_PCHAR = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_URI_TAIL = rf"{_HOST}(?::[1-9][0-9]{{0,3}})?(?:/{_PCHAR}*)*(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"


_GROUP = "[0-9A-Fa-f]{1,4}"
_BITS_4 = "(?:3[0-2]|[12]?[0-9])"
_BITS_6 = "(?:12[0-8]|1[01][0-9]|[1-9]?[0-9])"
_WHOLE_15 = "(?:0|[1-9][0-9]{0,14})"


def _network_4(bits: int) -> str:
    """Return the IPv4 networks with so many bits: those after them are 0."""
    whole, part = divmod(bits, 8)
    octets = [_OCTET] * whole
    if part:
        octets.append("(?:" + "|".join(str(n) for n in range(0, 256, 1 << (8 - part))) + ")")
    return r"\.".join(octets + ["0"] * (4 - len(octets))) + f"/{bits}"


_NETWORK_4 = "|".join(_network_4(bits) for bits in range(33))
_NETWORK_6 = "|".join(
    ["::/0", f"(?:{_IPV6})/128"] + [f"{_GROUP}(?::{_GROUP}){{{n - 1}}}::/{16 * n}" for n in range(1, 8)]
)
_INTERFACE_4 = f"{_IPV4}/{_BITS_4}"
_INTERFACE_6 = f"(?:{_IPV6})/{_BITS_6}"
_QUARTETS = "(?:[{0}]{{4}})*(?:[{0}][AQgw]==|[{0}]{{2}}[AEIMQUYcgkosw048]=)?"


def _uuid(version: str, variant: str) -> str:
    return f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-{variant}{_HEX}{{3}}-{_HEX}{{12}}"


FORMATS: dict[str, Format] = {
    "date": Format(_DATE, exact=False, note="years 0001 to 9999, leap years exact"),
    "time": Format(_CLOCK + _OFFSET, exact=False, note="with offset; no second 60; at most 6 digits of fraction"),
    "date-time": Format(
        f"{_DATE}T{_CLOCK}{_OFFSET}",
        exact=False,
        note="a date, T, a time with offset; no second 60; upper case T and Z",
    ),
    "duration": Format(
        f"P(?:(?:{_DAYS}|{_MONTHS}|{_YEARS})(?:{_TIME})?|{_TIME}|{_N}W)",
        exact=False,
        note="numbers of at most 6 digits",
    ),
    "uuid": Format(_uuid(_HEX, _HEX), exact=True, note="RFC 9562, either case"),
    "ipv4": Format(_IPV4, exact=True, note="dotted quad without leading zeros"),
    "ipv6": Format(_IPV6, exact=True, note="RFC 4291 text forms, no zone"),
    "hostname": Format(
        f"{_LABEL}(?:\\.{_LABEL})*", exact=False, note="at most 63 characters, no two hyphens in a row", max_length=63
    ),
    "email": Format(
        rf"(?={_ATOM}[A-Za-z0-9_%+'.-]{{0,63}}@){_ATOM}+(?:\.{_ATOM}+)*@"
        rf"(?:[A-Za-z0-9]{{1,30}}(?:-[A-Za-z0-9]{{1,20}})?\.){{1,3}}(?!{_NO_TOP}$){_TOP}",
        exact=False,
        note="dot-atom local part, 2 to 4 labels, a top label of 2 to 6 letters that is not reserved",
    ),
    "uri": Format(
        f"[A-Za-z][A-Za-z0-9+.-]*://{_URI_TAIL}", exact=False, note="scheme://host, ASCII, ports below 10000"
    ),
    "json-pointer": Format("(?:/(?:[^~/]|~[01])*)*", exact=True, note="RFC 6901", plain=False),
}
"""The formats of JSON Schema that are asserted."""

PYTHON_FORMATS: dict[str, Format] = {
    "naive-time": Format(_CLOCK, exact=False, note="without offset"),
    "any-time": Format(f"{_CLOCK}(?:{_OFFSET})?", exact=False, note="offset optional"),
    "naive-date-time": Format(f"{_DATE}T{_CLOCK}", exact=False, note="without offset"),
    "any-date-time": Format(f"{_DATE}T{_CLOCK}(?:{_OFFSET})?", exact=False, note="offset optional"),
    "timedelta": Format(
        rf"-?P(?:(?=[0-9T])(?:{_N}Y)?(?:{_N}M)?(?:{_N}D)?{_CLOCK_PART}|{_N}W)",
        exact=False,
        note="a duration, or a negative one; at most 6 digits of a fraction",
    ),
    "http-url": Format(f"https?://{_URI_TAIL}", exact=False, note="http or https"),
    "password": Format(r"[\s\S]*", exact=True, note="any text", plain=False),
    "path": Format(r"[\s\S]*", exact=True, note="any text", plain=False),
    "binary": Format(r"[\s\S]*", exact=True, note="any text", plain=False),
    "int-key": Format("-?[1-9][0-9]{0,17}|0", exact=False, note="an integer as a key"),
    "number-key": Format(rf"-?{_WHOLE_15}(?:\.[0-9]{{1,15}})?", exact=False, note="a decimal as a key"),
    "fraction": Format("(?:-?[1-9][0-9]{0,14}|0)(?:/[1-9][0-9]{0,14})?", exact=False, note="at most 15 digits each"),
    "hex": Format(f"(?:{_HEX}{{2}})*", exact=True, note="bytes as hexadecimal digits"),
    "base64": Format(_QUARTETS.format("A-Za-z0-9+/"), exact=True, note="padded, unused bits 0"),
    "base64url": Format(_QUARTETS.format("A-Za-z0-9_-"), exact=True, note="padded, unused bits 0"),
    "ipv4network": Format(_NETWORK_4, exact=False, note="with its prefix length"),
    "ipv6network": Format(_NETWORK_6, exact=False, note="prefix lengths in steps of 16"),
    "ipv4interface": Format(_INTERFACE_4, exact=False, note="with its prefix length"),
    "ipv6interface": Format(_INTERFACE_6, exact=False, note="with its prefix length"),
    "ipvanyaddress": Format(f"{_IPV4}|{_IPV6}", exact=False, note="either version"),
    "ipvanynetwork": Format(f"{_NETWORK_4}|{_NETWORK_6}", exact=False, note="either version"),
    "ipvanyinterface": Format(f"{_INTERFACE_4}|{_INTERFACE_6}", exact=False, note="either version"),
    **{f"uuid{n}": Format(_uuid(str(n), "[89ABab]"), exact=True, note=f"version {n}") for n in range(1, 9)},
}
"""Formats that the schemas of Python types use."""


@lru_cache(maxsize=64)
def format_language(name: str) -> CharDfa | None:
    """Return the decoded texts of a format, None where it is not known."""
    row = FORMATS.get(name) or PYTHON_FORMATS.get(name)
    if row is None:
        return None
    found = regex.to_chardfa(regex.parse(row.pattern, "ecma"), mode="fullmatch")
    return found if row.max_length is None else found.bounded(0, row.max_length)


def is_plain(name: str) -> bool:
    """Tell whether the texts of a known format need no escapes and are written without any."""
    row = FORMATS.get(name) or PYTHON_FORMATS[name]
    return row.plain


def is_exact(name: str) -> bool:
    """Tell whether a known format is all of its standard's language."""
    return (FORMATS.get(name) or PYTHON_FORMATS[name]).exact


def format_table() -> str:
    """Return the table of formats in Markdown."""
    lines = ["| format | language | notes |", "|---|---|---|"]
    lines += [f"| `{name}` | {'exact' if row.exact else 'narrower'} | {row.note} |" for name, row in FORMATS.items()]
    return "\n".join(lines)
