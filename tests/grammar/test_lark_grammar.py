"""Lark grammars: the lowered grammar accepts exactly what Lark's Earley parser with `dynamic_complete` accepts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import LarkError, UnexpectedInput

from oracle.recognise import accepts
from structgen.errors import DeclareError, GrammarSyntaxError
from structgen.grammar import ir
from structgen.grammar.dfa import matches
from structgen.grammar.lark_grammar import lower_lark
from structgen.grammar.lark_grammar.terminals import _pattern_dfa


def lark_parser(grammar: str, start: str = "start") -> Lark:
    """Build the parser that defines the language; "forest" spares the choice of one tree."""
    return Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="forest", start=start)


def lark_accepts(parser: Lark, text: str) -> bool:
    """Tell Lark's verdict."""
    try:
        parser.parse(text)
    except UnexpectedInput:
        return False
    except RuntimeError as error:
        # A bug of Lark: where skipped text makes two complete parses, it has both and then refuses to choose.
        assert "multiple start symbol items" in str(error)  # noqa: PT017 - not about whether it is raised
    return True


def texts(alphabet: str, longest: int) -> Iterator[str]:
    """Yield every text over an alphabet, short ones first."""
    for length in range(longest + 1):
        yield from map("".join, itertools.product(alphabet, repeat=length))


def assert_same(grammar: str, candidates: Iterator[str] | list[str]) -> None:
    """Compare verdicts text by text; both verdicts must occur, or the comparison shows little."""
    parser, lowered = lark_parser(grammar), lower_lark(grammar)
    wrong = {}
    for text in candidates:
        expected = lark_accepts(parser, text)
        if accepts(lowered, text.encode()) != expected:
            wrong[text] = expected
    assert not wrong, f"{grammar}\nLark says {wrong}"


# One grammar or more of each kind in shared/cases/grammars.json, with values of our own.
CASES = {
    "left recursion": (
        'start: sum\nsum: sum "-" INT | sum "*" INT | INT\nINT: /[1-9][0-9]*/',
        ["7", "7-1", "7-1*20", "10*1-1"],
        ["", "-7", "7-", "07", "7--1"],
    ),
    "hidden left recursion": (
        'start: s\ns: pre s "z" | "k"\npre: "p"? "q"?',
        ["k", "kz", "pkz", "qkz", "pqkz", "pqpkzz"],
        ["z", "pk", "qpkz", "pqpkz"[:-1], ""],
    ),
    "mutual left recursion": (
        'start: a\na: b "1" | "x"\nb: a "2" | "y"',
        ["x", "y1", "x21", "y121"],
        ["y", "x1", "x2"],
    ),
    "empty option under a star": ('start: (|"ab")* ("c"|)+', ["", "ab", "abab", "abc", "ccc"], ["a", "cab", "b"]),
    "a lexeme may end early": (
        "start: LONG | SHORT TAIL\nLONG: /x+y+z/\nSHORT: /xx/\nTAIL: /y+w/",
        ["xyz", "xxyyz", "xxyyw"],
        ["xyw", "xxy", "xxxyw"],
    ),
    "greedy body, then a bracket": (
        'start: "<" ANY ">" "?"\nANY: /.+/',
        ["<a>?", "<a>b>?", "<>>?"],
        ["<a>", "<>?", "<a>?b"],
    ),
    "lazy quantifier": ('start: /b.*?e/ "n"', ["ben", "bxen", "b en"], ["bn", "be", "been", "bexen"]),
    "keyword or name": (
        'start: "let" " " NAME | NAME ":" NAME\nNAME: /[a-z_]+/',
        ["let x", "let let", "letter:x", "let:let"],
        ["let", "letx", "x y", "let x:y"],
    ),
    "case insensitive": (
        'start: "from"i " " "to"',
        ["from to", "FROM to", "fRoM to"],
        ["FRO to", "from TO", "from tO"],
    ),
    "case insensitive beyond ASCII": ('start: "ß"i "k"i', ["ßk", "ẞK", "ß\u212a"], ["ssk", "SSK"]),
    "ignored": (
        'start: "f" "(" ")"\n%import common.WS\n%ignore WS',
        ["f()", "f ( )", " f\t(\n\n) ", "\r\nf()"],
        ["f(", "f)(", "f (x)", ""],
    ),
    "template": (
        'start: _sep{PAIR, ";"} | wrap{wrap{"q"}}\n_sep{item, by}: item (by item)*\n'
        'wrap{x}: "(" x ")"\nPAIR: /[a-z]=[0-9]/',
        ["a=1", "a=1;b=2", "((q))"],
        ["a=1;", "", "(q)", "a=1b=2"],
    ),
    "bounded repeat": ('start: "ab"~2 X~0..2\nX: "x"', ["abab", "ababx", "ababxx"], ["ab", "ababab", "ababxxx"]),
    "long bounded repeat": (
        'start: "a"~70..130 "b"~60',
        ["a" * 70 + "b" * 60, "a" * 130 + "b" * 60],
        ["a" * 69 + "b" * 60, "a" * 131 + "b" * 60, "a" * 100 + "b" * 59],
    ),
    "numbers in a list": (
        'start: "[" [NUMBER ("," NUMBER)*] "]"\n%import common.SIGNED_NUMBER -> NUMBER',
        ["[]", "[1]", "[1,-2.5,3e+4]"],
        ["[1,]", "[,1]", "[1 2]", "[+]"],
    ),
    "unicode": ('start: /[а-я]+/ "⇒" /[🐀-🐿]/', ["да⇒🐍", "ы⇒🐀"], ["da⇒🐍", "да⇒x", "да⇒"]),
    "ambiguous": ('start: start start | "a" | "aa"', ["a", "aa", "aaaaa"], ["", "b", "ab"]),
    "palindrome": (
        'start: | "0" | "1" | "0" start "0" | "1" start "1"',
        ["", "0", "010", "1001", "11011"],
        ["01", "100", "0110 "],
    ),
    "escaped strings": (
        "start: ESCAPED_STRING\n%import common.ESCAPED_STRING",
        ['""', '"a"', r'"a\"b"', r'"\\"', '"é\t"'],
        ['"a', 'a"', '"a"b"', r'"\"', r'"\\\"', '"a\nb"'],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_grammar(name: str) -> None:
    """Accept and reject the listed texts; Lark says the same, so the list is not a mistake of ours."""
    grammar, good, bad = CASES[name]
    parser, lowered = lark_parser(grammar), lower_lark(grammar)
    assert [text for text in good if not accepts(lowered, text.encode())] == []
    assert [text for text in bad if accepts(lowered, text.encode())] == []
    assert [text for text in good if not lark_accepts(parser, text)] == []
    assert [text for text in bad if lark_accepts(parser, text)] == []


SMALL = {
    "cycles": 'start: a | b\na: b | "x" a | \nb: a | "y" | b b',
    "nothing but empty": "start: a a\na: | a",
    "unproductive": 'start: a | "x"\na: a "y"',
    "useless and empty": 'start: (a*)* "x" (a?)~2\na: "y"?',
    "first match of alternatives": 'start: /x|xy/ "y"? | /(xy|x)(yx)?/ "z"',
    "first match of lazies": "start: (/x+?y??/ | /z.*?z/)+",
    "empty copies in a loop": "start: /(|x)+y/ /(x|(?:y|)*)*z/",
    "terminal alternatives are sorted": 'start: A "z"\nA: "x" | "xy" | "xyx"',
    "terminal operators": 'start: A B?\nA: ("x" | "y" "z"~1..2)~2\nB: ["x"] "y"+',
    "range and flags": 'start: A /[x-y]/i | "XY"i\nA: "x".."y"',
    "priorities": "start: a | b\na.2: A B\nb.1: B A\nA.3: /x+/\nB.-1: /[xy]+/",
    "inline, alias, keep": '?start: _a "x" -> one | _a b -> two\n!_a: "y"*\n!b: "z"?',
    "a template with an operator": 'start: t{"x"} t{b}\nt{i}: i* "z" | i~2\nb: "y"',
    "extend and override": 'start: a\na: "x"\n%override a: "y"\n%extend a: "z" a\n',
    "flags": "start: A B?\nA: /x . # dot and comment\n y?/xs | /X/i\nB: /(?i:y)(?-i:z)/",
    "flags of parts joined": 'start: T+\nT: A /y/ "Z"i\nA: /x/i',
    "imported names and their parts": "start: N W?\n%import common (LCASE_LETTER)\n%import common.LETTER -> N\n"
    "W: LCASE_LETTER~2",
    "an imported rule": "start: value\n%import lark.value\n%override value: X | value X\nX: /[xyz]/",
    "a template in a template": 'start: p{q{"x"}, "y"}\np{a, b}: a b | b p{b, a} "z"\nq{c}: c~1..2',
    "a template of a terminal": 'start: twice{T} | twice{"z"}\n!twice{a}.2: a a -> two\nT: U~0..1 "y"\nU: "x"+',
    "ranges of repeats": 'start: A~2 B~0..1 ("z" A)~1..2\nA: "x"~1..2 | "y"\nB: ("x" "z")~2',
    "imported and extended": 'start: X\n%import common.DIGIT -> X\n%extend X: "y"\n%override X: "z" | "x"',
}


@pytest.mark.parametrize("name", SMALL)
def test_all_short_texts(name: str) -> None:
    """Give Lark's verdict on every text of up to six characters of a small alphabet."""
    assert_same(SMALL[name], texts("xyz", 6))


def test_flags_of_lines() -> None:
    """Read the flags s and m, by letter and inline, as Lark does: a dot over a line's end, an anchor inside."""
    assert_same("start: /x.^y/ms | /y(?s:.)(?-s:.)/ | /x$\\n^x/m", texts("xy\n", 4))


IGNORED = {
    "a character": ('start: "x" "y"', '" "', "xy "),
    "a run": ('start: "x"? "y"*', "/ +/", "xy "),
    "nullable start": ('start: a*\na: "x" | "y" a', '" "', "xy "),
    "text that a terminal begins with": ('start: "x" "yx"?', "/y+/", "xy"),
    "text inside a terminal": ("start: /x y?/+", "/ +/", "xy "),
    "a run before its own character": ('start: "x" " y" | "y" " "', "/ +/", "xy "),
    "a comment to the end of the line": ('start: "x" "y"', "/#[^n]*/\n%ignore /n/", "xyn#"),
    "a lazy comment": ('start: "x"+ "y"', "/<.*?>/", "xy<>"),
    "alternatives": ('start: "x" "y"+', "/zx?|y/", "xyz"),
    "three ways": ('start: "x" "yz"?', '/y+/\n%ignore "z"\n%ignore /xx/', "xyz"),
    "an obligation of two characters": ('start: "x" "yy"', "/z(yz)?/", "xyz"),
    "itself in a rule": ("start: A _S A\nA: /x+/\n_S: /y+/", "_S", "xy"),
    "choices of words": ('start: ("x" | "xy" | "yx")+', '"z"', "xyz"),
    "an expression": ('start: "x" "y"', '"a"~2 | "b"', "xyab"),
}


@pytest.mark.parametrize("name", IGNORED)
def test_ignored_text(name: str) -> None:
    """Skip ignored text where Lark skips it, and only as far as Lark skips it."""
    rules, ignored, alphabet = IGNORED[name]
    assert_same(f"{rules}\n%ignore {ignored}", texts(alphabet, 6 if len(alphabet) < 4 else 5))


def test_ignored_comment_swallows_what_follows() -> None:
    """A comment runs to the end of its line: no terminal may hide in it."""
    lowered = lower_lark('start: "a" "b"\nCOMMENT: /#[^\\n]*/\n%ignore COMMENT\n%ignore /[ \\n]+/')
    assert accepts(lowered, b"a # b\n b # c")
    assert not accepts(lowered, b"a # b")


def test_ignored_terminal_without_a_settled_end_is_refused() -> None:
    """A greedy comment reaches to the last end mark of the whole text; that is refused, the lazy one works."""
    with pytest.raises(GrammarSyntaxError, match=r"C_COMMENT.*first chance"):
        lower_lark('start: "a" "b"\nC_COMMENT: "/*" /(.|\\n)*/ "*/"\n%ignore C_COMMENT')
    lowered = lower_lark('start: "a" "b"\n%import common.C_COMMENT\n%ignore C_COMMENT')
    assert accepts(lowered, b"a/* x */b")
    assert not accepts(lowered, b"a/* x */ */b")


# Regular expressions over "x", "y", "z": what a terminal accepts is what `re.match` takes whole.
ATOMS = st.sampled_from(["x", "y", "z", ".", "[xy]", "[^x]", "(?:)", "\\w"])
LOOKS = st.sampled_from(
    [
        "(?=x)",
        "(?!y)",
        "(?<=x)",
        "(?<!y)",
        "(?=.*z)",
        "(?!x*y)",
        "(?<!xy)",
        "(?!xy\\b)",
        "(?!\\bx|y$)",
        "(?<=x\\b)",
        "(?=^x)",
        "(?!(?=x)(?<=y)z)",
        "\\b",
        "\\B",
        "^",
        "$",
    ]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}"]), st.sampled_from(["", "?"])
        ).map(lambda parts: f"(?:{parts[0]}){parts[1]}{parts[2]}"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_terminal_is_what_match_takes_whole(expression: str) -> None:
    """Accept a text iff the first match of `re` is the whole text."""
    dfa, pattern = _pattern_dfa(expression), re.compile(expression)
    for text in texts("xyz", 4):
        found = pattern.match(text)
        assert matches(dfa, text.encode()) == (found is not None and found.end() == len(text)), text


@pytest.mark.parametrize(
    "expression",
    ["(?:|.)*x", "(?:(?:|x)*|y)*z", "(?:(?:|x)+?|y)*?z", "(?:x||y){2,}z", "(?:(?:x?)*?y?)*z", "(?:(?:|x){0,2}|y)*z"],
)
def test_a_copy_that_matches_nothing_leaves_the_loop(expression: str) -> None:
    """Where part of a loop can be empty, what `re` prefers is the way out and not another copy."""
    dfa, pattern = _pattern_dfa(expression), re.compile(expression)
    for text in texts("xyz", 6):
        found = pattern.match(text)
        assert matches(dfa, text.encode()) == (found is not None and found.end() == len(text)), text


@given(st.lists(st.one_of(EXPRESSIONS, LOOKS), min_size=2, max_size=5).map("".join))
def test_look_arounds_see_the_text_alone(expression: str) -> None:
    """Look-around inside a terminal follows `re` as well, the terminal's edges being the edges of the text."""
    dfa, pattern = _pattern_dfa(expression), re.compile(expression)
    for text in texts("xyz", 4):
        found = pattern.match(text)
        assert matches(dfa, text.encode()) == (found is not None and found.end() == len(text)), text


def test_look_around_at_the_edge_sees_no_neighbour() -> None:
    """Hold to the documented difference: the edge of a terminal is the edge of the text, where Lark sees more."""
    grammar = "start: /xy?\\b/ /[yz]+/"
    parser, lowered = lark_parser(grammar), lower_lark(grammar)
    assert lark_accepts(parser, "xyz") < accepts(lowered, b"xyz")


NAMES = ["start", "a", "b"]
SYMBOLS = st.sampled_from(
    ['"x"', '"y"', '"xy"', '"yx"i', "a", "b", "start", "T", "U", "/x+/", "/y.?/", "/x|xy/", "t{a}", 't{"y"}']
)
PARTS = st.recursive(
    SYMBOLS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=0, max_size=3).map(lambda items: f"({' '.join(items)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: f"({' | '.join(items)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "~2", "~0..2", "~1..3"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
        inner.map(lambda item: f"[{item}]"),
    ),
    max_leaves=4,
)
BODIES = st.lists(st.lists(PARTS, max_size=3).map(" ".join), min_size=1, max_size=3).map(" | ".join)
IGNORES = st.sampled_from(
    ["", '%ignore "y"', "%ignore /y+/", "%ignore T", "%ignore /xy?/", "%ignore /z[^x]*/\n%ignore /x/"]
)


@st.composite
def grammars(draw: st.DrawFn) -> str:
    """Make a grammar of three rules that use each other, a template, two terminals and maybe ignored text."""
    rules = [f"{name}: {draw(BODIES)}" for name in NAMES]
    template = f"t{{p}}: {draw(st.sampled_from(['p', 'p p', 'p?', 'p t{p} | ', 'a p | U']))}"
    return "\n".join([*rules, template, 'T.2: "x" | "xy"', "U: /[xz]+?y?/", draw(IGNORES)])


@given(grammars())
def test_random_grammars(grammar: str) -> None:
    """Refuse what Lark refuses, else give Lark's verdict on every short text."""
    try:
        parser = lark_parser(grammar)
    except LarkError as error:
        assume("Rules defined twice" not in str(error))  # told by Lark only, and only where it is not too large
        with pytest.raises(DeclareError):
            lower_lark(grammar)
        return
    try:
        lowered = lower_lark(grammar)
    except GrammarSyntaxError as error:
        assume("first chance" not in str(error))
        raise
    for text in {*texts("xyz", 3), *texts("xy", 4)}:
        assert accepts(lowered, text.encode()) == lark_accepts(parser, text), text


COMMON = {
    "ESCAPED_STRING": '"a\\',
    "NUMBER": "0e.+",
    "SIGNED_NUMBER": "1E.-",
    "INT": "09a",
    "SIGNED_INT": "0+-",
    "FLOAT": "1.e-",
    "DECIMAL": "1.",
    "HEXDIGIT": "fF9g",
    "CNAME": "_a0é",
    "WORD": "aZ0",
    "LETTER": "aZ0",
    "WS": " \t\n\r",
    "WS_INLINE": " \t\n",
    "NEWLINE": "\r\n ",
    "SH_COMMENT": "#a\n",
    "CPP_COMMENT": "/a\n",
    "C_COMMENT": "/*a",
    "SQL_COMMENT": "-a\n",
}


@pytest.mark.parametrize("name", COMMON)
def test_common_terminals(name: str) -> None:
    """Read the terminals of Lark's common grammar as Lark does."""
    assert_same(f"start: T\n%import common.{name} -> T", texts(COMMON[name], 5))


PYTHON = {
    "python.NAME": ["a", "_x1", "é", "1a", "a b", ""],
    "python.DEC_NUMBER": ["0", "10", "1_0", "00", "01", "1_"],
    "python.HEX_NUMBER": ["0x1F", "0Xa_b", "0x", "0xg"],
    "python.FLOAT_NUMBER": ["1.", ".5", "1e5", "1.5E-3", "1", "e5"],
    "python.IMAG_NUMBER": ["1j", "1.5J", "j"],
    "python.STRING": ["''", "'a'", 'rb"x"', r"'a\'b'", "'a", "'''a'''", "'a'b'"],
    "python.LONG_STRING": ["'''a'b'''", '"""a\n"""', "''''''", "'a'", "'''a''''"],
    "python.COMMENT": ["#", "# a", "a", "# a\n"],
}


@pytest.mark.parametrize("name", PYTHON)
def test_python_terminals(name: str) -> None:
    """Read the terminals of Lark's Python grammar as Lark does, look-around included."""
    assert_same(f"start: T\n%import {name} -> T", PYTHON[name])


def test_another_start_rule() -> None:
    """Start from the rule that is named."""
    lowered = lower_lark('start: "x"\nother: "y"', start="other")
    assert accepts(lowered, b"y")
    assert not accepts(lowered, b"x")


def test_many_optional_parts_do_not_explode() -> None:
    """Lower what Lark would write out as 2 ** 40 alternatives."""
    lowered = lower_lark("start: " + " ".join(f'"{chr(97 + i % 26)}{i}"?' for i in range(40)))
    assert accepts(lowered, b"a0c2n39")
    assert not accepts(lowered, b"c2a0")


def test_lexemes_are_large() -> None:
    """Merge neighbouring strings, choices of strings, and keep repeats as repeats."""
    lowered = lower_lark('start: "a" "b" ("red" | "green" | "blue")~2..5 NAME\nNAME: /[a-z]+/')
    body = lowered.rules["start"]
    assert isinstance(body, ir.Sequence)
    first, repeat, name = body.items
    assert first == ir.Literal(b"ab")
    assert isinstance(repeat, ir.Repeat)
    assert (repeat.minimum, repeat.maximum) == (2, 5)
    assert isinstance(repeat.item, ir.Lexeme)
    assert isinstance(name, ir.Lexeme)
    assert name.name == "NAME"


def test_free_text_is_told_apart() -> None:
    """Mark a terminal that prose can run on in, and no other."""
    lowered = lower_lark("start: ESCAPED_STRING NAME\n%import common.ESCAPED_STRING\nNAME: /[a-z]+/")
    flags = {part.name: part.free_text for part in ir.walk(lowered.rules["start"]) if isinstance(part, ir.Lexeme)}
    assert flags == {"ESCAPED_STRING": True, "NAME": False}
