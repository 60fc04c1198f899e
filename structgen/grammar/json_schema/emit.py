"""Conjunctions of terms -> rules of ir.Grammar.

Each conjunction that holds arrays or objects becomes one rule per depth of the layout; scalars stand where they are
used, so that literals merge and equal lexemes are one object. First all values are looked at that a text may hold, so
that whatever is refused is refused then, and what no value fits is known. The rules themselves are made when they are
asked for: of a large schema a text uses few. Only what is counted, or decided on together, is made at once, as that is
how its refusals are found. All goes by queues, never by recursion, so a schema may be nested as deep as it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from structgen.errors import LimitError, UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar import dfa as dfas
from structgen.grammar import ir
from structgen.grammar.json_schema import numbers, strings
from structgen.grammar.json_schema.emit_arrays import array_rule, outline_array
from structgen.grammar.json_schema.emit_objects import object_rule, outline_object
from structgen.grammar.json_schema.layout import Layout, Style, choose
from structgen.grammar.json_schema.prune import is_whole, productive_rules, pruned
from structgen.grammar.json_schema.rules import Outline
from structgen.grammar.json_schema.shapes import Values
from structgen.grammar.json_schema.solver import Solver
from structgen.grammar.json_schema.terms import ANYTHING, NOTHING, InexactError, Terms, place
from structgen.grammar.time_limit import check_time

PropertyOrder = Literal["declared", "any"]
MAX_RULES = 100_000
# With these any key can be spelled, by way of escapes, and all punctuation.
_PLAIN_BYTES = {*b"\n", *range(0x20, 0x7F)}


@dataclass(eq=False, slots=True)
class _Part:
    """The arrays and objects of one conjunction in one layout.

    Attributes:
        name: of its rule.
        pointer: where it stands in the schema.
        body: makes its rule.
        rules: its rule, and those that only this one leads to; empty until they are made.
        ways: while there are no rules: for each shape the parts that its texts cannot do without.
    """

    name: str
    pointer: str
    body: Callable[[], ir.Expr]
    rules: dict[str, ir.Expr]
    ways: tuple[frozenset[str], ...] = ()

    def needed(self) -> set[str]:
        """Return the parts that this one may lead to an end through."""
        if self.rules:
            return {name for body in self.rules.values() for name in ir.references(body)} - self.rules.keys()
        return {name for way in self.ways for name in way}

    def has_text(self, productive: set[str]) -> bool:
        """Tell whether some text belongs to it if some belongs to each of other parts."""
        if self.rules:
            return self.name in productive_rules(self.rules, productive)
        return any(way <= productive for way in self.ways)


class Seen(NamedTuple):
    """What there is of a conjunction in one layout.

    Attributes:
        values: what it holds.
        has_scalars: whether there are others than arrays and objects.
        part: the name of the part for the arrays and objects, "" if there are none.
    """

    values: Values
    has_scalars: bool
    part: str


class Emitter:
    """Builds the rules of one grammar."""

    def __init__(self, solver: Solver, property_order: PropertyOrder) -> None:
        """Start without rules."""
        self.solver = solver
        self.property_order = property_order
        self.empty_at: list[str] = []
        self.ordered_at: dict[str, None] = {}
        self._seen: dict[tuple[Terms, Layout], Seen] = {}
        self._scalars: dict[Terms, tuple[ir.Expr, ...]] = {}
        self._parts: dict[str, _Part] = {}
        self._start = ""
        self._in_any_style = False
        self._queue: deque[tuple[_Part, Values, Layout]] = deque()
        self._pending: deque[tuple[str, Callable[[], ir.Expr]]] = deque()
        self._pointer = "#"
        self._making = ""
        self._num_inner = 0
        self._num_rules = 0

    def survey(self, style: Style) -> None:
        """Look at all values that a text of the whole document may hold.

        Raises:
            UnsupportedSchemaError: something has no exact form.
            LimitError: there are too many rules.
        """
        root, layout = self.solver.terms("#"), Layout(style)
        self._in_any_style = style == "any"
        start = self._part("#", lambda: self.value(root, layout))
        self._start = start.name
        self._make(start)
        while self._queue:
            part, values, layout = self._queue.popleft()
            check_time(part.pointer)
            self._pointer = part.pointer
            outlines = self._outlines(values)
            if outlines is None:
                self._make(part)
            else:
                part.ways = tuple(self._visited(outlines, layout.inner))

    def grammar(self, text: str, made_of: str) -> ir.Grammar:
        """Return the grammar of what was surveyed.

        Args:
            text: of the schema; it holds all declared keys.
            made_of: all that the rules follow from.

        Raises:
            UnsatisfiableError: no text fits.
        """
        productive = self._productive()
        if self._start not in productive:
            where = self.empty_at[0] if self.empty_at else "#"
            raise UnsatisfiableError("no value fits this schema; its keywords contradict each other here", where)

        def rules_of(name: str) -> dict[str, ir.Expr]:
            part = self._parts[name]
            if part.rules:
                return pruned(part.rules, name, productive)
            self._make(part)
            # Sub-rules of what is made late end wherever their parts do.
            return part.rules if is_whole(part.rules, productive) else pruned(part.rules, name, productive)

        scalars = dict.fromkeys(option for options in self._scalars.values() for option in options)
        parts = [part for one in scalars for part in ir.walk(one)]
        lexemes = tuple(dict.fromkeys(part for part in parts if isinstance(part, ir.Lexeme)))
        spelled = {byte for part in parts if isinstance(part, ir.Literal) for byte in part.text}
        facts = ir.Facts(lexemes, frozenset(spelled | _PLAIN_BYTES | set(text.encode())))
        return ir.Grammar(ir.LazyRules(self._start, rules_of, facts, made_of), self._start)

    def _productive(self) -> set[str]:
        """Return the parts to which some text belongs, by propagation from what is known to the parts that need it."""
        users: dict[str, list[_Part]] = {}
        for part in self._parts.values():
            for name in part.needed():
                users.setdefault(name, []).append(part)
        found: set[str] = set()
        waiting = list(self._parts.values())
        while waiting:
            part = waiting.pop()
            if part.name not in found and part.has_text(found):
                found.add(part.name)
                waiting += users.get(part.name, [])
        return found

    def made(self, body: Callable[[], ir.Expr]) -> ir.Expr:
        """Return the body of the rule that is being made; say where it has no exact form."""
        try:
            return body()
        except InexactError as error:
            raise UnsupportedSchemaError(self._pointer, error.keyword, error.reason) from None

    def _make(self, part: _Part) -> None:
        """Make the rules of a part."""
        self._pointer, self._making, self._num_inner = part.pointer, part.name, 0
        # Whoever was interrupted may have left some behind.
        self._pending = deque([(part.name, part.body)])
        rules: dict[str, ir.Expr] = {}
        while self._pending:
            name, body = self._pending.popleft()
            check_time(part.pointer)
            rules[name] = self.made(body)
        part.rules = rules

    @property
    def any_order(self) -> bool:
        """Tell whether the properties of an object may come in any order."""
        return self.property_order == "any"

    def keep_order(self) -> None:
        """Note that an object of the part that is being made keeps the declared order, where any was asked for."""
        self.ordered_at[self._pointer] = None

    def rule(self, body: Callable[[], ir.Expr]) -> ir.Reference:
        """Return a reference to a new rule of the part that is being made."""
        self._count(1)
        name = f"{self._making}.{self._num_inner}"
        self._num_inner += 1
        self._pending.append((name, body))
        return ir.Reference(name)

    def value(self, terms: Terms, layout: Layout) -> ir.Expr:
        """Return the expression for the values of a conjunction."""
        seen = self.look(terms, layout)
        if terms not in self._scalars:
            self._scalars[terms] = tuple(_scalars(seen.values, in_any_style=self._in_any_style))
        options = [*self._scalars[terms]]
        if seen.part:
            options.append(ir.Reference(seen.part))
        return choose(options)

    def look(self, terms: Terms, layout: Layout) -> Seen:
        """Return what there is of a conjunction, looked at when it is first met."""
        key = terms, layout
        if key not in self._seen:
            self._seen[key] = self._new(terms, layout)
        return self._seen[key]

    def _new(self, terms: Terms, layout: Layout) -> Seen:
        values = self.solver.values(terms)
        has_scalars = self._has_scalars(terms, values)
        name = ""
        if values.arrays or values.objects:
            part = self._part(_pointer_of(terms), partial(self._body, values, layout))
            self._queue.append((part, values, layout))
            name = part.name
        if not has_scalars and not name and terms != NOTHING:
            self.empty_at.append(_pointer_of(terms))
        return Seen(values, has_scalars, name)

    def _has_scalars(self, terms: Terms, values: Values) -> bool:
        """Tell whether there are scalars; their lexemes are made where these may have no text, or be too large."""
        if values.nulls or values.booleans:
            return True
        if not (values.numbers or values.strings):
            return False
        if not values.numbers and all(map(strings.has_text_for_sure, values.strings)):
            return True
        if terms not in self._scalars:
            self._scalars[terms] = tuple(_scalars(values, in_any_style=self._in_any_style))
        return bool(self._scalars[terms])

    def _part(self, pointer: str, body: Callable[[], ir.Expr]) -> _Part:
        self._count(1)
        part = _Part(f"{pointer} {len(self._parts)}", pointer, body, {})
        self._parts[part.name] = part
        return part

    def _count(self, number: int) -> None:
        self._num_rules += number
        if self._num_rules > MAX_RULES:
            raise LimitError("the schema needs too many rules; make it smaller", "rules", MAX_RULES)

    def _body(self, values: Values, layout: Layout) -> ir.Expr:
        arrays = [array_rule(self, shape, layout) for shape in values.arrays]
        return choose(arrays + [object_rule(self, shape, layout) for shape in values.objects])

    def _outlines(self, values: Values) -> list[Outline] | None:
        """Return the outlines of the arrays and objects of a conjunction, None where a rule has to be made at once."""
        found = [outline_array(shape) for shape in values.arrays]
        found += [None if self.any_order else outline_object(shape) for shape in values.objects]
        outlines = [outline for outline in found if outline is not None]
        return outlines if len(outlines) == len(found) else None

    def _visited(self, outlines: Iterable[Outline], inner: Layout) -> Iterator[frozenset[str]]:
        """Look at the values in shapes; yield for each that may have texts the parts that these cannot do without."""
        for outline in outlines:
            self._count(len(outline.inside))
            for terms in outline.inside:
                self.look(terms, inner)
            needed = [self.look(terms, inner) for terms in outline.needed]
            if all(seen.has_scalars or seen.part for seen in needed):
                yield frozenset(seen.part for seen in needed if not seen.has_scalars)

    def has_no_value(self, terms: Terms) -> bool:
        """Tell whether it is certain that no value satisfies a conjunction."""
        return self.solver.is_empty(terms)

    def finite_values(self, terms: Terms) -> tuple[bytes, ...] | None:
        """Return the spellings of all values of a conjunction; None where they are not few scalars."""
        values = self.solver.values(terms)
        words, lexemes = _words(values, in_any_style=self._in_any_style)
        if values.arrays or values.objects or lexemes:
            return None
        return words


def _scalars(values: Values, *, in_any_style: bool) -> Iterable[ir.Expr]:
    """Yield one lexeme or literal for all values that are listed, and one lexeme for each other shape."""
    words, lexemes = _words(values, in_any_style=in_any_style)
    if len(words) == 1:
        yield ir.Literal(words[0])
    elif words:
        yield _one_of(words)
    yield from lexemes


@lru_cache(maxsize=1024)
def _one_of(words: tuple[bytes, ...]) -> ir.Lexeme:
    return ir.Lexeme(dfas.from_words(words), name="one of " + ", ".join(word.decode() for word in words[:3]))


def _words(values: Values, *, in_any_style: bool) -> tuple[tuple[bytes, ...], list[ir.Expr]]:
    words = [b"null"] if values.nulls else []
    words += [b"true" if value else b"false" for value in sorted(values.booleans)]
    points, lexemes = numbers.lower_numbers(values.numbers, in_any_style=in_any_style)
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
