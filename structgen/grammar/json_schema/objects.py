"""Object shapes: declared properties in order, regions of other keys, keys that must be there, counts.

Keys compare decoded. Closed under intersection and complement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.json_schema.terms import ANYTHING, NOTHING, Terms, both, negation, negations


@dataclass(frozen=True, slots=True)
class Region:
    """The keys of a language that are not declared, and what their values are.

    Attributes:
        keys: decoded keys; None for every key.
        value: what each value is.
    """

    keys: CharDfa | None
    value: Terms

    def contains(self, key: str) -> bool:
        """Tell whether a decoded key is in the region."""
        return self.keys is None or self.keys.matches(key)

    def intersect(self, other: Region) -> Region | None:
        """Return the keys in both with both conditions on the value, None if that forbids the key."""
        value = both(self.value, other.value)
        if value == NOTHING:
            return None
        if self.keys is None or other.keys is None:
            return Region(self.keys if other.keys is None else other.keys, value)
        keys = shared_keys(self.keys, other.keys)
        return None if keys.is_empty else Region(keys, value)


OPEN = (Region(None, ANYTHING),)


@dataclass(frozen=True, slots=True)
class Need:
    """That some key of a language is there, with a certain value; the key may be a declared one.

    Attributes:
        keys: decoded keys; None for every key.
        value: what its value is.
    """

    keys: CharDfa | None
    value: Terms = ANYTHING

    def contains(self, key: str) -> bool:
        """Tell whether a decoded key is one of them."""
        return self.keys is None or self.keys.matches(key)


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """A set of objects.

    Attributes:
        properties: declared names in order, and what their values are.
        required: the declared names that must be there.
        regions: disjoint regions of the other keys; a key in no region is forbidden.
        low: least number of keys.
        high: greatest number of keys, None for no bound.
        appended: the declared names that no `properties` keyword gave; they follow those that one gave.
        needs: for each a key must be there, declared or not; the same key may be it for several.
    """

    properties: tuple[tuple[str, Terms], ...] = ()
    required: frozenset[str] = frozenset()
    regions: tuple[Region, ...] = OPEN
    low: int = 0
    high: int | None = None
    appended: frozenset[str] = frozenset()
    needs: tuple[Need, ...] = ()

    def value(self, name: str) -> Terms:
        """Return what the value under a key is; NOTHING where the key is forbidden."""
        for declared, terms in self.properties:
            if declared == name:
                return terms
        return next((region.value for region in self.regions if region.contains(name)), NOTHING)

    @property
    def is_empty(self) -> bool:
        """Tell whether the shape contradicts itself without a look into the values."""
        if self.high is not None and (self.low > self.high or len(self.required) > self.high):
            return True
        if any(terms == NOTHING and name in self.required for name, terms in self.properties):
            return True
        return any(not any(True for _ in self.ways(need)) for need in self.needs)

    def ways(self, need: Need) -> Iterator[tuple[str | None, Terms]]:
        """Yield the declared names, and None for other keys, that may be needed, with what the value is then."""
        for name, terms in self.properties:
            value = both(terms, need.value)
            if value != NOTHING and need.contains(name):
                yield name, value
        names = tuple(name for name, _ in self.properties)
        for region in self.regions:
            found = region.intersect(Region(need.keys, need.value))
            if found is not None and not is_covered(found.keys, names):
                yield None, found.value

    def intersect(self, other: ObjectShape) -> ObjectShape | None:
        """Return the objects in both, None if there is none."""
        mine, yours = dict(self.properties), dict(other.properties)
        regions = [one.intersect(two) for one in self.regions for two in other.regions]
        given = dict.fromkeys([*self._given, *other._given])
        names = dict.fromkeys([*given, *mine, *yours])
        highs = [shape.high for shape in (self, other) if shape.high is not None]
        shape = ObjectShape(
            properties=tuple((name, both(self._look(mine, name), other._look(yours, name))) for name in names),
            required=self.required | other.required,
            regions=tuple(region for region in regions if region is not None),
            low=max(self.low, other.low),
            high=min(highs, default=None),
            appended=frozenset(name for name in names if name not in given),
            needs=tuple(dict.fromkeys((*self.needs, *other.needs))),
        )
        shape = shape._settled()
        return None if shape.is_empty else shape

    @property
    def _given(self) -> list[str]:
        return [name for name, _ in self.properties if name not in self.appended]

    def _look(self, table: dict[str, Terms], name: str) -> Terms:
        return table[name] if name in table else self.value(name)

    def _settled(self) -> ObjectShape:
        """Return the same set without needs that something required meets, or that only one declared key can meet."""
        shape = self
        for need in self.needs:
            ways = list(shape.ways(need))
            declared = dict(shape.properties)
            is_met = any(
                name in shape.required and need.value <= declared[name] for name, _ in ways if name is not None
            )
            if not is_met and (len(ways) != 1 or ways[0][0] is None):
                continue
            kept = tuple(other for other in shape.needs if other != need)
            shape = replace(shape, needs=kept)
            if not is_met:
                name, value = ways[0]
                properties = tuple((key, value if key == name else terms) for key, terms in shape.properties)
                shape = replace(shape, properties=properties, required=shape.required | {str(name)})
        return shape

    def covers(self, other: ObjectShape) -> bool:
        """Tell whether every object of another shape is certainly one of this one, by the look of both."""
        if not self.required <= other.required or self.low > max(other.low, len(other.required)):
            return False
        if self.high is not None and (other.high is None or other.high > self.high):
            return False
        if not (set(self.needs) <= set(other.needs)) or (self.regions != OPEN and self.regions != other.regions):
            return False
        mine, yours = dict(self.properties), dict(other.properties)
        if self.regions != OPEN and mine.keys() != yours.keys():
            return False
        values = ((terms, other._look(yours, name)) for name, terms in self.properties)
        return all(theirs == NOTHING or terms <= theirs for terms, theirs in values)

    @property
    def is_exact(self) -> bool:
        """Tell whether the shape can be complemented."""
        return True

    def requiring(self, names: tuple[str, ...]) -> ObjectShape | None:
        """Return the objects that also have these keys; new names are appended to the declared order."""
        if self.required.issuperset(names):
            return None if self.is_empty else self
        known = dict(self.properties)
        new = tuple((name, self.value(name)) for name in names if name not in known)
        shape = replace(
            self,
            properties=self.properties + new,
            required=self.required | set(names),
            appended=self.appended | {name for name, _ in new},
        )
        return None if shape.is_empty else shape

    def complement(self) -> tuple[ObjectShape, ...]:
        """Return shapes whose union is every other object."""
        parts: list[ObjectShape] = [missing(name) for name, _ in self.properties if name in self.required]
        for name, terms in self.properties:
            parts += [
                ObjectShape(((name, negated),), required=frozenset({name}), appended=frozenset({name}))
                for negated in negations(terms)
                if terms != ANYTHING
            ]
        if self.low > 0:
            parts.append(ObjectShape(high=self.low - 1))
        if self.high is not None:
            parts.append(ObjectShape(low=self.high + 1))
        parts += [ObjectShape(needs=(need,)) for need in self._outside()]
        parts += [_without(need) for need in self.needs]
        return tuple(parts)

    def _outside(self) -> Iterator[Need]:
        """Yield what a key that is not declared has to be for the shape not to admit the object."""
        if self.regions == OPEN:
            return
        names = tuple(name for name, _ in self.properties)
        rest = undeclared(None, names)
        for region in self.regions:
            keys = undeclared(region.keys, names)
            rest = rest.difference(keys)
            if region.value != ANYTHING and not keys.is_empty:
                yield from (Need(keys, negated) for negated in negations(region.value))
        if not rest.is_empty:
            yield Need(rest)


def _without(need: Need) -> ObjectShape:
    """Return the objects in which no key is what is needed."""
    value = negation(need.value)
    regions = [] if value == NOTHING else [Region(need.keys, value)]
    if need.keys is not None:
        rest = need.keys.complement()
        regions += [] if rest.is_empty else [Region(rest, ANYTHING)]
    return ObjectShape(regions=tuple(regions))


def missing(name: str) -> ObjectShape:
    """Return the objects without a key."""
    return ObjectShape(properties=((name, NOTHING),), appended=frozenset({name}))


@lru_cache(maxsize=4096)
def shared_keys(first: CharDfa, second: CharDfa) -> CharDfa:
    """Return the keys in both languages."""
    return first if first == second else first.intersection(second)


@lru_cache(maxsize=4096)
def undeclared(keys: CharDfa | None, names: tuple[str, ...]) -> CharDfa:
    """Return the keys of a language (None: all) without some names."""
    everything = CharDfa.any_text() if keys is None else keys
    return everything.difference(CharDfa.from_words(names)) if names else everything


def is_covered(keys: CharDfa | None, names: tuple[str, ...]) -> bool:
    """Tell whether a language holds nothing but some of the names."""
    if keys is None:
        return False
    count = keys.num_words
    return count is not None and count <= len(names) and undeclared(keys, names).is_empty
