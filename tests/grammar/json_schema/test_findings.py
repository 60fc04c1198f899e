"""What becomes of every keyword: each is told once, refusals are told all, and only where lowering refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.errors import DeclareError, LimitError, StructgenError, UnsatisfiableError
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.json_schema.document import child
from structgen.grammar.json_schema.findings import explain_schema
from structgen.grammar.json_schema.keywords import HOLDS, KEYWORDS, OWN

ONE = ["not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames", "contentSchema"]
ONE += ["unevaluatedItems", "unevaluatedProperties"]
LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"]
MAPS = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"]


def told(schema: Any, **options: Any) -> dict[tuple[str, str], str]:
    """Return (pointer, keyword) -> status."""
    findings = explain_schema(schema, **options)
    found = {(finding.pointer, finding.keyword): finding.status for finding in findings}
    assert len(found) == len(findings), "a keyword is told twice"
    return found


def others(schema: Any, **options: Any) -> dict[tuple[str, str], str]:
    """Return what is told of keywords that are neither exact nor annotations."""
    return {place: status for place, status in told(schema, **options).items() if status not in ("exact", "annotation")}


def keywords_of(schema: Any, pointer: str = "#") -> Iterator[tuple[str, str]]:
    """Yield each keyword of each subschema, by the list of keywords that hold some."""
    if not isinstance(schema, dict):
        return
    for name, value in schema.items():
        yield pointer, name
        at = child(pointer, name)
        if name in ONE:
            yield from keywords_of(value, at)
        elif name in LISTS and isinstance(value, list):
            for index, item in enumerate(value):
                yield from keywords_of(item, child(at, index))
        elif name in MAPS and isinstance(value, dict):
            for key, item in value.items():
                yield from keywords_of(item, child(at, key))


NAMES = st.sampled_from(["a", "b", "maxLength", "x/y"])
DATA = st.sampled_from([None, True, 1, -2.5, "a", [], {"not": 5}, {"type": "string"}, 1e300])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["null", "integer", "number", "string", "array", "object", ["string", "null"], "text", 5]),
    "enum": st.lists(DATA, max_size=3),
    "const": DATA,
    "minLength": st.integers(-1, 3),
    "maxLength": st.integers(0, 3),
    "pattern": st.sampled_from(["^a", r"\s", r"(a)\1", "[", "a.{40}$", ""]),
    "format": st.sampled_from(["date", "uuid", "color"]),
    "minimum": st.sampled_from([0, 3, "1"]),
    "maximum": st.sampled_from([2, 7.5]),
    "multipleOf": st.sampled_from([0, 2, 0.1]),
    "minItems": st.integers(0, 3),
    "maxItems": st.integers(0, 3),
    "minContains": st.sampled_from([0, 1, 2, 300]),
    "uniqueItems": st.booleans(),
    "required": st.lists(NAMES, max_size=2),
    "minProperties": st.integers(0, 3),
    "maxProperties": st.integers(0, 3),
    "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2), max_size=1),
    "$ref": st.sampled_from(["#", "#/$defs/a", "#/properties/a", "#/nowhere", "#anchor", "other.json", "#/allOf/0"]),
    "$id": st.sampled_from(["", "https://x.example/s"]),
    "$schema": st.sampled_from(
        ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
    ),
    "title": st.just("t"),
    "examples": st.just([{"not": True}]),
    "default": DATA,
    "nullable": st.booleans(),
    "maxContains": st.just(1),
    "maxLenght": st.just(1),
    "x-mine": st.just(1),
}


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    held = {
        **dict.fromkeys(ONE, inner),
        **{name: st.lists(inner, min_size=1, max_size=3) for name in LISTS},
        **{name: st.dictionaries(NAMES, inner, max_size=3) for name in MAPS},
    }
    every = {**VALUES, **held}
    return st.lists(st.sampled_from(sorted(every)), min_size=1, max_size=4, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: every[name] for name in names})
    )


SCHEMAS = st.recursive(st.booleans() | _containers(st.booleans()), _containers, max_leaves=8)


@given(SCHEMAS, st.booleans(), st.sampled_from(["declared", "any"]))
def test_each_keyword_is_told_once_and_refused_iff_lowering_refuses(schema: Any, closed: bool, order: Any) -> None:
    """On random schemas: nothing crashes, each keyword is listed, and the verdict is that of the lowering."""
    found = told(schema, closed=closed, property_order=order)
    raised: StructgenError | None = None
    try:
        lower_schema(schema, closed=closed, property_order=order)
    except StructgenError as error:
        raised = error
    statuses = set(found.values())
    assert ("refused" in statuses) == isinstance(raised, DeclareError | LimitError), raised
    assert ("unsatisfiable" in statuses) == isinstance(raised, UnsatisfiableError), raised
    assert set(keywords_of(schema)) - set(found) == set()


def test_places_are_told_apart_from_names_and_data() -> None:
    """A property called maxLength is no keyword, nor is what stands in enum, const, default or examples."""
    schema = {
        "properties": {"maxLength": {"type": "string"}, "properties": {"const": {"maxLenght": 1}}},
        "anyOf": [{"enum": [{"type": "nothing"}]}, True],
        "default": {"minimum": "x"},
        "examples": [{"not": 1}],
    }
    assert told(schema) == {
        ("#", "properties"): "exact",
        ("#", "anyOf"): "exact",
        ("#/anyOf/0", "enum"): "exact",
        ("#", "default"): "annotation",
        ("#", "examples"): "annotation",
        ("#/properties/maxLength", "type"): "exact",
        ("#/properties/properties", "const"): "exact",
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"maxLenght": 1, "x-a": 1, "nullable": True}, {("#", "maxLenght"): "ignored", ("#", "nullable"): "ignored"}),
        ({"items": {"disallow": "null"}}, {("#/items", "disallow"): "ignored"}),
        (
            {"properties": {"a": {"pattern": "("}, "b": {"format": "color", "minLength": -1}, "c": 5}},
            {
                ("#/properties/a", "pattern"): "refused",
                ("#/properties/b", "minLength"): "refused",
                ("#/properties", "c"): "refused",
            },
        ),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {("#/$defs/a", "$ref"): "refused"}),
        (
            {"anyOf": [{"$ref": "#/x"}, {"$ref": "b.json"}]},
            {("#/anyOf/0", "$ref"): "refused", ("#/anyOf/1", "$ref"): "refused"},
        ),
        ({"not": {"format": "regex"}}, {("#", "not"): "refused", ("#/not", "format"): "refused"}),
        ({"not": {"format": "date"}}, {("#/not", "format"): "narrower"}),
        ({"allOf": [{"minProperties": 5}]}, {("#/allOf/0", "minProperties"): "refused"}),
        ({"contains": {"type": "null"}, "minContains": 300}, {("#", "minContains"): "refused"}),
        ({"minimum": 0, "pattern": "a.{40}$"}, {("#", "pattern"): "refused"}),
        (
            {"$schema": "http://json-schema.org/draft-03/schema#", "maxLenght": 1},
            {("#", "$schema"): "refused", ("#", "maxLenght"): "ignored"},
        ),
        (
            {"$defs": {"a": {"type": "null"}, "b": {"maxLenght": 1}}},
            {("#/$defs/a", "type"): "unreached", ("#/$defs/b", "maxLenght"): "unreached"},
        ),
        ({"then": {"type": "null"}}, {("#/then", "type"): "unreached"}),
        ({"format": "date"}, {("#", "format"): "narrower"}),
        ({"pattern": r"^\S[^\d]*$"}, {("#", "pattern"): "narrower"}),
        ({"pattern": r"^[\s\S]\d\\s$"}, {}),
        (False, {("#", ""): "unsatisfiable"}),
        ({"enum": []}, {("#", "enum"): "unsatisfiable"}),
        (
            {"title": "t", "minimum": 3, "maximum": 2, "type": "number"},
            {("#", "minimum"): "unsatisfiable", ("#", "maximum"): "unsatisfiable", ("#", "type"): "unsatisfiable"},
        ),
        (
            {"properties": {"a": {"type": "string", "maxLength": 3, "const": 1}, "b": {}}},
            {("#/properties/a", "type"): "empty", ("#/properties/a", "const"): "empty"},
        ),
        (
            {"properties": {"a": {"type": "string"}}, "allOf": [{"properties": {"a": {"type": "null"}}}]},
            {("#/properties/a", ""): "empty", ("#/allOf/0/properties/a", ""): "empty"},
        ),
        (
            {
                "properties": {"a": {"type": "string"}},
                "anyOf": [{"properties": {"a": {"type": "null"}}}, {"required": ["b"]}],
            },
            {("#/anyOf/0/properties/a", ""): "empty"},
        ),
    ],
)
def test_statuses(schema: Any, expected: dict[tuple[str, str], str]) -> None:
    """Each status, where it belongs; all that is not listed is exact or an annotation."""
    assert others(schema) == expected


def test_unknown_keywords_may_be_referred_into() -> None:
    """A place that no keyword is known for, such as OpenAPI's components, is read through references."""
    schema = {"$ref": "#/components/schemas/X", "components": {"schemas": {"X": {"type": "string", "nullable": True}}}}
    assert told(schema) == {
        ("#", "$ref"): "exact",
        ("#", "components"): "annotation",
        ("#/components/schemas/X", "type"): "exact",
        ("#/components/schemas/X", "nullable"): "ignored",
    }


def test_our_own_keywords_are_told_in_words() -> None:
    """The keywords that Python types bring are no annotations: they say what is written."""
    (_, digits) = explain_schema({"type": "number", "x-structgen-digits": [6, 2, 8]})
    assert (digits.status, digits.advice) == ("exact", "at most 6 digits before the point, 2 after it, 8 in all")


def test_statuses_agree_with_the_table_of_keywords() -> None:
    """A keyword that the table calls exact or an annotation is called so."""
    for name, row in KEYWORDS.items():
        beside = {"items": []} if name == "additionalItems" else {}
        status = told({"allOf": [{name: "anything at all", **beside}]})["#/allOf/0", name]
        if row.status in ("annotation", "ignored"):
            assert status == row.status, name
        else:
            # No format has that name.
            assert status in ("exact", "refused", "annotation" if name == "format" else ""), name
    assert set(HOLDS) - set(KEYWORDS) == set()
    assert all(name.startswith("x-structgen-") for name in OWN)


def test_what_means_nothing_in_a_draft_is_told_as_an_annotation() -> None:
    """Beside a $ref of draft 7, too new for draft 4, of no draft at all: each with its reason."""
    draft_7, draft_4 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (7, 4))
    schema = {"$schema": draft_7, "$ref": "#/definitions/a", "definitions": {"a": {"type": "null", "mine": 1}}}
    advice = {(row.pointer, row.keyword): row.advice for row in explain_schema({**schema, "minLength": 1})}
    assert told({**schema, "minLength": 1})["#", "minLength"] == "annotation"
    assert "hidden by the $ref" in advice["#", "minLength"]
    assert "unknown here" in advice["#/definitions/a", "mine"]
    (_, newer) = explain_schema({"$schema": draft_4, "const": 1})
    assert (newer.status, newer.advice) == ("annotation", "newer than the $schema here, by which it is an annotation")


@pytest.mark.parametrize("text", ["{", "5", '{"a": 1, "a": 2}', "[" * 100_000])
def test_what_is_no_schema_is_raised(text: str) -> None:
    """Where there are no keywords to tell of, the error says why."""
    with pytest.raises(StructgenError):
        explain_schema(text)
