"""JSON Schema -> ir.Grammar, exactly; what cannot be exact is refused by keyword and JSON pointer.

A schema is normalised into unions of typed shapes (`shapes`) that are closed under intersection, and under
complement wherever that is exact; sibling keywords, references and combinations are ordinary operations on
them (`solver`), and `emit` writes the result as rules. What is outside: documents with remote references,
and what the notes of `keywords.KEYWORDS` leave out.
"""

from __future__ import annotations

from structgen.errors import UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar import ir
from structgen.grammar.json_schema.blame import nothing_fits
from structgen.grammar.json_schema.document import (
    JsonValue,
    SchemaSource,
    nested_too_deeply,
    read_schema,
)
from structgen.grammar.json_schema.emit import Emitter, PropertyOrder
from structgen.grammar.json_schema.layout import Style
from structgen.grammar.json_schema.misspelt import suspects
from structgen.grammar.json_schema.resources import Document
from structgen.grammar.json_schema.solver import SelfReferenceError, Solver
from structgen.grammar.regex import classes

__all__ = [
    "JsonValue",
    "PropertyOrder",
    "SchemaSource",
    "Style",
    "lower_schema",
    "read_schema",
    "source_of_schema",
    "suspects",
]


def source_of_schema(
    text: str,
    *,
    whitespace: Style = "spaced",
    property_order: PropertyOrder = "declared",
    closed: bool = False,
) -> ir.Source:
    """Return the grammar that `lower_schema` makes, to be made when it is asked for.

    Args:
        text: the schema, as read_schema gives it.
        whitespace: as in lower_schema.
        property_order: likewise.
        closed: likewise.
    """

    def lowered() -> ir.Grammar:
        return lower_schema(text, whitespace=whitespace, property_order=property_order, closed=closed)

    return ir.Source(lowered, _made_of(text, whitespace, property_order, closed=closed))


def lower_schema(
    schema: SchemaSource,
    *,
    whitespace: Style = "spaced",
    property_order: PropertyOrder = "declared",
    closed: bool = False,
) -> ir.Grammar:
    """Return the grammar of the JSON texts that a schema admits.

    Args:
        schema: the schema as data, or as JSON text.
        whitespace: the style that the texts are written in (see `layout`).
        property_order: whether declared keys come in declared or in any order.
        closed: whether an object with `properties` and without `additionalProperties` has no other keys.

    Raises:
        UnsupportedSchemaError: a keyword that cannot be honoured exactly.
        UnsatisfiableError: no value fits.
        GrammarSyntaxError: the text is no JSON.
        LimitError: the schema is nested too deeply, or multiplies out into too many cases.
    """
    try:
        root, text = read_schema(schema)
        solver = Solver(Document(root), closed=closed)
        emitter = Emitter(solver, property_order)
        emitter.survey(whitespace)
        try:
            return emitter.grammar(text, _made_of(text, whitespace, property_order, closed=closed))
        except UnsatisfiableError as error:
            raise nothing_fits(solver, error.pointer) from None
    except SelfReferenceError as error:
        # The class is how the parts in here tell this refusal from others; outside it is one like them.
        raise UnsupportedSchemaError(error.pointer, error.keyword, error.reason) from None
    except RecursionError:
        raise nested_too_deeply() from None


def _made_of(text: str, style: Style, property_order: PropertyOrder, *, closed: bool) -> str:
    """Return all that the rules of a schema follow from besides this code: versions of character tables included."""
    return f"JSON Schema, {style}, {property_order}, {'closed' if closed else 'open'}, {classes.VERSIONS}\n{text}"
