"""Subschemas that hold no other: what they admit depends on their keywords alone, so it is worked out once.

A schema says `{"type": "string"}` or the same enum in many places, and so do the schemas of one service. Left out:
whatever refers to a place in its document.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from structgen.grammar.json_schema.document import JsonValue
from structgen.grammar.json_schema.keywords import ADDRESSES, KEYWORDS, OWN
from structgen.grammar.json_schema.shapes import Values
from structgen.grammar.memo import Memo

_MAX_KEPT = 4096
_MAX_LISTED = 256
"""Longest list that is part of a key."""

_OF_SCALARS = ("type", "enum", "const", "minLength", "maxLength", "pattern", "format", "minimum", "maximum")
_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "required")
_READ = frozenset((*_OF_SCALARS, *_BOUNDS, "minProperties", "maxProperties", *OWN))
_INERT = frozenset((*ADDRESSES, *(name for name, row in KEYWORDS.items() if row.status in ("annotation", "ignored"))))

_kept: Memo[Hashable, Values] = Memo(_MAX_KEPT)


def kept_leaf(keywords: Mapping[str, JsonValue], read: Callable[[], Values]) -> Values:
    """Return what a subschema admits, read now unless one with the same keywords was read before.

    Args:
        keywords: those in force.
        read: reads it; what it raises is not kept.
    """
    key = _key(keywords)
    return read() if key is None else _kept.get(key, read)


def _key(keywords: Mapping[str, JsonValue]) -> Hashable | None:
    """Return what the values of a subschema depend on, None where that is more than its keywords, or is long."""
    found: list[Hashable] = []
    for name, value in keywords.items():
        if name in _READ:
            if isinstance(value, dict):
                return None
            if isinstance(value, list):
                if len(value) > _MAX_LISTED or any(isinstance(item, list | dict) for item in value):
                    return None
                found.append((name, tuple((type(item), item) for item in value)))
            else:
                # True is 1, and 1.0 too, for Python alone.
                found.append((name, type(value), value))
        elif name in KEYWORDS and name not in _INERT:
            return None
    return tuple(found)
