"""Read a Lark grammar with Lark's own loader, up to the point where repeats are still repeats.

Imports, templates, `%extend` and `%override` are resolved, terminals are joined into one pattern each, anonymous
terminals have their names; `*`, `+`, `?`, `~n..m` and `[...]` are still in the rule trees. What Lark refuses is
refused here too, with the position where it can be found. Left out: anything about the IR.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

from lark import Lark, load_grammar
from lark.common import LexerConf
from lark.exceptions import UnexpectedInput, VisitError
from lark.lexer import ContextualLexer, Pattern, TerminalDef
from lark.load_grammar import Grammar as LoadedGrammar
from lark.tree import Tree

from structgen.errors import GrammarSyntaxError, LimitError

MAX_INSTANCES = 2_000  # a template that uses itself with ever longer arguments never ends
MAX_ALTERNATIVES = 1_000  # Lark writes out every optional part (4,000 take it 0.7 s); above, its loader alone checks

_DECLARE = re.compile(r"^[ \t]*%declare\b[ \t]*([^\n]*)", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")
# A rule as GBNF, BNF and EBNF write it; in Lark no line starts like this.
_OTHER_RULE = re.compile(r"\s*<?[\w-]+>?\s*(::=|:=|=)")
_POSITION = re.compile(r",? (?:at|in) line (\d+),? column (\d+)")

RuleTree = Tree[Any]
_loader: Any = load_grammar  # the module; most of it carries no types


@dataclass(frozen=True)
class Reading:
    """A Lark grammar as read.

    Attributes:
        rules: the EBNF tree of each rule, an instance of a template being a rule of its own.
        terminals: the pattern of each terminal, anonymous ones included.
        ignored: names of the terminals under `%ignore`.
        text: the grammar text, for positions in messages.
    """

    rules: dict[str, RuleTree]
    terminals: dict[str, Pattern]
    ignored: tuple[str, ...]
    text: str


def read_grammar(text: str, start: str) -> Reading:
    """Read and check a grammar; raise GrammarSyntaxError wherever Lark refuses it."""
    with errors_of_ours(text):
        loaded, reading, size = _load(text, start)
        if size <= MAX_ALTERNATIVES:
            Lark(loaded, parser="earley", lexer="dynamic_complete", start=start)
    return reading


def build_lalr(text: str, start: str) -> Lark:
    """Build Lark's LALR parser with its contextual lexer, which has not looked at the terminals yet.

    Raises:
        GrammarSyntaxError: Lark refuses the rules.
        LimitError: Lark would write out too many optional parts.
    """
    with errors_of_ours(text):
        loaded, _, size = _load(text, start)
        if size > MAX_ALTERNATIVES:
            raise LimitError(
                "Lark's LALR parser writes out every choice of optional parts; name parts as rules, "
                "or use lexer='dynamic'",
                "alternatives",
                size,
            )
        return Lark(
            loaded, parser="lalr", lexer="contextual", start=start, _plugins={"ContextualLexer": _UncheckedLexer}
        )


class _UncheckedLexer(ContextualLexer):
    """Lark's contextual lexer without its checks: comparing all terminals, for a warning, can take for ever."""

    def __init__(
        self, conf: LexerConf, states: dict[int, Collection[str]], always_accept: Collection[str] = ()
    ) -> None:
        unchecked = copy(conf)
        unchecked.skip_validation = True
        super().__init__(unchecked, states, always_accept)


@contextmanager
def errors_of_ours(text: str) -> Iterator[None]:
    """Turn whatever Lark raises into an error of ours."""
    try:
        yield
    except (GrammarSyntaxError, LimitError, RecursionError):
        raise
    except Exception as error:  # the loader also lets AssertionError, ValueError, KeyError, OSError and re.error out
        raise _syntax_error(error, text) from error


def _load(text: str, start: str) -> tuple[LoadedGrammar, Reading, int]:
    """Load a grammar; return it as Lark has it and as read here, and how many alternatives Lark would write out."""
    surrogate = _SURROGATE.search(text)
    if surrogate is not None:
        raise GrammarSyntaxError(
            f"Lark grammar: {surrogate[0]!r} is a lone surrogate, which is no text; remove it",
            *_line_column(text, surrogate.start()),
        )
    _refuse_declare(text)
    loaded, _ = _loader.load_grammar(text, "<string>", [], global_keep_all_tokens=False)
    _refuse_imported_declare(loaded)
    reading = _expand(loaded, text)
    if start not in reading.rules:
        raise GrammarSyntaxError(
            f"the start rule {start!r} is not defined; define it, or name another with start="
            + (f" (the rules are {', '.join(sorted(reading.rules)[:5])})" if reading.rules else "")
        )
    return loaded, reading, sum(map(_count_alternatives, reading.rules.values()))


def locate(name: str, text: str) -> tuple[int, int] | tuple[None, None]:
    """Return line and column of the first use of a name outside comments and quotes, (None, None) without one."""
    for found in re.finditer(r'"(?:\\.|[^"\\\n])*"|(?://|#)[^\n]*|(?<!\w)' + re.escape(name) + r"(?!\w)", text):
        if found.group() == name:
            return _line_column(text, found.start())
    return None, None


def _refuse_declare(text: str) -> None:
    found = _DECLARE.search(text)
    if found is not None:
        names = found[1].split("//")[0].strip()
        raise GrammarSyntaxError(
            f"%declare {names} is not supported: a declared terminal has no text; define it with a pattern",
            *_line_column(text, found.end() - len(found[0].lstrip())),
        )


def _refuse_imported_declare(loaded: LoadedGrammar) -> None:
    names = [name for name, (tree, _) in loaded.term_defs if tree is None]
    names += [name for name, _, tree, _ in loaded.rule_defs if tree is None]
    if names:
        raise GrammarSyntaxError(
            f"an imported grammar has %declare {' '.join(names)}, which is not supported: a declared terminal has no "
            f"text; define it here with %override and a pattern, or do without it"
        )


def _expand(loaded: LoadedGrammar, text: str) -> Reading:
    """Do what `Grammar.compile` does before it turns EBNF into BNF, on a copy."""
    patterns = _loader.PrepareLiterals() * _loader.TerminalTreeToPattern()
    terminals = [
        TerminalDef(name, patterns.transform(_loader.nr_deepcopy_tree(tree)), priority)
        for name, (tree, priority) in loaded.term_defs
    ]
    definitions = [
        (name, params, _loader.nr_deepcopy_tree(tree), options) for name, params, tree, options in loaded.rule_defs
    ]
    anonymous = _loader.PrepareAnonTerminals(terminals)
    prepare = _loader.PrepareLiterals() * _loader.ValidateSymbols() * anonymous * _loader.ApplyTemplates(definitions)
    rules: dict[str, RuleTree] = {}
    for name, params, tree, _ in definitions:  # grows while it is read: each use of a template adds a rule
        instances = len(definitions) - len(loaded.rule_defs)
        if instances > MAX_INSTANCES:
            raise LimitError(
                f"template {name.split('{')[0]!r} uses itself without end", "template instances", instances
            )
        if not params:
            rules[name] = prepare.transform(tree)
    return Reading(rules, {t.name: t.pattern for t in terminals}, tuple(dict.fromkeys(loaded.ignore)), text)


def _count_alternatives(node: object) -> int:
    """Count, up to a little over MAX_ALTERNATIVES, the alternatives that Lark would write out for a tree."""
    if not isinstance(node, Tree):
        return 1
    count = 1
    match node.data:
        case "expansions":
            count = sum(map(_count_alternatives, node.children))
        case "expansion":
            for child in node.children:
                count = min(count * _count_alternatives(child), MAX_ALTERNATIVES + 1)
        case "alias":
            count = _count_alternatives(node.children[0])
        case "maybe":
            count = _count_alternatives(node.children[0]) + 1
        case "expr":
            count = _count_repeated(node)
        case _:
            pass
    return min(count, MAX_ALTERNATIVES + 1)


def _count_repeated(node: RuleTree) -> int:
    inner, operator = _count_alternatives(node.children[0]), str(node.children[1])
    if operator != "~":
        return inner + 1
    low, high = int(str(node.children[2])), int(str(node.children[-1]))
    return sum(inner**times for times in range(max(low, 0), min(high, 50) + 1))  # from 50 on Lark adds rules instead


def _syntax_error(error: Exception, text: str) -> GrammarSyntaxError:
    """Turn what Lark raised into our error, with the position that it gives or that its names have in the text."""
    if isinstance(error, VisitError):
        return _syntax_error(error.orig_exc, text)
    if isinstance(error, UnexpectedInput):
        token = getattr(error, "token", None)
        what = "this" if token is None else repr(str(token))
        return GrammarSyntaxError(f"Lark grammar: {what} is not expected here", error.line, error.column)
    message = _message(error)
    found = _POSITION.search(message)
    if found is not None:
        at = int(found[1]), int(found[2])
        other = _OTHER_RULE.match(text.split("\n")[at[0] - 1])
        if other is not None:
            return GrammarSyntaxError(
                f'Lark grammar: {other[1]!r} is of GBNF or EBNF, and Lark writes a rule as name: "a" | other; the '
                "first rule is named start, or in start=",
                *at,
            )
        said = message.replace(found[0], "").replace("Unexpected input in <string>", _unexpected(text, *at))
        return GrammarSyntaxError(f"Lark grammar: {said}", *at)
    for name in _names_in(error, message):
        line, column = locate(name, text)
        if line is not None:
            return GrammarSyntaxError(f"Lark grammar: {message}", line, column)
    return GrammarSyntaxError(f"Lark grammar: {message}")


def _unexpected(text: str, line: int, column: int) -> str:
    """Say what stands where Lark reads on no further."""
    rest = text.split("\n")[line - 1][column - 1 :]
    if rest.startswith("'"):
        return "strings are in double quotes here, not in single ones"
    if rest.startswith('"'):
        return "this string has no end in its line"
    return f"{rest[:1]!r} is not expected here"


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"the imported grammar {error.filename!r} is not found"
    pattern, fault = getattr(error, "pattern", None), getattr(error, "msg", None)  # of re.error and regex.error
    if fault is not None:
        return f"regular expression '{pattern}': {fault}"
    message = str(error.args[0] if error.args else "").split("\n\n")[0].strip(" :\n")
    if isinstance(error, ValueError) and "digits" in message:
        # Python's own sentence tells to change a setting of the interpreter.
        return "a count after ~ has too many digits"
    if not message:
        return f"Lark's loader stops with {type(error).__name__}"
    terminals = ", ".join(argument.user_repr() for argument in error.args[1:] if isinstance(argument, TerminalDef))
    if terminals and "zero-width" in message:
        return f"terminal {terminals} can match the empty text, which Lark's dynamic lexer refuses; use '+' for '*'"
    return f"{message} ({terminals})" if terminals else message


def _names_in(error: Exception, message: str) -> Iterator[str]:
    """Yield what a message speaks about, most telling first: a pattern, a terminal, quoted names, the last words."""
    pattern = getattr(error, "pattern", None)  # of re.error and regex.error
    if isinstance(pattern, str):
        yield f"/{pattern}/"
    for argument in error.args[1:]:
        if isinstance(argument, TerminalDef):
            yield argument.pattern.raw or argument.name
    yield from re.findall(r"'([^']+)'", message)
    yield from re.findall(r"\((/.+/[imslux]*|\w+)", message)
    yield from reversed(re.findall(r"[\w!?]*\w", message))


def _line_column(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
