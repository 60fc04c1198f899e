"""Productions: the context-free grammar that the parser reads, and what makes it small.

The parser only recognises, so the shape of the trees is free: directly right-recursive rules are turned left (the
stack stays short), rules of one symbol are replaced by it. How an IR grammar becomes productions is in normalise.py.
Spec of the result (held by check_productions): each production has at least one symbol; each symbol exists; no
production is `A -> A`; each nonterminal is reachable and productive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from structgen.errors import UnsatisfiableError
from structgen.grammar.terminal import Terminal

Symbols = tuple[int, ...]
"""A right-hand side: i >= 0 is terminal i, i < 0 is nonterminal ~i."""


@dataclass(frozen=True, eq=False, slots=True)
class Productions:
    """A context-free grammar without empty productions, which may grow while it is used.

    Attributes:
        terminals: what is shifted, as far as it is known.
        rules: for each nonterminal its right-hand sides; None until they are asked for.
        repeats: nonterminal -> (minimum, maximum) times of its item; its rules are then exactly
            (item,) and (~itself, separator..., item), counted by the parser.
        start: the start nonterminal.
        nullable: whether the empty text belongs to the language.
        names: for each nonterminal a name that is the same in every process.
        make: returns the right-hand sides of a nonterminal, which are in `rules` from then on; thread-safe.
    """

    terminals: Sequence[Terminal]
    rules: Sequence[Sequence[Symbols] | None]
    repeats: Mapping[int, tuple[int, int | None]]
    start: int
    nullable: bool
    names: Sequence[str]
    make: Callable[[int], Sequence[Symbols]]

    def of(self, head: int) -> Sequence[Symbols]:
        """Return the right-hand sides of a nonterminal."""
        known = self.rules[head]
        return self.make(head) if known is None else known

    def complete(self) -> None:
        """Make all right-hand sides, so that nothing grows any more."""
        head = 0
        while head < len(self.rules):
            self.of(head)
            head += 1

    @property
    def is_only_empty(self) -> bool:
        """Tell whether the empty text is the only one."""
        return self.rules == ((),)


def _nothing_to_make(head: int) -> Sequence[Symbols]:
    raise ValueError(f"nonterminal {head} has no rules, and nobody makes them")


def trim(
    terminals: Sequence[Terminal],
    rules: list[list[Symbols]],
    repeats: Mapping[int, tuple[int, int | None]],
    start: int,
    *,
    nullable: bool,
) -> Productions:
    """Return the productions without those that produce nothing or cannot be reached; these do not grow.

    Args:
        terminals: what is shifted.
        rules: for each nonterminal its right-hand sides; changed in place.
        repeats: as in Productions.
        start: the start nonterminal.
        nullable: whether the empty text belongs to the language.

    Raises:
        UnsatisfiableError: nothing is left, not even the empty text.
    """
    productive = _productive(rules, repeats)
    if start not in productive:
        if nullable:
            return Productions((), ((),), {}, 0, nullable=True, names=("0",), make=_nothing_to_make)
        raise UnsatisfiableError(
            "no text fits this declaration: its parts need each other without an end, or their bounds leave no text; "
            "give one of them a way to end"
        )
    for head, alternatives in enumerate(rules):
        rules[head] = [
            rhs
            for rhs in dict.fromkeys(alternatives)
            if rhs != (~head,) and all(s >= 0 or ~s in productive for s in rhs)
        ]
    for head in range(len(rules)):
        if head not in repeats:
            _turn_right_recursion(rules, head)
    _inline_units(rules, start, repeats)
    return _renumbered(terminals, rules, repeats, start, nullable=nullable)


def _productive(rules: Sequence[Sequence[Symbols]], repeats: Mapping[int, tuple[int, int | None]]) -> set[int]:
    productive: set[int] = set()

    def is_productive(head: int, alternatives: Sequence[Symbols]) -> bool:
        # A repeat of at least two items needs its second rule too, where it stands for itself.
        needs_both = repeats.get(head, (1, None))[0] >= 2
        done = [all(s >= 0 or ~s in productive or (needs_both and s == ~head) for s in rhs) for rhs in alternatives]
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


def _renumbered(
    terminals: Sequence[Terminal],
    rules: list[list[Symbols]],
    repeats: Mapping[int, tuple[int, int | None]],
    start: int,
    *,
    nullable: bool,
) -> Productions:
    order, seen = [start], {start}
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
        tuple(terminals[index] for index in used_terminals),
        tuple(tuple(renamed(rhs) for rhs in rules[head]) for head in order),
        {number[head]: bounds for head, bounds in repeats.items() if head in number},
        0,
        nullable,
        names=tuple(map(str, range(len(order)))),
        make=_nothing_to_make,
    )
    check_productions(result)
    return result


def check_productions(productions: Productions) -> None:
    """Hold productions that do not grow to the spec; raise ValueError, a bug in a pass, where they break it."""
    if productions.is_only_empty:
        return
    rules = [productions.of(head) for head in range(len(productions.rules))]
    productive = _productive(rules, productions.repeats)
    for head, alternatives in enumerate(rules):
        if head not in productive:
            raise ValueError(f"nonterminal {head} produces nothing")
        for rhs in alternatives:
            if not rhs or rhs == (~head,):
                raise ValueError(f"nonterminal {head} has the production {rhs}")
            if any(s >= len(productions.terminals) or ~s >= len(rules) for s in rhs):
                raise ValueError(f"nonterminal {head}: a symbol of {rhs} does not exist")
