"""One lowering of a schema document, watched: what was read, what was refused, where no value was left.

It goes on past a refusal, with nothing in the place of what is refused. Left out: what that means (`findings`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from structgen.errors import LimitError, UnsupportedSchemaError
from structgen.grammar import ir
from structgen.grammar.json_schema.document import JsonValue
from structgen.grammar.json_schema.emit import Emitter, PropertyOrder, Seen
from structgen.grammar.json_schema.keywords import KEYWORDS
from structgen.grammar.json_schema.layout import Layout
from structgen.grammar.json_schema.resources import Document
from structgen.grammar.json_schema.shapes import NONE, Values
from structgen.grammar.json_schema.solver import Solver
from structgen.grammar.json_schema.terms import ANYTHING, InexactError, Terms

Place = tuple[str, str]
"""JSON pointer of a subschema, and a keyword in it."""


class Trouble(NamedTuple):
    """A refusal as it was met: what the error says, where reading stopped, and the terms that were combined."""

    pointer: str
    keyword: str
    reason: str
    innermost: str
    combined: Terms


class WatchedSolver(Solver):
    """Notes which subschemas are read, and reads on past keywords that are refused by name."""

    def __init__(self, document: Document, aside: frozenset[Place], *, closed: bool) -> None:
        """Start with nothing read, and with some keywords to leave out."""
        super().__init__(document, closed=closed)
        self.aside = aside
        self.refused: dict[Place, str] = {}
        self.started: dict[str, None] = {}
        self._failure: BaseException | None = None
        self._failed_at = ""

    def keywords(self, pointer: str) -> Mapping[str, JsonValue]:
        """Return the keywords but for those that are set aside."""
        self.started[pointer] = None
        read = self.document.keywords(pointer)
        return {name: value for name, value in read.items() if (pointer, name) not in self.aside}

    def terms(self, pointer: str) -> Terms:
        """Return the conjunction for a subschema; anything where no schema stands."""
        try:
            return super().terms(pointer)
        except UnsupportedSchemaError as error:
            self.refused[error.pointer, error.keyword] = error.reason
            return ANYTHING

    def _read(self, pointer: str) -> Values:
        try:
            return super()._read(pointer)
        except (UnsupportedSchemaError, LimitError, InexactError) as error:
            if self.failed_at(error) is None:
                self._failed_at = pointer
            self._failure = error
            raise

    def failed_at(self, error: BaseException) -> str | None:
        """Return the innermost subschema whose reading an error stopped, None if it was met elsewhere."""
        known = self._failure is not None and self._failure in (error, error.__context__)
        return self._failed_at if known else None


class WatchedEmitter(Emitter):
    """Notes what is refused, and writes on with nothing in its place."""

    def __init__(self, solver: WatchedSolver, property_order: PropertyOrder) -> None:
        """Start without rules."""
        super().__init__(solver, property_order)
        self._watched = solver
        self.troubles: list[Trouble] = []
        self.is_empty: dict[Terms, bool] = {}
        self._combined: dict[str, Terms] = {}

    def look(self, terms: Terms, layout: Layout) -> Seen:
        """Return what there is of a conjunction, nothing where it is refused."""
        pointer = min(terms).pointer if terms else "#"
        self._combined[pointer] = self._combined.get(pointer, ANYTHING) | terms
        try:
            seen = super().look(terms, layout)
        except (UnsupportedSchemaError, LimitError) as error:
            self._note(error, pointer, terms)
            return Seen(NONE, has_scalars=False, part="")
        self.is_empty[terms] = not (seen.has_scalars or seen.part)
        return seen

    def made(self, body: Callable[[], ir.Expr]) -> ir.Expr:
        """Return the body of a rule, nothing where it is refused."""
        try:
            return super().made(body)
        except (UnsupportedSchemaError, LimitError) as error:
            self._note(error, self._pointer, self._combined.get(self._pointer, ANYTHING))
            return ir.Choice(())

    def _note(self, error: UnsupportedSchemaError | LimitError, pointer: str, terms: Terms) -> None:
        innermost = self._watched.failed_at(error) or ""
        if isinstance(error, UnsupportedSchemaError):
            self.troubles.append(Trouble(error.pointer, error.keyword, error.reason, innermost, terms))
        elif error.limit in ("rules", "compile_seconds"):
            raise error
        else:
            keyword = error.limit if error.limit in KEYWORDS else ""
            self.troubles.append(Trouble(innermost or pointer, keyword, str(error), innermost, terms))
