"""DFAs of JSON numbers within bounds, and of multiples: exactly the spellings whose value qualifies.

A text is read left to right by the syntax of JSON numbers, and beside it each condition on the magnitude keeps
the little it must know. Forms with an exponent are in the language where the conditions do not look past the
sign and "is it zero"; elsewhere they are left out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Protocol

import numpy as np

from structgen.errors import LimitError
from structgen.grammar.dfa import Dfa
from structgen.grammar.table import DEAD, check_size

Number = int | float | Decimal

MAX_DIGITS = 5_000
MAX_NUMBER_STATES = 20_000

DIGITS = "0123456789"
BELOW, EQUAL, ABOVE = -1, 0, 1

# Per syntactic state what each kind of character leads to: `0`, `d` (1 to 9), `-`, `+`, `.`, `e`.
SYNTAX = {
    "start": {"-": "minus", "0": "zero", "d": "whole"},
    "minus": {"0": "zero", "d": "whole"},
    "zero": {".": "point", "e": "e"},
    "whole": {"0": "whole", "d": "whole", ".": "point", "e": "e"},
    "point": {"0": "fraction", "d": "fraction"},
    "fraction": {"0": "fraction", "d": "fraction", "e": "e"},
    "e": {"-": "sign", "+": "sign", "0": "exponent", "d": "exponent"},
    "sign": {"0": "exponent", "d": "exponent"},
    "exponent": {"0": "exponent", "d": "exponent"},
}
FINAL = {"zero", "whole", "fraction", "exponent"}
KIND = {"0": "0", "-": "-", "+": "+", ".": ".", "e": "e", "E": "e"} | dict.fromkeys("123456789", "d")


class Condition(Protocol):
    """A condition on a magnitude, read as digits and at most one point."""

    @property
    def start(self) -> Hashable:
        """Return what is known before the first digit."""

    def step(self, known: Hashable, char: str) -> Hashable | None:
        """Return what is known after a digit or the point, None if the condition can no more hold."""

    def holds(self, known: Hashable) -> bool:
        """Tell whether the magnitude, if it ends here, qualifies."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The magnitude lies below, at or above a bound.

    What is known: BELOW or ABOVE once decided, else ("whole", digits read, order of the digits so far) or
    ("fraction", digits read) while all digits are the bound's.

    Attributes:
        whole: the digits of the bound before the point, without leading zeros, "0" at least.
        fraction: those after it, without trailing zeros.
        orders: the orders of magnitude and bound that qualify.
    """

    whole: str
    fraction: str
    orders: frozenset[int]

    @classmethod
    def to(cls, bound: Decimal, orders: set[int]) -> Comparison:
        """Compare with a bound, which is not negative."""
        whole, _, fraction = f"{bound.copy_abs():f}".partition(".")  # the sign to be dropped is that of -0
        return cls(whole.lstrip("0") or "0", fraction.rstrip("0"), frozenset(orders))

    @property
    def is_zero(self) -> bool:
        """Tell whether the bound is zero."""
        return self.whole == "0" and not self.fraction

    @property
    def start(self) -> Hashable:
        """Return that no digit has been read."""
        return ("whole", 0, EQUAL)

    def step(self, known: Hashable, char: str) -> Hashable | None:
        """Compare one digit more, or turn to the fraction."""
        match known:
            case ("whole", int(read), int(order)) if char == ".":
                order = BELOW if read < len(self.whole) else order
                return ("fraction", 0) if order == EQUAL else self._decided(order)
            case ("whole", int(read), _) if read == len(self.whole):
                return self._decided(ABOVE)
            case ("whole", int(read), int(order)):
                return ("whole", read + 1, order or _order(char, self.whole[read]))
            case ("fraction", int(read)):
                order = _order(char, self.fraction[read : read + 1] or "0")
                return self._decided(order) if order else ("fraction", min(read + 1, len(self.fraction)))
            case _:
                return known

    def holds(self, known: Hashable) -> bool:
        """Tell whether the order of what was read and the bound qualifies."""
        match known:
            case ("whole", int(read), int(order)):
                order = BELOW if read < len(self.whole) else order
                return (order or (BELOW if self.fraction else EQUAL)) in self.orders
            case ("fraction", int(read)):
                return (BELOW if read < len(self.fraction) else EQUAL) in self.orders
            case _:
                return known in self.orders

    def _decided(self, order: int) -> int | None:
        return order if order in self.orders else None


@dataclass(frozen=True, slots=True)
class Multiple:
    """The magnitude is a multiple of unit / 10**places.

    What is known: (remainder of the digits read as one number, places read), places None before the point.
    """

    unit: int
    places: int

    @classmethod
    def of(cls, divisor: Decimal) -> Multiple:
        """Demand a multiple of a positive number."""
        exponent = _exponent(divisor)
        unit = int(Decimal((0, divisor.as_tuple().digits, max(exponent, 0))))
        places = max(-exponent, 0)
        while places and unit % 10 == 0:
            unit, places = unit // 10, places - 1
        return cls(unit, places)

    @property
    def start(self) -> Hashable:
        """Return that no digit has been read."""
        return (0, None)

    def step(self, known: Hashable, char: str) -> Hashable | None:
        """Take one digit more into the remainder; past the last place only zeros may come."""
        match known:
            case (int(remainder), None):
                return (remainder, 0) if char == "." else (self._append(remainder, char), None)
            case (int(remainder), int(read)) if read < self.places:
                return (self._append(remainder, char), read + 1)
            case _:
                return known if char == "0" else None

    def holds(self, known: Hashable) -> bool:
        """Tell whether the remainder, with the places not read as zeros, is zero."""
        match known:
            case (int(remainder), int(read)):
                return bool(remainder * 10 ** (self.places - read) % self.unit == 0)
            case (int(remainder), None):
                return bool(remainder * 10**self.places % self.unit == 0)
            case _:
                return False

    def _append(self, remainder: int, digit: str) -> int:
        return (remainder * 10 + int(digit)) % self.unit


def _order(char: str, other: str) -> int:
    return (char > other) - (char < other)


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{number} is no bound of a number; pass a finite one")
    return exponent


def exact(number: Number) -> Decimal:
    """Return a number as the decimal that it is written as; a float by its shortest spelling, as JSON has it.

    Raises:
        ValueError: not finite.
        LimitError: more than MAX_DIGITS digits before or after the point.
    """
    decimal = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    size = max(-_exponent(decimal), decimal.adjusted(), 0)
    if size > MAX_DIGITS:
        raise LimitError("a bound of a number is written with too many digits", limit="digits", size=size)
    return decimal


@dataclass(frozen=True, slots=True)
class Bounds:
    """What values qualify; numbers of any kind may be passed, and are kept as decimals.

    Attributes:
        minimum: least value, None for no bound.
        maximum: greatest value, None for no bound.
        exclusive_minimum: the least value itself does not qualify.
        exclusive_maximum: the greatest value itself does not qualify.
        multiple_of: positive number of which each value is a multiple, None for any value.
    """

    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: Number | None = None

    def __post_init__(self) -> None:
        """Make decimals of the numbers: 1e23 and the integer nearest to it are equal, but not the same bound."""
        for name in ("minimum", "maximum", "multiple_of"):
            number: Number | None = getattr(self, name)
            if number is not None:
                object.__setattr__(self, name, exact(number))
        if self.multiple_of is not None and self.multiple_of <= 0:
            raise ValueError(f"multiple_of must be greater than 0, not {self.multiple_of}")

    def conditions(self, *, negative: bool) -> list[Condition] | None:
        """Return the conditions on the magnitude behind either sign, None if no value with that sign qualifies."""
        least, greatest = (None if bound is None else exact(bound) for bound in (self.minimum, self.maximum))
        at_least = {ABOVE} if self.exclusive_minimum else {ABOVE, EQUAL}
        at_most = {BELOW} if self.exclusive_maximum else {BELOW, EQUAL}
        if negative:
            # -m >= least is m <= -least; copy_negate, because unary minus rounds to the context's precision.
            least, greatest = (None if bound is None else bound.copy_negate() for bound in (greatest, least))
            at_least, at_most = {-order for order in at_most}, {-order for order in at_least}
        if greatest is not None and greatest < 0:
            return None
        found: list[Condition] = []
        if greatest is not None:
            found.append(Comparison.to(greatest, at_most))
        if least is not None and (least > 0 or (least == 0 and EQUAL not in at_least)):
            found.append(Comparison.to(least, at_least))
        if self.multiple_of is not None:
            found.append(Multiple.of(exact(self.multiple_of)))
        return found


@lru_cache(maxsize=1024)
def integers(bounds: Bounds) -> Dfa:
    """Return the integers within bounds, without fraction and exponent; zero is spelled `0` alone."""
    return _explore(bounds, whole=True)


@lru_cache(maxsize=1024)
def decimals(bounds: Bounds) -> Dfa:
    """Return the JSON numbers within bounds; `-0`, `-0.0` have the value 0.

    Forms with an exponent are left out as soon as a bound is not zero or there is a divisor.
    """
    return _explore(bounds, whole=False)


State = tuple[str, bool, tuple[Hashable, ...]]


def _explore(bounds: Bounds, *, whole: bool) -> Dfa:
    """Build the DFA over (syntax, sign, what each condition knows) from the states that are reached."""
    by_sign: list[list[Condition] | None] = [bounds.conditions(negative=False), bounds.conditions(negative=True)]
    negative = by_sign[True]
    if whole and negative is not None:
        negative.append(Comparison("0", "", frozenset({ABOVE})))
    if whole:
        symbols = "-" + DIGITS
    elif all(_is_about_zero(condition) for conditions in by_sign for condition in conditions or []):
        symbols = "-+.eE" + DIGITS
    else:
        symbols = "-." + DIGITS
    start: State = ("start", False, ())
    order, numbers, rows = [start], {start: 0}, []
    for state in order:
        row = {}
        for char in symbols:
            target = _step(by_sign, state, char)
            if target is not None:
                row[char] = numbers.setdefault(target, len(order))
                if row[char] == len(order):
                    order.append(target)
        rows.append(row)
        check_size(len(order), MAX_NUMBER_STATES)
    delta = np.full((len(rows), 256), DEAD, np.int32)
    for number, row in enumerate(rows):
        for char, to in row.items():
            delta[number, ord(char)] = to
    return Dfa.build(delta, [_accepts(by_sign, state) for state in order])


def _is_about_zero(condition: Condition) -> bool:
    """Tell whether an exponent cannot change the verdict."""
    return isinstance(condition, Comparison) and condition.is_zero


def _step(by_sign: list[list[Condition] | None], state: State, char: str) -> State | None:
    syntax, negative, known = state
    after = SYNTAX[syntax].get(KIND[char])
    if after is None:
        return None
    negative = negative or (syntax == "start" and char == "-")
    conditions = by_sign[negative]
    if conditions is None:
        return None
    if syntax == "start":
        known = tuple(condition.start for condition in conditions)
    if after in ("minus", "e", "sign", "exponent"):
        return after, negative, known
    stepped = [condition.step(state, char) for condition, state in zip(conditions, known, strict=True)]
    return None if None in stepped else (after, negative, tuple(stepped))


def _accepts(by_sign: list[list[Condition] | None], state: State) -> bool:
    syntax, negative, known = state
    conditions = by_sign[negative] or []
    return syntax in FINAL and all(c.holds(state) for c, state in zip(conditions, known, strict=True))
