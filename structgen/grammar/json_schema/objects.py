"""Object shapes: declared properties in order, regions of other keys, counts; closed under intersection.

Keys compare decoded. The complement exists wherever it does not ask for some open key with a certain value
(another key of the same name could follow and change the verdict).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.json_schema.terms import ANYTHING, NOTHING, InexactError, Terms, both, negations


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
        keys = self.keys.intersection(other.keys)
        return None if keys.is_empty else Region(keys, value)


OPEN = (Region(None, ANYTHING),)


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
    """

    properties: tuple[tuple[str, Terms], ...] = ()
    required: frozenset[str] = frozenset()
    regions: tuple[Region, ...] = OPEN
    low: int = 0
    high: int | None = None
    appended: frozenset[str] = frozenset()

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
        return any(terms == NOTHING and name in self.required for name, terms in self.properties)

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
        )
        return None if shape.is_empty else shape

    @property
    def _given(self) -> list[str]:
        return [name for name, _ in self.properties if name not in self.appended]

    def _look(self, table: dict[str, Terms], name: str) -> Terms:
        return table[name] if name in table else self.value(name)

    def requiring(self, names: tuple[str, ...]) -> ObjectShape | None:
        """Return the objects that also have these keys; new names are appended to the declared order."""
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
        """Return shapes whose union is every other object.

        Raises:
            InexactError: there is no such union of shapes.
        """
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
        return (*parts, *self._with_other_keys())

    def _with_other_keys(self) -> tuple[ObjectShape, ...]:
        if self.regions == OPEN:
            return ()
        names = {name for name, _ in self.properties}
        if self.regions or names != self.required:
            raise InexactError(
                "additionalProperties",
                "cannot be negated here; give the branches a required property with different constants, or "
                "move additionalProperties out of the negated schema",
            )
        # Every declared key is there, or another part has the object: a forbidden key shows in the count.
        properties = tuple((name, ANYTHING) for name, _ in self.properties)
        return (ObjectShape(properties, self.required, OPEN, low=len(names) + 1, appended=self.required),)


def missing(name: str) -> ObjectShape:
    """Return the objects without a key."""
    return ObjectShape(properties=((name, NOTHING),), appended=frozenset({name}))
