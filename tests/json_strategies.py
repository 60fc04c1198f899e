"""Random JSON Schemas and values for Hypothesis, small enough to collide with each other."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

KEYS = ["a", "b", "cd", "é"]
scalars = st.sampled_from([None, True, False, 0, 1, -3, 7, 2.5, -0.5, 14, "", "a", "ab", "b\n", "é", "abc", "😀"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*KEYS, "zz"]), inner, max_size=3),
    ),
    max_leaves=5,
)
names = st.sampled_from(KEYS)
counts = st.integers(0, 3)
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


def _any_of(choices: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=choices)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, min_size=1, max_size=3)
    numeric = _any_of(
        {
            "minimum": st.sampled_from([-3, 0, 1.5, 7]),
            "exclusiveMaximum": st.sampled_from([0, 2.5, 14]),
            "multipleOf": st.sampled_from([1, 2, 7, 0.5]),
        }
    )
    stringy = _any_of(
        {
            "minLength": counts,
            "maxLength": counts,
            "pattern": st.sampled_from(["^a", "b", "a$", "^[ab]*$", "é|c", "^.$"]),
        }
    )
    arrays = _any_of(
        {
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": counts,
            "maxItems": counts,
            "contains": inner,
            "minContains": st.integers(0, 2),
            "maxContains": counts,
            "uniqueItems": st.booleans(),
            "unevaluatedItems": inner,
        }
    )
    objects = _any_of(
        {
            "properties": st.dictionaries(names, inner, max_size=3),
            "required": st.lists(names, unique=True, max_size=2),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "d$", "z"]), inner, max_size=2),
            "propertyNames": st.sampled_from([{"maxLength": 1}, {"enum": ["a", "b", "zz"]}, {"pattern": "^[^a]"}]),
            "minProperties": st.integers(0, 2),
            "maxProperties": counts,
            "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2, unique=True), max_size=1),
            "dependentSchemas": st.dictionaries(names, inner, max_size=1),
            "unevaluatedProperties": inner,
        }
    )
    combined = _any_of(
        {
            "enum": st.lists(values, min_size=1, max_size=4),
            "const": values,
            "allOf": few,
            "anyOf": few,
            "oneOf": few,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        }
    )
    typed = st.fixed_dictionaries(
        {"type": st.one_of(st.sampled_from(TYPES), st.lists(st.sampled_from(TYPES), min_size=1))}
    )
    parts = [numeric, stringy, arrays, objects, combined, typed]
    return st.lists(st.sampled_from(parts).flatmap(lambda part: part), min_size=1, max_size=2).map(
        lambda found: {key: value for part in found for key, value in part.items()}
    )


schemas = st.recursive(
    st.one_of(
        st.booleans(), st.sampled_from([{"type": name} for name in TYPES]), st.builds(lambda v: {"const": v}, scalars)
    ),
    _schemas,
    max_leaves=14,
)


# Small objects and numbers that overlap on purpose, so that combinations of them have something to get wrong.
leaves = st.sampled_from(
    [True, {"type": "integer"}, {"type": "string"}, {"const": 1}, {"enum": ["a", 1]}, {"minimum": 2}]
)
small_objects = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(st.sampled_from(["a", "b"]), leaves, min_size=1, max_size=2),
        "required": st.lists(st.sampled_from(["a", "b"]), unique=True, min_size=1, max_size=2),
        "additionalProperties": st.one_of(st.booleans(), st.just({"type": "integer"})),
        "patternProperties": st.sampled_from([{"^[bc]": {"const": 1}}, {"a": {"type": "string"}}]),
        "propertyNames": st.just({"enum": ["a", "c"]}),
        "minProperties": st.integers(1, 2),
        "maxProperties": st.integers(0, 2),
        "dependentRequired": st.just({"a": ["b"]}),
    },
)
few_leaves = st.sampled_from([{"type": "integer"}, {"const": 1}, {"enum": ["a", 1]}, {"minimum": 2}, {"enum": [1, 2]}])
_ARRAY_PARTS = [
    _any_of({"items": few_leaves, "prefixItems": st.lists(few_leaves, min_size=1, max_size=2)}),
    _any_of({"minItems": st.integers(1, 2), "maxItems": st.integers(0, 2)}),
    st.fixed_dictionaries(
        {"contains": few_leaves}, optional={"minContains": st.integers(0, 2), "maxContains": st.integers(0, 1)}
    ),
    st.just({"maxItems": 2, "uniqueItems": True, "items": {"enum": [1, 2, "a"]}}),
]
small_arrays = st.lists(st.sampled_from(_ARRAY_PARTS).flatmap(lambda part: part), min_size=1, max_size=2).map(
    lambda found: {key: value for part in found for key, value in part.items()}
)
small_numbers = _any_of(
    {
        "type": st.sampled_from(["integer", "number"]),
        "minimum": st.sampled_from([0, 1, 2.5]),
        "exclusiveMinimum": st.sampled_from([0, 1]),
        "maximum": st.sampled_from([1, 7, 2.5]),
        "multipleOf": st.sampled_from([2, 0.5]),
    }
)


def _combinations(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(part, min_size=2, max_size=3)
    one = st.one_of(
        [st.fixed_dictionaries({keyword: several}) for keyword in ("allOf", "anyOf", "oneOf")]
        + [
            st.fixed_dictionaries({"not": part}),
            st.fixed_dictionaries({"if": part, "then": part}),
            st.fixed_dictionaries({"if": part, "then": part, "else": part}),
        ]
    )
    return st.lists(one, min_size=1, max_size=2).map(lambda found: {k: v for piece in found for k, v in piece.items()})


object_combinations = _combinations(small_objects)
array_combinations = _combinations(small_arrays)
number_combinations = _combinations(small_numbers)
array_values = st.lists(st.sampled_from([1, 1, 2, "a", None]), max_size=3)
object_values = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from([1, 2, "a", None]), max_size=3)
