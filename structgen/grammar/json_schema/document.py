"""A JSON Schema as data: reading it, JSON pointers into it, and typed reading of keyword values.

Left out: what a draft (`dialects`) or an identifier (`resources`) means.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import quote, unquote

from structgen.errors import GrammarSyntaxError, LimitError, OptionError, UnsupportedSchemaError, shown
from structgen.grammar.json_schema.keywords import HOLDS

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
Schema = bool | dict[str, JsonValue]
SchemaSource = Mapping[str, JsonValue] | bool | str
"""A schema as data, or as JSON text."""

MAX_INTEGER_DIGITS = 1_000
"""Most digits of an integer in a schema; Python itself reads no integer of over 4,300."""


def read_schema(source: SchemaSource) -> tuple[Schema, str]:
    """Return a schema as plain JSON data, which nobody changes, and as JSON text with its keys in their order.

    Raises:
        GrammarSyntaxError: the text is no JSON, or the data is nothing that JSON can say.
        UnsupportedSchemaError: it is JSON, but no schema.
        LimitError: it is nested too deeply, or holds an integer of very many digits.
        OptionError: it is neither data nor text.
    """
    if not isinstance(source, str | bool | Mapping):
        raise OptionError(f"a schema is a dict, a boolean or JSON text, not {type(source).__name__}")
    try:
        if isinstance(source, str):
            return _read_text(source)
        text = json.dumps(dict(source) if isinstance(source, Mapping) else source, ensure_ascii=False)
        return _checked(_parsed(text), text), text  # json.dumps would write the same again
    except (TypeError, ValueError) as error:
        # Python's own message about long integers tells to change a setting of the interpreter.
        reason = f"an integer of over {MAX_INTEGER_DIGITS} digits" if "digits" in str(error) else str(error)
        raise GrammarSyntaxError(f"the schema holds what JSON cannot say: {reason}") from None
    except RecursionError:
        raise nested_too_deeply() from None


@lru_cache(maxsize=4)
def _read_text(source: str) -> tuple[Schema, str]:
    """Do as read_schema does with a text."""
    parsed = _parsed(source)
    text = json.dumps(parsed, ensure_ascii=False)
    return _checked(parsed, text), text


@lru_cache(maxsize=4)
def _parsed(source: str) -> JsonValue:
    """Return what a text says; a schema is declared first and compiled then."""
    try:
        parsed: JsonValue = json.loads(source, object_pairs_hook=_object, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise GrammarSyntaxError(f"the schema is not JSON: {error.msg}", error.lineno, error.colno) from None
    return parsed


def _checked(parsed: JsonValue, text: str) -> Schema:
    """Return what a text says if it is a schema."""
    if not isinstance(parsed, bool | dict):
        raise UnsupportedSchemaError("#", "schema", f"must be an object or a boolean, not {type(parsed).__name__}")
    if not _is_text(text):
        _refuse_surrogates(parsed)
    return parsed


def nested_too_deeply() -> LimitError:
    """Return the error for a schema that Python's stack is too small for."""
    return LimitError("the schema is nested too deeply; move parts of it into $defs", "depth", sys.getrecursionlimit())


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise GrammarSyntaxError(f"the schema has the key {twice!r} twice in one object; remove one of them")
    return found


def _integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        raise LimitError(
            f"the schema holds an integer of over {MAX_INTEGER_DIGITS} digits; use a smaller one", "digits", len(digits)
        )
    return int(digits)


def _is_text(text: str) -> bool:
    """Tell whether a string can be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_surrogates(root: JsonValue) -> None:
    """Raise UnsupportedSchemaError where a key or a string of the schema is no text."""
    waiting: list[tuple[JsonValue, str, str]] = [(root, "#", "schema")]
    while waiting:
        value, pointer, keyword = waiting.pop()
        if isinstance(value, str) and not _is_text(value):
            raise UnsupportedSchemaError(
                pointer, keyword, f"holds a lone surrogate, which no text can hold: {shown(value)}"
            )
        if isinstance(value, list):
            inside = child(pointer, keyword)
            for index, item in enumerate(value):
                waiting.append((item, pointer, keyword) if isinstance(item, str) else (item, inside, str(index)))
        elif isinstance(value, dict):
            inside = pointer if value is root else child(pointer, keyword)
            waiting += [(key, inside if value is root else pointer, keyword) for key in value]
            waiting += [(item, inside, key) for key, item in value.items() if _is_text(key)]


@lru_cache(maxsize=4096)
def escape(key: str) -> str:
    """Return a key as one part of a JSON pointer in URI fragment form."""
    return quote(key.replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@-._")


def unescape(part: str) -> str:
    """Return the key that one part of a JSON pointer stands for."""
    return part if part.isalnum() else unquote(part).replace("~1", "/").replace("~0", "~")


def child(pointer: str, *keys: str | int) -> str:
    """Return the pointer of something inside what a pointer names."""
    for key in keys:
        pointer = f"{pointer}/{escape(str(key))}"
    return pointer


def held(pointer: str, name: str, value: JsonValue) -> list[tuple[str, JsonValue]]:
    """Return what stands where a keyword holds subschemas, with the pointers; not all of it need be a schema.

    Args:
        pointer: of the subschema that the keyword is in.
        name: the keyword.
        value: its value.
    """
    found = subschemas(name, value)
    if not found:
        return []
    at = child(pointer, name)
    if isinstance(value, list):
        return [(child(at, index), item) for index, item in enumerate(found)]
    if isinstance(value, dict) and HOLDS[name] == "map":
        return [(child(at, key), item) for key, item in value.items()]
    return [(at, value)]


def subschemas(name: str, value: JsonValue) -> list[JsonValue]:
    """Return what stands where a keyword holds subschemas; not all of it need be a schema."""
    match HOLDS.get(name), value:
        case ("list" | "schema", list()):
            return value
        case ("map", dict()):
            return list(value.values())
        case ("schema", dict()):
            return [value]
        case _:
            return []


class Reader:
    """Typed access to the keywords of one subschema; a value of the wrong kind is an error with the pointer."""

    def __init__(
        self, schema: Mapping[str, JsonValue], pointer: str, places: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Keep where the subschema stands.

        Args:
            schema: its keywords, as one of 2020-12.
            pointer: of the subschema.
            places: the keywords that the document spells otherwise, and how.
        """
        self.schema = schema
        self.pointer = pointer
        self._places = places

    def place(self, keyword: str, *keys: str | int) -> str:
        """Return the pointer of what a keyword holds, or of something inside it."""
        return child(self.pointer, self._places.get(keyword, keyword), *keys)

    def __contains__(self, keyword: str) -> bool:
        """Tell whether the keyword is there."""
        return keyword in self.schema

    def refuse(self, keyword: str, reason: str) -> UnsupportedSchemaError:
        """Return the error that refuses a keyword here."""
        return UnsupportedSchemaError(self.pointer, self._places.get(keyword, keyword), reason)

    def count(self, keyword: str, default: int | None = None) -> int | None:
        """Return a non-negative integer."""
        value = self.schema.get(keyword)
        if value is None and keyword not in self.schema:
            return default
        # 1.0 and 1e2 are integers in the standard; 1e999 reads as infinity, which int() does not take.
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refuse(keyword, "must be a non-negative integer")
        return value

    def number(self, keyword: str) -> int | float | None:
        """Return a number, None where the keyword is missing."""
        value = self.schema.get(keyword)
        if keyword not in self.schema:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
            raise self.refuse(keyword, "must be a finite number")
        return value

    def text(self, keyword: str) -> str | None:
        """Return a string, None where the keyword is missing."""
        value = self.schema.get(keyword)
        if keyword not in self.schema:
            return None
        if not isinstance(value, str):
            raise self.refuse(keyword, "must be a string")
        return value

    def mapping(self, keyword: str) -> dict[str, JsonValue]:
        """Return an object, empty where the keyword is missing."""
        value = self.schema.get(keyword, {})
        if not isinstance(value, dict):
            raise self.refuse(keyword, "must be an object")
        return value

    def items(self, keyword: str) -> list[JsonValue]:
        """Return an array, empty where the keyword is missing."""
        value = self.schema.get(keyword, [])
        if not isinstance(value, list):
            raise self.refuse(keyword, "must be an array")
        return value

    def names(self, keyword: str) -> tuple[str, ...]:
        """Return an array of strings, each once, empty where the keyword is missing."""
        found: dict[str, None] = {}
        for value in self.items(keyword):
            if not isinstance(value, str):
                raise self.refuse(keyword, "must be an array of strings")
            found[value] = None
        return tuple(found)
