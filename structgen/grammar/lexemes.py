"""The JSON primitives that all front ends share, as lexemes: strings, numbers, white space; and plain text.

Made once and kept, so that the same part in two schemas is one object. Left out: literals such as `true`, which
front ends write themselves, and formats.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.dfa import Dfa
from structgen.grammar.encode import encode_json_string, encode_utf8
from structgen.grammar.ir import Lexeme
from structgen.grammar.numbers import Bounds, Number, decimals, integers
from structgen.grammar.table import DEAD

WHITESPACE = b" \t\n\r"


@lru_cache(maxsize=1024)
def json_string(text: CharDfa | None = None, *, min_length: int = 0, max_length: int | None = None) -> Lexeme:
    """Return the JSON strings, quotes included, that decode to one of the texts (None: to any text).

    Args:
        text: what the string decodes to.
        min_length: least number of decoded code points.
        max_length: greatest number of decoded code points, None for no bound.
    """
    language = CharDfa.any_text() if text is None else text
    if language.is_finite:
        # Bounds that bind on a finite set are part of the set, so that no counter is needed.
        return Lexeme(encode_json_string(_within(language, min_length, max_length)), name="string")
    return Lexeme(encode_json_string(language), min_length, max_length, free_text=True, name="string")


@lru_cache(maxsize=1024)
def utf8_text(text: CharDfa | None = None, *, min_length: int = 0, max_length: int | None = None) -> Lexeme:
    """Return the texts (None: any text) in UTF-8, min_length to max_length code points long; it is free text."""
    language = CharDfa.any_text() if text is None else text
    return Lexeme(encode_utf8(language), min_length, max_length, free_text=True, name="text")


def _within(language: CharDfa, min_length: int, max_length: int | None) -> CharDfa:
    shortest, longest = language.min_length or 0, language.max_length or 0
    high = longest if max_length is None else min(longest, max_length)
    if min_length <= shortest and high == longest:
        return language
    return CharDfa.empty() if min_length > high else language.bounded(min_length, high)


def json_integer(
    minimum: Number | None = None, maximum: Number | None = None, *, multiple_of: Number | None = None
) -> Lexeme:
    """Return the JSON integers from minimum to maximum, both included (None: no bound).

    Without fraction, exponent, leading zeros and `-0`. A bound need not be an integer itself.
    """
    return Lexeme(integers(Bounds(minimum, maximum, multiple_of=multiple_of)), name="integer")


def json_number(
    minimum: Number | None = None,
    maximum: Number | None = None,
    *,
    exclusive_minimum: bool = False,
    exclusive_maximum: bool = False,
    multiple_of: Number | None = None,
) -> Lexeme:
    """Return the JSON numbers whose exact decimal value lies within the bounds (None: no bound).

    A float bound means its shortest spelling: 0.1 is one tenth. Forms with an exponent are in the language
    only where no bound but zero is given, and no divisor; then all of them that qualify.

    Args:
        minimum: least value.
        maximum: greatest value.
        exclusive_minimum: leave out the least value itself.
        exclusive_maximum: leave out the greatest value itself.
        multiple_of: positive number of which each value is a multiple.
    """
    return Lexeme(decimals(Bounds(minimum, maximum, exclusive_minimum, exclusive_maximum, multiple_of)), name="number")


@lru_cache(maxsize=64)
def json_punctuation(texts: tuple[bytes, ...], maximum: int) -> Lexeme:
    """Return the texts in a row, with up to `maximum` white space characters of JSON between neighbours."""
    size = sum(map(len, texts)) + maximum * (len(texts) - 1) + 1
    delta = np.full((size, 256), DEAD, np.int32)
    # Where the next text may begin: in all states of the gap before it.
    begins = range(1)
    for number, text in enumerate(texts):
        if number:
            begins = range(begins[-1], begins[-1] + maximum + 1)
            for state in begins[:-1]:
                delta[state, list(WHITESPACE)] = state + 1
        for byte in text:
            delta[list(begins), byte] = begins[-1] + 1
            begins = range(begins[-1] + 1, begins[-1] + 2)
    accepting = np.zeros(size, np.bool_)
    accepting[list(begins)] = True
    return Lexeme(Dfa.build(delta, accepting), name=b"".join(texts).decode())
