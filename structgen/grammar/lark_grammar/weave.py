"""The rules of a grammar, woven with what its lexers do between the tokens.

A nonterminal is read from a *label* to a label: the group of seams behind the last token and, where Lark's parser
settles conflicts, the sort of the token that comes next. A rule becomes one rule for each way through the labels.
Left out: how groups and tables are made, and that rules which come out alike are one again in the end (merge).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from lark.grammar import Rule, Symbol

from structgen.errors import LimitError
from structgen.grammar.ir import Expr, Literal, Reference
from structgen.grammar.lark_grammar.exprs import choice, sequence
from structgen.grammar.lark_grammar.groups import Groups, Ways
from structgen.grammar.lark_grammar.lalr import END, Tables
from structgen.grammar.lark_grammar.spots import representatives
from structgen.grammar.time_limit import check_time

MAX_RULES = 50_000


class Label(NamedTuple):
    """What is known between two tokens: the group of seams, and the sort of the next token."""

    group: int
    sort: int


class Goal(NamedTuple):
    """A nonterminal where an LR state expects it, from a label on."""

    label: Label
    state: int
    name: str


class Item(NamedTuple):
    """The rest of a rule: its symbols from a place on, read from an LR state and a label on."""

    label: Label
    state: int
    rule: Rule
    at: int


class Weaver:
    """The woven rules, made from the start on."""

    def __init__(self, tables: Tables, groups: Groups, express: Callable[[str, Ways], Expr]) -> None:
        """Find to which labels each nonterminal can lead.

        Args:
            tables: the parser.
            groups: the seams between tokens.
            express: makes a part of a rule of a token's name and the ways to have it.
        """
        self._tables = tables
        self._groups = groups
        self._express = express
        self._tokens: dict[tuple[int, str, int, int], Expr] = {}
        self._sorts, self._closed = _sorts(tables)
        self._all_sorts = sorted(set(self._sorts.values()))
        self._standing = representatives(tables, self._kind, self._closed)
        self._ends: dict[Goal, set[Label]] = {}
        self._readers: dict[Goal, set[Goal]] = {}
        self.starts = [self._goal(Label(groups.first, sort), tables.first, tables.start) for sort in self._all_sorts]
        self._solve()
        self.rules: dict[str, Expr] = {}
        self._names: dict[tuple[Goal | Item, Label], str] = {}
        self._bodies: dict[tuple[Item, Label], Expr | None] = {}

    def whole(self) -> Iterable[tuple[Expr, int]]:
        """Yield the whole text but for what is skipped at its end, with the group that it leads to."""
        for goal in self.starts:
            for label in sorted(self._ends[goal]):
                if label.sort == self._sorts[END]:
                    yield Reference(self._rule(goal, label)), label.group

    def _solve(self) -> None:
        """Compute the labels behind each goal, as a least fixpoint."""
        pending: list[Goal] = []
        for goal in self.starts:
            self._known(goal, pending)
        while pending:
            check_time(f"rule {pending[-1].name!r}")
            goal = pending.pop()
            found = self._ends[goal].copy()
            for rule in self._tables.rules[goal.name]:
                found |= self._behind_rule(goal, rule, pending)
            if found != self._ends[goal]:
                self._ends[goal] = found
                pending += self._readers[goal]

    def _known(self, goal: Goal, pending: list[Goal]) -> set[Label]:
        """Return what is known so far of the labels behind a goal, which is put on the list if it is new."""
        if goal not in self._ends:
            if len(self._ends) >= MAX_RULES:
                raise LimitError("the grammar has too many rules; use lexer='dynamic'", "rules", len(self._ends))
            self._ends[goal] = set()
            self._readers[goal] = set()
            pending.append(goal)
        return self._ends[goal]

    def _behind_rule(self, goal: Goal, rule: Rule, pending: list[Goal]) -> set[Label]:
        """Return what is known so far of the labels behind a rule."""
        states = self._tables.path(goal.state, rule)
        labels = {goal.label}
        for state, symbol in zip(states, rule.expansion, strict=False):
            if symbol.is_term:
                labels = {after for label in labels for after in self._after(label, state, symbol)}
                continue
            inner = [self._goal(label, state, str(symbol.name)) for label in labels]
            labels = set()
            for part in inner:
                labels |= self._known(part, pending)
                self._readers[part].add(goal)
        return {label for label in labels if self._may_reduce(label, states[-1], rule)}

    def _goal(self, label: Label, state: int, name: str) -> Goal:
        return Goal(label, self._standing[state, name], name)

    def _kind(self, token: str, state: int) -> tuple[str, Hashable]:
        """Return what tells a token apart, of its name and the state after it."""
        return token, self._groups.kind(token, self._tables.lexer_of[state])

    def _may_reduce(self, label: Label, state: int, rule: Rule) -> bool:
        return label.sort not in self._closed.get((state, rule), ())

    def _after(self, label: Label, state: int, symbol: Symbol) -> list[Label]:
        """Return the labels behind a token."""
        if self._sorts[symbol.name] != label.sort:
            return []
        lexer = self._tables.lexer_of[self._tables.goto(state, symbol)]
        exits = self._groups.exits(label.group, symbol.name, lexer)
        return [Label(group, sort) for group in exits for sort in self._all_sorts]

    def _token(self, label: Label, state: int, symbol: Symbol, group: int) -> Expr:
        lexer = self._tables.lexer_of[self._tables.goto(state, symbol)]
        key = label.group, symbol.name, lexer, group
        if key not in self._tokens:
            self._tokens[key] = self._express(symbol.name, self._groups.exits(label.group, symbol.name, lexer)[group])
        return self._tokens[key]

    def _rule(self, goal: Goal, end: Label) -> str:
        """Return the name of the rule of a nonterminal from label to label, which is made if it is not there."""
        waiting = [(goal, end)]
        for part, to in waiting:  # grows while it is read
            name = self._name(part, to)
            if name in self.rules:
                continue
            check_time(f"rule {name!r}")
            self.rules[name] = Literal(b"")  # its place is taken
            bodies = []
            for rule in self._tables.rules[part.name]:
                body = self._body(Item(part.label, part.state, rule, 0), to, waiting)
                bodies += [] if body is None else [body]
            self.rules[name] = choice(bodies)
        return self._name(goal, end)

    def _name(self, part: Goal | Item, end: Label) -> str:
        name = part.name if isinstance(part, Goal) else part.rule.origin.name
        return self._names.setdefault((part, end), f"{name} {len(self._names)}")

    def _body(self, item: Item, end: Label, waiting: list[tuple[Goal, Label]]) -> Expr | None:
        """Return what is left of a rule, from label to label; None if there is no way."""
        key = item, end
        if key not in self._bodies:
            self._bodies[key] = self._weave(item, end, waiting)
        return self._bodies[key]

    def _weave(self, item: Item, end: Label, waiting: list[tuple[Goal, Label]]) -> Expr | None:
        if item.at == len(item.rule.expansion):
            fits = item.label == end and self._may_reduce(end, item.state, item.rule)
            return Literal(b"") if fits else None
        symbol = item.rule.expansion[item.at]
        ahead = self._tables.goto(item.state, symbol)
        options: list[Expr] = []
        for label in self._behind(item, symbol):
            rest = self._body(Item(label, ahead, item.rule, item.at + 1), end, waiting)
            if rest is None:
                continue
            if symbol.is_term:
                part = self._token(item.label, item.state, symbol, label.group)
            else:
                goal = self._goal(item.label, item.state, str(symbol.name))
                part = Reference(self._name(goal, label))
                waiting.append((goal, label))
            options.append(sequence((part, rest)))
        if len(options) > 1 and item.at:  # a rule of its own, or the ways of a long rule would multiply
            name = self._name(item, end)
            self.rules[name] = choice(options)
            return Reference(name)
        return choice(options) if options else None

    def _behind(self, item: Item, symbol: Symbol) -> list[Label]:
        if symbol.is_term:
            return self._after(item.label, item.state, symbol)
        return sorted(self._ends[self._goal(item.label, item.state, str(symbol.name))])


def _sorts(tables: Tables) -> tuple[dict[str, int], dict[tuple[int, Rule], frozenset[int]]]:
    """Sort the tokens by the conflicts that they decide.

    Returns:
        the sort of each token, END included, and per final state and rule the sorts that may not come next.
    """
    numbers: dict[frozenset[tuple[int, Rule]], int] = {}
    sorts = {}
    for token in (*tables.patterns, END):
        lost = frozenset(key for key, tokens in tables.left_out.items() if token in tokens)
        sorts[token] = numbers.setdefault(lost, len(numbers))
    closed = {key: frozenset(sorts[token] for token in tokens) for key, tokens in tables.left_out.items()}
    return sorts, closed
