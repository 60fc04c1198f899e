"""The contextual lexer: the lowered grammar accepts exactly what `Lark(parser="lalr", lexer="contextual")` parses."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import interegular
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import UnexpectedInput
from lark.lexer import PatternRE

from oracle.recognise import accepts
from oracle.walks import automaton_of, tokens_of
from structgen.errors import DeclareError, GrammarSyntaxError, LimitError, UnsatisfiableError
from structgen.grammar import ir
from structgen.grammar.lark_grammar import collisions, lower_lark
from structgen.grammar.lark_grammar.lalr import Tables
from structgen.vocabulary import Vocabulary


def lark_parser(grammar: str, start: str = "start") -> Lark:
    """Build the parser that defines the language."""
    return Lark(grammar, parser="lalr", lexer="contextual", start=start)


def lark_accepts(parser: Lark, text: str) -> bool:
    """Tell Lark's verdict."""
    try:
        parser.parse(text)
    except UnexpectedInput:
        return False
    return True


def lower(grammar: str) -> ir.Grammar:
    """Lower a grammar for the contextual lexer."""
    return lower_lark(grammar, lexer="contextual")


def texts(alphabet: str, longest: int) -> Iterator[str]:
    """Yield every text over an alphabet, short ones first."""
    for length in range(longest + 1):
        yield from map("".join, itertools.product(alphabet, repeat=length))


SQL = r"""
start: "select"i cols "from"i NAME [where] [order] ";"?
cols: "*" | expr ("," expr)*
where: "where"i expr
order: "order"i "by"i NAME ("asc"i | "desc"i)?
?expr: expr "and"i test | test
?test: term [("=" | "<>" | "<" | "<=") term | "is"i "not"i? "null"i | "in"i "(" term ("," term)* ")"]
?term: NAME | INT | STRING | NAME "(" expr ")"
NAME: /[a-z_][a-z0-9_]*/i
STRING: /'([^']|'')*'/
%import common (INT, WS, SQL_COMMENT)
%ignore WS
%ignore SQL_COMMENT
"""
C_LIKE = r"""
start: stmt*
?stmt: "if" "(" expr ")" stmt ["else" stmt] | "{" stmt* "}" | NAME "=" expr ";" | "return" expr? ";"
?expr: expr ("<" | "<=" | "==") sum | sum
?sum: sum ("+" | "-") unary | sum "/" unary | unary
?unary: "-" unary | NAME | NUMBER | STRING | NAME "(" [expr ("," expr)*] ")"
NAME: /[a-zA-Z_]\w*/
%import common (NUMBER, ESCAPED_STRING, CPP_COMMENT, C_COMMENT, WS)
%import common.ESCAPED_STRING -> STRING
%ignore WS
%ignore CPP_COMMENT
%ignore C_COMMENT
"""
PYTHON = r"""
start: (stmt _NL)*
?stmt: NAME "=" test | "return" test | "pass" | "from" NAME "import" NAME
?test: or_test ["if" or_test "else" test] | "lambda" [NAME ("," NAME)*] ":" test
?or_test: not_test ("or" not_test)*
?not_test: "not" not_test | sum (("<" | "in" | "not" "in" | "is" "not"?) sum)*
?sum: power (("+" | "-") power)*
?power: atom ["**" power]
?atom: NAME | DEC_NUMBER | HEX_NUMBER | FLOAT_NUMBER | STRING | atom "." NAME | atom "[" test [":" test] "]" | "..."
%import python (NAME, DEC_NUMBER, HEX_NUMBER, FLOAT_NUMBER, STRING)
_NL: /(\r?\n[\t ]*)+/
%ignore /[\t ]+/
%ignore /#[^\n]*/
"""

# Name: grammar, texts that it holds, texts that it does not hold.
CASES = {
    "calculator": (
        'start: sum\n?sum: product | sum ("+" | "-") product\n?product: atom | product ("*" | "/") atom\n'
        '?atom: NUMBER | "-" atom | NAME | "(" sum ")"\n'
        "%import common (NUMBER, WS_INLINE)\n%import common.CNAME -> NAME\n%ignore WS_INLINE",
        ["1+2 * x", "-(3.5e10 - y)/2", "1 -1", "x1"],
        ["", "1x 2", "1 2", "1e", "(1", "1..2"],
    ),
    "JSON": (
        '?start: value\n?value: "{" [pair ("," pair)*] "}" | "[" [value ("," value)*] "]" | STRING | NUMBER\n'
        '    | "true" | "false" | "null"\npair: STRING ":" value\n%import common.ESCAPED_STRING -> STRING\n'
        "%import common.SIGNED_NUMBER -> NUMBER\n%import common.WS\n%ignore WS",
        ['{"a": [1, -2.5e3, true, null, "x\\"y"], "b":{}}', "[ ]", '["é"]'],
        ["[1,]", "truefalse", "[1 2]", '{"a" 1}', '"a""'],
    ),
    "a keyword is no name": (
        'start: "if" NAME | NAME "=" NAME\nNAME: /[a-z]+/\n%ignore " "',
        ["if x", "iffy=x", "a=b", "if iff", "x=if"],
        ["if=x", "ifx", "if", "if if x"],
    ),
    "SQL": (
        SQL,
        ["SELECT a, max(b) FROM t WHERE a <= 'x''y' and b is not null;", "select*from t -- c"],
        ["select from t", "select a from b where cis null"],
    ),
    "C": (
        C_LIKE,
        ['if (a<=b) x = f(1, "s"); else { y = -2 / z; } // c', "/* c */ return returns; /**/", "x=1;/*/ y=2;*/"],
        ["x = 1 // 2;", "return1;", "if (a) else", "x = y/*;"],
    ),
    "Python": (
        PYTHON,
        ["x = f[1:0xFF].y ** 2\n", "pass\nx = a is not b # c\n", "x = 1.5 if a else ...\n"],
        ["x = 1.y\n", "x = a b\n", "pass", "x = notb or not\n"],
    ),
    "strings": (
        'start: (STRING | RAW | "+")+\nSTRING: /"(\\\\.|[^"\\\\])*"/\nRAW: /r".*?"/s\n%ignore " "',
        ['"a\\"b"+r"\\"', '""""', 'r"\n"'],
        ['"', 'r"a" b', '"\\"'],
    ),
    "priorities": (
        "start: (LOW | HIGH | WORD)+\nLOW: /a+/\nHIGH.2: /ab?/\nWORD: /[bc]+/",
        ["aab", "abc", "aaa", "bc"],
        ["d", ""],
    ),
    "a terminal that another one hides": (
        'start: "x" SHORT | LONG\nLONG: /x+y/\nSHORT: /x+/\n',
        ["xxy", "xx"],
        ["x", "xxyy"],
    ),
    "the same text by context": (
        'start: "[" A "]" | "(" B ")"\nA: /[a-z]+/\nB: /[a-z0-9]+/',
        ["[ab]", "(a1)", "(ab)"],
        ["[a1]", "[]"],
    ),
    "template, alias and range": (
        'start: _list{pair} -> pairs | X~2..3 -> xs\n_list{item}: "(" item ("," item)* ")"\npair: NAME [":" NAME]\n'
        "X: /[0-9]/\nNAME: /[a-z]+/",
        ["(a)", "(a:b,c)", "12", "123"],
        ["1", "1234", "(a,)", "()"],
    ),
    "extend and override": (
        'start: (INT | WORD | x)+\nx: "x"\n%extend x: "y"\n%import common.INT\n%import common.WORD\n'
        "%override WORD: /[x-z]+/\n%ignore /,+/",
        ["xy", "z,12", "x", "1,,"],
        ["a", "", "x-y"],
    ),
    "else belongs to the last if": (
        'start: s\ns: "if" s ["else" s] | "x"',
        ["ifx", "ififxelsex", "ififxelsexelsex"],
        ["ifxelsexelsex", "if", "xelsex"],
    ),
    "a conflict that loses a text": ('start: x "a" | x "b"\nx: "c" "a"?', ["cb", "caa", "cab"], ["ca", "c"]),
    "a rule of higher priority": (
        'start: one "!" | two "!" | two "?"\none.2: LETTER\ntwo.1: LETTER\nLETTER: /[a-z]/',
        ["a!", "a?"],
        ["a", "!"],
    ),
    "a promise over several tokens": (
        'start: INT (".." INT)? | REAL | INT "." NAME\nINT: /[0-9]+/\nREAL: /[0-9]+\\.[0-9]+(e[0-9]+)?/\n'
        "NAME: /[a-z]+/",
        ["1", "1..2", "1.5", "1.5e3", "1.a", "12.x"],
        ["1.", "1.5e", "1...2", "1.5..2"],
    ),
    "a promise that is never settled": (
        'start: "a" "b"\nC: "/*" /(.|\\n)*/ "*/"\n%ignore C',
        ["ab", "a/* x */b", "a/* */ */b", "/*a*/ab"],
        ["a/**/b/**/", "a/*b", "/**/ab*/"],
    ),
    "real neighbours": (
        r'start: (WORD | END | LATER | "-")+' + "\nWORD: /\\b[a-z]\\B/\nEND: /(?<!-)[a-z]\\b/\nLATER: /[a-z](?!-)/",
        ["ab-", "a", "abc"],
        ["", "-a-"],
    ),
    "lazy": ("start: A B?\nA: /<.*?>/\nB: /x+?/", ["<>", "<a>x"], ["<a>b>", "<a>xx", "<<"]),
    "alternatives in order": ("start: A B? | B\nA: /a|ab/\nB: /bc?|bcd/", ["a", "ab", "abc", "b"], ["abcd", "abb"]),
    "beyond ASCII": ('start: /[а-я]+/ "⇒"i /\\w/ ["ß"i]', ["да⇒x", "ы⇒éẞ", "ы⇒9ß"], ["д⇒", "⇒x", "да"]),
}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_grammar(name: str) -> None:
    """Give Lark's verdict on the listed texts, and on what becomes of them by one to three changes of a character."""
    grammar, good, bad = CASES[name]
    parser, lowered = lark_parser(grammar), lower(grammar)
    assert [text for text in good if not lark_accepts(parser, text)] == []
    assert [text for text in bad if lark_accepts(parser, text)] == []
    rng = random.Random(name)
    changed = {_changed(text, "".join(good + bad), rng) for text in good for _ in range(60 // len(good))}
    wrong = {text: accepts(lowered, text.encode()) for text in (*good, *bad, *changed)}
    assert {text for text, verdict in wrong.items() if verdict != lark_accepts(parser, text)} == set()


def _changed(text: str, alphabet: str, rng: random.Random) -> str:
    characters = [*text]
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(characters) + 1)
        characters[at : at + rng.randrange(2)] = rng.choice(["", rng.choice(alphabet)])
    return "".join(characters)


WORDS = ["if", "else", "select", "from", " not ", "/*", "*/", "//", "1.", "..", "''", "a1", "б"]
VOCABULARY = Vocabulary.from_bytes(
    [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in WORDS), b""], stop_ids=[256 + len(WORDS)]
)


@pytest.mark.parametrize("name", CASES)
def test_random_walks_are_parsed(name: str) -> None:
    """Walk the token automaton at random, to an end within a budget: Lark parses each text that comes out."""
    grammar, _, _ = CASES[name]
    parser, automaton = lark_parser(grammar), automaton_of(lower(grammar), VOCABULARY)
    rng = random.Random(name)
    found = set()
    for _ in range(8):
        state = automaton.start()
        budget = state.tokens_to_end_bound + 20
        while not state.is_finished:
            budget -= 1
            legal = sorted(tokens_of(state.mask_within(budget + 1), VOCABULARY))
            plain = [token for token in legal if token not in range(127, 256)]
            state.advance(rng.choice(plain or legal))
        found.add(bytes(state.text_bytes).decode())
    assert len(found) > 1
    assert {text for text in found if not lark_accepts(parser, text)} == set()


def test_conflicts_are_found() -> None:
    """Tell what the LALR parser leaves out: nothing without a conflict, and the token that is shifted with one."""
    for name, tokens in [("JSON", set()), ("a conflict that loses a text", {"A"})]:
        tables = Tables(lark_parser(CASES[name][0]), "start")
        assert set().union(*tables.left_out.values()) == tokens


def test_lengths_make_no_seams() -> None:
    """Keep one rule for names of any length: what a name of seven letters promises is what one of eight does."""
    lowered = lower('start: NAME ("," NAME)*\nNAME: /[a-z]{1,200}/\n%ignore " "')
    assert len(lowered.rules) == 3
    assert accepts(lowered, b"a," + b"b" * 200 + b" ,c")
    assert not accepts(lowered, b"b" * 201)


def test_alike_rules_are_one() -> None:
    """Keep the size of Lark's own rules where no seam differs from another: JSON has no rule twice."""
    lowered = lower(CASES["JSON"][0])
    assert len({name.split(" ")[0] for name in lowered.rules}) == len(lowered.rules)


ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "ab?", "(?:a|ab)", "(?:ab|a)", "b*?c?"])
LOOKS = st.sampled_from(
    ["(?=a)", "(?!b)", "(?<=a)", "(?<!b)", r"\b", r"\B", "^", "$", "(?=.*c)", "(?!a*b)", "(?<!ab)", "(?:(?=ab)|b)"]
)
EXPRESSIONS = st.recursive(
    st.one_of(ATOMS, ATOMS, LOOKS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"]), st.sampled_from(["", "?"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}{parts[2]}"
        ),
    ),
    max_leaves=5,
)
TERMINALS = st.one_of(st.sampled_from(['"a"', '"b"', '"ab"', '"ba"i']), EXPRESSIONS.map(lambda text: f"/{text}/"))
SYMBOLS = st.tuples(
    st.sampled_from(["A", "B", "C", "x", "start", '"a"', '"c"']), st.sampled_from(["", "", "", "?", "*", "+"])
).map("".join)
BODIES = st.lists(st.lists(SYMBOLS, max_size=3).map(" ".join), min_size=1, max_size=3).map(" | ".join)
IGNORES = st.sampled_from(["", "", "%ignore A", '%ignore "b"', "%ignore /b+/", "%ignore /c.*a/\n%ignore /b/"])


@st.composite
def grammars(draw: st.DrawFn) -> str:
    """Make a grammar of two rules and three terminals, some of them with priorities, and maybe ignored text."""
    terminals = [f"{name}{draw(st.sampled_from(['', '', '.1', '.2']))}: {draw(TERMINALS)}" for name in ("A", "B", "C")]
    return "\n".join([f"start: {draw(BODIES)}", f"x: {draw(BODIES)}", *terminals, draw(IGNORES)])


@given(grammars())
def test_random_grammars(grammar: str) -> None:
    """Refuse what Lark refuses, else give Lark's verdict on every short text."""
    try:
        parser = lark_parser(grammar)
    except Exception:
        with pytest.raises(DeclareError):
            lower(grammar)
        return
    try:
        lowered = lower(grammar)
    except UnsatisfiableError:
        lowered = ir.Grammar({"start": ir.Choice(())}, "start")
    for text in {*texts("abc", 4), *texts("ab", 6)}:
        assert accepts(lowered, text.encode()) == lark_accepts(parser, text), text


@pytest.mark.slow
@given(grammars())
def test_random_grammars_at_length(grammar: str) -> None:
    """Give Lark's verdict on every text of up to six characters."""
    try:
        parser, lowered = lark_parser(grammar), lower(grammar)
    except Exception:
        return
    for text in texts("abc", 6):
        assert accepts(lowered, text.encode()) == lark_accepts(parser, text), text


ERRORS = [
    ("start: A\nA: /(x)\\1/", GrammarSyntaxError, "A.*back-reference.*column 4 of it"),
    ("start: a | b\na: X\nb: X\nX: /x/", GrammarSyntaxError, "Reduce/Reduce"),
    ("start: A\nA: /x(?=y*(?<=xy))y/", GrammarSyntaxError, "terminal A: .*reaches past its own place"),
    ("start: A\nA: /(([a-z]{1,90} ){1,90},){1,90}/", LimitError, "terminal A: a terminal is too large"),
    ("start: A\nA: /x*/", GrammarSyntaxError, "terminal A: it can match the empty text"),
    ("start: " + " ".join(f'"{i}"?' for i in range(40)), LimitError, "optional parts"),
    ('start: A "x"\nA: /x(?=y)/', UnsatisfiableError, "no text at all"),
]


@pytest.mark.parametrize(("grammar", "error", "message"), ERRORS)
def test_refusals(grammar: str, error: type[Exception], message: str) -> None:
    """Refuse by name what Lark refuses, what is not regular, and what has no text."""
    with pytest.raises(error, match=message):
        lower(grammar)


def test_terminals_that_no_lexer_tries_are_not_looked_at() -> None:
    """Take a grammar as Lark does whose unreached rules, which keep each other, use what no lexer may try."""
    for pattern in ("b*", "(?=b)", r"(b)\1"):
        grammar = f'start: "a"\nx: B x*\nB: /{pattern}/'
        lark_parser(grammar)
        lowered = lower(grammar)
        assert [text for text in texts("ab", 3) if accepts(lowered, text.encode())] == ["a"]
        assert collisions(grammar) == []


COLLIDING = {
    "start: A (B | C)\nA: /[a-z]+/\nB: /[a-f0-9]+/\nC: /[0-9]+/": [("B", "C", "0")],
    "start: A | B\nA.2: /[a-z]+/\nB: /[a-f]+/": [],
    'start: A | "b"\nA: /[a-z]+/': [],
    "start: /[ab]/ | /[bc]/\n%ignore /c+/": [("/[ab]/", "/[bc]/", "b"), ("/c+/", "/[bc]/", "c")],
}


@pytest.mark.parametrize("grammar", COLLIDING)
def test_collisions(grammar: str) -> None:
    """Name each pair of one priority that a lexer has to choose between, with a text that both match."""
    told = collisions(grammar)
    assert len(told) == len(COLLIDING[grammar])
    for sentence, (one, other, text) in zip(sorted(told), sorted(COLLIDING[grammar]), strict=True):
        assert f"terminals {one} and {other} both match {text!r}, and Lark tries {one} first" in sentence


@given(st.lists(EXPRESSIONS.filter(lambda text: not set(text) & set("\\^$=!<")), min_size=2, max_size=3))
def test_collisions_are_those_of_interegular(expressions: list[str]) -> None:
    """Find as many colliding pairs as the comparator that Lark itself asks."""
    names = [f"T{number}" for number in range(len(expressions))]
    grammar = f"start: {' | '.join(names)}\n" + "\n".join(
        f"{name}: /x{text}/" for name, text in zip(names, expressions, strict=True)
    )
    terminals = [t for t in lark_parser(grammar).terminals if isinstance(t.pattern, PatternRE)]
    comparator = interegular.Comparator.from_regexes({t.name: t.pattern.to_regexp() for t in terminals})
    pairs = list(itertools.combinations([t.name for t in terminals], 2))
    assert len(collisions(grammar)) == sum(not comparator.isdisjoint(*pair) for pair in pairs)
