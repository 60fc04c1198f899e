"""Scans of lexemes: from disk as they were made, made side by side, and a vocabulary's memory of lexemes is bounded."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from oracle.strategies import class_star
from structgen.array_store import ArrayStore
from structgen.grammar import dfa as dfas
from structgen.grammar import scan as scan_module
from structgen.grammar import spelling as spelling_module
from structgen.grammar.dfa import Dfa
from structgen.grammar.scan import DfaScan, VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.vocabulary import Vocabulary


@pytest.fixture
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> Vocabulary:
    """Return a few tokens; each of their scans counts as dear."""
    monkeypatch.setattr(scan_module, "_DEAR_NUM_ROWS", 0)
    return Vocabulary.from_bytes([b"a", b"b", b"ab", b"ba", b"abc", b"(", b"", b"bb"], stop_ids=[6])


def store_in(folder: Path) -> ArrayStore:
    """Return a store like that of the compile cache."""
    return ArrayStore(folder, sources=["grammar"], max_bytes=1 << 20)


def is_same(first: DfaScan, second: DfaScan) -> bool:
    """Say whether two scans are equal."""
    return all(np.array_equal(getattr(first, field.name), getattr(second, field.name)) for field in fields(DfaScan))


def never(*_: object) -> DfaScan:
    """Fail: the file should have been used."""
    raise AssertionError("walked again")


def test_a_scan_from_disk_is_the_scan(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later process reads what was walked, each state its own; another vocabulary of the same bytes does not."""
    dfa = class_star("ab")
    states = range(dfa.num_states)
    made = [VocabularyScans(vocabulary, store=store_in(tmp_path)).scan(dfa, state) for state in states]
    alone = [VocabularyScans(vocabulary).scan(dfa, state) for state in states]
    assert all(map(is_same, made, alone))

    monkeypatch.setattr(VocabularyScans, "_compute", never)
    later = VocabularyScans(vocabulary, store=store_in(tmp_path))
    assert all(map(is_same, (later.scan(dfa, state) for state in states), alone))
    assert not later.scan(dfa, 0).row.flags.writeable
    longer = Vocabulary.from_bytes([*vocabulary.table.tokens, b"c"], stop_ids=[6])
    with pytest.raises(AssertionError, match="walked again"):
        VocabularyScans(longer, store=store_in(tmp_path)).scan(dfa, 0)


@pytest.mark.parametrize("name", ["row", "ends", "nodes", "group_start", "exits", "exit_start"])
def test_arrays_that_do_not_fit_are_made_anew(vocabulary: Vocabulary, tmp_path: Path, name: str) -> None:
    """A file under the right key whose arrays cannot belong together is not used."""
    dfa = class_star("ab")
    store = store_in(tmp_path)
    scans = VocabularyScans(vocabulary, store=store)
    expected = scans.scan(dfa, 0)
    arrays = {field.name: getattr(expected, field.name) for field in fields(DfaScan)}
    store.write(scans._key_text(dfa, 0), arrays | {name: np.concatenate([arrays[name], arrays[name][-1:]])})

    assert scans._load(dfa, 0) is None
    assert is_same(VocabularyScans(vocabulary, store=store).scan(dfa, 0), expected)


def test_nobody_waits_for_a_slow_disk(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread writes a scan, others walk, write and return theirs: each write waits for the other to begin."""
    both = threading.Barrier(2)
    monkeypatch.setattr(ArrayStore, "write", lambda *_: both.wait(30) >= 0)
    scans = VocabularyScans(vocabulary, store=store_in(tmp_path))

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(scans.scan, class_star(letters), 0) for letters in ("ab", "abc")]
        assert [len(scan.result(30).row) for scan in found] == [1, 1]


def test_cold_scans_of_eight_threads_are_those_of_one(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """The walker's one scratch memory is not mixed up."""
    lexemes = [class_star(letters) for letters in ("a", "b", "c", "ab", "bc", "ac", "abc", "abc(")]
    alone = [VocabularyScans(vocabulary).scan(dfa, 0) for dfa in lexemes]
    for turn in range(10):
        scans = VocabularyScans(vocabulary, store=store_in(tmp_path / str(turn)))
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda dfa, scans=scans: scans.scan(dfa, 0), lexemes * 4))
        assert all(map(is_same, found, alone * 4))


def words(number: int) -> Dfa:
    """Return a DFA of two words, one with a byte that the vocabulary lacks."""
    word = format(number, "b").replace("0", "a").replace("1", "b").encode()
    return dfas.from_words([word, word + b"z"])


def test_memory_is_bounded(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lexemes pass by, a fixed number of their scans, costs and cuts stays."""
    monkeypatch.setattr(spelling_module, "_MAX_RESTRICTED", 6)
    scans, spelling = VocabularyScans(vocabulary, max_scans=5), Spelling(vocabulary)
    for number in range(40):
        cut = spelling.restrict(words(number))
        assert dfas.matches(cut, b"b") is (number == 1)
        assert not dfas.matches(cut, b"bz")
        scans.scan(cut, 0)
        assert scans.token_costs(cut)[0] >= 1

    sizes = [len(value) for holder in (scans, spelling) for value in vars(holder).values() if hasattr(value, "get")]
    assert sorted(sizes) == [5, 5, 6]


def test_a_lexeme_of_known_bytes_is_not_copied(vocabulary: Vocabulary) -> None:
    """Where nothing is cut, the DFA is the same object and nothing is kept for it."""
    spelling = Spelling(vocabulary)
    dfa = class_star("ab")

    assert spelling.restrict(dfa) is dfa
    assert len(spelling._restricted) == 0
