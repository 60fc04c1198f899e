"""What is refused, by keyword and JSON pointer; what is unsatisfiable; and the table of keywords."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_specifications import REGISTRY

from oracle.recognise import accepts
from schema_refusals import REFUSALS, Refusal, raised
from structgen.errors import StructgenError, UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar import json_schema
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.json_schema.keywords import KEYWORDS, keyword_table

FRONT_END = Path(json_schema.__file__).parent
PASS_ON = ("findings.py", "watch.py")
"""They tell of refusals of others."""
NEVER_REFUSED = {"$defs", "definitions", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"}

NO_SAY = sorted(name for name, row in KEYWORDS.items() if row.status in ("annotation", "ignored"))


@pytest.mark.parametrize("keyword", NO_SAY)
def test_annotations_change_nothing(keyword: str) -> None:
    """A keyword that has no say in what is valid leaves the grammar as it is."""
    with_it = lower_schema({"type": "integer", keyword: {"type": "string"}})
    assert dict(with_it.rules) == dict(lower_schema({"type": "integer"}).rules)


def _check(row: Refusal, monkeypatch: pytest.MonkeyPatch) -> StructgenError:
    """Hold the error of a row to it."""
    with monkeypatch.context() as patch:
        if row.with_limit is not None:
            patch.setattr(f"{json_schema.__name__}.{row.with_limit[0]}", row.with_limit[1])
        error = raised(row)
    keyword = getattr(error, "keyword", getattr(error, "limit", ""))
    assert (type(error), getattr(error, "pointer", ""), keyword) == (row.error, row.pointer, row.keyword)
    assert row.words in str(error)
    assert len(str(error)) < 600
    return error


def _places(error: BaseException) -> Iterator[tuple[str, int]]:
    """Yield the lines of the front end that an error, and those that led to it, went through."""
    waiting: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while waiting:
        found = waiting.pop()
        if found is not None and found not in seen:
            seen.append(found)
            waiting += [found.__context__, found.__cause__]
            for frame, line in traceback.walk_tb(found.__traceback__):
                path = Path(frame.f_code.co_filename)
                if path.parent == FRONT_END:
                    yield path.name, line


def test_every_refusal_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is refused as it says, and each `raise` of the front end is where some row is refused."""
    reached = {place for row in REFUSALS for place in _places(_check(row, monkeypatch))}
    missed = [
        f"{path.name}:{node.lineno}"
        for path in FRONT_END.glob("*.py")
        if path.name not in PASS_ON
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise)
        and node.exc is not None
        and reached.isdisjoint((path.name, line) for line in range(node.lineno, (node.end_lineno or 0) + 1))
    ]
    assert missed == []


def test_every_keyword_with_a_say_has_a_row() -> None:
    """Whatever keyword can be refused is refused in some row, by its name."""
    with_say = {name for name, row in KEYWORDS.items() if row.status in ("exact", "partly")}
    assert with_say - {row.keyword for row in REFUSALS} == NEVER_REFUSED


def test_the_table_has_every_keyword_of_every_draft() -> None:
    """Draft 4 to 2020-12, by their meta-schemas."""
    names: set[str] = set()
    for uri in REGISTRY:
        meta = REGISTRY.contents(uri)
        names |= set(meta.get("properties", {})) if "draft-03" not in uri else set()
    assert len(names) > 60
    assert names - set(KEYWORDS) == set()


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, "#"),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "#"),
        (
            {
                "type": "object",
                "required": ["a"],
                "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 1}},
            },
            "#/properties/a",
        ),
        ({"type": "string", "pattern": "^a{5}$", "maxLength": 4}, "#"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "#"),
        ({"type": "string", "enum": [1, 2]}, "#"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "#"),
        (
            {
                "$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}, "required": ["t"]}},
                "$ref": "#/$defs/T",
            },
            "#/$defs/T/properties/t",
        ),
        ({"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6}, "#"),
        ({"enum": []}, "#"),
        ({"type": "array", "items": {"type": "string"}, "contains": {"type": "null"}}, "#/contains"),
        ({"type": "array", "maxItems": 1, "contains": {"type": "null"}, "minContains": 2}, "#"),
        ({"type": "object", "unevaluatedProperties": False, "required": ["a"]}, "#"),
        (
            {"type": "object", "required": ["é"], "properties": {"é": {"type": "string"}}}
            | {"patternProperties": {"\\w": {"type": "integer"}}},
            "#/patternProperties/%5Cw",
        ),
    ],
)
def test_contradictions_are_told(schema: Any, pointer: str) -> None:
    """A schema that nothing satisfies is one clear error, with the pointer of the part that contradicts itself."""
    with pytest.raises(UnsatisfiableError) as caught:
        lower_schema(schema)
    assert caught.value.pointer == pointer


def test_an_impossible_optional_part_is_left_out() -> None:
    """An optional property or branch that nothing satisfies is dropped, the rest stays."""
    never = {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    grammar = lower_schema(
        {"anyOf": [never, {"type": "object", "properties": {"a": never}, "additionalProperties": False}]}
    )
    assert len(grammar.rules) < 3


def test_a_name_in_doubt_is_never_written() -> None:
    """Where two readings of a keyword differ on a name, neither the schema nor its complement holds the name."""
    word = {"patternProperties": {"^\\w$": {"type": "integer"}}, "additionalProperties": False, "type": "object"}
    for schema, certain in ((word, '{"a": 1}'), ({"not": word, "type": "object"}, '{"a": ""}')):
        grammar = lower_schema(schema)
        assert accepts(grammar, certain.encode())
        assert not accepts(grammar, '{"é": 1}'.encode())
        assert not accepts(grammar, '{"é": ""}'.encode())


def test_every_keyword_has_a_row() -> None:
    """The table for the documentation lists each keyword once."""
    lines = keyword_table().splitlines()
    assert len(lines) == len(KEYWORDS) + 2
    assert "| `minLength` | exact |" in keyword_table()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "x" * 10_000},
        {"type": ["x" * 10_000]},
        {"const": "\ud800" * 10_000},
        {"properties": {"a": {"enum": ["\ud800" * 10_000]}}},
    ],
    ids=["type", "types", "const", "enum"],
)
def test_a_refused_value_of_any_length_fits_a_line(schema: Any) -> None:
    """The message shows the beginning of a long value."""
    with pytest.raises(UnsupportedSchemaError) as caught:
        lower_schema(schema)
    assert len(str(caught.value)) < 600
