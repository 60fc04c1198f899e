"""Code point sets against Python's sets of ints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.grammar.charset import CharSet

SURROGATES = range(0xD800, 0xE000)
# Small numbers collide often; the others lie around the surrogates and at the end of Unicode.
edges = st.one_of(st.integers(0, 40), st.integers(0xD7F8, 0xE008), st.integers(0x10FFF0, 0x10FFFF))
ranges = st.lists(
    st.tuples(edges, st.integers(0, 12)).map(lambda pair: (pair[0], min(sum(pair), 0x10FFFF))), max_size=6
)
PROBES = [*range(60), *range(0xD7F0, 0xD810), *range(0xDFF0, 0xE020), *range(0x10FFE0, 0x110000)]


def points(some: list[tuple[int, int]]) -> set[int]:
    """Return the code points of ranges, surrogates left out."""
    return {point for first, last in some for point in range(first, last + 1)} - set(SURROGATES)


@given(ranges)
def test_ranges_are_normal(some: list[tuple[int, int]]) -> None:
    """Ranges ascend, never touch (a gap of surrogates aside), and hold exactly what was given."""
    chars = CharSet.from_ranges(some)
    assert set(chars) == points(some)
    assert chars.size == len(points(some))
    assert chars.is_empty == (not points(some))
    for (_, last), (first, _) in zip(chars.ranges, chars.ranges[1:], strict=False):
        assert first > last + 1
    assert CharSet.from_ranges((point, point) for point in points(some)) == chars


@given(ranges, ranges)
def test_operations_are_set_operations(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    """Union, intersection, difference and complement are those of sets of code points."""
    left, right = CharSet.from_ranges(some), CharSet.from_ranges(others)
    assert set(left.union(right)) == points(some) | points(others)
    assert set(left.intersection(right)) == points(some) & points(others)
    assert set(left.difference(right)) == points(some) - points(others)
    assert (left | right, left & right, left - right, ~left) == (
        left.union(right),
        left.intersection(right),
        left.difference(right),
        left.complement(),
    )
    for point in PROBES:
        assert left.complement().contains(point) == (point not in points(some) and point not in SURROGATES)
        assert (point in left) == (point in points(some))
    assert left.complement().complement() == left


def test_everything_and_nothing() -> None:
    """All of Unicode is 0x110000 less 0x800 code points."""
    assert CharSet.any().size == 0x110000 - 0x800
    assert CharSet.any().complement() == CharSet.empty()
    assert CharSet.from_text("") == CharSet.empty()


def test_characters() -> None:
    """A text gives its characters, by character or by number; a surrogate is left out."""
    chars = CharSet.from_text("héé\ud800")
    assert chars.ranges == ((0x68, 0x68), (0xE9, 0xE9))
    assert "é" in chars
    assert "\ud800" not in chars


@pytest.mark.parametrize("wrong", [(3, 2), (-1, 2), (0, 0x110000)])
def test_wrong_ranges_are_errors(wrong: tuple[int, int]) -> None:
    """A range that runs backwards or leaves Unicode is an error."""
    with pytest.raises(ValueError, match="no range"):
        CharSet.from_ranges([wrong])
