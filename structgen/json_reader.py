"""JSON text -> typed value, with what pydantic refuses told in one line and in our own errors.

Left out: which texts there are (type_schema, and the grammar made of it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from structgen.errors import OutputError

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def read_json(adapter: TypeAdapter[Any], name: str, text: str, *, whole: str | None = None) -> Any:
    """Return the value of a JSON text.

    Args:
        adapter: reads the text.
        name: what to call the type in a message.
        text: JSON that fits the schema of the adapter.
        whole: what the model wrote, where the JSON is a part of it; for the error.

    Raises:
        OutputError: a validator of the type's own refused the text.
    """
    try:
        return adapter.validate_json(text)
    except Exception as error:  # a type's own code may raise anything; the text must not be lost with it
        raise OutputError(
            text if whole is None else whole,
            f"the text fits the schema, but the own validator of {name} refused it: {reason(error)}",
        ) from error


def reason(error: Exception) -> str:
    """Return what pydantic, or the code of a type, had against a value, in one line."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    found = []
    for one in error.errors(include_url=False):
        place = ".".join(map(str, one["loc"]))
        found.append(f"{place}: {one['msg']}" if place else one["msg"])
    return "; ".join(found)
