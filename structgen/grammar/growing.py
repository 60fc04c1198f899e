"""Productions that grow: rules that are made when they are asked for become productions then.

Of a large schema a text uses few rules, and the first mask fewer. Where a vocabulary cannot spell every text, or some
lexeme has no word of a length within its bounds, nothing grows: what cannot be written has to be found before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import overload

from structgen.grammar.dfa import Dfa
from structgen.grammar.ir import Choice, Expr, Grammar, LazyRules, Lexeme, Literal, Reference
from structgen.grammar.normalise import Builder, terminal_of
from structgen.grammar.productions import Productions, Symbols
from structgen.grammar.terminal import Terminal, build_terminal
from structgen.grammar.time_limit import check_time
from structgen.grammar.word import build_word


def grow(grammar: Grammar, rules: LazyRules, restrict: Callable[[Dfa], Dfa]) -> Productions | None:
    """Return the productions of rules that are made when they are asked for; None where one might have no text left.

    Args:
        grammar: what to convert.
        rules: its rules.
        restrict: cuts a lexeme's DFA down to what can be spelled; nothing else keeps a text from being spelled.

    Raises:
        LimitError: the time is over, or a length bound can be neither counted nor multiplied out.
    """
    for lexeme in rules.facts.lexemes:
        dfa = restrict(lexeme.dfa)
        if dfa is not lexeme.dfa or lexeme.min_length or lexeme.max_length is not None:
            check_time("a lexeme")
            if build_terminal(replace(lexeme, dfa=dfa)) == (None, False):
                return None
    return _Grower(grammar, restrict).productions()


class _Grower(Builder):
    """Lowers rules when their alternatives are asked for, and makes terminals when these are."""

    def __init__(self, grammar: Grammar, restrict: Callable[[Dfa], Dfa]) -> None:
        super().__init__(grammar, restrict, allow_counters=True)
        self.late_terminals = _LateTerminals(restrict)
        self.deferred: dict[int, Expr] = {}
        self.lock = threading.RLock()

    def productions(self) -> Productions:
        """Return the productions, which grow."""
        return Productions(
            self.late_terminals,
            self.rules,
            self.repeats,
            self.nonterminal_of_rule(self.grammar.start),
            nullable=False,
            names=self.names,
            make=self.make,
        )

    def make(self, head: int) -> list[Symbols]:
        """Return the alternatives of a nonterminal, lowered now."""
        with self.lock:
            known = self.rules[head]
            if known is None:
                # What is shared between rules would be named by the one that was asked for first.
                self.shared = {}
                self.making = self.names[head]
                # It stays until it is lowered: whoever interrupts that may ask again.
                body = self.deferred.get(head)
                if body is None:
                    body = self.grammar.rules[self.making]
                if self.is_nullable(body):
                    raise ValueError(f"rule {self.making!r} has the empty text, which no rule made later may have")
                found = self.lower(body)
                known = self.rules[head] = [rhs for rhs in dict.fromkeys(found) if rhs != (~head,)]
                self.deferred.pop(head, None)
            return known

    def terminal(self, expr: Lexeme | Literal) -> tuple[int | None, bool]:
        """Return the terminal index, which is made later where it is certain that there is one; and nullability."""
        known = self.terminal_of_expr.get(expr)
        if known is None:
            if isinstance(expr, Lexeme) and expr.dfa.accepts_empty:
                terminal, nullable = terminal_of(expr, self.restrict, allow_counters=True)
                known = (None if terminal is None else self.late_terminals.add(expr)), nullable
            elif isinstance(expr, Literal) and not expr.text:
                known = None, True
            else:
                known = self.late_terminals.add(expr), False
            self.terminal_of_expr[expr] = known
        return known

    def is_nullable(self, expr: Expr) -> bool:
        """Tell whether the empty text belongs to an expression."""
        if isinstance(expr, Reference):  # whoever makes rules later knows that none has the empty text
            return False
        if isinstance(expr, Lexeme) and not expr.dfa.accepts_empty:
            return False
        return super().is_nullable(expr)

    def lower_item(self, item: Expr) -> list[Symbols]:
        """Return the alternatives of an expression that stands in a sequence: a choice is lowered when it is met."""
        if not isinstance(item, Choice) or self.is_nullable(item):
            return self.lower(item)
        head = self.shared.get(item)
        if head is None:
            head = self.shared[item] = self.new_nonterminal(None)
            self.deferred[head] = item
        return [(~head,)]


class _LateTerminals(Sequence[Terminal]):
    """Terminals that are made when they are first asked for."""

    def __init__(self, restrict: Callable[[Dfa], Dfa]) -> None:
        self._restrict = restrict
        self._exprs: list[Lexeme | Literal] = []
        self._made: dict[int, Terminal] = {}

    def add(self, expr: Lexeme | Literal) -> int:
        """Return the index of a new terminal."""
        self._exprs.append(expr)
        return len(self._exprs) - 1

    def __len__(self) -> int:
        return len(self._exprs)

    @overload
    def __getitem__(self, index: int) -> Terminal: ...

    @overload
    def __getitem__(self, index: slice) -> list[Terminal]: ...

    def __getitem__(self, index: int | slice) -> Terminal | list[Terminal]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        known = self._made.get(index)
        if known is None:
            if index >= len(self._exprs):
                raise IndexError(index)
            expr = self._exprs[index]
            if isinstance(expr, Literal):  # it can be spelled, or nothing would grow
                terminal: Terminal | None = build_word(expr.text)
            else:
                terminal, _ = terminal_of(expr, self._restrict, allow_counters=True)
            if terminal is None:
                raise ValueError(f"no word is left of {expr}, which has to be found before")
            known = self._made[index] = terminal
        return known
