"""LR(0) states of the productions, made on demand.

No look-ahead is used: all stacks are kept side by side (parser.py), so conflicts cost time, never
exactness. A frame is an LR state with the count of the repeat that led to it (0 where there is none);
which items of a counted state are live is settled when the frame is made, so the state itself says
all that may follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from structgen.grammar.productions import Productions, Symbols

Item = tuple[int, int]
"""(production, number of symbols already seen)."""


@dataclass(frozen=True, eq=False, slots=True)
class LrState:
    """What may follow in one LR(0) state.

    Attributes:
        shifts: terminal -> state after it, terminals ascending.
        gotos: nonterminal -> items after it, before the counts are looked at.
        reduces: complete productions, as (head, number of symbols).
        is_accepting: whether the whole text is complete here.
    """

    shifts: dict[int, int]
    gotos: dict[int, tuple[Item, ...]]
    reduces: tuple[tuple[int, int], ...]
    is_accepting: bool


class LrTable:
    """Interned LR states; grows as it is asked. Callers hold the automaton's lock."""

    def __init__(self, productions: Productions) -> None:
        """Start with the added production, number 0, whose only symbol is the start."""
        self.productions = productions
        self.heads: list[int] = [-1]
        self.bodies: list[Symbols] = [(~productions.start,)]
        # What is the same in every process: the name of the head, and which of its productions it is.
        self._names: list[tuple[str, int]] = [("", 0)]
        self._by_head: dict[int, range] = {}
        self.states: list[LrState | None] = []
        self._kernels: list[frozenset[Item]] = []
        self._number: dict[frozenset[Item], int] = {}
        self._starts: dict[int, tuple[dict[int, int], dict[int, tuple[Item, ...]]]] = {}
        self.start = self.intern(frozenset({(0, 0)}))

    def intern(self, kernel: frozenset[Item]) -> int:
        """Return the number of the state with this kernel."""
        number = self._number.get(kernel)
        if number is None:
            # In this order, as one may be interrupted between any two lines.
            number = len(self.states)
            self._kernels[number:] = [kernel]
            self.states.append(None)
            self._number[kernel] = number
        return number

    def kernel_name(self, number: int) -> str:
        """Return the items that a state was made from in words: the same in every process, unlike its number."""
        return str(sorted((*self._names[production], dot) for production, dot in self._kernels[number]))

    def productions_of(self, head: int) -> range:
        """Return the productions of a nonterminal, numbered when first asked for."""
        known = self._by_head.get(head)
        if known is None:
            bodies, name = self.productions.of(head), self.productions.names[head]
            first = len(self._names)
            self.bodies[first:] = bodies
            self.heads[first:] = [head] * len(bodies)
            self._names += [(name, index) for index in range(len(bodies))]
            known = self._by_head[head] = range(first, first + len(bodies))
        return known

    def state(self, number: int) -> LrState:
        """Return a state, worked out when first asked for."""
        known = self.states[number]
        if known is None:
            known = self.states[number] = self._expand(self._kernels[number])
        return known

    def open_items(self, number: int) -> list[tuple[int, int, Symbols]]:
        """Return the items a state was made from that go on, as (head, symbols seen, symbols to come)."""
        items = (
            (self.heads[production], dot, self.bodies[production][dot:]) for production, dot in self._kernels[number]
        )
        return sorted(item for item in items if item[2])

    def _closure_of(self, head: int) -> tuple[Item, ...]:
        """Return the initial items of a nonterminal and of all that may start it."""
        seen, order = {head}, [head]
        for one in order:
            for production in self.productions_of(one):
                first = self.bodies[production][0]
                if first < 0 and ~first not in seen:
                    seen.add(~first)
                    order.append(~first)
        return tuple((p, 0) for one in order for p in self.productions_of(one))

    def _start_of(self, head: int) -> tuple[dict[int, int], dict[int, tuple[Item, ...]]]:
        """Return (shifts, gotos) at the start of a nonterminal: what all states share that wait for it alone."""
        known = self._starts.get(head)
        if known is None:
            known = self._starts[head] = self._moves(self._closure_of(head))
        return known

    def _moves(self, items: Iterable[Item]) -> tuple[dict[int, int], dict[int, tuple[Item, ...]]]:
        after: dict[int, list[Item]] = {}
        for production, dot in items:
            if dot < len(self.bodies[production]):
                after.setdefault(self.bodies[production][dot], []).append((production, dot + 1))
        return (
            {symbol: self.intern(frozenset(after[symbol])) for symbol in sorted(after) if symbol >= 0},
            {~symbol: tuple(moved) for symbol, moved in after.items() if symbol < 0},
        )

    def _expand(self, kernel: frozenset[Item]) -> LrState:
        if len(kernel) == 1:
            ((production, dot),) = kernel
            body = self.bodies[production]
            if dot < len(body) and body[dot] >= 0:  # one terminal comes: most states of a long rule are so
                return LrState(
                    {body[dot]: self.intern(frozenset(((production, dot + 1),)))}, {}, (), is_accepting=False
                )
        reduces = []
        waiting = []
        for production, dot in kernel:
            body = self.bodies[production]
            if dot == len(body):
                reduces.append((self.heads[production], dot))
            else:
                waiting.append((production, dot, body[dot]))
        is_accepting = any(head < 0 for head, _ in reduces)
        if not waiting:
            shifts: dict[int, int] = {}
            gotos: dict[int, tuple[Item, ...]] = {}
        elif len(waiting) == 1 and waiting[0][2] < 0:
            ((production, dot, symbol),) = waiting
            shifts, gotos = self._start_of(~symbol)
            gotos = {**gotos, ~symbol: ((production, dot + 1), *gotos.get(~symbol, ()))}
        else:
            items = dict.fromkeys((production, dot) for production, dot, _ in sorted(waiting))
            for _, _, symbol in waiting:
                if symbol < 0:
                    items.update(dict.fromkeys(self._closure_of(~symbol)))
            shifts, gotos = self._moves(items)
        return LrState(shifts, gotos, tuple(sorted(one for one in reduces if one[0] >= 0)), is_accepting)

    def goto(self, number: int, head: int, count: int) -> tuple[int, int] | None:
        """Return the frame (state, count) after a nonterminal, or None if its count allows nothing.

        Args:
            number: the state before the nonterminal.
            head: the nonterminal.
            count: items read so far if it is a counted repeat, else 0.
        """
        items = self.state(number).gotos[head]
        bounds = self.productions.repeats.get(head)
        if bounds is None:
            return self.intern(frozenset(items)), 0
        low, high = bounds
        if high is None:
            count = min(count, low)
        # The item of "itself, separator, item" goes on; every other item leaves the repeat.
        kept = frozenset(
            item
            for item in items
            if (high is None or count < high if self.heads[item[0]] == head and item[1] == 1 else count >= low)
        )
        return (self.intern(kept), count) if kept else None
