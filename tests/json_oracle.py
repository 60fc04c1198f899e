"""Independent truth for JSON Schema: jsonschema with strict readers and format checks, and words of a grammar.

`verdict` says what the standard says of a text; `sample` draws a word of an ir.Grammar by a random derivation.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import math
import random
import re
import uuid
import warnings
from collections.abc import Callable
from email.headerregistry import Address
from typing import Any

import idna
import jsonschema
import numpy as np

from structgen.grammar import ir
from structgen.grammar.dfa import Dfa

FORMATS = jsonschema.FormatChecker(formats=())


def _check(name: str) -> Callable[[Callable[[str], object]], Callable[[str], object]]:
    def register(function: Callable[[str], object]) -> Callable[[str], object]:
        FORMATS.checks(name, raises=ValueError)(lambda value: not isinstance(value, str) or bool(function(value)))
        return function

    return register


@_check("date")
def is_date(text: str) -> bool:
    """Check by datetime and the shape of the text."""
    datetime.date.fromisoformat(text)
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None


@_check("time")
def is_time(text: str) -> bool:
    """Check by datetime; the offset must be there. A second 60 must be the one after 23:59:59 in UTC."""
    found = re.fullmatch(r"(\d\d:\d\d:)(\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", text.upper(), re.ASCII)
    if found is None:
        return False
    clock = datetime.time.fromisoformat(found[1] + ("59" if found[2] == "60" else found[2]) + found[3])
    moment = datetime.datetime.combine(datetime.date(2000, 1, 2), clock).astimezone(datetime.UTC)
    return found[2] != "60" or (moment.hour, moment.minute) == (23, 59)


@_check("date-time")
def is_date_time(text: str) -> bool:
    """Check the date and the time apart."""
    day, _, clock = text.upper().partition("T")
    return is_date(day) and is_time(clock)


@_check("uuid")
def is_uuid(text: str) -> bool:
    """Check by uuid; hyphens must stand where they belong."""
    return str(uuid.UUID(text)) == text.lower()


@_check("ipv4")
def is_ipv4(text: str) -> bool:
    """Check by ipaddress."""
    return bool(ipaddress.IPv4Address(text)) or text == "0.0.0.0"


@_check("ipv6")
def is_ipv6(text: str) -> bool:
    """Check by ipaddress; no zone."""
    ipaddress.IPv6Address(text)
    return "%" not in text


@_check("hostname")
def is_hostname(text: str) -> bool:
    """Check the labels one by one."""
    labels = text.split(".")
    return len(text) <= 253 and all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", label) for label in labels)


@_check("idn-hostname")
def is_idn_hostname(text: str) -> bool:
    """Check by the package idna, whose errors are ValueErrors."""
    return len(idna.encode(text)) <= 253 and not text.endswith(".")


@_check("email")
def is_email(text: str) -> bool:
    """Check by the parser of email headers, and the lengths by hand."""
    if Address(addr_spec=text).addr_spec != text:
        return False
    local, _, domain = text.rpartition("@")
    return len(local) <= 64 and len(text) <= 254 and (domain.startswith("[") or is_hostname(domain))


@_check("idn-email")
def is_idn_email(text: str) -> bool:
    """Check the part before the @ by its bytes, the part after it as a hostname."""
    local, _, domain = text.rpartition("@")
    if len(local.encode()) > 64 or re.search(r"""^\.|\.\.|\.$|[\x00- "(),:;<>@\[\\\]\x7f]""", local):
        return False
    return local != "" and (domain.startswith("[") or is_hostname(domain) or is_idn_hostname(domain))


@_check("uri")
def is_uri(text: str) -> bool:
    """Check characters, percent signs, and the parts that urllib finds."""
    return text.isascii() and is_iri(text)


@_check("uri-reference")
def is_uri_reference(text: str) -> bool:
    """Check the same, the scheme left open."""
    return text.isascii() and is_iri_reference(text)


@_check("iri")
def is_iri(text: str) -> bool:
    """Check that there is a scheme before all else."""
    return re.match("[A-Za-z][A-Za-z0-9+.-]*:", text) is not None and is_iri_reference(text)


@_check("iri-reference")
def is_iri_reference(text: str) -> bool:
    """Check characters, percent signs, and the parts by the expression of RFC 3986, appendix B."""
    if re.search(r"""%(?![0-9A-Fa-f]{2})|[\x00- "<>\\^`{|}\x7f-\x9f]|#.*#""", text):
        return False
    found = re.fullmatch(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", text)
    if found is None or any("[" in (found[part] or "") or "]" in (found[part] or "") for part in (1, 3, 4, 5)):
        return False
    if found[1] is not None and not re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", found[1]):
        return False
    user, _, host = (found[2] or "").rpartition("@")
    host = re.sub(":[0-9]*$", "", host) if not host.endswith("]") else host
    if host.startswith("[") and host.endswith("]"):
        return "[" not in user and (bool(re.match(r"\[[vV][0-9A-Fa-f]+\.", host)) or is_ipv6(host[1:-1]))
    return not re.search("[:@\\[\\]]", host) and not re.search("[@\\[\\]]", user)


@_check("regex")
def is_regex(text: str) -> bool:
    """Check by `re`, whose errors are made ValueErrors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return re.compile(text) is not None
        except re.error as error:
            raise ValueError(text) from error


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def verdict(schema: Any, text: str) -> bool:
    """Return whether a text is strict JSON and its value satisfies a schema."""
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique_pairs)
        text.encode()
    except ValueError:
        return False
    return is_valid(schema, value)


def is_valid(schema: Any, value: Any) -> bool:
    """Return whether a value satisfies a schema, formats asserted."""
    return jsonschema.Draft202012Validator(schema, format_checker=FORMATS).is_valid(value)


def render(value: Any, *, style: str = "spaced") -> str:
    """Return a value as JSON text in one of our styles."""
    if style == "pretty":
        return json.dumps(value, ensure_ascii=False, indent=2)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":") if style == "compact" else (", ", ": "))


def sample(grammar: ir.Grammar, rng: random.Random, *, depth: int = 6) -> bytes:
    """Return a random word of a grammar; below `depth` rules it takes the shortest way out."""
    return _Sampler(grammar, rng).draw(ir.Reference(grammar.start), depth)


class _Sampler:
    def __init__(self, grammar: ir.Grammar, rng: random.Random) -> None:
        self.grammar = grammar
        self.rng = rng
        self.cost = dict.fromkeys(grammar.rules, math.inf)
        before: dict[str, float] = {}
        while before != self.cost:
            before = dict(self.cost)
            self.cost = {name: 1 + self.height(body) for name, body in grammar.rules.items()}

    def height(self, expr: ir.Expr) -> float:
        match expr:
            case ir.Reference(name=name):
                return self.cost[name]
            case ir.Choice(options=options):
                return min((self.height(option) for option in options), default=math.inf)
            case ir.Repeat(minimum=0):
                return 0
            case ir.Repeat(item=item):
                return self.height(item)
            case ir.Sequence(items=items):
                return max(self.height(item) for item in items)
            case _:
                return 0

    def draw(self, expr: ir.Expr, depth: int) -> bytes:
        match expr:
            case ir.Reference(name=name):
                return self.draw(self.grammar.rules[name], depth - 1)
            case ir.Choice(options=options):
                least = min(self.height(option) for option in options)
                open_ones = [option for option in options if self.height(option) <= max(depth, least)]
                return self.draw(self.rng.choice(open_ones), depth)
            case ir.Sequence(items=items):
                return b"".join(self.draw(item, depth) for item in items)
            case ir.Repeat():
                return self.repeat(expr, depth)
            case ir.Lexeme():
                return word(expr, self.rng)
            case ir.Literal(text=text):
                return text

    def repeat(self, expr: ir.Repeat, depth: int) -> bytes:
        most = expr.minimum + 3 if expr.maximum is None else min(expr.maximum, expr.minimum + 3)
        count = expr.minimum if self.height(expr.item) > depth else self.rng.randint(expr.minimum, most)
        items = [self.draw(expr.item, depth) for _ in range(count)]
        gaps = [b"" if expr.separator is None else self.draw(expr.separator, depth) for _ in items[1:]]
        return b"".join(gap + item for gap, item in zip([b"", *gaps], items, strict=False)) if items else b""


def word(lexeme: ir.Lexeme, rng: random.Random) -> bytes:
    """Return a random word of a lexeme: a walk that turns home after a while, redrawn until the length fits."""
    dfa = lexeme.dfa
    distance = _distances(dfa)
    low, high = lexeme.min_length, lexeme.max_length
    for attempt in range(2000):
        wander = rng.randint(0, 6 + attempt // 20) + low
        state, ticks, text = 0, 0, bytearray()
        while not (dfa.accepting[state] and (len(text) >= wander or not np.any(dfa.delta[state] >= 0))):
            choices = np.flatnonzero(dfa.delta[state] >= 0)
            if len(text) >= wander:
                choices = choices[distance[dfa.delta[state][choices]] < distance[state]]
            byte = int(rng.choice(choices.tolist()))
            ticks += bool(dfa.tick_bytes[state, byte])
            state = int(dfa.delta[state, byte])
            text.append(byte)
        if low <= ticks and (high is None or ticks <= high):
            return bytes(text)
    raise AssertionError(f"no word found for {lexeme.name}")


def _distances(dfa: Dfa) -> np.ndarray:
    found = np.where(dfa.accepting, 0, dfa.num_states + 1)
    for _ in range(dfa.num_states):
        ahead = np.where(dfa.delta >= 0, found[dfa.delta], dfa.num_states + 1).min(axis=1)
        then = np.minimum(found, ahead + 1)
        if np.array_equal(then, found):
            break
        found = then
    return found
