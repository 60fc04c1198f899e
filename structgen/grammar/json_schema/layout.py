"""Whitespace styles: what stands around the brackets, colons and commas of JSON text.

- compact: nothing. spaced: one space after ``:`` and ``,``.
- pretty: one item a line, indented by two spaces, as json.dumps(indent=2) writes it, down to
  `PRETTY_DEPTH` levels; deeper values are written in one line, spaced.
- any: up to 16 characters of JSON whitespace in each gap inside the value; none before and after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from structgen.grammar import ir, lexemes

Style = Literal["compact", "spaced", "pretty", "any"]
PRETTY_DEPTH = 6
ANY_WHITESPACE = 16

Parts = tuple[ir.Expr, ...]
EMPTY = ir.Literal(b"")


@dataclass(frozen=True, slots=True)
class Layout:
    """The punctuation of values at one depth in one style."""

    style: Style
    depth: int = 0

    @property
    def inner(self) -> Layout:
        """Return the layout of what stands inside a bracket."""
        if self.is_broken:
            return Layout(self.style, self.depth + 1)
        return self if self.style != "pretty" else Layout("spaced")

    @property
    def is_broken(self) -> bool:
        """Tell whether each item begins a line."""
        return self.style == "pretty" and self.depth < PRETTY_DEPTH

    @property
    def colon(self) -> Parts:
        """Return what stands between a key and its value."""
        if self.style == "any":
            return self._gaps(b"", b":", b"")
        return (ir.Literal(b":" if self.style == "compact" else b": "),)

    @property
    def comma(self) -> Parts:
        """Return what stands between two items."""
        if self.style == "any":
            return self._gaps(b"", b",", b"")
        return (ir.Literal(b"," + (self._line(1) if self.is_broken else b"" if self.style == "compact" else b" ")),)

    def opening(self, bracket: bytes) -> Parts:
        """Return an opening bracket and what precedes the first item."""
        if self.style == "any":
            return self._gaps(bracket, b"")
        return (ir.Literal(bracket + (self._line(1) if self.is_broken else b"")),)

    def closing(self, bracket: bytes) -> Parts:
        """Return what follows the last item, and a closing bracket."""
        if self.style == "any":
            return self._gaps(b"", bracket)
        return (ir.Literal((self._line(0) if self.is_broken else b"") + bracket),)

    def empty(self, brackets: bytes) -> Parts:
        """Return brackets with nothing between them."""
        return self._gaps(brackets[:1], brackets[1:]) if self.style == "any" else (ir.Literal(brackets),)

    def _line(self, more: int) -> bytes:
        return b"\n" + b"  " * (self.depth + more)

    @staticmethod
    def _gaps(*texts: bytes) -> Parts:
        """Return the texts with a gap between neighbours: one lexeme, so that nothing in a rule is empty at times."""
        return (lexemes.json_punctuation(texts, ANY_WHITESPACE),)


def join(*parts: ir.Expr) -> ir.Expr:
    """Return the parts in order as one flat expression with neighbouring literals merged."""
    flat: list[ir.Expr] = []
    for part in parts:
        for item in part.items if isinstance(part, ir.Sequence) else (part,):
            last = flat[-1] if flat else None
            if not isinstance(item, ir.Literal):
                flat.append(item)
            elif isinstance(last, ir.Literal):
                flat[-1] = ir.Literal(last.text + item.text)
            elif item.text:
                flat.append(item)
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else ir.Sequence(tuple(flat))


def choose(options: list[ir.Expr]) -> ir.Expr:
    """Return any one of the options, without duplicates."""
    if len(options) == 1:
        return options[0]
    distinct = tuple(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else ir.Choice(distinct)


def optional(expr: ir.Expr) -> ir.Expr:
    """Return the expression or nothing."""
    return ir.Choice((EMPTY, expr))
