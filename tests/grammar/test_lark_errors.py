"""Lark grammars that are refused: always an error of ours, with a message that says what and where."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.errors import DeclareError, GrammarSyntaxError, LimitError, OptionError
from structgen.grammar.lark_grammar import lower_lark

ERRORS = [
    ("start: a", "'a' used but not defined", 1, 8),
    ('start: "x"\n  b: (\n', "Expecting a value", 2, 7),
    ('start: "x"\nstart: "y"', "more than once", 1, 1),
    ('begin: "x"', "start rule 'start' is not defined", None, None),
    ('start: A\nA: ""', "[Ee]mpty", None, None),
    ("start: A\nA: /x*/", "terminal A can match the empty text", 2, 4),
    ("start: A\nA: /(x)\\1/", "A.*back-reference.*column 4 of it", 2, 4),
    ("start: A\nA: /(x/", "missing \\)", 2, 4),
    ('start.x: "a"', "'x' is not expected", 1, 7),
    ('start: "a".."zz"', "AssertionError", None, None),
    ("start: A\n%declare A", "%declare A is not supported", 2, 1),
    ("start: A\n  %declare A _B", "%declare A _B is not supported", 2, 3),
    ("start: A\n%import common.NOPE -> A", "NOPE|'A'", None, None),
    ("start: A\n%import nowhere.A", "nowhere", None, None),
    ('start: t{"x"}\nt{a, b}: a b', "[Ww]rong number of template arguments", None, None),
    ('start: A\nA: B\nB: A "x"', "[Rr]ecursion", None, None),
    ('start: A\nA: b\nb: "x"', "Rules aren't allowed inside terminals", None, None),
    ('start: "x"\n%ignore NOPE', "NOPE", 2, 9),
    ('start: "x"~3..2', "[Bb]ad [Rr]ange", None, None),
    ('start: "x" -> a | "x" -> b', "twice", None, None),
    ('start: "\\x"', "Lark grammar", None, None),
    ("start: A\nA: /x(?=y)/", "no text matches", 2, 4),
    ("start: A\nA: /x(?=y*(?<=xy))y/", "reaches past its own place", 2, 4),
    ('start: "\\ud800"', "surrogate", 1, 8),
    ("start: 'a'", "strings are in double quotes here, not in single ones", 1, 8),
    ('start: b\nb: "x', "this string has no end in its line", 2, 4),
    ('start: "a";', "';' is not expected here", 1, 11),
    ('begin: "x"', r"another with start= \(the rules are begin\)", None, None),
]


@pytest.mark.parametrize(("grammar", "message", "line", "column"), ERRORS)
def test_errors_are_ours_and_say_where(grammar: str, message: str, line: int | None, column: int | None) -> None:
    """Refuse with GrammarSyntaxError, whatever Lark raises, and with the position where it can be known."""
    with pytest.raises(GrammarSyntaxError, match=message) as caught:
        lower_lark(grammar)
    if line is not None:
        assert (caught.value.line, caught.value.column) == (line, column)


@given(st.text(alphabet='st:ar"x/|()[]{}*~1.%importAB_\\\n #?!->é', max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Let no error of Lark or of ours out but the declared ones, whatever is written."""
    with contextlib.suppress(DeclareError, LimitError):
        lower_lark(f'start: "x"\n{text}')


def test_deep_nesting_is_refused() -> None:
    """Give a limit, not a RecursionError, for very deep groups."""
    for depth in (1000, 3000):
        with pytest.raises(LimitError, match="nested"):
            lower_lark("start: " + "(" * depth + '"a"' + ")" * depth)


def test_an_imported_declare_is_refused() -> None:
    """Refuse a declared terminal that comes with an import."""
    with pytest.raises(GrammarSyntaxError, match="%declare"):
        lower_lark("start: file_input\n%import python.file_input\n")


def test_a_template_without_end_is_refused() -> None:
    """Stop at a limit where a template makes ever new templates."""
    with pytest.raises(LimitError, match="template"):
        lower_lark('start: t{"x"}\nt{a}: a t{u{a}}\nu{a}: a')


def test_other_lexers_are_refused() -> None:
    """Refuse a lexer that is not there, instead of taking another in silence."""
    with pytest.raises(OptionError, match="not known"):
        lower_lark('start: "x"', lexer="dynamik")


@given(st.text(alphabet='st:ar"x/|()[]{}*~1.%importAB_\\\n #?!->é', max_size=30))
def test_any_text_is_read_or_refused_for_the_contextual_lexer(text: str) -> None:
    """Let no error of Lark or of ours out but the declared ones, whatever is written."""
    with contextlib.suppress(DeclareError, LimitError):
        lower_lark(f'start: "x"\n{text}', lexer="contextual")
