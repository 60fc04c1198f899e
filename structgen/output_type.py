"""Any output type -> a declaration: the grammar of its texts, and how a text becomes the value.

Python types go through pydantic (`type_schema`) and JSON Schema; `str` is any text, without quotes; the values
of `declarations` each have their own front end. Nothing here knows a vocabulary or a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, overload

from structgen.config import Whitespace, check_property_order
from structgen.declarations import Choice, JsonSchema, Lark, Regex, written
from structgen.errors import OptionError, OutputError, UnsupportedSchemaError
from structgen.grammar import dfa as dfas
from structgen.grammar import ir, lexemes
from structgen.grammar.json_schema import PropertyOrder, Style, read_schema, source_of_schema
from structgen.json_reader import read_json
from structgen.partial import json_so_far, nothing_so_far
from structgen.tools import ToolCall, ToolSet
from structgen.type_names import no_grammar, type_name

T = TypeVar("T")

# pydantic reads JSON down to 200 levels, Python's json down to the interpreter's recursion limit (1,000 by default, and
# the caller has used some of it).
_PYDANTIC_NESTING = 190
_JSON_NESTING = 600

_NAMES = {
    JsonSchema: "JSON",
    Regex: "the regular expression",
    Choice: "the choice",
    Lark: "the grammar",
    ToolSet: "the tools",
}

# A pass took 80 to 160 ms on two busy cores, SmolLM2-135M in float32: a minute or two for so many.
_MOST_EXACT_ANSWERS = 1000


@dataclass(frozen=True, slots=True)
class Declaration(Generic[T]):
    """What was declared, ready to be compiled for a vocabulary.

    Attributes:
        source: the texts.
        parse: text of the grammar -> value.
        schema: JSON text of the schema that the grammar came from, None where there is none.
        name: what to call it in messages, see `name_of`.
        max_nesting: how deep `parse` reads JSON, None where it does not matter.
        tools: what the prompt tells the model about tools, one JSON object each in the form that chat templates take.
        preview: text so far -> what is certain of the value, None where nothing is.
        takes_stop: whether stop strings may end the text anywhere.
        answers: the whole answers of Choice(exact=True), which are drawn as wholes; None where tokens are drawn.
    """

    source: ir.Source
    parse: Callable[[str], T]
    schema: str | None
    name: str
    max_nesting: int | None = None
    preview: Callable[[str], object] = nothing_so_far
    takes_stop: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    answers: tuple[str, ...] | None = None

    @property
    def grammar(self) -> ir.Grammar:
        """The grammar of the texts, made when first asked for.

        Raises:
            DeclareError: what was declared has no exact grammar.
            UnsatisfiableError: no text fits.
        """
        return self.source.grammar


@overload
def lower(
    output_type: type[T], *, whitespace: Whitespace | str = ..., property_order: PropertyOrder = ...
) -> Declaration[T]: ...


@overload
def lower(
    output_type: Choice[T], *, whitespace: Whitespace | str = ..., property_order: PropertyOrder = ...
) -> Declaration[T]: ...


@overload
def lower(
    output_type: object, *, whitespace: Whitespace | str = ..., property_order: PropertyOrder = ...
) -> Declaration[Any]: ...


def lower(
    output_type: object,
    *,
    whitespace: Whitespace | str = Whitespace.AUTO,
    property_order: PropertyOrder = "declared",
) -> Declaration[Any]:
    """Return the declaration of an output type, its grammar made.

    Args:
        output_type: a Python type, or a value of `declarations`.
        whitespace: style of JSON texts; AUTO means SPACED here, where no model is known. The style of a
            JsonSchema comes first.
        property_order: "declared" or "any".

    Raises:
        UnsupportedTypeError: a type without a grammar.
        UnsupportedSchemaError: a keyword that cannot be exact.
        UnsatisfiableError: no text fits.
        GrammarSyntaxError: an unreadable regular expression or grammar.
        OptionError: an unknown option value, or one that is not available yet.
    """
    declaration = declare(output_type, whitespace=whitespace, property_order=property_order)
    _ = declaration.grammar
    return declaration


def declare(
    output_type: object,
    *,
    whitespace: Whitespace | str = Whitespace.AUTO,
    property_order: PropertyOrder = "declared",
) -> Declaration[Any]:
    """Return what `lower` returns, but make no grammar of a schema yet: asking for it raises what `lower` would."""
    check_property_order(property_order)
    style = Whitespace(whitespace)
    match output_type:
        case JsonSchema(text=text, whitespace=own):
            chosen = _style(style if own is Whitespace.AUTO else own)
            source = source_of_schema(text, whitespace=chosen, property_order=property_order)
            return Declaration(source, _read_json, text, _NAMES[JsonSchema], _JSON_NESTING, json_so_far)
        case Choice():
            return _lower_choice(output_type)
        case Regex(pattern=pattern):
            from structgen.grammar.regex_grammar import lower_regex

            return Declaration(ir.Source.of(lower_regex(pattern)), str, None, _NAMES[Regex], preview=str)
        case Lark():
            return _lower_lark(output_type)
        case ToolSet():
            return _lower_tools(output_type, _style(style), property_order)
        case _ if output_type is str:
            text_grammar = ir.Grammar({"text": lexemes.utf8_text()}, "text")
            return Declaration(ir.Source.of(text_grammar), str, None, "str", preview=str, takes_stop=True)
        case _:
            return _lower_type(output_type, _style(style), property_order)


def name_of(output_type: object) -> str:
    """Return what to call an output type in messages, and in metrics where the call has no route."""
    if type(output_type) in _NAMES:
        return _NAMES[type(output_type)]
    return type_name(output_type)


def _style(whitespace: Whitespace) -> Style:
    styles: dict[Whitespace, Style] = {
        Whitespace.COMPACT: "compact",
        Whitespace.SPACED: "spaced",
        Whitespace.PRETTY: "pretty",
        Whitespace.ANY: "any",
        Whitespace.AUTO: "spaced",
    }
    return styles[whitespace]


def _lower_type(output_type: object, style: Style, property_order: PropertyOrder) -> Declaration[Any]:
    # pydantic is imported when a Python type is first declared, so that the package itself loads quickly.
    from structgen.type_schema import type_schema

    adapter, schema = type_schema(output_type)
    name = type_name(output_type)
    # pydantic drops keys that a model does not know, so there is nothing to gain from writing any.
    source = source_of_schema(read_schema(schema)[1], whitespace=style, property_order=property_order, closed=True)

    def lowered() -> ir.Grammar:
        try:
            return source.grammar
        except UnsupportedSchemaError as error:
            raise no_grammar(name, error) from error

    read = partial(read_json, adapter, name)
    return Declaration(
        ir.Source(lowered, source.made_of),
        read,
        json.dumps(schema, ensure_ascii=False),
        name,
        _PYDANTIC_NESTING,
        json_so_far,
    )


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OutputError(text, f"the text fits the schema, but Python's json does not read it: {error}") from error


def _lower_choice(choice: Choice[T]) -> Declaration[T]:
    items = {written(item): item for item in choice.items}
    if choice.exact and len(items) > _MOST_EXACT_ANSWERS:
        raise OptionError(
            "Choice(exact=True) takes a pass of the model for each answer, so at most "
            f"{_MOST_EXACT_ANSWERS} of them, not {len(items)}; leave exact=True out: choosing token by token, "
            "a model takes any number of answers"
        )
    words = [text.encode() for text in items]
    one: ir.Expr = ir.Literal(words[0]) if len(words) == 1 else ir.Lexeme(dfas.from_words(words), name="choice")
    return Declaration(
        ir.Source.of(ir.Grammar({"choice": one}, "choice")),
        items.__getitem__,
        None,
        _NAMES[Choice],
        answers=tuple(items) if choice.exact else None,
    )


def _lower_tools(declared: ToolSet, style: Style, property_order: PropertyOrder) -> Declaration[list[ToolCall]]:
    from structgen.tool_grammar import lower_tools

    lowered = lower_tools(declared, whitespace=style, property_order=property_order)
    return Declaration(
        ir.Source.of(lowered.grammar),
        lowered.read,
        lowered.schema,
        _NAMES[ToolSet],
        _PYDANTIC_NESTING,
        tools=lowered.described,
    )


def _lower_lark(declared: Lark) -> Declaration[Any]:
    from structgen.grammar.lark_grammar import lower_lark

    source = ir.Source.of(lower_lark(declared.grammar, declared.start, declared.lexer))
    if declared.parse:
        return Declaration(source, _lark_parser(declared), None, _NAMES[Lark])
    return Declaration(source, str, None, _NAMES[Lark], preview=str)


def _lark_parser(declared: Lark) -> Callable[[str], Any]:
    # lark is imported when a Lark grammar is first declared, for the same reason.
    import lark

    if declared.lexer == "dynamic":
        reader = lark.Lark(declared.grammar, start=declared.start, parser="earley", lexer="dynamic_complete")
    else:
        reader = lark.Lark(declared.grammar, start=declared.start, parser="lalr", lexer=declared.lexer)

    def read(text: str) -> Any:
        try:
            return reader.parse(text)
        except (lark.exceptions.LarkError, RecursionError) as error:
            first_line = str(error).strip().split("\n")[0]
            raise OutputError(
                text, f"the text fits the grammar, but Lark's own parser refused it: {first_line}"
            ) from error

    return read
