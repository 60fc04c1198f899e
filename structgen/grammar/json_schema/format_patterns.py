"""The standards behind `format` as regular expressions in ECMA-262's syntax, each a language of whole texts.

Names follow the grammars of the RFCs. Left out: what a format writes and what it leaves to others (formats).
"""

from __future__ import annotations

from typing import NamedTuple

HEX = "[0-9A-Fa-f]"


def _groups(low: int, high: int) -> str:
    """Return between low and high groups of hexadecimal digits with colons between them."""
    if high <= 0:
        return ""
    more = f"{GROUP}(?::{GROUP}){{{max(low, 1) - 1},{high - 1}}}"
    return more if low > 0 else f"(?:{more})?"


# RFC 3339: dates, times and, in appendix A, durations.
_LEAP = "(?:0[48]|[2468][048]|[13579][26])"
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"


def _date(year: str, leap_year: str) -> str:
    return (
        f"(?:{year}-(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
        f"|{year}-(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
        f"|{year}-02-(?:0[1-9]|1[0-9]|2[0-8])"
        f"|{leap_year}-02-29)"
    )


DATE = _date(_YEAR, f"(?:[0-9]{{2}}{_LEAP}|{_LEAP}00)")
DATE_OR_YEAR_0 = _date("[0-9]{4}", f"(?:[0-9]{{2}}{_LEAP}|(?:{_LEAP}|00)00)")
_HOUR_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
OFFSET = f"(?:Z|[+-]{_HOUR_MINUTE})"
_ANY_OFFSET = f"(?:[Zz]|[+-]{_HOUR_MINUTE})"


def _hour_minute(minutes: int) -> str:
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def _leap_seconds(step: int) -> str:
    """Return the times that are 23:59:60 in UTC, for offsets that are a multiple of so many minutes."""
    day = 24 * 60
    times = [f"23:59:60{_FRACTION}(?:[Zz]|[+-]00:00)"]
    for offset in range(step, day, step):
        east, west = _hour_minute(offset), _hour_minute(day - offset)
        times.append(rf"{_hour_minute(day - 1 + offset)}:60{_FRACTION}(?:\+{east}|-{west})")
    return "|".join(times)


_PLAIN_TIME = f"{_HOUR_MINUTE}:[0-5][0-9]{_FRACTION}{_ANY_OFFSET}"
TIME = f"(?:{_PLAIN_TIME}|{_leap_seconds(30)})"
TIME_OR_ANY_60 = f"{_HOUR_MINUTE}:(?:[0-5][0-9]|60){_FRACTION}{_ANY_OFFSET}"
DATE_TIME = f"{DATE}[Tt](?:{_PLAIN_TIME}|{_leap_seconds(60)})"
DATE_TIME_OR_ANY_60 = f"{DATE_OR_YEAR_0}[Tt]{TIME_OR_ANY_60}"


def duration(number: str) -> str:
    """Return durations whose numbers are as given."""
    days = f"{number}D"
    months = f"{number}M(?:{days})?"
    years = f"{number}Y(?:{months})?"
    seconds = f"{number}S"
    minutes = f"{number}M(?:{seconds})?"
    hours = f"{number}H(?:{minutes})?"
    time = f"T(?:{hours}|{minutes}|{seconds})"
    return f"P(?:(?:{days}|{months}|{years})(?:{time})?|{time}|{number}W)"


def uuid(version: str, variant: str) -> str:
    """Return the UUIDs of RFC 9562 with these digits for version and variant."""
    return f"{HEX}{{8}}-{HEX}{{4}}-{version}{HEX}{{3}}-{variant}{HEX}{{3}}-{HEX}{{12}}"


# RFC 3986 (which has RFC 4291's text forms): addresses.
GROUP = f"{HEX}{{1,4}}"
OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"{OCTET}(?:\.{OCTET}){{3}}"
IPV6 = "|".join(
    [_groups(8, 8), f"{_groups(6, 6)}:{IPV4}"]
    + [f"{_groups(before, before)}::{_groups(0, 7 - before)}" for before in range(8)]
    + [f"{_groups(before, before)}::(?:{_groups(1, 5 - before)}:)?{IPV4}" for before in range(5)]
    + [f"{_groups(5, 5)}::{IPV4}"]
)

# RFC 1123: labels of letters, digits and inner hyphens. A label with hyphens in its third and fourth place is
# reserved (RFC 5891): such an A-label is valid only where what it encodes is, which no automaton can see.
LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_UNRESERVED_LABEL = f"(?!..--){LABEL}"
HOSTNAME = rf"{_UNRESERVED_LABEL}(?:\.{_UNRESERVED_LABEL})*"
HOSTNAME_OR_RESERVED = rf"{LABEL}(?:\.{LABEL})*"
MAX_NAME = 253

# RFC 5890 to 5893: letters that are valid in a label, are in NFC whatever stands beside them, and run one way.
_LEFT = (
    r"a-z\u00df-\u00f6\u00f8-\u00ff\u03ac-\u03ce\u0430-\u045f\u0905-\u0928\u092a-\u0930\u0935-\u0939"
    r"\u3005-\u3007\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fa5\uac00-\ud7a3"
)
_RIGHT = r"\u05d0-\u05ea\u0621-\u063a\u0641-\u064a"
_STOP = r"[.\u3002\uff0e\uff61]"
# Eleven characters of the basic plane come to at most 59 in Punycode, and four such labels to less than 253.
_LEFT_LABEL = f"[{_LEFT}][{_LEFT}0-9]{{0,10}}"
_DIGIT_LABEL = f"[{_LEFT}0-9]{{1,11}}"
_RIGHT_LABEL = f"[{_RIGHT}]{{1,11}}"
# Beside a label that runs to the left, others must not begin with a digit (RFC 5893).
_IDN = (
    f"{_DIGIT_LABEL}(?:{_STOP}{_DIGIT_LABEL}){{0,3}}"
    f"|(?:{_LEFT_LABEL}|{_RIGHT_LABEL})(?:{_STOP}(?:{_LEFT_LABEL}|{_RIGHT_LABEL})){{0,3}}"
)
IDN_HOSTNAME = f"{HOSTNAME}|{_IDN}"

# RFC 5321: mailboxes, and RFC 6531: the same with more characters.
_LITERAL = rf"\[(?:{IPV4}|IPv6:(?:{IPV6}))\]"
_ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~"
MAX_MAILBOX = 254


def _local(atext: str, longest: int) -> str:
    return rf"(?=[^@]{{1,{longest}}}@)[{atext}-]+(?:\.[{atext}-]+)*"


EMAIL = f"{_local(_ATEXT, 64)}@(?:{HOSTNAME_OR_RESERVED}|{_LITERAL})"
_MORE = r"\u{80}-\u{10ffff}"
_IDN_LOCAL = f"(?:{_local(_ATEXT, 64)}|{_local(_ATEXT + _MORE, 16)})"
IDN_EMAIL = f"{_IDN_LOCAL}@(?:{HOSTNAME_OR_RESERVED}|{_IDN}|{_LITERAL})"
WITH_AT = r"[^]*@[^]*"

# RFC 3986: URIs, and RFC 3987: the same with more characters.
_UCS = r"\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}" + "".join(
    rf"\u{{{plane:x}{first}}}-\u{{{plane:x}fffd}}"
    for plane in range(1, 15)
    for first in ["1000" if plane == 14 else "0000"]
)
_PRIVATE = r"\u{e000}-\u{f8ff}\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}"
_PERCENT = f"%{HEX}{{2}}"
_SUB_DELIMS = "!$&'()*+,;="
_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*"


class References(NamedTuple):
    """The references of one standard.

    Attributes:
        absolute: those with a scheme.
        either: those with a scheme or without.
    """

    absolute: str
    either: str


def _references(letters: str = "", private: str = "") -> References:
    """Return references in which more than ASCII may stand.

    Args:
        letters: what is unreserved beside ASCII, as the inside of a class.
        private: what a query may hold beside that.
    """
    unreserved = f"A-Za-z0-9._~{letters}"
    pchar = f"(?:[{unreserved}{_SUB_DELIMS}:@-]|{_PERCENT})"
    no_colon = f"(?:[{unreserved}{_SUB_DELIMS}@-]|{_PERCENT})"
    name = f"(?:[{unreserved}{_SUB_DELIMS}-]|{_PERCENT})*"
    user = f"(?:[{unreserved}{_SUB_DELIMS}:-]|{_PERCENT})*"
    host = rf"(?:\[(?:{IPV6}|[vV]{HEX}+\.[A-Za-z0-9._~{_SUB_DELIMS}:-]+)\]|{name})"
    authority = f"//(?:{user}@)?{host}(?::[0-9]*)?(?:/{pchar}*)*"
    rooted = f"/(?:{pchar}+(?:/{pchar}*)*)?"
    tail = rf"(?:\?(?:{pchar}|[/?{private}])*)?(?:#(?:{pchar}|[/?])*)?"
    absolute = f"{_SCHEME}:(?:{authority}|{rooted}|{pchar}+(?:/{pchar}*)*)?{tail}"
    relative = f"(?:{authority}|{rooted}|{no_colon}+(?:/{pchar}*)*)?{tail}"
    return References(absolute, f"{absolute}|{relative}")


URI = _references()
IRI = _references(_UCS, _PRIVATE)

# RFC 6570: templates. The apostrophe is by erratum 6937.
_VARCHAR = f"(?:[A-Za-z0-9_]|{_PERCENT})"
_VARIABLE = rf"{_VARCHAR}(?:\.?{_VARCHAR})*(?::[1-9][0-9]{{0,3}}|\*)?"
URI_TEMPLATE = (
    rf"(?:[!#$&'()*+,./0-9:;=?@A-Z\[\]_a-z~{_UCS}{_PRIVATE}-]|{_PERCENT}"
    rf"|\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)

# RFC 6901, and the Internet draft of relative pointers.
JSON_POINTER = "(?:/(?:[^~/]|~[01])*)*"
RELATIVE_JSON_POINTER = f"(?:0|[1-9][0-9]*)(?:[+-][1-9][0-9]*)?(?:{JSON_POINTER}|#)"


# ECMA-262, as far as Python reads it too.
_REGEX_ESCAPE = r"\\(?:[dDwWsStnrfv]|x[0-9A-Fa-f]{2}|u(?:[0-9A-Ca-cE-Fe-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}))"
_REGEX_SYNTAX = r"\\[\^$\\.*+?()\[\]{}|/]"
_REGEX_RANGE = "0-[1-9]|[0-8]-9|a-[b-z]|[a-y]-z|A-[B-Z]|[A-Y]-Z"
_REGEX_CLASS_ATOM = rf"[^\\\[\]^&~|-]|{_REGEX_ESCAPE}|{_REGEX_SYNTAX}|\\-|{_REGEX_RANGE}"
_REGEX_CLASS = rf"\[\^?-?(?:{_REGEX_CLASS_ATOM})+-?\]"
_REGEX_COUNT = "(?:[0-9]|[1-9][0-9]{1,2})"
_REGEX_QUANTIFIER = rf"(?:[*+?]|\{{(?:{_REGEX_COUNT},?|0,{_REGEX_COUNT}|1,[1-9][0-9]{{0,2}})\}})\??"
_REGEX_CHARACTER = rf"[^\^$\\.*+?()\[\]{{}}|]|{_REGEX_ESCAPE}|{_REGEX_SYNTAX}"
_REGEX_ATOM = rf"{_REGEX_CHARACTER}|\.|{_REGEX_CLASS}"
_REGEX_PLACE = rf"[\^$]|\\[bB]|\(\?<[=!](?:{_REGEX_CHARACTER})+\)"
_REGEX_TERM = rf"(?:{_REGEX_ATOM})(?:{_REGEX_QUANTIFIER})?|{_REGEX_PLACE}|\|"


def regex(depth: int) -> str:
    """Return patterns whose groups are nested at most so deep, with none in a look-ahead."""
    body = f"(?:{_REGEX_TERM})*"
    ahead = rf"\(\?[=!]{body}\)"
    for _ in range(depth):
        body = rf"(?:{_REGEX_TERM}|{ahead}|\((?:\?:)?{body}\)(?:{_REGEX_QUANTIFIER})?)*"
    return body
