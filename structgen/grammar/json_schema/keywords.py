"""Every JSON Schema keyword that is known here and what becomes of it; the documentation is made from this.

A keyword that is in no row is an annotation, as the standard says; `misspelt` tells which were hardly meant as one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["exact", "partly", "annotation", "ignored"]


class Keyword(NamedTuple):
    """One row: what becomes of a keyword, and what to know about it.

    Attributes:
        status: "partly" is exact for what the note says, and refused beyond it; "ignored" is an annotation by the
            drafts that are read here, but hardly meant as one.
        note: what is exact or refused; what else an ignored one is of, and what to write instead.
    """

    status: Status
    note: str


KEYWORDS: dict[str, Keyword] = {
    "type": Keyword("exact", "one name or several; integers are written without a fraction"),
    "enum": Keyword(
        "exact", "each value as json.dumps(ensure_ascii=False) writes it; 2.0 is also 2, in any style 2 also 2.0"
    ),
    "const": Keyword("exact", "as enum with one value"),
    "$ref": Keyword("partly", "JSON pointers, anchors and identifiers, recursive; all within the document"),
    "$defs": Keyword("exact", "a place for subschemas"),
    "definitions": Keyword("exact", "a place for subschemas"),
    "allOf": Keyword("exact", "the intersection"),
    "anyOf": Keyword("exact", "the union"),
    "oneOf": Keyword("partly", "where the branches are disjoint, or as not"),
    "not": Keyword(
        "partly", "all but uniqueItems; an undeclared key that breaks a rule on values is written last of its kind"
    ),
    "if": Keyword("partly", "where then follows, the condition is negated too: see not"),
    "then": Keyword("partly", "see if"),
    "else": Keyword("partly", "see if"),
    "minLength": Keyword("exact", "counts decoded code points"),
    "maxLength": Keyword("exact", "counts decoded code points"),
    "pattern": Keyword("partly", "regular ECMA-262 patterns, search semantics, on the decoded text"),
    "format": Keyword("partly", "an assertion; see the table of formats; a format that is not listed is an annotation"),
    "minimum": Keyword("exact", "as decimal numbers"),
    "maximum": Keyword("exact", "as decimal numbers"),
    "exclusiveMinimum": Keyword("exact", "as decimal numbers; true, of draft 4, makes minimum exclusive"),
    "exclusiveMaximum": Keyword("exact", "as decimal numbers; true, of draft 4, makes maximum exclusive"),
    "multipleOf": Keyword("exact", "of the exact decimal value, written without exponent"),
    "items": Keyword("exact", "the items after prefixItems; a list, of old drafts, is read as prefixItems"),
    "additionalItems": Keyword("exact", "the items after items as a list; else it means nothing"),
    "prefixItems": Keyword("exact", "positional; minItems makes positions mandatory"),
    "minItems": Keyword("exact", "counted, not unrolled"),
    "maxItems": Keyword("exact", "counted, not unrolled"),
    "contains": Keyword("exact", "several at once too, within the limit on counts"),
    "minContains": Keyword("exact", "see contains; up to 256 where nothing else bounds the array"),
    "maxContains": Keyword("exact", "see contains"),
    "uniqueItems": Keyword(
        "partly", "items out of up to 10 scalars, or of more with a small maxItems; short tuples of different kinds"
    ),
    "properties": Keyword(
        "exact",
        "in declared order, or in any order on request: of more than 8 keys those may then be written twice that need "
        "not be there; where more than 8 are required, or keys are counted too, they keep the declared order",
    ),
    "required": Keyword(
        "exact", "names that no properties names follow the declared ones, up to 4 in any order, among other keys"
    ),
    "additionalProperties": Keyword("exact", "after the declared ones; see required"),
    "patternProperties": Keyword("partly", "see pattern; keys compare decoded"),
    "propertyNames": Keyword("exact", "keys compare decoded"),
    "minProperties": Keyword("partly", "where open keys need to supply at most one: equal keys count once"),
    "maxProperties": Keyword("exact", "a repeated key counts each time, so none is needed"),
    "dependentRequired": Keyword("exact", ""),
    "dependentSchemas": Keyword("exact", ""),
    "dependencies": Keyword("exact", "of old drafts: names as dependentRequired, schemas as dependentSchemas"),
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
    "$schema": Keyword("partly", "draft 4, 6, 7, 2019-09 or 2020-12, which is also read where there is none"),
    "$id": Keyword("exact", "what references below it begin with"),
    "id": Keyword("exact", "as $id, in draft 4 and at the root; else an annotation"),
    "$anchor": Keyword("exact", "what a reference may name"),
    "$dynamicAnchor": Keyword("exact", "what a reference may name"),
    "$recursiveAnchor": Keyword("exact", "see $recursiveRef"),
    "$dynamicRef": Keyword("partly", "where one target is possible, or the root has it; else it depends on the path"),
    "$recursiveRef": Keyword("partly", "where one target is possible, or it is the root; else it depends on the path"),
    "$comment": Keyword("annotation", ""),
    "$vocabulary": Keyword("annotation", "belongs to meta-schemas"),
    "unevaluatedItems": Keyword("exact", "what the branches that hold have looked at is told apart by cases"),
    "unevaluatedProperties": Keyword("exact", "as unevaluatedItems"),
    "nullable": Keyword("ignored", "of OpenAPI 3.0; write type: [..., 'null']"),
    "extends": Keyword("ignored", "of draft 3; use allOf"),
    "disallow": Keyword("ignored", "of draft 3; use not"),
    "divisibleBy": Keyword("ignored", "of draft 3; use multipleOf"),
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

ADDRESSES = frozenset(("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$defs", "definitions"))
"""The keywords that say where things are and how they are read, and nothing about values."""


def own_words(name: str, value: object) -> str:
    """Return what one of our own keywords says, "" for any other keyword."""
    return OWN.get(name, "").format(*(value if isinstance(value, list) else [value]))


def keyword_table() -> str:
    """Return the table of keywords in Markdown."""
    lines = ["| keyword | becomes | notes |", "|---|---|---|"]
    lines += [f"| `{name}` | {row.status} | {row.note} |" for name, row in KEYWORDS.items()]
    return "\n".join(lines)
