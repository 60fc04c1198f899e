"""A ToolSet -> the grammar of its texts, and how a text becomes calls.

A call is written as the chat templates of the Qwen and Hermes families ask for it: JSON between two markers, each on
a line of its own. Which tool is named decides which arguments may follow. Left out: several calls in one text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required, Union

from structgen.errors import UnsatisfiableError
from structgen.grammar import ir, lexemes
from structgen.grammar.json_schema import PropertyOrder, Style, lower_schema
from structgen.grammar.regex_grammar import pattern_chardfa
from structgen.json_reader import read_json
from structgen.tool_signature import typed_dict
from structgen.tools import CALL_END, CALL_START, Tool, ToolCall, ToolSet

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_BEFORE = f"{CALL_START}\n"
_AFTER = f"\n{CALL_END}"


@dataclass(frozen=True, slots=True)
class LoweredTools:
    """What there is to know of the texts of a ToolSet.

    Attributes:
        grammar: the texts.
        schema: JSON text of the schema of one call.
        described: what a prompt tells of each tool, in the form that chat templates take.
        tools: the tools by name.
        adapter: reads the JSON of one call.
    """

    grammar: ir.Grammar
    schema: str
    described: tuple[Mapping[str, Any], ...]
    tools: Mapping[str, Tool[..., Any]]
    adapter: TypeAdapter[Any]

    def read(self, text: str) -> list[ToolCall]:
        """Return the calls of a text of the grammar.

        Raises:
            OutputError: a validator of a parameter's own refused its value.
        """
        _, start, rest = text.partition(_BEFORE)
        if not start:
            return []
        body = rest.removesuffix(_AFTER)
        found = read_json(self.adapter, "the tool's parameters", body, whole=text)
        return [ToolCall.of_valid(self.tools[found["name"]], found["arguments"])]


def lower_tools(toolset: ToolSet, *, whitespace: Style, property_order: PropertyOrder) -> LoweredTools:
    """Return the grammar of a ToolSet, and what reads its texts.

    Args:
        toolset: the tools, and how many calls there may be.
        whitespace: style of the JSON of a call; the markers around it are always the same.
        property_order: whether the keys of a call, and those of its arguments, come in declared or in any order.

    Raises:
        UnsupportedSchemaError: the type of a parameter needs a keyword that cannot be exact.
        UnsatisfiableError: no value fits a parameter.
    """
    # pydantic is imported when a type is first lowered, so that the package itself loads quickly.
    from structgen.type_schema import type_schema

    for one in toolset.tools:
        _check_callable(one)
    adapter, schema = type_schema(_any_call(toolset.tools))
    body = lower_schema(schema, whitespace=whitespace, property_order=property_order, closed=True)
    call = ir.Sequence((ir.Literal(_BEFORE.encode()), ir.Reference(body.start), ir.Literal(_AFTER.encode())))
    return LoweredTools(
        grammar=ir.Grammar({**body.rules, _RULE: _with_text(call) if toolset.min_calls == 0 else call}, _RULE),
        schema=json.dumps(schema, ensure_ascii=False),
        described=tuple(map(_described, toolset.tools)),
        tools={one.name: one for one in toolset.tools},
        adapter=adapter,
    )


# Rules of a schema are named by pointers, which begin with "#", or "any".
_RULE = "tool calls"


def _check_callable(tool: Tool[..., Any]) -> None:
    """Refuse a tool that has no arguments to be called with: among others its part would vanish without a word."""
    from structgen.type_schema import type_schema

    try:
        lower_schema(type_schema(tool.signature.arguments)[1], closed=True)
    except UnsatisfiableError as error:
        raise UnsatisfiableError(f"the tool {tool.name} can never be called: {error}") from error


def _with_text(call: ir.Expr) -> ir.Expr:
    """Return any text without the start of a call, then a call or none.

    The marker has one "<", at its front, so none can lie across the border: a text is split at the first marker, and
    in one way only.
    """
    text = lexemes.utf8_text(pattern_chardfa(CALL_START).complement())
    return ir.Sequence((text, ir.Choice((ir.Literal(b""), call))))


def _any_call(tools: tuple[Tool[..., Any], ...]) -> Any:
    """Return the type of the JSON of a call: the name of a tool decides on the arguments."""
    from pydantic import Field

    calls = [
        typed_dict(
            f"call of {one.name}",
            {"name": Required[_literal(one.name)], "arguments": Required[one.signature.arguments]},
        )
        for one in tools
    ]
    if len(calls) == 1:
        return calls[0]
    union: Any = Union[tuple(calls)]  # noqa: UP007 - the operator takes no tuple
    return Annotated[union, Field(discriminator="name")]


def _literal(name: str) -> Any:
    # Type checkers take only literals that are written out.
    any_literal: Any = Literal
    return any_literal[name]


def _described(tool: Tool[..., Any]) -> Mapping[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
