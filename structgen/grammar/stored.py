"""A grammar as text that can be kept and read back, for records of runs; equal grammars give equal texts.

What is read may come from anywhere: it is data, bounded in size, and held to the spec of the IR. Left out: caches,
which are keyed by the shorter canonical text (canonical.py).
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np

from structgen.errors import OptionError, StructgenError
from structgen.grammar.dfa import Dfa
from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence
from structgen.grammar.table import column_classes

_FORMAT = 1
# A text may not unpack to more than this; the largest grammars of the benchmark take some MB.
_MAX_BYTES = 256 << 20
_MAX_STATES = 1 << 20


def grammar_to_text(grammar: Grammar) -> str:
    """Return the grammar as printable text."""
    dfas: dict[Dfa, int] = {}
    rules = {name: _plain(body, dfas) for name, body in sorted(grammar.rules.items())}
    data = {"format": _FORMAT, "start": grammar.start, "rules": rules, "dfas": [_plain_dfa(dfa) for dfa in dfas]}
    packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode("ascii"), level=6)
    return base64.b85encode(packed).decode("ascii")


def grammar_from_text(text: str) -> Grammar:
    """Return the grammar of a text that `grammar_to_text` made.

    Raises:
        OptionError: it is no such text.
    """
    try:
        unpack = zlib.decompressobj()
        data = json.loads(unpack.decompress(base64.b85decode(text), _MAX_BYTES))
        if data["format"] != _FORMAT:
            raise OptionError(f"the grammar of this record has format {data['format']!r}; this version reads {_FORMAT}")
        dfas = [_dfa(plain) for plain in data["dfas"]]
        rules = {name: _expr(body, dfas) for name, body in data["rules"].items()}
        return Grammar(rules, data["start"])
    except OptionError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
        zlib.error,
        StructgenError,
    ) as error:
        raise OptionError("the grammar of this record is damaged: store the record as to_json gave it") from error


def _plain(expr: Expr, dfas: dict[Dfa, int]) -> list[Any]:
    match expr:
        case Literal(text=text):
            return ["=", text.hex()]
        case Lexeme(dfa=dfa, min_length=low, max_length=high, free_text=free_text, name=name):
            return ["<", dfas.setdefault(dfa, len(dfas)), low, high, free_text, name]
        case Sequence(items=items):
            return ["(", *(_plain(item, dfas) for item in items)]
        case Choice(options=options):
            return ["[", *(_plain(option, dfas) for option in options)]
        case Repeat(item=item, minimum=low, maximum=high, separator=separator):
            return ["{", _plain(item, dfas), low, high, None if separator is None else _plain(separator, dfas)]
        case Reference(name=name):
            return ["@", name]


def _expr(plain: Any, dfas: list[Dfa]) -> Expr:
    kind, *parts = plain
    match kind, parts:
        case "=", [str(text)]:
            return Literal(bytes.fromhex(text))
        case "<", [int(number), int(low), None | int() as high, bool(free_text), str(name)]:
            return Lexeme(dfas[number], low, high, free_text, name)
        case "(", _:
            return Sequence(tuple(_expr(part, dfas) for part in parts))
        case "[", _:
            return Choice(tuple(_expr(part, dfas) for part in parts))
        case "{", [item, int(low), None | int() as high, separator]:
            return Repeat(_expr(item, dfas), low, high, None if separator is None else _expr(separator, dfas))
        case "@", [str(name)]:
            return Reference(name)
    raise ValueError(f"{kind!r} begins no expression")


def _plain_dfa(dfa: Dfa) -> dict[str, Any]:
    """Return a DFA over the classes of its bytes, which are a few dozen."""
    first, byte_class = column_classes(dfa.delta, dfa.tick_bytes)
    return {
        "classes": byte_class.tolist(),
        "table": dfa.delta[:, first].tolist(),
        "accepting": np.flatnonzero(dfa.accepting).tolist(),
        "ticks": [np.flatnonzero(row).tolist() for row in dfa.tick_bytes[:, first]],
    }


def _dfa(plain: Any) -> Dfa:
    byte_class = np.asarray(plain["classes"], dtype=np.int64)
    table = np.asarray(plain["table"], dtype=np.int64)
    if byte_class.shape != (256,) or table.ndim != 2 or not 1 <= len(table) <= _MAX_STATES:
        raise ValueError("no table of a DFA")
    if table.min() < -1 or table.max() >= len(table) or byte_class.min() < 0:
        raise ValueError("a state or a class that is not there")
    accepting, ticks = np.zeros(len(table), np.bool_), np.zeros(table.shape, np.bool_)
    accepting[plain["accepting"]] = True
    for row, columns in zip(ticks, plain["ticks"], strict=True):
        row[columns] = True
    return Dfa.build(table[:, byte_class], accepting, ticks[:, byte_class] & (table[:, byte_class] >= 0))
