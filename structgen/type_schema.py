"""Python type -> JSON Schema whose texts pydantic reads back into the type.

Pydantic's own schema of a type says less than its validator checks in some places (bounds on dates, keys of a
dict, tags of a union, digits of a Decimal). Here such a place gets keywords that are exact or narrower, or
the type is refused. Left out: custom validator functions, which no grammar can see; they run on the result.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from structgen.errors import UnsupportedTypeError

DIGITS = "x-structgen-digits"
EXPONENT = "x-structgen-exponent"
SET = "x-structgen-set"

_FLOAT_DIGITS = 15
_BOUNDS = ("ge", "gt", "le", "lt")
_KEY_TYPES = ("str", "enum", "literal", "uuid", "date", "datetime", "time", "any", "definition-ref")


def type_schema(output_type: Any) -> tuple[TypeAdapter[Any], Mapping[str, Any]]:
    """Return the adapter that reads a type back, and the JSON Schema of its texts.

    Raises:
        UnsupportedTypeError: pydantic does not know the type, or its JSON texts have no schema.
    """
    _refuse_no_type(output_type)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(output_type)
        return adapter, adapter.json_schema(schema_generator=_Generator, mode="validation")
    except UnsupportedTypeError:
        raise
    except Exception as error:  # besides its own errors pydantic lets out what a type's hooks raise, of any kind
        raise UnsupportedTypeError(f"{type_name(output_type)} has no JSON form: {_reason(error)}") from error


def _refuse_no_type(output_type: Any) -> None:
    """Refuse what pydantic would take, but nobody means as a type: it evaluates strings and calls functions."""
    if isinstance(output_type, str):
        raise UnsupportedTypeError(
            f"{output_type!r} is a string, not an output type: the type comes first, then the prompt "
            "(for one of a few answers there is sg.Choice([...]), for a pattern sg.Regex(...))"
        )
    if isinstance(output_type, Mapping):
        raise UnsupportedTypeError("a dict is no output type; for a JSON Schema write sg.JsonSchema({...})")
    if isinstance(output_type, re.Pattern):
        raise UnsupportedTypeError("a compiled pattern is no output type; write sg.Regex(pattern.pattern)")
    if isinstance(output_type, types.FunctionType | types.BuiltinFunctionType | types.MethodType | functools.partial):
        raise UnsupportedTypeError(f"the function {type_name(output_type)} is no output type; name what it returns")
    if isinstance(output_type, list | tuple | set):
        raise UnsupportedTypeError(f"{output_type!r} is a value, not a type; write list[...] or sg.Choice([...])")


def type_name(output_type: Any) -> str:
    """Return what to call a type in messages."""
    try:
        return getattr(output_type, "__name__", None) or str(output_type)
    except Exception:  # what is no type at all may not even have a text: 10**5000, Annotated[5, 6]
        return f"a value of {type(output_type).__name__}"


def _reason(error: Exception) -> str:
    """Return the line of an error that says most."""
    if isinstance(error, ValueError) and "integer string conversion" in str(error):
        return "it holds an integer with more digits than Python writes"
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])


def _refused(what: str, instead: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(f"{what} cannot be put into a grammar; {instead}")


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, with the places made exact where it says less than the validator checks."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Stay silent: a default that JSON cannot say is no part of the language."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Keep a float finite, and where a bound is exclusive keep it off the bound after rounding."""
        found = super().float_schema(schema)
        if "gt" in schema or "lt" in schema:
            # Decimals of 15 digits are distinct as floats, so none is rounded onto the bound.
            return {**found, DIGITS: [_FLOAT_DIGITS] * 3}
        return {**found, EXPONENT: 2}

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """Write a Decimal as a JSON number of at most 15 digits, which pydantic reads without rounding."""
        found: dict[str, Any] = {"type": "number"}
        names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
        for name, keyword in {**names, "multiple_of": "multipleOf"}.items():
            bound: Any = schema.get(name)
            if bound is not None:
                found[keyword] = _plain_number(bound)
        most, places = schema.get("max_digits"), schema.get("decimal_places")
        total = min(_FLOAT_DIGITS, _FLOAT_DIGITS if most is None else most)
        fraction = min(total, total if places is None else places)
        whole = total if most is None or places is None else min(total, max(most - places, 0))
        if whole == 0:
            # Pydantic counts the digit of a zero as one before the point.
            found["not"] = {"const": 0}
        return {**found, DIGITS: [whole, fraction, total]}

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        """Add what stripping and case mapping do to the text before it is checked."""
        found = super().str_schema(schema)
        pattern = schema.get("pattern")
        if isinstance(pattern, re.Pattern) and pattern.flags & ~re.UNICODE:
            raise _refused("a pattern with flags", "write the flags into the pattern, or pass it without")
        if (schema.get("to_lower") or schema.get("to_upper")) and pattern is not None:
            raise _refused("to_lower or to_upper beside a pattern", "leave out one of them")
        extra = []
        if schema.get("strip_whitespace") or self._config.str_strip_whitespace:
            extra.append({"pattern": r"^(?:[^\s\x85\x1c-\x1f](?:[\s\S]*[^\s\x85\x1c-\x1f])?)?$"})
        if schema.get("ascii_only"):
            extra.append({"pattern": r"^[\x00-\x7f]*$"})
        return {**found, "allOf": extra} if extra else found

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        """Refuse lengths: pydantic counts bytes, a grammar code points."""
        if "min_length" in schema or "max_length" in schema:
            raise _refused("bytes with a length", "use str")
        return super().bytes_schema(schema)

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        """Refuse bounds."""
        _refuse_bounds("a date", schema)
        return super().date_schema(schema)

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        """Let the offset be as the type wants it."""
        _refuse_bounds("a time", schema)
        return {"type": "string", "format": _with_offset("time", schema.get("tz_constraint"))}

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """Let the offset be as the type wants it."""
        _refuse_bounds("a datetime", schema)
        return {"type": "string", "format": _with_offset("date-time", schema.get("tz_constraint"))}

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """Refuse bounds."""
        _refuse_bounds("a timedelta", schema)
        return {"type": "string", "format": "duration"}

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        """Write http and https URLs, the kind that every reader takes."""
        schemes = schema.get("allowed_schemes")
        if schemes is not None and not {"http", "https"} <= set(schemes):
            raise _refused(f"a URL with the schemes {schemes}", "use str with a pattern")
        found = {"type": "string", "format": "http-url"}
        return {**found, "maxLength": schema["max_length"]} if "max_length" in schema else found

    def multi_host_url_schema(self, schema: core_schema.MultiHostUrlSchema) -> JsonSchemaValue:
        """Refuse."""
        raise _refused("a URL with several hosts", "use str with a pattern")

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Refuse members that JSON reads back as something else."""
        for member in schema["members"]:
            if not (member.value is None or isinstance(member.value, bool | int | float | str)):
                raise _refused(f"the enum member {member!r}", "give it a value of str, int, float, bool or None")
        return super().enum_schema(schema)

    def set_schema(self, schema: core_schema.SetSchema) -> JsonSchemaValue:
        """Say that equal items do no harm."""
        return {**super().set_schema(schema), SET: True}

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        """Say that equal items do no harm."""
        return {**super().frozenset_schema(schema), SET: True}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Say what the keys are."""
        keys = schema.get("keys_schema", core_schema.any_schema())
        found: dict[str, Any] = {"type": "object", "propertyNames": self._keys(keys)}
        found["additionalProperties"] = (
            self.generate_inner(schema["values_schema"]) if "values_schema" in schema else {}
        )
        self.update_with_validations(found, schema, self.ValidationsMapping.object)
        return found

    def _keys(self, schema: core_schema.CoreSchema) -> JsonSchemaValue:
        if schema["type"] == "int" and not set(schema) & {*_BOUNDS, "multiple_of"}:
            return {"format": "int-key"}
        if schema["type"] not in _KEY_TYPES:
            raise _refused(f"a dict with keys of type {schema['type']}", "use str, Literal, Enum, int, UUID or date")
        return self.generate_inner(schema)

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Require the tag in each branch: the validator looks at nothing else to choose."""
        found = super().tagged_union_schema(schema)
        if "discriminator" not in found:
            raise _refused("a union whose tag is computed by a function", "use a field as the discriminator")
        required = [found["discriminator"]["propertyName"]]
        return {"anyOf": [{"allOf": [branch], "required": required} for branch in found["oneOf"]]}

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        """Refuse: pydantic would describe it as anything."""
        raise _refused("a class as a value (type[...])", "use Literal or an Enum of names")

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:
        """Refuse."""
        raise _refused("complex", "use two floats")

    def json_schema(self, schema: core_schema.JsonSchema) -> JsonSchemaValue:
        """Refuse: JSON inside a string has no grammar here."""
        raise _refused("Json[...]", "use the type itself")


def _refuse_bounds(what: str, schema: Mapping[str, Any]) -> None:
    used = [name for name in (*_BOUNDS, "now_op") if schema.get(name) is not None]
    if used:
        raise _refused(f"{what} with {used[0]}", "check it in a validator, or leave the bound out")


def _with_offset(name: str, constraint: object) -> str:
    if constraint is None:
        return f"any-{name}"
    return name if constraint == "aware" else f"naive-{name}"


def _plain_number(bound: Decimal) -> int | float:
    """Return a bound as a number whose JSON spelling means the same decimal."""
    if bound == int(bound):
        return int(bound)
    if Decimal(repr(float(bound))) != bound:
        raise _refused(f"the bound {bound}", "write it with at most 15 digits")
    return float(bound)
