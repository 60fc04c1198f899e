"""Conjunctions of terms -> rules of ir.Grammar.

Each conjunction that holds arrays or objects becomes one rule per depth of the layout; scalars stand where
they are used, so that literals merge and equal lexemes are one object. Rules are made from a queue, never
by recursion, so a schema may be nested as deep as it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal

from structgen.errors import LimitError, UnsupportedSchemaError
from structgen.grammar import dfa as dfas
from structgen.grammar import ir
from structgen.grammar.json_schema import numbers, strings
from structgen.grammar.json_schema.emit_arrays import array_rule
from structgen.grammar.json_schema.emit_objects import object_rule
from structgen.grammar.json_schema.layout import Layout, Style, choose
from structgen.grammar.json_schema.shapes import Values
from structgen.grammar.json_schema.solver import Solver
from structgen.grammar.json_schema.terms import ANYTHING, NOTHING, InexactError, Terms, place

PropertyOrder = Literal["declared", "any"]
MAX_RULES = 100_000


class Emitter:
    """Builds the rules of one grammar."""

    def __init__(self, solver: Solver, property_order: PropertyOrder) -> None:
        """Start without rules."""
        self.solver = solver
        self.property_order = property_order
        self.rules: dict[str, ir.Expr] = {}
        self.empty_at: list[str] = []
        self._names: dict[tuple[Terms, Layout], str] = {}
        self._scalars: dict[Terms, tuple[ir.Expr, ...]] = {}
        self._queue: deque[tuple[str, Callable[[], ir.Expr]]] = deque()
        self._pointer = "#"
        self._made = 0

    def grammar(self, style: Style) -> ir.Grammar:
        """Return the grammar of the whole document; parts of it may be empty (see `prune`)."""
        root = self.solver.terms("#")
        start = self.fresh("#", lambda: self.value(root, Layout(style)))
        while self._queue:
            name, body = self._queue.popleft()
            self._pointer = name.partition(" ")[0]
            self.rules[name] = self.made(body)
        return ir.Grammar(self.rules, start)

    def made(self, body: Callable[[], ir.Expr]) -> ir.Expr:
        """Return the body of the rule that is being made; say where it has no exact form."""
        try:
            return body()
        except InexactError as error:
            raise UnsupportedSchemaError(self._pointer, error.keyword, error.reason) from None

    @property
    def any_order(self) -> bool:
        """Tell whether the properties of an object may come in any order."""
        return self.property_order == "any"

    def fresh(self, pointer: str, body: Callable[[], ir.Expr]) -> str:
        """Return the name of a new rule whose body is made later."""
        if self._made >= MAX_RULES:
            raise LimitError("the schema needs too many rules; make it smaller", "rules", MAX_RULES)
        name = f"{pointer} {self._made}"
        self._made += 1
        self._queue.append((name, body))
        return name

    def rule(self, body: Callable[[], ir.Expr]) -> ir.Reference:
        """Return a reference to a new part of the rule that is being made."""
        return ir.Reference(self.fresh(self._pointer, body))

    def value(self, terms: Terms, layout: Layout) -> ir.Expr:
        """Return the expression for the values of a conjunction."""
        values = self.solver.values(terms)
        if terms not in self._scalars:
            self._scalars[terms] = tuple(_scalars(values))
        options = [*self._scalars[terms]]
        if values.arrays or values.objects:
            options.append(self._compound(terms, values, layout))
        if not options and terms != NOTHING:
            self.empty_at.append(_pointer_of(terms))
        return choose(options)

    def _compound(self, terms: Terms, values: Values, layout: Layout) -> ir.Reference:
        key = (terms, layout)
        if key not in self._names:
            self._names[key] = self.fresh(_pointer_of(terms), lambda: self._body(values, layout))
        return ir.Reference(self._names[key])

    def _body(self, values: Values, layout: Layout) -> ir.Expr:
        arrays = [array_rule(self, shape, layout) for shape in values.arrays]
        return choose(arrays + [object_rule(self, shape, layout) for shape in values.objects])

    def has_no_value(self, terms: Terms) -> bool:
        """Tell whether it is certain that no value satisfies a conjunction."""
        return self.solver.is_empty(terms)

    def finite_values(self, terms: Terms) -> tuple[bytes, ...] | None:
        """Return the spellings of all values of a conjunction; None where they are not few scalars."""
        values = self.solver.values(terms)
        words, lexemes = _words(values)
        if values.arrays or values.objects or lexemes:
            return None
        return words


def _scalars(values: Values) -> Iterable[ir.Expr]:
    """Yield one lexeme or literal for all values that are listed, and one lexeme for each other shape."""
    words, lexemes = _words(values)
    if len(words) == 1:
        yield ir.Literal(words[0])
    elif words:
        yield _one_of(words)
    yield from lexemes


@lru_cache(maxsize=1024)
def _one_of(words: tuple[bytes, ...]) -> ir.Lexeme:
    return ir.Lexeme(dfas.from_words(words), name="one of " + ", ".join(word.decode() for word in words[:3]))


def _words(values: Values) -> tuple[tuple[bytes, ...], list[ir.Expr]]:
    words = [b"null"] if values.nulls else []
    words += [b"true" if value else b"false" for value in sorted(values.booleans)]
    points, lexemes = numbers.lower_numbers(values.numbers)
    words += [point.encode() for point in points]
    found: list[ir.Expr] = list(lexemes)
    for shape in values.strings:
        if shape.words is None:
            found.append(strings.lower_string(shape))
        else:
            words += [strings.spell(word) for word in sorted(shape.words)]
    return tuple(dict.fromkeys(words)), [
        expr for expr in found if not (isinstance(expr, ir.Lexeme) and expr.dfa.is_empty)
    ]


def _pointer_of(terms: Terms) -> str:
    return "any" if terms == ANYTHING else place(terms)
