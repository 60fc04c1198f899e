"""Python type -> JSON Schema whose texts pydantic reads back into the type.

Pydantic's own schema of a type says less than its validator checks in some places (bounds on dates, keys of a
dict, tags of a union, digits of a Decimal). Here such a place gets keywords that are exact or narrower, or
the type is refused. Left out: custom validator functions, which no grammar can see; they run on the result.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import SchemaValidator, core_schema

from structgen.errors import UnsupportedTypeError
from structgen.grammar.json_schema.keywords import KEYWORDS
from structgen.type_names import no_form, refuse_no_type, refused
from structgen.type_scalars import BOUNDS, SCALARS, ScalarSchemas

SET = "x-structgen-set"

_MAX_LISTED_KEYS = 64
_NOT_HASHABLE = {"list", "set", "dict", "deque", "typed-dict", "ordered-dict", "counter", "frozendict", "any"}
_WRAPPERS = {"lax-or-strict": "lax_schema", "json-or-python": "json_schema"}
# Where a schema holds other schemas: by name, in a list, or one.
_NAMED = ("properties", "$defs", "patternProperties", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "propertyNames", "not", "contains", "if", "then", "else")


def type_schema(output_type: Any) -> tuple[TypeAdapter[Any], Mapping[str, Any]]:
    """Return the adapter that reads a type back, and the JSON Schema of its texts.

    Raises:
        UnsupportedTypeError: pydantic does not know the type, or its JSON texts have no schema.
    """
    refuse_no_type(output_type)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(output_type)
        return adapter, _annotated(adapter.json_schema(schema_generator=_Generator, mode="validation"))
    except UnsupportedTypeError:
        raise
    except Exception as error:  # besides its own errors pydantic lets out what a type's hooks raise, of any kind
        raise no_form(output_type, error) from error


def _annotated(schema: Any) -> Any:
    """Return a schema with unknown keywords as annotations: json_schema_extra describes, the validator decides."""
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            found[key] = {name: _annotated(inner) for name, inner in value.items()}
        elif key in _LISTED and isinstance(value, list):
            found[key] = [_annotated(inner) for inner in value]
        elif key in _SINGLE:
            found[key] = _annotated(value)
        else:
            found[key if key in KEYWORDS or key.startswith("x-") else f"x-{key}"] = value
    return found


class _Generator(ScalarSchemas):
    """The same for containers: sets, dicts, fields and tagged unions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Start without definitions."""
        super().__init__(*arguments, **options)
        self._definitions: dict[str, Any] = {}

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Stay silent of a default that JSON cannot say; refuse where pydantic would drop a part of a union."""
        if kind == "skipped-choice":
            raise refused(f"a part of a union ({detail})", "leave it out of the type")

    def definitions_schema(self, schema: core_schema.DefinitionsSchema) -> JsonSchemaValue:
        """Keep the definitions, to look into what a reference names."""
        self._definitions |= {definition["ref"]: definition for definition in schema["definitions"]}
        return super().definitions_schema(schema)

    def generator_schema(self, schema: core_schema.GeneratorSchema) -> JsonSchemaValue:
        """Refuse: pydantic reads the items late, and once."""
        raise refused("an iterator", "use list[...]")

    def set_schema(self, schema: core_schema.SetSchema) -> JsonSchemaValue:
        """Write no item twice where items are few, and let equal items do no harm where they are not."""
        return self._set(schema)

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        """Do as for a set."""
        return self._set(schema)

    def _set(self, schema: core_schema.SetSchema | core_schema.FrozenSetSchema) -> JsonSchemaValue:
        items = schema.get("items_schema", core_schema.any_schema())
        found: dict[str, Any] = {"type": "array", "uniqueItems": True, SET: True}
        if items["type"] == "any":
            found["items"] = dict(SCALARS)
        elif not self._is_hashable(items, frozenset()):
            raise refused("a set of values that Python cannot hash", "use list[...], or make the items frozen")
        else:
            found["items"] = self.generate_inner(items)
        self.update_with_validations(found, schema, self.ValidationsMapping.array)
        return found

    def _is_hashable(self, schema: Any, seen: frozenset[str]) -> bool:
        """Tell whether all values of a schema have a hash."""
        kind = schema["type"]
        if kind in _NOT_HASHABLE:
            return False
        if kind == "definition-ref":
            reference = schema["schema_ref"]
            inner = self._definitions.get(reference)
            return reference in seen or inner is None or self._is_hashable(inner, seen | {reference})
        if kind in ("model", "dataclass"):
            if schema["cls"].__hash__ is None:
                return False
            # A hash of one's own may leave fields out; the one that comes with frozen does not.
            return not _is_frozen(schema) or all(self._is_hashable(part, seen) for part in _parts(schema["schema"]))
        return all(self._is_hashable(part, seen) for part in _parts(schema))

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Say what the keys are."""
        return self._dict(schema)

    def ordered_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Do as for a dict."""
        return self._dict(schema)

    def counter_schema(self, schema: Any) -> JsonSchemaValue:
        """Do as for a dict."""
        return self._dict(schema)

    def frozendict_schema(self, schema: Any) -> JsonSchemaValue:
        """Do as for a dict."""
        return self._dict(schema)

    def _dict(self, schema: Any) -> JsonSchemaValue:
        keys = self._keys(schema.get("keys_schema", core_schema.any_schema()))
        values = self.generate_inner(schema["values_schema"]) if "values_schema" in schema else {}
        listed = self._listed(keys)
        if listed and schema.get("min_length", 0) > 1 and _mixes_bools(schema["keys_schema"]):
            raise refused("a dict with min_length and keys that may be bool or more", "True and 1 are one key; use one")
        found: dict[str, Any] = {"type": "object"}
        if listed is None:
            found |= {"propertyNames": keys, "additionalProperties": values}
        else:
            found |= {"properties": dict.fromkeys(listed, values), "additionalProperties": False}
        self.update_with_validations(found, schema, self.ValidationsMapping.object)
        return found

    def _listed(self, keys: JsonSchemaValue) -> list[str] | None:
        """Return the keys in their order where they are few, None where they are not listed."""
        known = self.resolve_ref_schema(keys)
        if "anyOf" in known:
            parts = [self._listed(part) for part in known["anyOf"]]
            return None if None in parts else [key for part in parts for key in part or ()]
        values = known.get("enum", [known["const"]] if "const" in known else None)
        if values is None or set(known) & {"pattern", "minLength", "maxLength", "allOf", "not"}:
            return None
        return [value for value in values if isinstance(value, str)]

    def _keys(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of the keys that pydantic reads into a type; a key is always text."""
        kind = schema["type"]
        if kind in ("any", "bool", "enum", "int", "float", "decimal"):
            return _converted_keys(schema)
        if kind == "definition-ref" and self._definitions[schema["schema_ref"]]["type"] == "enum":
            return _converted_keys(self._definitions[schema["schema_ref"]])
        if kind == "union":
            return {"anyOf": [self._keys(part) for part in _parts(schema)]}
        if kind in ("nullable", "default"):
            return self._keys(schema["schema"])
        if not self._is_hashable(schema, frozenset()):
            raise refused("a dict with keys that Python cannot hash", "use str, or make the keys frozen")
        found = self.generate_inner(schema)
        known = self.resolve_ref_schema(found)
        if known.get("type") == "string" or any(isinstance(value, str) for value in known.get("enum", ())):
            return found
        raise refused("a dict with such keys", "use str, Literal or Enum of texts, int, UUID, date, or a list of pairs")

    def field_is_present(self, field: Any) -> bool:
        """Leave out what a dataclass does not take."""
        return super().field_is_present(field) and field.get("init") is not False

    def model_fields_schema(self, schema: core_schema.ModelFieldsSchema) -> JsonSchemaValue:
        """Check the names that the fields are read by."""
        found = super().model_fields_schema(schema)
        return self._named(found, schema["fields"].items(), self._config.config_dict)

    def dataclass_args_schema(self, schema: core_schema.DataclassArgsSchema) -> JsonSchemaValue:
        """Check the names that the fields are read by."""
        fields = [(field["name"], field) for field in schema["fields"] if self.field_is_present(field)]
        return self._named(super().dataclass_args_schema(schema), fields, self._config.config_dict)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Check the names that the fields are read by."""
        found = super().typed_dict_schema(schema)
        return self._named(found, schema["fields"].items(), schema.get("config", {}))

    def _named(self, found: JsonSchemaValue, fields: Iterable[tuple[str, Any]], config: Any) -> JsonSchemaValue:
        """Refuse names that cannot be written or mean two fields; forbid the other names where keys are open."""
        written: set[str] = set()
        others: set[str] = set()
        for name, field in fields:
            keys, inside = _names_read(field, name, config)
            if not keys:
                raise refused(f"the field {name}, which is read from a place inside another key,", "give it an alias")
            if keys[0] not in found["properties"]:
                # Left out by SkipJsonSchema, or (pydantic 2.12) described by an alias that it is not read by.
                if self.field_is_required(field, total=True) or field.get("validation_alias") in found["properties"]:
                    raise refused(f"the field {name}, which has another name or none in the schema,", "leave it in")
                continue
            if keys[0] in written:
                raise refused(f"the key {keys[0]!r}, which two fields are read from,", "give each its own alias")
            written.add(keys[0])
            others |= {*keys[1:], *inside}
        if others & written:
            raise refused(f"the key {min(others & written)!r}, which two fields are read from,", "give each its own")
        if found.get("additionalProperties", self._config.extra == "allow") is not False:
            found["properties"] = {**found["properties"], **dict.fromkeys(sorted(others), False)}
        return found

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Require the tag in each branch: the validator looks at nothing else to choose."""
        tags = list(_tags(schema["discriminator"]))
        branches = super().tagged_union_schema(schema)["oneOf"]
        found: list[JsonSchemaValue] = []
        for tag in tags:
            # With an alias there are two names; a branch that does not have one of them is empty with it.
            others = [{"required": [other]} for other in tags if other != tag]
            alone = {"not": {"anyOf": others}} if others else {}
            found += [{"allOf": [branch], "required": [tag], **alone} for branch in branches]
        return {"anyOf": found}


def _parts(schema: Any) -> Iterator[Any]:
    """Yield the schemas that a schema is directly made of, as JSON is read."""
    kind = schema["type"]
    if kind == "union":
        yield from (choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"])
    elif kind == "tagged-union":
        yield from schema["choices"].values()
    elif kind in ("model-fields", "dataclass-args", "named-tuple"):
        fields = schema["fields"]
        yield from (field["schema"] for field in (fields.values() if isinstance(fields, dict) else fields))
    elif kind == "tuple":
        yield from schema["items_schema"]
    elif kind == "chain":
        yield schema["steps"][-1]
    elif kind in _WRAPPERS:
        yield schema[_WRAPPERS[kind]]
    elif "schema" in schema:
        yield schema["schema"]


def _mixes_bools(schema: Any) -> bool:
    return schema["type"] == "union" and any(part["type"] == "bool" for part in _parts(schema))


def _is_frozen(schema: Any) -> bool:
    if schema["type"] == "dataclass":
        return bool(schema["cls"].__dataclass_params__.frozen)
    return bool(schema["cls"].model_config.get("frozen"))


def _names_read(field: Any, name: str, config: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the keys that a field is read from, the one that is written first, and the keys that it is read inside."""
    alias = field.get("validation_alias")
    if alias is None:
        return [name], []
    choices = [[alias]] if isinstance(alias, str) else alias
    paths: list[list[Any]] = choices if isinstance(choices[0], list) else [choices]
    keys: list[str] = []
    inside: list[str] = []
    if config.get("validate_by_alias") is not False:
        keys += [path[0] for path in paths if len(path) == 1]
        inside += [path[0] for path in paths if len(path) > 1]
    if config.get("validate_by_name") or config.get("populate_by_name"):
        keys.append(name)
    return list(dict.fromkeys(keys)), inside


def _tags(discriminator: Any) -> Iterator[str]:
    """Yield the names that the tag of a union is read from."""
    if callable(discriminator):
        raise refused("a union whose tag is computed by a function", "use a field as the discriminator")
    paths = [[discriminator]] if isinstance(discriminator, str) else discriminator
    for path in [paths] if isinstance(paths[0], str) else paths:
        if len(path) != 1 or not isinstance(path[0], str):
            raise refused("a union whose tag is inside another key", "use a field as the discriminator")
        yield path[0]


def _converted_keys(schema: Any) -> JsonSchemaValue:
    """Return the keys whose text pydantic turns into something else."""
    kind = schema["type"]
    bounds = {name: schema[name] for name in (*BOUNDS, "multiple_of") if schema.get(name) is not None}
    if kind == "any":
        return {"type": "string"}
    if kind == "bool":
        return {"enum": ["true", "false"]}
    if kind == "enum":
        return _enum_keys(schema)
    if kind == "int" and bounds:
        return _int_keys(bounds)
    if bounds or any(schema.get(name) is not None for name in ("max_digits", "decimal_places")):
        raise refused(f"a dict with keys of type {kind} and a bound", "leave the bound out, or use str")
    return {"type": "string", "format": "int-key" if kind == "int" else "number-key"}


def _int_keys(bounds: Mapping[str, int]) -> JsonSchemaValue:
    lows = [bounds[name] + (name == "gt") for name in ("ge", "gt") if name in bounds]
    highs = [bounds[name] - (name == "lt") for name in ("le", "lt") if name in bounds]
    low, high = max(lows, default=None), min(highs, default=None)
    step = bounds.get("multiple_of", 1)
    if low is not None and high is not None and high - low <= _MAX_LISTED_KEYS * step:
        return {"enum": [str(number) for number in range(low, high + 1) if number % step == 0]}
    if step == 1 and high is None and low in (0, 1):
        return {"type": "string", "format": "int-key", "pattern": "^[^-]" if low == 0 else "^[1-9]"}
    raise refused(
        f"a dict with int keys and {', '.join(bounds)}",
        f"use at most {_MAX_LISTED_KEYS} keys with both bounds, or ge=0 or gt=0 alone",
    )


def _enum_keys(schema: Any) -> JsonSchemaValue:
    """Return the texts of the members that pydantic reads as keys: texts, and numbers of an IntEnum."""
    reader = SchemaValidator(core_schema.dict_schema(keys_schema=schema))
    found: list[str] = []
    for member in schema["members"]:
        text = member.value if isinstance(member.value, str) else json.dumps(member.value)
        with contextlib.suppress(ValidationError):
            (read,) = reader.validate_json(json.dumps({text: None}))
            if read in (member, member.value):
                found.append(text)
    if not found:
        raise refused("a dict with such keys", f"the members of {schema['cls'].__name__} need texts as values")
    return {"enum": found}
