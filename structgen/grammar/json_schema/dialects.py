"""The drafts of JSON Schema: which keywords each has, and what old spellings mean in the newest one.

Every subschema is read as one of 2020-12. What a draft does not have yet is an annotation in it. What a newer draft
has dropped, and given no other meaning (`items` as a list, booleans as exclusive bounds, `dependencies`), means in
every draft what it meant in its own. Left out: draft 3 and what is older, which are refused by name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal

from structgen.grammar.json_schema.document import JsonValue, Reader
from structgen.grammar.json_schema.keywords import KEYWORDS, OWN
from structgen.grammar.json_schema.misspelt import why_ignored


class Dialect(enum.IntEnum):
    """A draft, in the order of their years."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 2019
    DRAFT_2020_12 = 2020

    @property
    def identifier(self) -> str:
        """The keyword that names a schema."""
        return "id" if self == Dialect.DRAFT_4 else "$id"

    @property
    def ref_hides(self) -> bool:
        """Whether a `$ref` hides the keywords beside it."""
        return self <= Dialect.DRAFT_7


_URIS = {
    "json-schema.org/draft-04/schema": Dialect.DRAFT_4,
    "json-schema.org/draft-06/schema": Dialect.DRAFT_6,
    "json-schema.org/draft-07/schema": Dialect.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Dialect.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Dialect.DRAFT_2020_12,
    "json-schema.org/schema": Dialect.DRAFT_2020_12,
}
_SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames", "examples"), Dialect.DRAFT_6),
    **dict.fromkeys(("if", "then", "else", "$comment", "readOnly", "writeOnly"), Dialect.DRAFT_7),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), Dialect.DRAFT_7),
    **dict.fromkeys(("$defs", "$anchor", "$vocabulary", "$recursiveRef", "$recursiveAnchor"), Dialect.DRAFT_2019_09),
    **dict.fromkeys(("minContains", "maxContains", "dependentRequired", "dependentSchemas"), Dialect.DRAFT_2019_09),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), Dialect.DRAFT_2019_09),
    **dict.fromkeys(("contentSchema", "deprecated"), Dialect.DRAFT_2019_09),
    **dict.fromkeys(("prefixItems", "$dynamicRef", "$dynamicAnchor"), Dialect.DRAFT_2020_12),
}
_NEWER = {one: frozenset(name for name, since in _SINCE.items() if since > one) for one in Dialect}
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def dialect_of(named: JsonValue) -> Dialect | None:
    """Return the dialect that the value of `$schema` names, None if it is not read here."""
    if not isinstance(named, str):
        return None
    scheme, _, rest = named.removesuffix("#").partition("://")
    return _URIS.get(rest) if scheme in ("http", "https") else None


def has_keyword(dialect: Dialect, name: str) -> bool:
    """Tell whether a dialect is at least as new as a keyword."""
    return _SINCE.get(name, Dialect.DRAFT_4) <= dialect


def in_force(schema: Mapping[str, JsonValue], dialect: Dialect) -> Mapping[str, JsonValue]:
    """Return the keywords of a subschema without those that mean nothing in its dialect."""
    if "$ref" in schema and dialect.ref_hides:
        return {"$ref": schema["$ref"]}
    newer = _NEWER[dialect]
    if newer.isdisjoint(schema):
        return schema
    return {name: value for name, value in schema.items() if name not in newer}


def newest(schema: Mapping[str, JsonValue], pointer: str) -> Reader:
    """Return a subschema as one of 2020-12, of which each part still knows its place in the document.

    Args:
        schema: the keywords that are in force.
        pointer: where it stands.
    """
    read = dict(schema)
    places: dict[str, str] = {}
    for exclusive, inclusive in _BOUNDS:
        if isinstance(read.get(exclusive), bool) and read.pop(exclusive) and inclusive in read:
            read[exclusive] = read.pop(inclusive)
            places[exclusive] = inclusive
    if isinstance(read.get("items"), list) and "prefixItems" not in read:
        read["prefixItems"] = read.pop("items")
        places["prefixItems"] = "items"
        if "additionalItems" in read:
            read["items"] = read["additionalItems"]
            places["items"] = "additionalItems"
    return Reader(read, pointer, places)


def status_of(
    name: str, schema: Mapping[str, JsonValue], dialect: Dialect
) -> tuple[Literal["exact", "annotation", "ignored"], str]:
    """Return what becomes of a keyword that is not refused, and what to know about it."""
    if name not in in_force(schema, dialect):
        if dialect.ref_hides and "$ref" in schema:
            return "annotation", "hidden by the $ref beside it in this $schema"
        return "annotation", "newer than the $schema here, by which it is an annotation"
    if name in OWN:
        return "exact", ""
    if why := why_ignored(name, schema.get(name)):
        return "ignored", why
    row = KEYWORDS.get(name)
    if row is None:
        return "annotation", "" if name.startswith("x-") else "unknown here: an annotation by the standard"
    if name == "additionalItems" and not isinstance(schema.get("items"), list):
        return "annotation", "has a meaning only beside items as a list"
    return ("exact" if row.status in ("exact", "partly") else "annotation"), ""
