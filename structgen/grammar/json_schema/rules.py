"""What the emitters of arrays and objects need from the emitter of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from structgen.grammar import ir
from structgen.grammar.json_schema.layout import Layout
from structgen.grammar.json_schema.terms import Terms


class Outline(NamedTuple):
    """What there is to know of the texts of an array or object shape before its rule is made.

    Attributes:
        inside: the conjunctions of which values may stand in it.
        needed: those of them of which some value does, so that it has no text where one of these has none.
    """

    inside: tuple[Terms, ...]
    needed: tuple[Terms, ...]


class Rules(Protocol):
    """The growing set of rules of one grammar."""

    @property
    def any_order(self) -> bool:
        """Tell whether the properties of an object may come in any order."""

    def keep_order(self) -> None:
        """Note that an object of the rule that is being made keeps the declared order, where any was asked for."""

    def value(self, terms: Terms, layout: Layout, /) -> ir.Expr:
        """Return the expression for the values of a conjunction."""

    def rule(self, body: Callable[[], ir.Expr], /) -> ir.Reference:
        """Return a reference to a new rule, whose body is made later."""

    def has_no_value(self, terms: Terms, /) -> bool:
        """Tell whether it is certain that no value satisfies a conjunction."""

    def finite_values(self, terms: Terms, /) -> tuple[bytes, ...] | None:
        """Return the spellings of all values of a conjunction; None where they are not few scalars."""
