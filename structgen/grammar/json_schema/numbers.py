"""Number shapes: integers or not, bounds, multiples; closed under intersection and complement.

Spelling rules: an integer is written without fraction and exponent, a number that is known not to be an
integer as a plain decimal; a listed number that the schema writes as 2.0 is 2 or 2.0. Where texts are written in any
style, one that it writes as 2 is also 2.0, unless its type says integer. Left out: multiples of anything but integers.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from structgen.grammar import dfa as dfas
from structgen.grammar import ir, lexemes
from structgen.grammar.dfa import Dfa

_MAX_POINTS = 64
_MAX_FLOAT = Fraction(sys.float_info.max)

Kind = Literal["any", "integer", "fraction"]


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of an interval."""

    value: Fraction
    inclusive: bool

    def flipped(self) -> Bound:
        """Return the bound of the other side of the cut."""
        return Bound(self.value, not self.inclusive)


class Digits(NamedTuple):
    """The most digits of a number as it is written: of the integer part, of the fraction, of both."""

    whole: int
    fraction: int
    total: int


@dataclass(frozen=True, slots=True)
class NumberShape:
    """A set of numbers.

    Attributes:
        kind: whether the members are integers, are not, or may be either.
        low: lower bound, None for none.
        high: upper bound, None for none.
        multiple: each member is a multiple of it, None for no condition.
        not_multiples: no member is a multiple of any of them.
        digits: most digits of the integer part, of the fraction and of both, as they are written; None for no
            limit. A number with a limit is written without exponent.
        exponent: most digits of the exponent, None for no limit.
        is_plain: an integer is written without a fraction, but where texts are written in any style.
    """

    kind: Kind = "any"
    low: Bound | None = None
    high: Bound | None = None
    multiple: Fraction | None = None
    not_multiples: frozenset[Fraction] = frozenset()
    digits: Digits | None = None
    exponent: int | None = None
    is_plain: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether no number is in the set."""
        shape = _tightened(self)
        if shape.multiple is not None and any((shape.multiple / m).denominator == 1 for m in shape.not_multiples):
            return True
        if shape.low is None or shape.high is None:
            return False
        if shape.low.value != shape.high.value:
            return shape.low.value > shape.high.value or shape.points() == ()
        return not (shape.low.inclusive and shape.high.inclusive and shape._admits(shape.low.value))

    def _admits(self, value: Fraction) -> bool:
        """Tell whether the conditions besides the bounds hold for a value."""
        if self.kind != "any" and (self.kind == "integer") != (value.denominator == 1):
            return False
        if self.multiple is not None and (value / self.multiple).denominator != 1:
            return False
        return all((value / other).denominator != 1 for other in self.not_multiples)

    @property
    def is_exact(self) -> bool:
        """Tell whether the shape can be complemented."""
        return self.digits is None and self.exponent is None

    def points(self) -> tuple[Fraction, ...] | None:
        """Return the members, ascending, where they are known to be few; None otherwise."""
        shape = _tightened(self)
        if shape.low is None or shape.high is None:
            return None
        low, high = shape.low.value, shape.high.value
        if shape.kind != "integer":
            return (low,) if low == high and not shape.is_empty else None
        step = 1 if shape.multiple is None else shape.multiple.numerator
        if (high - low) / step > _MAX_POINTS:
            return None
        first = -(-low.numerator // step) * step
        return tuple(Fraction(n) for n in range(first, high.numerator + 1, step) if shape._admits(Fraction(n)))

    def intersect(self, other: NumberShape) -> NumberShape | None:
        """Return the numbers in both, None if there is none."""
        kinds = {self.kind, other.kind} - {"any"}
        if len(kinds) > 1:
            return None
        digits = [shape.digits for shape in (self, other) if shape.digits is not None]
        shape = NumberShape(
            kind=kinds.pop() if kinds else "any",
            low=max((b for b in (self.low, other.low) if b), key=lambda b: (b.value, not b.inclusive), default=None),
            high=min((b for b in (self.high, other.high) if b), key=lambda b: (b.value, b.inclusive), default=None),
            multiple=_common(self.multiple, other.multiple),
            not_multiples=self.not_multiples | other.not_multiples,
            digits=Digits(*(min(limits) for limits in zip(*digits, strict=True))) if digits else None,
            exponent=min((shape.exponent for shape in (self, other) if shape.exponent is not None), default=None),
            is_plain=self.is_plain or other.is_plain,
        )
        return None if shape.is_empty else shape

    def complement(self) -> tuple[NumberShape, ...]:
        """Return shapes whose union is every other number."""
        parts: list[NumberShape] = []
        if self.kind == "integer":
            parts.append(NumberShape(kind="fraction"))
        if self.kind == "fraction":
            parts.append(NumberShape(kind="integer"))
        if self.low is not None:
            parts.append(NumberShape(high=self.low.flipped()))
        if self.high is not None:
            parts.append(NumberShape(low=self.high.flipped()))
        if self.multiple is not None:
            parts.append(NumberShape(not_multiples=frozenset({self.multiple})))
        parts += [NumberShape(multiple=divisor) for divisor in sorted(self.not_multiples)]
        return tuple(parts)


def point(value: Fraction, *, decimal: bool) -> NumberShape:
    """Return the shape with one member; `decimal`: in every style an integer may be written as a decimal too."""
    bound = Bound(value, inclusive=True)
    return NumberShape("any" if value.denominator == 1 else "fraction", bound, bound, is_plain=not decimal)


def spell(value: Fraction) -> str:
    """Return a finite decimal as plain JSON, an integer without fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    places = 0
    scaled = abs(value)
    while scaled.denominator != 1:
        scaled *= 10
        places += 1
    digits = str(scaled.numerator).rjust(places + 1, "0")
    return ("-" if value < 0 else "") + digits[:-places] + "." + digits[-places:]


@lru_cache(maxsize=1024)
def lower_numbers(
    shapes: tuple[NumberShape, ...], *, in_any_style: bool = False
) -> tuple[tuple[str, ...], tuple[ir.Lexeme, ...]]:
    """Return the spellings of the shapes with few members, and one lexeme for each other shape."""
    words: list[str] = []
    found: list[ir.Lexeme] = []
    for shape in shapes:
        points = shape.points()
        if points is not None and shape.digits is None:
            words += [spell(value) for value in points]
            if shape.kind == "any" and (in_any_style or not shape.is_plain):
                words += [f"{value.numerator}.0" for value in points if _is_float(value)]
        else:
            found.append(_lexeme(_tightened(shape)))
    return tuple(words), tuple(found)


def _lexeme(shape: NumberShape) -> ir.Lexeme:
    low, high = _decimal(shape.low), _decimal(shape.high)
    divisor = None if shape.multiple is None else Decimal(spell(shape.multiple))
    if shape.kind == "integer":
        lexeme = lexemes.json_integer(low, high, multiple_of=divisor)
    else:
        lexeme = lexemes.json_number(
            low,
            high,
            exclusive_minimum=shape.low is not None and not shape.low.inclusive,
            exclusive_maximum=shape.high is not None and not shape.high.inclusive,
            multiple_of=divisor,
        )
    dfa = lexeme.dfa
    if shape.kind == "fraction" or shape.not_multiples:
        dfa = dfas.intersection(dfa, _plain_decimals(whole=shape.kind != "fraction"))
    for other in sorted(shape.not_multiples):
        dfa = dfas.difference(dfa, lexemes.json_number(multiple_of=Decimal(spell(other))).dfa)
    if shape.digits is not None:
        dfa = dfas.intersection(dfa, _limited_digits(shape.digits))
    if shape.exponent is not None:
        dfa = dfas.intersection(dfa, _limited_exponent(shape.exponent))
    return replace(lexeme, dfa=dfa)


def _is_float(value: Fraction) -> bool:
    """Tell whether a value is whole, and a reader that makes floats of decimals reads it back."""
    return value.denominator == 1 and abs(value) <= _MAX_FLOAT and float(value) == value


def _decimal(bound: Bound | None) -> Decimal | None:
    return None if bound is None else Decimal(spell(bound.value))


def _tightened(shape: NumberShape) -> NumberShape:
    """Return the same set of integers with inclusive integer bounds; other kinds as they are."""
    if shape.kind != "integer":
        return shape
    low, high = shape.low, shape.high
    # An integer is a multiple of p/q in lowest terms iff it is one of p.
    multiple = None if shape.multiple is None else Fraction(shape.multiple.numerator)
    if low is not None:
        first = math.floor(low.value) + 1 if not low.inclusive else math.ceil(low.value)
        low = Bound(Fraction(first), inclusive=True)
    if high is not None:
        last = math.ceil(high.value) - 1 if not high.inclusive else math.floor(high.value)
        high = Bound(Fraction(last), inclusive=True)
    return replace(shape, low=low, high=high, multiple=multiple)


def _common(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    """Return the number whose multiples are the common multiples of both."""
    if first is None or second is None:
        return first or second
    scale = math.lcm(first.denominator, second.denominator)
    return Fraction(math.lcm(int(first * scale), int(second * scale)), scale)


def _table(num_states: int) -> list[list[int]]:
    return [[-1] * 256 for _ in range(num_states)]


@lru_cache(maxsize=2)
def _plain_decimals(*, whole: bool) -> Dfa:
    """Return the DFA of decimals without exponent; not whole: with a fraction digit that is not 0."""
    start, signed, zero, digits, dot, zeros, nonzero = range(7)
    delta = _table(7)
    delta[start][ord("-")] = signed
    for digit in b"0123456789":
        for state in (start, signed):
            delta[state][digit] = zero if digit == ord("0") else digits
        delta[digits][digit] = digits
        for state in (dot, zeros):
            delta[state][digit] = zeros if digit == ord("0") else nonzero
        delta[nonzero][digit] = nonzero
    for state in (zero, digits):
        delta[state][ord(".")] = dot
    final = (zero, digits, zeros, nonzero) if whole else (nonzero,)
    return Dfa.build(delta, [state in final for state in range(7)])


@lru_cache(maxsize=64)
def _limited_digits(limit: Digits) -> Dfa:
    """Return the DFA of decimals without exponent that are written with at most so many digits."""
    # A state is (digits of the integer part, a lone zero not counted; of the fraction, -1 before the point).
    states = [(-2, -1), (-1, -1)]
    states += [
        (whole, fraction)
        for whole in range(limit.whole + 1)
        for fraction in range(-1, limit.fraction + 1)
        if whole + max(fraction, 0) <= limit.total
    ]
    ids = {state: i for i, state in enumerate(states)}
    delta = _table(len(states))
    delta[0][ord("-")] = 1
    for (whole, fraction), state in ids.items():
        if fraction == -1 and whole >= 0:
            delta[state][ord(".")] = ids.get((whole, 0), -1)
        for digit in b"0123456789":
            if whole < 0:
                then = (0 if digit == ord("0") else 1, -1)
            elif fraction >= 0:
                then = (whole, fraction + 1)
            else:
                then = (whole + 1, -1) if whole else (-3, -1)
            delta[state][digit] = ids.get(then, -1)
    return Dfa.build(delta, [whole >= 0 and fraction != 0 for whole, fraction in states])


@lru_cache(maxsize=16)
def _limited_exponent(most: int) -> Dfa:
    """Return the DFA of texts whose exponent, if they have one, is written with at most so many digits."""
    # 0: before the exponent, 1: after its letter, 2: after its sign, then its digits.
    delta = _table(3 + most)
    delta[0] = [1 if byte in b"eE" else 0 for byte in range(256)]
    for byte in b"+-":
        delta[1][byte] = 2
    for byte in b"0123456789":
        delta[1][byte] = 3 if most else -1
        for state in range(2, 2 + most):
            delta[state][byte] = state + 1
    return Dfa.build(delta, [state == 0 or state > 2 for state in range(3 + most)])
