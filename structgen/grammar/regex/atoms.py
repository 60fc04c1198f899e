"""Read the parts of a regular expression that stand for one character or for a place: escapes, classes, anchors.

Which dialect says what, and which of two readings is taken, is told in `parser`; what lies in a class, in `classes`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from structgen.errors import GrammarSyntaxError
from structgen.grammar.charset import CharSet
from structgen.grammar.regex.classes import (
    ANY,
    LINE_ENDS,
    NEWLINE,
    NONE,
    WORD_ASCII,
    ClassItem,
    ignore_case_ecma,
    ignore_case_python,
    prop,
    python_class,
    shorthand,
    span,
)
from structgen.grammar.regex.syntax import Begin, Chars, End, Look, Node, Repeat, alternate, concat

_SHORTHANDS = frozenset("dDwWsS")
_OCTAL = frozenset("01234567")
_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_CONTROLS = {"f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CONTROLS_PYTHON = _CONTROLS | {"a": 7}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}

# Until Python 3.14 a place in the empty text is no \B for `re`.
_EMPTY_IS_NO_BOUNDARY = re.search(r"\B", "") is not None


class AtomReader:
    """A cursor over a pattern that reads single characters, classes and anchors.

    Attributes:
        pattern: the expression.
        is_ecma: whether it is in the ECMA dialect.
        flags: the flags of `re` in force at the cursor.
        is_upper: whether, where dialects differ, what either accepts is taken.
        position: 0-based index of the next character.
    """

    def __init__(self, pattern: str, dialect: str, flags: int) -> None:
        """Start at the first character."""
        self.pattern = pattern
        self.is_ecma = dialect == "ecma"
        self.flags = flags
        self.is_upper = False
        self.position = 0
        self._empty_class_at: int | None = None

    def error(self, what: str, at: int) -> GrammarSyntaxError:
        """Return the error that says what is wrong at an index of the pattern."""
        shown = self.pattern if len(self.pattern) <= 80 else self.pattern[:77] + "..."
        before = self.pattern[:at]
        line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1
        return GrammarSyntaxError(f"regular expression {shown!r}: {what}", line, column)

    def peek(self) -> str:
        """Return the next character, "" at the end."""
        return self.pattern[self.position : self.position + 1]

    def take(self, text: str) -> bool:
        """Step over the text if it comes next."""
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def next(self, what: str) -> str:
        """Step over one character and return it; at the end, say what is unfinished."""
        char = self.peek()
        if not char:
            raise self.error(f"unfinished {what}", self.position)
        self.position += 1
        return char

    def until(self, end: str, what: str) -> str:
        """Step over the text up to an end mark, and over the mark; return the text."""
        stop = self.pattern.find(end, self.position)
        if stop < 0:
            raise self.error(f"unfinished {what}, {end!r} is missing", self.position)
        text = self.pattern[self.position : stop]
        self.position = stop + len(end)
        return text

    def chars(self, items: Iterable[ClassItem], *, is_negated: bool = False) -> Chars:
        """Return the node of a class of these parts, by dialect and flags."""
        parts = tuple(items)
        ascii_only = bool(self.flags & re.ASCII)
        if self.flags & re.IGNORECASE:
            python = ignore_case_python(parts, ascii_only=ascii_only)
            ecma = ignore_case_ecma(parts) if self.is_ecma else NONE
        else:
            python = CharSet.union_of([part.python for part in parts])
            ecma = CharSet.union_of([part.ecma for part in parts]) if self.is_ecma else NONE
        if is_negated:
            python, ecma = python.complement(), ecma.complement()
        return Chars(self._both(python, ecma) if self.is_ecma else python)

    def literal(self, char: str) -> Node:
        """Return the node of one literal character."""
        return self.chars([span(ord(char), ord(char))])

    def dot(self) -> Node:
        """Return the node of `.`."""
        if self.flags & re.DOTALL:
            return Chars(ANY)
        return Chars(self._both(NEWLINE.complement(), LINE_ENDS.complement()))

    def start_anchor(self) -> Node:
        """Return the node of `^`."""
        if not self.flags & re.MULTILINE:
            return Begin()
        return alternate([Begin(), _beside(self._line_end(), is_behind=True)])

    def end_anchor(self) -> Node:
        """Return the node of `$`; by itself it stands before a last newline too in Python, not in ECMA-262."""
        if self.flags & re.MULTILINE:
            return alternate([End(), _beside(self._line_end(), is_behind=False)])
        if self.is_ecma and not self.is_upper:
            return End()
        last_line = concat([Repeat(Chars(NEWLINE), 0, 1), End()])
        return Look(last_line, is_behind=False, is_negative=False, label="$")

    def escape(self) -> Node:
        """Read what follows a backslash outside a class."""
        at = self.position - 1
        letter = self.next("escape")
        if letter in _SHORTHANDS or letter in "pP":
            return self.chars([self._class_escape(letter, at)])
        if letter in "bB":
            return self._boundary(is_boundary=letter == "b")
        if letter in "AZz":
            if self.is_ecma:
                raise self.error(f"\\{letter} is not in ECMA-262; write {'^' if letter == 'A' else '$'}", at)
            return Begin() if letter == "A" else End()
        return self.literal(chr(self._code(letter, at, in_class=False)))

    def char_class(self) -> Node:
        """Read what follows `[`, the closing bracket included."""
        at = self.position - 1
        is_negated = self.take("^")
        items: list[ClassItem] = []
        if self.is_ecma and self.take("]"):
            self._empty_class_at = at
            return self.chars(items, is_negated=is_negated)
        is_first = True
        while is_first or not self.take("]"):
            is_first = False
            items.extend(self._class_part(at))
        return self.chars(items, is_negated=is_negated)

    def closing_bracket(self) -> Node:
        """Return the node of a `]` that closes nothing, which both dialects take literally."""
        if self._empty_class_at is not None:
            raise self.error(
                "this class is empty in ECMA-262 but goes on to the next ] in Python; write \\] for the character",
                self._empty_class_at,
            )
        return self.literal("]")

    def _class_part(self, at: int) -> list[ClassItem]:
        """Read one character, escape or range of the class that starts at an index."""
        start = self.position
        low = self._class_atom(at)
        if not self.take("-"):
            return [low] if isinstance(low, ClassItem) else [span(low, low)]
        if self.peek() == "]":
            return [low if isinstance(low, ClassItem) else span(low, low), span(0x2D, 0x2D)]
        high = self._class_atom(at)
        shown = self.pattern[start : self.position]
        if isinstance(low, ClassItem) or isinstance(high, ClassItem):
            raise self.error(f"bad character range {shown}; an escape such as \\d is no end of a range", start)
        if high < low:
            raise self.error(f"bad character range {shown}; its ends are in the wrong order", start)
        return [span(low, high)]

    def _class_atom(self, at: int) -> ClassItem | int:
        start = self.position
        if not self.peek():
            raise self.error("unterminated class, ']' is missing", at)
        char = self.next("class")
        if char != "\\":
            if self.is_ecma and char == "[" and self.peek() == ":" and ":]" in self.pattern[self.position :]:
                raise self.error("[:..:] is not in ECMA-262; write the characters, or \\p{..}", start)
            return ord(char)
        letter = self.next("escape")
        if letter in _SHORTHANDS or letter in "pP":
            return self._class_escape(letter, start)
        return 8 if letter == "b" else self._code(letter, start, in_class=True)

    def _class_escape(self, letter: str, at: int) -> ClassItem:
        if letter in _SHORTHANDS:
            return shorthand(letter, ascii_only=bool(self.flags & re.ASCII))
        if not self.take("{"):
            raise self.error(f"\\{letter} needs a property in braces, such as \\{letter}{{L}}", at)
        name = self.until("}", "property")
        item = prop(name)
        if item is None:
            known = "known are those of ECMA-262, such as L, Script=Greek and Emoji"
            raise self.error(f"unknown property \\{letter}{{{name}}}; {known}", at)
        return item if letter == "p" else ClassItem(item.python.complement(), item.ecma.complement())

    def _code(self, letter: str, at: int, *, in_class: bool) -> int:
        """Return the code point of an escape for one character."""
        controls = _CONTROLS if self.is_ecma else _CONTROLS_PYTHON
        if letter in controls:
            return controls[letter]
        if letter in _DIGITS:
            return self._digit_escape(letter, at, in_class=in_class)
        if letter in _HEX_LENGTHS and not (self.is_ecma and letter == "U"):
            return self._hex_escape(letter, at)
        if letter == "N" and not self.is_ecma:
            return self._named(at)
        if letter == "c" and self.is_ecma:
            char = self.peek()
            if not (char.isascii() and char.isalpha()):
                raise self.error("\\c needs a letter", at)
            return ord(self.next("escape")) % 32
        if letter == "k" and not in_class:
            raise self.error("back-reference \\k is not regular; write out what it repeats", at)
        if letter.isascii() and letter.isalpha():
            raise self.error(f"bad escape \\{letter}", at)
        return ord(letter)

    def _digit_escape(self, first: str, at: int, *, in_class: bool) -> int:
        digits = first
        if self.is_ecma:
            if first == "0" and self.peek() not in _DIGITS:
                return 0
        else:
            digits = self._octal_digits(first, in_class=in_class)
            if digits[0] == "0" or len(digits) == 3 or (in_class and first in _OCTAL):
                if int(digits, 8) > 0o377:
                    raise self.error(f"octal escape \\{digits} is over \\377", at)
                return int(digits, 8)
        if in_class or first == "0":
            raise self.error(f"bad escape \\{digits}", at)
        raise self.error(f"back-reference \\{digits} is not regular; write out what it repeats", at)

    def _octal_digits(self, first: str, *, in_class: bool) -> str:
        """Read the digits of Python's octal escape, or of the back-reference that it is instead."""
        start = self.position - 1
        rest = self.pattern[self.position : self.position + 2]
        is_octal = first == "0" or in_class or (first in _OCTAL and len(rest) == 2 and _OCTAL.issuperset(rest))
        if is_octal and first in _OCTAL:
            for char in rest:
                if char not in _OCTAL:
                    break
                self.position += 1
        elif not in_class and rest[:1] in _DIGITS and rest:
            self.position += 1
        return self.pattern[start : self.position]

    def _hex_escape(self, letter: str, at: int) -> int:
        if self.is_ecma and letter == "u" and self.take("{"):
            digits = self.until("}", "escape")
            wanted = max(len(digits), 1)
        else:
            wanted = _HEX_LENGTHS[letter]
            digits = self.pattern[self.position : self.position + wanted]
            self.position += wanted
        if len(digits) != wanted or not _HEX.issuperset(digits) or int(digits, 16) > 0x10FFFF:
            raise self.error(f"bad escape \\{letter}: it needs {_HEX_LENGTHS[letter]} hexadecimal digits", at)
        code = int(digits, 16)
        low = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})").match(self.pattern, self.position)
        if self.is_ecma and letter == "u" and wanted == 4 and 0xD800 <= code < 0xDC00 and low:
            self.position = low.end()
            return 0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        return code

    def _named(self, at: int) -> int:
        if not self.take("{"):
            raise self.error("\\N needs a name in braces", at)
        name = self.until("}", "character name")
        try:
            return ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            raise self.error(f"unknown character name {name!r}", at) from None

    def _both(self, python: CharSet, ecma: CharSet) -> CharSet:
        if not self.is_ecma:
            return python
        return python.union(ecma) if self.is_upper else python.intersection(ecma)

    def _line_end(self) -> CharSet:
        return self._both(NEWLINE, LINE_ENDS)

    def _boundary(self, *, is_boundary: bool) -> Node:
        r"""Return the node of \b or \B, as a choice of what may stand on each side.

        In the ECMA dialect a character can be a word character for both dialects, for Python alone, or for none;
        where one side is a word character for Python alone, the dialects differ unless both sides are.
        """
        unicode_word = python_class(r"\w", ascii_only=bool(self.flags & re.ASCII))
        word = WORD_ASCII if self.is_ecma else unicode_word
        disputed = unicode_word.difference(word)
        differing = [(word, disputed), (disputed, None)] if self.is_ecma and self.is_upper and disputed.ranges else []
        if is_boundary:
            pairs = [(word, None), *differing]
            return alternate(
                [_between(left, right, unicode_word) for pair in pairs for left, right in (pair, pair[::-1])]
            )
        same = [_between(word, word, unicode_word)]
        if disputed.ranges:
            same.append(_between(disputed, disputed, unicode_word))
        differ = [_between(left, right, unicode_word) for pair in differing for left, right in (pair, pair[::-1])]
        allows_empty = self.is_upper if self.is_ecma else _EMPTY_IS_NO_BOUNDARY
        return alternate([*same, *differ, *_outside(unicode_word, allows_empty=allows_empty)])


def _beside(chars: CharSet, *, is_behind: bool, is_negative: bool = False) -> Look:
    return Look(Chars(chars), is_behind, is_negative)


def _between(left: CharSet | None, right: CharSet | None, word: CharSet) -> Node:
    """Match a place by the sets of the characters beside it; None: no word character, or the edge of the text."""
    sides = ((left, True), (right, False))
    return concat(
        _beside(word if chars is None else chars, is_behind=is_behind, is_negative=chars is None)
        for chars, is_behind in sides
    )


def _outside(word: CharSet, *, allows_empty: bool) -> list[Node]:
    """Match a place without a word character on either side; in the empty text only on request."""
    if allows_empty:
        return [_between(None, None, word)]
    other = word.complement()
    return [_between(other, None, word), _between(None, other, word)]
