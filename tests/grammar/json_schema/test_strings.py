"""minLength, maxLength, pattern, escapes, and their complements."""

from __future__ import annotations

from typing import Any

import pytest

from json_cases import check, table
from structgen.errors import LimitError
from structgen.grammar import ir
from structgen.grammar.json_schema import lower_schema


@table(
    (
        "escapes",
        {"type": "string"},
        ['""', '"\\u0007"', '"\\/"', '"\\ud83c\\udf00"', '"🌀"', '"\\\\\\""'],
        ['"\\\'"', '"\\x20"', '"\n"', '"a', '~"\\ud83c"', "a"],
    ),
    (
        "length",
        {"type": "string", "maxLength": 3},
        ['"\\n\\t\\""', '"🌀🌀🌀"', '"\\u0062cd"', '""'],
        ['"abcd"', '"\\u0062cde"'],
    ),
    (
        "least length",
        {"type": "string", "minLength": 2},
        ['"ab"', '"\\u0041\\u0042"', '"🌀é"'],
        ['"a"', '"\\u0041"', '""'],
    ),
    ("both lengths", {"type": "string", "minLength": 2, "maxLength": 2}, ['"ab"'], ['"a"', '"abc"']),
    ("surrogate pair is one", {"type": "string", "maxLength": 1}, ['"\\ud83c\\udf00"'], ['"\\ud83c\\udf00a"']),
    ("pattern", {"type": "string", "pattern": "^[f-k]+$"}, ['"fgh"', '"\\u0066"'], ['"a"', '""', '"fa"']),
    ("pattern and length", {"type": "string", "pattern": "^[f-k]+$", "maxLength": 2}, ['"fg"'], ['"fgh"', '""']),
    (
        "pattern and least length",
        {"type": "string", "pattern": "^(ab)*$", "minLength": 3},
        ['"abab"'],
        ['"ab"', '"aba"'],
    ),
    ("pattern searches", {"type": "string", "pattern": "fig"}, ['"two figs"', '"fig"'], ['"fi"', '""']),
    (
        "two patterns",
        {"pattern": "a", "allOf": [{"pattern": "b"}], "type": "string"},
        ['"ab"', '"xbxa"'],
        ['"a"', '"b"'],
    ),
    ("decoded", {"type": "string", "pattern": "^.{2}$"}, ['"\\\\a"', '"\\"b"'], ['"a"', '"abc"']),
    ("negated class", {"type": "string", "pattern": "^[^,]+$"}, ['"é["', '"\\n"'], ['"a,b"', '"\\u002c"', '""']),
    ("dollar", {"type": "string", "pattern": "^ab$"}, ['"ab"'], ['~"ab\\n"', '"abc"']),
    ("not a pattern", {"type": "string", "not": {"pattern": "^ab"}}, ['"b"', '"a"', '""'], ['"ab"', '"abc"']),
    ("not an anchored pattern", {"type": "string", "not": {"pattern": "^ab$"}}, ['"b"', '"abc"'], ['"ab"']),
    (
        "not listed",
        {"type": "string", "not": {"enum": ["sudo", "su"]}},
        ['"s"', '"sudoer"', '"\\u0073"'],
        ['"su"', '"sudo"', '"\\u0073u"', "1"],
    ),
    ("not a length", {"type": "string", "not": {"minLength": 1, "maxLength": 2}}, ['""', '"abc"'], ['"a"', '"ab"']),
    ("other types pass", {"maxLength": 1}, ["null", "[]", '"a"'], ['"ab"']),
    ("large bound", {"type": "string", "maxLength": 10000}, ['"' + "x" * 50 + '"'], []),
    ("lookahead", {"type": "string", "pattern": "^(?!no)[a-z]+$"}, ['"on"', '"nq"'], ['"nope"', '"no"']),
)
def test_strings(schema: Any, words: list[str], others: list[str]) -> None:
    """Length counts decoded code points; patterns search the decoded text; any JSON escape is a spelling."""
    check(schema, words, others)


@pytest.mark.parametrize("bound", [3, 10_000, 10_000_000])
def test_a_length_is_a_number_not_states(bound: int) -> None:
    """The grammar of a bounded string does not grow with the bound."""
    grammar = lower_schema({"type": "string", "maxLength": bound})
    (lexeme,) = [expr for body in grammar.rules.values() for expr in ir.walk(body)]
    assert isinstance(lexeme, ir.Lexeme)
    assert (lexeme.max_length, lexeme.free_text) == (bound, True)
    assert lexeme.dfa.num_states < 50


_LONG = "^[a-z]{1,6000}$"


@table(
    ("alone", {"type": "string", "pattern": _LONG}, [f'"{"a" * 6000}"', '"a"'], [f'"{"a" * 6001}"', '""', '"A"']),
    ("and length", {"type": "string", "pattern": _LONG, "maxLength": 5}, ['"abcde"'], ['"abcdef"', '""']),
    ("and least length", {"type": "string", "pattern": _LONG, "minLength": 3}, ['"abc"'], ['"ab"']),
    (
        "several",
        {"type": "string", "pattern": "^[a-z]{1,600}@[a-z]{1,600}$"},
        ['"a@b"', f'"{"a" * 600}@{"b" * 600}"', f'"{"a" * 599}\\u0040b"'],
        [f'"{"a" * 601}@b"', f'"a@{"b" * 601}"', '"@b"', '"a@"', '"a"'],
    ),
    (
        "nested",
        {"type": "string", "pattern": r"^(([a-z]{1,50} ){1,50}\.){1,50}$"},
        ['"ab c ."', f'"{("a" * 50 + " ") * 50}."', f'"{"a ." * 50}"'],
        [f'"{"a" * 51} ."', f'"{"a " * 51}."', f'"{"a ." * 51}"', '"."', '""'],
    ),
    ("several and length", {"pattern": "^[a-z]{1,600}@[a-z]{1,600}$", "maxLength": 4}, ['"a@bc"'], ['"a@bcd"']),
    ("several and enum", {"pattern": "^[a-z]{1,600}@[a-z]{1,600}$", "enum": ["a@b", "c", 1]}, ['"a@b"', "1"], ['"c"']),
    ("not several", {"type": "string", "not": {"pattern": "^[a-z]{1,600}@[a-z]{1,600}$"}}, ['"a"'], ['"a@b"']),
    (
        "several, and bounds that say nothing",
        {"pattern": "^[a-z]{1,3000}@[a-z]{1,3000}$", "minLength": 3, "maxLength": 6001},
        ['"a@b"', "1"],
        ['"a"'],
    ),
)
def test_a_count_too_large_to_write_out_is_a_bound(schema: Any, words: list[str], others: list[str]) -> None:
    """Long repeats of an anchored pattern are counted, beside other bounds too."""
    check(schema, words, others)


def test_a_pattern_too_large_for_an_automaton_stands_alone() -> None:
    """Beside a keyword that cuts into it, a pattern whose repeats are too long to write out is a limit."""
    for more in ({"maxLength": 6000}, {"minLength": 4}, {"pattern": "x", "allOf": [{"pattern": "y"}]}):
        schema = {"allOf": [{"pattern": "^[a-z]{1,3000}@[a-z]{1,3000}$"}, more]}
        with pytest.raises(LimitError, match=r"the repeat \{1,3000\}"):
            lower_schema(schema)
