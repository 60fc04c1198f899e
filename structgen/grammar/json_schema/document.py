"""A JSON Schema document: JSON pointers, `$ref` targets, and typed reading of keyword values.

Left out: remote documents, `$dynamicRef`, and references to a `$anchor` or through a nested `$id`; these
are refused by name.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from urllib.parse import quote, unquote

from structgen.errors import GrammarSyntaxError, LimitError, OptionError, UnsupportedSchemaError, shown

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
Schema = bool | dict[str, JsonValue]
SchemaSource = Mapping[str, JsonValue] | bool | str
"""A schema as data, or as JSON text."""

MAX_INTEGER_DIGITS = 1_000
"""Most digits of an integer in a schema; Python itself reads no integer of over 4,300."""

_INDEX = re.compile("0|[1-9][0-9]{0,8}")
_DIALECTS = (
    "json-schema.org/draft/2020-12/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft-06/schema",
)


def schema_text(source: SchemaSource) -> str:
    """Return a schema as JSON text with its keys in their order.

    Raises:
        GrammarSyntaxError: the text is no JSON, or the data is nothing that JSON can say.
        UnsupportedSchemaError: it is JSON, but no schema.
        LimitError: it is nested too deeply, or holds an integer of very many digits.
        OptionError: it is neither data nor text.
    """
    return json.dumps(parse_schema(source), ensure_ascii=False)


def parse_schema(source: SchemaSource) -> Schema:
    """Return the schema as plain JSON data, read from a text or copied from a mapping.

    Raises:
        GrammarSyntaxError: the text is no JSON, or the data is nothing that JSON can say.
        UnsupportedSchemaError: it is JSON, but no schema.
        LimitError: it is nested too deeply, or holds an integer of very many digits.
        OptionError: it is neither data nor text.
    """
    if not isinstance(source, Mapping | bool | str):
        raise OptionError(f"a schema is a dict, a boolean or JSON text, not {type(source).__name__}")
    try:
        data = dict(source) if isinstance(source, Mapping) else source
        parsed = json.loads(
            data if isinstance(data, str) else json.dumps(data),
            object_pairs_hook=_object,
            parse_int=_integer,
        )
        text = json.dumps(parsed, ensure_ascii=False)
    except json.JSONDecodeError as error:
        raise GrammarSyntaxError(f"the schema is not JSON: {error.msg}", error.lineno, error.colno) from None
    except (TypeError, ValueError) as error:
        # Python's own message about long integers tells to change a setting of the interpreter.
        reason = f"an integer of over {MAX_INTEGER_DIGITS} digits" if "digits" in str(error) else str(error)
        raise GrammarSyntaxError(f"the schema holds what JSON cannot say: {reason}") from None
    except RecursionError:
        raise nested_too_deeply() from None
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
    if len(found) < len(pairs):
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


class Document:
    """One schema document, addressed by JSON pointers in URI fragment form (``#/properties/a``)."""

    def __init__(self, root: Schema) -> None:
        """Check the dialect."""
        self.root = root
        self._known: dict[str, JsonValue] = {}
        self.identifier = ""
        self.is_old = False
        if isinstance(root, dict):
            dialect = root.get("$schema", "https://" + _DIALECTS[0])
            if str(dialect).rstrip("#").split("://")[-1] not in _DIALECTS:
                raise UnsupportedSchemaError("#", "$schema", f"names a dialect that is not read here: {dialect!r}")
            self.is_old = "draft-0" in str(dialect)
            self.identifier = str(root.get("$id", ""))

    def schema(self, pointer: str) -> Schema:
        """Return the subschema at a pointer."""
        found = self.value(pointer)
        if not isinstance(found, bool | dict):
            parent, _, keyword = pointer.rpartition("/")
            raise UnsupportedSchemaError(parent or "#", unescape(keyword), "must hold a schema: an object or a boolean")
        return found

    def value(self, pointer: str) -> JsonValue:
        """Return whatever stands at a pointer.

        Raises:
            UnsupportedSchemaError: there is nothing.
        """
        # Subschemas are asked for from the outside in, so nearly always the parent is known.
        parent = pointer.rpartition("/")[0]
        parts = pointer[len(parent) :].split("/")[1:] if parent in self._known else pointer.split("/")[1:]
        at = self._known.get(parent, self.root)
        for part in parts:
            key = unescape(part)
            if isinstance(at, dict) and key in at:
                at = at[key]
            elif isinstance(at, list) and _INDEX.fullmatch(key) and int(key) < len(at):
                at = at[int(key)]
            else:
                raise UnsupportedSchemaError(pointer, "$ref", "points to nothing in this document")
        self._known[pointer] = at
        return at

    def resolve(self, pointer: str, reference: JsonValue) -> str:
        """Return the pointer that a `$ref` at a pointer means."""
        if not isinstance(reference, str):
            raise UnsupportedSchemaError(pointer, "$ref", "must be a string")
        base, _, fragment = reference.partition("#")
        if base and base != self.identifier.rstrip("#"):
            raise UnsupportedSchemaError(
                pointer, "$ref", f"points out of the document ({reference!r}); move the target into $defs"
            )
        if fragment and not fragment.startswith("/"):
            raise UnsupportedSchemaError(
                pointer, "$ref", f"names an anchor ({reference!r}); write a JSON pointer such as '#/$defs/name'"
            )
        target = "#" + "".join("/" + escape(unescape(part)) for part in fragment.split("/")[1:])
        try:
            self.value(target)
        except UnsupportedSchemaError:
            raise UnsupportedSchemaError(
                pointer, "$ref", f"points to nothing in this document ({reference!r})"
            ) from None
        self._refuse_nested_identifiers(pointer, target)
        return target

    def _refuse_nested_identifiers(self, *pointers: str) -> None:
        """A nested `$id` changes what references inside it mean."""
        for pointer in pointers:
            parts = pointer.split("/")
            for length in range(2, len(parts) + 1):
                at = self.value("/".join(parts[:length]))
                if isinstance(at, dict) and isinstance(at.get("$id"), str) and parts[length - 2] != "properties":
                    raise UnsupportedSchemaError(
                        "/".join(parts[:length]), "$id", "below the root changes what $ref means; remove it"
                    )


def escape(key: str) -> str:
    """Return a key as one part of a JSON pointer in URI fragment form."""
    return quote(key.replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@-._")


def unescape(part: str) -> str:
    """Return the key that one part of a JSON pointer stands for."""
    return unquote(part).replace("~1", "/").replace("~0", "~")


def child(pointer: str, *keys: str | int) -> str:
    """Return the pointer of something inside what a pointer names."""
    return pointer + "".join("/" + escape(str(key)) for key in keys)


class Reader:
    """Typed access to the keywords of one subschema; a value of the wrong kind is an error with the pointer."""

    def __init__(self, schema: Mapping[str, JsonValue], pointer: str) -> None:
        """Keep where the subschema stands, for messages."""
        self.schema = schema
        self.pointer = pointer

    def __contains__(self, keyword: str) -> bool:
        """Tell whether the keyword is there."""
        return keyword in self.schema

    def refuse(self, keyword: str, reason: str) -> UnsupportedSchemaError:
        """Return the error that refuses a keyword here."""
        return UnsupportedSchemaError(self.pointer, keyword, reason)

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
