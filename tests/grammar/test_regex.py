"""Regular expressions against `re`: syntax, classes, look-arounds, flags; errors and limits."""

from __future__ import annotations

import itertools
import re
import time
import warnings
from functools import cache
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from structgen.errors import GrammarSyntaxError, LimitError
from structgen.grammar.charset import CharSet
from structgen.grammar.regex import Dialect, Mode, Node, machine, parse, to_chardfa
from structgen.grammar.regex.classes import _BINARY_NAMES, prop

ALPHABET = "aAb1 _\né-"
TEXTS = ["".join(letters) for length in range(4) for letters in itertools.product("aA1\n", repeat=length)]

LITERALS = ["a", "b", "A", "1", " ", "_", "é", "-", r"\n", "ab", "k", "ſ"]
CLASSES = [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", "[ab]", "[^a]", r"[^\W_]", r"[\d-]", r"[\s\S]", "[A-Z]"]
CLASSES += ["[a-zé]", "[^]a]", "[]-]", r"[\b1]", r"[\Wa]"]
PLACES = ["^", "$", r"\b", r"\B", r"\A", r"\Z"]
COUNTS = ["*", "+", "?", "{2}", "{1,2}", "{,2}", "{0,3}", "{2,}"]


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Draw each part and put them side by side."""
    return st.tuples(*parts).map("".join)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return larger expressions made of smaller ones, in every construct that both sides know."""
    return st.one_of(
        joined(inner, inner),
        joined(st.just("(?:"), inner, st.just("|"), inner | st.just(""), st.just(")")),
        joined(st.sampled_from(["(", "(?:"]), inner, st.just(")"), st.sampled_from(COUNTS), st.sampled_from(["", "?"])),
        joined(st.sampled_from(["(?=", "(?!", "(?<=", "(?<!"]), inner, st.just(")")),
        joined(st.sampled_from(["(?i:", "(?s:", "(?m:", "(?-i:", "(?#no)(?:"]), inner, st.just(")")),
    )


EXPRESSIONS = st.recursive(st.sampled_from(LITERALS + CLASSES + PLACES), grown, max_leaves=12)
FLAGS = st.sampled_from([0, re.I, re.M, re.S, re.A, re.I | re.A, re.I | re.M | re.S, re.X])
STRINGS = st.lists(st.text(ALPHABET + "kKſs", max_size=8), min_size=10, max_size=10)


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str] | None:
    """Return what `re` makes of a pattern, None if it does not read it."""
    with warnings.catch_warnings():
        # `re` warns of what may become a set operation one day; it is not one yet.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return re.compile(pattern, flags)
        except re.error:
            return None


@settings(max_examples=200)
@given(EXPRESSIONS, FLAGS, STRINGS)
def test_full_match_accepts_what_re_accepts(pattern: str, flags: int, texts: list[str]) -> None:
    """A text is accepted as a whole iff `re.fullmatch` finds a match, whatever the construct and the flags."""
    oracle = compiled(pattern, flags)
    if oracle is None:
        return
    dfa = to_chardfa(parse(pattern, flags=flags))
    for text in (*TEXTS, *texts):
        assert dfa.matches(text) == bool(oracle.fullmatch(text)), (pattern, flags, text)


@settings(max_examples=200)
@given(EXPRESSIONS, FLAGS, STRINGS)
def test_search_accepts_what_re_finds(pattern: str, flags: int, texts: list[str]) -> None:
    """In search mode a text is accepted iff `re.search` finds a match somewhere."""
    oracle = compiled(pattern, flags)
    if oracle is None:
        return
    dfa = to_chardfa(parse(pattern, flags=flags), mode="search")
    for text in (*TEXTS, *texts):
        assert dfa.matches(text) == bool(oracle.search(text)), (pattern, flags, text)


def read(pattern: str, flags: int) -> tuple[Node | None, str]:
    """Return the tree of a pattern, or None and why it is refused."""
    try:
        return parse(pattern, flags=flags), ""
    except GrammarSyntaxError as error:
        return None, str(error)


@settings(max_examples=200)
@given(EXPRESSIONS, st.sampled_from(["", ".{0,4}", "a.{3}", "(?:a1?){0,3}b"]), st.sampled_from(list(get_args(Mode))))
def test_pruned_threads_are_needless(pattern: str, repeat: str, mode: Mode) -> None:
    """Leaving out threads that another one covers, from the first state on, does not change the language."""
    if compiled(pattern) is None:
        return
    node = parse(f"(?:{pattern}){repeat}[a1]")
    plain = to_chardfa(node, mode=mode)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "PRUNING_STARTS_AT", 0)
        assert to_chardfa(node, mode=mode) == plain


@pytest.mark.parametrize(
    ("pattern", "most"), [("foo.{0,50}bar", 300), ("a.{14}", 16), (r"x[a.]{1,200}\.[a.]{1,6}\b[a./]*", 2000)]
)
def test_overlapping_repeats_stay_small(pattern: str, most: int) -> None:
    """Where many places of a repeat are alive at once, the one that can do most stands for them."""
    assert to_chardfa(parse(pattern), mode="search").num_states <= most
    assert to_chardfa(parse(pattern)).num_states <= most


REFUSALS = ("not supported", "not regular")


@settings(max_examples=800)
@given(st.text(r"\(?<!=:P>)[]^-{},1*+|$.adk#i\ b", max_size=10) | EXPRESSIONS, st.sampled_from([0, re.X]))
@example("#\\", re.X)
@example("a#\\\n)\n|1", re.X)
def test_python_syntax_is_read_as_re_reads_it(pattern: str, flags: int) -> None:
    """What `re` refuses is refused; what it reads is read, or refused by the name of the construct."""
    oracle = compiled(pattern, flags)
    node, message = read(pattern, flags)
    if node is None:
        assert oracle is None or any(reason in message for reason in REFUSALS), pattern
        return
    if oracle is None:
        # `re` wants look-behinds of one length; any regular one is fine here.
        assert "(?<" in pattern
        return
    dfa = to_chardfa(node)
    for text in ("", "a", "1", "{", "a1", "{1", "]", "-", "aa", "ad", "P", "a{1}"):
        assert dfa.matches(text) == bool(oracle.fullmatch(text)), (pattern, text)


@cache
def every_character() -> str:
    """Return all of Unicode in order, surrogates left out."""
    return "".join(map(chr, CharSet.any()))


@pytest.mark.parametrize("flags", [0, re.A, re.I, re.I | re.A])
def test_classes_hold_what_re_matches(flags: int) -> None:
    """Over every code point there is, a class, a shorthand and a letter are those of `re`, also ignoring case."""
    everything = every_character()
    sources = [
        r"\d",
        r"\W",
        r"\s",
        ".",
        "k",
        "ſ",
        "İ",
        "[a-zß]",
        "[^ǅ]",
        r"[\Wµ]",
        "[\U00010400ͅ]",
        "[\U0001e900-\U0001e943Ā-Ͽ]",
    ]
    for source in sources:
        dfa = to_chardfa(parse(source, flags=flags))
        ours = dfa.class_set(int(dfa.table[0].argmax())) if dfa.num_states > 1 else CharSet.empty()
        # Neighbours in this text are neighbours in Unicode, surrogates aside.
        runs = re.findall(f"(?:{source})+", everything, flags)
        assert ours == CharSet.from_ranges((ord(run[0]), ord(run[-1])) for run in runs), source


# The ECMA dialect. Each item: as written, and how Python and ECMA-262 read it, in Python's syntax.
SPACE = r"\t-\r \xa0\ufeff\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
WORD = "a-zA-Z0-9_"
BOUNDARY = f"(?:(?<=[{WORD}])(?![{WORD}])|(?<![{WORD}])(?=[{WORD}]))"
DISPUTED = [
    (r"\d", r"\d", "[0-9]"),
    (r"\D", r"\D", "[^0-9]"),
    (r"\w", r"\w", f"[{WORD}]"),
    (r"\W", r"\W", f"[^{WORD}]"),
    (r"\s", r"\s", f"[{SPACE}]"),
    (r"\S", r"\S", f"[^{SPACE}]"),
    (r"[^\d_]", r"[^\d_]", "[^0-9_]"),
    (r"[\s\S]", r"[\s\S]", r"[\s\S]"),
    (".", ".", r"[^\n\r\u2028\u2029]"),
    (r"\b", r"\b", BOUNDARY),
    (r"\B", r"\B", f"(?!{BOUNDARY})"),
    ("$", "$", r"\Z"),
    ("^", "^", r"\A"),
    ("a", "a", "a"),
    ("[^a]", "[^a]", "[^a]"),
]
Reading = tuple[str, str, str]


def grown_readings(inner: st.SearchStrategy[Reading]) -> st.SearchStrategy[Reading]:
    """Return larger expressions, built alike in all three readings."""
    forms = ["{}{}", "(?:{}|{})", "(?:{})*{}", "(?:{}){{1,2}}{}", "(?={}){}", "(?!{}){}", "(?<={}){}", "(?<!{}){}"]
    return st.builds(
        lambda form, one, two: tuple(form.format(a, b) for a, b in zip(one, two, strict=True)),
        st.sampled_from(forms),
        inner,
        inner,
    )


READINGS = st.recursive(st.sampled_from(DISPUTED), grown_readings, max_leaves=8)
DISPUTED_TEXTS = st.lists(st.text("a1 _\n\r\u2028é٣\ufeff\x1c\x85", max_size=6), min_size=40, max_size=40)


@settings(max_examples=200)
@given(READINGS, DISPUTED_TEXTS)
def test_a_pattern_accepts_only_what_both_dialects_accept(reading: Reading, texts: list[str]) -> None:
    """Whatever the polarity, no text is accepted that Python or ECMA-262 refuses; plain texts are not lost."""
    pattern, *oracles = reading
    both = [oracle for oracle in map(compiled, oracles) if oracle is not None]
    dfa = to_chardfa(parse(pattern, "ecma"), mode="search")
    for text in texts:
        accepted = dfa.matches(text)
        verdicts = {bool(oracle.search(text)) for oracle in both}
        if accepted:
            assert verdicts <= {True}, (pattern, text)
        elif len(both) == 2 and verdicts == {True}:
            assert text == "" or not set(text) <= set("a1 _"), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        ("kiwi", ["two kiwis", "kiwi"], ["kiw", ""]),
        (r"\S", [" x"], [" ", ""]),
        ("[0-9]", ["a1b"], ["ab"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("^a$", ["a"], ["a\n", "ba"]),
        (r"^\S+$", ["[x]", "é"], ["a b", ""]),
        ("^[à-ÿ]$", ["é"], ["e"]),
        ("^[😀-🙏]$", ["😃"], ["x"]),
        (r"^[\ud83d\ude00-\ud83d\ude4f]$", ["😃"], ["x"]),
        (r"^\u{1F603}$", ["😃"], ["u{1F603}"]),
        (r"^\p{L}+$", ["été"], ["1", ""]),
        (r"^\P{Lu}$", ["a", "1"], ["A"]),
        (r"^[\p{Nd}\p{gc=Lm}]$", ["٣", "ʰ"], ["a"]),
        (r"^\p{Script=Greek}+$", ["αΩ", "ϐ"], ["a", "α1", "\u0342", "µ"]),
        (r"^\p{sc=Grek}\p{scx=Greek}$", ["α\u0342", "αβ"], ["\u0342α", "αa"]),
        (r"^[\P{Script=Latin}x]$", ["я", "x", "1"], ["y", "é"]),
        (r"^\p{Emoji}$", ["😀", "1", "#"], ["a", "é"]),
        (r"^\p{Emoji_Presentation}$", ["😀"], ["1", "#", "a"]),
        (r"^\p{ID_Start}\p{ID_Continue}*$", ["aé1", "x_"], ["1a", "a-b", "_a"]),
        (r"^\p{Alphabetic}\P{Alphabetic}$", ["a1", "\u0345 "], ["1a", "ab"]),
        ("^.{1,3}$", ['a"b', "abc"], ["", "abcd", "a\nb"]),
        (r"^[\x00-\u2e7f]+$", ["abc\x00é"], ["\u3000"]),
        ("^(?!ab)[a-c]+$", ["bca", "ac"], ["abc", ""]),
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", ["1.50", "-3", "0.", ".5"], [".", "", "-", "+."]),
        ("^[^]$", ["\n", "a"], [""]),
        ("^[]$|^x$", ["x"], ["", "]"]),
        (r"^\/a\/$", ["/a/"], [r"\/a\/"]),
        (r"^(?<year>\d{4})-\cJ$", ["2024-\n"], ["2024-J", "٢٠٢٤-\n"]),
        (r"^\d+$", ["12"], ["٣", "12\n"]),
        (r"^[\s\S]*$", ["", "a\n\x1c\ufeff"], []),
        (r"\bfoo\b", ["a foo."], ["foot", "éfoo"]),
        ("(?i)^ok$", ["OK", "oK", "o\u212a"], ["ko"]),
        (r"^a{2}b{1,}c{0,1}$", ["aab", "aabbc"], ["ab", "aa"]),
        ("^{a}$", ["{a}"], ["a"]),
    ],
)
def test_patterns_of_json_schema(pattern: str, accepted: list[str], refused: list[str]) -> None:
    """Patterns are searched for, `$` is the very end, classes are sets of code points, look-arounds count."""
    dfa = to_chardfa(parse(pattern, "ecma"), mode="search")
    assert [text for text in accepted if not dfa.matches(text)] == []
    assert [text for text in refused if dfa.matches(text)] == []


@pytest.mark.parametrize(
    ("pattern", "dialect", "part", "column"),
    [
        (r"(a)\1", "python", r"back-reference \1", 4),
        (r"(?P<n>a)(?P=n)", "python", "back-reference", 9),
        (r"(a)\1", "ecma", r"back-reference \1", 4),
        (r"(?<n>a)\k<n>", "ecma", r"back-reference \k", 8),
        ("(?>a)b", "python", "atomic group", 1),
        ("ba*+", "python", "possessive quantifier *+", 3),
        ("(a)?(?(1)b|c)", "python", "conditional group", 5),
        ("a**", "python", "multiple repeat", 3),
        ("*a", "python", "nothing to repeat", 1),
        ("^*", "python", "nothing to repeat", 2),
        ("(ab", "python", "unterminated group", 1),
        ("ab)", "python", "unbalanced ')'", 3),
        ("x[ab", "python", "unterminated class", 2),
        ("[b-a]", "python", "wrong order", 2),
        (r"[\d-z]", "python", "bad character range", 2),
        (r"a\q", "python", r"bad escape \q", 2),
        (r"\x1", "python", r"bad escape \x", 1),
        ("a{3,2}", "python", "at least 3 and at most 2", 2),
        ("a(?i)b", "python", "start of the expression", 2),
        ("(?L)a", "python", "flag 'L'", 1),
        ("a\nb(?y)", "python", "flag 'y'", 2),
        (r"\p{Klingon}", "ecma", r"unknown property \p{Klingon}", 1),
        (r"\p{Script=Klingon}", "ecma", r"unknown property \p{Script=Klingon}", 1),
        (r"\p{Script=greek}", "ecma", r"unknown property \p{Script=greek}", 1),
        (r"\p{Greek}", "ecma", r"unknown property \p{Greek}", 1),
        (r"\p{RGI_Emoji}", "ecma", r"unknown property \p{RGI_Emoji}", 1),
        (r"^\Aa", "ecma", r"\A is not in ECMA-262", 2),
        ("a{,2}", "ecma", "is text in ECMA-262", 2),
        ("[[:alpha:]]", "ecma", "[:..:] is not in ECMA-262", 2),
        ("[]a]", "ecma", "empty in ECMA-262", 1),
        (r"\a", "ecma", r"bad escape \a", 1),
        (r"\07", "ecma", r"bad escape \0", 1),
        ("(" * 200 + "a" + ")" * 200, "python", "nested more than", 61),
    ],
)
def test_what_is_refused_is_named_with_its_column(pattern: str, dialect: Dialect, part: str, column: int) -> None:
    """A malformed or irregular expression names the construct, and where it stands."""
    with pytest.raises(GrammarSyntaxError) as caught:
        parse(pattern, dialect)
    assert part in str(caught.value)
    assert caught.value.column == column
    assert caught.value.line == 1 + pattern.count("\n")


def test_every_property_of_ecma_is_known() -> None:
    """The package that is asked for properties has each of them, under its long and its short name."""
    for name in _BINARY_NAMES:
        item = prop(name)
        assert item is not None, name
        assert 0 < item.ecma.size < 0x110000 - 2048, name


def test_unknown_flags_are_refused() -> None:
    """A flag that would change the meaning is not passed over."""
    with pytest.raises(GrammarSyntaxError, match="LOCALE"):
        parse("a", flags=re.LOCALE)
    with pytest.raises(GrammarSyntaxError, match="A and U"):
        parse("a", flags=re.ASCII | re.UNICODE)


@pytest.mark.parametrize(
    "pattern", ["(a{1,1000}){1,1000}", "^A{1000000}$", ".*a.{30}", "((a{0,99}){0,99}b){0,99}", "(a|b)*a(a|b){200}c"]
)
def test_too_large_is_refused_at_once(pattern: str) -> None:
    """What would need too many states is refused in well under a few seconds, and the message names the repeat."""
    start = time.process_time()
    with pytest.raises(LimitError, match="the repeat") as caught:
        to_chardfa(parse(pattern))
    assert caught.value.limit == "states"
    assert time.process_time() - start < 5


def test_backtracking_traps_are_no_trap() -> None:
    """Expressions on which a backtracking matcher hangs are small automata."""
    for pattern, size in [("(x+x+)+y", 4), ("(a*)*b", 2), ("(a|a)*c", 2), (r"^(\w+\s?)*$", 3)]:
        assert to_chardfa(parse(pattern, flags=re.A)).num_states <= size


def test_bounds_are_exact_around_thresholds() -> None:
    """Counts just below, at and above any round number are kept."""
    for count in (127, 128, 129, 1999, 2000, 2001):
        dfa = to_chardfa(parse(f"^[a-z]{{1,{count}}}$", "ecma"), mode="search")
        assert (dfa.min_length, dfa.max_length) == (1, count)


def test_deep_nesting_is_read() -> None:
    """Sixty levels of groups, with alternatives and repeats at each, are read and built."""
    pattern = "a"
    for _ in range(60):
        pattern = f"(?:{pattern}b*|c)?"
    assert to_chardfa(parse(pattern)).matches("abbb")
