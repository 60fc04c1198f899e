"""Grammar IR -> productions: no empty rules, repeats as counted nonterminals, optional parts as prefixes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from structgen.grammar import dfa as dfas
from structgen.grammar.dfa import Dfa
from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence, walk
from structgen.grammar.productions import Productions, Symbols, trim
from structgen.grammar.terminal import Terminal, build_terminal
from structgen.grammar.time_limit import check_time

_MAX_EXPANDED_OPTIONALS = 2


def normalise(
    grammar: Grammar, *, restrict: Callable[[Dfa], Dfa] | None = None, allow_counters: bool = True
) -> Productions:
    """Return the productions of a grammar.

    Args:
        grammar: what to convert.
        restrict: cuts a lexeme's DFA down to what can be spelled.
        allow_counters: False multiplies the length bounds of lexemes out.

    Raises:
        UnsatisfiableError: no text at all belongs to the grammar.
        LimitError: the time is over, or a length bound can be neither counted nor multiplied out.
    """
    return Builder(grammar, restrict, allow_counters=allow_counters).complete()


class Builder:
    """Lowers expressions to alternatives of non-empty symbol strings, with nullability beside them."""

    def __init__(
        self,
        grammar: Grammar,
        restrict: Callable[[Dfa], Dfa] | None,
        *,
        allow_counters: bool,
    ) -> None:
        """Start with nothing lowered; the arguments are those of normalise."""
        self.grammar = grammar
        self.restrict = restrict
        self.allow_counters = allow_counters
        self.terminals: list[Terminal] = []
        self.terminal_of_key: dict[object, int] = {}
        self.terminal_of_expr: dict[Lexeme | Literal, tuple[int | None, bool]] = {}
        self.rules: list[list[Symbols] | None] = []
        self.names: list[str] = []
        self.repeats: dict[int, tuple[int, int | None]] = {}
        self.rule_number: dict[str, int] = {}
        self.waiting_rules: list[str] = []
        self.shared: dict[object, int] = {}
        self.nullable_rules: set[str] = set()
        self.making = ""

    def complete(self) -> Productions:
        """Return the productions of all rules."""
        users: dict[str, list[str]] = {name: [] for name in self.grammar.rules}
        for name, body in self.grammar.rules.items():
            for target in {expr.name for expr in walk(body) if isinstance(expr, Reference)}:
                users[target].append(name)
        todo = list(self.grammar.rules)
        while todo:
            name = todo.pop()
            check_time(f"rule {name!r}")
            if name not in self.nullable_rules and self.is_nullable(self.grammar.rules[name]):
                self.nullable_rules.add(name)
                todo.extend(users[name])
        start = self.nonterminal_of_rule(self.grammar.start)
        while self.waiting_rules:
            name = self.waiting_rules.pop()
            check_time(f"rule {name!r}")
            self.rules[self.rule_number[name]] = self.lower(self.grammar.rules[name])
        rules = [alternatives or [] for alternatives in self.rules]
        return trim(self.terminals, rules, self.repeats, start, nullable=self.grammar.start in self.nullable_rules)

    def is_nullable(self, expr: Expr) -> bool:
        """Tell whether the empty text belongs to an expression."""
        match expr:
            case Literal(text=text):
                return not text
            case Lexeme():
                return self.terminal(expr)[1]
            case Sequence(items=items):
                return all(self.is_nullable(item) for item in items)
            case Choice(options=options):
                return any(self.is_nullable(option) for option in options)
            case Repeat(item=item, minimum=minimum, separator=separator):
                if minimum == 0:
                    return True
                separated = minimum == 1 or separator is None or self.is_nullable(separator)
                return self.is_nullable(item) and separated
            case Reference(name=name):
                return name in self.nullable_rules

    def terminal(self, expr: Lexeme | Literal) -> tuple[int | None, bool]:
        """Return the terminal index of the non-empty words (None if there are none), and nullability."""
        known = self.terminal_of_expr.get(expr)
        if known is None:
            check_time("a lexeme")
            terminal, nullable = terminal_of(expr, self.restrict, allow_counters=self.allow_counters)
            index = None
            if terminal is not None:
                index = self.terminal_of_key.setdefault(terminal.key, len(self.terminals))
                if index == len(self.terminals):
                    self.terminals.append(terminal)
            known = self.terminal_of_expr[expr] = (index, nullable)
        return known

    def new_nonterminal(self, alternatives: list[Symbols] | None) -> int:
        """Return the number of a new nonterminal; its alternatives may be lowered later."""
        return self._numbered(alternatives, f"{self.making} / {len(self.shared)}")

    def _numbered(self, alternatives: list[Symbols] | None, name: str) -> int:
        number = len(self.rules)
        self.names[number:] = [name]
        self.rules.append(alternatives)
        return number

    def nonterminal_of_rule(self, name: str) -> int:
        """Return the number of the nonterminal of a rule."""
        if name not in self.rule_number:
            self.rule_number[name] = self._numbered(None, name)
            self.waiting_rules.append(name)
        return self.rule_number[name]

    def shared_nonterminal(self, alternatives: list[Symbols]) -> Symbols:
        """Return one symbol string for the alternatives, through a nonterminal if there are several."""
        if len(alternatives) == 1:
            return alternatives[0]
        key = tuple(alternatives)
        if key not in self.shared:
            self.shared[key] = self.new_nonterminal(list(alternatives))
        return (~self.shared[key],)

    def lower(self, expr: Expr) -> list[Symbols]:
        """Return the alternatives of the non-empty texts of an expression."""
        match expr:
            case Literal() | Lexeme():
                index, _ = self.terminal(expr)
                return [] if index is None else [(index,)]
            case Reference(name=name):
                return [(~self.nonterminal_of_rule(name),)]
            case Choice(options=options):
                return self.lower_choice(options)
            case Sequence():
                return self.lower_sequence(merged_items(expr))
            case Repeat():
                return self.lower_repeat(expr)

    def lower_choice(self, options: tuple[Expr, ...]) -> list[Symbols]:
        """Return the alternatives of the non-empty texts of any one option, all fixed words as one terminal."""
        words = [option.text for option in options if isinstance(option, Literal) and option.text]
        rest: list[Expr] = [option for option in options if not isinstance(option, Literal)]
        if words:
            rest.insert(0, Literal(words[0]) if len(words) == 1 else Lexeme(dfas.from_words(words)))
        return list(dict.fromkeys(rhs for option in rest for rhs in self.lower(option)))

    def lower_item(self, item: Expr) -> list[Symbols]:
        """Return the alternatives of an expression that stands in a sequence."""
        return self.lower(item)

    def lower_sequence(self, items: tuple[Expr, ...]) -> list[Symbols]:
        """Return the alternatives of the non-empty texts of items in order."""
        parts = [(self.lower_item(item), self.is_nullable(item)) for item in items]
        if any(not alternatives and not nullable for alternatives, nullable in parts):
            return []
        parts = [(alternatives, nullable) for alternatives, nullable in parts if alternatives]
        symbols = [self.shared_nonterminal(alternatives) for alternatives, _ in parts]
        optional = [nullable for _, nullable in parts]
        if sum(optional) <= _MAX_EXPANDED_OPTIONALS:
            choices = [((), part) if maybe else (part,) for part, maybe in zip(symbols, optional, strict=True)]
            expanded = [tuple(s for part in combination for s in part) for combination in product(*choices)]
            return [rhs for rhs in dict.fromkeys(expanded) if rhs]
        return self.lower_prefixes(symbols, optional)

    def lower_prefixes(self, symbols: list[Symbols], optional: list[bool]) -> list[Symbols]:
        """Return alternatives through one left-linear nonterminal per prefix: linear in size, whatever is optional."""
        prefix: list[Symbols] = []
        prefix_nullable = True
        for part, maybe in zip(symbols, optional, strict=True):
            before = self.shared_nonterminal(prefix) if prefix else ()
            now = [(*before, *part)] if prefix else [part]
            if prefix and prefix_nullable:
                now.append(part)
            if prefix and maybe:
                now.append(before)
            prefix = list(dict.fromkeys(now))
            prefix_nullable = prefix_nullable and maybe
        return prefix

    def lower_repeat(self, expr: Repeat) -> list[Symbols]:
        """Return the alternatives of the non-empty texts of a repeat, through a nonterminal that the parser counts."""
        low, high, separator = expr.minimum, expr.maximum, expr.separator
        if high == 0:
            return []
        if separator is not None and (self.is_nullable(expr.item) or self.is_nullable(separator)):
            more = Repeat(Sequence((separator, expr.item)), max(low - 1, 0), None if high is None else high - 1)
            return self.lower_sequence(merged_items(Sequence((expr.item, more))))
        if self.is_nullable(expr.item):
            low = 0
        low = max(low, 1)
        items = self.lower(expr.item)
        if not items or (low, high) == (1, 1):
            return items
        key = (expr.item, low, high, separator)
        if key not in self.shared:
            self.shared[key] = head = self.new_nonterminal([])
            item = self.shared_nonterminal(items)
            between = self.shared_nonterminal(self.lower(separator)) if separator is not None else ()
            self.rules[head] = [item, (~head, *between, *item)]
            if (low, high) != (1, None):
                self.repeats[head] = (low, high)
        return [(~self.shared[key],)]


def terminal_of(
    expr: Lexeme | Literal, restrict: Callable[[Dfa], Dfa] | None, *, allow_counters: bool
) -> tuple[Terminal | None, bool]:
    """Return the terminal of the non-empty words that can be spelled, None if there are none, and nullability."""
    lexeme = expr
    if isinstance(lexeme, Literal):
        lexeme = Lexeme(dfas.literal(lexeme.text), name=repr(lexeme.text.decode("utf-8", "replace")))
    if restrict is not None:
        dfa = restrict(lexeme.dfa)
        lexeme = lexeme if dfa is lexeme.dfa else replace(lexeme, dfa=dfa)
    return build_terminal(lexeme, allow_counter=allow_counters)


def depth_within(grammar: Grammar, num_levels: int) -> int:
    """Return the depth limit under which no JSON text of the grammar is nested more than num_levels deep.

    A frame of the parser's stack is one terminal, and the longest run of brackets that one literal opens says how many
    levels that may be.
    """
    most = 1
    for body in grammar.rules.values():
        for expr in walk(body):
            parts = merged_items(expr) if isinstance(expr, Sequence) else (expr,)
            literals = [part.text for part in parts if isinstance(part, Literal)]
            most = max([most, *(text.count(b"{") + text.count(b"[") for text in literals)])
    return max(1, num_levels // most)


def merged_items(sequence: Sequence) -> tuple[Expr, ...]:
    """Return the items of nested sequences, neighbouring literals made one."""
    flat: list[Expr] = []
    stack: list[Expr] = [sequence]
    while stack:
        top = stack.pop()
        if isinstance(top, Sequence):
            stack.extend(reversed(top.items))
        elif isinstance(top, Literal) and flat and isinstance(flat[-1], Literal):
            flat[-1] = Literal(flat[-1].text + top.text)
        elif not (isinstance(top, Literal) and not top.text):
            flat.append(top)
    return tuple(flat)
