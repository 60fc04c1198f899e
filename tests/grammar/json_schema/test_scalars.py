"""type, enum, const on scalars."""

from __future__ import annotations

from typing import Any

from json_cases import check, table


@table(
    ("null", {"type": "null"}, ["null"], ["true", "nul", ""]),
    ("boolean", {"type": "boolean"}, ["true", "false"], ["True", "1", "null"]),
    ("several", {"type": ["null", "string"]}, ["null", '"x"'], ["0", "[]"]),
    ("true", True, ["1", '{"a": [null, "b"]}', '""'], ["", "tru", "[1, ]"]),
    ("empty", {}, ["[]", "{}", "-2.5e3"], ["{]"]),
    ("integer", {"type": "integer"}, ["0", "-7", "120"], ["1.5", "-0.5", "~-0", "~3.0", "~1e2", "01", "+1"]),
    ("number", {"type": "number"}, ["0", "-7.25", "1e3", "2.50", "-0", "1E-2"], [".5", "1.", "00", "1e", '"1"']),
    ("enum of words", {"enum": ["file", "fileName", "filePath"]}, ['"file"', '"filePath"'], ['"fileP"', '"f"']),
    (
        "enum mixed",
        {"enum": ['say "hi"', "a\\b", "ö", 3, None, True]},
        ['"say \\"hi\\""', '"a\\\\b"', '"ö"', "3", "null", "true"],
        ["false", '"o"', "4", '~"\\u00f6"', "~3.0"],
    ),
    ("enum filtered by type", {"type": "string", "enum": ["k", 5, None]}, ['"k"'], ["5", "null"]),
    ("enum filtered by length", {"enum": ["k", "kk", 5], "maxLength": 1}, ['"k"', "5"], ['"kk"']),
    ("enum filtered by bound", {"enum": [1, 2, 30], "minimum": 2}, ["2", "30"], ["1"]),
    ("const number", {"const": 2.5}, ["2.5"], ["2", "~2.50"]),
    ("const array", {"const": [1, [None], {}]}, ["[1, [null], {}]"], ["[1, [null]]", "[]"]),
    (
        "const object",
        {"const": {"p": {"q": [1]}, "r": "s"}},
        ['{"p": {"q": [1]}, "r": "s"}'],
        ['{"p": {"q": [1]}}', '~{"r": "s", "p": {"q": [1]}}', "{}"],
    ),
    ("true is not one", {"enum": [True]}, ["true"], ["1"]),
    ("one is not true", {"const": 1}, ["1"], ["true"]),
)
def test_scalars(schema: Any, words: list[str], others: list[str]) -> None:
    """Scalars and listed values are accepted in their one spelling and nothing else is."""
    check(schema, words, others)
