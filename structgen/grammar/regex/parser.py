"""Read a regular expression, in Python's or in ECMA-262's syntax, into a syntax tree.

The Python dialect means what `re` means on str. The ECMA dialect is that of JSON Schema's `pattern`: where ECMA-262
(flag u) and Python read a class or an anchor differently, a place that must match takes what both accept, and a
place that must not match (inside a negative look-around) takes what either accepts. What no automaton has
(back-references) or what depends on the order of attempts (atomic groups, possessive quantifiers, conditions) is
refused by name. Escapes, classes and anchors are read in `atoms`.
"""

from __future__ import annotations

import re
from typing import Literal

from structgen.grammar.regex.atoms import AtomReader
from structgen.grammar.regex.syntax import Look, Node, Repeat, alternate, concat

Dialect = Literal["python", "ecma"]

MAX_NESTING = 60
"""Deepest nesting of groups that is read."""

MAX_COUNT_DIGITS = 18
"""Most digits of a count in braces."""

_FLAG_LETTERS = {"i": re.I, "m": re.M, "s": re.S, "x": re.X, "a": re.A, "u": re.U}
_KNOWN_FLAGS = re.A | re.I | re.M | re.S | re.X | re.U
_COUNTS = re.compile(r"\{([0-9]*)(?:(,)([0-9]*))?\}")
_INLINE_FLAGS = re.compile(r"([a-zA-Z]*)(?:(-)([a-zA-Z]*))?([:)])")
_LOOKS = {"?=": (False, False), "?!": (False, True), "?<=": (True, False), "?<!": (True, True)}
_BLANKS = " \t\n\r\v\f"


def parse(pattern: str, dialect: Dialect = "python", flags: int = 0, *, either: bool = False) -> Node:
    """Return the syntax tree of a regular expression.

    Args:
        pattern: the expression.
        dialect: "python" or "ecma"; the head of this module tells them apart.
        flags: flags of `re` (A, I, M, S, U, X).
        either: whether the ECMA dialect takes what either accepts for a place that must match, and what both accept
            for one that must not.

    Raises:
        GrammarSyntaxError: the expression is malformed, or holds a construct that is refused; with its column.
    """
    return _Parser(pattern, dialect, flags, is_upper=either).parse()


class _Parser(AtomReader):
    """One pass over a pattern, by recursive descent."""

    def __init__(self, pattern: str, dialect: Dialect, flags: int, *, is_upper: bool) -> None:
        super().__init__(pattern, dialect, int(flags))
        self.is_upper = is_upper
        self._names: set[str] = set()
        self._depth = 0
        unknown = re.RegexFlag(self.flags & ~int(_KNOWN_FLAGS))
        if unknown:
            raise self.error(f"{unknown!r} is not supported; flags can be A, I, M, S, U and X", 0)
        if self.flags & re.A and self.flags & re.U:
            raise self.error("flags A and U exclude each other", 0)

    def parse(self) -> Node:
        """Read the whole pattern."""
        node = self._alternation()
        if self.peek():
            raise self.error("unbalanced ')'; write \\) for the character", self.position)
        return node

    def _alternation(self) -> Node:
        is_top = self._depth == 0
        options = [self._concatenation(may_set_flags=is_top)]
        while self.take("|"):
            options.append(self._concatenation(may_set_flags=False))
        return alternate(options)

    def _concatenation(self, *, may_set_flags: bool) -> Node:
        items: list[Node] = []
        refusal = "nothing to repeat"
        while self.peek() not in {"", "|", ")"}:
            start = self.position
            if self.flags & re.VERBOSE and self._blank():
                continue
            counts = self._counts()
            if counts is not None:
                if refusal:
                    raise self.error(f"{refusal} with {self.pattern[start : self.position]}", start)
                items[-1] = Repeat(items[-1], *counts, column=start + 1)
                refusal = "multiple repeat: group the first one before it is repeated"
                continue
            item = self._item(may_set_flags=may_set_flags and not items)
            if item is not None:
                items.append(item)
                text = self.pattern[start : self.position]
                refusal = f"nothing to repeat: {text} is a place" if text in _PLACES else ""
        return concat(items)

    def _blank(self) -> bool:
        """Step over a blank or a comment of the verbose syntax."""
        if self.peek() in _BLANKS:
            self.position += 1
            return True
        if self.peek() != "#":
            return False
        # `re` reads a backslash together with what follows it even here, so that an escaped newline ends nothing.
        while self.peek():
            char = self.next("comment")
            if char == "\n":
                break
            if char == "\\":
                self.next("escape")
        return True

    def _counts(self) -> tuple[int, int | None, bool] | None:
        """Read a quantifier; return (minimum, maximum, greedy), None if there is none."""
        start = self.position
        low, high = 0, None
        match self.peek():
            case "*":
                self.position += 1
            case "+":
                low = 1
                self.position += 1
            case "?":
                high = 1
                self.position += 1
            case "{":
                braces = _COUNTS.match(self.pattern, start)
                if braces is None or braces[0] == "{}":
                    return None
                low, high = self._braces(braces)
            case _:
                return None
        if self.take("+"):
            raise self.error(
                f"possessive quantifier {self.pattern[start : self.position]} is not supported; leave out the last +",
                start,
            )
        return low, high, not self.take("?")

    def _braces(self, found: re.Match[str]) -> tuple[int, int | None]:
        lowest, comma, highest = found.groups()
        if self.is_ecma and not lowest:
            raise self.error(
                f"{found[0]} is text in ECMA-262 and a repeat in Python; write {{0,{highest}}}, "
                "or \\{ for the character",
                found.start(),
            )
        self.position = found.end()
        if max(len(bound.lstrip("0")) for bound in (lowest, highest or "")) > MAX_COUNT_DIGITS:
            raise self.error(f"{found[0][:16]}...: a count has at most {MAX_COUNT_DIGITS} digits", found.start())
        low = int(lowest or 0)
        high = int(highest) if highest else None if comma else low
        if high is not None and high < low:
            raise self.error(f"{found[0]}: at least {low} and at most {high} cannot both hold", found.start())
        return low, high

    def _item(self, *, may_set_flags: bool) -> Node | None:
        """Read one item that is not a quantifier; None if it leaves nothing to match."""
        char = self.next("expression")
        match char:
            case ".":
                return self.dot()
            case "^":
                return self.start_anchor()
            case "$":
                return self.end_anchor()
            case "\\":
                return self.escape()
            case "[":
                return self.char_class()
            case "]":
                return self.closing_bracket()
            case "(":
                return self._group(may_set_flags=may_set_flags)
            case _:
                return self.literal(char)

    def _group(self, *, may_set_flags: bool) -> Node | None:
        """Read what follows `(`, the closing parenthesis included."""
        start = self.position - 1
        if not self.take("?"):
            return self._body(start)
        if self.take("#"):
            self.until(")", "comment")
            return None
        for mark, (is_behind, is_negative) in _LOOKS.items():
            if self.take(mark[1:]):
                return self._look(start, is_behind=is_behind, is_negative=is_negative)
        if self.take(":"):
            return self._body(start)
        if self._take_name(start):
            return self._body(start)
        for mark, name in _REFUSED_GROUPS.items():
            if self.take(mark):
                raise self.error(name, start)
        return self._flag_group(start, may_set_flags=may_set_flags)

    def _body(self, start: int, flags: int | None = None) -> Node:
        """Read a group's inside; flags set in it end with it."""
        outer = self.flags
        self.flags = outer if flags is None else flags
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error(f"groups are nested more than {MAX_NESTING} deep; flatten them", start)
        node = self._alternation()
        if not self.take(")"):
            raise self.error("unterminated group, ')' is missing", start)
        self._depth -= 1
        self.flags = outer
        return node

    def _look(self, start: int, *, is_behind: bool, is_negative: bool) -> Node:
        self.is_upper ^= is_negative
        node = self._body(start)
        self.is_upper ^= is_negative
        label = f"{'negative ' if is_negative else ''}look-{'behind' if is_behind else 'ahead'} at column {start + 1}"
        return Look(node, is_behind, is_negative, label)

    def _take_name(self, start: int) -> bool:
        """Step over a group's name; (?<name> is ECMA-262's form, (?P<name> Python's, and clear to both."""
        if not (self.take("P<") or (self.is_ecma and self.take("<"))):
            return False
        name = self.until(">", "group name")
        if not name.isidentifier() and not (self.is_ecma and name.replace("$", "_").isidentifier()):
            raise self.error(f"bad group name {name!r}", start)
        if name in self._names:
            raise self.error(f"two groups are named {name!r}", start)
        self._names.add(name)
        return True

    def _flag_group(self, start: int, *, may_set_flags: bool) -> Node | None:
        found = _INLINE_FLAGS.match(self.pattern, self.position)
        if found is None or not (found[1] or found[2]):
            raise self.error(f"unknown group (?{self.peek()}", start)
        self.position = found.end()
        added, removed = self._flag_set(found[1], start), self._flag_set(found[3] or "", start)
        if found[2] and (not found[3] or added & removed or removed & (re.A | re.U) or found[4] == ")"):
            raise self.error(f"bad flags in (?{found[0]}", start)
        if added & re.A and (added & re.U or (found[4] == ")" and self.flags & re.U)):
            raise self.error("flags a and u exclude each other", start)
        flags = (self.flags | added) & ~removed
        if added & re.U:
            flags &= ~int(re.A)
        if found[4] == ":":
            return self._body(start, flags)
        if not may_set_flags:
            raise self.error(f"flags (?{found[0]} must stand at the start of the expression", start)
        self.flags = flags
        return None

    def _flag_set(self, letters: str, start: int) -> int:
        unknown = sorted(set(letters) - _FLAG_LETTERS.keys())
        if unknown:
            raise self.error(f"unknown or unsupported flag {unknown[0]!r}", start)
        flags = 0
        for letter in letters:
            flags |= int(_FLAG_LETTERS[letter])
        return flags


_PLACES = frozenset({"^", "$", r"\A", r"\Z", r"\z", r"\b", r"\B"})
_REFUSED_GROUPS = {
    "P=": "back-reference (?P=..) is not regular; write out what it repeats",
    ">": "atomic group (?>..) is not supported; write (?:..)",
    "(": "conditional group (?(..)..) is not supported; write out its alternatives",
}
