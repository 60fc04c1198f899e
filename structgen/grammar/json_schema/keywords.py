"""Every JSON Schema keyword that is known here and what becomes of it; the documentation is made from this.

A keyword that is in no row is refused by name, except names that begin with ``x-``, which are annotations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from structgen.errors import UnsupportedSchemaError

Status = Literal["exact", "partly", "annotation", "refused"]


class Keyword(NamedTuple):
    """One row: what becomes of a keyword, and what to know about it."""

    status: Status
    note: str


KEYWORDS: dict[str, Keyword] = {
    "type": Keyword("exact", "one name or several; integers are written without a fraction"),
    "enum": Keyword("exact", "each value in the spelling of json.dumps(ensure_ascii=False)"),
    "const": Keyword("exact", "as enum with one value"),
    "$ref": Keyword("partly", "JSON pointers into the document, with siblings, recursive; no anchors"),
    "$defs": Keyword("exact", "a place for subschemas"),
    "definitions": Keyword("exact", "a place for subschemas"),
    "allOf": Keyword("exact", "the intersection"),
    "anyOf": Keyword("exact", "the union"),
    "oneOf": Keyword("partly", "where the branches are disjoint or their complements are exact"),
    "not": Keyword("partly", "where the complement is exact"),
    "if": Keyword("partly", "where the complement of the condition is exact"),
    "then": Keyword("partly", "see if"),
    "else": Keyword("partly", "see if"),
    "minLength": Keyword("exact", "counts decoded code points"),
    "maxLength": Keyword("exact", "counts decoded code points"),
    "pattern": Keyword("partly", "regular ECMA-262 patterns, search semantics, on the decoded text"),
    "format": Keyword("partly", "an assertion; see the table of formats; a format that is not listed is refused"),
    "minimum": Keyword("exact", "as decimal numbers"),
    "maximum": Keyword("exact", "as decimal numbers"),
    "exclusiveMinimum": Keyword("exact", "as decimal numbers; the boolean of draft 4 is refused"),
    "exclusiveMaximum": Keyword("exact", "as decimal numbers; the boolean of draft 4 is refused"),
    "multipleOf": Keyword("exact", "of the exact decimal value, written without exponent"),
    "items": Keyword("exact", "the items after prefixItems; the array form of old drafts is refused"),
    "prefixItems": Keyword("exact", "positional; minItems makes positions mandatory"),
    "minItems": Keyword("exact", "counted, not unrolled"),
    "maxItems": Keyword("exact", "counted, not unrolled"),
    "contains": Keyword("partly", "once per array; with maxItems up to 32"),
    "minContains": Keyword("partly", "0 and 1; up to 256 where no other keyword bounds the array"),
    "uniqueItems": Keyword("partly", "items out of at most 8 values"),
    "properties": Keyword("exact", "in declared order, or in any order on request"),
    "required": Keyword("exact", "names without a schema follow the declared ones"),
    "additionalProperties": Keyword("exact", "after the declared ones"),
    "patternProperties": Keyword("partly", "keys compare decoded"),
    "propertyNames": Keyword("exact", "keys compare decoded"),
    "minProperties": Keyword("partly", "where open keys need to supply at most one"),
    "maxProperties": Keyword("exact", "a repeated key counts each time, so none is needed"),
    "dependentRequired": Keyword("exact", ""),
    "dependentSchemas": Keyword("exact", ""),
    "title": Keyword("annotation", ""),
    "description": Keyword("annotation", ""),
    "default": Keyword("annotation", ""),
    "examples": Keyword("annotation", ""),
    "example": Keyword("annotation", "of OpenAPI"),
    "deprecated": Keyword("annotation", ""),
    "readOnly": Keyword("annotation", ""),
    "writeOnly": Keyword("annotation", ""),
    "contentEncoding": Keyword("annotation", "as the standard says"),
    "contentMediaType": Keyword("annotation", "as the standard says"),
    "contentSchema": Keyword("annotation", "as the standard says"),
    "discriminator": Keyword("annotation", "of OpenAPI; oneOf and anyOf say the same"),
    "externalDocs": Keyword("annotation", "of OpenAPI"),
    "xml": Keyword("annotation", "of OpenAPI"),
    "$schema": Keyword("partly", "2020-12, 2019-09, draft 7, draft 6; what an old one reads otherwise is refused"),
    "$id": Keyword("partly", "of the root; where a $ref passes a nested one it is refused"),
    "$comment": Keyword("annotation", ""),
    "$anchor": Keyword("annotation", "a $ref to it is refused"),
    "$dynamicAnchor": Keyword("annotation", "a $dynamicRef to it is refused"),
    "$vocabulary": Keyword("annotation", "belongs to meta-schemas"),
    "maxContains": Keyword("refused", "is not supported"),
    "unevaluatedItems": Keyword("refused", "depends on what other branches saw; use items: false"),
    "unevaluatedProperties": Keyword("refused", "depends on what other branches saw; use additionalProperties: false"),
    "$dynamicRef": Keyword("refused", "depends on the path of evaluation; use $ref"),
    "$recursiveRef": Keyword("refused", "depends on the path of evaluation; use $ref"),
    "$recursiveAnchor": Keyword("refused", "depends on the path of evaluation; use $ref"),
    "additionalItems": Keyword("refused", "is of old drafts; use prefixItems and items"),
    "dependencies": Keyword("refused", "is of old drafts; use dependentRequired or dependentSchemas"),
    "nullable": Keyword("refused", "is of OpenAPI 3.0; write type: [..., 'null']"),
    "extends": Keyword("refused", "is of draft 3; use allOf"),
    "disallow": Keyword("refused", "is of draft 3; use not"),
    "divisibleBy": Keyword("refused", "is of draft 3; use multipleOf"),
}


HOLDS: dict[str, Literal["schema", "list", "map"]] = {
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), "list"),
    **dict.fromkeys(("$defs", "definitions", "properties", "patternProperties", "dependentSchemas"), "map"),
    **dict.fromkeys(("not", "if", "then", "else", "items", "contains", "contentSchema"), "schema"),
    **dict.fromkeys(("additionalProperties", "propertyNames"), "schema"),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "additionalItems"), "schema"),
    "dependencies": "map",
}
"""The keywords that hold subschemas: one, a list of them, or one per name."""

OWN = {
    "x-structgen-digits": "at most {0} digits before the point, {1} after it, {2} in all",
    "x-structgen-exponent": "an exponent of at most {0} digits",
    "x-structgen-set": "equal items may be written where they cannot be excluded; they do no harm",
}
"""Our own keywords, which schemas of Python types use, in words; the fields are their values."""

NEWER = {"prefixItems", "minContains", "dependentRequired", "dependentSchemas"}
_UNKNOWN = Keyword("annotation", "")


def check_keyword(pointer: str, name: str) -> None:
    """Raise UnsupportedSchemaError for a keyword that would change the language and is not handled."""
    if name.startswith("x-"):
        return
    row = KEYWORDS.get(name)
    if row is None:
        raise UnsupportedSchemaError(pointer, name, "is not a keyword that is known here; remove it or name it x-...")
    if row.status == "refused":
        raise UnsupportedSchemaError(pointer, name, row.note)


def check_old_dialect(pointer: str, names: Iterable[str]) -> None:
    """Raise UnsupportedSchemaError for what drafts 6 and 7 read otherwise than 2020-12 does."""
    present = set(names)
    for name in sorted(present & NEWER):
        raise UnsupportedSchemaError(pointer, name, "is newer than the $schema of this document; use 2020-12")
    places = {"$ref", "$defs", "definitions", "$schema", "$id"}
    beside = [name for name in sorted(present - places) if KEYWORDS.get(name, _UNKNOWN).status != "annotation"]
    if "$ref" in present and beside:
        raise UnsupportedSchemaError(pointer, "$ref", f"hides {beside[0]!r} in this $schema; use 2020-12 or allOf")


def status_of(name: str) -> Literal["exact", "annotation"]:
    """Return what becomes of a keyword that is not refused."""
    if name in OWN:
        return "exact"
    return "annotation" if KEYWORDS.get(name, _UNKNOWN).status == "annotation" else "exact"


def own_words(name: str, value: object) -> str:
    """Return what one of our own keywords says, "" for any other keyword."""
    return OWN.get(name, "").format(*(value if isinstance(value, list) else [value]))


def keyword_table() -> str:
    """Return the table of keywords in Markdown."""
    lines = ["| keyword | becomes | notes |", "|---|---|---|"]
    lines += [f"| `{name}` | {row.status} | {row.note} |" for name, row in KEYWORDS.items()]
    return "\n".join(lines)
