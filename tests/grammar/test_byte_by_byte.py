"""Whole masks against byte-by-byte acceptance: each token of a vocabulary, read alone, by a recogniser of its own kind.

A token is legal iff its bytes may be read one by one after the text so far and some text goes on from there to the end;
every byte of UTF-8 is a token, so what is left can be spelled. The recogniser (tests/oracle/stepper.py) shares no code
with the masks. Along instances, and along random walks, which come to odd places.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import structgen as sg
from oracle import stepper
from oracle.recognise import accepts
from structgen.grammar.compile import compile_grammar
from structgen.grammar.ir import Grammar
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.output_type import lower
from structgen.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parents[2]
OWN = sorted((ROOT / "benchmarks" / "schemas").glob("*.json"))
REFUSED = "names_differ"
SHARED = ROOT.parent / "shared" / "bench" / "maskbench_a"
LLAMA3 = Path.home() / ".cache" / "structgen-bench" / "tokenizers" / "llama3"
NUM_REAL_SCHEMAS = 200
NUM_PARTS = 10


class Checker:
    """Compares the masks of one grammar with what the recogniser finds."""

    def __init__(self, make: Callable[[], Grammar], vocabulary: Vocabulary, tokens: stepper.Tokens) -> None:
        self.vocabulary = vocabulary
        self.tokens = tokens
        self.automaton: TokenAutomaton = compile_grammar(make(), vocabulary, cache=None)
        self.stepper = stepper.Stepper(make())  # makes all rules; those of the automaton are made as it asks for them
        self.seen: set[int] = set()

    def check(self, state: sg.ParserState, here: int) -> np.ndarray:
        """Assert that the mask is right, all tokens of it; return the legal ids."""
        legal = np.flatnonzero(np.unpackbits(state.mask().view(np.uint8), bitorder="little"))
        if here not in self.seen:  # the recogniser's state says all of what may follow
            self.seen.add(here)
            expected = self.tokens.legal(self.stepper, here)
            if self.stepper.may_end(here):
                expected |= set(self.vocabulary.stop_ids)
            wrong = {token_id: self.vocabulary.token_bytes(token_id) for token_id in expected ^ set(legal.tolist())}
            assert wrong == {}, (state.text_bytes, sorted(wrong.items())[:9])
        assert state.is_accepting == self.stepper.may_end(here)
        return legal

    def read(self, here: int, token_id: int) -> int:
        """Return the recogniser's state after a token, DEAD if it cannot be read."""
        for byte in self.vocabulary.token_bytes(token_id):
            here = self.stepper.step(here, byte)
            if here == stepper.DEAD:
                break
        return here

    def along(self, token_ids: list[int], positions: set[int]) -> None:
        """Check the masks at some positions of a text."""
        state, here = self.automaton.start(), 0
        for position, token_id in enumerate([*token_ids, None]):
            if position in positions:
                self.check(state, here)
            if token_id is None or not state.allows(token_id):
                assert token_id is None or self.read(here, token_id) == stepper.DEAD
                return
            state.advance(token_id)
            here = self.read(here, token_id)

    def walk(self, rng: random.Random, first_bytes: np.ndarray, *, num_tokens: int, every: int) -> None:
        """Check masks along a random walk that likes rare first bytes, as those of structure are rare."""
        state, here = self.automaton.start(), 0
        for position in range(num_tokens):
            if position % every == 0:
                legal = self.check(state, here)
            else:
                legal = np.flatnonzero(np.unpackbits(state.mask().view(np.uint8), bitorder="little"))
            begins = first_bytes[legal]
            choices = np.unique(begins[begins >= 0])
            if not len(choices):
                return
            token_id = int(rng.choice(legal[begins == rng.choice(choices)]))
            state.advance(token_id)
            here = self.read(here, token_id)


def first_bytes_of(vocabulary: Vocabulary) -> np.ndarray:
    """Return the first byte of each token, -1 for those that are no text."""
    spelled = [vocabulary.token_bytes(token_id) for token_id in range(vocabulary.size)]
    return np.array([text[0] if text else -1 for text in spelled])


def grammar_of(schema: Any, **options: Any) -> Grammar:
    """Return the grammar of a schema, white space free as in the texts of other people."""
    return lower(sg.JsonSchema(schema, whitespace="any"), **options).grammar


def written(data: Any) -> str:
    """Return an instance as most programs write it."""
    return json.dumps(data, ensure_ascii=False)


def medium_vocabulary() -> Vocabulary:
    """Return every byte, and all pieces of up to six characters of the own instances: most cross some border."""
    texts = [written(test["data"]) for path in OWN for test in json.loads(path.read_text())["tests"]]
    pieces = {text[at : at + size].encode() for text in texts for at in range(len(text)) for size in range(2, 7)}
    chosen = random.Random(3).sample(sorted(pieces), 3000)
    tokens = [*(bytes([byte]) for byte in range(256)), *chosen, b'":', b'","', b'"}', b"}]", b"\xf0\x9f", b""]
    return Vocabulary.from_bytes(tokens, stop_ids=[len(tokens) - 1])


def cut(text: bytes, rng: random.Random, ids: dict[bytes, int]) -> list[int]:
    """Return a text as random tokens."""
    found, at = [], 0
    while at < len(text):
        fits = [size for size in range(1, 8) if text[at : at + size] in ids]
        size = rng.choice(fits)
        found.append(ids[text[at : at + size]])
        at += size
    return found


@pytest.fixture(scope="module")
def medium() -> tuple[Vocabulary, stepper.Tokens]:
    """Return the vocabulary of a few thousand tokens."""
    vocabulary = medium_vocabulary()
    return vocabulary, stepper.Tokens(vocabulary)


@pytest.mark.parametrize("property_order", ["declared", "any"])
@pytest.mark.parametrize("path", [path for path in OWN if path.stem != REFUSED], ids=lambda path: path.stem)
def test_masks_are_byte_by_byte_acceptance(
    path: Path, property_order: str, medium: tuple[Vocabulary, stepper.Tokens]
) -> None:
    """At each position of each instance, valid or not, and along random walks: all of some thousand tokens."""
    vocabulary, tokens = medium
    case = json.loads(path.read_text())
    checker = Checker(lambda: grammar_of(case["schema"], property_order=property_order), vocabulary, tokens)
    rng = random.Random(path.stem)
    ids = dict(tokens.spelled)
    for test in case["tests"]:
        token_ids = cut(written(test["data"]).encode(), rng, ids)
        checker.along(token_ids, set(range(0, len(token_ids) + 1, 2)))
    for _ in range(3):
        checker.walk(rng, first_bytes_of(vocabulary), num_tokens=30, every=2)
    assert len(checker.seen) > 20


@pytest.mark.parametrize("path", [path for path in OWN if path.stem != REFUSED], ids=lambda path: path.stem)
def test_the_recogniser_is_right(path: Path) -> None:
    """It accepts what the labels say, and what the recogniser by fixed points does, which reads texts as wholes."""
    case = json.loads(path.read_text())
    grammar = grammar_of(case["schema"])
    one = stepper.Stepper(grammar)
    for test in case["tests"]:
        text = written(test["data"]).encode()
        assert stepper.accepts(one, text) == accepts(grammar, text)
        assert stepper.accepts(one, text) == test["valid"] or path.stem == "key_order"


@pytest.fixture(scope="module")
def llama3() -> tuple[Any, Vocabulary, stepper.Tokens, np.ndarray]:
    """Return the tokenizer of Llama 3, and what the checks need of its vocabulary."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(LLAMA3)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.size == 128_256
    return tokenizer, vocabulary, stepper.Tokens(vocabulary), first_bytes_of(vocabulary)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:.*is ignored")  # what other people misspelt
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the MaskBench sample in ../shared/bench")
@pytest.mark.skipif(not LLAMA3.is_dir(), reason=f"needs the tokenizer of Llama 3 in {LLAMA3}")
@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_masks_of_real_schemas_are_byte_by_byte_acceptance(part: int, llama3: Any) -> None:
    """At sampled positions of valid instances of MaskBench, and along a random walk: all 128,256 tokens of Llama 3."""
    tokenizer, vocabulary, tokens, first_bytes = llama3
    paths = random.Random(2026).sample(sorted(SHARED.glob("*.json")), NUM_REAL_SCHEMAS)
    num_masks = 0
    for path in paths[part::NUM_PARTS]:
        case, rng = json.loads(path.read_text()), random.Random(path.stem)
        try:
            checker = Checker(lambda schema=case["schema"]: grammar_of(schema), vocabulary, tokens)
        except sg.StructgenError:
            continue  # refused by name: no mask
        for test in [test for test in case["tests"] if test["valid"]][:3]:
            token_ids = tokenizer.encode(written(test["data"]), add_special_tokens=False)
            checker.along(token_ids, set(rng.sample(range(len(token_ids) + 1), min(4, len(token_ids) + 1))))
        checker.walk(rng, first_bytes, num_tokens=24, every=4)
        num_masks += len(checker.seen)
    assert num_masks > 100
