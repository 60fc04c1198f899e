"""items, prefixItems, minItems, maxItems, contains, uniqueItems, and their complements."""

from __future__ import annotations

from typing import Any

from json_cases import check, table

INTEGER = {"type": "integer"}
STRING = {"type": "string"}


@table(
    (
        "items",
        {"type": "array", "items": INTEGER},
        ["[]", "[1]", "[1, 2, 3]"],
        ['["a"]', "[1, ]", "[1 2]", "[,1]", "[1.5]"],
    ),
    ("no items", {"type": "array", "items": False}, ["[]"], ["[1]"]),
    (
        "counts",
        {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 3},
        ["[1, 2]", "[1, 2, 3]"],
        ["[1]", "[]", "[1, 2, 3, 4]"],
    ),
    ("exactly none", {"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    ("least one", {"type": "array", "minItems": 1}, ["[null]"], ["[]"]),
    (
        "positions",
        {"type": "array", "prefixItems": [INTEGER, STRING]},
        ["[]", "[1]", '[1, "a"]', '[1, "a", null]'],
        ['["a"]', "[1, 2]"],
    ),
    (
        "closed tuple",
        {"type": "array", "prefixItems": [INTEGER, STRING], "items": False},
        ["[1]", '[1, "a"]'],
        ['[1, "a", 2]'],
    ),
    (
        "full tuple",
        {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2},
        ['[1, "a"]'],
        ["[1]", "[]"],
    ),
    (
        "tuple and rest",
        {"type": "array", "prefixItems": [STRING], "items": INTEGER, "minItems": 3},
        ['["a", 1, 2]', '["a", 1, 2, 3]'],
        ['["a", 1]'],
    ),
    (
        "short tuple",
        {"type": "array", "prefixItems": [STRING, STRING, STRING], "maxItems": 2},
        ['["a", "b"]', "[]"],
        ['["a", "b", "c"]'],
    ),
    ("impossible position", {"type": "array", "prefixItems": [STRING, False]}, ["[]", '["a"]'], ['["a", 1]']),
    (
        "tuples meet",
        {"prefixItems": [INTEGER], "allOf": [{"items": {"minimum": 5}}], "type": "array"},
        ['[5, "a"]', "[7, 8]"],
        ["[4]", "[5, 4]", '["a"]'],
    ),
    ("contains", {"type": "array", "contains": {"const": 4}}, ["[4]", "[1, 4]", "[4, 4, null]"], ["[]", "[1]"]),
    (
        "contains in a bound",
        {"type": "array", "contains": {"const": 4}, "maxItems": 2},
        ["[4]", "[1, 4]", "[4, 1]"],
        ["[]", "[1, 2, 4]", "[1, 2]"],
    ),
    (
        "contains after least",
        {"type": "array", "contains": {"const": 4}, "minItems": 2},
        ["[1, 4]", "[4, 1]", "[1, 2, 4]"],
        ["[4]", "[1, 2]"],
    ),
    (
        "contains in a tuple",
        {"type": "array", "prefixItems": [STRING], "contains": {"const": 4}},
        ['["a", 4]', '["a", 1, 4]'],
        ["[4]", '["a"]'],
    ),
    (
        "contains two",
        {"type": "array", "contains": {"const": 4}, "minContains": 2},
        ["[4, 4]", "[4, 1, 4]"],
        ["[4]", "[1, 2]"],
    ),
    ("contains none", {"type": "array", "contains": {"const": 4}, "minContains": 0}, ["[]", "[1]"], ["{}"]),
    (
        "unique",
        {"type": "array", "items": {"enum": ["x", "y", 1]}, "uniqueItems": True},
        ["[]", '["y", "x"]', '[1, "x", "y"]'],
        ['["x", "x"]', '[1, "x", 1]'],
    ),
    (
        "unique in bounds",
        {"type": "array", "items": {"enum": ["x", "y", 1]}, "uniqueItems": True, "minItems": 1, "maxItems": 2},
        ['["x"]', '["x", 1]'],
        ["[]", '["x", "y", 1]', '["x", "x"]'],
    ),
    ("unique of one", {"type": "array", "uniqueItems": True, "maxItems": 1}, ["[]", "[{}]"], ["[1, 1]"]),
    ("not all integers", {"type": "array", "not": {"items": INTEGER}}, ['["a"]', '[1, "a"]'], ["[]", "[1]"]),
    (
        "not a tuple",
        {"type": "array", "not": {"prefixItems": [INTEGER], "minItems": 1}},
        ["[]", '["a"]'],
        ["[1]", '[1, "a"]'],
    ),
    ("contains no", {"type": "array", "not": {"contains": STRING}}, ["[]", "[1, null]"], ['["a"]', '[1, "a"]']),
    ("nested", {"type": "array", "items": {"type": "array", "items": INTEGER}}, ["[[], [1]]"], ["[1]", "[[[]]]"]),
)
def test_arrays(schema: Any, words: list[str], others: list[str]) -> None:
    """Positions, counts and what must be contained are exact."""
    check(schema, words, others)
