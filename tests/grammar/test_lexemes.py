"""JSON primitives against decimal.Decimal, fractions.Fraction, json.loads and the JSON syntax as a regex."""

from __future__ import annotations

import itertools
import json
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from structgen.errors import LimitError
from structgen.grammar import dfa as dfas
from structgen.grammar import lexemes
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.charset import CharSet
from structgen.grammar.ir import Lexeme

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
INTEGER = re.compile(r"0|-?[1-9][0-9]*")

small = st.integers(-120, 120)
integers = st.one_of(small, st.integers(-(10**25), 10**25), st.sampled_from([2**63, -(2**63), 10**40, 0]))
decimals = st.one_of(
    small.map(Decimal),
    st.builds(lambda number, places: Decimal(number).scaleb(-places), st.integers(-(10**6), 10**6), st.integers(0, 7)),
    st.decimals("-1e12", "1e12", allow_nan=False, allow_infinity=False),
    st.sampled_from([Decimal("0"), Decimal("-0"), Decimal("-0.00"), Decimal("1E+3"), Decimal("1e-9")]),
)


def accepts(lexeme: Lexeme, text: str) -> bool:
    """Tell whether a lexeme's DFA accepts the bytes of a text."""
    return dfas.matches(lexeme.dfa, text.encode())


@st.composite
def number_texts(draw: st.DrawFn, near: list[Decimal]) -> str:
    """Draw the text of a number, mostly near one of some values, in one of its spellings, or nearly a number."""
    base = draw(st.sampled_from(near)) if near and draw(st.integers(0, 3)) else draw(decimals)
    step = draw(st.sampled_from(["0", "1", "-1", "0.1", "-0.1", "1e-8", "-1e-8", "1e-30", "-1e-30", "10"]))
    value = Fraction(base) + Fraction(Decimal(step))
    text = f"{Decimal(value.numerator) / Decimal(value.denominator):f}" if draw(st.booleans()) else exact_text(value)
    if draw(st.booleans()):
        text += ("" if "." in text else ".") + draw(st.sampled_from(["0", "00", "000001", "9", "", "."]))
    if not draw(st.integers(0, 4)):
        text += draw(st.sampled_from(["e0", "E+3", "e-2", "e", "E0007", "e-999"]))
    if not draw(st.integers(0, 5)):
        text = draw(st.sampled_from(["-", "0", "+", " "])) + text
    if not draw(st.integers(0, 5)):
        text = draw(st.sampled_from(["-0", "0", "-0.0", "0.00", "-0e5", "0E-1", "-", "", ".5", "5.", "00", "1e5"]))
    return text


def exact_text(value: Fraction) -> str:
    """Write a fraction whose denominator divides a power of ten, without exponent, all digits kept."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs((value * 10**places).numerator)).rjust(places + 1, "0")
    whole, fraction = digits[: len(digits) - places], digits[len(digits) - places :]
    return ("-" if value < 0 else "") + whole + ("." + fraction if fraction else "")


def within(value: Decimal, low: Decimal | None, high: Decimal | None, *, no_low: bool, no_high: bool) -> bool:
    """Tell whether a value lies within bounds; comparison of decimals is exact whatever the context."""
    return (low is None or value > low or (value == low and not no_low)) and (
        high is None or value < high or (value == high and not no_high)
    )


@given(st.data(), st.none() | integers, st.none() | integers)
def test_integers_within_bounds(data: st.DataObject, low: int | None, high: int | None) -> None:
    """Accepted iff it is written as an integer and lies within both bounds."""
    near = [bound for bound in (low, high, 0) if bound is not None]
    lexeme = lexemes.json_integer(low, high)
    for bound in near:
        for value in range(bound - 12, bound + 13):
            expected = (low is None or value >= low) and (high is None or value <= high)
            assert accepts(lexeme, str(value)) == expected
    text = data.draw(number_texts([Decimal(bound) for bound in near]))
    written = INTEGER.fullmatch(text) is not None
    expected = written and (low is None or int(text) >= low) and (high is None or int(text) <= high)
    assert accepts(lexeme, text) == expected


@given(st.none() | decimals, st.none() | decimals)
def test_integers_within_bounds_that_are_no_integers(low: Decimal | None, high: Decimal | None) -> None:
    """A fractional bound cuts between two integers."""
    lexeme = lexemes.json_integer(low, high)
    for bound in (low, high, Decimal(0)):
        for value in range(int(bound or 0) - 3, int(bound or 0) + 4):
            assert accepts(lexeme, str(value)) == within(Decimal(value), low, high, no_low=False, no_high=False)


@given(st.data(), st.none() | decimals, st.none() | decimals, st.booleans(), st.booleans())
def test_numbers_within_bounds(
    data: st.DataObject, low: Decimal | None, high: Decimal | None, no_low: bool, no_high: bool
) -> None:
    """Accepted iff it is JSON syntax and its exact value qualifies; an exponent only beside bounds of zero."""
    lexeme = lexemes.json_number(low, high, exclusive_minimum=no_low, exclusive_maximum=no_high)
    exponents = not low and not high
    for _ in range(5):
        text = data.draw(number_texts([bound for bound in (low, high) if bound is not None]))
        expected = NUMBER.fullmatch(text) is not None and (exponents or "e" not in text.lower())
        expected = expected and within(Decimal(text), low, high, no_low=no_low, no_high=no_high)
        assert accepts(lexeme, text) == expected


BOUNDS = [None, "-5", "-0.5", "-0", "0", "0.5", "0.05", "5", "15.1"]


@pytest.mark.parametrize("no_low", [False, True])
@pytest.mark.parametrize("no_high", [False, True])
def test_every_short_text(no_low: bool, no_high: bool) -> None:
    """All texts of up to four characters under every pair of bounds: as Decimal says."""
    texts = ["".join(text) for size in range(5) for text in itertools.product("-+.e015", repeat=size)]
    numbers = {text: Decimal(text) for text in texts if NUMBER.fullmatch(text)}
    for low_text, high_text in itertools.product(BOUNDS, BOUNDS):
        low, high = (Decimal(text) if text else None for text in (low_text, high_text))
        dfa = lexemes.json_number(low, high, exclusive_minimum=no_low, exclusive_maximum=no_high).dfa
        plain = bool(low or high)
        expected = {
            text
            for text, value in numbers.items()
            if within(value, low, high, no_low=no_low, no_high=no_high) and not (plain and "e" in text)
        }
        assert short_words(dfa, b"-+.e015", 4) == expected


def short_words(dfa: dfas.Dfa, alphabet: bytes, longest: int) -> set[str]:
    """Return the accepted texts over an alphabet of at most so many characters, by walking the DFA."""
    found, frontier = set(), [(0, "")]
    for _ in range(longest + 1):
        found |= {text for state, text in frontier if dfa.accepting[state]}
        steps = [(int(dfa.delta[state, byte]), text + chr(byte)) for state, text in frontier for byte in alphabet]
        frontier = [(state, text) for state, text in steps if state >= 0]
    return found


@given(st.integers(1, 60), st.integers(0, 3), st.none() | small, st.none() | small, st.data())
@example(25, 2, None, None, None)
def test_multiples(unit: int, places: int, low: int | None, high: int | None, data: st.DataObject | None) -> None:
    """Accepted iff it is plain syntax, within bounds, and the quotient is an integer."""
    divisor = Decimal(unit).scaleb(-places)
    number = lexemes.json_number(low, high, multiple_of=divisor)
    integer = lexemes.json_integer(low, high, multiple_of=divisor)
    texts = [f"{Decimal(n).scaleb(-4):f}" for n in range(0, 20000, 625)] + [str(n) for n in range(-130, 130, 5)]
    texts += [text.rstrip("0") for text in texts]
    if data is not None:
        texts += [data.draw(number_texts([divisor * data.draw(small)])) for _ in range(4)]
    for text in texts:
        expected = NUMBER.fullmatch(text) is not None and "e" not in text.lower()
        expected = expected and Fraction(text) % Fraction(divisor) == 0
        expected = expected and within(
            Decimal(text),
            None if low is None else Decimal(low),
            None if high is None else Decimal(high),
            no_low=False,
            no_high=False,
        )
        assert accepts(number, text) == expected
        assert accepts(integer, text) == (expected and INTEGER.fullmatch(text) is not None)


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [
        (0.1, ["0.1", "0.10", "0.0999999999999999999999"], ["0.1000000000000000055", "0.2", "1"]),
        (1e23, ["100000000000000000000000", "99999999999999991611392"], ["100000000000000000000001"]),
        (99999999999999991611392, ["99999999999999991611392"], ["100000000000000000000000", "99999999999999991611393"]),
        (1e-7, ["0.0000001", "0"], ["0.00000011", "1e-8"]),
    ],
)
def test_a_float_bound_is_its_shortest_spelling(bound: float, inside: list[str], outside: list[str]) -> None:
    """0.1 as a bound is one tenth; a float and the integer equal to it stay two bounds."""
    lexeme = lexemes.json_number(maximum=bound)
    assert [text for text in inside + outside if accepts(lexeme, text)] == inside


@pytest.mark.parametrize("digits", [310, 5000])
def test_bounds_of_many_digits(digits: int) -> None:
    """Bounds far beyond any machine number are exact to the last digit."""
    lexeme = lexemes.json_integer(maximum=10 ** (digits - 1) + 7)
    zeros = "0" * (digits - 2)
    assert accepts(lexeme, f"1{zeros}7")
    assert not accepts(lexeme, f"1{zeros}8")
    assert not accepts(lexeme, f"1{zeros}00")
    assert accepts(lexeme, f"-9{zeros}999")


def test_unreasonable_bounds_are_errors() -> None:
    """No bound is guessed: not a number, a billion digits, too many remainders, a divisor of zero."""
    for bound in (float("nan"), float("inf"), Decimal("-Infinity"), Decimal("NaN")):
        with pytest.raises(ValueError, match="finite"):
            lexemes.json_number(bound)
    for huge in (Decimal("1e999999"), Decimal("1e-999999")):
        with pytest.raises(LimitError) as caught:
            lexemes.json_number(maximum=huge)
        assert caught.value.limit == "digits"
    with pytest.raises(LimitError) as caught:
        lexemes.json_integer(multiple_of=10**6 + 3)
    assert caught.value.limit == "states"
    for divisor in (0, -2, 0.0):
        with pytest.raises(ValueError, match="greater than 0"):
            lexemes.json_integer(multiple_of=divisor)


def test_bounds_that_exclude_everything() -> None:
    """Contradicting bounds give the empty language, for the front end to report."""
    assert lexemes.json_integer(3, 2).dfa.is_empty
    assert lexemes.json_integer(Decimal("2.1"), Decimal("2.9")).dfa.is_empty
    assert lexemes.json_number(2, 2, exclusive_maximum=True).dfa.is_empty
    assert not lexemes.json_number(Decimal("2.1"), Decimal("2.9")).dfa.is_empty


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30))
def test_what_json_dumps_writes_is_in_the_language(value: float) -> None:
    """Every number that Python writes is accepted, and integers also as integers."""
    text = json.dumps(value)
    assert accepts(lexemes.json_number(), text)
    assert accepts(lexemes.json_integer(), text) == isinstance(value, int)
    assert not accepts(lexemes.json_integer(), "-0")


@given(st.text(max_size=8), st.booleans(), st.integers(0, 4), st.none() | st.integers(0, 4))
def test_strings_of_any_text(text: str, ascii_only: bool, low: int, extra: int | None) -> None:
    """Any text is accepted as json.dumps writes it; the bounds go to the lexeme's counter; it is free text."""
    high = None if extra is None else low + extra
    lexeme = lexemes.json_string(min_length=low, max_length=high)
    spelling = json.dumps(text, ensure_ascii=ascii_only).encode()
    assert dfas.matches(lexeme.dfa, spelling)
    assert dfas.count_ticks(lexeme.dfa, spelling) == len(text)
    assert (lexeme.min_length, lexeme.max_length, lexeme.free_text) == (low, high, True)


@given(st.lists(st.text(max_size=4), max_size=5), st.integers(0, 4), st.none() | st.integers(0, 4))
def test_strings_of_a_finite_set(words: list[str], low: int, extra: int | None) -> None:
    """Length bounds on a finite set leave fewer words and no counter; it is no free text."""
    high = None if extra is None else low + extra
    lexeme = lexemes.json_string(CharDfa.from_words(words), min_length=low, max_length=high)
    assert (lexeme.min_length, lexeme.max_length, lexeme.free_text) == (0, None, False)
    for word in [*words, "other"]:
        expected = word in words and low <= len(word) and (high is None or len(word) <= high)
        assert accepts(lexeme, json.dumps(word)) == expected


def test_strings_of_a_pattern() -> None:
    """An infinite set that is not everything is free text and keeps its own language."""
    lexeme = lexemes.json_string(CharDfa.from_charset(CharSet.from_text("ab")).star())
    assert lexeme.free_text
    assert [accepts(lexeme, text) for text in ('"abba"', '"\\u0061"', '"c"', "ab")] == [True, True, False, False]


@given(st.text(max_size=6))
def test_plain_text(text: str) -> None:
    """Any text as UTF-8, counted by code points."""
    lexeme = lexemes.utf8_text(max_length=3)
    assert accepts(lexeme, text)
    assert dfas.count_ticks(lexeme.dfa, text.encode()) == len(text)
    assert (lexeme.min_length, lexeme.max_length, lexeme.free_text) == (0, 3, True)


@given(
    st.lists(st.sampled_from(" \t\n\r\x0b\u00a0a") | st.sampled_from("{}:"), max_size=8).map("".join),
    st.sampled_from([("", ":", ""), ("{", "}"), ("{", ""), ("", "{}"), ("{", "", "}")]),
    st.integers(0, 3),
)
def test_punctuation(text: str, texts: tuple[str, ...], maximum: int) -> None:
    """White space is the four characters of JSON, no more of them than the maximum between neighbours, none outside."""
    lexeme = lexemes.json_punctuation(tuple(map(str.encode, texts)), maximum)
    expected = re.fullmatch(f"[ \t\n\r]{{0,{maximum}}}".join(map(re.escape, texts)), text) is not None
    assert accepts(lexeme, text) == expected


def test_the_same_part_is_one_object() -> None:
    """Asking twice gives the same DFA, not a copy."""
    assert lexemes.json_string() is lexemes.json_string()
    assert lexemes.json_integer(0, 9).dfa is lexemes.json_integer(0, 9).dfa
    assert lexemes.json_number(0.5).dfa is lexemes.json_number(Decimal("0.5")).dfa
