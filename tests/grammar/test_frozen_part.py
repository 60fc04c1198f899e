"""A part of an automaton says of the states that it describes what the lazy one says, and names the others."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import structgen as sg
from json_strategies import schemas as json_schemas
from oracle.frozen import legal_tokens
from oracle.strategies import grammars, vocabularies
from structgen.config import Limits
from structgen.errors import (
    DeclareError,
    LimitError,
    OptionError,
    UnsatisfiableError,
    VocabularyError,
)
from structgen.frozen_machine import FrozenMachine
from structgen.frozen_pieces import GrowingMachine, Piece
from structgen.grammar import frozen_part
from structgen.grammar.build import build_automaton
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.grammar.frozen_part import FrozenPart
from structgen.grammar.ir import Grammar
from structgen.grammar.parser_state import ParserState
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.output_type import lower
from structgen.vocabulary import Vocabulary

PIECES = [
    "na",
    "name",
    '":',
    '{"',
    '", "',
    '"}',
    "ab",
    "aab",
    "aaaaaa",
    "tru",
    "true",
    "12",
    "  ",
    "é",
    "[[[[",
    "]]",
    "[[",
]
BYTES = Vocabulary.from_bytes([*(bytes([b]) for b in range(256)), *map(str.encode, PIECES), b"", b""], stop_ids=[274])
NESTED = sg.JsonSchema(
    {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "ab": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                "required": ["name", "ab"],
                "additionalProperties": False,
            }
        },
    },
    whitespace="spaced",
)


def built(grammar: Grammar, vocabulary: Vocabulary, limits: Limits) -> TokenAutomaton:
    """Return the automaton, nothing of it cached."""
    return build_automaton(grammar, VocabularyScans(vocabulary), Spelling(vocabulary), limits=limits, digest="test")


def place_of(part: FrozenPart, number: int) -> tuple[FrozenMachine, int, np.ndarray] | None:
    """Return the machine that describes a state, its number there, and the numbers of that machine's states."""
    for piece in part.machine.pieces:
        (local,) = np.flatnonzero(piece.numbers == number)[:1].tolist() or [-1]
        if 0 <= local < piece.num_described or local == piece.machine.end:
            return piece.machine, local, piece.numbers
    return None


def check_walk(automaton: TokenAutomaton, part: FrozenPart, generator: random.Random) -> bool:
    """Walk both over random legal tokens, as far as the part goes; return whether it was left before the end."""
    vocabulary = automaton.vocabulary
    lazy, number = automaton.start(), part.machine.start
    for _ in range(40):
        text_ids = [token for token in lazy.token_ids if token not in vocabulary.stop_ids]
        found = place_of(part, number)
        if found is None:
            assert part.states_along(text_ids)[-1] == -1
            return True
        machine, state, numbers = found
        assert machine.cost[state] == lazy.tokens_to_end_bound
        assert lazy.is_finished or machine.accepting[state] == lazy.is_accepting
        if not lazy.is_finished:
            assert part.states_along(text_ids)[-1] == number
        assert np.array_equal(machine.mask_rows[machine.mask_row[state]], lazy.mask()), lazy.text_bytes
        free, row = lazy.free_text_mask(), machine.free_row[state]
        assert (free is None) == (row < 0)
        assert free is None or np.array_equal(free, machine.mask_rows[row])
        after = machine.next_state[state][machine.token_class]
        legal = legal_tokens(lazy, vocabulary)
        assert np.flatnonzero(after >= 0).tolist() == legal
        assert machine.cost_after[state] == machine.cost[after[legal]].max(initial=0)
        if not legal:
            return False
        check_forced(part, number, lazy)
        token = generator.choice(legal)
        lazy.advance(token)
        number = int(numbers[after[token]])
    return False


def check_forced(part: FrozenPart, number: int, lazy: ParserState) -> None:
    """Assert that the bytes which are said to be forced are."""
    for piece in part.machine.pieces:
        for local in np.flatnonzero(piece.numbers[: piece.num_described] == number).tolist():
            forced = lazy.automaton.vocabulary.decode(piece.forced[local])
            assert lazy.is_finished or lazy.forced_bytes().startswith(forced)


def check_part(grammar: Grammar, vocabulary: Vocabulary, num_states: int, seed: int) -> None:
    """Freeze a part, walk it, meet a text, wait at the states of another, and walk what has grown."""
    generator = random.Random(seed)
    try:
        automaton = built(grammar, vocabulary, Limits(states=1500, depth=40))
        part = automaton.freeze_part(num_states=num_states)
    except (UnsatisfiableError, VocabularyError, LimitError):
        assume(False)
    assert part.machine.num_described <= num_states
    for _ in range(3):
        check_walk(automaton, part, generator)
    part.meet(random_text(automaton, generator))
    walk = part.start()
    is_known = part.describe(walk)
    for token in random_text(automaton, generator):
        walk.advance(token)
        is_known = part.describe(walk)
        assert is_known == (part.states_along(walk.token_ids)[-1] >= 0)
    for _ in range(3):
        check_walk(automaton, part, generator)


def random_text(automaton: TokenAutomaton, generator: random.Random) -> list[int]:
    """Return a few legal tokens."""
    lazy = automaton.start()
    for _ in range(6):
        legal = sorted(set(legal_tokens(lazy, automaton.vocabulary)) - set(automaton.vocabulary.stop_ids))
        if not legal:
            break
        lazy.advance(generator.choice(legal))
    return list(lazy.token_ids)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe no more than is asked for."""
    monkeypatch.setattr(frozen_part, "_LEAST_PIECE", 1)
    monkeypatch.setattr(frozen_part, "_MOST_PIECE", 1)


@given(grammars(), vocabularies(), st.integers(1, 40), st.integers(0, 1000))
@settings(max_examples=settings.default.max_examples // 2)
def test_parts_of_random_grammars_agree(grammar, vocabulary, num_states, seed):
    """Recursion, ambiguity, counts and vocabularies that lack bytes included."""
    check_part(grammar, vocabulary, num_states, seed)


@given(json_schemas, st.integers(1, 60), st.integers(0, 1000))
@settings(max_examples=settings.default.max_examples // 2)
def test_parts_of_random_schemas_agree(schema, num_states, seed):
    """Over every byte and some pieces."""
    try:
        grammar = lower(sg.JsonSchema(schema, whitespace="spaced")).grammar
    except (DeclareError, UnsatisfiableError, LimitError):
        assume(False)
    check_part(grammar, BYTES, num_states, seed)


def compiled(output_type: Any) -> TokenAutomaton:
    """Return an automaton over bytes and some pieces."""
    return sg.compile(output_type, BYTES, cache=None)


@pytest.mark.parametrize(
    ("output_type", "num_states"),
    [(NESTED, 60), (sg.Lark('start: "a" | "[" start "]"'), 12)],
    ids=["schema", "brackets"],
)
def test_nesting_without_a_bound_has_a_part(output_type: Any, num_states: int) -> None:
    """What cannot be frozen whole is described near the start, and its border is met."""
    automaton = compiled(output_type)
    with pytest.raises(LimitError):
        automaton.freeze()
    assert automaton.frozen_part is None
    part = automaton.freeze_part(num_states=num_states)
    assert automaton.frozen_part is part
    assert not part.machine.pieces[0].machine.is_whole
    generator = random.Random(1)
    assert any(check_walk(automaton, part, generator) for _ in range(20))
    assert not automaton.is_frozen


@pytest.mark.usefixtures("small_pieces")
def test_what_was_met_is_described_and_stays() -> None:
    """A deep text is described from beginning to end once it was met; states keep their numbers."""
    token_ids = BYTES.encode(json.dumps(tree(12)).encode())
    part = compiled(NESTED).freeze_part(num_states=400)
    before = part.states_along(token_ids)
    assert len(before) == len(token_ids) + 1
    assert -1 in before
    machine, (first,) = part.machine, part.machine.pieces
    part.meet(token_ids)
    after = part.states_along(token_ids)
    assert part.machine is machine
    assert machine.pieces[0] is first
    assert -1 not in after
    assert [new for old, new in zip(before, after, strict=True) if old >= 0] == [old for old in before if old >= 0]
    pieces = machine.pieces
    part.meet(token_ids)
    assert machine.pieces is pieces


@pytest.mark.usefixtures("small_pieces")
def test_whoever_waits_is_told_of_one_state_more() -> None:
    """Each state of a text in turn, where pieces are as small as they can be."""
    part = compiled(NESTED).freeze_part(num_states=30)
    walk = part.start()
    num_waits = 0
    for token in BYTES.encode(json.dumps(tree(4)).encode()):
        walk.advance(token)
        num_pieces, is_known = len(part.machine.pieces), part.states_along(walk.token_ids)[-1] >= 0
        assert part.describe(walk)
        assert part.states_along(walk.token_ids)[-1] >= 0
        assert len(part.machine.pieces) == num_pieces + (not is_known)
        num_waits += not is_known
    assert num_waits > 40
    assert not part.is_full


def test_threads_share_a_part() -> None:
    """They describe and walk at once; what they find is what the lazy automaton says."""
    automaton = compiled(NESTED)
    part = automaton.freeze_part(num_states=30)

    def work(seed: int) -> None:
        generator = random.Random(seed)
        for _ in range(4):
            walk = part.start()
            for token in random_text(automaton, generator):
                walk.advance(token)
                assert part.describe(walk)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    generator = random.Random(9)
    for _ in range(10):
        check_walk(automaton, part, generator)


def tree(depth: int) -> dict[str, Any]:
    """Return trees in trees."""
    return {"name": "x", "ab": [tree(depth - 1)] if depth else []}


def test_long_tokens_are_followed_to_their_ends() -> None:
    """A count of many characters, and tokens of hundreds of them: all states can be described."""
    pieces = [bytes([b]) for b in range(97, 123)] + [b"[", b"]", b"a" * 300, b"b" * 120, b""]
    vocabulary = sg.Vocabulary.from_bytes(pieces, stop_ids=[len(pieces) - 1])
    nested = sg.Lark('start: "[" (NAME | start) "]"\nNAME: /[a-z]{1,400}/')
    part = sg.compile(nested, vocabulary, cache=None).freeze_part(num_states=1)
    walk = part.start()
    for token in vocabulary.encode(b"[[[" + b"a" * 330 + b"b" * 40 + b"]]]"):
        walk.advance(token)
        assert part.describe(walk)


def test_a_small_language_is_described_whole() -> None:
    """Then nothing is only named, and it is as long as the frozen one."""
    automaton = compiled(sg.Regex("[a-c]{2,5}|é+x?"))
    ((piece,), frozen) = automaton.freeze_part(num_states=1000).machine.pieces, automaton
    frozen.freeze()
    assert piece.machine.is_whole
    assert frozen.frozen_machine is not None
    assert piece.machine.num_states == frozen.frozen_machine.num_states
    assert piece.machine.num_classes == frozen.frozen_machine.num_classes


def test_what_is_met_stops_where_a_text_cannot_be_read() -> None:
    """Illegal tokens and tokens without text are no states."""
    part = compiled(NESTED).freeze_part(num_states=50)
    part.meet([ord("x"), ord("{")])
    part.meet([273])
    assert part.states_along([ord("x"), ord("{")]) == [part.machine.start]
    assert len(part.machine.pieces) == 1


def test_a_part_is_stored_but_not_walked_by_itself(tmp_path) -> None:
    """A file holds a piece; an automaton of all states cannot be made of it."""
    machine = compiled(NESTED).freeze_part(num_states=50).machine.pieces[0].machine
    machine.save(tmp_path / "part.npz")
    again = FrozenMachine.load(tmp_path / "part.npz")
    assert np.array_equal(again.mask_row, machine.mask_row)
    assert not again.is_whole
    with pytest.raises(OptionError, match="a part of an automaton"):
        FrozenAutomaton(again, BYTES)


@pytest.mark.parametrize("num_states", [0, -1, 2.5, "many", True])
def test_a_number_of_states_that_is_none_is_refused(num_states: Any) -> None:
    """It must be an int from 1 on."""
    with pytest.raises(OptionError, match="num_states"):
        compiled(bool).freeze_part(num_states=num_states)


def test_a_walk_of_something_else_is_refused() -> None:
    """Its states have other numbers."""
    automaton = compiled(NESTED)
    part = automaton.freeze_part(num_states=30)
    with pytest.raises(OptionError, match=r"part\.start"):
        part.describe(automaton.start())


def test_limits_hold() -> None:
    """Too little memory, and a start that is nested too deeply already."""
    with pytest.raises(LimitError):
        sg.compile(NESTED, BYTES, cache=None, limits=Limits(memory_mb=0.01)).freeze_part(num_states=4000)
    with pytest.raises(LimitError):
        sg.compile(NESTED, BYTES, cache=None, limits=Limits(depth=1)).freeze_part()


def test_where_nesting_decides_nothing_is_described() -> None:
    """Near the limit of depth the lazy automaton alone knows what is legal; the part is as good as before."""
    automaton = sg.compile(sg.Lark('start: "a" | "(" start ")"'), BYTES, cache=None, limits=Limits(depth=30))
    part = automaton.freeze_part(num_states=10)
    walk = part.start()
    found = []
    for _ in range(40):
        found.append(part.describe(walk))
        if not walk.allows(ord("(")):
            break
        walk.advance(ord("("))
    assert found[0]
    assert not found[-1]
    assert found == sorted(found, reverse=True)
    assert not part.is_full


@pytest.mark.usefixtures("small_pieces")
def test_a_part_that_takes_too_much_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be described leaves all as it was, and the next text gets a fresh part."""
    automaton = compiled(NESTED)
    part = automaton.freeze_part(num_states=30)
    deep = BYTES.encode(json.dumps(tree(9)).encode())
    before, pieces = part.states_along(deep), part.machine.pieces

    def too_much(*arguments: Any) -> FrozenMachine:
        raise LimitError("its tables are too large", "memory_mb", 1)

    with monkeypatch.context() as patched:
        patched.setattr(frozen_part, "machine_of", too_much)
        part.meet(deep)
    assert part.states_along(deep) == before
    assert part.machine.pieces is pieces
    assert part.is_full
    fresh = automaton.frozen_part
    assert fresh is not None
    assert fresh is not part
    assert automaton.frozen_part is fresh
    fresh.meet(deep)
    assert -1 not in fresh.states_along(deep)


def test_a_part_is_full_when_it_takes_half_of_what_it_may() -> None:
    """Memory or states, as with the lazy automaton: before it cannot describe what it meets."""
    for limits in (Limits(memory_mb=0.3), Limits(states=2000)):
        part = sg.compile(NESTED, BYTES, cache=None, limits=limits).freeze_part(num_states=30)
        for depth in range(4, 40, 4):
            assert depth > 4 or not part.is_full
            text = BYTES.encode(json.dumps(tree(depth)).encode())
            part.meet(text)
            assert -1 not in part.states_along(text)
            if part.is_full:
                break
        assert part.is_full


@pytest.mark.parametrize("is_added", [False, True], ids=["before it is there", "once it is there"])
def test_an_interrupted_piece_is_made_again(is_added: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever presses a key while states are described, and goes on, has states that mean what they should."""
    automaton = built(lower(NESTED).grammar, BYTES, Limits())
    part = automaton.freeze_part(num_states=5)
    add = GrowingMachine.add

    def interrupt(machine: GrowingMachine, piece: Piece) -> None:
        if is_added:
            add(machine, piece)
        raise KeyboardInterrupt

    monkeypatch.setattr(frozen_part, "_LEAST_PIECE", 1)
    monkeypatch.setattr(frozen_part, "_MOST_PIECE", 1)
    with monkeypatch.context() as patched:
        patched.setattr(GrowingMachine, "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            part.meet(BYTES.encode(b'{"name": "", "ab": [{"name": "", "ab": [{"name": "ab'))
    num_known = part.machine.num_states
    for text in (b'{"name": "ab', b'{"name": "", "ab": [{"name": "", "ab": [{"name": "ab", "ab": []}]}]}'):
        part.meet(BYTES.encode(text))
        assert min(part.states_along(BYTES.encode(text))) >= 0
    for piece in part.machine.pieces[1 + is_added :]:
        new = sorted(number for number in piece.numbers.tolist() if number >= num_known)
        assert new == list(range(num_known, num_known + len(new)))
        num_known += len(new)
    for seed in range(20):
        check_walk(automaton, part, random.Random(seed))
