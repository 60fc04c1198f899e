"""A part of an automaton says of the states that it describes what the lazy one says, and names the others."""

from __future__ import annotations

import json
import random
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
from structgen.grammar.build import build_automaton
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.grammar.frozen_part import FrozenPart
from structgen.grammar.ir import Grammar
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


def check_walk(automaton: TokenAutomaton, part: FrozenPart, generator: random.Random) -> bool:
    """Walk both over random legal tokens, as far as the part goes; return whether it was left before the end."""
    machine, vocabulary = part.machine, automaton.vocabulary
    lazy, state = automaton.start(), machine.start
    for _ in range(40):
        assert machine.cost[state] == lazy.tokens_to_end_bound
        assert lazy.is_finished or machine.accepting[state] == lazy.is_accepting
        text_ids = [token for token in lazy.token_ids if token not in vocabulary.stop_ids]
        if machine.mask_row[state] < 0:
            assert part.states_along(text_ids)[-1] == -1
            assert (machine.next_state[state] == -1).all()
            return True
        if not lazy.is_finished:
            assert part.states_along(text_ids)[-1] == state
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
        token = generator.choice(legal)
        lazy.advance(token)
        state = int(after[token])
    return False


def check_part(grammar: Grammar, vocabulary: Vocabulary, num_states: int, seed: int) -> None:
    """Freeze a part, walk it, meet a text, and walk the next one."""
    generator = random.Random(seed)
    try:
        automaton = built(grammar, vocabulary, Limits(states=1500, depth=40))
        part = automaton.freeze_part(num_states=num_states)
    except (UnsatisfiableError, VocabularyError, LimitError):
        assume(False)
    assert np.count_nonzero(part.machine.mask_row >= 0) <= num_states + 1
    for _ in range(3):
        check_walk(automaton, part, generator)
    lazy = automaton.start()
    for _ in range(6):
        legal = sorted(set(legal_tokens(lazy, vocabulary)) - set(vocabulary.stop_ids))
        if not legal:
            break
        lazy.advance(generator.choice(legal))
    part.meet(lazy.token_ids)
    try:
        assert part.grow() is part.machine
    except LimitError:
        return
    for _ in range(3):
        check_walk(automaton, part, generator)


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
    part = automaton.freeze_part(num_states=num_states)
    assert not part.machine.is_whole
    generator = random.Random(1)
    assert any(check_walk(automaton, part, generator) for _ in range(20))
    assert not automaton.is_frozen


def test_what_was_met_is_described_next() -> None:
    """A deep text is described from beginning to end once it was met, in as many states as before."""
    depth = 12
    text = json.dumps(tree(depth))
    token_ids = BYTES.encode(text.encode())
    part = compiled(NESTED).freeze_part(num_states=400)
    before = part.states_along(token_ids)
    assert len(before) == len(token_ids) + 1
    assert -1 in before
    part.meet(token_ids)
    first = part.machine
    part.grow()
    after = part.states_along(token_ids)
    assert part.machine is not first
    assert -1 not in after
    assert np.count_nonzero(part.machine.mask_row >= 0) <= 401


def tree(depth: int) -> dict[str, Any]:
    """Return trees in trees."""
    return {"name": "x", "ab": [tree(depth - 1)] if depth else []}


def test_a_small_language_is_described_whole() -> None:
    """Then nothing is only named, and it is as long as the frozen one."""
    automaton = compiled(sg.Regex("[a-c]{2,5}|é+x?"))
    part = automaton.freeze_part(num_states=1000)
    automaton.freeze()
    assert part.machine.is_whole
    assert automaton.frozen_machine is not None
    assert part.machine.num_states == automaton.frozen_machine.num_states
    assert part.machine.num_classes == automaton.frozen_machine.num_classes


def test_what_is_met_stops_where_a_text_cannot_be_read() -> None:
    """Illegal tokens and tokens without text are no states."""
    part = compiled(NESTED).freeze_part(num_states=50)
    part.meet([ord("x"), ord("{")])
    part.meet([273])
    assert part.states_along([ord("x"), ord("{")]) == [part.grow().start]


def test_a_part_is_stored_but_not_walked_by_itself(tmp_path) -> None:
    """A file holds it; an automaton of all states cannot be made of it."""
    machine = compiled(NESTED).freeze_part(num_states=50).machine
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


def test_limits_hold_and_leave_the_part_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little memory, and a start that is nested too deeply already."""
    with pytest.raises(LimitError):
        sg.compile(NESTED, BYTES, cache=None, limits=Limits(memory_mb=0.01)).freeze_part(num_states=4000)
    with pytest.raises(LimitError):
        sg.compile(NESTED, BYTES, cache=None, limits=Limits(depth=1)).freeze_part()
