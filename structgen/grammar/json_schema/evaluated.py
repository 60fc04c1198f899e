"""unevaluatedProperties and unevaluatedItems: what they ask for depends on which branches hold.

A subschema is taken apart into cases: values, each with the keys and items that the branches which hold for it have
looked at. The more was looked at, the less is asked for; so a value fits iff some case has it, and branches that may
hold together need no complements to be told apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import combinations
from typing import NamedTuple, Protocol

from structgen.errors import LimitError, UnsupportedSchemaError
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.json_schema.arrays import ArrayShape
from structgen.grammar.json_schema.assertions import pattern_language
from structgen.grammar.json_schema.document import Reader
from structgen.grammar.json_schema.objects import ObjectShape, Region
from structgen.grammar.json_schema.shapes import ANY, Values, beside, union_of
from structgen.grammar.json_schema.terms import ANYTHING, DOUBT, NOTHING, Terms, either

UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
MAX_CASES = 256
_EMPTY = CharDfa.empty()


@dataclass(frozen=True, slots=True)
class Seen:
    """What was looked at of an object or an array.

    Attributes:
        names: declared keys.
        keys: the keys that match a pattern.
        doubtful: the keys of which it is not known whether they match one.
        all_keys: whether every key was.
        num_items: how many of the first items were.
        items: each item that satisfies one of these was.
        all_items: whether every item was.
    """

    names: frozenset[str] = frozenset()
    keys: CharDfa = _EMPTY
    doubtful: CharDfa = _EMPTY
    all_keys: bool = False
    num_items: int = 0
    items: frozenset[Terms] = frozenset()
    all_items: bool = False

    def with_(self, other: Seen) -> Seen:
        """Return what either has looked at."""
        return Seen(
            names=self.names | other.names,
            keys=self.keys.union(other.keys),
            doubtful=self.doubtful.union(other.doubtful),
            all_keys=self.all_keys or other.all_keys,
            num_items=max(self.num_items, other.num_items),
            items=self.items | other.items,
            all_items=self.all_items or other.all_items,
        )

    def rest_of_objects(self, wanted: Terms) -> Values:
        """Return the values in which every key that was not looked at has a certain value."""
        if self.all_keys:
            return ANY
        rest = self.keys.union(self.doubtful).complement()
        parts = ((self.keys.difference(self.doubtful), ANYTHING), (self.doubtful, DOUBT), (rest, wanted))
        regions = tuple(Region(keys, value) for keys, value in parts if not keys.is_empty and value != NOTHING)
        listed = tuple((name, ANYTHING) for name in sorted(self.names))
        return beside(Values(objects=(ObjectShape(listed, regions=regions, appended=self.names),)), "object")

    def rest_of_arrays(self, wanted: Terms) -> Values:
        """Return the values in which every item that was not looked at is a certain value."""
        if self.all_items:
            return ANY
        rest = either(wanted, *self.items)
        shape = ArrayShape().intersect(ArrayShape(prefix=(ANYTHING,) * self.num_items, rest=rest))
        return beside(Values(arrays=() if shape is None else (shape,)), "array")


class Case(NamedTuple):
    """Some values, and what was looked at in each of them."""

    values: Values
    seen: Seen


_EVERYTHING: tuple[Case, ...] = (Case(ANY, Seen()),)


class Algebra(Protocol):
    """What is needed of the solver."""

    def reader(self, pointer: str, /) -> Reader | bool:
        """Return the keywords at a pointer, or a boolean schema."""

    def asserted(self, reader: Reader, /) -> Values:
        """Return what the keywords say that apply no other subschema to the same value, and `not`."""

    def references(self, reader: Reader, /) -> list[str]:
        """Return the pointers of the subschemas that a reference or allOf applies to the same value."""

    def dependent(self, reader: Reader, /) -> list[tuple[str, str]]:
        """Return names, each with the pointer of the subschema that holds where it is there."""

    def alone(self, pointers: list[str], /) -> list[Values]:
        """Return for each subschema what it alone of all admits."""

    def without(self, values: Values, pointer: str, /) -> Values:
        """Return of some values those that a subschema does not admit."""

    def terms(self, pointer: str, /) -> Terms:
        """Return the conjunction that stands for a subschema."""

    def shared(self, first: Values, second: Values, pointer: str, /) -> Values:
        """Return the values in both, without shapes that certainly have none."""

    def circular(self, pointer: str, /) -> UnsupportedSchemaError:
        """Return the error for a subschema that is needed to resolve itself."""

    def items_are_seen(self, pointer: str, /) -> bool:
        """Tell whether contains looks at items, in the dialect at a pointer."""


class Evaluation:
    """Takes subschemas apart into cases."""

    def __init__(self, algebra: Algebra) -> None:
        """Start with nothing known."""
        self._algebra = algebra
        self._known: dict[str, tuple[Case, ...]] = {}
        self._pending: set[str] = set()

    def values(self, pointer: str) -> Values:
        """Return the values of a subschema."""
        return union_of(case.values for case in self.cases(pointer))

    def cases(self, pointer: str) -> tuple[Case, ...]:
        """Return the cases of a subschema; they may overlap.

        Raises:
            LimitError: there are too many.
        """
        if pointer in self._pending:
            raise self._algebra.circular(pointer)
        if pointer not in self._known:
            self._pending.add(pointer)
            try:
                self._known[pointer] = self._cases(pointer)
            finally:
                self._pending.discard(pointer)
        return self._known[pointer]

    def _cases(self, pointer: str) -> tuple[Case, ...]:
        reader = self._algebra.reader(pointer)
        if isinstance(reader, bool):
            return _EVERYTHING if reader else ()
        found: tuple[Case, ...] = (Case(self._algebra.asserted(reader), self._seen(reader)),)
        for target in self._algebra.references(reader):
            found = self._both(found, self.cases(target), pointer)
        for name, target in self._algebra.dependent(reader):
            there = ObjectShape().requiring((name,))
            missing = ObjectShape(((name, NOTHING),), appended=frozenset({name}))
            with_it = (Case(Values(objects=() if there is None else (there,)), Seen()),)
            without = Case(beside(Values(objects=(missing,)), "object"), Seen())
            found = self._both(found, (without, *self._both(with_it, self.cases(target), pointer)), pointer)
        if "anyOf" in reader:
            found = self._both(found, self._any(reader, pointer), pointer)
        if "oneOf" in reader:
            found = self._both(found, self._one(reader, pointer), pointer)
        if "if" in reader:
            found = self._both(found, self._conditional(reader, pointer), pointer)
        return self._closed(reader, found, pointer)

    def _seen(self, reader: Reader) -> Seen:
        keys, doubtful = _EMPTY, _EMPTY
        for pattern in reader.mapping("patternProperties"):
            language = pattern_language(reader, "patternProperties", pattern)
            keys = keys.union(language.sure)
            doubtful = doubtful.union(language.possible.difference(language.sure))
        counts = "contains" in reader and self._algebra.items_are_seen(reader.pointer)
        return Seen(
            names=frozenset(reader.mapping("properties")),
            keys=keys,
            doubtful=doubtful,
            all_keys="additionalProperties" in reader,
            num_items=len(reader.items("prefixItems")),
            items=frozenset({self._algebra.terms(reader.place("contains"))} if counts else ()),
            all_items="items" in reader,
        )

    def _closed(self, reader: Reader, found: tuple[Case, ...], pointer: str) -> tuple[Case, ...]:
        """Ask for what is said of the rest; after that everything was looked at."""
        if "unevaluatedProperties" in reader:
            wanted = self._algebra.terms(reader.place("unevaluatedProperties"))
            asked = [Case(case.seen.rest_of_objects(wanted), replace(case.seen, all_keys=True)) for case in found]
            found = self._merged(map(partial(self._pair, pointer), found, asked), pointer)
        if "unevaluatedItems" in reader:
            wanted = self._algebra.terms(reader.place("unevaluatedItems"))
            asked = [Case(case.seen.rest_of_arrays(wanted), replace(case.seen, all_items=True)) for case in found]
            found = self._merged(map(partial(self._pair, pointer), found, asked), pointer)
        return found

    def _any(self, reader: Reader, pointer: str) -> tuple[Case, ...]:
        """Return the cases of anyOf: several branches may hold, which have looked at more together."""
        branches: list[Case] = []
        for index in range(len(reader.items("anyOf"))):
            branches += self.cases(reader.place("anyOf", index))
        single = self._merged(branches, pointer)
        found = dict.fromkeys(single)
        for size in range(2, len(single) + 1):
            for chosen in combinations(single, size):
                seen = reduce(Seen.with_, (case.seen for case in chosen))
                # Branches that have looked at no more together than some of them add nothing.
                if all(seen != reduce(Seen.with_, (c.seen for c in chosen if c is not case)) for case in chosen):
                    values = chosen[0].values
                    for case in chosen[1:]:
                        values = self._algebra.shared(values, case.values, pointer)
                    if not values.is_empty:
                        found[Case(values, seen)] = None
                        _limit(len(found), pointer)
        return self._merged(found, pointer)

    def _one(self, reader: Reader, pointer: str) -> tuple[Case, ...]:
        pointers = [reader.place("oneOf", i) for i in range(len(reader.items("oneOf")))]
        found: list[Case] = []
        for branch, alone in zip(pointers, self._algebra.alone(pointers), strict=True):
            found += self._both((Case(alone, Seen()),), self.cases(branch), pointer)
        return self._merged(found, pointer)

    def _conditional(self, reader: Reader, pointer: str) -> tuple[Case, ...]:
        condition = reader.place("if")
        met = self.cases(condition)
        unmet = _EVERYTHING
        if "then" in reader:
            met = self._both(met, self.cases(reader.place("then")), pointer)
        if "then" in reader or "else" in reader:
            unmet = (Case(self._algebra.without(ANY, condition), Seen()),)
        if "else" in reader:
            unmet = self._both(unmet, self.cases(reader.place("else")), pointer)
        return self._merged((*met, *unmet), pointer)

    def _both(self, first: Iterable[Case], second: Iterable[Case], pointer: str) -> tuple[Case, ...]:
        others = list(second)
        return self._merged((self._pair(pointer, one, two) for one in first for two in others), pointer)

    def _pair(self, pointer: str, one: Case, two: Case) -> Case:
        return Case(self._algebra.shared(one.values, two.values, pointer), one.seen.with_(two.seen))

    def _merged(self, cases: Iterable[Case], pointer: str) -> tuple[Case, ...]:
        """Return the cases with values, those that have looked at the same as one."""
        found: dict[Seen, list[Values]] = {}
        for case in cases:
            if not case.values.is_empty:
                found.setdefault(case.seen, []).append(case.values)
                _limit(len(found), pointer)
        return tuple(Case(union_of(values), seen) for seen, values in found.items())


def _limit(size: int, pointer: str) -> None:
    if size > MAX_CASES:
        raise LimitError(
            f"unevaluatedProperties or unevaluatedItems at {pointer} depends on too many combinations of branches; "
            "use additionalProperties or items",
            "cases",
            size,
        )
