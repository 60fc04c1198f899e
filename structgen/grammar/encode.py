"""From languages of text to languages of bytes: UTF-8, and JSON strings with every escape of every character.

A spelling tree (bytes of one character -> column of the character DFA) is made once per alphabet, and then laid
out under each state. Left out: other JSON values (lexemes) and other encodings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.charset import MAX_CODE_POINT
from structgen.grammar.dfa import Dfa
from structgen.grammar.table import DEAD, MAX_STATES, IntArray, check_size, column_classes

QUOTE, BACKSLASH = 0x22, 0x5C
SHORT_ESCAPES = {0x22: '"', 0x5C: "\\", 0x2F: "/", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}

# The bytes that spell each digit, in the two positional systems that characters are written in.
CONTINUATION = tuple((0x80 + digit,) for digit in range(64))
HEX = tuple(tuple(sorted({ord(f"{digit:x}"), ord(f"{digit:X}")})) for digit in range(16))

Digits = tuple[tuple[int, ...], ...]
Node = tuple[tuple[int, int], ...]
Pairs = list[tuple[int, int | None]]


@lru_cache(maxsize=1024)
def encode_utf8(text: CharDfa) -> Dfa:
    """Return the UTF-8 of the texts; the first byte of each code point counts."""
    tree = _tree(text.boundaries, _live_columns(text), escaped=False)
    table, accepting, ticks = _lay_out(text, tree)
    return Dfa.build_over_classes(table, accepting, ticks, tree.byte_class)


@lru_cache(maxsize=1024)
def encode_json_string(text: CharDfa) -> Dfa:
    r"""Return the JSON strings, both quotes included, that decode to one of the texts.

    Each character is raw UTF-8 (not `"`, `\` or below 0x20), a short escape, `\uXXXX` with any case of the
    digits, or a pair of those beyond U+FFFF, wherever JSON allows it; a lone surrogate is no spelling. The
    first byte of each spelling counts one, the quotes do not.
    """
    body, accepting, ticks, tree = _json_body(text)
    begin, end, quote = len(body), len(body) + 1, int(tree.byte_class[QUOTE])
    table = np.concatenate([body, np.full((2, body.shape[1]), DEAD, np.int32)])
    table[begin, quote] = 0
    table[:begin, quote][accepting] = end
    return Dfa.build_over_classes(
        table,
        np.arange(len(table)) == end,
        np.concatenate([ticks, np.zeros_like(ticks[:1]).repeat(2, 0)]),
        tree.byte_class,
        begin,
    )


@lru_cache(maxsize=1024)
def encode_json_text(text: CharDfa) -> Dfa:
    """Return the same without the quotes: what stands between them, or between other parts of one string."""
    body, accepting, ticks, tree = _json_body(text)
    return Dfa.build_over_classes(body, accepting, ticks, tree.byte_class)


def _json_body(text: CharDfa) -> tuple[IntArray, npt.NDArray[np.bool_], npt.NDArray[np.bool_], SpellingTree]:
    tree = _tree(text.boundaries, _live_columns(text), escaped=True)
    return *_lay_out(text, tree), tree


def spelled(digits: Digits, children: Sequence[int | None]) -> Pairs:
    """Pair the child of each digit with each of the digit's bytes."""
    return [(byte, child) for spellings, child in zip(digits, children, strict=True) for byte in spellings]


class SpellingTree:
    """The ways to spell one character, as nodes over bytes that end in columns of a character DFA.

    A child is a node (>= 0) or the column ~child (< 0); equal nodes are one. Node 0 is the root.

    Attributes:
        children: (num_nodes, num_byte_classes) int32, `NONE` where no spelling goes on.
        byte_class: (256,) class of each byte; in a tree with escapes the quote has a class of its own.
        columns: (num_nodes, num_columns) bool, the columns that can be reached from a node.
    """

    NONE = np.iinfo(np.int32).max

    def __init__(self, boundaries: tuple[int, ...], columns: tuple[int, ...]) -> None:
        """Start a tree for intervals of code points and the column of each, -1 for characters never used."""
        self._starts = boundaries
        self._interval = columns
        self._numbers: dict[Node, int] = {}
        self._uniform: dict[tuple[int, int, int], int | None] = {}

    def column(self, point: int) -> int | None:
        """Return the child that ends with this character, None if it is never used."""
        column = self._interval[bisect_right(self._starts, point) - 1]
        return ~column if column >= 0 else None

    def node(self, pairs: Pairs) -> int | None:
        """Return the node of (byte, child) pairs, None if no child leads on."""
        used = tuple(sorted((byte, child) for byte, child in pairs if child is not None))
        return self._numbers.setdefault(used, len(self._numbers) + 1) if used else None

    def uniform(self, low: int, size: int) -> int | None:
        """Return the column of `size` characters from low on if it is the same for all (-1: not used), else None."""
        interval = bisect_right(self._starts, low) - 1
        alike = interval + 1 == len(self._starts) or self._starts[interval + 1] >= low + size
        return self._interval[interval] if alike else None

    def numeral(self, digits: Digits, depth: int, low: int) -> int | None:
        """Return the child that spells the characters from low on by a numeral of `depth` digits."""
        size = len(digits) ** depth
        column = self.uniform(low, size)
        if column is not None:
            return self._uniform_numeral(digits, depth, column)
        below = size // len(digits)
        children = [self.numeral(digits, depth - 1, low + digit * below) for digit in range(len(digits))]
        return self.node(spelled(digits, children))

    def _uniform_numeral(self, digits: Digits, depth: int, column: int) -> int | None:
        """Return the child that spells by `depth` digits where every numeral means the same column."""
        if depth == 0 or column < 0:
            return ~column if column >= 0 else None
        key = (len(digits), depth, column)
        if key not in self._uniform:
            below = self._uniform_numeral(digits, depth - 1, column)
            self._uniform[key] = self.node(spelled(digits, [below] * len(digits)))
        return self._uniform[key]

    def finish(self, root: Pairs) -> None:
        """Give the root its children and turn the nodes into arrays."""
        used = [(byte, child) for byte, child in root if child is not None]
        nodes = [tuple(used), *self._numbers]
        full = np.full((len(nodes) + 1, 256), self.NONE, np.int32)
        full[-1, QUOTE] = 0  # not a node: sets the quote apart from all other bytes
        for number, pairs in enumerate(nodes):
            for byte, child in pairs:
                full[number, byte] = child
        first, self.byte_class = column_classes(full)
        self.children = full[:-1, first]
        self.columns = np.zeros((len(nodes), max(self._interval, default=0) + 1), np.bool_)
        # A node is numbered after its children, the root aside, so one pass in that order sees children first.
        for number in [*range(1, len(nodes)), 0]:
            for _, child in nodes[number]:
                if child < 0:
                    self.columns[number, ~child] = True
                else:
                    self.columns[number] |= self.columns[child]


def _live_columns(text: CharDfa) -> tuple[int, ...]:
    """Return the column of each interval, -1 for those on which no state steps."""
    live = np.any(text.table >= 0, axis=0)
    return tuple(np.where(live[text.interval_class], text.interval_class, -1).tolist())


@lru_cache(maxsize=256)
def _tree(boundaries: tuple[int, ...], columns: tuple[int, ...], *, escaped: bool) -> SpellingTree:
    """Build the tree of UTF-8, or of the spellings inside a JSON string."""
    tree = SpellingTree(boundaries, columns)
    raw = [(byte, tree.column(byte)) for byte in range(0x20 if escaped else 0, 0x80)]
    raw += [(0xC0 + lead, tree.numeral(CONTINUATION, 1, lead << 6)) for lead in range(2, 32)]
    # E0 and F0 must not spell what is shorter; surrogates have no live column.
    raw += [(0xE0, tree.node(spelled(CONTINUATION[32:], _numerals(tree, 1, range(0x800, 0x1000, 64)))))]
    raw += [(0xE0 + lead, tree.numeral(CONTINUATION, 2, lead << 12)) for lead in range(1, 16)]
    raw += [(0xF0, tree.node(spelled(CONTINUATION[16:], _numerals(tree, 2, range(0x10000, 0x40000, 64**2)))))]
    raw += [(0xF0 + lead, tree.numeral(CONTINUATION, 3, lead << 18)) for lead in range(1, 4)]
    raw += [(0xF4, tree.node(spelled(CONTINUATION[:16], _numerals(tree, 2, range(0x100000, 0x110000, 64**2)))))]
    if escaped:
        raw = [(byte, child) for byte, child in raw if byte not in (QUOTE, BACKSLASH)]
        raw.append((BACKSLASH, _escapes(tree)))
    tree.finish(raw)
    return tree


def _numerals(tree: SpellingTree, depth: int, lows: range) -> list[int | None]:
    return [tree.numeral(CONTINUATION, depth, low) for low in lows]


def _escapes(tree: SpellingTree) -> int | None:
    """Return the child after a backslash: the short escapes, and `u` with one numeral or a surrogate pair."""
    short: Pairs = [(ord(letter), tree.column(point)) for point, letter in SHORT_ESCAPES.items()]
    numerals = [tree.numeral(HEX, 3, digit << 12) if digit != 0xD else _d_numeral(tree) for digit in range(16)]
    return tree.node([*short, (ord("u"), tree.node(spelled(HEX, numerals)))])


def _d_numeral(tree: SpellingTree) -> int | None:
    r"""Return the child after `\uD`: U+D000 to U+D7FF, or the rest of a pair; DC00 to DFFF begin nothing."""
    plain = [tree.numeral(HEX, 2, 0xD000 + (digit << 8)) for digit in range(8)]
    # The high half holds ten bits: two in this digit, eight in the next two. Each begins 0x400 characters.
    halves = _low_halves(tree)
    thirds = [tree.node(spelled(HEX, halves[at : at + 16])) for at in range(0, 1024, 16)]
    pairs = [tree.node(spelled(HEX, thirds[at : at + 16])) for at in range(0, 64, 16)]
    return tree.node(spelled(HEX[:12], [*plain, *pairs]))


def _low_halves(tree: SpellingTree) -> list[int | None]:
    r"""Return for each high half the child that spells its 0x400 characters by `\uDC00` to `\uDFFF`."""
    by_digits: dict[tuple[int | None, ...], int | None] = {}
    # Nearly all halves are like the one before: a column for all of their characters.
    by_column: dict[int, int | None] = {}
    halves: list[int | None] = []
    for low in range(0x10000, MAX_CODE_POINT + 1, 0x400):
        column = tree.uniform(low, 0x400)
        if column is not None and column in by_column:
            halves.append(by_column[column])
            continue
        lows = (low,) * 4 if column is not None else range(low, low + 0x400, 0x100)
        digits = tuple(tree.numeral(HEX, 2, at) for at in lows)
        if digits not in by_digits:
            after_d = tree.node(spelled(HEX[12:], digits))
            after_u = tree.node([(byte, after_d) for byte in HEX[0xD]])
            by_digits[digits] = tree.node([(BACKSLASH, tree.node([(ord("u"), after_u)]))])
        halves.append(by_digits[digits])
        if column is not None:
            by_column[column] = halves[-1]
    return halves


def _lay_out(text: CharDfa, tree: SpellingTree) -> tuple[IntArray, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Put the tree under each state of the character DFA.

    Returns:
        (table over the tree's byte classes, accepting, counted steps); state i of the result is state i of the
        argument for the first ones, and spellings cut short for the others.
    """
    num_states = text.num_states
    live = text.table >= 0
    width = tree.columns.shape[1]
    # A node stands under a state iff some character that it leads to goes on from there.
    pairs = (live[:, :width].astype(np.float32) @ tree.columns.T.astype(np.float32)) > 0
    pairs[:, 0] = False
    check_size(num_states + int(np.count_nonzero(pairs)), MAX_STATES)
    state, node = np.nonzero(pairs)
    number = np.full((num_states, len(tree.children)), DEAD, np.int64)
    number[state, node] = np.arange(num_states, num_states + len(state))
    number[:, 0] = np.arange(num_states)
    state = np.concatenate([np.arange(num_states), state])[:, None]
    child = tree.children[np.concatenate([np.zeros(num_states, np.int64), node])]
    ends = child < 0
    inner = (child >= 0) & (child != tree.NONE)
    table = np.full(child.shape, DEAD, np.int32)
    table = np.where(ends, text.table[state, np.where(ends, ~child, 0)], table)
    table = np.where(inner, number[state, np.where(inner, child, 0)], table)
    accepting = np.concatenate([text.accepts, np.zeros(len(table) - num_states, np.bool_)])
    ticks = np.zeros(table.shape, np.bool_)
    ticks[:num_states] = table[:num_states] >= 0
    return table.astype(np.int32), accepting, ticks
