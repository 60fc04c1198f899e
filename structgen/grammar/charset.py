r"""Sets of Unicode code points as sorted ranges; surrogates are in no set, so a complement is exact text.

Left out: what `\d`, `\w` or a Unicode property means; a front end builds those from ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_CODE_POINT = 0x10FFFF
FIRST_SURROGATE, LAST_SURROGATE = 0xD800, 0xDFFF

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CharSet:
    """A set of code points; make one with a class method, which normalises.

    Attributes:
        ranges: inclusive (first, last) pairs, ascending, neither touching nor overlapping, no surrogate in any.
    """

    ranges: tuple[Range, ...]

    @classmethod
    def from_ranges(cls, ranges: Iterable[Range]) -> CharSet:
        """Return the code points of inclusive ranges in any order; surrogates are left out."""
        merged: list[Range] = []
        for first, last in sorted(ranges):
            if not 0 <= first <= last <= MAX_CODE_POINT:
                raise ValueError(f"({first:#x}, {last:#x}) is no range of code points")
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return cls(tuple(part for piece in merged for part in _without_surrogates(piece)))

    @classmethod
    def from_text(cls, text: str) -> CharSet:
        """Return the characters of a text."""
        return cls.from_ranges((ord(char), ord(char)) for char in text)

    @classmethod
    def any(cls) -> CharSet:
        """Return every code point but the surrogates."""
        return cls.from_ranges([(0, MAX_CODE_POINT)])

    @classmethod
    def empty(cls) -> CharSet:
        """Return no code point."""
        return cls(())

    @property
    def is_empty(self) -> bool:
        """Tell whether there is no code point in it."""
        return not self.ranges

    @property
    def size(self) -> int:
        """Return the number of code points."""
        return sum(last - first + 1 for first, last in self.ranges)

    @classmethod
    def union_of(cls, sets: Iterable[CharSet]) -> CharSet:
        """Return the code points of any set."""
        kept = [one for one in sets if one.ranges]
        if len(kept) < 2:
            return kept[0] if kept else cls(())
        return cls.from_ranges(piece for one in kept for piece in one.ranges)

    def union(self, other: CharSet) -> CharSet:
        """Return the code points of either."""
        return CharSet.union_of((self, other))

    def intersection(self, other: CharSet) -> CharSet:
        """Return the code points of both."""
        found: list[Range] = []
        left, right = iter(self.ranges), iter(other.ranges)
        one, two = next(left, None), next(right, None)
        while one and two:
            first, last = max(one[0], two[0]), min(one[1], two[1])
            if first <= last:
                found.append((first, last))
            if one[1] < two[1]:
                one = next(left, None)
            else:
                two = next(right, None)
        return CharSet(tuple(found))

    def complement(self) -> CharSet:
        """Return every code point, surrogates left out, that is not in the set."""
        gaps: list[Range] = []
        start = 0
        for first, last in self.ranges:
            if first > start:
                gaps.append((start, first - 1))
            start = last + 1
        if start <= MAX_CODE_POINT:
            gaps.append((start, MAX_CODE_POINT))
        return CharSet.from_ranges(gaps)

    def difference(self, other: CharSet) -> CharSet:
        """Return the code points that are not in the other set."""
        return self.intersection(other.complement())

    def contains(self, char: str | int) -> bool:
        """Tell whether a character, or a code point by number, is in the set."""
        point = ord(char) if isinstance(char, str) else char
        low, high = 0, len(self.ranges)
        while low < high:
            middle = (low + high) // 2
            if self.ranges[middle][1] < point:
                low = middle + 1
            else:
                high = middle
        return low < len(self.ranges) and self.ranges[low][0] <= point

    __or__ = union
    __and__ = intersection
    __sub__ = difference
    __invert__ = complement
    __contains__ = contains

    def __iter__(self) -> Iterator[int]:
        """Yield the code points, ascending."""
        for first, last in self.ranges:
            yield from range(first, last + 1)


def _without_surrogates(piece: Range) -> list[Range]:
    first, last = piece
    below, above = (first, min(last, FIRST_SURROGATE - 1)), (max(first, LAST_SURROGATE + 1), last)
    return [part for part in dict.fromkeys((below, above)) if part[0] <= part[1]]
