"""Scans of lexemes: from disk as they were made, made side by side, and a vocabulary's memory of lexemes is bounded."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import structgen as sg
from oracle.strategies import class_star
from structgen.array_store import ArrayStore
from structgen.grammar import core, lexemes, other_words
from structgen.grammar import dfa as dfas
from structgen.grammar import scan as scan_module
from structgen.grammar import spelling as spelling_module
from structgen.grammar.dfa import Dfa
from structgen.grammar.scan import DfaScan, ScanGroups, VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.kernels.trie_walk import CountedDfa, TrieWalker, set_tokens_
from structgen.vocabulary import Vocabulary


@pytest.fixture
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> Vocabulary:
    """Return a few tokens; each of their scans counts as dear."""
    monkeypatch.setattr(scan_module, "_DEAR_NUM_NODES", 0)
    return Vocabulary.from_bytes([b"a", b"b", b"ab", b"ba", b"abc", b"(", b"", b"bb"], stop_ids=[6])


def store_in(folder: Path) -> ArrayStore:
    """Return a store like that of the compile cache."""
    return ArrayStore(folder, sources=["grammar"], max_bytes=1 << 20)


def is_same(first: DfaScan | ScanGroups, second: DfaScan | ScanGroups) -> bool:
    """Say whether two values are equal."""
    return all(np.array_equal(getattr(first, field.name), getattr(second, field.name)) for field in fields(first))


def never(*_: object) -> DfaScan:
    """Fail: the file should have been used."""
    raise AssertionError("walked again")


def test_a_scan_from_disk_is_the_scan(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later process reads what was walked, each state its own; another vocabulary of the same bytes does not."""
    dfa = class_star("ab")
    states = range(dfa.num_states)
    writing, keeping_none = VocabularyScans(vocabulary, store=store_in(tmp_path)), VocabularyScans(vocabulary)
    made = [kind(dfa, state) for state in states for kind in (writing.scan, writing.groups)]
    alone = [kind(dfa, state) for state in states for kind in (keeping_none.scan, keeping_none.groups)]
    assert all(map(is_same, made, alone))

    monkeypatch.setattr(VocabularyScans, "_computed", never)
    monkeypatch.setattr(VocabularyScans, "_computed_groups", never)
    later = VocabularyScans(vocabulary, store=store_in(tmp_path))
    assert all(map(is_same, (kind(dfa, state) for state in states for kind in (later.scan, later.groups)), alone))
    assert not later.scan(dfa, 0).row.flags.writeable
    longer = Vocabulary.from_bytes([*vocabulary.table.tokens, b"c"], stop_ids=[6])
    with pytest.raises(AssertionError, match="walked again"):
        VocabularyScans(longer, store=store_in(tmp_path)).scan(dfa, 0)


@pytest.mark.parametrize(("kind", "name"), [("scan", "row"), *(("groups", one) for one in ("ends", "nodes", "start"))])
def test_arrays_that_do_not_fit_are_made_anew(vocabulary: Vocabulary, tmp_path: Path, kind: str, name: str) -> None:
    """A file under the right key whose arrays cannot belong together is not used."""
    dfa = class_star("ab")
    store = store_in(tmp_path)
    scans = VocabularyScans(vocabulary, store=store)
    expected = getattr(scans, kind)(dfa, 0)
    arrays = {field.name: getattr(expected, field.name) for field in fields(expected)}
    key = scans._key_text(kind, scans._residue(dfa, 0))
    store.write(key, arrays | {name: np.concatenate([arrays[name], arrays[name][-1:]])})

    assert is_same(getattr(VocabularyScans(vocabulary, store=store), kind)(dfa, 0), expected)


TEXTS = [bytes([byte]) for byte in range(256)] + [
    text.encode() for text in ('"a', '"b"', 'ab"', 'a": ', "\\u0061b", "é", "bé")
]


@pytest.mark.parametrize("words", [("a",), ("ab", "b"), ("é", "abc", "ab")])
def test_keys_with_names_left_out_are_scanned_like_any_other_state(words: tuple[str, ...]) -> None:
    """Scans made from those of nearby states, or shared with another lexeme, equal a walk of their own."""
    vocabulary = Vocabulary.from_bytes([*TEXTS, b""], stop_ids=[len(TEXTS)])
    scans = VocabularyScans(vocabulary)
    walker = TrieWalker(vocabulary.trie)
    plain = lexemes.json_string(None).dfa
    for dfa in (plain, other_words.json_string_except(words), plain):
        no_bound = np.zeros(dfa.num_states, np.int32)
        free = CountedDfa(dfa.delta, dfa.tick_bytes, dfa.accepting, no_bound, no_bound)
        for state in range(dfa.num_states):
            walk = walker.walk(free, state, 0, walker.whole)
            row = scans.new_row()
            set_tokens_(row, np.ascontiguousarray(walk.stay[:, 0]), vocabulary.trie)
            scan, groups = scans.scan(dfa, state), scans.groups(dfa, state)

            assert np.array_equal(scan.row, row)
            assert sorted(scan.exits.tolist()) == walk.exits.tolist()
            ends = np.repeat(groups.ends, np.diff(groups.start), axis=0)
            assert sorted([node, *end] for node, end in zip(groups.nodes.tolist(), ends.tolist(), strict=True)) == (
                walk.stay.tolist()
            )
    assert len(scans._scans) < len(scans._states)


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
    several = [class_star(letters) for letters in ("a", "b", "c", "ab", "bc", "ac", "abc", "abc(")]
    alone = [VocabularyScans(vocabulary).scan(dfa, 0) for dfa in several]
    for turn in range(10):
        scans = VocabularyScans(vocabulary, store=store_in(tmp_path / str(turn)))
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda dfa, scans=scans: scans.scan(dfa, 0), several * 4))
        assert all(map(is_same, found, alone * 4))


def words(number: int) -> Dfa:
    """Return a DFA of two words, one with a byte that the vocabulary lacks."""
    word = format(number, "b").replace("0", "a").replace("1", "b").encode()
    return dfas.from_words([word, word + b"z"])


def test_memory_is_bounded(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lexemes pass by, a fixed number of their scans, costs and cuts stays."""
    monkeypatch.setattr(spelling_module, "_MAX_RESTRICTED", 6)
    monkeypatch.setattr(spelling_module, "_MAX_KNOWN_WHOLE", 7)
    scans, spelling = VocabularyScans(vocabulary, max_scans=5), Spelling(vocabulary)
    for number in range(40):
        cut = spelling.restrict(words(number))
        assert dfas.matches(cut, b"b") is (number == 1)
        assert not dfas.matches(cut, b"bz")
        scans.scan(cut, 0)
        scans.groups(cut, 0)
        assert scans.token_costs(cut)[0] >= 1

    sizes = [len(value) for holder in (scans, spelling) for value in vars(holder).values() if hasattr(value, "get")]
    assert sorted(sizes) == [1, 1, 5, 5, 5, 5, 6, 7]


def test_a_lexeme_of_known_bytes_is_not_copied(vocabulary: Vocabulary) -> None:
    """Where nothing is cut, the DFA is the same object and nothing is kept for it."""
    spelling = Spelling(vocabulary)
    dfa = class_star("ab")

    assert spelling.restrict(dfa) is dfa
    assert len(spelling._restricted) == 0


def test_a_scan_can_be_made_from_that_of_any_state() -> None:
    """Also where nothing is left of the other state's exits; the array is one that compiled walks read."""
    texts = [*TEXTS, b'b"c', b'ab"c']
    vocabulary = Vocabulary.from_bytes([*texts, b""], stop_ids=[len(texts)])
    scans = VocabularyScans(vocabulary)
    dfa = lexemes.json_string(None).dfa
    num_own = 0
    for state in range(dfa.num_states):
        expected = scans.scan(dfa, state)
        for near in range(dfa.num_states):
            made = scans._derived(dfa, state, near, scans.scan(dfa, near))
            assert made is not None
            assert np.array_equal(made.row, expected.row)
            assert sorted(made.exits.tolist()) == sorted(expected.exits.tolist())
            assert made.exits.flags.c_contiguous
            num_own += len(made.exits) > 1 and not len(scans.scan(dfa, near).exits)
    assert num_own


def test_states_of_a_counted_pattern_are_made_from_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scans of 1 to 30 letters equal walks of their own, and after the first few nothing is walked as a whole."""
    texts = [letter * length for letter in (b"a", b"ab", b"b") for length in range(1, 9)]
    vocabulary = Vocabulary.from_bytes([*dict.fromkeys(texts), b""], stop_ids=[len(dict.fromkeys(texts))])
    size = 31
    delta = np.full((size, 256), -1, np.int32)
    delta[np.arange(size - 1)[:, None], np.frombuffer(b"ab", np.uint8)] = np.arange(1, size)[:, None]
    dfa = Dfa.build(delta, np.arange(size) > 0)
    walked: list[int] = []
    computed = VocabularyScans._computed

    def noted(self: VocabularyScans, residue: scan_module._Residue, dfa: Dfa, state: int) -> DfaScan:
        walked.append(state)
        return computed(self, residue, dfa, state)

    monkeypatch.setattr(VocabularyScans, "_computed", noted)
    scans = VocabularyScans(vocabulary)
    for state in range(size):
        alone = VocabularyScans(vocabulary)
        found, expected = scans.scan(dfa, state), alone._computed(alone._residue(dfa, state), dfa, state)

        assert np.array_equal(found.row, expected.row)
        assert sorted(found.exits.tolist()) == sorted(expected.exits.tolist())
    assert len(walked) == size + 1  # one for each that was expected, and the first


def test_masks_with_one_fingerprint_stay_apart(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are shared by what they hold: a fingerprint that many have costs time only."""
    schema = sg.Regex("(ab|b(b|a))+")
    expected = sg.compile(schema, vocabulary, cache=None).start()
    monkeypatch.setattr(core, "fingerprint", lambda _: 7)
    state = sg.compile(schema, vocabulary, cache=None).start()
    for token_id in (2, 1, 7, 3):
        assert np.array_equal(state.mask(), expected.mask())
        if state.allows(token_id):
            state.advance(token_id)
            expected.advance(token_id)
    assert (
        len({state.mask().tobytes() for state in [expected, sg.compile(schema, vocabulary, cache=None).start()]}) == 2
    )
