r"""Character classes as sets of code points: what Python's `re` and ECMA-262 mean by \d, \w, \s, by ignoring case.

Python's meaning is read off `re` itself at run time, so it is that of the interpreter in use. General categories come
from `unicodedata`; scripts and what other properties ECMA-262 names from the package `regex`. Left out: properties of
strings, such as RGI_Emoji.
"""

from __future__ import annotations

import platform
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import regex

from structgen.grammar.charset import FIRST_SURROGATE, LAST_SURROGATE, MAX_CODE_POINT, CharSet

VERSIONS = f"Python {platform.python_version()}, regex {regex.__version__}"
"""Of what says which characters a class holds: the same pattern is another language elsewhere."""

WORD_ASCII = CharSet.from_ranges([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
DIGIT_ASCII = CharSet.from_ranges([(0x30, 0x39)])
ANY = CharSet.any()
NONE = CharSet.empty()
NEWLINE = CharSet.from_ranges([(0x0A, 0x0A)])
LINE_ENDS = CharSet.from_ranges([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)])

_SPACES = [(0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F)]
_SPACES += [(0x3000, 0x3000), (0x2028, 0x2029), (9, 13)]
SPACE_ECMA = CharSet.from_ranges([*_SPACES, (0xFEFF, 0xFEFF)])
_WHITE_SPACE = CharSet.from_ranges([*_SPACES, (0x85, 0x85)])


@dataclass(frozen=True, slots=True)
class ClassItem:
    """A part of a class, in both dialects.

    Attributes:
        python: what Python's `re` means by it, case respected.
        ecma: what ECMA-262 means by it, case respected.
        source: the part in Python's syntax for the inside of a class, "" if Python has no such part.
    """

    python: CharSet
    ecma: CharSet
    source: str = ""


def span(low: int, high: int) -> ClassItem:
    """Return the part that holds the code points low to high, both included."""
    charset = CharSet.from_ranges([(low, high)])
    source = f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"
    return ClassItem(charset, charset, source)


def shorthand(letter: str, *, ascii_only: bool) -> ClassItem:
    """Return the part that one of the escapes d, D, w, W, s, S stands for."""
    small = letter.lower()
    ecma = {"d": DIGIT_ASCII, "w": WORD_ASCII, "s": SPACE_ECMA}[small]
    python = python_class(f"\\{small}", ascii_only=ascii_only)
    if letter != small:
        python, ecma = python.complement(), ecma.complement()
    return ClassItem(python, ecma, f"\\{letter}")


@lru_cache(maxsize=64)
def python_class(source: str, *, ascii_only: bool) -> CharSet:
    """Return the code points that `re` matches with an expression for one character."""
    pattern = re.compile(f"(?:{source})+", re.ASCII if ascii_only else 0)
    text = _every_character()
    spans = (found.span() for found in pattern.finditer(text))
    return CharSet.from_ranges([(ord(text[start]), ord(text[end - 1])) for start, end in spans])


@lru_cache(maxsize=256)
def prop(name: str) -> ClassItem | None:
    r"""Return the part that \p{name} stands for, None if the name is unknown here."""
    key, _, value = name.partition("=")
    if key in _SCRIPT_KEYS:
        charset = _by_regex(name) if _SCRIPT_NAME.fullmatch(value) else None
    elif value:
        charset = _general_category(value) if key in {"General_Category", "gc"} else None
    else:
        charset = _general_category(name) or _binary_property(name)
    return None if charset is None else ClassItem(charset, charset)


def ignore_case_python(items: Iterable[ClassItem], *, ascii_only: bool) -> CharSet:
    """Return what `re` matches with a class of these parts under IGNORECASE.

    Only characters with a case mapping are put to `re`: it treats the others as if case counted.
    """
    source, plain = "", NONE
    for item in items:
        plain = plain.union(item.python)
        source += item.source or "".join(span(low, high).source for low, high in item.python.ranges)
    if not source:
        return plain
    pattern = re.compile(f"[{source}]", re.IGNORECASE | (re.ASCII if ascii_only else 0))
    matched = CharSet.from_text("".join(pattern.findall(_cased_characters())))
    return plain.difference(_cased_set()).union(matched)


def ignore_case_ecma(items: Iterable[ClassItem]) -> CharSet:
    """Return what ECMA-262 matches with a class of these parts under its flags i and u (simple case folding)."""
    plain = NONE
    for item in items:
        plain = plain.union(item.ecma)
    cased = _cased_characters()
    wanted = {_simple_fold(char) for char in cased if plain.contains(ord(char))}
    return plain.union(CharSet.from_text("".join(char for char in cased if _simple_fold(char) in wanted)))


def _simple_fold(char: str) -> str:
    full = char.casefold()
    if len(full) == 1:
        return full
    lower = char.lower()
    return lower if len(lower) == 1 else char


@lru_cache(maxsize=1)
def _every_character() -> str:
    points = np.arange(MAX_CODE_POINT + 1, dtype="<u4")
    return np.delete(points, slice(FIRST_SURROGATE, LAST_SURROGATE + 1)).tobytes().decode("utf-32-le")


@lru_cache(maxsize=1)
def _cased_characters() -> str:
    def is_cased(part: str) -> bool:
        return not part == part.lower() == part.upper() == part.casefold()

    # Whole blocks first: most of Unicode has no case.
    text = _every_character()
    blocks = (text[start : start + 256] for start in range(0, len(text), 256))
    return "".join(char for block in blocks if is_cased(block) for char in block if is_cased(char))


@lru_cache(maxsize=1)
def _cased_set() -> CharSet:
    return CharSet.from_text(_cased_characters())


@lru_cache(maxsize=1)
def _categories() -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of each two-letter general category, surrogates apart."""
    text = _every_character()
    numbers: dict[str, int] = {}
    kinds = bytes(numbers.setdefault(category, len(numbers)) for category in map(unicodedata.category, text))
    array = np.frombuffer(kinds, dtype=np.uint8)
    starts = np.append(0, np.flatnonzero(array[1:] != array[:-1]) + 1)
    ends = np.append(starts[1:], len(text)) - 1
    names = list(numbers)
    ranges: dict[str, list[tuple[int, int]]] = {"Cs": []}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        ranges.setdefault(names[kinds[start]], []).append((ord(text[start]), ord(text[end])))
    return ranges


@lru_cache(maxsize=64)
def _general_category(name: str) -> CharSet | None:
    short = _CATEGORY_NAMES.get(name, name)
    kinds = ("Lu", "Ll", "Lt") if short == "LC" else (short,)
    known = [category for category in _categories() if category.startswith(kinds)]
    ranges = [pair for category in known for pair in _categories()[category]]
    return CharSet.from_ranges(ranges) if known and name else None


def _binary_property(name: str) -> CharSet | None:
    match name:
        case "Any":
            return ANY
        case "ASCII":
            return CharSet.from_ranges([(0, 0x7F)])
        case "Assigned":
            return CharSet.from_ranges(_categories()["Cn"]).complement()
        case "ASCII_Hex_Digit" | "AHex":
            return CharSet.from_text("0123456789abcdefABCDEF")
        case "White_Space" | "space":
            return _WHITE_SPACE
        case "Uppercase" | "Upper":
            return CharSet.from_text("".join(filter(str.isupper, _every_character())))
        case "Lowercase" | "Lower":
            return CharSet.from_text("".join(filter(str.islower, _every_character())))
        case _:
            return _by_regex(name) if name in _BINARY_NAMES else None


def _by_regex(name: str) -> CharSet | None:
    """Return the code points of a property that the package `regex` knows."""
    try:
        pattern = regex.compile(rf"\p{{{name}}}+")
    except regex.error:
        return None
    found = (match[0] for match in pattern.finditer(_every_character()))
    return CharSet.from_ranges([(ord(run[0]), ord(run[-1])) for run in found])


_SCRIPT_KEYS = frozenset({"Script", "sc", "Script_Extensions", "scx"})
_SCRIPT_NAME = re.compile("[A-Z][A-Za-z_]*")
# Those of ECMA-262 that are made nowhere else here.
_BINARY_TABLE = """
Alphabetic Alpha Bidi_Control Bidi_C Bidi_Mirrored Bidi_M Case_Ignorable CI Cased Changes_When_Casefolded CWCF
Changes_When_Casemapped CWCM Changes_When_Lowercased CWL Changes_When_Titlecased CWT Changes_When_Uppercased CWU Dash
Default_Ignorable_Code_Point DI Deprecated Dep Diacritic Dia Emoji Emoji_Component EComp Emoji_Modifier EMod
Emoji_Modifier_Base EBase Emoji_Presentation EPres Extended_Pictographic ExtPict Extender Ext Grapheme_Base Gr_Base
Grapheme_Extend Gr_Ext Hex_Digit Hex IDS_Binary_Operator IDSB IDS_Trinary_Operator IDST ID_Continue IDC ID_Start IDS
Ideographic Ideo Join_Control Join_C Logical_Order_Exception LOE Math Noncharacter_Code_Point NChar Pattern_Syntax
Pat_Syn Pattern_White_Space Pat_WS Quotation_Mark QMark Radical Regional_Indicator RI Sentence_Terminal STerm
Soft_Dotted SD Terminal_Punctuation Term Unified_Ideograph UIdeo Variation_Selector VS XID_Continue XIDC XID_Start
XIDS
"""
_BINARY_NAMES = frozenset(_BINARY_TABLE.split())

_CATEGORY_NAMES = {
    "Letter": "L",
    "Cased_Letter": "LC",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Surrogate": "Cs",
    "Private_Use": "Co",
    "Unassigned": "Cn",
}
