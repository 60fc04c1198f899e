"""A Python function's signature -> the type of its arguments, by parameter name, and their schema for a prompt.

Left out: calling the function, and what of a docstring belongs to which parameter (the model reads all of it).
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, Required

from typing_extensions import TypedDict

from structgen.errors import UnsupportedTypeError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# What a prompt may show as a default: values that JSON writes as they are.
_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Signature:
    """What a tool takes.

    Attributes:
        name: name of the function.
        arguments: a TypedDict with a key for each parameter; those with a default may be missing.
        adapter: validates arguments, and refuses keys that are no parameter.
        schema: JSON Schema of the arguments as a prompt shows it, with the defaults that JSON can write.
        has_return_annotation: whether the function says what it returns.
    """

    name: str
    arguments: Any
    adapter: TypeAdapter[Any]
    schema: Mapping[str, Any]
    has_return_annotation: bool


def read_signature(function: Callable[..., Any]) -> Signature:
    """Return what a function takes.

    Raises:
        UnsupportedTypeError: a parameter has no annotation or cannot be passed by name, or its type has no JSON form.
    """
    # pydantic is imported when a tool is first declared, so that the package itself loads quickly.
    from structgen.type_schema import type_schema

    name = _name(function)
    found = _signature(name, function)
    parameters = dict(found.parameters)
    for parameter in parameters.values():
        _check_parameter(name, parameter)
    hints = _hints(name, function, parameters)
    fields: dict[str, Any] = {}
    for key, hint in hints.items():
        _check_field(name, key, hint)
        is_required = parameters[key].default is inspect.Parameter.empty
        fields[key] = Required[hint] if is_required else NotRequired[hint]
    arguments = typed_dict(name, fields)
    try:
        adapter, _ = type_schema(arguments)
        schema = _prompt_schema(adapter)
    except Exception as error:  # besides our own refusals, whatever the hooks of a type raise
        raise UnsupportedTypeError(f"{_culprit(hints)} of the tool {name} cannot be used: {error}") from error
    _add_defaults(schema, parameters)
    return Signature(name, arguments, adapter, schema, found.return_annotation is not inspect.Signature.empty)


def typed_dict(name: str, fields: Mapping[str, Any]) -> Any:
    """Return a TypedDict that takes no other keys.

    Keys of a TypedDict can be any names, where fields of a pydantic model cannot (`model_config`, `schema`), and a
    missing key stays missing, so that the function's own default counts.
    """
    make: Any = TypedDict  # type checkers take only fields that are written out
    made = make(name, dict(fields))
    made.__pydantic_config__ = {"extra": "forbid"}
    return made


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if inspect.isclass(function) or not isinstance(name, str) or not name.isidentifier():
        what = name if isinstance(name, str) else type(function).__name__
        raise UnsupportedTypeError(f"a tool is a function that has a name, not {what}; write it with def")
    return name


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError) as error:
        raise UnsupportedTypeError(
            f"Python does not say what {name} takes; wrap it in a function with annotated parameters"
        ) from error


def _check_parameter(name: str, parameter: inspect.Parameter) -> None:
    where = f"the parameter {parameter.name!r} of the tool {name}"
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
            raise UnsupportedTypeError(
                f"the parameter '{star}{parameter.name}' of the tool {name} can be anything; name each parameter, "
                "or take one list or dict"
            )
        case inspect.Parameter.POSITIONAL_ONLY:
            raise UnsupportedTypeError(f"{where} is positional-only, and arguments are passed by name; remove the '/'")
        case _:
            pass
    if parameter.annotation is inspect.Parameter.empty:
        bound = "; of a method, pass the bound one (object.method)" if parameter.name in ("self", "cls") else ""
        raise UnsupportedTypeError(f"{where} has no annotation; write its type{bound}")
    from pydantic.fields import FieldInfo

    if isinstance(parameter.default, FieldInfo):
        raise UnsupportedTypeError(
            f"{where} has a Field as its default, which the function would be given; write Annotated[type, Field(...)]"
        )


def _hints(name: str, function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the type of each parameter, with what was written as text evaluated where the function was written."""

    def holder() -> None:
        """Stand in for the function, so that what it returns need not be known."""

    holder.__annotations__ = {one.name: one.annotation for one in parameters.values()}
    written = inspect.unwrap(function)
    written = getattr(written, "__func__", written)
    try:
        return typing.get_type_hints(holder, globalns=getattr(written, "__globals__", {}), include_extras=True)
    except Exception as error:  # an annotation is code of its own
        raise UnsupportedTypeError(
            f"an annotation of the tool {name} cannot be read: {error}; define what it names at the top of the module"
        ) from error


def _check_field(name: str, parameter: str, hint: Any) -> None:
    """Refuse a Field that says what the signature says: two truths could differ."""
    from pydantic.fields import FieldInfo

    for extra in getattr(hint, "__metadata__", ()):
        if not isinstance(extra, FieldInfo):
            continue
        where = f"the Field of the parameter {parameter!r} of the tool {name}"
        if not extra.is_required():
            raise UnsupportedTypeError(
                f"{where} has a default; write it into the signature: {parameter}: ... = default"
            )
        if extra.alias is not None or extra.validation_alias is not None:
            raise UnsupportedTypeError(f"{where} has an alias, and arguments go by the parameter's name; leave it out")


def _culprit(hints: Mapping[str, Any]) -> str:
    """Return which parameter a schema cannot be made for."""
    from structgen.type_schema import type_schema

    for parameter, hint in hints.items():
        try:
            _prompt_schema(type_schema(hint)[0])
        except Exception:  # the error is known already; only the place is asked for
            return f"the parameter {parameter!r}"
    return "the parameters"


def _prompt_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

    class Plain(GenerateJsonSchema):
        """Pydantic's schema without the titles that it makes up."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            """Leave titles of fields away: they only repeat the name."""
            return False

        def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
            """Stay silent: a default that JSON cannot say is left out."""

    schema = adapter.json_schema(schema_generator=Plain)
    # The name is told elsewhere, and that there are no other parameters goes without saying.
    return {key: value for key, value in schema.items() if key not in ("title", "additionalProperties")}


def _add_defaults(schema: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Write defaults into the properties, so that the model knows what it gets where it says nothing."""
    for name, described in schema.get("properties", {}).items():
        default = parameters[name].default
        if type(default) in _PLAIN and not (isinstance(default, float) and not math.isfinite(default)):
            described["default"] = default
