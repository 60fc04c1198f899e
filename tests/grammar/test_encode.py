"""Encodings of text languages against Python's codecs and json.loads."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from structgen.grammar import dfa as dfas
from structgen.grammar import encode
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.charset import CharSet

EDGES = (
    "\0\x1f\x20\x22\x2f\\\x7f\x80\u07ff\u0800\u0fff\ud7ff\ue000\uffff\U00010000\U0003ffff\U00040000\U000fffff\U0010ffff"
)
chars = st.one_of(st.sampled_from(EDGES + '\b\f\n\r\tab"/'), st.characters(exclude_categories=["Cs"]))
texts = st.text(chars, max_size=6)


def short_escape(char: str) -> str | None:
    """Return the two-character escape of a character, if JSON has one, found by asking json.loads."""
    for letter in '"\\/bfnrt':
        if json.loads(f'"\\{letter}"') == char:
            return "\\" + letter
    return None


def unicode_escape(char: str) -> str:
    """Return the escape by numeral, a surrogate pair where it must be."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


@st.composite
def spellings(draw: st.DrawFn, text: str) -> bytes:
    """Spell a text as the body of a JSON string, each character in one of its ways."""
    body = ""
    for char in text:
        ways = [unicode_escape(char)]
        if char >= " " and char not in '"\\':
            ways.append(char)
        if short := short_escape(char):
            ways.append(short)
        way = draw(st.sampled_from(ways))
        if way.startswith("\\u"):
            cases = draw(st.lists(st.booleans(), min_size=len(way), max_size=len(way)))
            way = "".join(
                digit.upper() if upper and digit != "u" else digit for digit, upper in zip(way, cases, strict=True)
            )
        body += way
    return body.encode()


@st.composite
def languages(draw: st.DrawFn) -> CharDfa:
    """Draw a text language of some shape: finite, sets of characters in a row, or everything."""
    words = CharDfa.from_words(draw(st.lists(texts, max_size=4)))
    some = CharDfa.from_charset(CharSet.from_text(draw(texts)))
    other = CharDfa.from_charset(~CharSet.from_text(draw(texts)))
    shapes = [
        words,
        CharDfa.any_text(),
        some.star(),
        other.star(),
        some.star().concatenation(words),
        other.repeat(1, 3),
    ]
    return draw(st.sampled_from(shapes))


def loads(data: bytes) -> str | None:
    """Return what json.loads makes of a string literal; None if it is not one, or has a lone surrogate."""
    try:
        text = data.decode()
        value = json.loads(text)
    except ValueError:
        return None
    whole = text.startswith('"') and text.endswith('"')  # json.loads allows white space around it
    if not whole or not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
        return None
    return value


@given(st.data(), languages(), texts)
def test_every_spelling_is_accepted_iff_its_text_is(data: st.DataObject, language: CharDfa, text: str) -> None:
    """A JSON string is accepted iff the text it decodes to is; it counts one for each character."""
    spelling = b'"' + data.draw(spellings(text)) + b'"'
    assert json.loads(spelling) == text
    dfa = encode.encode_json_string(language)
    assert dfas.matches(dfa, spelling) == language.matches(text)
    everything = encode.encode_json_string(CharDfa.any_text())
    assert dfas.matches(everything, spelling)
    assert dfas.count_ticks(everything, spelling) == len(text)
    if language.matches(text):
        assert dfas.count_ticks(dfa, spelling) == len(text)


ESCAPE_PIECES = [b"\\", b"u", b"\\u", b"d8", b"D8", b"dc", b"dF", b"00", b"0", b"9a", b"Ff", b"\\ud83d", b"\\ude00"]
UTF8_PIECES = [b"\xc3", b"\xa9", b"\xed", b"\xa0", b"\x80", b"\xf0", b"\xf4", b"\x8f", b"\xbf", b"\xe0", b"\xc0"]
pieces = st.sampled_from([*ESCAPE_PIECES, *UTF8_PIECES, b'"', b"n", b"/", b"a", b"\x1f", b"\x7f"])


@given(st.lists(pieces, max_size=12).map(b"".join))
@example(rb"\ud83d\ude00")
@example(rb"\ud83d\ud83d")
@example(rb"\ude00")
@example(rb"\ud83dx")
@example(b"\xed\xa0\x80")
@example(b"\xf4\x90\x80\x80")
@example(b"\xc0\xaf")
def test_any_bytes_between_quotes(body: bytes) -> None:
    """Bytes are a JSON string here iff json.loads takes them and finds no lone surrogate."""
    data = b'"' + body + b'"'
    dfa = encode.encode_json_string(CharDfa.any_text())
    value = loads(data)
    assert dfas.matches(dfa, data) == (value is not None)
    if value is not None:
        assert dfas.count_ticks(dfa, data) == len(value)


@given(st.data(), languages(), texts)
def test_mutated_spellings_are_judged_by_json_loads(data: st.DataObject, language: CharDfa, text: str) -> None:
    """One changed byte: accepted iff json.loads still reads it and the text it finds is accepted."""
    spelling = bytearray(b'"' + data.draw(spellings(text)) + b'"')
    spelling[data.draw(st.integers(0, len(spelling) - 1))] = data.draw(st.integers(0, 255))
    value = loads(bytes(spelling))
    expected = value is not None and language.matches(value)
    assert dfas.matches(encode.encode_json_string(language), bytes(spelling)) == expected


@given(languages(), texts)
def test_utf8_is_the_codec(language: CharDfa, text: str) -> None:
    """The UTF-8 of a text is accepted iff the text is, and counts its characters."""
    dfa, data = encode.encode_utf8(language), text.encode()
    assert dfas.matches(dfa, data) == language.matches(text)
    if language.matches(text):
        assert dfas.count_ticks(dfa, data) == len(text)


@given(st.one_of(st.binary(max_size=5), st.lists(pieces, max_size=5).map(b"".join)))
def test_any_bytes_as_utf8(data: bytes) -> None:
    """Bytes are text iff the strict codec takes them."""
    try:
        valid = data.decode() is not None
    except UnicodeDecodeError:
        valid = False
    assert dfas.matches(encode.encode_utf8(CharDfa.any_text()), data) == valid


@pytest.mark.parametrize("first", range(0, 0x110000, 0x8000))
def test_every_code_point(first: int) -> None:
    """Each code point of Unicode is accepted in each of its spellings by its own block, by no other."""
    block = CharSet.from_ranges([(first, first + 0x7FFF)])
    inside = encode.encode_json_string(CharDfa.from_charset(block))
    outside = encode.encode_json_string(CharDfa.from_charset(~block))
    for point in range(first, first + 0x8000, 0x3F):
        if 0xD800 <= point < 0xE000:
            continue
        char = chr(point)
        for way in (
            unicode_escape(char),
            unicode_escape(char).upper().replace("U", "u"),
            json.dumps(char, ensure_ascii=False)[1:-1],
        ):
            spelling = f'"{way}"'.encode()
            assert dfas.matches(inside, spelling)
            assert not dfas.matches(outside, spelling)


def test_every_lead_and_second_byte() -> None:
    """Overlong forms, surrogates and what lies beyond U+10FFFF are no text: as the strict codec says."""
    dfa = encode.encode_utf8(CharDfa.any_text())
    for first, second, more in itertools.product(range(0x7F, 256), range(256), range(3)):
        data = bytes([first, second]) + b"\x80" * more
        try:
            valid = data.decode() is not None
        except UnicodeDecodeError:
            valid = False
        assert dfas.matches(dfa, data) == valid


@pytest.mark.parametrize("letter", [chr(point) for point in range(0x21, 0x7F) if chr(point) not in "u"])
def test_every_short_escape(letter: str) -> None:
    """A backslash and a letter is the character that json.loads says, or no spelling."""
    spelling = f'"\\{letter}"'.encode()
    value = loads(spelling)
    assert dfas.matches(encode.encode_json_string(CharDfa.any_text()), spelling) == (value is not None)
    if value is not None:
        assert dfas.matches(encode.encode_json_string(CharDfa.literal(value)), spelling)


def test_control_characters_need_an_escape() -> None:
    """Below U+0020 a raw character is no spelling, although its language holds it; U+007F is one."""
    dfa = encode.encode_json_string(CharDfa.from_charset(CharSet.from_ranges([(0, 0x7F)])))
    raw = [point for point in range(0x80) if dfas.matches(dfa, b'"' + bytes([point]) + b'"')]
    assert raw == [point for point in range(0x20, 0x80) if point not in (0x22, 0x5C)]


def test_a_language_without_text_has_no_string() -> None:
    """The empty language stays empty; the language of the empty text is a pair of quotes."""
    assert encode.encode_json_string(CharDfa.empty()).is_empty
    assert encode.encode_utf8(CharDfa.empty()).is_empty
    assert encode.encode_json_string(CharDfa.epsilon()) == dfas.literal(b'""')
    assert encode.encode_utf8(CharDfa.epsilon()) == dfas.literal(b"")


def test_results_are_minimal_values() -> None:
    """The same language, made otherwise, gives an equal DFA; the any-string one is small."""
    again = CharDfa.from_charset(CharSet.any()).star()
    assert encode.encode_json_string.__wrapped__(again) == encode.encode_json_string(CharDfa.any_text())
    assert encode.encode_json_string(again).num_states < 30
    rebuilt = encode.encode_json_string(again)
    assert dfas.Dfa.build(rebuilt.delta, rebuilt.accepting, rebuilt.tick_bytes) == rebuilt
