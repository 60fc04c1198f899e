"""Lowering of regular expressions: one lexeme or a counted split, and the same language as `re` either way."""

from __future__ import annotations

import json
import re
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import recognise
from structgen.errors import GrammarSyntaxError, LimitError, UnsatisfiableError
from structgen.grammar import ir, regex_grammar
from structgen.grammar.regex_grammar import (
    PatternExpression,
    PatternLanguage,
    counted_pattern,
    lower_regex,
    pattern_chardfa,
)


def ends(expr: ir.Expr, data: bytes, start: int) -> frozenset[int]:
    """Return where a match of an expression that begins at a place can end, by trying everything."""
    match expr:
        case ir.Literal(text=text):
            return frozenset({start + len(text)} if data.startswith(text, start) else ())
        case ir.Lexeme():
            return frozenset(lexeme_ends(expr, data, start))
        case ir.Sequence(items=items):
            places = frozenset({start})
            for item in items:
                places = frozenset(end for place in places for end in ends(item, data, place))
            return places
        case ir.Choice(options=options):
            return frozenset(end for option in options for end in ends(option, data, start))
        case ir.Repeat(item=item, minimum=minimum, maximum=maximum, separator=None):
            return repeat_ends(item, minimum, maximum, data, start)
        case _:
            raise TypeError(f"not made by lower_regex: {expr}")


def lexeme_ends(lexeme: ir.Lexeme, data: bytes, start: int) -> list[int]:
    """Return where a word of a lexeme can end, its length counted in characters, not in the DFA's ticks."""
    high = len(data) if lexeme.max_length is None else lexeme.max_length
    found, state = [], 0
    for place in range(start, len(data) + 1):
        if lexeme.dfa.accepting[state] and lexeme.min_length <= len(data[start:place].decode(errors="ignore")) <= high:
            found.append(place)
        if place < len(data):
            state = int(lexeme.dfa.delta[state, data[place]])
            if state < 0:
                break
    return found


def repeat_ends(item: ir.Expr, minimum: int, maximum: int | None, data: bytes, start: int) -> frozenset[int]:
    """Return where minimum to maximum items in a row can end."""
    places, found = frozenset({start}), set[int]()
    # More copies than bytes add nothing, once the minimum is reached.
    limit = max(minimum, len(data) + 1)
    for count in range(limit + 1 if maximum is None else min(maximum, limit) + 1):
        if count >= minimum:
            found |= places
        places = frozenset(end for place in places for end in ends(item, data, place))
    return frozenset(found)


def accepts(grammar: ir.Grammar, text: str) -> bool:
    """Tell whether a text belongs to a grammar."""
    data = text.encode()
    return len(data) in ends(grammar.rules[grammar.start], data, 0)


def kinds(grammar: ir.Grammar) -> set[type]:
    """Return the node types that a grammar is made of."""
    return {type(expr) for expr in ir.walk(grammar.rules[grammar.start])}


ATOMS = [
    "a",
    "b",
    "é",
    "ab",
    "[ab]",
    "[^a]",
    r"\w",
    ".",
    "a{3}",
    "[ab]{2,4}",
    "é{0,3}",
    "a*",
    "(?:ab){2,5}",
    "(?:a|bé){1,3}",
]
ATOMS += ["(?!ab)", "(?<=a)", "^", "$", r"\b", "|", "[ab]{3,}"]


@pytest.fixture
def splits_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the thresholds so small that short expressions are split."""
    monkeypatch.setattr(regex_grammar, "MAX_COPIES", 2)
    monkeypatch.setattr(regex_grammar, "MAX_PATTERN_COPIES", 2)
    monkeypatch.setattr(regex_grammar, "MAX_BYTE_STATES", 6)
    monkeypatch.setattr(regex_grammar, "MAX_PATTERN_STATES", 6)
    monkeypatch.setattr(regex_grammar, "MAX_PATTERN_CHARACTERS", 0)


def expressions(atoms: list[str]) -> st.SearchStrategy[str]:
    """Draw a row of atoms, some of it grouped and repeated."""
    rows = st.lists(st.sampled_from(atoms), min_size=1, max_size=4).map("".join)
    groups = st.builds("(?:{}){}".format, rows, st.sampled_from(["", "?", "*", "{2}", "{0,3}", "{1,4}", "{2,}"]))
    return st.lists(rows | groups, min_size=1, max_size=3).map("".join)


TEXTS = st.lists(st.text("abé\n ", max_size=7), min_size=30, max_size=30)


@pytest.mark.usefixtures("splits_early")
@settings(max_examples=400)
@given(expressions(ATOMS), TEXTS)
def test_a_split_keeps_the_language(pattern: str, texts: list[str]) -> None:
    """However an expression is cut up and counted, it accepts exactly what `re.fullmatch` matches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            oracle = re.compile(pattern)
        except re.error:
            return
    try:
        grammar = lower_regex(pattern)
    except UnsatisfiableError:
        assert [text for text in texts if oracle.fullmatch(text)] == []
        return
    for text in ["", "a", "ab", "abab", "aaa", "bébé", *texts]:
        assert accepts(grammar, text) == bool(oracle.fullmatch(text)), (pattern, text, grammar)


@pytest.mark.usefixtures("splits_early")
@settings(max_examples=300)
@given(expressions([*ATOMS[:-4], "[ab]{3,}", '"', r"\\\\"]), TEXTS)
def test_a_counted_pattern_is_the_same_pattern(pattern: str, texts: list[str]) -> None:
    """However its repeats are counted, a pattern is found in the same strings, whatever their spelling."""
    counted_pattern.cache_clear()
    pattern = f"^{pattern}$" if "|" not in pattern else f"^(?:{pattern})$"
    counted = counted_pattern(pattern)
    whole = pattern_chardfa(pattern)
    if isinstance(counted, PatternLanguage):
        assert counted.texts.bounded(counted.min_length, counted.max_length) == whole
    elif counted is not None:
        grammar = ir.Grammar({"start": counted.expr}, "start")
        for text in ["", "a", "ab", "abab", 'b"', "\\é", *texts]:
            for spelling in (json.dumps(text), json.dumps(text, ensure_ascii=False), "".join(map(_escaped, text))):
                data = spelling[1:-1].encode() if spelling.startswith('"') else spelling.encode()
                assert recognise.accepts(grammar, data) == whole.matches(text), (pattern, spelling)
                if whole.matches(text):
                    assert counted.min_length <= len(text)
                    assert counted.max_length is None or len(text) <= counted.max_length


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04X}"


@pytest.mark.parametrize(
    "pattern", [r"[A-Z]{2}-\d{4}", r"(?i)yes|no", r"^(?!ab)[a-c]+$", r"\w+@\w+\.(com|org)", "[a-z]{1,128}"]
)
def test_a_small_expression_is_one_lexeme(pattern: str) -> None:
    """The parser has nothing to do for an expression of ordinary size."""
    assert kinds(lower_regex(pattern)) == {ir.Lexeme}


def test_a_fixed_text_is_a_literal() -> None:
    """An expression with a single match needs no automaton."""
    assert lower_regex(r"a\.b") == ir.Grammar({"start": ir.Literal(b"a.b")}, "start")


@pytest.mark.parametrize("count", [127, 128, 129, 1999, 2000, 2001, 10_000, 1_000_000])
@pytest.mark.parametrize(
    "form", ["[a-z]{{1,{0}}}", "^[a-z]{{1,{0}}}$", "([a-z]{{1,{0}}})", "x[a-z]{{0,{0}}}y", "(?=a).{{1,{0}}}"]
)
def test_large_bounds_are_counted_not_copied(form: str, count: int) -> None:
    """A long repeat of single characters is one lexeme of a few states, exact at the bound and fast to make."""
    start = time.process_time()
    pattern = form.format(count)
    grammar = lower_regex(pattern)
    assert time.process_time() - start < 1
    lexeme = grammar.rules["start"]
    assert isinstance(lexeme, ir.Lexeme)
    assert lexeme.dfa.num_states < 32 or count <= regex_grammar.MAX_COPIES
    assert not lexeme.free_text
    if count <= 2001:
        fill = count - 1 if form.startswith(("[", "^", "(")) else count
        for length in (fill - 1, fill, fill + 1, fill + 2):
            for head in ("a", "x"):
                text = head + "a" * (length - 1) + "y"
                assert accepts(grammar, text) == bool(re.fullmatch(pattern, text)), length


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        ("^A{1000000}$", [], ["", "A"]),
        ("(a{1,1000}){1,1000}", ["a", "a" * 3000], ["", "b"]),
        ("[a-z]{1,500}@[a-z]{1,500}[.]com", ["a@b.com", "a" * 500 + "@b.com"], ["a" * 501 + "@b.com", "@b.com"]),
        ("(?:ab|c){2,5000}", ["abc", "cc"], ["c", "aab", ""]),
        ("(a?){200,5000}b", ["b", "aab"], ["a", ""]),
        ("(?:aa){200}", ["a" * 400], ["a" * 398, "a" * 399, "a" * 401]),
        (r"(([a-z]{1,50} ){1,50}\.){1,50}", ["ab c .", "a .b ."], [".", "a.", "a" * 51 + " ."]),
        ("(x+x+)+y", ["xxy", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxy"], ["xy", "x" * 40]),
        (".*a.{14}", ["a" + "b" * 14, "xx" + "a" * 20], ["a" + "b" * 13, "b" * 20]),
        (r"\w{1,20}", ["é", "x" * 20], ["x" * 21, "", "a b"]),
        ("^[a-z]{1,500}$|^[0-9]{1,600}$|foo|1b|2b", ["a" * 500, "1" * 600, "foo", "2b"], ["a" * 501, "1a", "1" * 601]),
        ("(?:" + "|".join(f"w{i}" for i in range(3000)) + r")-\d+", ["w17-1", "w2999-22"], ["w3000-1", "w17", "w17-"]),
        (r"(?:\p{L}|\p{N}){1,500}", ["é1"], ["", "-"]),
        (r"\d{3}$", ["123", "٣٣٣"], ["12", "123\n"]),
        ("[\U0001f603-\U0001f640]{1,300}", ["\U0001f603" * 300], ["\U0001f603" * 301, "x"]),
    ],
)
def test_large_expressions_are_split_and_fast(pattern: str, accepted: list[str], refused: list[str]) -> None:
    """What would take too many states is counted or left to the parser, in little time, and stays exact."""
    start = time.process_time()
    grammar = lower_regex(pattern)
    assert time.process_time() - start < 5
    assert [text for text in accepted if not accepts(grammar, text)] == []
    assert [text for text in refused if accepts(grammar, text)] == []


@pytest.mark.parametrize("pattern", ["(?!ab)[a-z]{1,3000}[0-9]{1,3000}", r"([a-z]{1,5000}\b ?){1,500}"])
def test_a_look_around_beside_a_long_repeat_is_refused_by_name(pattern: str) -> None:
    """A cut would hide from a look-around what it looks at, so the repeat that is too long is named."""
    start = time.process_time()
    with pytest.raises(LimitError, match=r"the repeat \{1,\d+\} at column \d+"):
        lower_regex(pattern)
    assert time.process_time() - start < 5


def test_a_look_around_beside_a_long_repeat_works_while_it_is_small_enough() -> None:
    """An automaton with copies is used where no cut is possible and the limit is not reached."""
    grammar = lower_regex("(?!ab)[a-z]{1,300}[0-9]{1,300}")
    assert accepts(grammar, "ba1")
    assert not accepts(grammar, "ab1")
    assert not accepts(grammar, "b" * 301 + "1")


@pytest.mark.parametrize(
    "pattern", [r"[^\s\S]", "a(?!.)b", "a^b", "(?=a)b{1,500}", "(?!aa)a{2,500}", "x[^\\s\\S]{1,900}y{2000,}z{1,900}"]
)
def test_an_expression_without_a_match_is_told(pattern: str) -> None:
    """An expression that no text matches is an error of its own, not an empty automaton."""
    with pytest.raises(UnsatisfiableError, match="no text matches"):
        lower_regex(pattern)


def test_flags_are_those_of_re() -> None:
    """Flags from outside mean what they mean to `re`, and unknown ones are refused."""
    grammar = lower_regex("a . # comment", re.X | re.I | re.S)
    assert accepts(grammar, "A\n")
    assert not accepts(grammar, "a")
    with pytest.raises(GrammarSyntaxError):
        lower_regex("a", re.L)


def test_patterns_count_what_they_repeat() -> None:
    """A long repeat between anchors becomes bounds on the length, several become an expression; others are automata."""
    counted = counted_pattern("^[a-z]{1,10000}$")
    assert isinstance(counted, PatternLanguage)
    assert (counted.texts.num_states, counted.min_length, counted.max_length) == (1, 1, 10_000)
    policy = counted_pattern(r"^(?=.*\d)(?=.*[A-Z]).{8,1000}$")
    assert isinstance(policy, PatternLanguage)
    assert (policy.min_length, policy.max_length) == (8, 1000)
    assert policy.texts.matches("xA1")
    assert not policy.texts.matches("xa1")
    several = counted_pattern("^[a-z]{1,500}@[a-z]{2,600}$")
    assert isinstance(several, PatternExpression)
    assert (several.min_length, several.max_length) == (4, 1101)
    # Unanchored, the text may be longer than what matches; the others are small, or look around.
    for pattern in ("[a-z]{40,5000}", "kiwi", "^[a-z]{1,900}$", r"^([a-z]{1,5000}\b ?){1,500}$"):
        assert counted_pattern(pattern) is None, pattern


@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_a_pattern_is_counted_from_a_size_on(size: int) -> None:
    """Written out, more than 1,000 characters are counted."""
    assert (counted_pattern(f"^a{{1,{size - 1}}}b$") is None) == (size <= 1000)


@pytest.mark.parametrize("size", [249, 250, 251])
def test_several_repeats_are_counted_sooner(size: int) -> None:
    """Two long repeats are counted from 250 byte states on."""
    assert (counted_pattern(f"^a{{1,{size - 100}}}b{{1,100}}$") is None) == (size <= 250)


def test_several_repeats_of_large_of_large_classes_are_counted_sooner() -> None:
    """Characters with many spellings weigh more, and no repeat of up to 32 is counted."""
    assert isinstance(counted_pattern("^[^-]{1,33}-[^-]{1,33}$"), PatternExpression)
    assert counted_pattern("^[a-z]{1,33}-[a-z]{1,33}$") is None
    assert counted_pattern("^[^-]{1,32}(-[^-]{1,32}){0,3}$") is None
