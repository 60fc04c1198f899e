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
from collections.abc import Callable
from typing import Any

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
    """Check by datetime; the offset must be there."""
    return datetime.time.fromisoformat(text).tzinfo is not None and re.match(r"\d\d:\d\d:\d\d", text) is not None


@_check("date-time")
def is_date_time(text: str) -> bool:
    """Check the date and the time apart."""
    day, _, clock = text.partition("T")
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
