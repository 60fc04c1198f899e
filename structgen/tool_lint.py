"""What a reader of a tool's signature would object to: vague parameters of destructive tools, missing words.

Left out: whether the function does what it says, and what happens when it is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Formats of which every text means one plain thing; others (a path, a URL) reach anywhere.
_CLOSED_FORMATS = ("date", "date-time", "duration", "ipv4", "ipv6", "time", "uuid")
_NUMBER_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


@dataclass(frozen=True, slots=True)
class Objection:
    """One objection.

    Attributes:
        tool: name of the tool.
        parameter: name of the parameter, None if it is about the whole tool.
        problem: what is vague or missing.
        advice: what to write instead.
    """

    tool: str
    parameter: str | None
    problem: str
    advice: str

    def __str__(self) -> str:
        """Say it in one line."""
        where = self.tool if self.parameter is None else f"{self.tool}({self.parameter})"
        return f"{where}: {self.problem}; {self.advice}"


def lint_tool(
    name: str, *, description: str, schema: Mapping[str, Any], destructive: bool, has_return_annotation: bool
) -> list[Objection]:
    """Return the objections to one tool; `schema` is that of its arguments."""
    found = []
    if not description:
        found.append(Objection(name, None, "no docstring", "say what it does: the model chooses tools by it"))
    if not has_return_annotation:
        found.append(Objection(name, None, "no return annotation", "say what comes back"))
    if destructive:
        definitions = schema.get("$defs", {})
        for parameter, described in schema.get("properties", {}).items():
            vague = dict.fromkeys(_vague(described, definitions, ()))
            found += [Objection(name, parameter, problem, advice) for problem, advice in vague]
    return found


def _vague(schema: Any, definitions: Mapping[str, Any], seen: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (problem, advice) for each part of a schema that lets through more than anyone can have meant."""
    if not isinstance(schema, Mapping):
        if schema is not False:
            yield _ANYTHING
        return
    if "$ref" in schema:
        target = str(schema["$ref"]).rpartition("/")[2]
        if target not in seen:
            yield from _vague(definitions.get(target, {}), definitions, (*seen, target))
    elif "enum" in schema or "const" in schema:
        return
    elif options := schema.get("anyOf", schema.get("oneOf")):
        for option in options:
            yield from _vague(option, definitions, seen)
    else:
        yield from _vague_type(schema, definitions, seen)


def _vague_type(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], seen: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    match schema.get("type"):
        case None:
            yield _ANYTHING
        case "string" if not _is_bounded_text(schema):
            yield "any text", "use Literal, an Enum, a pattern or a max_length"
        case "integer" | "number" if not any(bound in schema for bound in _NUMBER_BOUNDS):
            yield "a number without bounds", "give it bounds, such as Annotated[int, Ge(1)]"
        case "array":
            if "maxItems" not in schema:
                yield "a list without a greatest length", "give it a max_length"
            for items in (*schema.get("prefixItems", ()), schema.get("items", False)):
                yield from _vague(items, definitions, seen)
        case "object":
            yield from _vague_object(schema, definitions, seen)
        case _:
            return


def _vague_object(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], seen: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", not properties)
    # Where a class is read, keys that it does not name are dropped; a dict keeps them.
    if others is not False:
        if next(_vague(schema.get("propertyNames", True), definitions, seen), None) is None:
            yield from _vague(others, definitions, seen)
        else:
            yield "a dict with any keys", "use a class with named fields, or keys of an Enum"
    for described in properties.values():
        yield from _vague(described, definitions, seen)


def _is_bounded_text(schema: Mapping[str, Any]) -> bool:
    return "pattern" in schema or "maxLength" in schema or schema.get("format") in _CLOSED_FORMATS


_ANYTHING = ("any value at all", "give it a type")
