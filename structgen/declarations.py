"""What a user declares besides Python types: frozen values that say which texts are wanted.

They hold what was written and nothing that is computed from it; `output_type.lower` makes grammars of them.
"""

from __future__ import annotations

import enum
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from structgen.config import Whitespace, check_flag, check_name
from structgen.errors import OptionError, shown

if TYPE_CHECKING:
    from structgen.grammar.json_schema import SchemaSource

T = TypeVar("T")
LarkLexer = Literal["dynamic", "contextual"]

# One line that ends like the name of a file: no schema does, and no grammar without a colon before that.
_PATH = re.compile(r"(?:[A-Za-z]:[\\/])?[^\n:{\"]*\.(?:json|schema|lark|ebnf|g|txt|ya?ml)")

_MAX_TOLD = 5
"""Keywords that one warning tells of."""

_ENVELOPE = frozenset({"name", "description", "schema", "strict"})


class OutputDeclaration(Generic[T]):
    """What may stand where an output type is asked for, besides Python types; T is the type of the value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False)
class JsonSchema(OutputDeclaration[Any]):
    """The JSON texts that a schema admits; the value is what json.loads gives.

    A UserWarning tells of keywords that are ignored though they were hardly meant to be, such as a misspelt one.

    Attributes:
        text: the schema as JSON text, in its own key order.
        whitespace: the style the texts are written in; AUTO leaves it to the call.
    """

    text: str
    whitespace: Whitespace

    def __init__(self, schema: SchemaSource, *, whitespace: Whitespace | str = Whitespace.AUTO) -> None:
        """Keep a schema.

        Args:
            schema: the schema as data or as JSON text.
            whitespace: "compact", "spaced", "pretty", "any" or "auto".

        Raises:
            GrammarSyntaxError: the text is no JSON, or the data is nothing that JSON can say.
            UnsupportedSchemaError: it is JSON, but no schema.
            LimitError: it is nested too deeply, or holds an integer of very many digits.
            OptionError: it is neither data nor text, or a request to a server that holds a schema.
        """
        # Read when a schema is declared, so that declaring other texts stays light.
        from structgen.grammar.json_schema import read_schema, suspects

        _refuse_path("JsonSchema", "the schema", schema)
        if isinstance(schema, type):
            raise OptionError(
                f"JsonSchema takes a schema, not the class {schema.__name__}; a class is an output type by itself, as "
                f"in model.generate({schema.__name__}, prompt)"
            )
        root, text = read_schema(schema)
        _refuse_envelope(text)
        if ignored := suspects(root):
            words = "; ".join(map(str, ignored[:_MAX_TOLD]))
            more = f"; and {len(ignored) - _MAX_TOLD} more" if len(ignored) > _MAX_TOLD else ""
            warnings.warn(words + more, UserWarning, stacklevel=2)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "whitespace", Whitespace(whitespace))


@dataclass(frozen=True, slots=True)
class Regex(OutputDeclaration[str]):
    """The texts that a regular expression, in Python syntax, matches as a whole; the value is the text."""

    pattern: str

    def __post_init__(self) -> None:
        """Refuse what is no text."""
        if isinstance(self.pattern, re.Pattern):
            raise OptionError(
                "Regex takes the text of an expression, not a compiled one: write Regex(pattern.pattern), its flags in "
                "the text, such as (?i)"
            )
        _check_text("the pattern of Regex", self.pattern)


@dataclass(frozen=True, slots=True, init=False)
class Choice(OutputDeclaration[T]):
    """One of a few answers; the value is the chosen item.

    An item is a text, a number, a date, or whatever else has a str() of its own, which is how it is written; a member
    of an Enum is written as its value. The class of an Enum stands for its members.

    Attributes:
        items: the answers.
        exact: whether a model draws one by its law over whole answers: the canonical tokens of each, and the end after
            them; False draws token by token.
    """

    items: tuple[T, ...]
    exact: bool

    def __init__(self, items: Iterable[T], *, exact: bool = False) -> None:
        """Keep the answers.

        Raises:
            OptionError: there is none, or two are written alike, or one is empty or has no text, or they have no order.
        """
        if not isinstance(items, Iterable):
            raise OptionError(f"Choice takes the items in one list, not {shown(items)}")
        if isinstance(items, str | bytes | Mapping):
            raise OptionError(f"Choice takes a list of answers, such as Choice(['yes', 'no']), not {shown(items)}")
        if isinstance(items, set | frozenset):
            raise OptionError("Choice takes its items in an order, which a set does not have: write sorted(...)")
        check_flag("exact", exact)
        kept = tuple(items)
        texts = [written(item) for item in kept]
        if not kept or "" in texts:
            raise OptionError("Choice needs at least one item, and none that is written as the empty text")
        twice = sorted({text for text in texts if texts.count(text) > 1}) if len(set(texts)) < len(texts) else []
        if twice:
            raise OptionError(f"Choice needs items that are written differently; these occur twice: {shown(twice[:3])}")
        object.__setattr__(self, "items", kept)
        object.__setattr__(self, "exact", exact)


@dataclass(frozen=True, slots=True, init=False)
class Lark(OutputDeclaration[Any]):
    """The texts of a Lark grammar; the value is the text, or the tree with parse=True.

    Attributes:
        grammar: the grammar in Lark's syntax.
        start: the rule to start from.
        lexer: "dynamic" for the pure context-free language, "contextual" for that of Lark's contextual lexer.
        parse: whether the value is the lark Tree.
    """

    grammar: str
    start: str
    lexer: LarkLexer
    parse: bool

    def __init__(
        self, grammar: str, *, start: str = "start", lexer: LarkLexer = "dynamic", parse: bool = False
    ) -> None:
        """Keep a grammar.

        Raises:
            OptionError: the lexer is neither "dynamic" nor "contextual", or an argument is of another type.
        """
        _refuse_path("Lark", "the grammar", grammar)
        _check_text("the grammar of Lark", grammar)
        _check_text("start", start)
        check_flag("parse", parse)
        check_name("lexer", lexer, ("dynamic", "contextual"))
        object.__setattr__(self, "grammar", grammar)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "lexer", lexer)
        object.__setattr__(self, "parse", parse)


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise OptionError(f"{what} must be a string, not {type(value).__name__}")


def _refuse_envelope(text: str) -> None:
    """Refuse what servers take around a schema: read as a schema, its keys are none, and every value fits."""
    if '"schema"' not in text:
        return
    data = json.loads(text)
    inner = data.get("json_schema", data) if isinstance(data, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get("schema"), dict) and _ENVELOPE.issuperset(inner):
        way = '["json_schema"]["schema"]' if "json_schema" in data else '["schema"]'
        raise OptionError(f"this is what servers take around a schema: pass what is inside, JsonSchema(this{way})")


def _refuse_path(declaration: str, what: str, value: object) -> None:
    """Refuse the name of a file where its text is meant."""
    if isinstance(value, os.PathLike) or (isinstance(value, str) and _PATH.fullmatch(value)):
        raise OptionError(
            f"{shown(value)} looks like the name of a file, and {declaration} takes the text of {what}: "
            "read it, with pathlib.Path(...).read_text()"
        )


def written(item: object) -> str:
    """Return how an item of a Choice is written.

    Raises:
        OptionError: it has no text, cannot be written in UTF-8, or has too many digits.
    """
    plain = item.value if isinstance(item, enum.Enum) else item
    # All but texts and numbers say by a __str__ of their own that they have a text; what repr gives is for programmers.
    has_text = isinstance(plain, str | int | float) or type(plain).__str__ is not object.__str__
    if not has_text or isinstance(plain, bytes | bytearray | type):
        raise OptionError(
            f"the item {shown(item)} of Choice has no text of its own: pass texts, numbers, dates or members of an "
            'Enum; for JSON values there is sg.JsonSchema({"enum": [...]}), for types a type such as int | str'
        )
    try:
        text = str(plain)
        text.encode()
    except UnicodeEncodeError as error:
        raise OptionError(
            f"the item {shown(item)} of Choice holds a lone surrogate, which is no text; remove it"
        ) from error
    except Exception as error:  # code of a user, or an integer of very many digits
        raise OptionError(f"an item of Choice, of type {type(item).__name__}, cannot be written as text") from error
    return text
