"""References within a document: identifiers, anchors, pointers, dynamic ones; jsonschema says what they mean."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import referencing
from hypothesis import given
from hypothesis import strategies as st

from json_oracle import render
from oracle.recognise import accepts
from structgen.errors import UnsupportedSchemaError
from structgen.grammar.json_schema import lower_schema

DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 7))
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
TREE = {"type": "object", "properties": {"n": INTEGER, "c": {"items": {"$dynamicRef": "#node"}}}}


def judge(schema: dict[str, Any]) -> jsonschema.protocols.Validator:
    """Return jsonschema's validator, which fetches nothing."""
    named = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return named(schema, registry=referencing.Registry())


def agree(schema: dict[str, Any], values: list[Any]) -> None:
    """Hold the grammar to jsonschema."""
    grammar = lower_schema(schema, property_order="any")
    validator = judge(schema)
    for value in values:
        assert accepts(grammar, render(value).encode()) == validator.is_valid(value), value


SCALARS = [1, "a", None]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#i", "$defs": {"a": {"$anchor": "i", **INTEGER}}},
        {"$ref": "#d", "$defs": {"a": {"$dynamicAnchor": "d", **INTEGER}}},
        {"$ref": "https://x.example/i", "$defs": {"a": {"$id": "https://x.example/i", **INTEGER}}},
        {"$id": "https://x.example/s", "$ref": "https://x.example/s#/$defs/a", "$defs": {"a": INTEGER}},
        {"$id": "https://x.example/dir/s", "$ref": "i", "$defs": {"a": {"$id": "i", **INTEGER}}},
        {"$id": "https://x.example/dir/s", "$ref": "/i", "$defs": {"a": {"$id": "../i", **INTEGER}}},
        {"$ref": "i.json#x", "$defs": {"a": {"$id": "i.json", "$defs": {"b": {"$anchor": "x", **INTEGER}}}}},
        {"$ref": "i.json#/$defs/b", "$defs": {"b": STRING, "a": {"$id": "i.json", "$defs": {"b": INTEGER}}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "i", "$ref": "#/$defs/b", "$defs": {"b": INTEGER}}, "b": NULL}},
        {"$id": "urn:example:root", "$ref": "#/$defs/a", "$defs": {"a": INTEGER}},
        {
            "$id": "urn:example:root",
            "$ref": "urn:example:a#x",
            "$defs": {"a": {"$id": "urn:example:a", "$anchor": "x", **NULL}},
        },
        {"$ref": "#/$defs/a%25%22~1~0%7C", "$defs": {'a%"/~|': INTEGER}},
        {"$ref": "#/%24defs/%C3%A9", "$defs": {"é": INTEGER}},
        {"$ref": "#/$defs/a%2Fb", "$defs": {"a": {"b": INTEGER}, "a/b": STRING}},
        {"$ref": "#/mine/deep/0", "mine": {"deep": [INTEGER]}},
        {"$ref": "#/$defs/a/enum/0", "$defs": {"a": {"enum": [INTEGER]}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"const": {"$id": "https://x.example/i"}}}},
        {"anyOf": [{"$ref": "#/anyOf/1"}, {"$ref": "#/$defs/$id"}], "$defs": {"$id": INTEGER}},
        {"properties": {"$id": INTEGER, "$ref": STRING}, "type": "integer"},
        {
            "$schema": DRAFT_4,
            "id": "http://x.example/s",
            "items": {"$ref": "i#"},
            "definitions": {"a": {"id": "i", **INTEGER}},
            "allOf": [{"$ref": "i"}],
        },
        {"$schema": DRAFT_4, "allOf": [{"$ref": "#i"}], "definitions": {"a": {"id": "#i", **INTEGER}}},
        {"$schema": DRAFT_7, "allOf": [{"$ref": "#i"}], "definitions": {"a": {"$id": "#i", **INTEGER}}},
        {
            "$schema": DRAFT_7,
            "$id": "http://x.example/",
            "definitions": {
                "a": {"$id": "d/", "allOf": [{"$ref": "i"}], "definitions": {"b": {"$id": "i", **NULL}}},
                "c": {"$id": "i", **INTEGER},
            },
            "allOf": [{"$ref": "d/"}],
        },
        {
            "$schema": DRAFT_7,
            "$id": "http://x.example/",
            "definitions": {"i": {"$id": "i", **INTEGER}, "d": {"$id": "d/i", **NULL}},
            "allOf": [{"$id": "d/", "$ref": "i"}],
        },
        {"$dynamicRef": "#/$defs/a", "$defs": {"a": INTEGER}},
        {
            "$id": "https://x.example/",
            "$ref": "a#/$defs/b",
            "$defs": {"a": {"$id": "a", "$defs": {"b": INTEGER}}, "b": STRING},
        },
        {"$dynamicRef": "#i", "$defs": {"a": {"$anchor": "i", **INTEGER}}},
        {"$dynamicRef": "#i", "$defs": {"a": {"$dynamicAnchor": "i", **INTEGER}}},
        {
            "$id": "https://x.example/s",
            "$dynamicAnchor": "i",
            "type": ["integer", "null"],
            "$defs": {"b": {"$id": "b", "$ref": "b#/$defs/c", "$dynamicAnchor": "i", "$defs": {"c": {"not": STRING}}}},
            "allOf": [{"$ref": "b"}],
        },
        {"$schema": DRAFT_2019, "anyOf": [INTEGER, {"items": {"$recursiveRef": "#"}, "type": "array"}]},
    ],
)
def test_what_references_mean(schema: dict[str, Any]) -> None:
    """Each kind of address, in the draft that has it."""
    agree(schema, [*SCALARS, [1], ["a"], [[1]]])


@pytest.mark.parametrize("anchored", [True, False])
def test_dynamic_references_with_the_root_on_their_path(anchored: bool) -> None:
    """The outermost resource counts, which is the root if it has the anchor; else there is one target."""
    tree = {"$id": "tree", "$dynamicAnchor": "node", **TREE}
    schema = {"$id": "https://x.example/strict", "$ref": "tree", "propertyNames": {"enum": ["n", "c"]}}
    schema |= {"$dynamicAnchor": "node"} if anchored else {}
    agree({**schema, "$defs": {"t": tree}}, [{}, {"n": 1}, {"x": 1}, {"c": [{"n": 1}]}, {"c": [{"x": 1}]}])


@pytest.mark.parametrize("anchored", [True, False])
def test_recursive_references_with_the_root_on_their_path(anchored: bool) -> None:
    """The same in 2019-09."""
    tree = {"$id": "tree", "$recursiveAnchor": True, "properties": {"c": {"items": {"$recursiveRef": "#"}}}}
    schema = {"$schema": DRAFT_2019, "$id": "https://x.example/strict", "$ref": "tree", "$defs": {"t": tree}}
    schema |= {"propertyNames": {"enum": ["n", "c"]}, "$recursiveAnchor": anchored}
    agree(schema, [{}, {"n": 1}, {"x": 1}, {"c": [{"n": 1}]}, {"c": [{"x": 1}]}])


TWO_LISTS = {
    "$id": "https://x.example/two",
    "anyOf": [{"$ref": "numbers"}, {"$ref": "texts"}],
    "$defs": {
        "list": {"$id": "list", "items": {"$dynamicRef": "#item"}, "$defs": {"d": {"$dynamicAnchor": "item"}}},
        "n": {"$id": "numbers", "$ref": "list", "$defs": {"i": {"$dynamicAnchor": "item", **INTEGER}}},
        "s": {"$id": "texts", "$ref": "list", "$defs": {"i": {"$dynamicAnchor": "item", **STRING}}},
    },
}


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword", "part"),
    [
        ({"items": {"$ref": "https://x.example/other"}}, "#/items", "$ref", "put the target into $defs"),
        ({"items": {"$ref": "other.json#/x"}}, "#/items", "$ref", "out of the document"),
        ({"items": {"$ref": DRAFT_7}}, "#/items", "$ref", "out of the document"),
        ({"items": {"$ref": "#name"}}, "#/items", "$ref", "anchor that is not there"),
        ({"items": {"$ref": "#/x"}}, "#/items", "$ref", "points to nothing"),
        ({"items": {"$ref": 5}}, "#/items", "$ref", "must be a string"),
        ({"$ref": "a#/$defs/c", "$defs": {"a": {"$id": "a"}, "c": {}}}, "#", "$ref", "points to nothing"),
        ({"$ref": "#a", "$defs": {"x": {"$anchor": "a"}, "y": {"$anchor": "a"}}}, "#", "$ref", "two anchors"),
        ({"$ref": "a", "$defs": {"x": {"$id": "a"}, "y": {"$id": "a"}}}, "#", "$ref", "two schemas"),
        ({"$ref": "#/mine", "mine": {"$id": "a", "not": {"$ref": "#/x"}, "x": {}}}, "#/mine", "$id", "into $defs"),
        ({"$schema": DRAFT_7, "$ref": "x", "$defs": {"x": {"$id": "x"}}}, "#", "$ref", "out of the document"),
        ({"$id": "urn:a:b", "$ref": "c", "$defs": {"c": {"$id": "urn:a:c"}}}, "#", "$ref", "out of the document"),
        (TWO_LISTS, "#/$defs/list/items", "$dynamicRef", "depends on the path of evaluation"),
        ({"$id": "https://x.example/a", "$ref": "https://x.example/a"}, "#", "$ref", "back to itself"),
        ({"$dynamicRef": "#"}, "#", "$ref", "back to itself"),
    ],
)
def test_references_that_are_refused(schema: dict[str, Any], pointer: str, keyword: str, part: str) -> None:
    """What leads out, nowhere, to two places, or to what depends, is refused by name; so is an endless circle."""
    with pytest.raises(UnsupportedSchemaError) as caught:
        lower_schema(schema)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)
    assert part in str(caught.value)


def test_a_pointer_to_nothing_is_followed_from_the_root() -> None:
    """Inside a part with an identifier, where the standard defines nothing; what is there by its rules comes first."""
    part = {"$id": "part", "$defs": {"mine": INTEGER}}
    schema = {"$ref": "#/$defs/p", "$defs": {"p": part, "other": STRING, "mine": NULL}}
    for reference, word in (("#/$defs/mine", b"1"), ("#/$defs/other", b'"a"'), ("#/$defs/p/$defs/mine", b"1")):
        part["$ref"] = reference
        grammar = lower_schema(schema)
        assert [text for text in (b"1", b'"a"', b"null") if accepts(grammar, text)] == [word]


# The normal and abnormal examples of RFC 3986, section 5.4, without those that have only a fragment.
EXAMPLES = {
    "g": "b/c/g", "./g": "b/c/g", "g/": "b/c/g/", "/g": "g", "?y": "b/c/d;p?y", "g?y": "b/c/g?y", ";x": "b/c/;x",
    "g;x": "b/c/g;x", "g;x?y": "b/c/g;x?y", ".": "b/c/", "./": "b/c/", "..": "b/", "../": "b/", "../g": "b/g",
    "../..": "", "../../": "", "../../g": "g", "../../../g": "g", "/./g": "g", "/../g": "g", "g.": "b/c/g.",
    ".g": "b/c/.g", "..g": "b/c/..g", "./../g": "b/g", "./g/.": "b/c/g/", "g/./h": "b/c/g/h", "g/../h": "b/c/h",
    "g;x=1/./y": "b/c/g;x=1/y", "g;x=1/../y": "b/c/y", "g?y/../x": "b/c/g?y/../x",
}  # fmt: skip


@pytest.mark.parametrize("scheme", ["http", "mine+2"])
def test_relative_references_are_those_of_the_rfc(scheme: str) -> None:
    """The RFC's own examples, with a scheme that the standard library knows and one that it does not."""
    for reference, path in EXAMPLES.items():
        target = {"$id": f"{scheme}://a/{path}", **INTEGER}
        schema = {"$id": f"{scheme}://a/b/c/d;p?q", "allOf": [{"$ref": reference}], "$defs": {"t": target}}
        grammar = lower_schema(schema)
        assert accepts(grammar, b"1"), reference
        assert not accepts(grammar, b"null"), reference


# What is joined a second time by jsonschema when it enters a resource must come out the same.
IDS = st.sampled_from([None, None, "a", "/b/", "/b/c", "/a", "https://x.example/d/", "urn:x:y", "a#"])
ANCHORS = st.sampled_from([None, "p", "q"])
REFERENCES = st.builds(
    str.__add__,
    st.sampled_from(["", "", "a", "c", "b/", "b/c", "/a", "../a", "https://x.example/d/", "urn:x:y"]),
    st.sampled_from(["", "#", "#p", "#q", "#/$defs/k", "#/$defs/k/$defs/k", "#/$defs/m", "#/mine"]),
)


def _resources(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    drawn = st.tuples(IDS, ANCHORS, st.sampled_from([INTEGER, STRING, NULL, {}]), REFERENCES | st.none())
    parts = st.fixed_dictionaries({}, optional={"k": inner, "m": inner})
    return st.builds(
        lambda top, parts: {
            **({} if top[0] is None else {"$id": top[0]}),
            **({} if top[1] is None else {"$anchor": top[1]}),
            **top[2],
            **({"properties": {"r": {"$ref": top[3]}}} if top[3] is not None else {}),
            **({"$defs": parts} if parts else {}),
        },
        drawn,
        parts,
    )


DOCUMENTS = st.recursive(st.sampled_from([INTEGER, STRING, NULL]), _resources, max_leaves=5)


@given(DOCUMENTS, st.lists(REFERENCES, min_size=1))
def test_addresses_against_jsonschema(document: dict[str, Any], references: list[str]) -> None:
    """Random resources within resources, and references to and from them: the same meaning, or refused by both.

    Two schemas of one name are refused here, where jsonschema takes one of them.
    """
    schema = {**document, "$id": "https://x.example/", "type": "object"}
    schema["properties"] = {f"r{i}": {"$ref": ref} for i, ref in enumerate(references)}
    values = [{f"r{i}": value} for i in range(len(references)) for value in (1, "a", None, {}, {"r": 1}, {"r": None})]
    validator = judge(schema)
    try:
        grammar = lower_schema(schema)
    except UnsupportedSchemaError as error:
        if "names two" in error.reason or "back to itself" in error.reason:
            return
        with pytest.raises(jsonschema.exceptions._WrappedReferencingError):
            [
                list(validator.iter_errors(value))
                for value in [*values, *({f"r{i}": {"r": {"r": {}}}} for i in range(9))]
            ]
        return
    for value in values:
        assert accepts(grammar, render(value).encode()) == validator.is_valid(value), value
