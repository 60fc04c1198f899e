"""What a user declares besides Python types: frozen values that say which texts are wanted.

They hold what was written and nothing that is computed from it; `output_type.lower` makes grammars of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from structgen.config import Whitespace
from structgen.errors import OptionError
from structgen.grammar.json_schema import SchemaSource, schema_text

T = TypeVar("T")
LarkLexer = Literal["dynamic", "contextual"]


@dataclass(frozen=True, slots=True, init=False)
class JsonSchema:
    """The JSON texts that a schema admits; the value is what json.loads gives.

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
        """
        object.__setattr__(self, "text", schema_text(schema))
        object.__setattr__(self, "whitespace", Whitespace(whitespace))


@dataclass(frozen=True, slots=True)
class Regex:
    """The texts that a regular expression, in Python syntax, matches as a whole; the value is the text."""

    pattern: str


@dataclass(frozen=True, slots=True, init=False)
class Choice(Generic[T]):
    """One of a few answers, each written as str(item) gives it; the value is the chosen item.

    Attributes:
        items: the answers.
        exact: whether answers are drawn by the model's law over whole answers.
    """

    items: tuple[T, ...]
    exact: bool

    def __init__(self, items: Iterable[T], *, exact: bool = False) -> None:
        """Keep the answers.

        Raises:
            OptionError: there is none, or two are written alike, or one is empty.
        """
        kept = tuple(items)
        texts = [str(item) for item in kept]
        if not kept or "" in texts:
            raise OptionError("Choice needs at least one item, and none that is written as the empty text")
        twice = sorted({text for text in texts if texts.count(text) > 1}) if len(set(texts)) < len(texts) else []
        if twice:
            raise OptionError(f"Choice needs items that are written differently; these occur twice: {twice[:3]}")
        object.__setattr__(self, "items", kept)
        object.__setattr__(self, "exact", exact)


@dataclass(frozen=True, slots=True, init=False)
class Lark:
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
            OptionError: the lexer is neither "dynamic" nor "contextual".
        """
        if lexer not in ("dynamic", "contextual"):
            raise OptionError(f"{lexer!r} is no lexer: use 'dynamic' or 'contextual'")
        object.__setattr__(self, "grammar", grammar)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "lexer", lexer)
        object.__setattr__(self, "parse", parse)


OutputDeclaration = JsonSchema | Regex | Choice[Any] | Lark
