"""Conjunctions of terms -> values: the algebra of $ref, allOf, anyOf, oneOf, not, if/then/else, enum, const.

Each conjunction is resolved once. A schema that refers to itself without an array or object between has no
meaning in the standard and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from structgen.errors import UnsupportedSchemaError
from structgen.grammar.json_schema import assertions, shapes
from structgen.grammar.json_schema.arrays import ArrayShape
from structgen.grammar.json_schema.assertions import Context
from structgen.grammar.json_schema.dialects import newest
from structgen.grammar.json_schema.document import JsonValue, Reader
from structgen.grammar.json_schema.keywords import check_keyword
from structgen.grammar.json_schema.objects import ObjectShape, missing
from structgen.grammar.json_schema.resources import REFERENCES, Document
from structgen.grammar.json_schema.shapes import ANY, NONE, Values, beside, union_of
from structgen.grammar.json_schema.terms import ANYTHING, NOTHING, InexactError, Term, Terms


class SelfReferenceError(UnsupportedSchemaError):
    """A subschema is needed to resolve itself."""


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
        self._pending: set[Term] = set()

    def terms(self, pointer: str) -> Terms:
        """Return the conjunction that stands for the subschema at a pointer."""
        schema = self.document.schema(pointer)
        if schema is False:
            return NOTHING
        return ANYTHING if schema is True or not schema else frozenset({Term(pointer)})

    def values(self, terms: Terms) -> Values:
        """Return the values that satisfy each term.

        Raises:
            UnsupportedSchemaError: some keyword cannot be honoured exactly.
        """
        if terms not in self._known:
            found = ANY
            for term in sorted(terms):
                found = self._guarded(term.pointer, partial(found.intersect, self._values_of(term)))
            self._known[terms] = found
        return self._known[terms]

    def is_empty(self, terms: Terms) -> bool:
        """Tell whether it is certain that no value satisfies the terms; False where it is not seen."""
        return self._is_empty(terms, frozenset())

    def _is_empty(self, terms: Terms, above: frozenset[Terms]) -> bool:
        if terms in above:
            return False
        try:
            values = self.values(terms)
        except SelfReferenceError:
            return False
        return self._no_values(values, above | {terms})

    def _no_values(self, values: Values, above: frozenset[Terms] = frozenset()) -> bool:
        if values.nulls or values.booleans or values.numbers or values.strings:
            return False
        return all(self._no_array(shape, above) for shape in values.arrays) and all(
            self._no_object(shape, above) for shape in values.objects
        )

    def _no_array(self, shape: ArrayShape, above: frozenset[Terms]) -> bool:
        return any(self._is_empty(terms, above) for terms in {shape.item(i) for i in range(min(shape.low, 1000))})

    def _no_object(self, shape: ObjectShape, above: frozenset[Terms]) -> bool:
        return any(self._is_empty(terms, above) for name, terms in shape.properties if name in shape.required)

    def _values_of(self, term: Term) -> Values:
        if term in self._known:
            return self._known[term]
        if term in self._pending:
            raise SelfReferenceError(
                term.pointer, "$ref", "leads back to itself without an array or object between; nothing is defined"
            )
        self._pending.add(term)
        try:
            self._known[term] = self._resolve(term)
        finally:
            self._pending.discard(term)
        return self._known[term]

    def _resolve(self, term: Term) -> Values:
        if term.never:
            return NONE
        if term.negated:
            positive = Term(term.pointer, term.value)
            return self._guarded(term.pointer, lambda: self._values_of(positive).complement())
        if term.value:
            return self._guarded(term.pointer, lambda: shapes.equal_to(term.value, term.pointer))
        return self._read(term.pointer)

    def _guarded(self, pointer: str, work: Callable[[], Values]) -> Values:
        """Run an operation on shapes; say where it has no exact result."""
        try:
            return work()
        except InexactError as error:
            raise UnsupportedSchemaError(pointer, error.keyword, error.reason) from None

    def _read(self, pointer: str) -> Values:
        schema = self.document.schema(pointer)
        if isinstance(schema, bool):
            return ANY if schema else NONE
        reader = newest(self.keywords(pointer), pointer)
        context = Context(self.terms, self.values, self.closed)
        parts = [
            assertions.read_type(reader),
            *self._listed(reader),
            assertions.read_numbers(reader),
            assertions.read_strings(reader),
            assertions.read_arrays(reader, context),
            assertions.read_objects(reader, context),
            *self._dependent(reader),
            *self._combined(reader),
        ]
        return self._guarded(pointer, lambda: assertions.everything(parts))

    def keywords(self, pointer: str) -> Mapping[str, JsonValue]:
        """Return the keywords of a subschema that are read, which is all that are in force.

        Raises:
            UnsupportedSchemaError: one is refused whatever its value is.
        """
        found = self.document.keywords(pointer)
        for name in found:
            check_keyword(pointer, name)
        return found

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

    def _dependent(self, reader: Reader) -> Iterator[Values]:
        """Yield what the dependent keywords admit: the key is missing, or the condition holds."""
        old = reader.mapping("dependencies")
        listed = [("dependentRequired", *item) for item in reader.mapping("dependentRequired").items()]
        listed += [("dependencies", *item) for item in old.items() if not isinstance(item[1], bool | dict)]
        for keyword, name, needed in listed:
            if not isinstance(needed, list) or not all(isinstance(item, str) for item in needed):
                raise reader.refuse(keyword, "must map names to arrays of names")
            with_them = ObjectShape().requiring((name, *(str(item) for item in needed)))
            yield beside(Values(objects=(missing(name), *filter(None, [with_them]))), "object")
        places = [("dependentSchemas", name) for name in reader.mapping("dependentSchemas")]
        places += [("dependencies", name) for name, value in old.items() if isinstance(value, bool | dict)]
        for keyword, name in places:
            holds = self._at(reader.place(keyword, name))
            with_it = ObjectShape().requiring((name,))
            here = Values(objects=tuple(filter(None, [with_it])))
            yield beside(Values(objects=(missing(name),)).union(here.intersect(holds)), "object")

    def _combined(self, reader: Reader) -> Iterator[Values]:
        """Yield what references, allOf, anyOf, oneOf, not and if admit."""
        for keyword in REFERENCES:
            if keyword in reader:
                yield self._at(self.document.resolve(reader.pointer, keyword, reader.schema[keyword]))
        for index in range(len(reader.items("allOf"))):
            yield self._at(reader.place("allOf", index))
        if "anyOf" in reader:
            yield union_of(self._at(reader.place("anyOf", i)) for i in range(len(reader.items("anyOf"))))
        if "oneOf" in reader:
            yield self._exactly_one([reader.place("oneOf", i) for i in range(len(reader.items("oneOf")))])
        if "not" in reader:
            yield self._not(reader.place("not"))
        if "if" in reader:
            condition = reader.place("if")
            for keyword, is_met in (("then", True), ("else", False)):
                if keyword in reader:
                    other = self._not(condition) if is_met else self._at(condition)
                    yield other.union(self._at(reader.place(keyword)))

    def _at(self, pointer: str) -> Values:
        terms = self.terms(pointer)
        return self.values(terms) if terms in self._known else self._single(terms)

    def _single(self, terms: Terms) -> Values:
        (term,) = terms
        return self._values_of(term)

    def _not(self, pointer: str) -> Values:
        terms = self.terms(pointer)
        if terms == NOTHING:
            return ANY
        return NONE if terms == ANYTHING else self._values_of(Term(pointer, negated=True))

    def _exactly_one(self, pointers: list[str]) -> Values:
        """Return the values of exactly one branch; complements are taken only of branches that overlap."""
        branches = [self._at(pointer) for pointer in pointers]
        overlaps: dict[int, set[int]] = {i: set() for i in range(len(branches))}
        for i, first in enumerate(branches):
            for j in range(i):
                shared = self._guarded(pointers[i], partial(first.intersect, branches[j]))
                if not self._no_values(shared):
                    overlaps[i].add(j)
                    overlaps[j].add(i)
        parts: list[Values] = []
        for i, branch in enumerate(branches):
            part = branch
            for j in sorted(overlaps[i]):
                part = self._guarded(pointers[j], partial(part.intersect, self._not(pointers[j])))
            parts.append(part)
        return union_of(parts)
