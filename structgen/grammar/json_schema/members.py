"""What an object may hold, as expressions: its declared members, other keys told apart by what they are good for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

from structgen.errors import LimitError
from structgen.grammar import ir, lexemes
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.json_schema import strings
from structgen.grammar.json_schema.layout import Layout, choose, join
from structgen.grammar.json_schema.objects import Need, ObjectShape, Region, shared_keys, undeclared
from structgen.grammar.json_schema.rules import Rules
from structgen.grammar.json_schema.terms import NOTHING, Terms, both
from structgen.grammar.other_words import json_string_except

MAX_LISTED_KEYS = 64
_MAX_ROLES = 16

Met = frozenset[int]
"""The needs of a shape, by number, that a member meets."""
NONE_MET: Met = frozenset()


@dataclass(frozen=True, slots=True)
class Member:
    """One declared property.

    Attributes:
        pairs: its key and value as expressions, with the needs that each meets; the first is the one without more
            conditions on the value than the shape has.
        is_required: whether it must be there.
        is_given: whether a `properties` keyword names it, so that it has a place in the declared order.
    """

    pairs: tuple[tuple[ir.Expr, Met], ...]
    is_required: bool
    is_given: bool

    @property
    def pair(self) -> ir.Expr:
        """Return the key with any value that it may have."""
        return self.pairs[0][0]


@dataclass(frozen=True, slots=True)
class Other:
    """Other keys of one language.

    Attributes:
        pair: any of the keys with its value.
        met: the needs that each of them meets.
        inside: the needs whose keys they are.
        witnesses: the needs that one of them meets with a certain value, and the pair with that value.
    """

    pair: ir.Expr
    met: Met
    inside: Met
    witnesses: tuple[tuple[int, ir.Expr], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """An object shape with everything below it made into expressions.

    Attributes:
        members: declared properties in order.
        others: other keys; none where they are forbidden.
        num_needs: how many needs there are.
        low: least number of keys.
        high: greatest number of keys, None where there is none or the members cannot pass it.
        layout: the layout of the object.
    """

    members: tuple[Member, ...]
    others: tuple[Other, ...]
    num_needs: int
    low: int
    high: int | None
    layout: Layout

    @property
    def num_required(self) -> int:
        """Return how many members must be there."""
        return sum(member.is_required for member in self.members)

    @property
    def is_counted(self) -> bool:
        """Tell whether the number of keys matters."""
        return self.low > self.num_required or self.high is not None

    @property
    def witnessed(self) -> Met:
        """Return the needs that other keys can meet by their value only."""
        return frozenset(need for other in self.others for need, _ in other.witnesses)

    def opened(self, *parts: ir.Expr) -> ir.Expr:
        """Return the parts after the opening brace."""
        return join(*self.layout.opening(b"{"), *parts)

    def after_comma(self, *parts: ir.Expr) -> ir.Expr:
        """Return the parts after a comma."""
        return join(*self.layout.comma, *parts)

    @property
    def closing(self) -> ir.Expr:
        """Return the end of an object that is not empty."""
        return join(*self.layout.closing(b"}"))

    @property
    def nothing(self) -> ir.Expr:
        """Return the empty object."""
        return join(*self.layout.empty(b"{}"))

    def any_other(self, without: int | None = None) -> ir.Expr | None:
        """Return any other key with its value, None if there is none; on request without the keys of a need."""
        pairs = [other.pair for other in self.others if without not in other.inside]
        return choose(pairs) if pairs else None

    def more(self, low: int, high: int | None, *, without: int | None = None) -> ir.Expr:
        """Return so many other keys after at least one member."""
        other = self.any_other(without)
        if other is None or high == 0:
            return ir.Literal(b"") if low == 0 else ir.Choice(())
        return ir.Repeat(self.after_comma(other), low, high)


def make_plan(rules: Rules, shape: ObjectShape, layout: Layout) -> Plan:
    """Return what the objects of a shape hold."""
    shape = _with_listed_keys(shape)
    members = tuple(
        Member(tuple(_pairs(rules, shape, name, layout)), name in shape.required, name not in shape.appended)
        for name, terms in shape.properties
        if terms != NOTHING
    )
    others = tuple(other for region in shape.regions for other in _others(rules, shape, region, layout))
    high = shape.high if others or (shape.high is not None and shape.high < len(members)) else None
    return Plan(members, others, len(shape.needs), shape.low, high, layout)


def _pairs(rules: Rules, shape: ObjectShape, name: str, layout: Layout) -> Iterator[tuple[ir.Expr, Met]]:
    terms = shape.value(name)
    needs = [(i, need) for i, need in enumerate(shape.needs) if need.contains(name)]
    met = frozenset(i for i, need in needs if need.value <= terms)
    more = [(i, need) for i, need in needs if i not in met and both(terms, need.value) != NOTHING]
    if 2 ** len(more) > _MAX_ROLES:
        raise LimitError(
            "one property decides too many conditions; simplify not, if and oneOf", "cases", 2 ** len(more)
        )
    for size in range(len(more) + 1):
        for chosen in combinations(more, size):
            value = terms.union(*(need.value for _, need in chosen))
            pair = join(ir.Literal(strings.spell(name)), *layout.colon, rules.value(value, layout.inner))
            yield pair, met | {i for i, _ in chosen}


def _others(rules: Rules, shape: ObjectShape, region: Region, layout: Layout) -> Iterator[Other]:
    """Yield the keys of a region that are not declared, split by the needs whose keys they are."""
    names = tuple(name for name, _ in shape.properties)
    # None for every key, as long as nothing is split off.
    kinds: list[tuple[CharDfa | None, Met]] = [(region.keys, NONE_MET)]
    for number, need in enumerate(shape.needs):
        kinds = [kind for keys, inside in kinds for kind in _split(keys, inside, need, number)]
    for keys, inside in kinds:
        key = _other_key(keys, names)
        if key is not None:
            yield _other(rules, key, region.value, shape.needs, inside, layout)


def _split(keys: CharDfa | None, inside: Met, need: Need, number: int) -> list[tuple[CharDfa | None, Met]]:
    if need.keys is None:
        return [(keys, inside | {number})]
    shared = need.keys if keys is None else shared_keys(keys, need.keys)
    rest = (keys or CharDfa.any_text()).difference(need.keys)
    found = [(shared, inside | {number}), (rest, inside)]
    return [(part, met) for part, met in found if not part.is_empty]


def _other(rules: Rules, key: ir.Lexeme, value: Terms, needs: tuple[Need, ...], inside: Met, layout: Layout) -> Other:
    def pair(terms: Terms) -> ir.Expr:
        return join(key, *layout.colon, rules.value(terms, layout.inner))

    met = frozenset(i for i in inside if needs[i].value <= value)
    witnesses = [(i, both(value, needs[i].value)) for i in sorted(inside - met)]
    return Other(pair(value), met, inside, tuple((i, pair(terms)) for i, terms in witnesses if terms != NOTHING))


@lru_cache(maxsize=256)
def _other_key(keys: CharDfa | None, declared: tuple[str, ...]) -> ir.Lexeme | None:
    # A key is structure, not prose: penalties leave it alone.
    if keys is None:
        dfa = json_string_except(declared) if declared else lexemes.json_string().dfa
        return ir.Lexeme(dfa, name="key")
    found = undeclared(keys, declared)
    return None if found.is_empty else replace(lexemes.json_string(found), free_text=False, name="key")


def _with_listed_keys(shape: ObjectShape) -> ObjectShape:
    """Declare the keys of regions and needs that hold a few keys only, so that they are written once each."""
    properties = dict(shape.properties)
    regions = []
    for region in shape.regions:
        if any(term.doubtful for term in region.value):
            continue  # none of its keys is ever written
        listed = _few_words(region.keys)
        if listed is None:
            regions.append(region)
        for name in listed or ():
            properties.setdefault(name, region.value)
    for need in shape.needs:
        for name in _few_words(need.keys) or ():
            properties.setdefault(name, shape.value(name))
    new = properties.keys() - dict(shape.properties).keys()
    return replace(shape, properties=tuple(properties.items()), regions=tuple(regions), appended=shape.appended | new)


def _few_words(keys: CharDfa | None) -> list[str] | None:
    count = None if keys is None else keys.num_words
    return None if keys is None or count is None or count > MAX_LISTED_KEYS else keys.words(MAX_LISTED_KEYS)
