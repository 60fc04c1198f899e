"""The compile cache: one automaton per key, rows that survive the process, damage that does not matter."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from oracle.strategies import class_star
from structgen import array_store
from structgen.config import Limits
from structgen.grammar import cache as cache_module
from structgen.grammar.cache import CacheOutcome, CompileCache
from structgen.grammar.canonical import canonical_text
from structgen.grammar.compile import compile_grammar
from structgen.grammar.ir import Choice, Grammar, LazyRules, Lexeme, Literal, Reference, Sequence
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.regex import classes
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.vocabulary import Vocabulary

TOKENS = [b"a", b"b", b"ab", b"(", b")", b"()", b"))", b"<stop>"]


def grammar_of(letters: str = "ab") -> Grammar:
    """Return nested brackets around at most five letters."""
    nested = Sequence((Literal(b"("), Reference("s"), Literal(b")")))
    return Grammar({"s": Choice((nested, Lexeme(class_star(letters), 0, 5)))}, "s")


def walk(automaton: TokenAutomaton) -> list[np.ndarray]:
    """Return the masks along one text."""
    state = automaton.start()
    masks = [state.mask()]
    for token in [3, 3, 2, 0, 6]:
        state.advance(token)
        masks.append(state.mask())
    return masks


@pytest.fixture
def vocabulary() -> Vocabulary:
    """Return a few tokens over two letters and brackets."""
    return Vocabulary.from_bytes(TOKENS, stop_ids=[7])


def test_same_grammar_is_compiled_once(vocabulary):
    """Two compilations of equal grammars give one automaton; another grammar or vocabulary gives another."""
    cache = CompileCache()

    first, outcome = cache.compile(grammar_of(), vocabulary, Limits())
    again, second_outcome = cache.compile(grammar_of(), vocabulary, Limits())
    other, _ = cache.compile(grammar_of("a"), vocabulary, Limits())
    elsewhere, _ = cache.compile(grammar_of(), Vocabulary.from_bytes(TOKENS, stop_ids=[7, 6]), Limits())

    assert first is again
    assert (outcome, second_outcome) == (CacheOutcome.MISS, CacheOutcome.MEMORY)
    assert len({id(first), id(other), id(elsewhere)}) == 3


def test_rows_come_back_from_disk(vocabulary, tmp_path):
    """A second process finds the rows of the first, and they are the same bit for bit."""
    cache = CompileCache(tmp_path)
    automaton, _ = cache.compile(grammar_of(), vocabulary, Limits())
    expected = walk(automaton)

    assert cache.store(grammar_of(), automaton, Limits())
    assert not cache.store(grammar_of(), automaton, Limits())

    later = CompileCache(tmp_path)
    restored, outcome = later.compile(grammar_of(), vocabulary, Limits())

    assert outcome is CacheOutcome.DISK
    assert all(np.array_equal(a, b) for a, b in zip(walk(restored), expected, strict=True))
    assert restored.num_rows == automaton.num_rows


def test_restored_rows_obey_budgets(vocabulary, tmp_path):
    """Near the end of a budget, rows from disk are cut like rows just made."""
    cache = CompileCache(tmp_path)
    automaton, _ = cache.compile(grammar_of(), vocabulary, Limits())
    walk(automaton)
    cache.store(grammar_of(), automaton, Limits())
    restored, _ = CompileCache(tmp_path).compile(grammar_of(), vocabulary, Limits())
    walk(restored)

    for budget in range(1, 6):
        assert np.array_equal(restored.start().mask_within(budget), automaton.start().mask_within(budget))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other key"])
def test_damaged_file_is_rebuilt(vocabulary, tmp_path, damage):
    """A file that is not what was written is a miss, never an error and never a wrong row."""
    cache = CompileCache(tmp_path)
    automaton, _ = cache.compile(grammar_of(), vocabulary, Limits())
    expected = walk(automaton)
    cache.store(grammar_of(), automaton, Limits())
    (path,) = tmp_path.glob("*.arrays")
    data = path.read_bytes()
    if damage == "other key":
        other, _ = cache.compile(grammar_of("a"), vocabulary, Limits())
        other.start().mask()
        cache.store(grammar_of("a"), other, Limits())
        (other_path,) = set(tmp_path.glob("*.arrays")) - {path}
        data = other_path.read_bytes()
    elif damage == "flipped":
        data = data[:-400] + bytes(byte ^ 255 for byte in data[-400:-300]) + data[-300:]
    else:
        data = data[: len(data) // 2] if damage == "cut" else b""
    path.write_bytes(data)

    restored, outcome = CompileCache(tmp_path).compile(grammar_of(), vocabulary, Limits())

    assert outcome is CacheOutcome.MISS
    assert all(np.array_equal(a, b) for a, b in zip(walk(restored), expected, strict=True))


def test_rows_of_other_code_are_not_used(vocabulary, tmp_path, monkeypatch):
    """Rows hang on the numbers of states and productions: after a change in the sources they are made anew."""
    cache = CompileCache(tmp_path)
    automaton, _ = cache.compile(grammar_of(), vocabulary, Limits())
    walk(automaton)
    cache.store(grammar_of(), automaton, Limits())

    monkeypatch.setattr(array_store, "source_digest", lambda *parts: "of a later version")

    assert CompileCache(tmp_path).compile(grammar_of(), vocabulary, Limits())[1] is CacheOutcome.MISS
    monkeypatch.undo()
    assert CompileCache(tmp_path).compile(grammar_of(), vocabulary, Limits())[1] is CacheOutcome.DISK


def test_folder_is_bounded(vocabulary, tmp_path):
    """The files used longest ago go when the folder outgrows its bound, wherever in it they are."""
    below = tmp_path / "scans" / "of an earlier version"
    below.mkdir(parents=True)
    (below / f"{'0' * 40}-3.npz").write_bytes(b"a scan")
    cache = CompileCache(tmp_path, max_disk_mb=0)
    automaton, _ = cache.compile(grammar_of(), vocabulary, Limits())
    walk(automaton)
    cache.store(grammar_of(), automaton, Limits())

    assert not list(tmp_path.rglob("*.arrays"))


def test_a_disk_that_fails_loses_no_result(vocabulary, tmp_path, caplog):
    """A folder that cannot be written makes store say so; it does not raise, and the automaton works."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache = CompileCache(blocked / "folder")
    automaton, outcome = cache.compile(grammar_of(), vocabulary, Limits())
    walk(automaton)

    assert outcome is CacheOutcome.MISS
    assert not cache.store(grammar_of(), automaton, Limits())
    assert "not kept" in caplog.text


def test_a_long_running_process_keeps_no_more_than_its_bounds(vocabulary, tmp_path, monkeypatch):
    """Whatever has been compiled before, a cache holds what its bounds allow, and forgets what nobody holds."""
    monkeypatch.setattr(cache_module, "_MAX_COUNTED", 5)
    cache = CompileCache(tmp_path, max_automata=2)
    for length in range(1, 30):
        grammar = Grammar({"s": Lexeme(class_star("ab"), 0, length)}, "s")
        automaton, _ = cache.compile(grammar, vocabulary, Limits())
        automaton.start().mask()
        assert cache.store(grammar, automaton, Limits())
    del automaton
    gc.collect()

    sizes = {name: len(value) for name, value in vars(cache).items() if hasattr(value, "__len__")}
    assert {"_automata", "_num_builds", "_num_stored_rows", "_shared"} <= set(sizes)
    assert max(sizes.values()) <= 5
    assert sizes["_num_stored_rows"] == sizes["_automata"] == 2


def test_recompiling_for_ever_warns(vocabulary):
    """A cache too small for its use says so."""
    cache = CompileCache(max_automata=1)

    for letters in ["a", "b", "a", "b"]:
        cache.compile(grammar_of(letters), vocabulary, Limits())

    with pytest.warns(UserWarning, match="max_automata"):
        cache.compile(grammar_of("a"), vocabulary, Limits())


def test_eight_threads_compile_and_walk_eight_grammars(vocabulary):
    """Threads that share a cache and a vocabulary see the masks that one thread alone sees."""
    letters = ["a", "b", "ab", "é", "aé", "bé", "abé", "c"]
    texts = [[3, 0, 4] if "a" in one else [3, 1, 4] if "b" in one else [3, 4] for one in letters]

    def masks_of(cache: CompileCache, one: str, tokens: list[int]) -> list[bytes]:
        state = cache.compile(grammar_of(one), vocabulary, Limits())[0].start()
        seen = [state.mask().tobytes()]
        for token in tokens:
            state.advance(token)
            seen.append(state.mask().tobytes())
        return [*seen, bytes([state.tokens_to_end_bound])]

    alone = CompileCache()
    expected = [masks_of(alone, one, tokens) for one, tokens in zip(letters, texts, strict=True)]
    shared = CompileCache()
    results: dict[int, list[list[bytes]]] = {}

    def work(index: int) -> None:
        order = [(index + shift) % 8 for shift in range(8)]
        found = {place: masks_of(shared, letters[place], texts[place]) for place in order}
        results[index] = [found[place] for place in range(8)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == dict.fromkeys(range(8), expected)


def test_rule_names_are_no_literals(vocabulary):
    """A rule whose name is how a literal is written is another grammar."""
    nested = Choice((Literal(b"x"), Sequence((Literal(b"y"), Reference("61")))))
    first = Grammar({"s": Sequence((Literal(b"a"), Reference("61"))), "61": nested}, "s")
    second = Grammar({"s": Sequence((Reference("61"), Reference("61"))), "61": nested}, "s")

    assert canonical_text(first) != canonical_text(second)


def test_key_of_a_schema_makes_no_rule(vocabulary, monkeypatch):
    """The key of a schema is written without its rules, and whatever changes these changes the key."""
    schema = {"properties": {"a": {"type": "object"}, "b": {}}}
    manners = [
        {},
        {"whitespace": "compact"},
        {"property_order": "any"},
        {"closed": True},
    ]
    grammars = [lower_schema(schema, **manner) for manner in manners]
    grammars.append(lower_schema({"properties": {"b": {}, "a": {"type": "object"}}}))
    again = lower_schema(schema)
    texts = {canonical_text(grammar) for grammar in grammars}
    monkeypatch.setattr(LazyRules, "__iter__", None)

    keys = [cache_module.key_text(grammar, vocabulary, Limits()) for grammar in grammars]

    assert len(texts) == len({*keys}) == len(grammars)
    assert cache_module.key_text(again, vocabulary, Limits()) == keys[0]


def test_key_of_a_schema_names_whose_characters_its_patterns_hold(vocabulary, monkeypatch):
    """Rows made where a script or a category holds other characters are not those of the same schema here."""
    keys = set()
    for version in (classes.VERSIONS, "Python 3.99.0, regex 2019.1.1"):
        monkeypatch.setattr(classes, "VERSIONS", version)
        keys.add(cache_module.key_text(lower_schema({"pattern": r"^\p{Lu}+$"}), vocabulary, Limits()))

    assert len(keys) == 2


def test_no_cache_compiles_anew(vocabulary):
    """cache=None gives a new automaton each time."""
    first = compile_grammar(grammar_of(), vocabulary, cache=None)

    assert compile_grammar(grammar_of(), vocabulary, cache=None) is not first
