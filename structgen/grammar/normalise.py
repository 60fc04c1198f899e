"""Grammar IR -> productions: no empty rules, no useless ones, repeats as counted nonterminals.

The parser only recognises, so the shape of the trees is free: optional parts become left-linear
prefixes (the stack stays short), and directly right-recursive rules are turned left.
Spec of the result (held by check_productions): each production has at least one symbol; each symbol
exists; no production is `A -> A`; each nonterminal is reachable and productive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

from structgen.errors import LimitError, UnsatisfiableError
from structgen.grammar import dfa as dfas
from structgen.grammar.dfa import Dfa
from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence, walk
from structgen.grammar.terminal import Terminal, build_terminal

Symbols = tuple[int, ...]
"""A right-hand side: i >= 0 is terminal i, i < 0 is nonterminal ~i."""

_MAX_EXPANDED_OPTIONALS = 2


@dataclass(frozen=True, slots=True)
class Productions:
    """A context-free grammar without empty productions.

    Attributes:
        terminals: what is shifted.
        rules: for each nonterminal its right-hand sides.
        repeats: nonterminal -> (minimum, maximum) times of its item; its rules are then exactly
            (item,) and (~itself, separator..., item), counted by the parser.
        start: the start nonterminal.
        nullable: whether the empty text belongs to the language.
    """

    terminals: tuple[Terminal, ...]
    rules: tuple[tuple[Symbols, ...], ...]
    repeats: Mapping[int, tuple[int, int | None]]
    start: int
    nullable: bool


class Deadline:
    """The end of the time that a compilation may take."""

    def __init__(self, seconds: float) -> None:
        """Start the clock."""
        self.seconds = seconds
        self._started = time.monotonic()

    def check(self, what: str) -> None:
        """Raise LimitError if the time is over; `what` says what was being worked on."""
        spent = time.monotonic() - self._started
        if spent > self.seconds:
            raise LimitError(f"compiling took too long, at {what}", "compile_seconds", spent)


def normalise(
    grammar: Grammar, deadline: Deadline, *, restrict: Callable[[Dfa], Dfa] | None = None, allow_counters: bool = True
) -> Productions:
    """Return the productions of a grammar.

    Args:
        grammar: what to convert.
        deadline: when to give up.
        restrict: cuts a lexeme's DFA down to what can be spelled.
        allow_counters: False multiplies the length bounds of lexemes out.

    Raises:
        UnsatisfiableError: no text at all belongs to the grammar.
        LimitError: the time is over, or a length bound can be neither counted nor multiplied out.
    """
    builder = _Builder(grammar, deadline, restrict, allow_counters)
    raw = builder.build()
    return trim(raw, frozenset())


def trim(productions: Productions, dead_terminals: frozenset[int]) -> Productions:
    """Return the productions without those that need a dead terminal or cannot be reached.

    Raises:
        UnsatisfiableError: nothing is left, not even the empty text.
    """
    rules = [list(alternatives) for alternatives in productions.rules]
    productive = _productive(rules, productions.repeats, dead_terminals)
    if productions.start not in productive:
        if productions.nullable:
            return Productions((), ((),), {}, 0, nullable=True)
        raise UnsatisfiableError("no text fits this declaration")
    for head, alternatives in enumerate(rules):
        rules[head] = [
            rhs
            for rhs in dict.fromkeys(alternatives)
            if rhs != (~head,) and all((~s in productive) if s < 0 else s not in dead_terminals for s in rhs)
        ]
    for head in range(len(rules)):
        if head not in productions.repeats:
            _turn_right_recursion(rules, head)
    _inline_units(rules, productions.start, productions.repeats)
    return _renumbered(rules, productions)


def _productive(
    rules: list[list[Symbols]], repeats: Mapping[int, tuple[int, int | None]], dead: frozenset[int]
) -> set[int]:
    productive: set[int] = set()

    def is_productive(head: int, alternatives: list[Symbols]) -> bool:
        # A repeat of at least two items needs its second rule too, where it stands for itself.
        needs_both = repeats.get(head, (1, None))[0] >= 2
        done = [
            all((~s in productive or (needs_both and s == ~head)) if s < 0 else s not in dead for s in rhs)
            for rhs in alternatives
        ]
        return len(done) == 2 and all(done) if needs_both else any(done)

    grew = True
    while grew:
        fresh = {head for head, rhss in enumerate(rules) if head not in productive and is_productive(head, rhss)}
        productive |= fresh
        grew = bool(fresh)
    return productive


def _turn_right_recursion(rules: list[list[Symbols]], head: int) -> None:
    """Rewrite A -> x A | b as A -> b | L b with L -> x | L x, where A recurs directly at the right end only."""
    me = ~head
    recursive = [rhs for rhs in rules[head] if rhs[-1] == me]
    rest = [rhs for rhs in rules[head] if rhs[-1] != me]
    if not recursive or any(me in rhs[:-1] for rhs in recursive) or any(me in rhs for rhs in rest):
        return
    loop = len(rules)
    bodies = [rhs[:-1] for rhs in recursive]
    rules.append([*bodies, *((~loop, *body) for body in bodies)])
    rules[head] = [*rest, *((~loop, *rhs) for rhs in rest)]


def _inline_units(rules: list[list[Symbols]], start: int, repeats: Mapping[int, tuple[int, int | None]]) -> None:
    """Replace nonterminals that have a single production of a single symbol."""
    target: dict[int, int] = {}
    for head, alternatives in enumerate(rules):
        if head != start and head not in repeats and len(alternatives) == 1 and len(alternatives[0]) == 1:
            target[~head] = alternatives[0][0]
    for symbol in list(target):
        seen = {symbol}
        end = target[symbol]
        while end in target and end not in seen:
            seen.add(end)
            end = target[end]
        target[symbol] = end
    for head, alternatives in enumerate(rules):
        renamed = dict.fromkeys(tuple(target.get(s, s) for s in rhs) for rhs in alternatives)
        rules[head] = [rhs for rhs in renamed if rhs != (~head,)]


def _renumbered(rules: list[list[Symbols]], old: Productions) -> Productions:
    order, seen = [old.start], {old.start}
    used_terminals: dict[int, int] = {}
    for head in order:
        for rhs in rules[head]:
            for symbol in rhs:
                if symbol >= 0:
                    used_terminals.setdefault(symbol, len(used_terminals))
                elif ~symbol not in seen:
                    seen.add(~symbol)
                    order.append(~symbol)
    number = {head: index for index, head in enumerate(order)}

    def renamed(rhs: Symbols) -> Symbols:
        return tuple(used_terminals[s] if s >= 0 else ~number[~s] for s in rhs)

    result = Productions(
        tuple(old.terminals[index] for index in used_terminals),
        tuple(tuple(renamed(rhs) for rhs in rules[head]) for head in order),
        {number[head]: bounds for head, bounds in old.repeats.items() if head in number},
        0,
        old.nullable,
    )
    check_productions(result)
    return result


def check_productions(productions: Productions) -> None:
    """Hold productions to the spec; raise ValueError, which is a bug in a pass, where they break it."""
    if productions.rules == ((),) and productions.nullable:
        return
    productive = _productive(
        [list(alternatives) for alternatives in productions.rules], productions.repeats, frozenset()
    )
    for head, alternatives in enumerate(productions.rules):
        if head not in productive:
            raise ValueError(f"nonterminal {head} produces nothing")
        for rhs in alternatives:
            if not rhs or rhs == (~head,):
                raise ValueError(f"nonterminal {head} has the production {rhs}")
            if any(s >= len(productions.terminals) or ~s >= len(productions.rules) for s in rhs):
                raise ValueError(f"nonterminal {head}: a symbol of {rhs} does not exist")


class _Builder:
    """Lowers expressions to alternatives of non-empty symbol strings, with nullability beside them."""

    def __init__(
        self,
        grammar: Grammar,
        deadline: Deadline,
        restrict: Callable[[Dfa], Dfa] | None,
        allow_counters: bool,  # noqa: FBT001 - private
    ) -> None:
        self.grammar = grammar
        self.deadline = deadline
        self.restrict = restrict
        self.allow_counters = allow_counters
        self.terminals: list[Terminal] = []
        self.terminal_of_key: dict[object, int] = {}
        self.terminal_of_expr: dict[Lexeme | Literal, tuple[int | None, bool]] = {}
        self.rules: list[list[Symbols]] = []
        self.repeats: dict[int, tuple[int, int | None]] = {}
        self.rule_number: dict[str, int] = {}
        self.shared: dict[object, int] = {}
        self.nullable_rules: set[str] = set()

    def build(self) -> Productions:
        grew = True
        while grew:
            fresh = {
                name
                for name, body in self.grammar.rules.items()
                if name not in self.nullable_rules and self.is_nullable(body)
            }
            self.nullable_rules |= fresh
            grew = bool(fresh)
        start = self.nonterminal_of_rule(self.grammar.start)
        done = 0
        names = list(self.rule_number)
        while done < len(names):
            head = self.rule_number[names[done]]
            self.rules[head] = self.lower(self.grammar.rules[names[done]])
            done += 1
            names = list(self.rule_number)
        nullable = self.grammar.start in self.nullable_rules
        return Productions(tuple(self.terminals), tuple(map(tuple, self.rules)), self.repeats, start, nullable)

    def is_nullable(self, expr: Expr) -> bool:
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
            self.deadline.check(f"a lexeme of {len(self.grammar.rules)} rules")
            if isinstance(expr, Literal):
                expr_lexeme = Lexeme(dfas.literal(expr.text), name=repr(expr.text.decode("utf-8", "replace")))
            else:
                expr_lexeme = expr
            if self.restrict is not None:
                expr_lexeme = replace(expr_lexeme, dfa=self.restrict(expr_lexeme.dfa))
            terminal, nullable = build_terminal(expr_lexeme, allow_counter=self.allow_counters)
            index = None
            if terminal is not None:
                index = self.terminal_of_key.setdefault(terminal.key, len(self.terminals))
                if index == len(self.terminals):
                    self.terminals.append(terminal)
            known = self.terminal_of_expr[expr] = (index, nullable)
        return known

    def new_nonterminal(self, alternatives: list[Symbols]) -> int:
        self.rules.append(alternatives)
        return len(self.rules) - 1

    def nonterminal_of_rule(self, name: str) -> int:
        if name not in self.rule_number:
            self.rule_number[name] = self.new_nonterminal([])
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
        words = [option.text for option in options if isinstance(option, Literal) and option.text]
        rest: list[Expr] = [option for option in options if not isinstance(option, Literal)]
        if words:
            rest.insert(0, Literal(words[0]) if len(words) == 1 else Lexeme(dfas.from_words(words)))
        return list(dict.fromkeys(rhs for option in rest for rhs in self.lower(option)))

    def lower_sequence(self, items: tuple[Expr, ...]) -> list[Symbols]:
        parts = [(self.lower(item), self.is_nullable(item)) for item in items]
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
