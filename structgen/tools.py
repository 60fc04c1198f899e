"""Tools: Python functions that a model may ask to have called, declared by their signatures.

A `ToolSet` is an output type like any other; its value is a list of `ToolCall`. Left out: the grammar of the calls
(tool_grammar), how a prompt tells of tools (decode/tool_prompt), and running calls in rounds: nothing is invoked here
before the application says so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from structgen.config import check_count, check_flag
from structgen.declarations import OutputDeclaration
from structgen.errors import ConfirmationRequired, OptionError, shown
from structgen.json_reader import reason
from structgen.tool_lint import Objection, lint_tool
from structgen.tool_signature import Signature, read_signature

P = ParamSpec("P")
R = TypeVar("R")

# What stands around a call, each on a line of its own.
CALL_START = "<tool_call>"
CALL_END = "</tool_call>"


class Tool(Generic[P, R]):
    """A function that a model may ask to have called; calling the tool calls the function.

    Two tools are equal if they are of the same function and equally destructive.

    Attributes:
        name: name of the function.
        description: docstring of the function, "" if it has none.
        parameters: JSON Schema of the arguments, as a prompt shows it.
        destructive: whether a call of it needs a confirmation.
    """

    def __init__(self, function: Callable[P, R], *, destructive: bool = False) -> None:
        """Read the signature.

        Raises:
            UnsupportedTypeError: a parameter has no annotation, cannot be passed by name, or has no JSON form.
            OptionError: it is no function.
        """
        if not callable(function):
            raise OptionError(f"a tool is made of a function, not of {shown(function)}")
        check_flag("destructive", destructive)
        self._function = function
        self._signature = read_signature(function)
        self.name = self._signature.name
        self.description = inspect.getdoc(function) or ""
        self.parameters: Mapping[str, Any] = self._signature.schema
        self.destructive = destructive
        functools.update_wrapper(self, function, updated=())

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self._function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        """Compare functions, and whether they are destructive."""
        if not isinstance(other, Tool):
            return NotImplemented
        return bool(self._function == other._function) and self.destructive == other.destructive

    def __hash__(self) -> int:
        """Hash by the function."""
        return hash((self._function, self.destructive))

    def __repr__(self) -> str:
        """Show the name, and whether it is destructive."""
        return f"Tool({self.name}{', destructive=True' if self.destructive else ''})"

    @property
    def signature(self) -> Signature:
        """What the function takes, as types."""
        return self._signature

    def lint(self) -> list[Objection]:
        """Return what a reader of the signature would object to."""
        return lint_tool(
            self.name,
            description=self.description,
            schema=self.parameters,
            destructive=self.destructive,
            has_return_annotation=self._signature.has_return_annotation,
        )


AnyTool: TypeAlias = "Tool[..., Any] | Callable[..., Any]"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(*, destructive: bool = False) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, *, destructive: bool = False) -> Any:
    """Make a tool of a function, as a decorator: `@sg.tool` or `@sg.tool(destructive=True)`.

    Args:
        function: annotated parameters that can be passed by name; what it says in its docstring is told to the model.
        destructive: whether `ToolCall.invoke` asks for a confirmation.

    Raises:
        UnsupportedTypeError: a parameter has no annotation, cannot be passed by name, or has no JSON form.
        OptionError: it is no function.
    """
    if function is None:
        return functools.partial(Tool, destructive=destructive)
    return Tool(function, destructive=destructive)


@dataclass(frozen=True, slots=True, init=False)
class ToolCall:
    """A call that a model asks for; calls are equal if they are of one name with equal arguments.

    Attributes:
        name: name of the tool.
        arguments: values by parameter name; where a parameter is missing, the function's own default counts.
        tool: what `invoke` calls, None if there is nothing to call.
    """

    name: str
    arguments: Mapping[str, Any] = field(hash=False)
    tool: Tool[..., Any] | None = field(compare=False, repr=False)

    def __init__(self, name: str, arguments: Mapping[str, Any], tool: AnyTool | None = None) -> None:
        """Build a call by hand.

        Args:
            name: name of the tool.
            arguments: values by parameter name; with a tool they are validated, and what its types can be read from is
                made into these types.
            tool: the tool, or its function.

        Raises:
            OptionError: the name is not that of the tool, or the arguments do not fit its parameters.
        """
        if not isinstance(name, str):
            raise OptionError(f"the name of a tool is a string, not {shown(name)}")
        if not isinstance(arguments, Mapping):
            raise OptionError(f"the arguments of {name} must be a dict by parameter name, not {shown(arguments)}")
        made = None if tool is None else as_tool(tool)
        if made is not None and made.name != name:
            raise OptionError(f"a call of {shown(name)} cannot be made with the tool {made.name}: name the same")
        self._fill(name, arguments if made is None else _validated(made, arguments), made)

    def _fill(self, name: str, arguments: Mapping[str, Any], tool: Tool[..., Any] | None) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", dict(arguments))
        object.__setattr__(self, "tool", tool)

    @classmethod
    def of_valid(cls, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> ToolCall:
        """Return a call whose arguments are validated already: not every type takes its own values once more."""
        call = object.__new__(cls)
        call._fill(tool.name, arguments, tool)
        return call

    def invoke(self, *, confirm: bool | Callable[[ToolCall], bool] | None = None) -> Any:
        """Call the function with the arguments and return what it returns; of an async function, the coroutine.

        What the function raises comes through as it is.

        Args:
            confirm: agrees to a destructive call: True, or a function that is asked with the call and returns True.
                A tool that is not destructive asks nobody.

        Raises:
            ConfirmationRequired: the tool is destructive, and nobody agreed.
            OptionError: the call has no tool, or confirm is neither of the two.
        """
        if self.tool is None:
            raise OptionError(
                f"this call of {self.name} knows no function: build it with ToolCall(name, arguments, tool=function)"
            )
        if not (confirm is None or isinstance(confirm, bool) or callable(confirm)):
            raise OptionError(f"confirm is True, or a function of the call that returns True, not {shown(confirm)}")
        # Only True agrees: "no" is true in Python, and so is a coroutine that was never awaited.
        if self.tool.destructive and (confirm(self) if callable(confirm) else confirm) is not True:
            raise ConfirmationRequired(
                f"{self.name} is destructive, and nobody agreed to {shown(self)}: pass invoke(confirm=True), or a "
                "function of the call that returns True"
            )
        return self.tool(**self.arguments)


@dataclass(frozen=True, slots=True, init=False)
class ToolSet(OutputDeclaration[list[ToolCall]]):
    """Calls of some tools, with free text before them where a call is not required; the value is the list of calls.

    Attributes:
        tools: the tools, in the order in which the model is told of them.
        min_calls: 0 or 1; with 0 the model may answer in plain text, and then the list is empty.
        max_calls: 1.
    """

    tools: tuple[Tool[..., Any], ...]
    min_calls: int
    max_calls: int

    def __init__(self, tools: Iterable[AnyTool], *, min_calls: int = 0, max_calls: int = 1) -> None:
        """Keep the tools; plain functions are made into tools that are not destructive.

        Raises:
            OptionError: there is no tool, two have one name, or the bounds are not available.
            UnsupportedTypeError: the signature of a function cannot be used (see `tool`).
        """
        if not isinstance(tools, Iterable) or isinstance(tools, str | bytes | Mapping):
            raise OptionError(f"ToolSet takes a list of functions, such as ToolSet([get_weather]), not {shown(tools)}")
        kept = tuple(map(as_tool, tools))
        if not kept:
            raise OptionError("ToolSet needs at least one tool")
        names = [one.name for one in kept]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise OptionError(f"two tools are named {twice[0]!r}, and a call says which by its name: rename one")
        _check_bounds(min_calls, max_calls)
        object.__setattr__(self, "tools", kept)
        object.__setattr__(self, "min_calls", min_calls)
        object.__setattr__(self, "max_calls", max_calls)

    def lint(self) -> list[Objection]:
        """Return what a reader of the signatures would object to: vague parameters of destructive tools, missing words.

        An objection has the name of the tool, the parameter (None for the whole tool), the problem and an advice.
        """
        return [objection for one in self.tools for objection in one.lint()]


def as_tool(function: AnyTool) -> Tool[..., Any]:
    """Return the tool of a function, or the tool itself.

    Raises:
        OptionError: it is no function.
        UnsupportedTypeError: its signature cannot be used.
    """
    return function if isinstance(function, Tool) else Tool(function)


def _check_bounds(min_calls: int, max_calls: int) -> None:
    for name, value in (("min_calls", min_calls), ("max_calls", max_calls)):
        check_count(name, value, minimum=0)
        if value > 1:
            raise OptionError(f"{name}={shown(value)}: several calls in one answer are not available yet; use 1")
    if max_calls == 0:
        raise OptionError("max_calls=0: there must be room for a call, use 1 (or str for text alone)")


def _validated(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = tool.signature.adapter.validate_python(dict(arguments))
    except Exception as error:  # besides pydantic's own errors, what the validators of a type raise
        raise OptionError(f"the arguments do not fit {tool.name}: {reason(error)}") from error
    return found
