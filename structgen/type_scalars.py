"""JSON Schema of Python types that are written as one scalar: numbers, texts, dates, enums, what has a text form.

Each schema is exact or narrower than what pydantic reads; the rest is refused. Left out: containers (type_schema).
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import EncodedStr, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaValidator, core_schema

from structgen.grammar.json_schema.formats import find_format
from structgen.type_names import refused

DIGITS = "x-structgen-digits"
EXPONENT = "x-structgen-exponent"
SCALARS = {"type": ["null", "boolean", "number", "string"], EXPONENT: 2}

BOUNDS = ("ge", "gt", "le", "lt")
_FLOAT_DIGITS = 15
# pydantic matches with Rust's regex crate. Its word characters, digits and white space are not those of Python for
# these (marks, letters in circles, what a newer Unicode may assign); where a class is negated that would show.
_DOUBTFUL = (
    r"\p{M}\p{No}\p{Cn}\x1c-\x1f\x85\u200c\u200d\ufeff\u203f\u2040\u2054\ufe33\ufe34\ufe4d-\ufe4f\uff3f"
    r"\u24b6-\u24e9\u{1f130}-\u{1f149}\u{1f150}-\u{1f169}\u{1f170}-\u{1f189}"
)
_NEGATED = re.compile(r"\\[WDSbBP]|\[\^[^\]]*\\[wdsp]")
_IGNORING_CASE = re.compile(r"\(\?[a-z]*i")
_NO_PROPERTY = re.compile(r"\\P|\[\^[^\]]*\\p")
_ONLY_RUST = re.compile(r"\\[<>]|\\b\{")
_SET_OPERATION = re.compile(r"\[\^?\]?[^\]]*?(?:&&|--|~~|\[)")
_STRIPPED = r"^(?:[^\s\x85\x1c-\x1f](?:[\s\S]*[^\s\x85\x1c-\x1f])?)?$"
_ASCII = r"^[\x00-\x7f]*$"


class ScalarSchemas(GenerateJsonSchema):
    """Pydantic's generator, with scalars made exact where it says less than the validator checks."""

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

    def fraction_schema(self, schema: core_schema.FractionSchema) -> JsonSchemaValue:
        """Write a Fraction as "3/4"."""
        _refuse_bounds("a Fraction", schema, "use Decimal")
        return {"type": "string", "format": "fraction"}

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        """Add what stripping and case mapping do to the text before it is checked."""
        config = self._config
        found = super().str_schema(schema)
        if config.str_min_length:
            found.setdefault("minLength", config.str_min_length)
        if config.str_max_length is not None:
            found.setdefault("maxLength", config.str_max_length)
        pattern = schema.get("pattern")
        if isinstance(pattern, re.Pattern) and pattern.flags & ~re.UNICODE:
            raise refused("a pattern with flags", "write the flags into the pattern, or pass it without")
        if pattern is not None and any(
            schema.get(name) or getattr(config, f"str_{name}") for name in ("to_lower", "to_upper")
        ):
            raise refused("to_lower or to_upper beside a pattern", "leave out one of them")
        engine = schema.get("regex_engine") or config.regex_engine
        patterns = _read_alike(pattern) if isinstance(pattern, str) and engine == "rust-regex" else []
        if schema.get("strip_whitespace") or config.str_strip_whitespace:
            patterns.append(_STRIPPED)
        if schema.get("ascii_only"):
            patterns.append(_ASCII)
        return {**found, "allOf": [{"pattern": one} for one in patterns]} if patterns else found

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        """Write bytes as their UTF-8 text, or as the encoding that the config names; with a length, as ASCII."""
        encoding = self._config.val_json_bytes
        given: Mapping[str, Any] = schema
        lengths = {key: given[name] for name, key in _LENGTHS.items() if name in given}
        if encoding == "utf8":
            # Pydantic counts bytes, and a grammar code points: in ASCII they are the same.
            plain = {"type": "string", "format": "binary"}
            return {**plain, **lengths, "allOf": [{"pattern": _ASCII}]} if lengths else plain
        if lengths:
            raise refused(f"{encoding} bytes with a length", "leave the length out")
        return {"type": "string", "format": "base64url" if encoding == "base64" else encoding}

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        """Keep a date within bounds: with four digits of the year, texts are ordered as dates are."""
        _refuse_clock("a date", schema)
        found: JsonSchemaValue = {"type": "string", "format": "date"}
        given: Mapping[str, Any] = schema
        bounds = [_beyond(name, given[name].isoformat()) for name in BOUNDS if given.get(name) is not None]
        return {**found, "allOf": [{"pattern": one} for one in bounds]} if bounds else found

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
        return {"type": "string", "format": "timedelta"}

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        """Write URLs with an ASCII host."""
        return {**_url(schema.get("allowed_schemes")), **_longest(schema)}

    def multi_host_url_schema(self, schema: core_schema.MultiHostUrlSchema) -> JsonSchemaValue:
        """Write one host, where several could stand."""
        return {**_url(schema.get("allowed_schemes")), **_longest(schema)}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """Refuse a value that JSON does not give back, such as bytes, or a member of a plain Enum."""
        _refuse_unread("the literal", schema, schema["expected"])
        return super().literal_schema(schema)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Refuse members that JSON reads back as something else."""
        if schema["members"]:
            _refuse_unread("the enum member", schema, schema["members"])
        return super().enum_schema(schema)

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        """Refuse: pydantic would describe it as anything."""
        raise refused("a class as a value (type[...])", "use Literal or an Enum of names")

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:
        """Refuse."""
        raise refused("complex", "use two floats")

    def json_schema(self, schema: core_schema.JsonSchema) -> JsonSchemaValue:
        """Refuse: JSON inside a string has no grammar here."""
        raise refused("Json[...]", "use the type itself")

    def custom_error_schema(self, schema: core_schema.CustomErrorSchema) -> JsonSchemaValue:
        """Write scalars where any hashable value may stand."""
        if schema["custom_error_type"] == "is_hashable":
            return dict(SCALARS)
        return super().custom_error_schema(schema)

    def function_after_schema(self, schema: core_schema.AfterValidatorFunctionSchema) -> JsonSchemaValue:
        """Take a user's validator as it comes; those of pydantic's own check what no schema would say."""
        function: Any = schema["function"]["function"]
        name = getattr(function, "__qualname__", "")
        if name == "ByteSize._validate":
            return {"type": "integer", "minimum": 0}
        if name.startswith("PathType."):
            raise refused("a path that must exist, or must not,", "use Path, and look when you have it")
        if isinstance(getattr(function, "__self__", None), EncodedStr):
            raise refused("text in an encoding", "use Base64Bytes or Base64UrlBytes, or str")
        found = super().function_after_schema(schema)
        if isinstance(function, functools.partial) and function.func.__module__.startswith("pydantic."):
            self._check_bound(function, schema, found)
        return found

    def _check_bound(
        self, function: functools.partial[Any], schema: core_schema.AfterValidatorFunctionSchema, found: JsonSchemaValue
    ) -> None:
        """Refuse a bound on a type that has no such bound of its own, unless what pydantic writes for it is right."""
        written = set(schema.get("metadata", {}).get("pydantic_js_updates", {}))
        is_text = found.get("format", "password") == "password" and _leaf(schema) in ("str", "literal")
        if (is_text and written <= {"minLength", "maxLength"}) or (
            found.get("type") == "array" and written <= {"minItems", "maxItems"}
        ):
            return
        bound = ", ".join(f"{name}={value!r}" for name, value in function.keywords.items())
        raise refused(
            f"the bound {bound} on a type that is no plain number, text or list",
            "write it on the type inside, as in Annotated[int, Field(ge=0)] | str, and before any validator",
        )

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Refuse what pydantic describes as any text, but reads with code of its own."""
        if schema["type"] == "function-plain":
            name = getattr(schema["function"]["function"], "__name__", "")
            if name == "import_string":
                raise refused("ImportString", "use Literal or an Enum of the names that may be imported")
            if name in ("pattern_either_validator", "pattern_str_validator", "pattern_bytes_validator"):
                raise refused("re.Pattern", "use str, and compile it when you have it")
        return _readable(super().generate_inner(schema))


_LENGTHS = {"min_length": "minLength", "max_length": "maxLength"}


def _readable(found: JsonSchemaValue) -> JsonSchemaValue:
    """Hold a text to what pydantic reads of its format, which may be less than the standard's."""
    name = found.get("format")
    if name == "email":
        return {**found, "format": "mailbox"}
    if isinstance(name, str) and find_format(name) is None:
        raise refused(f"the format {name!r}", "its texts are not known here; use str with a pattern")
    return found


def _leaf(schema: Any) -> str:
    """Return the kind of value that the wrappers of a schema hold."""
    inner = next((schema[key] for key in ("schema", "lax_schema", "json_schema") if key in schema), None)
    return str(schema["type"]) if inner is None else _leaf(inner)


def _read_alike(pattern: str) -> list[str]:
    """Return patterns of the texts in which Rust's regex crate and Python find the same, where that is in doubt."""
    if _ONLY_RUST.search(pattern) or _SET_OPERATION.search(re.sub(r"\\.", "", pattern)):
        raise refused(f"the pattern {pattern!r}", "write it without operations on classes and without \\< \\> \\b{}")
    found = []
    if _NEGATED.search(pattern):
        found.append(f"^[^{_DOUBTFUL}]*$")
    if _IGNORING_CASE.search(pattern):
        if _NO_PROPERTY.search(pattern):
            raise refused(f"the pattern {pattern!r}, a negated property without case,", "leave out (?i) or \\P")
        # The Turkish i without and with a dot: Rust keeps them apart from i and I.
        found.append("^[^\u0130\u0131]*$")
    return found


def _url(schemes: Iterable[str] | None) -> JsonSchemaValue:
    if schemes is None or {"http", "https"} <= set(schemes):
        return {"type": "string", "format": "http-url"}
    # A file URL has no port and mostly no host, which our URLs have.
    named = [re.escape(scheme).replace("\\-", "-") for scheme in schemes if scheme != "file"]
    if not named:
        raise refused("a file URL", "use Path")
    return {"type": "string", "format": "host-url", "pattern": f"^(?:{'|'.join(named)})://"}


def _longest(schema: Mapping[str, Any]) -> JsonSchemaValue:
    return {"maxLength": schema["max_length"]} if "max_length" in schema else {}


def _refuse_unread(what: str, schema: Any, members: Iterable[Any]) -> None:
    """Ask the validator itself whether it reads the JSON of each member."""
    validator = SchemaValidator(schema)
    for member in members:
        plain = member.value if isinstance(member, Enum) else member
        if not is_scalar(plain):
            raise refused(f"{what} {member!r}", "use str, int, float, bool or None")
        try:
            validator.validate_json(json.dumps(plain))
        except ValidationError:
            raise refused(f"{what} {member!r}", "its JSON is not read back; use the value, or the Enum alone") from None


def is_scalar(value: Any) -> bool:
    """Tell whether a value is one that JSON writes without brackets, and finite."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


def _refuse_bounds(what: str, schema: Mapping[str, Any], instead: str = "check it in a validator") -> None:
    _refuse_clock(what, schema)
    used = [name for name in BOUNDS if schema.get(name) is not None]
    if used:
        raise refused(f"{what} with {used[0]}", f"{instead}, or leave the bound out")


def _refuse_clock(what: str, schema: Mapping[str, Any]) -> None:
    if schema.get("now_op") is not None:
        raise refused(
            f"{what} that must be in the past or future (now_op)", "the clock moves; use a fixed bound or none"
        )


def _beyond(bound: str, text: str) -> str:
    """Return a pattern of the texts of one length that are on the right side of a text, character by character."""
    parts = [text] if bound in ("ge", "le") else []
    for index, character in enumerate(text):
        low, high = ("0", chr(ord(character) - 1)) if bound in ("le", "lt") else (chr(ord(character) + 1), "9")
        if character.isdigit() and low <= high:
            parts.append(f"{text[:index]}[{low}-{high}].*")
    return f"^(?:{'|'.join(parts) or '(?!)'})$"


def _with_offset(name: str, constraint: object) -> str:
    if isinstance(constraint, int):
        raise refused(f"a {name} with one offset of {constraint} seconds", "use AwareDatetime, or leave the offset out")
    if constraint is None:
        return f"any-{name}"
    return f"aware-{name}" if constraint == "aware" else f"naive-{name}"


def _plain_number(bound: Decimal) -> int | float:
    """Return a bound as a number whose JSON spelling means the same decimal."""
    if bound == int(bound):
        return int(bound)
    if Decimal(repr(float(bound))) != bound:
        raise refused(f"the bound {bound}", "write it with at most 15 digits")
    return float(bound)
