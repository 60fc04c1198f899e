"""Each draft is read as its own rules say: jsonschema's validator of that draft is the judge. Unknown keywords too."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import structgen as sg
from json_oracle import render
from oracle.recognise import accepts
from structgen.errors import UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar.json_schema import lower_schema, suspects
from structgen.grammar.json_schema.findings import explain_schema
from structgen.grammar.json_schema.keywords import KEYWORDS

DRAFTS = {
    "draft 4": "http://json-schema.org/draft-04/schema#",
    "draft 6": "http://json-schema.org/draft-06/schema#",
    "draft 7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}
OLD = ["draft 4", "draft 6", "draft 7"]
INTEGER, STRING = {"type": "integer"}, {"type": "string"}


def is_valid(schema: Any, value: Any, draft: str) -> bool:
    """Return what jsonschema says, by the rules of a draft."""
    return jsonschema.validators.validator_for({"$schema": DRAFTS[draft]})(schema).is_valid(value)


def agree(schema: dict[str, Any], values: list[Any], draft: str, *, declared: bool = True) -> None:
    """Hold the grammar to jsonschema, the draft named in the schema or not."""
    named = {"$schema": DRAFTS[draft], **schema} if declared else schema
    try:
        grammar = lower_schema(named, property_order="any")
    except UnsatisfiableError:
        grammar = None
    for value in values:
        is_word = grammar is not None and accepts(grammar, render(value).encode())
        assert is_word == is_valid(schema, value, draft), json.dumps(value)


NUMBERS = [0, 1, 2, 2.5, 3, -1]
LISTS = [[], [1], ["a"], [1, "a"], [1, 1], [1, "a", None], [1, "a", 2]]
OBJECTS = [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": "x"}, {"a": None}, 7]
HIDDEN = {"$ref": "#/definitions/i", "minimum": 2, "type": "string", "definitions": {"i": INTEGER}}


@pytest.mark.parametrize(
    ("draft", "schema", "values"),
    [
        ("draft 4", {"minimum": 1, "exclusiveMinimum": True}, NUMBERS),
        ("draft 4", {"minimum": 1, "exclusiveMinimum": False}, NUMBERS),
        ("draft 4", {"maximum": 2, "exclusiveMaximum": True, "type": "number"}, NUMBERS),
        ("draft 4", {"exclusiveMaximum": True}, NUMBERS),
        *((draft, {"items": [INTEGER, STRING]}, LISTS) for draft in [*OLD, "2019-09"]),
        *((draft, {"items": [INTEGER, STRING], "additionalItems": False}, LISTS) for draft in [*OLD, "2019-09"]),
        *((draft, {"items": [INTEGER], "additionalItems": STRING}, LISTS) for draft in [*OLD, "2019-09"]),
        *((draft, {"items": INTEGER, "additionalItems": False}, LISTS) for draft in [*OLD, "2019-09"]),
        *((draft, {"additionalItems": False}, LISTS) for draft in [*OLD, "2019-09"]),
        *((draft, {"dependencies": {"a": ["b"]}}, OBJECTS) for draft in OLD),
        *((draft, {"dependencies": {"a": {"properties": {"b": INTEGER}}}}, OBJECTS) for draft in OLD),
        ("draft 7", {"dependencies": {"a": False, "b": True}}, OBJECTS),
        *((draft, HIDDEN, NUMBERS) for draft in OLD),
        ("2019-09", {"$ref": "#/$defs/i", "minimum": 2, "$defs": {"i": INTEGER}}, NUMBERS),
        ("draft 4", {"const": 1, "contains": INTEGER, "propertyNames": {"maxLength": 0}}, [1, 2, [], ["a"], {"a": 1}]),
        ("draft 6", {"if": INTEGER, "then": {"minimum": 2}, "else": False}, NUMBERS),
        ("draft 7", {"if": INTEGER, "then": {"minimum": 2}}, NUMBERS),
        ("draft 7", {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": False}}, OBJECTS),
        ("draft 7", {"prefixItems": [STRING], "contains": INTEGER, "minContains": 2}, LISTS),
        ("draft 7", {"unevaluatedProperties": False, "unevaluatedItems": False, "maxContains": 0}, [*LISTS, *OBJECTS]),
        ("2019-09", {"prefixItems": [STRING], "minContains": 2, "contains": INTEGER}, LISTS),
        ("2020-12", {"prefixItems": [INTEGER], "items": STRING, "additionalItems": False}, LISTS),
        ("2020-12", {"items": INTEGER, "id": "x", "mine": {"type": 5}, "components": [{"not": {}}]}, LISTS),
    ],
)  # fmt: skip
def test_spellings_of_each_draft(draft: str, schema: dict[str, Any], values: list[Any]) -> None:
    """What a draft spells otherwise, hides, or does not have yet, is what its own validator makes of it."""
    agree(schema, values, draft)


@pytest.mark.parametrize(
    ("schema", "values", "draft"),
    [
        ({"items": [INTEGER, STRING], "additionalItems": False}, LISTS, "draft 7"),
        ({"items": [INTEGER], "minItems": 2}, LISTS, "draft 7"),
        ({"minimum": 1, "exclusiveMinimum": True, "maximum": 3, "exclusiveMaximum": False}, NUMBERS, "draft 4"),
        ({"dependencies": {"a": ["b"], "b": {"properties": {"a": {"minimum": 2}}}}}, OBJECTS, "draft 7"),
    ],
)
@pytest.mark.parametrize("newest", [{}, {"$schema": DRAFTS["2020-12"]}, {"$schema": "http://json-schema.org/schema#"}])
def test_old_spellings_without_their_draft(
    schema: dict[str, Any], values: list[Any], draft: str, newest: dict[str, Any]
) -> None:
    """Where the newest draft has no other meaning for it, a spelling means what it did in its own draft."""
    agree({**newest, **schema}, values, draft, declared=False)


@pytest.mark.parametrize("uri", ["http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema#"])
def test_a_dialect_is_known_by_any_spelling_of_its_name(uri: str) -> None:
    """With or without an empty fragment, by http or https."""
    grammar = lower_schema({"$schema": uri, "items": [INTEGER], "additionalItems": False})
    assert accepts(grammar, b"[1]")
    assert not accepts(grammar, b"[1, 2]")


def test_an_embedded_resource_has_a_dialect_of_its_own() -> None:
    """Below an identifier a $schema counts; without one it does not."""
    old = {"$schema": DRAFTS["draft 4"], "minimum": 1, "const": 5}
    grammar = lower_schema({"properties": {"a": {"$id": "https://x.example/a", "id": "https://x.example/a", **old}}})
    assert accepts(grammar, b'{"a": 2}')
    assert not accepts(grammar, b'{"a": 0}')
    grammar = lower_schema({"properties": {"a": old}})
    assert not accepts(grammar, b'{"a": 2}')
    with pytest.raises(UnsupportedSchemaError, match="dialect") as caught:
        lower_schema({"properties": {"a": {"$id": "https://x.example/a", "$schema": "https://x.example/mine"}}})
    assert (caught.value.pointer, caught.value.keyword) == ("#/properties/a", "$schema")


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"items": [{"type": "text"}]}, "#/items/0", "type"),
        ({"items": [{}], "additionalItems": {"minLength": -1}}, "#/additionalItems", "minLength"),
        ({"items": [{}], "additionalItems": 5}, "#", "additionalItems"),
        ({"minimum": "1", "exclusiveMinimum": True}, "#", "minimum"),
        ({"dependencies": {"a": "b"}}, "#", "dependencies"),
        ({"dependencies": {"a": {"type": 1}}}, "#/dependencies/a", "type"),
    ],
)
def test_errors_name_what_the_document_says(schema: dict[str, Any], pointer: str, keyword: str) -> None:
    """Not what it is read as."""
    with pytest.raises(UnsupportedSchemaError) as caught:
        lower_schema(schema)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"items": [{}, {"enum": []}], "minItems": 2, "type": "array"}, "#/items/1"),
        ({"items": [{}], "additionalItems": False, "minItems": 2, "type": "array"}, "#"),
        ({"items": [{}], "additionalItems": {"enum": []}, "minItems": 2, "type": "array"}, "#/additionalItems"),
    ],
)
def test_contradictions_are_told_where_the_document_has_them(schema: dict[str, Any], pointer: str) -> None:
    """Likewise."""
    with pytest.raises(UnsatisfiableError) as caught:
        lower_schema(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("maxLenght", "maxLength"), ("requierd", "required"), ("additionalproperties", "additionalProperties")),
        *(("additonalProperties", "additionalProperties"), ("item", "items"), ("tpye", "type"), ("types", "type")),
        *(("any_of", "anyOf"), ("ref", "$ref"), ("minimumLength", "minLength"), ("NOT", "not")),
        ("required:", "required"),
        *(("patern", "pattern"), ("unevaluatedproperties", "unevaluatedProperties"), ("uniqueItem", "uniqueItems")),
    ],
)  # fmt: skip
def test_what_is_probably_misspelt_is_ignored_and_told(name: str, meant: str) -> None:
    """By the standard a slip forbids nothing; a warning and a finding say what was probably meant."""
    schema = {"type": "object", "properties": {"a": {**INTEGER, name: 1}}}
    assert dict(lower_schema(schema).rules) == dict(lower_schema({**schema, "properties": {"a": INTEGER}}).rules)
    (suspect,) = suspects(schema)
    assert (suspect.pointer, suspect.keyword) == ("#/properties/a", name)
    assert repr(meant) in suspect.reason
    (told,) = (row for row in explain_schema(schema) if row.keyword == name)
    assert (told.pointer, told.status, told.advice) == ("#/properties/a", "ignored", suspect.reason)
    with pytest.warns(UserWarning, match=re.escape(str(suspect))) as caught:
        sg.JsonSchema(schema)
    assert caught[0].filename == __file__


def test_one_warning_tells_of_all() -> None:
    """A schema of a foreign standard is one warning of bounded length; a known no is none."""
    slips = {f"p{i}": {"nullable": True, "extends": "x"} for i in range(9)}
    with pytest.warns(UserWarning, match=r"#/properties/p0: 'nullable' .*OpenAPI.*'extends'.*; and 13 more$") as caught:
        sg.JsonSchema({"properties": slips})
    assert len(caught) == 1
    sg.JsonSchema({"properties": {"maxLenght": {"nullable": False, "const": {"maxLenght": 1}}}})


@pytest.mark.parametrize(
    "name",
    [
        *("_format", "x-format", "X-Type", "//pattern", "@type", "min", "note", "cost", "when", "typeof", "multiple"),
        *("readonly", "tittle", "defs", "definition", "enumNames", "constraints", "$comments", "links", "self"),
        *("", "é", "a" * 500),
    ],
)
def test_other_unknown_keywords_are_annotations(name: str) -> None:
    """Other words, names that were chosen to be no keyword, and slips in what forbids nothing."""
    assert suspects({name: False}) == ()
    assert dict(lower_schema({**INTEGER, name: False}).rules) == dict(lower_schema(INTEGER).rules)


def test_no_keyword_is_taken_for_another() -> None:
    """Each keyword of the table is itself."""
    told = {suspect.keyword for suspect in suspects({name: {} for name in KEYWORDS})}
    assert told == {name for name, row in KEYWORDS.items() if row.status == "ignored"}


# --- schemas in the words of each draft, against its validator --------------------------------------------------------

VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 2.5, -1, "", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["a", "b"])


def words_of(draft: str, inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Return the keywords that are drawn for a draft, those among them that it does not have."""
    bound = st.booleans() if draft == "draft 4" else st.sampled_from([0, 2.5])
    few = st.lists(inner, min_size=1, max_size=2)
    return {
        "type": st.sampled_from(["integer", "number", "string", "array", "object"]),
        "minimum": st.sampled_from([0, 1]),
        "exclusiveMinimum": bound,
        "maximum": st.sampled_from([1, 2]),
        "exclusiveMaximum": bound,
        "items": few | inner if draft != "2020-12" else inner,
        "additionalItems": inner,
        "minItems": st.integers(0, 2),
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "required": st.lists(NAMES, min_size=1, max_size=2, unique=True),
        "dependencies": st.dictionaries(NAMES, inner | st.lists(NAMES, min_size=1, unique=True), max_size=2),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "anyOf": few,
        "allOf": few,
        "not": inner,
        "$ref": st.sampled_from(["#/definitions/a", "#/definitions/b", "#/unknown"]),
        "const": VALUES,
        "contains": inner,
        "propertyNames": st.just({"enum": ["a"]}),
        "if": inner,
        "then": inner,
        "else": inner,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, min_size=1, unique=True), max_size=1),
        "dependentSchemas": st.dictionaries(NAMES, inner, max_size=1),
        "prefixItems": few,
        "title": st.just("t"),
        "unknown": VALUES,
    }


def documents(draft: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return documents in the words of a draft."""

    def some(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        words = words_of(draft, inner)
        if draft.startswith("20"):  # read here as in draft 7, and by jsonschema not at all
            del words["dependencies"]
        return st.lists(st.sampled_from(sorted(words)), min_size=1, max_size=3, unique=True).flatmap(
            lambda names: st.fixed_dictionaries({name: words[name] for name in names})
        )

    leaves = st.sampled_from([{}, {"type": "integer"}, {"type": "string"}, {"type": "array"}, {"minimum": 1}])
    schemas = st.recursive(leaves, some, max_leaves=6)
    return st.fixed_dictionaries(
        {"allOf": st.lists(schemas, min_size=1, max_size=2), "unknown": schemas},
        optional={"definitions": st.fixed_dictionaries({"a": schemas, "b": leaves})},
    )


@settings(max_examples=100)
@given(st.sampled_from(sorted(DRAFTS)).flatmap(lambda d: st.tuples(st.just(d), documents(d))), st.lists(VALUES))
def test_documents_of_each_draft_against_its_validator(drawn: tuple[str, dict[str, Any]], values: list[Any]) -> None:
    """Random schemas in the words of a draft, newer words among them: a text is a word iff its value is valid."""
    draft, schema = drawn
    try:
        agree(schema, values, draft)
    except UnsupportedSchemaError:
        reject()
