"""JSON strings that decode to anything but a few words: what an object with open keys needs, one for each such object.

It is `encode.encode_json_string` of all texts without the words, made directly. Under each prefix of a word the
spelling of a string goes on as it does anywhere, but for the characters with which a word goes on, and the end where a
word ends; so a state is a state of the DFA of all strings with a few steps changed. How the steps of one character
change is worked out once. For 30 names that takes 0.5 ms (1,800 states, one core); 25 ms the general way.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.dfa import Dfa, word_graph
from structgen.grammar.encode import BACKSLASH, HEX, QUOTE, SHORT_ESCAPES, encode_json_string
from structgen.grammar.table import DEAD, MAX_STATES, IntArray, check_size

Spelling = tuple[tuple[int, ...], ...]
"""The bytes that each position of a spelling may have."""
Ways = list[tuple[Spelling, int]]
"""Rests of spellings, and what they lead to."""


def json_string_except(words: tuple[str, ...]) -> Dfa:
    """Return the JSON strings, both quotes included, that decode to none of the words.

    It is a DFA of that language, but not the smallest one: state 0, then the states of the DFA of all strings, then
    those under prefixes of words. It equals the one of the same words, in any order, only.

    Args:
        words: without lone surrogates.

    Raises:
        LimitError: it has too many states.
    """
    everything = encode_json_string(CharDfa.any_text())
    # Equal DFAs must number their states alike, as what is kept goes by digest and state; so the words are in order.
    ordered = sorted(set(words))
    graph, ends_word, root = word_graph([[ord(character) for character in word] for word in ordered])
    first = 1 + everything.num_states
    pieces: list[_Piece] = []
    targets: list[int] = []
    first_target: list[int] = []
    state_of: list[int] = []
    # A node is numbered after those it leads to.
    for pairs in graph:
        state_of.append(first)
        pieces.append(_piece(tuple(point for point, _ in pairs)))
        first_target.append(len(targets))
        targets += [state_of[node] for _, node in pairs]
        first += len(pieces[-1].kinds)
    check_size(first, MAX_STATES)
    rows, byte_of, steps = _changes(pieces, targets, first_target, state_of)
    kinds = np.concatenate([_own_kinds(), *(piece.kinds for piece in pieces)])
    delta = np.take(_delta_one_on(), kinds, axis=0)
    delta[rows, byte_of] = steps
    ends = [state for state, is_word in zip(state_of, ends_word, strict=True) if is_word]
    delta[ends, QUOTE] = DEAD
    delta[0, QUOTE] = state_of[root]
    ticks = np.take(everything.tick_bytes, kinds, axis=0)
    ticks[ends, QUOTE] = False
    accepting = np.zeros(first, np.bool_)
    accepting[1 : 1 + everything.num_states] = everything.accepting
    for array in (delta, accepting, ticks):
        array.flags.writeable = False
    digest = sha256(b"strings but for" + everything.digest + repr(ordered).encode()).digest()
    return Dfa(delta, accepting, ticks, digest)


@lru_cache(maxsize=1)
def _own_kinds() -> IntArray:
    """Return, for state 0 and for the states of the DFA of all strings, which of these they are."""
    return np.concatenate([[0], np.arange(encode_json_string(CharDfa.any_text()).num_states)]).astype(np.int32)


@lru_cache(maxsize=1)
def _delta_one_on() -> IntArray:
    """Return the steps of the DFA of all strings, its states numbered one on."""
    delta = encode_json_string(CharDfa.any_text()).delta
    return np.where(delta == DEAD, DEAD, delta + 1).astype(np.int32)


class _Piece(NamedTuple):
    """The states under one prefix, before the prefix has a place.

    Attributes:
        kinds: for each state the one of the DFA of all strings that it is but for the changes.
        changes: rows (state as an index, byte on which it steps otherwise, index of the state that it steps to, -1
            where it steps out of the piece, which of the next prefixes it steps to where it does).
    """

    kinds: IntArray
    changes: IntArray


def _changes(
    pieces: list[_Piece], targets: list[int], first_target: list[int], state_of: list[int]
) -> tuple[IntArray, IntArray, IntArray]:
    """Return (state, byte, next state) of all changes of pieces that have their places."""
    changes = np.concatenate([piece.changes for piece in pieces])
    num_changes = [len(piece.changes) for piece in pieces]
    start = np.repeat(np.array(state_of, dtype=np.int32), num_changes)
    inner, outer = changes[:, 2], changes[:, 3] + np.repeat(np.array(first_target), num_changes)
    # Where a step stays inside, `outer` is 0, and there may be no target at all at that place.
    out = np.array([*targets, DEAD], np.int32)[outer]
    return changes[:, 0] + start, changes[:, 1], np.where(inner < 0, out, inner + start)


@lru_cache(maxsize=4096)
def _piece(points: tuple[int, ...]) -> _Piece:
    """Return the states under a prefix that some characters make a longer one."""
    everything = encode_json_string(CharDfa.any_text())
    kinds: list[int] = []
    changes: list[tuple[int, int, int, int]] = []

    def add(kind: int, ways: Ways) -> int:
        own = len(kinds)
        kinds.append(kind)
        by_byte: dict[int, Ways] = {}
        for spelling, target in ways:
            for byte in spelling[0]:
                by_byte.setdefault(byte, []).append((spelling[1:], target))
        known: dict[tuple[int, tuple[tuple[Spelling, int], ...]], int] = {}
        for byte, rest in by_byte.items():
            # No spelling begins another one, so what ends here is alone.
            if not rest[0][0]:
                changes.append((own, byte, -1, rest[0][1]))
                continue
            # Both cases of a hexadecimal digit lead on alike.
            after = int(everything.delta[kind, byte])
            key = after, tuple(rest)
            if key not in known:
                known[key] = add(after, rest)
            changes.append((own, byte, known[key], 0))
        return own

    ways = [(spelling, number) for number, point in enumerate(points) for spelling in _spellings(point)]
    add(int(everything.delta[0, QUOTE]), ways)
    return _Piece(np.array(kinds, dtype=np.int32), np.array(changes, dtype=np.int32).reshape(-1, 4))


@lru_cache(maxsize=4096)
def _spellings(point: int) -> tuple[Spelling, ...]:
    """Return the ways to spell a character inside a JSON string."""
    found: list[Spelling] = []
    if point >= 0x20 and point not in (QUOTE, BACKSLASH):
        found.append(tuple((byte,) for byte in chr(point).encode()))
    if point in SHORT_ESCAPES:
        found.append(((BACKSLASH,), (ord(SHORT_ESCAPES[point]),)))
    units = chr(point).encode("utf-16-be")
    escaped: list[tuple[int, ...]] = []
    for at in range(0, len(units), 2):
        unit = units[at] << 8 | units[at + 1]
        escaped += [(BACKSLASH,), (ord("u"),), *(HEX[unit >> shift & 15] for shift in (12, 8, 4, 0))]
    return (*found, tuple(escaped))
