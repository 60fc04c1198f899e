"""Terms: the atoms that a set of JSON values is made of, before anything is resolved.

A conjunction of terms names the set of values that satisfies each of them. It is what the item of an array
or the value of a property is kept as, so that recursive schemas stay finite: two conjunctions are the same
nonterminal iff they hold the same terms.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from structgen.grammar.json_schema.document import JsonValue


@dataclass(frozen=True, slots=True, order=True)
class Term:
    """One atom: a subschema of the document, a constant, a union, or (none of these) what no value satisfies.

    Attributes:
        pointer: JSON pointer of the subschema, in URI fragment form; of the constant or union: where it stands.
        value: JSON text of the constant, "" for a subschema.
        negated: whether the complement is meant.
        never: True for the term that nothing satisfies.
        doubtful: True for the term of which it is not known what satisfies it, because two readings of a keyword
            differ; nothing that has to satisfy it, or not to, is ever written.
        options: the conjunctions of a union, sorted.
    """

    pointer: str
    value: str = ""
    negated: bool = False
    never: bool = False
    doubtful: bool = False
    options: tuple[tuple[Term, ...], ...] = ()

    def __hash__(self) -> int:
        """Hash by the pointer, which few terms share."""
        return hash(self.pointer)


Terms = frozenset[Term]
"""A conjunction."""

ANYTHING: Terms = frozenset()
NOTHING: Terms = frozenset({Term("", never=True)})
DOUBT: Terms = frozenset({Term("#", doubtful=True)})


def both(first: Terms, second: Terms) -> Terms:
    """Return the conjunction of two conjunctions."""
    if NOTHING in (first, second):
        return NOTHING
    return first | second


def constant(value: JsonValue, pointer: str) -> Terms:
    """Return the conjunction that exactly one value satisfies."""
    return frozenset({Term(pointer, json.dumps(value, ensure_ascii=False))})


def negations(terms: Terms) -> tuple[Terms, ...]:
    """Return conjunctions whose union is the complement of a conjunction."""
    if terms == NOTHING:
        return (ANYTHING,)
    return tuple(frozenset({t if t.doubtful else replace(t, negated=not t.negated)}) for t in sorted(terms))


def either(*parts: Terms) -> Terms:
    """Return the conjunction of the one term that stands for a union."""
    distinct = sorted({tuple(sorted(part)) for part in parts if part != NOTHING})
    if not distinct:
        return NOTHING
    if () in distinct:
        return ANYTHING
    if len(distinct) == 1:
        return frozenset(distinct[0])
    return frozenset({Term(place(term for option in distinct for term in option), options=tuple(distinct))})


def negation(terms: Terms) -> Terms:
    """Return the conjunction of the one term that stands for the complement of a conjunction."""
    return either(*negations(terms))


def place(terms: Iterable[Term]) -> str:
    """Return the JSON pointer of the first term that has one of its own."""
    return min((term.pointer for term in terms if not (term.doubtful or term.never)), default="#")


def is_doubtful(terms: Terms) -> bool:
    """Tell whether it is not known what satisfies a conjunction."""
    return any(term.doubtful or any(is_doubtful(frozenset(option)) for option in term.options) for term in terms)


class InexactError(Exception):
    """An operation on shapes that has no exact result; `solver` adds the pointer.

    Attributes:
        keyword: the keyword that is to blame.
        reason: what cannot be done, and what to do instead.
    """

    def __init__(self, keyword: str, reason: str) -> None:
        """Keep both parts."""
        super().__init__(f"{keyword}: {reason}")
        self.keyword = keyword
        self.reason = reason
