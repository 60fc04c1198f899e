"""Partial[T]: a text on its way, with what can be told of the value before it is complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from structgen.report import Result

T = TypeVar("T")

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_NUMBER_AT_END = re.compile(r"[-+.0-9eE]+$")

# pydantic reads JSON down to 200 levels.
_MOST_NESTING = 190


class Partial(Generic[T]):
    """What a stream has given so far; the last one of a stream is complete.

    Attributes:
        text: the text so far. Characters whose bytes are not all there, and what may become a stop string, are not in
            it yet, so a text never takes anything back: each begins with the one before.
        new_text: what came to it since the last one.
        result: the Result once it is complete, None before.
    """

    __slots__ = ("_preview", "new_text", "result", "text")

    def __init__(
        self, text: str, new_text: str, *, preview: Callable[[str], object], result: Result[T] | None = None
    ) -> None:
        """Keep what came, and how a value is read from part of a text."""
        self.text = text
        self.new_text = new_text
        self.result = result
        self._preview = preview

    @property
    def complete(self) -> bool:
        """Whether the text has ended; from then on `value` is the object."""
        return self.result is not None

    @property
    def value(self) -> T | Any:
        """The object once it is complete; before, what is certain of it, as plain data.

        Text (`str`, Regex, Lark) is the text so far. JSON gives dicts and lists of what has been written: the last
        string may still grow, numbers are there once they have ended. Where nothing can be told yet, and for a Choice,
        a Lark tree and tool calls, it is None.
        """
        return self._preview(self.text) if self.result is None else self.result.value

    def __repr__(self) -> str:
        """Show the text, the value and whether that is all."""
        return f"Partial(text={self.text!r}, value={self.value!r}, complete={self.complete})"


def json_so_far(text: str) -> object:
    """Return what the beginning of a JSON text says for certain, None if that is nothing yet."""
    from pydantic_core import from_json

    number = _NUMBER_AT_END.search(text)
    if number is not None and _ESCAPE.sub("", text).count('"') % 2 == 0:
        # More digits may follow, and would make another number of it.
        text = text[: number.start()]
    if text.count("[") + text.count("{") > _MOST_NESTING:
        text = _shallow(text)
    try:
        value: object = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return None  # nothing, or part of a bare literal such as `tru`: the one thing that it cannot read in part
    return value


def _shallow(text: str) -> str:
    """Return a text up to where it is nested too deeply to be read, so that what was shown before then stays."""
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > _MOST_NESTING:
            return text[: found.start()]
    return text


def nothing_so_far(text: str) -> None:
    """Return None: nothing is known of the value before the text is complete."""
