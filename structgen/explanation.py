"""Any output type -> what becomes of each part of it, without a vocabulary and without a model.

Left out: what a vocabulary or a model cannot do (`compile` says that), and validators of a type's own, which no grammar
can see.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from structgen.config import DEFAULT_POLICY, Limits, Policy, check_kind, check_property_order
from structgen.declarations import Choice, JsonSchema, Lark, OutputDeclaration
from structgen.errors import StructgenError
from structgen.findings import Explanation, Finding
from structgen.grammar import ir
from structgen.grammar.json_schema import PropertyOrder, SchemaSource
from structgen.grammar.json_schema.findings import explain_schema
from structgen.grammar.normalise import normalise
from structgen.grammar.policy import apply_policy
from structgen.grammar.time_limit import time_limit
from structgen.output_type import Declaration, lower, name_of
from structgen.tools import ToolSet

_OWN = "x-structgen-"


def explain(
    output_type: object, *, property_order: PropertyOrder = "declared", policy: Policy | None = DEFAULT_POLICY
) -> Explanation:
    """Return what becomes of each part of an output type; what cannot be used is told, not raised.

    Args:
        output_type: a Python type, JsonSchema, Regex, Choice, Lark or ToolSet.
        property_order: "declared", or "any" for keys in every order.
        policy: the generation policy whose cuts are told; None has none.

    Raises:
        OptionError: an unknown property_order or policy.
    """
    check_property_order(property_order)
    check_kind("policy", policy, Policy)
    with time_limit(Limits().compile_seconds):
        return _explained(output_type, property_order, policy)


def _explained(output_type: object, property_order: PropertyOrder, policy: Policy | None) -> Explanation:
    try:
        declaration = lower(output_type, property_order=property_order)
        # The first step of every compilation; it finds the grammars that no text can reach an end of.
        normalise(declaration.grammar)
        findings = () if declaration.schema is None else _told(output_type, declaration.schema, property_order)
        cuts = () if policy is None else apply_policy(declaration.grammar, policy)[1]
    except StructgenError as error:
        findings = _findings_of(output_type, property_order)
        return Explanation(name=name_of(output_type), findings=findings, error=error)
    notes = tuple(_notes(output_type, declaration))
    return Explanation(name=name_of(output_type), findings=findings, notes=notes, policy=cuts)


def _findings_of(output_type: object, property_order: PropertyOrder) -> tuple[Finding, ...]:
    """Return what becomes of the keywords of a type that cannot be used, none where it has no readable schema."""
    # pydantic is imported when a Python type is first declared, as in output_type.py.
    from structgen.type_schema import type_schema

    try:
        if isinstance(output_type, JsonSchema):
            return _told(output_type, output_type.text, property_order)
        if isinstance(output_type, OutputDeclaration):
            return ()
        return _told(output_type, type_schema(output_type)[1], property_order)
    except StructgenError:
        return ()  # whoever asks gets the error of the type itself beside this


def _told(output_type: object, schema: SchemaSource, property_order: PropertyOrder) -> tuple[Finding, ...]:
    """Return what becomes of the keywords of a schema; our own keywords go by what they say."""
    # As it is lowered: only the objects of a JsonSchema may have keys that it does not name.
    is_closed = not isinstance(output_type, JsonSchema)
    found = explain_schema(schema, closed=is_closed, property_order=property_order)
    return tuple(replace(finding, keyword=finding.keyword.removeprefix(_OWN)) for finding in found)


def _notes(output_type: object, declaration: Declaration[Any]) -> list[str]:
    """Return what there is to know of a declaration that its keywords do not say."""
    if isinstance(output_type, ToolSet):
        calls = "one call" if output_type.min_calls else "free text, then at most one call"
        return [f"{calls} of: {', '.join(tool.name for tool in output_type.tools)}"]
    if declaration.schema is not None:
        return []
    if output_type is str:
        return ["any text; it ends where the model ends it, at a stop string, or at max_tokens"]
    if isinstance(output_type, Choice):
        return [f"{_number(len(output_type.items), 'answer')}, each written as str() gives it"]
    lines = _sizes(declaration.grammar)
    if isinstance(output_type, Lark):
        # Lark is imported when a Lark grammar is declared, as in output_type.py.
        from structgen.grammar.lark_grammar import collisions
        from structgen.grammar.lark_grammar.reader import read_grammar

        ignored = read_grammar(output_type.grammar, output_type.start).ignored
        lines += [f"ignored between terminals: {', '.join(ignored)}"] if ignored else []
        lines += collisions(output_type.grammar, output_type.start) if output_type.lexer == "contextual" else []
    return lines


def _sizes(grammar: ir.Grammar) -> list[str]:
    """Return how large a grammar is, and what is counted in it."""
    parts = [part for body in grammar.rules.values() for part in ir.walk(body)]
    terminals = {part for part in parts if isinstance(part, ir.Lexeme | ir.Literal) and part != ir.Literal(b"")}
    lines = [f"{_number(len(grammar.rules), 'rule')}, {_number(len(terminals), 'terminal')}"]
    counted = [part for part in parts if isinstance(part, ir.Lexeme) and (part.min_length or part.max_length)]
    repeats = [part for part in parts if isinstance(part, ir.Repeat) and (part.minimum > 1 or (part.maximum or 1) > 1)]
    if counted or repeats:
        lengths, times = _number(len(counted), "length"), _number(len(repeats), "repeat")
        lines.append(f"counted, not unrolled: {lengths}, {times}")
    return lines


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
