"""Where nothing fits, the error says which part is to blame: it contradicts itself, is empty, or never ends."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from pydantic import BaseModel

import structgen as sg

SELF = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}
NO_NUMBER = {"type": "integer", "minimum": 3, "maximum": 2}
OBJECT = {"type": "object", "required": ["a"]}


class Nothing(enum.Enum):
    pass


class Node(BaseModel):
    value: int
    next: Node


class Holder(BaseModel):
    fine: int | None
    empty: Nothing


@pytest.mark.parametrize(
    ("declared", "pointer", "reason"),
    [
        (NO_NUMBER, "#", r"contradict each other \(type, minimum, maximum\)"),
        (
            {**OBJECT, "properties": {"b": NO_NUMBER, "a": {"type": "string", "const": 1}}},
            "#/properties/a",
            "type, const",
        ),
        ({"type": "array", "minItems": 1, "items": NO_NUMBER}, "#/items", "type, minimum, maximum"),
        ({"type": "array", "minItems": 2, "prefixItems": [{}, NO_NUMBER]}, "#/prefixItems/1", "type, minimum, maximum"),
        ({"allOf": [{}, NO_NUMBER]}, "#/allOf/1", "type, minimum, maximum"),
        ({"allOf": [{"type": "null"}, {"type": "string"}]}, "#", "nothing is left by allOf"),
        (
            {**OBJECT, "properties": {"a": {"type": "null"}}, "allOf": [{"properties": {"a": {"type": "string"}}}]},
            "#/allOf/0/properties/a",
            r"contradicts itself \(type at #/allOf/0/properties/a; type at #/properties/a\)",
        ),
        ({"not": {}}, "#", "nothing is left by not"),
        (False, "#", "the schema false stands here"),
        ({"enum": []}, "#", "enum lists no values"),
        ({"$ref": "#/$defs/e", "$defs": {"e": {"enum": []}}}, "#/$defs/e", "enum lists no values"),
        ({"anyOf": [{"enum": []}, NO_NUMBER]}, "#/anyOf/0", "enum lists no values"),
        (
            {**OBJECT, "properties": {"a": {**OBJECT, "properties": {"a": {"enum": []}}}}},
            "#/properties/a/properties/a",
            "enum lists no values",
        ),
        ({"$ref": "#/$defs/n", "$defs": {"n": SELF}}, "#/$defs/n/properties/n", "without an end"),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "#/items", "without an end"),
        (
            {**OBJECT, "properties": {"a": {"anyOf": [{"$ref": "#/$defs/n"}, NO_NUMBER]}}, "$defs": {"n": SELF}},
            "#/$defs/n/properties/n",
            "without an end",
        ),
    ],
)
def test_the_part_to_blame_is_named(declared: Any, pointer: str, reason: str) -> None:
    """The pointer leads to the part that every value needs, past parts that are empty but optional."""
    with pytest.raises(sg.UnsatisfiableError, match=f"no value fits: .*{reason}") as caught:
        sg.check(sg.JsonSchema(declared))
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("declared", "pointer", "reason"),
    [
        (Nothing, "#", "enum lists no values"),
        (Holder, "#/properties/empty", "enum lists no values"),
        (Node, "#/$defs/Node/properties/next", "must hold another one of itself, .* optional"),
    ],
)
def test_types_without_values_are_told_apart(declared: Any, pointer: str, reason: str) -> None:
    """An Enum without members, and a model that needs one of itself."""
    with pytest.raises(sg.UnsatisfiableError, match=reason) as caught:
        sg.check(declared)
    assert caught.value.pointer == pointer


def test_a_search_for_the_blame_ends() -> None:
    """Unions of objects that all lead to each other: the search gives up on the reason, not on the error."""
    names = [f"n{i}" for i in range(12)]
    each = {
        "anyOf": [
            {"type": "object", "properties": {name: {"$ref": f"#/$defs/{name}"}}, "required": [name]} for name in names
        ]
    }
    with pytest.raises(sg.UnsatisfiableError, match="no value fits"):
        sg.check(sg.JsonSchema({"$ref": "#/$defs/n0", "$defs": dict.fromkeys(names, each)}))


def test_deep_schemas_without_a_value() -> None:
    """Deeper than the search goes, the place is still told."""
    schema: dict[str, Any] = {"enum": []}
    for _ in range(150):
        schema = {**OBJECT, "properties": {"a": schema}}
    with pytest.raises(sg.UnsatisfiableError, match="no value fits") as caught:
        sg.check(sg.JsonSchema(schema))
    assert caught.value.pointer == "#" + "/properties/a" * 150
