"""What to call a Python type in messages, and why one cannot be an output type, in words about types.

Left out: what the types become (type_schema).
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from structgen.errors import UnsupportedSchemaError, UnsupportedTypeError, shown

# What people write for a type that pydantic has no form for: the start of its name -> what to write.
_INSTEAD = {
    "bytearray": "use bytes",
    "memoryview": "use bytes",
    "range": "use tuple[int, int]",
    "Collection": "use list[...]",
    "Container": "use list[...]",
    "Iterator": "use list[...]",
    "Awaitable": "name what it gives",
    "Coroutine": "name what it gives",
    "ClassVar": "name the type inside it",
    "LiteralString": "use str",
    "Never": "there is no value of it",
    "NoReturn": "there is no value of it",
    "*tuple": "write the items of the tuple one by one, or tuple[T, ...] alone",
}
_PLAIN_CLASS = "has no fields that can be read: make it a dataclass, a pydantic model or a TypedDict"
_BASES = (str, int, float, bytes, list, dict, set, tuple)
_CULPRIT = re.compile(r"core schema for (.+?)\. Set `arbitrary_types_allowed", re.DOTALL)
_UNDEFINED = re.compile(r"`TypeAdapter\[.*?'(\w+)'.*\]` is not fully defined")
_NO_SCHEMA = re.compile(r"Cannot generate a JsonSchema for core_schema\.(\w+?)Schema\b")
_WITHOUT_TEXT = {
    "Callable": "a function cannot be written; name what it returns, or offer it with sg.ToolSet([...])",
    "Ellipsis": "... is no type",
    "IsInstance": "its values are objects that no text gives back; use a dataclass, a pydantic model or a TypedDict",
    "PlainValidatorFunction": "only its own validator knows its texts; describe them with "
    "pydantic.PlainValidator(..., json_schema_input_type=...)",
}
_KEYWORDS = {
    "uniqueItems": "a set with min_length above 1 needs items out of at most 8 values; use list[...], or leave the "
    "bound out",
    "propertyNames": "keys of such a length cannot be counted; use str",
    "minProperties": "a dict with min_length above 1 needs Literal or Enum keys; leave the bound out",
}


def type_name(output_type: Any) -> str:
    """Return what to call a type in messages, as short as one would write it."""
    try:
        return _written(output_type)
    except Exception:  # what is no type at all may not even have a text: 10**5000, Annotated[5, 6]
        return f"a value of {type(output_type).__name__}"


def _written(output_type: Any) -> str:
    origin, arguments = get_origin(output_type), get_args(output_type)
    if output_type is None or output_type is types.NoneType:
        return "None"
    if output_type is ...:
        return "..."
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(type_name, arguments))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    own = getattr(output_type, "__name__", None) or str(output_type)
    if origin is None or not arguments:
        return own
    return f"{own}[{', '.join(map(_argument, arguments))}]"


def _argument(argument: Any) -> str:
    return f"[{', '.join(map(type_name, argument))}]" if isinstance(argument, list) else type_name(argument)


def refuse_no_type(output_type: Any) -> None:
    """Refuse what pydantic may take, but nobody means as a type: it evaluates strings and calls functions.

    Raises:
        UnsupportedTypeError: it is a value.
    """
    if isinstance(output_type, str):
        raise UnsupportedTypeError(
            f"{shown(output_type)} is a string, not an output type: the type comes first, then the prompt "
            "(for one of a few answers there is sg.Choice([...]), for a pattern sg.Regex(...))"
        )
    if isinstance(output_type, Mapping):
        raise UnsupportedTypeError("a dict is no output type; for a JSON Schema write sg.JsonSchema({...})")
    if isinstance(output_type, re.Pattern):
        raise UnsupportedTypeError("a compiled pattern is no output type; write sg.Regex(pattern.pattern)")
    if isinstance(output_type, types.FunctionType | types.BuiltinFunctionType | types.MethodType | functools.partial):
        raise UnsupportedTypeError(
            f"the function {type_name(output_type)} is no output type; name what it returns, or let the model call it "
            "with sg.ToolSet([...])"
        )
    if isinstance(output_type, list | tuple | set):
        if any(callable(item) and not _may_be_type(item) for item in output_type):
            raise UnsupportedTypeError("a list of functions is no output type; write sg.ToolSet([...])")
        raise UnsupportedTypeError(f"{shown(output_type)} is a value, not a type; write list[...] or sg.Choice([...])")
    if not _may_be_type(output_type):
        kind = type(output_type).__name__
        if callable(output_type):
            raise UnsupportedTypeError(f"a {kind} can be called, and is no output type; write sg.ToolSet([...])")
        raise UnsupportedTypeError(
            f"a value of {kind} has no JSON form; pass a type, such as the class {kind}, or sg.Choice([...]) of values"
        )


def _may_be_type(output_type: Any) -> bool:
    if output_type is None or isinstance(output_type, type) or get_origin(output_type) is not None:
        return True
    return type(output_type).__module__ in ("typing", "typing_extensions", "annotationlib", "_typing")


def refused(what: str, instead: str) -> UnsupportedTypeError:
    """Return the error for a part of a type that no grammar can say."""
    return UnsupportedTypeError(f"{what} cannot be put into a grammar; {instead}")


def no_form(output_type: Any, error: Exception) -> UnsupportedTypeError:
    """Return the error for a type that pydantic has no schema for, in our words where they help more."""
    reason = _reason(error)
    if isinstance(output_type, type) and reason.endswith(_PLAIN_CLASS):
        base = next((base.__name__ for base in output_type.__mro__ if base in _BASES), None)
        reason = reason if base is None else f"pydantic does not read a class of one's own under {base}; use {base}"
    return UnsupportedTypeError(f"{type_name(output_type)} has no JSON form: {reason}")


def no_grammar(name: str, error: UnsupportedSchemaError) -> UnsupportedTypeError:
    """Return the error for a type whose schema cannot be exact: the place in the type, then what to do."""
    reason = _KEYWORDS.get(error.keyword, f"{error.keyword!r} {error.reason}")
    place = "" if error.pointer == "#" else f"at {error.pointer}, "
    return UnsupportedTypeError(f"{name} cannot be put into a grammar: {place}{reason}")


def _reason(error: Exception) -> str:
    """Return what an error says, as advice where its cause is known."""
    text = str(error)
    if isinstance(error, ValueError) and "integer string conversion" in text:
        return "it holds an integer with more digits than Python writes"
    unknown = _UNDEFINED.match(text)
    if unknown is not None:
        return f"no type is known by the name {unknown[1]!r} here; write the class itself, without quotes"
    culprit = _CULPRIT.search(text)
    if culprit is not None:
        return _without_schema(culprit[1])
    part = _NO_SCHEMA.search(text)
    if part is not None and part[1] in _WITHOUT_TEXT:
        return _WITHOUT_TEXT[part[1]]
    if type(error).__name__ == "PydanticOmit":
        return "it leaves itself out of the schema (SkipJsonSchema); name the type alone"
    lines = text.splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])


def _without_schema(culprit: str) -> str:
    """Return the reason that names the class or form in an error, given its repr."""
    is_class = culprit.startswith("<class '")
    path = culprit.removeprefix("<class '").removesuffix("'>")
    # typing.Collection[int] -> Collection, __main__.make.<locals>.Plain -> Plain
    short = path.partition("[")[0].rpartition(".")[2] if not path.startswith("*") else "*tuple"
    if short in _INSTEAD:
        return f"{short} cannot be written as JSON; {_INSTEAD[short]}"
    return f"{short} {_PLAIN_CLASS}" if is_class else f"{culprit} is no type that can be read from JSON"
