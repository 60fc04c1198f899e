"""One table of mistakes: what was written, which error it gives. It drives tests/test_errors.py and docs/errors.md."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast


class Case(NamedTuple):
    """One mistake, as an expression over the names of `namespace`."""

    code: str
    error: str
    part: str
    """What the message must contain, so that a reader knows what to change."""


CASES = (
    Case("sg.check(complex)", "UnsupportedTypeError", "complex"),
    Case('sg.check(schema({"unevaluatedItems": False}))', "UnsupportedSchemaError", "unevaluatedItems"),
    Case('sg.check(schema({"type": "string", "maxLenght": 3}))', "UnsupportedSchemaError", "maxLenght"),
    Case('sg.check(schema({"items": {"format": "idn-email"}}))', "UnsupportedSchemaError", "#/items"),
    Case('sg.check(schema({"minLength": 1e999}))', "UnsupportedSchemaError", "non-negative integer"),
    Case('sg.check(schema({"$ref": "#"}))', "UnsupportedSchemaError", "leads back to itself"),
    Case('sg.check(schema({"required": ["\\ud800"]}))', "UnsupportedSchemaError", "surrogate"),
    Case('sg.check(schema("{"))', "GrammarSyntaxError", "line 1"),
    Case('sg.check(schema(\'{"type": "null", "type": "string"}\'))', "GrammarSyntaxError", "'type' twice"),
    Case('sg.check(sg.Regex(r"(a)\\1"))', "GrammarSyntaxError", "column"),
    Case('sg.check(sg.Lark("start: missing"))', "GrammarSyntaxError", "missing"),
    Case('sg.check(schema({"type": "integer", "minimum": 3, "maximum": 2}))', "UnsatisfiableError", "#"),
    Case("sg.check(sg.Lark('start: start \"a\"'))", "UnsatisfiableError", "no text fits"),
    Case('sg.check(schema({"contains": {"type": "null"}, "minContains": 999}))', "LimitError", "256"),
    Case('sg.check(schema({"pattern": "a.{40}$"}))', "LimitError", "{40,40} at column 3"),
    Case('sg.compile(sg.Regex("abc"), letters)', "VocabularyError", "no token holds"),
    Case("sg.compile(bool, ids).start().advance(65)", "TokenRejectedError", "65"),
    Case("sg.Sampling(top_k=0)", "OptionError", "top_k"),
    Case('schema({}, whitespace="wide")', "OptionError", "compact"),
    Case("sg.Choice([])", "OptionError", "Choice"),
    Case("sg.check(sg.Choice(range(1001), exact=True))", "OptionError", "at most 1000"),
    Case("sg.ToolSet([])", "OptionError", "at least one tool"),
    Case("sg.ToolSet([print])", "UnsupportedTypeError", "'*args'"),
    Case('sg.ToolCall("delete", {}, tool=delete)', "OptionError", "days: Field required"),
    Case('sg.ToolCall("delete", {"days": 9}, tool=delete).invoke()', "ConfirmationRequired", "confirm=True"),
    Case("sg.Regex(5)", "OptionError", "string"),
    Case("schema(5)", "OptionError", "JSON text"),
)


@functools.cache
def namespace() -> dict[str, Any]:
    """Return what the expressions may name."""
    import structgen as sg

    single = [bytes([byte]) for byte in range(256)]

    @sg.tool(destructive=True)
    def delete(days: int) -> None: ...

    return {
        "sg": sg,
        "delete": delete,
        "schema": sg.JsonSchema,
        "ids": sg.Vocabulary.from_bytes([*single, b""], stop_ids=[256]),
        "letters": sg.Vocabulary.from_bytes([b"a", b"b", b""], stop_ids=[2]),
    }


def raised_by(case: Case) -> Exception:
    """Evaluate the expression and return the error of ours that it raises."""
    names = dict(namespace())
    try:
        eval(case.code, names)
    except names["sg"].StructgenError as error:
        return cast("Exception", error)
    raise LookupError(f"{case.code} raises nothing")


def message_of(case: Case) -> str:
    """Return the message of the error, without its line breaks."""
    return " ".join(str(raised_by(case)).split())
