"""Masks of several states at once: each row is the mask of its state."""

from __future__ import annotations

import threading
from typing import Any, Literal

import numpy as np
import pytest

import structgen as sg

TOKENS = [*(bytes([byte]) for byte in range(256)), b"true", b'"a', b'": ', b"12", b"<stop>"]
STOP = len(TOKENS) - 1


@pytest.fixture(scope="module")
def vocabulary() -> sg.Vocabulary:
    """Return single bytes and a few longer tokens."""
    return sg.Vocabulary.from_bytes(TOKENS, stop_ids=[STOP])


@pytest.fixture
def states(vocabulary: sg.Vocabulary) -> list[sg.ParserState]:
    """Return states of several automata: at the start, inside, where the text may end, after the end, frozen."""
    frozen = sg.compile(Literal["red", "green"], vocabulary, cache=None)
    frozen.freeze()
    automata = [sg.compile(one, vocabulary, cache=None) for one in (bool, dict[str, int], int)]
    found = [automaton.start() for automaton in (*automata, frozen)]
    inside = automata[1].start()
    for byte in b'{"a':
        inside.advance(byte)
    ended = automata[2].start()
    ended.advance(ord("7"))
    after = ended.fork()
    after.advance(STOP)
    return [*found, inside, ended, after, automata[1].start()]


def test_each_row_is_the_mask_of_its_state(states: list[sg.ParserState]) -> None:
    """In order, the same state twice included, in an array that is the caller's own."""
    rows = sg.fill_masks([*states, states[0]])
    assert (rows.shape, rows.dtype) == ((len(states) + 1, 9), np.int32)
    for row, state in zip(rows, [*states, states[0]], strict=True):
        assert np.array_equal(row, state.mask())
    rows[:] = 0
    assert states[0].mask().any()


def test_an_array_is_written_to(states: list[sg.ParserState]) -> None:
    """What is passed as out comes back, wholly overwritten, strided or not; any iterable of states will do."""
    for out in (np.full((len(states), 9), -1, np.int32), np.full((2 * len(states), 9), -1, np.int32)[::2]):
        assert sg.fill_masks(iter(states), out=out) is out
        assert np.array_equal(out, sg.fill_masks(states))


def test_threads_get_the_masks_that_one_thread_gets(vocabulary: sg.Vocabulary) -> None:
    """Several threads that ask new automata for masks at once, some of them for the same ones, find what one finds."""
    types: list[Any] = [bool, int, float, list[bool], dict[str, int], Literal["a", "b"], str, list[str]]
    expected = sg.fill_masks([sg.compile(one, vocabulary, cache=None).start() for one in types])
    automata = [sg.compile(one, vocabulary, cache=None) for one in types]
    results: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        order = np.roll(np.arange(len(types)), number)
        rows = sg.fill_masks([automata[place].start() for place in order])
        results[number] = rows[np.argsort(order)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(np.array_equal(rows, expected) for rows in results.values())


def test_what_does_not_fit_is_refused(states: list[sg.ParserState]) -> None:
    """No states, other things, several vocabularies, and arrays of another shape or type are errors that say so."""
    wide = sg.Vocabulary.from_bytes([*TOKENS, b"more"], stop_ids=[STOP])
    frozen = np.zeros((len(states), 9), np.int32)
    frozen.setflags(write=False)
    for wrong in ([], 5, [1], [states[0], None], [states[0].automaton]):
        with pytest.raises(sg.OptionError, match="ParserState"):
            sg.fill_masks(wrong)  # type: ignore[arg-type]
    with pytest.raises(sg.OptionError, match="several vocabularies"):
        sg.fill_masks([states[0], sg.compile(bool, wide).start()])
    for out in (np.zeros((1, 9), np.int32), np.zeros((len(states), 9), np.uint32), frozen, [0]):
        with pytest.raises(sg.OptionError, match=r"shape \(8, 9\)"):
            sg.fill_masks(states, out=out)  # type: ignore[arg-type]
