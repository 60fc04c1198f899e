"""JSON Schema against jsonschema: words of the grammar validate, and what does not validate is no word."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from json_oracle import is_valid, render, sample, verdict
from json_strategies import (
    array_combinations,
    array_values,
    number_combinations,
    object_combinations,
    object_values,
    schemas,
    values,
)
from oracle.recognise import accepts
from structgen.errors import UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar import ir
from structgen.grammar.json_schema import PropertyOrder, lower_schema


def _lowered(schema: Any, order: PropertyOrder) -> ir.Grammar | None:
    """Return the grammar, None where nothing satisfies the schema; a refusal ends the example."""
    try:
        return lower_schema(schema, property_order=order)
    except UnsupportedSchemaError:
        reject()
    except UnsatisfiableError:
        return None
    raise AssertionError


def _words_validate(schema: Any, rng: random.Random) -> None:
    grammar = _lowered(schema, "declared")
    assume(grammar is not None)
    for _ in range(8):
        text = sample(grammar, rng).decode()
        assert verdict(schema, text), text


def _is_the_schema(schema: Any, candidates: list[Any]) -> None:
    grammar = _lowered(schema, "any")
    for value in candidates:
        word = grammar is not None and accepts(grammar, render(value).encode())
        if not word and grammar is not None and is_valid(schema, value):
            # A key that breaks a rule on undeclared ones is written last of its kind.
            assert '"not"' in json.dumps(schema) or '"oneOf"' in json.dumps(schema) or '"if"' in json.dumps(schema)
            word = any(accepts(grammar, render(other).encode()) for other in _orders(value))
        assert word == is_valid(schema, value), json.dumps(value)


def _orders(value: Any) -> Iterator[Any]:
    """Yield a value with the keys of the outermost object, or of those in an outermost array, in every order."""
    if isinstance(value, list):
        for items in product(*(list(_orders(item)) for item in value)):
            yield list(items)
    elif isinstance(value, dict):
        for items in permutations(value.items()):
            yield dict(items)
    else:
        yield value


@settings(max_examples=150)
@given(schemas, st.randoms(use_true_random=False))
def test_words_of_the_grammar_validate(schema: Any, rng: random.Random) -> None:
    """Every text that the grammar makes satisfies the schema."""
    _words_validate(schema, rng)


@settings(max_examples=100)
@given(object_combinations, st.randoms(use_true_random=False))
def test_words_of_combined_objects_validate(schema: Any, rng: random.Random) -> None:
    """The same for combinations of overlapping objects."""
    _words_validate({"type": "object", **schema}, rng)


@settings(max_examples=150)
@given(schemas, st.lists(values, min_size=1, max_size=8))
def test_the_grammar_in_any_order_is_the_schema(schema: Any, candidates: list[Any]) -> None:
    """With keys in any order a canonical text is a word iff its value satisfies the schema."""
    _is_the_schema(schema, candidates)


@settings(max_examples=250)
@given(object_combinations, st.lists(object_values, min_size=6, max_size=12))
def test_combined_objects_are_the_schema(schema: Any, candidates: list[Any]) -> None:
    """The same for combinations of overlapping objects."""
    _is_the_schema(schema, candidates)


@settings(max_examples=150)
@given(array_combinations, st.lists(array_values, min_size=6, max_size=12))
def test_combined_arrays_are_the_schema(schema: Any, candidates: list[Any]) -> None:
    """The same for combinations of overlapping arrays."""
    _is_the_schema(schema, candidates)


@settings(max_examples=150)
@given(number_combinations)
def test_combined_numbers_are_the_schema(schema: Any) -> None:
    """The same for combinations of overlapping number sets."""
    _is_the_schema(schema, [0, 1, 2, 3, 4, 7, 8, -1, -2, 0.5, 1.5, 2.5, 2.25, 7.5])


@settings(max_examples=60)
@given(schemas, st.lists(values, min_size=1, max_size=8))
def test_declared_order_accepts_nothing_more(schema: Any, candidates: list[Any]) -> None:
    """A text in declared order that is a word satisfies the schema."""
    grammar = _lowered(schema, "declared")
    assume(grammar is not None)
    for value in candidates:
        if accepts(grammar, render(value).encode()):
            assert is_valid(schema, value), json.dumps(value)
