"""A tiny recogniser for ir.Grammar over bytes: slow, and obviously right.

It computes, for each pair (rule, start position) that is asked for, the set of end positions, as the least
fixpoint of the rules read as equations. Left recursion, empty rules and ambiguity need no special care: a
set only grows until nothing changes. It knows neither tokens nor vocabularies.
"""

from __future__ import annotations

from collections.abc import Iterable

from structgen.grammar import ir

Ends = frozenset[int]
Cell = tuple[str, int]


def accepts(grammar: ir.Grammar, data: bytes) -> bool:
    """Return whether the bytes as a whole are a word of the grammar."""
    return len(data) in ends(grammar, data)


def ends(grammar: ir.Grammar, data: bytes) -> Ends:
    """Return each position at which a word of the grammar that begins the bytes ends."""
    return _Chart(grammar, data).solve()


class _Chart:
    """The fixpoint computation for one text."""

    def __init__(self, grammar: ir.Grammar, data: bytes) -> None:
        self.grammar = grammar
        self.data = data
        self.found: dict[Cell, Ends] = {}
        self.readers: dict[Cell, set[Cell]] = {}
        self.pending: list[Cell] = []
        self.lexemes: dict[tuple[ir.Lexeme, int], Ends] = {}

    def solve(self) -> Ends:
        goal = (self.grammar.start, 0)
        self.read(goal, goal)
        while self.pending:
            cell = self.pending.pop()
            name, start = cell
            now = self.span(self.grammar.rules[name], start, cell)
            if now != self.found[cell]:
                self.found[cell] |= now
                self.pending.extend(self.readers[cell])
        return self.found[goal]

    def read(self, cell: Cell, reader: Cell) -> Ends:
        """Return what is known of a cell so far, and have the reader computed again when that grows."""
        if cell not in self.found:
            self.found[cell] = frozenset()
            self.readers[cell] = set()
            self.pending.append(cell)
        self.readers[cell].add(reader)
        return self.found[cell]

    def span(self, expr: ir.Expr, start: int, reader: Cell) -> Ends:
        match expr:
            case ir.Literal(text=text):
                return frozenset({start + len(text)} if self.data.startswith(text, start) else ())
            case ir.Lexeme():
                if (expr, start) not in self.lexemes:
                    self.lexemes[expr, start] = frozenset(lexeme_ends(expr, self.data, start))
                return self.lexemes[expr, start]
            case ir.Sequence(items=items):
                at: Ends = frozenset({start})
                for item in items:
                    at = frozenset(end for begin in at for end in self.span(item, begin, reader))
                return at
            case ir.Choice(options=options):
                return frozenset(end for option in options for end in self.span(option, start, reader))
            case ir.Repeat():
                return self.repeat(expr, start, reader)
            case ir.Reference(name=name):
                return self.read((name, start), reader)

    def repeat(self, expr: ir.Repeat, start: int, reader: Cell) -> Ends:
        """Walk (position, count); counts above what still matters are one count."""
        cap = expr.minimum if expr.maximum is None else expr.maximum
        separator = expr.separator
        seen = {(start, 0)}
        stack = [(start, 0)]
        while stack:
            at, count = stack.pop()
            if expr.maximum is not None and count == expr.maximum:
                continue
            begins = [at] if count == 0 or separator is None else self.span(separator, at, reader)
            for end in [end for begin in begins for end in self.span(expr.item, begin, reader)]:
                # At least one item was read when a separator is due, so a capped count never falls to 0.
                state = (end, min(count + 1, max(cap, 1)))
                if state not in seen:
                    seen.add(state)
                    stack.append(state)
        return frozenset(at for at, count in seen if count >= expr.minimum)


def lexeme_ends(lexeme: ir.Lexeme, data: bytes, start: int) -> Iterable[int]:
    """Yield the ends of the lexeme's words that begin at a position, its length bounds counted in ticks."""
    dfa, bound = lexeme.dfa, lexeme.max_length
    state, ticks, at = 0, 0, start
    while True:
        if dfa.accepting[state] and ticks >= lexeme.min_length and (bound is None or ticks <= bound):
            yield at
        if at == len(data):
            return
        ticks += bool(dfa.tick_bytes[state, data[at]])
        state = int(dfa.delta[state, data[at]])
        at += 1
        if state < 0:
            return
