r"""Lower a Lark grammar to the IR.

The language is the one of `Lark(text, parser="earley", lexer="dynamic_complete")`: context-free over the terminals,
every split of the text into terminals counts.

* A terminal stands for the texts that Python's `re.match` takes whole, as in Lark: `/u.*?v/` ends at the first "v",
  and `/a|ab/` is only "a". Priorities of rules and terminals choose among parses in Lark; the language is the same.
* `%ignore` may be skipped before each terminal and at the end of the text, any number of times, each time as far as
  it matches (see `ignored`).
* A look-around, `^`, `$` or `\b` at the edge of a terminal sees the terminal's edge as the edge of the text. Lark
  does so wherever it cuts a match short; where it does not, it sees the real neighbours. So `/if\b/` is "if" here,
  also before a letter: keep a keyword apart from a name by what the rules put between them.

Refused by name: `%declare`, back-references and what else is not regular, an ignored terminal whose end is not
settled by the terminal after it. The contextual lexer is not available yet.
"""

from __future__ import annotations

import sys
from typing import Any

from lark.grammar import NonTerminal, Terminal
from lark.tree import Tree

from structgen.errors import GrammarSyntaxError, LimitError, OptionError
from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Reference, Repeat, Sequence, walk
from structgen.grammar.lark_grammar.contextual import lower_contextual
from structgen.grammar.lark_grammar.exprs import IGNORED, choice, sequence
from structgen.grammar.lark_grammar.ignored import Ignored
from structgen.grammar.lark_grammar.reader import Reading, read_grammar
from structgen.grammar.lark_grammar.terminals import terminal_dfa, terminal_expr
from structgen.grammar.time_limit import check_time


def lower_lark(text: str, start: str = "start", lexer: str = "dynamic") -> Grammar:
    """Lower a grammar in Lark's notation.

    Args:
        text: the grammar.
        start: the rule to start from.
        lexer: "dynamic": every split of the text into terminals counts.

    Raises:
        GrammarSyntaxError: Lark refuses the grammar, or it holds what is not supported here.
        LimitError: a terminal, a template or the ignored terminals grow too large, or groups are nested too deeply.
        OptionError: the lexer is unknown or not available.
    """
    if lexer not in ("dynamic", "contextual"):
        raise OptionError(f'lexer={lexer!r} is not known; use lexer="dynamic" or lexer="contextual"')
    try:
        if lexer == "contextual":
            return lower_contextual(text, start)
        return _Lowering(read_grammar(text, start)).grammar(start)
    except RecursionError as error:
        raise LimitError(
            "groups are nested too deeply; name parts as rules", "nesting", sys.getrecursionlimit()
        ) from error


class _Lowering:
    """One grammar on its way to the IR."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._terminals: dict[str, Expr] = {}
        names = reading.ignored
        self._ignored = Ignored(names, [terminal_dfa(name, reading) for name in names]) if names else None

    def grammar(self, start: str) -> Grammar:
        """Lower the rules that the start rule can reach."""
        rules: dict[str, Expr] = {}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name in rules:
                continue
            check_time(f"rule {name!r}")
            tree = self._reading.rules.get(name)
            if tree is None:
                raise GrammarSyntaxError(f"rule {name!r} is used but not defined; define it")
            rules[name] = body = self._lower(tree)
            waiting += [part.name for part in walk(body) if isinstance(part, Reference)]
        if self._ignored is None:
            return Grammar(rules, start)
        # No rule of Lark begins with two underscores, so the name is free.
        trailing = Lexeme(self._ignored.trailing, name=IGNORED)
        return Grammar({**rules, "__text": Sequence((Reference(start), trailing))}, "__text")

    def _lower(self, node: object) -> Expr:
        if isinstance(node, Terminal):
            return self._terminal(node.name)
        if isinstance(node, NonTerminal):
            return Reference(node.name)
        if not isinstance(node, Tree):
            raise TypeError(f"Lark's loader left {node!r} in a rule")
        match node.data:
            case "expansions":
                return choice([self._lower(child) for child in node.children])
            case "expansion":
                return sequence([self._lower(child) for child in node.children])
            case "alias":
                return self._lower(node.children[0])
            case "maybe":
                return Repeat(self._lower(node.children[0]), 0, 1)
            case "expr":
                return self._repeat(node)
            case _:
                raise TypeError(f"Lark's loader left {node.data!r} in a rule")

    def _repeat(self, node: Tree[Any]) -> Expr:
        item, operator = self._lower(node.children[0]), str(node.children[1])
        if operator != "~":
            return Repeat(item, *{"?": (0, 1), "*": (0, None), "+": (1, None)}[operator])
        low, *rest = (int(str(bound)) for bound in node.children[2:])
        if rest and not 0 <= low <= rest[0]:
            raise GrammarSyntaxError(f"the range ~{low}..{rest[0]} is empty; write ~low..high")
        # Lark takes a single negative number for zero.
        return Repeat(item, max(low, 0), max([low, *rest][-1], 0))

    def _terminal(self, name: str) -> Expr:
        if name not in self._terminals:
            dfa = terminal_dfa(name, self._reading)
            expr: Expr = terminal_expr(dfa, name)
            if self._ignored is not None:
                ways = self._ignored.before(dfa, name)
                options = [
                    Sequence((Lexeme(skipped, name=IGNORED), terminal_expr(rest, name))) for skipped, rest in ways
                ]
                expr = options[0] if len(options) == 1 else Choice(tuple(options))
            self._terminals[name] = expr
        return self._terminals[name]
