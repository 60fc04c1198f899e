"""The tables of Lark's LALR parser and its contextual lexers, as values.

Lark settles a conflict between shifting and reducing in silence, by shifting, and one between two rules by their
priorities. What is lost that way is worked out here: which token may not follow which rule in which state. Left out:
texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lark import Lark
from lark.grammar import Rule, Symbol
from lark.lexer import Pattern
from lark.parsers.lalr_analysis import Shift

from structgen.grammar import regex
from structgen.grammar.lark_grammar.reader import build_lalr, errors_of_ours
from structgen.grammar.lark_grammar.terminals import pattern_node

END = "$END"

# Per nonterminal, the terminals that it can begin with, and whether it can be empty.
First = dict[str, tuple[set[str], bool]]
# A nonterminal where an LR state expects it.
Spot = tuple[int, str]


@dataclass(frozen=True)
class LexerTable:
    """What one of the contextual lexers does.

    Attributes:
        order: the terminals that it tries, first to last.
        ignored: those that it skips.
        words: per terminal, the terminals that it becomes where the whole token is one of theirs, first to last.
        accepts: the terminals that the parser may ask of it, END included.
    """

    order: tuple[str, ...]
    ignored: frozenset[str]
    words: tuple[tuple[str, tuple[str, ...]], ...]
    accepts: frozenset[str]


def read_tables(text: str, start: str) -> tuple[Tables, dict[str, regex.Node]]:
    """Return the tables of a grammar, and the syntax tree of each terminal that some lexer tries.

    Raises:
        GrammarSyntaxError: Lark refuses the grammar, or a terminal holds what is not regular.
        LimitError: Lark would write out too many optional parts.
    """
    lark = build_lalr(text, start)
    frontend: Any = lark.parser
    # Rules that nothing reaches may keep each other: Lark looks at none of the terminals that only they use.
    tried = {terminal.name for lexer in frontend.lexer.lexers.values() for terminal in lexer.terminals}
    # Before Lark joins the terminals of a lexer in one expression, where a fault is harder to tell.
    nodes = {one.name: pattern_node(one.name, one.pattern, text) for one in lark.terminals if one.name in tried}
    with errors_of_ours(text):
        return Tables(lark, start), nodes


class Tables:
    """A grammar as Lark's LALR parser holds it.

    Attributes:
        patterns: the pattern of each terminal.
        priorities: the priority of each terminal.
        lexers: the lexers that differ.
        lexer_of: the lexer of each LR state, by its number in `lexers`.
        first: the LR state to start in.
        start: the rule to start from.
        rules: the rules of each nonterminal.
    """

    def __init__(self, lark: Lark, start: str) -> None:
        """Read the tables out of a parser that was built with parser="lalr", lexer="contextual"."""
        frontend: Any = lark.parser
        table = frontend.parser._parse_table  # Lark shows its tables nowhere else
        self._actions: dict[int, dict[str, tuple[Any, Any]]] = table.states
        self.first: int = table.start_states[start]
        self.start = start
        self.patterns: dict[str, Pattern] = {terminal.name: terminal.pattern for terminal in lark.terminals}
        self.priorities: dict[str, int] = {terminal.name: terminal.priority for terminal in lark.terminals}
        self.rules: dict[str, list[Rule]] = {}
        for rule in lark.rules:
            self.rules.setdefault(str(rule.origin.name), []).append(rule)
        numbers: dict[LexerTable, int] = {}
        self.lexer_of = {
            state: numbers.setdefault(_read_lexer(lexer, self._actions[state]), len(numbers))
            for state, lexer in frontend.lexer.lexers.items()
        }
        self.lexers = tuple(numbers)

    def goto(self, state: int, symbol: Symbol) -> int:
        """Return the state after a symbol."""
        return int(self._actions[state][symbol.name][1])

    def path(self, state: int, rule: Rule) -> list[int]:
        """Return the states through which a rule is read from a state on, that state first."""
        states = [state]
        for symbol in rule.expansion:
            states.append(self.goto(states[-1], symbol))
        return states

    def reduces(self, state: int, token: str, rule: Rule) -> bool:
        """Tell whether the parser reduces by a rule in a state when it sees a token."""
        _, argument = self._actions[state].get(token, (None, None))
        return bool(argument == rule)

    @cached_property
    def lexers_after(self) -> dict[str, frozenset[int]]:
        """Per terminal, the lexers that can be asked after it."""
        after: dict[str, set[int]] = {name: set() for name in self.patterns}
        for actions in self._actions.values():
            for name, (action, target) in actions.items():
                if action is Shift and name in after:
                    after[name].add(self.lexer_of[target])
        return {name: frozenset(lexers) for name, lexers in after.items()}

    @cached_property
    def left_out(self) -> dict[tuple[int, Rule], frozenset[str]]:
        """Per final state and rule, the tokens that may follow by the grammar, but not by the parser."""
        found: dict[tuple[int, Rule], frozenset[str]] = {}
        for spot, tokens in self._followers().items():
            for rule in self.rules[spot[1]]:
                final = self.path(spot[0], rule)[-1]
                lost = frozenset(token for token in tokens if not self.reduces(final, token, rule))
                if lost:
                    found[final, rule] = found.get((final, rule), frozenset()) | lost
        return found

    def _followers(self) -> dict[Spot, set[str]]:
        """Return the tokens that can follow each nonterminal in its state, which is what LALR(1) goes by."""
        root = (self.first, self.start)
        uses: dict[Spot, list[tuple[Spot, set[str], bool]]] = {}
        pending, seen = [root], {root}
        while pending:
            spot = pending.pop()
            uses[spot] = []
            for rule in self.rules[spot[1]]:
                states = self.path(spot[0], rule)
                for at, symbol in enumerate(rule.expansion):
                    if not symbol.is_term:
                        inner = (states[at], str(symbol.name))
                        uses[spot].append((inner, *_first_of(rule.expansion[at + 1 :], self._first)))
                        if inner not in seen:
                            seen.add(inner)
                            pending.append(inner)
        found: dict[Spot, set[str]] = {spot: set() for spot in uses}
        found[root].add(END)
        pending = [*uses]
        while pending:
            spot = pending.pop()
            for inner, tokens, is_last in uses[spot]:
                more = (tokens | found[spot] if is_last else tokens) - found[inner]
                if more:
                    found[inner] |= more
                    pending.append(inner)
        return found

    @cached_property
    def _first(self) -> First:
        """Per nonterminal, the terminals that it can begin with, and whether it can be empty."""
        first = {name: (set[str](), False) for name in self.rules}
        is_growing = True
        while is_growing:
            is_growing = False
            for name, rules in self.rules.items():
                for rule in rules:
                    tokens, is_empty = _first_of(rule.expansion, first)
                    now = (first[name][0] | tokens, first[name][1] or is_empty)
                    is_growing |= now != first[name]
                    first[name] = now
        return first


def _read_lexer(lexer: Any, actions: dict[str, Any]) -> LexerTable:
    scanned: list[Any] = lexer.scanner.terminals  # makes the callbacks, too
    words = {name: tuple(word.name for word in call.scanner.terminals) for name, call in lexer.callback.items()}
    known = {terminal.name for terminal in lexer.terminals}
    return LexerTable(
        tuple(terminal.name for terminal in scanned),
        frozenset(lexer.ignore_types),
        tuple(sorted(words.items())),
        frozenset(name for name in actions if name in known or name == END),
    )


def _first_of(symbols: Iterable[Symbol], first: First) -> tuple[set[str], bool]:
    """Return the terminals that symbols can begin with, and whether they can be empty."""
    tokens: set[str] = set()
    for symbol in symbols:
        if symbol.is_term:
            return tokens | {symbol.name}, False
        begins, is_empty = first[str(symbol.name)]
        tokens |= begins
        if not is_empty:
            return tokens, False
    return tokens, True
