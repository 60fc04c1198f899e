"""Finishing costs: how many tokens are enough to end from a configuration, and whether it can end at all.

The cost is attained by a fixed strategy, so it is inductive: unless a configuration may end, some legal
token leads to a cost that is lower by one or more. The strategy spells each lexeme with tokens that lie
wholly inside it; where needed tokens (spelling.py) are met, also with tokens that cross borders. Costs are
then vectors over *border nodes*: the places inside a needed token at which a lexeme may begin. In the common
case the only border node is the root, and a vector is one number.

An infinite cost means that no sequence of tokens ends the text: exact, so it is also what "spellable" is
decided by. Shortest paths: Dijkstra 1959; the fixed point over rules: Knuth 1977.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from structgen.errors import VocabularyError
from structgen.grammar.border import BorderCosts
from structgen.grammar.parser import Parser
from structgen.grammar.productions import Symbols
from structgen.grammar.scan import INFINITE, VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.stacks import Entry

Vector = tuple[int, ...]
"""Cost by border node."""

Matrix = tuple[Vector, ...]
"""Cost from border node to border node."""


def times(one: Matrix, two: Matrix) -> Matrix:
    """Return the min-plus product."""
    columns = list(zip(*two, strict=True))
    return tuple(tuple(min(map(int.__add__, row, column)) for column in columns) for row in one)


def applied(matrix: Matrix, vector: Vector) -> Vector:
    """Return the costs before a part, given the costs after it."""
    return tuple(min(map(int.__add__, row, vector)) for row in matrix)


def least(vectors: Sequence[Vector], width: int) -> Vector:
    """Return the minimum, place by place."""
    if not vectors:
        return (INFINITE,) * width
    return tuple(min(column) for column in zip(*vectors, strict=True))


class FinishingCosts:
    """Costs over one parser and one vocabulary. Callers hold the automaton's lock."""

    def __init__(self, parser: Parser, scans: VocabularyScans, spelling: Spelling) -> None:
        """Work out the costs of the terminals and nonterminals.

        Raises:
            VocabularyError: no sequence of tokens spells any text of the grammar.
        """
        self.parser = parser
        self.productions = parser.productions
        self.productions.complete()
        self.terminals = BorderCosts(parser.terminals, scans, spelling)
        self.width = self.terminals.width
        self.identity: Matrix = tuple(
            tuple(0 if i == j else INFINITE for j in range(self.width)) for i in range(self.width)
        )
        self.nonterminals = self._rule_matrices()
        self._entries: dict[tuple[int, Entry], Vector] = {}
        self._stacks: dict[int, Vector] = {}
        self._suffixes: dict[Symbols, Matrix] = {}
        if self.of_configuration(parser.start) >= INFINITE:
            raise VocabularyError(
                "the vocabulary cannot spell any text of this grammar: no sequence of its tokens reaches an end; "
                "allow other spellings, or use a tokenizer with byte fallback"
            )

    def of_configuration(self, configuration: int) -> int:
        """Return how many tokens are enough to end from here; INFINITE if none are."""
        threads, accepting = self.parser.configurations[configuration]
        if accepting:
            return 0
        return min((self.of_thread(t, q, c, self.of_stack(stack)) for t, q, c, stack in threads), default=INFINITE)

    def of_thread(self, terminal: int, state: int, count: int, rest: Vector) -> int:
        """Return the cost of ending a thread, given the costs of what follows its terminal."""
        to_end = self.terminals.to_end(terminal, state, count)
        return min(INFINITE, min(map(int.__add__, to_end, rest)))

    def of_stack(self, stack: int) -> Vector:
        """Return the costs of ending, once the terminal under a stack set is complete."""
        known = self._stacks.get(stack)
        if known is None:
            below = [
                (frame, under) for frame, deeper in self.parser.stacks[stack] for under in self.parser.stacks[deeper]
            ]
            known = self._stacks[stack] = least([self._of_entry(key) for key in below], self.width)
        return known

    # ------------------------------------------------------------------ rules

    def _rule_matrices(self) -> list[Matrix]:
        rules = self.productions.rules
        nothing: Matrix = ((INFINITE,) * self.width,) * self.width
        costs = [nothing] * len(rules)
        self.nonterminals = costs
        changed = True
        while changed:
            changed = False
            # Later nonterminals were met inside earlier ones, so going backwards needs few rounds.
            for head in range(len(rules) - 1, -1, -1):
                best = self._repeat_matrix(head) if head in self.productions.repeats else self._best(head)
                if best != costs[head]:
                    costs[head] = best
                    changed = True
        return costs

    def _best(self, head: int) -> Matrix:
        options = [self._product(rhs) for rhs in self.productions.of(head) if rhs]
        return reduce(_minimum, options, self.nonterminals[head])

    def _repeat_matrix(self, head: int) -> Matrix:
        """Return the cost of a counted repeat: its minimum of items, or a few more to end in another border node."""
        item, *more = self.productions.of(head)
        low, high = self.productions.repeats[head]
        cost = self._product(item)
        if not more:
            return cost
        step = self._product(more[0][1:])
        cost = times(cost, power(step, low - 1, self.identity))
        extra = self.width - 1 if high is None else min(self.width - 1, high - low)
        best = cost
        for _ in range(extra):
            cost = times(cost, step)
            best = _minimum(best, cost)
        return best

    def _symbol(self, symbol: int) -> Matrix:
        return self.terminals.matrix(symbol) if symbol >= 0 else self.nonterminals[~symbol]

    def _product(self, symbols: Symbols) -> Matrix:
        first, *rest = symbols
        return _capped(reduce(times, map(self._symbol, rest), self._symbol(first)))

    def _suffix(self, symbols: Symbols) -> Matrix:
        known = self._suffixes.get(symbols)
        if known is None:
            known = self._suffixes[symbols] = self._product(symbols) if symbols else self.identity
        return known

    # ------------------------------------------------------------------ stacks

    def _of_entry(self, key: tuple[int, Entry]) -> Vector:
        """Return the costs of ending with a frame on top of one entry."""
        if key not in self._entries:
            self._solve(key)
        return self._entries[key]

    def _solve(self, key: tuple[int, Entry]) -> None:
        """Work out the costs of a frame and of all that it reduces to: least fixed point by relaxation.

        Reductions never go up the stack, so what is found on the way depends only on what is found too.
        """
        found: dict[tuple[int, Entry], list[tuple[Matrix, tuple[int, Entry] | None]]] = {}
        todo = [key]
        while todo:
            one = todo.pop()
            if one in found or one in self._entries:
                continue
            found[one] = self._ways(*one)
            todo.extend(target for _, target in found[one] if target is not None)
        end = (0, *(INFINITE,) * (self.width - 1))
        costs = dict.fromkeys(found, (INFINITE,) * self.width)
        changed = True
        while changed:
            changed = False
            for one in reversed(found):
                options = [costs[one]]
                for matrix, target in found[one]:
                    after = end if target is None else self._entries.get(target) or costs[target]
                    options.append(applied(matrix, after))
                best = tuple(min(INFINITE, value) for value in least(options, self.width))
                if best != costs[one]:
                    costs[one] = best
                    changed = True
        self._entries.update(costs)

    def _ways(self, frame: int, under: Entry) -> list[tuple[Matrix, tuple[int, Entry] | None]]:
        """Return the ways to go on: (cost of the symbols to come, what is on top after reducing; None at the end)."""
        number = self.parser.frames[frame][0]
        state = self.parser.table.state(number)
        ways: list[tuple[Matrix, tuple[int, Entry] | None]] = []
        if state.is_accepting:
            ways.append((self.identity, None))
        complete = [(head, size, ()) for head, size in state.reduces]
        # The item of the added production is only ever in the start state, which no frame on top can be.
        for head, dot, rest in [*self.parser.table.open_items(number), *complete]:
            for entry, items in self._popped(frame, under, head, dot, dot + len(rest)):
                # Where a further item would only begin, the strategy stops at the least number that is enough.
                if dot == 1 and rest and head in self.productions.repeats and items > self._most_items(head):
                    continue
                top = self.parser.goto_entry(entry, head, items)
                if top is not None:
                    ways.append((self._suffix(rest), (top[0], entry)))
        return ways

    def _most_items(self, head: int) -> int:
        """Return how many items of a repeat the strategy goes up to."""
        return self.productions.repeats[head][0] + self.width - 1

    def _popped(self, frame: int, under: Entry, head: int, dot: int, size: int) -> list[tuple[Entry, int]]:
        """Return the entries left when `dot` frames are popped, with the items counted if head is a repeat."""
        parser = self.parser
        levels: list[Entry] = [(frame, -1)]
        if dot == 1:
            left = [under]
        else:
            levels = [under] if dot == 2 else parser.ancestors(under[1], dot - 3)
            left = [entry for _, below in levels for entry in parser.stacks[below]]
        if head not in self.productions.repeats:
            return [(entry, 0) for entry in left]
        if size == len(self.productions.of(head)[0]):
            return [(entry, 1) for entry in left]
        if dot == 1:
            return [(under, parser.frames[frame][1] + 1)]
        return [(entry, parser.frames[own][1] + 1) for own, below in levels for entry in parser.stacks[below]]


def _minimum(one: Matrix, two: Matrix) -> Matrix:
    return tuple(tuple(map(min, a, b)) for a, b in zip(one, two, strict=True))


def _capped(matrix: Matrix) -> Matrix:
    return tuple(tuple(min(INFINITE, value) for value in row) for row in matrix)


def power(matrix: Matrix, exponent: int, identity: Matrix) -> Matrix:
    """Return a min-plus power, by squaring."""
    result = identity
    while exponent:
        if exponent & 1:
            result = _capped(times(result, matrix))
        matrix = _capped(times(matrix, matrix))
        exponent >>= 1
    return result
