"""Rows on disk, over real declarations: what is read is what would be made, and only for the very same question."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import structgen as sg
from structgen.array_file import read_arrays, write_arrays
from structgen.config import Limits, Policy
from structgen.grammar.cache import CacheOutcome, CompileCache
from structgen.grammar.compile import compile_grammar
from structgen.grammar.ir import Grammar
from structgen.grammar.met_states import ARRAYS
from structgen.grammar.policy import apply_policy
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.output_type import lower
from structgen.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parents[2]
OWN = [path for path in sorted((ROOT / "benchmarks" / "schemas").glob("*.json")) if path.stem != "names_differ"]
PIECES = [b'":', b'", "', b'{"', b"}, {", b": [", b"null", b"true", b" 1", b"20", b"an", b"e", b"\xc3", "é".encode()]
TOKENS = [*(bytes([byte]) for byte in range(256)), *PIECES, b"<stop>", b"<end>"]
STOP = len(TOKENS) - 2
LIMITS = Limits()


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """Return every byte and a few pieces of JSON."""
    return Vocabulary.from_bytes(TOKENS, stop_ids=[STOP])


def grammar_of(schema: Any, **options: Any) -> Grammar:
    """Return the grammar of a schema, made anew."""
    return lower(sg.JsonSchema(schema), **({"whitespace": "spaced"} | options)).grammar


def walks_over(automaton: TokenAutomaton, seed: int, *, num_tokens: int = 25) -> list[tuple[int, ...]]:
    """Return the tokens of a few random walks."""
    rng, found = random.Random(seed), []
    for _ in range(6):
        state = automaton.start()
        for _ in range(num_tokens):
            legal = np.flatnonzero(np.unpackbits(state.mask().view(np.uint8), bitorder="little"))
            if not len(legal):
                break
            state.advance(int(rng.choice(legal)))
        found.append(state.token_ids)
    return found


def masks_along(automaton: TokenAutomaton, walks: list[tuple[int, ...]]) -> list[bytes]:
    """Return all that an automaton says along some walks: masks, masks within budgets, costs, ends."""
    found = []
    for token_ids in walks:
        state = automaton.start()
        for token_id in token_ids:
            bound = state.tokens_to_end_bound
            found += [state.mask().tobytes(), bytes([state.is_accepting, bound & 255])]
            found += [state.mask_within(budget).tobytes() for budget in (bound, bound + 1, bound + 3) if budget]
            state.advance(token_id)
    return found


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.parametrize("property_order", ["declared", "any"])
def test_cached_and_fresh_agree(path: Path, property_order: str, vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Rows that one process made in one order say the same to another that walks in another order."""
    schema = json.loads(path.read_text())["schema"]

    def grammar() -> Grammar:
        return grammar_of(schema, property_order=property_order)

    first = CompileCache(tmp_path)
    automaton, outcome = first.compile(grammar(), vocabulary, Limits())
    assert outcome is CacheOutcome.MISS
    walks = walks_over(automaton, 1)
    masks_along(automaton, walks)
    assert first.store(grammar(), automaton, Limits())

    fresh = compile_grammar(grammar(), vocabulary, cache=None)
    restored, outcome = CompileCache(tmp_path).compile(grammar(), vocabulary, Limits())
    assert outcome is CacheOutcome.DISK
    mixed = [*walks_over(fresh, 2), *reversed(walks)]
    assert masks_along(restored, mixed) == masks_along(fresh, mixed)


SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}}}


def store_rows(folder: Path, vocabulary: Vocabulary, grammar: Grammar, limits: Limits = LIMITS) -> list[bytes]:
    """Store the rows along some walks; return what the automaton said along them."""
    cache = CompileCache(folder)
    automaton, outcome = cache.compile(grammar, vocabulary, limits)
    assert outcome is CacheOutcome.MISS
    said = masks_along(automaton, walks_over(automaton, 5, num_tokens=8))
    assert cache.store(grammar, automaton, limits)
    return said


def outcome_of(
    folder: Path, vocabulary: Vocabulary, grammar: Grammar, limits: Limits = LIMITS
) -> tuple[CacheOutcome, list[bytes]]:
    """Return where a new process finds the automaton, and what it says along the same walks."""
    automaton, outcome = CompileCache(folder).compile(grammar, vocabulary, limits)
    return outcome, masks_along(automaton, walks_over(automaton, 5, num_tokens=8))


def test_a_file_that_was_cut_is_made_anew(tmp_path: Path) -> None:
    """However much of the end is missing, nothing of the file is used, and it is whole again after the next store."""
    few = Vocabulary.from_bytes([b"t", b"f", b"true", b"false", b"rue", b"alse", b""], stop_ids=[6])
    grammar = grammar_of({"type": "boolean"})
    said = store_rows(tmp_path, few, grammar)
    (file,) = tmp_path.glob("*.arrays")
    whole = file.read_bytes()
    for length in range(0, len(whole), 37):  # tests/store tries each
        file.write_bytes(whole[:length])
        assert CompileCache(tmp_path).compile(grammar, few, Limits())[1] is CacheOutcome.MISS, length
    assert outcome_of(tmp_path, few, grammar) == (CacheOutcome.MISS, said)
    file.unlink()
    assert store_rows(tmp_path, few, grammar) == said
    assert outcome_of(tmp_path, few, grammar) == (CacheOutcome.DISK, said)


@pytest.mark.parametrize("name", ["key", *ARRAYS])
@pytest.mark.parametrize("damage", ["a bit", "gone", "longer", "of another type"])
def test_damage_to_any_array_is_noticed(name: str, damage: str, vocabulary: Vocabulary, tmp_path: Path) -> None:
    """A changed bit, an array that is missing, does not fit the others or is of another type: all is made anew."""
    said = store_rows(tmp_path, vocabulary, grammar_of(SCHEMA))
    (file,) = tmp_path.glob("*.arrays")
    arrays = dict(read_arrays(file))
    array = arrays.pop(name)
    if damage == "a bit":
        data = bytearray(file.read_bytes())
        data[data.index(array.tobytes())] ^= 1
        file.write_bytes(data)
    else:
        if damage == "longer":
            arrays[name] = np.concatenate([array, array[:1]])
        elif damage == "of another type":
            arrays[name] = array.astype(np.float64)
        write_arrays(file, arrays)
    assert outcome_of(tmp_path, vocabulary, grammar_of(SCHEMA)) == (CacheOutcome.MISS, said)


OTHERS: dict[str, tuple[list[bytes], list[int]]] = {
    "two tokens change places": ([TOKENS[1], TOKENS[0], *TOKENS[2:]], [STOP]),
    "one more token": ([*TOKENS, b"more"], [STOP]),
    "one less": ([*TOKENS[:255], *TOKENS[256:]], [STOP - 1]),
    "a token is spelled otherwise": ([*TOKENS[:260], b"tr", *TOKENS[261:]], [STOP]),
    "another stop token": (TOKENS, [STOP + 1]),
    "one more stop token": (TOKENS, [STOP, STOP + 1]),
}


@pytest.mark.parametrize("other", list(OTHERS))
def test_another_tokenizer_never_hits(other: str, vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Rows of a vocabulary that is nearly the same are not used."""
    store_rows(tmp_path, vocabulary, grammar_of(SCHEMA))
    tokens, stop_ids = OTHERS[other]
    nearly = Vocabulary.from_bytes(tokens, stop_ids=stop_ids)
    outcome, said = outcome_of(tmp_path, nearly, grammar_of(SCHEMA))
    fresh = compile_grammar(grammar_of(SCHEMA), nearly, cache=None)
    assert outcome is CacheOutcome.MISS
    assert said == masks_along(fresh, walks_over(fresh, 5, num_tokens=8))


def test_other_options_never_hit(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Each style, order, policy, limit and schema has rows of its own; the same ones find them."""
    questions: list[tuple[Grammar, Limits]] = []
    for style in ("compact", "spaced", "pretty", "any"):
        for order in ("declared", "any"):
            questions.append((grammar_of(SCHEMA, whitespace=style, property_order=order), Limits()))
    plain = grammar_of(SCHEMA)
    questions += [(apply_policy(plain, Policy(**options))[0], Limits()) for options in ({}, {"max_digits": 3})]
    questions += [(plain, Limits(**{name: 500})) for name in ("compile_seconds", "states", "memory_mb", "depth")]
    questions.append((grammar_of(SCHEMA | {"required": ["a"]}), Limits()))
    for grammar, limits in questions:
        store_rows(tmp_path, vocabulary, grammar, limits)  # asserts that nothing was found
    for grammar, limits in questions:
        assert outcome_of(tmp_path, vocabulary, grammar, limits)[0] is CacheOutcome.DISK


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from grammar import test_cache_on_disk as cases
from structgen.config import Limits, Policy
from structgen.grammar.cache import CompileCache

vocabulary = cases.Vocabulary.from_bytes(cases.TOKENS, stop_ids=[cases.STOP])
fresh = cases.compile_grammar(cases.grammar_of(cases.SCHEMA), vocabulary, cache=None)
walks = cases.walks_over(fresh, 5)
expected = cases.masks_along(fresh, walks)
hits = 0
for turn in range(15):
    cache = CompileCache(Path(sys.argv[3]))
    grammar = cases.grammar_of(cases.SCHEMA)
    automaton, outcome = cache.compile(grammar, vocabulary, Limits())
    assert cases.masks_along(automaton, walks) == expected
    hits += outcome is cases.CacheOutcome.DISK
    for path in Path(sys.argv[3]).glob("*.arrays") if turn % 3 == 0 else ():
        path.unlink(missing_ok=True)
    cache._num_stored_rows.clear()
    assert cache.store(grammar, automaton, Limits())
print(hits)
"""


def test_two_processes_write_the_same_entry_at_once(tmp_path: Path) -> None:
    """Both compile, store, delete and read one entry all the time: each always says what a fresh one does."""
    command = [sys.executable, "-W", "error", "-c", WRITER, str(ROOT), str(ROOT / "tests"), str(tmp_path)]
    writers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ""})
        for _ in range(2)
    ]
    for writer in writers:
        out, err = writer.communicate(timeout=240)
        assert writer.returncode == 0, err.decode()
        assert int(out) > 4
    assert not list(tmp_path.glob("*.part"))
