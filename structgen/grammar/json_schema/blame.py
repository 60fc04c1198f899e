"""Why no value fits a schema: the part that is to blame, and how. Asked only once nothing is known to fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from structgen.errors import UnsatisfiableError, shown
from structgen.grammar.json_schema.arrays import ArrayShape
from structgen.grammar.json_schema.dialects import newest
from structgen.grammar.json_schema.document import JsonValue, Reader, child
from structgen.grammar.json_schema.keywords import ADDRESSES, KEYWORDS
from structgen.grammar.json_schema.objects import ObjectShape
from structgen.grammar.json_schema.solver import Solver
from structgen.grammar.json_schema.terms import NOTHING, Term, Terms

# Of a schema that is deeper, or has more parts, only the place is told: a message is not worth a search without end.
_MAX_DEPTH = 100
_MAX_STEPS = 10_000
_MAX_NAMED = 6


class Blame(NamedTuple):
    """A part that no value fits, as a JSON pointer, and how that comes."""

    pointer: str
    reason: str


def nothing_fits(solver: Solver, pointer: str) -> UnsatisfiableError:
    """Return the error for a schema that no value fits.

    Args:
        solver: has resolved the schema.
        pointer: a part without a value, for the case that no better one is found.
    """
    found = _Search(solver).blame(solver.terms("#"), "#", ())
    if found is None:
        known = pointer if pointer.startswith("#") else "#"
        found = Blame(known, _contradiction(solver, [Term(known)]))
    return UnsatisfiableError(f"no value fits: {found.reason}", found.pointer)


class _Search:
    """Goes down through what each value must hold; a part may hold nothing, or lead back to where it came from."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._fine: set[Terms] = set()
        self._num_steps = 0

    def blame(self, terms: Terms, where: str, above: tuple[Terms, ...]) -> Blame | None:
        """Return what is to blame for a conjunction without values, None if it is not seen to be one.

        Args:
            terms: the conjunction.
            where: where it is asked for.
            above: the conjunctions that it is a part of, taken to have no values.
        """
        self._num_steps += 1
        if terms == NOTHING:
            return Blame(where, "the schema false stands here, or what comes to the same; allow some value")
        if terms in self._fine or len(above) > _MAX_DEPTH or self._num_steps > _MAX_STEPS:
            return None
        if terms in above:
            reason = "it must hold another one of itself, and so on without an end; make a part of it optional"
            return Blame(_first(terms), reason)
        values = self._solver.values(terms)
        if values.is_empty:
            return self._here(terms)
        scalars = values.nulls or values.booleans or values.numbers or values.strings
        found = None if scalars else self._in_parts(values.arrays, values.objects, _first(terms), (*above, terms))
        if found is None:
            self._fine.add(terms)
        return found

    def _in_parts(
        self, arrays: Iterable[ArrayShape], objects: Iterable[ObjectShape], where: str, above: tuple[Terms, ...]
    ) -> Blame | None:
        """Return what is to blame in the first shape, None if there is a shape in which nothing is."""
        first: Blame | None = None
        schema = self._solver.document.value(where)
        reader = newest(schema if isinstance(schema, dict) else {}, where)
        for parts in [*(_items(shape, reader) for shape in arrays), *(_required(shape, reader) for shape in objects)]:
            found = next(filter(None, (self.blame(terms, place, above) for place, terms in parts)), None)
            if found is None:
                return None
            first = first or found
        return first

    def _here(self, terms: Terms) -> Blame:
        """Return what is to blame where the keywords alone leave no value."""
        first = min(terms)
        found = self._in_branches(first.pointer) if terms == {Term(first.pointer)} else None
        return found or Blame(first.pointer, _contradiction(self._solver, sorted(terms)))

    def _in_branches(self, pointer: str) -> Blame | None:
        """Return what is to blame in a subschema that this one applies in place: one of allOf, each of anyOf."""
        schema = self._solver.document.keywords(pointer)
        if self._num_steps > _MAX_STEPS:
            return None
        if schema.get("enum") == []:
            return Blame(pointer, "its enum lists no values; list at least one")
        for target in [*self._solver.document.targets(pointer), *_branches(schema, pointer, "allOf")]:
            if found := self._empty(target):
                return found
        for keyword in ("anyOf", "oneOf"):
            all_found = [self._empty(branch) for branch in _branches(schema, pointer, keyword)]
            if all_found and all(all_found):
                return all_found[0]
        return None

    def _empty(self, pointer: str) -> Blame | None:
        """Return what is to blame at a subschema that has no values by itself."""
        terms = self._solver.terms(pointer)
        values = self._solver.values(terms)
        return self.blame(terms, pointer, ()) if values.is_empty else None


def _items(shape: ArrayShape, reader: Reader) -> Iterator[tuple[str, Terms]]:
    """Yield what the items are that must be there, and where they are asked for."""
    for index in range(min(shape.low, len(shape.prefix) + 1)):
        place = reader.place("prefixItems", index) if index < len(shape.prefix) else reader.place("items")
        yield place, shape.item(index)


def _required(shape: ObjectShape, reader: Reader) -> Iterator[tuple[str, Terms]]:
    """Yield what the values of the keys are that must be there, likewise."""
    for name, terms in shape.properties:
        if name in shape.required:
            yield reader.place("properties", name), terms


def _branches(schema: Mapping[str, JsonValue], pointer: str, keyword: str) -> list[str]:
    listed = schema.get(keyword)
    return [child(pointer, keyword, i) for i in range(len(listed))] if isinstance(listed, list) else []


def _first(terms: Terms) -> str:
    return min(terms).pointer if terms else "#"


def _contradiction(solver: Solver, terms: list[Term]) -> str:
    """Say which keywords leave no value, and where they stand if that is in several places."""
    if len(terms) == 1:
        words = _words(solver, terms[0])
        if ", " in words:
            return f"its keywords contradict each other ({words}); relax one of them"
        return f"nothing is left by {words or 'this'}, with all that is asked for here; relax it"
    named = [f"{_words(solver, term) or 'nothing'} at {term.pointer}" for term in terms[:_MAX_NAMED]]
    return f"what is asked for here contradicts itself ({'; '.join(named)}); relax one of them"


def _words(solver: Solver, term: Term) -> str:
    """Return the keywords of a term, or its constant."""
    if term.doubtful:
        return "a pattern that ECMA-262 and Python read differently"
    if term.value:
        words = f"the value {shown(term.value)}"
    else:
        names = solver.document.keywords(term.pointer)
        known = [name for name in names if name in KEYWORDS and KEYWORDS[name].status in ("exact", "partly")]
        words = ", ".join([name for name in known if name not in ADDRESSES][:_MAX_NAMED])
    return f"not ({words})" if term.negated else words
