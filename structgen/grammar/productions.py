"""Productions: the context-free grammar that the parser reads, and what makes it small.

The parser only recognises, so the shape of the trees is free: directly right-recursive rules are turned left (the
stack stays short), rules of one symbol are replaced by it. How an IR grammar becomes productions is in normalise.py.
Spec of the result (held by check_productions): each production has at least one symbol; each symbol exists; no
production is `A -> A`; each nonterminal is reachable and productive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from structgen.errors import UnsatisfiableError
from structgen.grammar.terminal import Terminal

Symbols = tuple[int, ...]
"""A right-hand side: i >= 0 is terminal i, i < 0 is nonterminal ~i."""


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
        raise UnsatisfiableError(
            "no text fits this declaration: its parts need each other without an end, or their bounds leave no text; "
            "give one of them a way to end"
        )
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

    users: list[list[int]] = [[] for _ in rules]
    for head, alternatives in enumerate(rules):
        for symbol in {s for rhs in alternatives for s in rhs if s < 0}:
            users[~symbol].append(head)
    todo = list(range(len(rules)))
    while todo:
        head = todo.pop()
        if head not in productive and is_productive(head, rules[head]):
            productive.add(head)
            todo.extend(users[head])
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
