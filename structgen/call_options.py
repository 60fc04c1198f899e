"""The options of a call: their names and types for type checkers, their checks and defaults for everyone.

`Model` and `Generator` take them as ``**options`` typed by the two TypedDicts here, so that no signature repeats them.
`takes` shows them in `help()` one by one; `CallSettings` and `TypeSettings` refuse what is misspelt or out of range.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from structgen.config import (
    DEFAULT_POLICY,
    Policy,
    Sampling,
    Speculation,
    Whitespace,
    check_count,
    check_flag,
    check_kind,
    check_property_order,
    check_seed,
    unknown_option,
)
from structgen.errors import OptionError, shown

if TYPE_CHECKING:
    from structgen.grammar.json_schema import PropertyOrder

# What other libraries take as an option of such a call, and what is written here.
_INSTEAD = MappingProxyType(
    {
        "greedy": "write sampling=sg.Sampling.greedy()",
        "do_sample": "write sampling=sg.Sampling.greedy()",
        "tools": "tools are an output type, as in model.generate(sg.ToolSet([...]), prompt)",
        "functions": "tools are an output type, as in model.generate(sg.ToolSet([...]), prompt)",
        "stream": "call model.stream(...), which gives the text as it comes",
        "system": "pass chat messages as the prompt, the first of them with the role system",
        "messages": "chat messages are the prompt, the argument after the type",
        "response_format": "the output type is the first argument, such as sg.JsonSchema({...})",
        "schema": "the output type is the first argument, such as sg.JsonSchema({...})",
        "max_rows": "only a batch has rows: call model.generate_batch(type, prompts, max_rows=...)",
        "batch_size": "write max_rows=... in model.generate_batch or run_batch",
    }
)

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
SettingsT = TypeVar("SettingsT", "TypeSettings", "CallSettings")


class TypeOptions(TypedDict, total=False):
    """Options of `Model.generator`; `TypeSettings` explains them."""

    whitespace: Whitespace | str
    property_order: PropertyOrder
    policy: Policy | None


class RunOptions(TypedDict, total=False):
    """Options of `Generator.run` and its relatives; `CallSettings` explains them."""

    sampling: Sampling | None
    max_tokens: int | None
    stop: list[str] | tuple[str, ...]
    seed: int | None
    speculation: Speculation | None
    route: str | None
    deterministic: bool
    scope: str | None
    diagnostics: bool


class CallOptions(RunOptions, TypeOptions, total=False):
    """Options of `Model.run` and its relatives: those of both."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeSettings:
    """What an output type is compiled with.

    Attributes:
        whitespace: style of JSON texts: "auto" (what the model writes by itself), "compact", "spaced", "pretty" or
            "any"; a JsonSchema's own comes first.
        property_order: "declared", or "any" for keys in every order.
        policy: bounds on runs of digits and of white space; None is the exact language.
    """

    whitespace: Whitespace | str = Whitespace.AUTO
    property_order: PropertyOrder = "declared"
    policy: Policy | None = DEFAULT_POLICY

    def __post_init__(self) -> None:
        """Check each option."""
        object.__setattr__(self, "whitespace", Whitespace(self.whitespace))
        check_property_order(self.property_order)
        check_kind("policy", self.policy, Policy, write="sg.Policy(max_digits=...)")


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSettings:
    """What one call runs with.

    Attributes:
        sampling: how tokens are drawn; None is Sampling().
        max_tokens: the text is complete within this many tokens; None is 512, or more where the type needs more. What
            the context leaves after the prompt bounds it further.
        stop: strings that end free text (`str`); the text ends before the first of them.
        seed: makes the call repeatable; None draws one, which the report records.
        speculation: who drafts ahead, and how far; None is Speculation(). The text is the same without it.
        route: the label that `Model.metrics` counts the call under; None is the name of the output type.
        deterministic: whether nothing but prompt, options and seed may have a say in the text: every pass has one
            width, and nothing that was measured decides what is drafted. Slower.
        scope: a label for what drafters may remember from call to call: calls share it only with calls of the same
            label, and of the same Generator. None is the label of calls without one.
        diagnostics: whether the report measures the legal mass at every step. Else it does so where many tokens are
            legal, and at one in 16 of the other steps, which need the logits of few tokens. The text is the same.
    """

    sampling: Sampling | None = None
    max_tokens: int | None = None
    stop: list[str] | tuple[str, ...] = ()
    seed: int | None = None
    speculation: Speculation | None = None
    route: str | None = None
    deterministic: bool = False
    scope: str | None = None
    diagnostics: bool = False

    def __post_init__(self) -> None:
        """Check each option."""
        check_kind("sampling", self.sampling, Sampling, write="sg.Sampling.greedy() or sg.Sampling(temperature=...)")
        if self.max_tokens is not None:
            check_count("max_tokens", self.max_tokens, minimum=0)
        check_seed(self.seed)
        check_kind("speculation", self.speculation, Speculation, write="sg.Speculation.off()")
        check_kind("route", self.route, str)
        check_kind("scope", self.scope, str)
        check_flag("deterministic", self.deterministic)
        check_flag("diagnostics", self.diagnostics)
        object.__setattr__(self, "stop", _checked_stop(self.stop))


def settings_of(kind: type[SettingsT], options: Mapping[str, Any]) -> SettingsT:
    """Return the settings that these options make.

    Raises:
        OptionError: an option is misspelt, out of range or of another type.
    """
    known = [option.name for option in fields(kind)]
    for name in options:
        if name not in known:
            raise unknown_option("the call", name, known, instead=_INSTEAD | _of_the_other_kind(kind))
    return kind(**options)


def _of_the_other_kind(kind: type[TypeSettings] | type[CallSettings]) -> dict[str, str]:
    """Return where the options go that a `Generator` takes when it is made, not when it is called, or the reverse."""
    if kind is CallSettings:
        return {
            option.name: f"it is about the type, so write model.generator(type, {option.name}=...)"
            for option in fields(TypeSettings)
        }
    return {
        option.name: f"it is about a call, so write generator(prompt, {option.name}=...)"
        for option in fields(CallSettings)
    }


def split_options(options: Mapping[str, Any], *, also: tuple[str, ...] = ()) -> tuple[TypeOptions, RunOptions]:
    """Return the options of `Model.run` that are about the type, and those that are about the call, all checked.

    Args:
        options: as they were written.
        also: what the caller takes beside them, to be named where one is misspelt.

    Raises:
        OptionError: an option is misspelt, out of range or of another type.
    """
    of_type = [option.name for option in fields(TypeSettings)]
    of_call = [option.name for option in fields(CallSettings)]
    for name in options:
        if name not in of_type and name not in of_call:
            raise unknown_option("the call", name, [*also, *of_call, *of_type], instead=_INSTEAD)
    type_options: Any = {name: value for name, value in options.items() if name in of_type}
    run_options: Any = {name: value for name, value in options.items() if name in of_call}
    # Made here to be checked, so that a bad option is told before a type is compiled.
    settings_of(CallSettings, run_options)
    return type_options, run_options


def takes(*kinds: type[TypeSettings] | type[CallSettings]) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that lets `help()` and `inspect.signature` show the options one by one, with defaults."""

    def show(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        named = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        for option in (option for kind in kinds for option in fields(kind)):
            default = option.default if option.default is not MISSING else inspect.Parameter.empty
            named.append(
                inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option.type)
            )
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]  # where Python looks for it
        return function

    return show


def _checked_stop(stop: object) -> tuple[str, ...]:
    """Return the stop strings as a tuple.

    Raises:
        OptionError: they are no list of strings that a text can hold.
    """
    if not isinstance(stop, list | tuple):
        raise OptionError(
            "stop ends free text (str), and no other type needs it; it must be a list of strings, such as "
            f"stop=['\\n\\n'], not {type(stop).__name__}"
        )
    for one in stop:
        if not isinstance(one, str):
            raise OptionError(f"stop holds {shown(one)}, which is no string: write them as in stop=['\\n\\n']")
    if "" in stop:
        raise OptionError("stop holds an empty string, which would end every text at once; remove it")
    return tuple(stop)
