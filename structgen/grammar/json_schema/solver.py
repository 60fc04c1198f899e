"""Conjunctions of terms -> values: the algebra of $ref, allOf, anyOf, oneOf, not, if/then/else, enum, const.

Each conjunction is resolved once. A schema that refers to itself without an array or object between has no
meaning in the standard and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce

from structgen.errors import LimitError, UnsupportedSchemaError
from structgen.grammar.json_schema import assertions, shapes
from structgen.grammar.json_schema.arrays import ArrayShape, Contains
from structgen.grammar.json_schema.assertions import Context
from structgen.grammar.json_schema.dialects import Dialect, newest
from structgen.grammar.json_schema.difference import difference, outermost
from structgen.grammar.json_schema.document import JsonValue, Reader
from structgen.grammar.json_schema.evaluated import UNEVALUATED, Evaluation
from structgen.grammar.json_schema.leaves import kept_leaf
from structgen.grammar.json_schema.objects import ObjectShape, missing
from structgen.grammar.json_schema.resources import REFERENCES, Document
from structgen.grammar.json_schema.shapes import ANY, NONE, Values, beside, union_of
from structgen.grammar.json_schema.terms import (
    ANYTHING,
    NOTHING,
    InexactError,
    Term,
    Terms,
    both,
    is_doubtful,
    negation,
)
from structgen.grammar.time_limit import check_time


class SelfReferenceError(UnsupportedSchemaError):
    """A subschema is needed to resolve itself."""


def _too_many(one: str, two: str, error: LimitError) -> LimitError:
    reason = f"{one} and {two} overlap in too many cases; give them a required property with different constants"
    return LimitError(reason, error.limit, error.size)


class Solver:
    """Resolves the subschemas of one document."""

    def __init__(self, document: Document, *, closed: bool = False) -> None:
        """Start with nothing resolved.

        Args:
            document: the schema.
            closed: whether an object with properties and without additionalProperties is closed.
        """
        self.document = document
        self.closed = closed
        self._known: dict[Terms | Term, Values] = {ANYTHING: ANY, NOTHING: NONE}
        self._empty: dict[Terms, bool] = {}
        self._pending: set[Term] = set()
        self._terms: dict[str, Terms] = {}
        self._context = Context(self.terms, self.values, closed)
        self._evaluation = Evaluation(self)

    def terms(self, pointer: str) -> Terms:
        """Return the conjunction that stands for the subschema at a pointer."""
        known = self._terms.get(pointer)
        if known is None:
            schema = self.document.schema(pointer)
            known = ANYTHING if schema is True or schema == {} else frozenset({Term(pointer)})
            known = self._terms[pointer] = NOTHING if schema is False else known
        return known

    def values(self, terms: Terms) -> Values:
        """Return the values that satisfy each term.

        Raises:
            UnsupportedSchemaError: some keyword cannot be honoured exactly.
        """
        known = self._known.get(terms)
        if known is None:
            found = ANY
            for term in sorted(terms, key=lambda term: (term.negated, term)):
                if term.negated and not term.options:
                    found = self._less(found, self._values_of(replace(term, negated=False)), term.pointer)
                else:
                    found = self._joined(term.pointer, found, self._values_of(term))
            known = self._known[terms] = found
        return known

    def is_empty(self, terms: Terms) -> bool:
        """Tell whether it is certain that no value satisfies the terms; False where it is not seen."""
        return self._is_empty(terms, frozenset())

    def _is_empty(self, terms: Terms, above: frozenset[Terms]) -> bool:
        if terms in above or is_doubtful(terms):
            return False
        if terms not in self._empty:
            try:
                values = self.values(terms)
            except SelfReferenceError:
                return False
            found = self._no_values(values, above | {terms})
            # That nothing was seen to be empty may be for what is above only.
            if not (found or not above):
                return False
            self._empty[terms] = found
        return self._empty[terms]

    def _no_values(self, values: Values, above: frozenset[Terms] = frozenset()) -> bool:
        if values.nulls or values.booleans or values.numbers or values.strings:
            return False
        return all(self._no_array(shape, above) for shape in values.arrays) and all(
            self._no_object(shape, above) for shape in values.objects
        )

    def _no_array(self, shape: ArrayShape, above: frozenset[Terms]) -> bool:
        if any(self._is_empty(terms, above) for terms in {shape.item(i) for i in range(min(shape.low, 1000))}):
            return True
        return any(part.low > 0 and self._no_item(shape, part, above) for part in shape.contains)

    def _no_item(self, shape: ArrayShape, part: Contains, above: frozenset[Terms]) -> bool:
        """Tell whether it is certain that no item of an array can be what it has to contain."""
        items = {both(shape.item(i), part.terms) for i in range(part.start, max(part.start, len(shape.prefix)) + 1)}
        return all(self._is_empty(terms, above) for terms in items)

    def _no_object(self, shape: ObjectShape, above: frozenset[Terms]) -> bool:
        if any(self._is_empty(terms, above) for name, terms in shape.properties if name in shape.required):
            return True
        return any(all(self._is_empty(terms, above) for _, terms in shape.ways(need)) for need in shape.needs)

    def _values_of(self, term: Term) -> Values:
        known = self._known.get(term)
        if known is not None:
            return known
        if term in self._pending:
            raise self.circular(term.pointer)
        self._pending.add(term)
        try:
            known = self._known[term] = self._resolve(term)
        finally:
            self._pending.discard(term)
        return known

    def _resolve(self, term: Term) -> Values:
        if term.never or term.doubtful:
            return NONE
        if term.options:
            return self._union(term)
        if term.negated:
            positive = replace(term, negated=False)
            return self._less(ANY, self._values_of(positive), term.pointer)
        if term.value:
            return self._guarded(term.pointer, lambda: shapes.equal_to(term.value, term.pointer))
        return self._read(term.pointer)

    def _union(self, term: Term) -> Values:
        """Return what some option satisfies, or what none does."""
        options = [frozenset(option) for option in term.options]
        if not term.negated:
            return union_of(map(self.values, options))
        found = ANY
        for option in options:
            found = self._guarded(term.pointer, partial(found.intersect, self.values(negation(option))))
        return found

    def _guarded(self, pointer: str, work: Callable[[], Values]) -> Values:
        """Run an operation on shapes; say where it has no exact result."""
        try:
            return work()
        except InexactError as error:
            raise UnsupportedSchemaError(pointer, error.keyword, error.reason) from None

    def _read(self, pointer: str) -> Values:
        check_time(pointer)
        schema = self.document.schema(pointer)
        if isinstance(schema, bool):
            return ANY if schema else NONE
        keywords = self.keywords(pointer)
        return kept_leaf(keywords, lambda: self._read_all(newest(keywords, pointer)))

    def _read_all(self, reader: Reader) -> Values:
        pointer = reader.pointer
        if any(keyword in reader for keyword in UNEVALUATED):
            return self._evaluation.values(pointer)
        parts = [self.asserted(reader), *self._dependent(reader), *self._combined(reader)]
        return self._conditional(reader, reduce(partial(self._joined, pointer), parts))

    def reader(self, pointer: str) -> Reader | bool:
        """Return the keywords at a pointer, as ones of 2020-12, or the boolean that stands there."""
        schema = self.document.schema(pointer)
        return schema if isinstance(schema, bool) else newest(self.keywords(pointer), pointer)

    def asserted(self, reader: Reader) -> Values:
        """Return what the keywords say that apply no other subschema to the same value, and `not`."""
        parts = [
            assertions.read_type(reader),
            *self._listed(reader),
            assertions.read_numbers(reader),
            assertions.read_strings(reader),
            assertions.read_arrays(reader, self._context),
            assertions.read_objects(reader, self._context),
            *self._dependent_names(reader),
        ]
        found = self._guarded(reader.pointer, lambda: assertions.everything(parts))
        return self.without(found, reader.place("not")) if "not" in reader else found

    def keywords(self, pointer: str) -> Mapping[str, JsonValue]:
        """Return the keywords of a subschema that are read, which is all that are in force."""
        return self.document.keywords(pointer)

    def _listed(self, reader: Reader) -> Iterator[Values]:
        """Yield what enum and const admit."""
        if "enum" in reader:
            yield self._one_of_values(reader, "enum", reader.items("enum"))
        if "const" in reader:
            yield self._one_of_values(reader, "const", [reader.schema["const"]])

    def _one_of_values(self, reader: Reader, keyword: str, listed: list[JsonValue]) -> Values:
        compound = [value for value in listed if isinstance(value, list | dict)]
        pointer = reader.place(keyword)
        try:
            simple = assertions.scalars([value for value in listed if not isinstance(value, list | dict)])
            return union_of([simple, *(shapes.equal_to(json.dumps(value), pointer) for value in compound)])
        except InexactError as error:
            raise reader.refuse(keyword, error.reason) from None

    def _dependent_names(self, reader: Reader) -> Iterator[Values]:
        """Yield what is said of keys that have to come together."""
        listed = [("dependentRequired", *item) for item in reader.mapping("dependentRequired").items()]
        old = reader.mapping("dependencies")
        listed += [("dependencies", *item) for item in old.items() if not isinstance(item[1], bool | dict)]
        for keyword, name, needed in listed:
            if not isinstance(needed, list) or not all(isinstance(item, str) for item in needed):
                raise reader.refuse(keyword, "must map names to arrays of names")
            with_them = ObjectShape().requiring((name, *(str(item) for item in needed)))
            yield beside(Values(objects=(missing(name), *filter(None, [with_them]))), "object")

    def dependent(self, reader: Reader) -> list[tuple[str, str]]:
        """Return names, each with the pointer of the subschema that holds where it is there."""
        old = reader.mapping("dependencies")
        found = [(name, reader.place("dependentSchemas", name)) for name in reader.mapping("dependentSchemas")]
        applied = [name for name, value in old.items() if isinstance(value, bool | dict)]
        return found + [(name, reader.place("dependencies", name)) for name in applied]

    def _dependent(self, reader: Reader) -> Iterator[Values]:
        """Yield what is said where a key is there: the key is missing, or the condition holds."""
        for name, pointer in self.dependent(reader):
            with_it = ObjectShape().requiring((name,))
            here = Values(objects=tuple(filter(None, [with_it])))
            yield beside(Values(objects=(missing(name),)).union(here.intersect(self._at(pointer))), "object")

    def references(self, reader: Reader) -> list[str]:
        """Return the pointers of the subschemas that a reference or allOf applies to the same value."""
        schema, at = reader.schema, reader.pointer
        found = [self.document.resolve(at, keyword, schema[keyword]) for keyword in REFERENCES if keyword in reader]
        return found + [reader.place("allOf", index) for index in range(len(reader.items("allOf")))]

    def _combined(self, reader: Reader) -> Iterator[Values]:
        """Yield what references, allOf, anyOf and oneOf admit."""
        yield from map(self._at, self.references(reader))
        if "anyOf" in reader:
            yield union_of(self._at(reader.place("anyOf", i)) for i in range(len(reader.items("anyOf"))))
        if "oneOf" in reader:
            yield union_of(self.alone([reader.place("oneOf", i) for i in range(len(reader.items("oneOf")))]))

    def _conditional(self, reader: Reader, found: Values) -> Values:
        """Return of some values those that if, then and else admit."""
        if "if" not in reader or ("then" not in reader and "else" not in reader):
            return found
        condition = reader.place("if")
        met, unmet = self.shared(found, self._at(condition), condition), found
        if "then" in reader:
            met = self.shared(met, self._at(reader.place("then")), reader.place("then"))
            unmet = self.without(found, condition)
        # Without `then` both may overlap: no complement is needed.
        if "else" in reader:
            unmet = self.shared(unmet, self._at(reader.place("else")), reader.place("else"))
        return met.union(unmet)

    def _at(self, pointer: str) -> Values:
        terms = self.terms(pointer)
        return self.values(terms) if terms in self._known else self._single(terms)

    def _single(self, terms: Terms) -> Values:
        (term,) = terms
        return self._values_of(term)

    def without(self, values: Values, pointer: str) -> Values:
        """Return of some values those that a subschema does not admit."""
        return self._less(values, self._at(pointer), pointer)

    def _less(self, values: Values, others: Values, pointer: str) -> Values:
        return self._guarded(
            pointer,
            lambda: difference(
                values,
                others,
                no_array=lambda shape: self._no_array(shape, frozenset()),
                no_object=lambda shape: self._no_object(shape, frozenset()),
            ),
        )

    def alone(self, pointers: list[str]) -> list[Values]:
        """Return for each branch what no other one admits; complements are taken only of branches that overlap."""
        branches = [self._at(pointer) for pointer in pointers]
        overlaps: dict[int, set[int]] = {i: set() for i in range(len(branches))}
        for i, first in enumerate(branches):
            check_time(pointers[i])
            for j in range(i):
                shared = self._guarded(pointers[i], partial(first.intersect, branches[j]))
                if not self._no_values(shared):
                    overlaps[i].add(j)
                    overlaps[j].add(i)
        parts: list[Values] = []
        for i, branch in enumerate(branches):
            part = branch
            for j in sorted(overlaps[i]):
                try:
                    part = self._less(part, branches[j], pointers[j])
                except LimitError as error:
                    if error.limit == "compile_seconds":
                        raise
                    raise _too_many(pointers[i], pointers[j], error) from None
            parts.append(part)
        return parts

    def shared(self, first: Values, second: Values, pointer: str) -> Values:
        """Return the values in both, without shapes that certainly have none."""
        found = self._guarded(pointer, partial(first.intersect, second))
        return replace(
            found,
            arrays=outermost(shape for shape in found.arrays if not self._no_array(shape, frozenset())),
            objects=outermost(shape for shape in found.objects if not self._no_object(shape, frozenset())),
        )

    def circular(self, pointer: str) -> SelfReferenceError:
        """Return the error for a subschema that is needed to resolve itself."""
        return SelfReferenceError(
            pointer, "$ref", "leads back to itself without an array or object between; nothing is defined"
        )

    def _joined(self, pointer: str, first: Values, second: Values) -> Values:
        """Return the values in both; where many shapes meet many, only those that may have values."""
        if first is ANY:
            return second
        if min(len(first.objects), len(second.objects)) > 1 or min(len(first.arrays), len(second.arrays)) > 1:
            return self.shared(first, second, pointer)
        return self._guarded(pointer, partial(first.intersect, second))

    def items_are_seen(self, pointer: str) -> bool:
        """Tell whether contains looks at items, in the dialect at a pointer."""
        return self.document.dialect(pointer) >= Dialect.DRAFT_2020_12
