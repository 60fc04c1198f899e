"""Type by type: what a random model writes through the real decoding loop is read, is of the type, and can be written.

300 types and 5 texts each: those of type_zoo.py, and random ones by seed. Beside soundness the other way: what pydantic
itself writes of the values is a text of the type again, so that no type has lost a part of its language.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from oracle.recognise import accepts
from random_types import automaton_of, random_type, write
from structgen.output_type import lower
from type_zoo import ZOO, Specimen

NUM_TYPES = 300
SEEDS = range(5)


def check(output_type: Any, text: str, value: Any) -> None:
    """Assert that a value is of its type: in strict mode pydantic takes nothing else, and converts nothing."""
    adapter: TypeAdapter[Any] = TypeAdapter(output_type)
    assert adapter.validate_python(value, strict=True) == value, text


@pytest.mark.parametrize("specimen", [one for one in ZOO if one.dump != "read differently"], ids=str)
def test_a_random_model_writes_values_of_a_type(specimen: Specimen) -> None:
    """Each text validates, whatever the model prefers and wherever the budget ends it."""
    declared = lower(specimen.output_type)
    automaton = automaton_of(declared.grammar)
    for seed in SEEDS:
        text = write(automaton, seed)
        check(specimen.output_type, text, declared.parse(text))


@pytest.mark.parametrize("specimen", [one for one in ZOO if one.dump == "read differently"], ids=str)
def test_what_changes_when_it_is_read_is_read(specimen: Specimen) -> None:
    """The same for types whose values pydantic does not take back as they are: validators that compute, encodings."""
    declared = lower(specimen.output_type)
    automaton = automaton_of(declared.grammar)
    for seed in SEEDS:
        declared.parse(write(automaton, seed))


@pytest.mark.parametrize("seed", range(NUM_TYPES - len(ZOO)))
def test_a_random_model_writes_values_of_a_random_type(seed: int) -> None:
    """The same for compositions that nobody thought of; and each value can be written and read again."""
    output_type = random_type(seed)
    adapter: TypeAdapter[Any] = TypeAdapter(output_type)
    declared = lower(output_type)
    automaton = automaton_of(declared.grammar)
    for text_seed in SEEDS:
        text = write(automaton, text_seed)
        value = declared.parse(text)
        check(output_type, text, value)
        assert adapter.validate_json(adapter.dump_json(value, by_alias=True)) == value, text


@pytest.mark.parametrize("specimen", [one for one in ZOO if one.dump == "the same"], ids=str)
def test_what_pydantic_writes_is_a_text_of_the_type(specimen: Specimen) -> None:
    """Pydantic's own text of a value, in our spelling, is accepted, and gives the value again."""
    declared = lower(specimen.output_type)
    adapter: TypeAdapter[Any] = TypeAdapter(specimen.output_type)
    for text in specimen.texts:
        value = declared.parse(text)
        written = json.dumps(json.loads(adapter.dump_json(value, by_alias=True)), ensure_ascii=False)
        assert accepts(declared.grammar, written.encode()), written
        assert declared.parse(written) == value


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1000 + NUM_TYPES))
def test_many_more_random_types(seed: int) -> None:
    """Other types, more texts."""
    output_type = random_type(seed)
    declared = lower(output_type)
    automaton = automaton_of(declared.grammar)
    for text_seed in range(12):
        text = write(automaton, text_seed)
        check(output_type, text, declared.parse(text))
