"""Rules that are made when they are asked for: the same masks as all of them at once, the same rows in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from structgen.config import Limits
from structgen.errors import LimitError, UnsatisfiableError
from structgen.grammar import growing
from structgen.grammar.build import build_automaton, spellable_productions
from structgen.grammar.ir import Grammar, LazyRules
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.json_schema.emit import Emitter
from structgen.grammar.parser_state import ParserState
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.vocabulary import Vocabulary

BYTES = [bytes([byte]) for byte in range(256)]
PIECES = [b'{"', b'": ', b'", "', b"}}", b"[1", b"], ", b"true", b'"a', b"ab", b'a": "']
VOCABULARY = Vocabulary.from_bytes([*BYTES, *PIECES, b""], stop_ids=[256 + len(PIECES)])

TEXT = {"type": "string"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "closed": {"properties": {"a": TEXT, "b": {"type": "integer"}}, "required": ["b"], "additionalProperties": False},
    "open": {"type": "object", "properties": {"a": TEXT, "ab": {"enum": [1, "x", None]}}},
    "recursive": {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"$ref": "#"}, "maxItems": 3}, "b": {"$ref": "#"}},
        "additionalProperties": {"type": "boolean"},
    },
    "a part without text": {
        "properties": {"a": {"$ref": "#/$defs/endless"}, "b": {"anyOf": [{"$ref": "#/$defs/endless"}, TEXT]}},
        "$defs": {"endless": {"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}}, "required": ["a"]}},
        "type": "object",
    },
    "tuples": {"type": "array", "prefixItems": [TEXT, {"type": "number"}, False], "minItems": 1},
    "counted": {"properties": dict.fromkeys("abc", TEXT), "minProperties": 1, "maxProperties": 2, "type": "object"}
    | {"additionalProperties": False},
    "patterns": {"type": "object", "patternProperties": {"^a": {"type": "null"}}, "required": ["b"]},
    "lengths": {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^(aa)*$"}},
    "different items": {
        "type": "array",
        "items": {"enum": ["a", "b", 1]},
        "uniqueItems": True,
        "contains": {"const": 1},
    },
}


def automaton(grammar: Grammar, vocabulary: Vocabulary = VOCABULARY) -> TokenAutomaton:
    """Build what compile_grammar builds."""
    return build_automaton(grammar, VocabularyScans(vocabulary), Spelling(vocabulary), limits=Limits(), digest="")


def legal(row: np.ndarray[Any, Any]) -> list[int]:
    """Return the tokens of a mask."""
    return [token for token in range(VOCABULARY.size) if int(row[token >> 5]) >> (token & 31) & 1]


def walks(schema: dict[str, Any], seed: int) -> list[list[int]]:
    """Draw texts of a schema."""
    draw = random.Random(seed)
    found = []
    for _ in range(4):
        state, tokens = automaton(lower_schema(schema)).start(), []
        while len(tokens) < 25 and (choices := [one for one in legal(state.mask()) if one not in VOCABULARY.stop_ids]):
            tokens.append(draw.choice(choices))
            state.advance(tokens[-1])
        found.append(tokens)
    return found


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_same_masks(name: str) -> None:
    """Along drawn texts the masks and costs are those of the grammar with all its rules at once."""
    grammar = lower_schema(SCHEMAS[name])
    assert isinstance(grammar.rules, LazyRules)
    lazy, complete = automaton(grammar), automaton(Grammar(dict(grammar.rules), grammar.start))
    for tokens in walks(SCHEMAS[name], seed=1):
        one, two = lazy.start(), complete.start()
        for token in tokens:
            assert np.array_equal(one.mask(), two.mask())
            one.advance(token)
            two.advance(token)
        assert np.array_equal(one.mask(), two.mask())
        assert one.is_accepting == two.is_accepting
        assert one.tokens_to_end_bound == two.tokens_to_end_bound


@pytest.mark.parametrize("name", SCHEMAS)
def test_rows_belong_to_states_in_whatever_order_these_are_met(name: str) -> None:
    """Rows of one automaton are found by another that meets the states the other way round."""
    texts = walks(SCHEMAS[name], seed=2)
    first, second = automaton(lower_schema(SCHEMAS[name])), automaton(lower_schema(SCHEMAS[name]))
    for tokens in texts:
        state = first.start()
        for token in tokens:
            state.mask()
            state.advance(token)
    second._core.import_rows(first._core.export_rows())
    num_rows = second.num_rows
    for tokens in reversed(texts):
        state = second.start()
        for token in tokens:
            state.mask()
            state.advance(token)
    assert second.num_rows == num_rows


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_interrupt_leaves_nothing_behind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is interrupted while rules are made, and asks again, finds the masks of one who was not."""
    texts = walks(SCHEMAS[name], seed=3)
    expected, given = automaton(lower_schema(SCHEMAS[name])), automaton(lower_schema(SCHEMAS[name]))
    draw, num_interrupts = random.Random(4), 0

    def interrupted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal num_interrupts
            result = method(*arguments, **options)
            if draw.random() < 0.3:
                num_interrupts += 1
                raise KeyboardInterrupt
            return result

        return call

    def mask(state: ParserState) -> np.ndarray[Any, Any]:
        while True:
            try:
                return state.mask()
            except KeyboardInterrupt:
                pass

    monkeypatch.setattr(growing, "terminal_of", interrupted(growing.terminal_of))
    for step in ("lower_choice", "lower_sequence"):
        monkeypatch.setattr(growing._Grower, step, interrupted(getattr(growing._Grower, step)))
    monkeypatch.setattr(Emitter, "made", interrupted(Emitter.made))
    for tokens in texts:
        one, two = expected.start(), given.start()
        for token in tokens:
            found = mask(two)
            with monkeypatch.context() as calm:
                calm.setattr(draw, "random", lambda: 1.0)
                assert np.array_equal(one.mask(), found)
                one.advance(token)
                two.advance(token)
    assert num_interrupts


def test_large_schemas_are_made_as_far_as_they_are_used() -> None:
    """The first mask asks for the rules of the outermost object alone."""
    inner = {f"key{i}": {"type": "object", "properties": {f"inner{i}": {"type": "object"}}} for i in range(50)}
    grammar = lower_schema({"type": "object", "properties": inner, "required": ["key0"]})
    productions = spellable_productions(grammar, Spelling(VOCABULARY))
    automaton(grammar).start().mask()
    assert isinstance(grammar.rules, LazyRules)
    assert len(grammar.rules._made) < 8
    assert len(grammar.rules) > 100
    productions.complete()
    assert all(rules is not None for rules in productions.rules)


def test_refusals_come_at_once() -> None:
    """What is found only in a lexeme, far from the first mask, is found before the first mask."""
    gaps = {
        "type": "string",
        "pattern": "^(abc|ab)(abcdefghijklmnopqrstuvwxyz)*$",
        "minLength": 3000,
        "maxLength": 9000,
    }
    with pytest.raises(LimitError):
        automaton(lower_schema({"type": "object", "properties": {"a": {"items": gaps}}}))
    none = {"type": "string", "pattern": "^(aaaaa)*$", "minLength": 301, "maxLength": 304}
    with pytest.raises(UnsatisfiableError):
        automaton(lower_schema({"type": "object", "properties": {"a": none}, "required": ["a"]}))


def test_a_vocabulary_without_some_byte() -> None:
    """Where a byte is missing, or only found inside longer tokens, nothing that cannot be spelled is offered."""
    schema = {"type": "object", "properties": {"q": TEXT, "z": {"const": "q"}}, "additionalProperties": False}
    for extra in ([], [b'"q']):
        tokens = [byte for byte in BYTES if byte != b"q"] + extra
        small = Vocabulary.from_bytes([*tokens, b""], stop_ids=[len(tokens)])
        grammar = lower_schema(schema)
        lazy, complete = automaton(grammar, small), automaton(Grammar(dict(grammar.rules), grammar.start), small)
        one, two = lazy.start(), complete.start()
        for token in map(tokens.index, (b"{",)):
            one.advance(token)
            two.advance(token)
        assert np.array_equal(one.mask(), two.mask())
        assert one.tokens_to_end_bound == two.tokens_to_end_bound
