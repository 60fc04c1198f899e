r"""What `%ignore` lets stand before a terminal and at the end of the text.

Lark's dynamic lexer skips an ignored terminal as far as it matches: never a part of that match. So the next terminal
may not begin with something that would have made the match longer: after `#` and its comment only a newline can
come, and `a #b` holds no `b`. A skipped stretch therefore leaves *obligations*: words that what follows must not
begin with. A terminal after skipped text is the terminal less what the obligations forbid.

Left out: an obligation that a whole terminal does not settle (an ignored `/\/\*(.|\n)*\*\//` reaches to the last
`*/` of the text). It is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from structgen.errors import GrammarSyntaxError, LimitError
from structgen.grammar.dfa import Dfa
from structgen.grammar.time_limit import check_time

MAX_STATES = 20_000

# A set of (ignored terminal, its state after the match): from none of these states may an accepting one be reached.
Obligation = frozenset[tuple[int, int]]
# Inside an ignored terminal: (terminal, its state, obligations so far). Between two: (-1, 0, obligations).
Thread = tuple[int, int, Obligation]

NOTHING: Obligation = frozenset()


class Ignored:
    """The skipped stretches of a grammar, as one automaton."""

    def __init__(self, names: Sequence[str], dfas: Sequence[Dfa]) -> None:
        """Build the automaton.

        Args:
            names: of the ignored terminals, for messages.
            dfas: their languages, each word as Lark's matcher takes it.
        """
        self._names = names
        self._delta: list[list[list[int]]] = [dfa.delta.tolist() for dfa in dfas]
        self._accepting: list[list[bool]] = [dfa.accepting.tolist() for dfa in dfas]
        self._goes_on = [set(np.nonzero(dfa.delta >= 0)[0].tolist()) for dfa in dfas]
        self._class_of, self._bytes = _byte_classes(dfa.delta for dfa in dfas)
        self._obligations: list[set[Obligation]] = []  # per state: what a stretch that ends there may leave
        self._table = self._explore()
        self._before: dict[Dfa, tuple[tuple[Dfa, Dfa], ...]] = {}
        self.trailing = self._stretch(frozenset().union(*self._obligations))

    def before(self, terminal: Dfa, name: str) -> tuple[tuple[Dfa, Dfa], ...]:
        """Return the ways to have a terminal with skipped text before it: (skipped, terminal) pairs.

        The skipped part of the first pair may be empty. Raises GrammarSyntaxError where an obligation reaches past
        the terminal.
        """
        if terminal not in self._before:
            after: dict[Dfa, set[Obligation]] = {terminal: {NOTHING}}
            for obligation in sorted(frozenset().union(*self._obligations) - {NOTHING}, key=sorted):
                rest = self._less(terminal, obligation, name)
                if not rest.is_empty:
                    after.setdefault(rest, set()).add(obligation)
            self._before[terminal] = tuple((self._stretch(ends), rest) for rest, ends in after.items())
        return self._before[terminal]

    def _explore(self) -> list[list[int]]:
        """Determinise over classes of bytes; -1 where no stretch goes on."""
        index: dict[frozenset[Thread], int] = {}
        pending: list[frozenset[Thread]] = []

        def number(threads: set[Thread]) -> int:
            key = _undominated(threads)
            if not key:
                return -1
            if key not in index:
                if len(index) >= MAX_STATES:
                    raise LimitError("the %ignore terminals are too large together", "states", len(index))
                index[key] = len(index)
                pending.append(key)
                self._obligations.append({held for terminal, _, held in key if terminal < 0})
            return index[key]

        number(self._boundary(NOTHING))
        table: list[list[int]] = []
        while len(table) < len(pending):
            check_time("what is ignored")
            threads = pending[len(table)]
            table.append([number(self._step_all(threads, byte)) for byte in self._bytes])
        return table

    def _boundary(self, held: Obligation) -> set[Thread]:
        return {(-1, 0, held)} | {(terminal, 0, held) for terminal in range(len(self._names))}

    def _step_all(self, threads: Iterable[Thread], byte: int) -> set[Thread]:
        after: set[Thread] = set()
        for terminal, state, held in threads:
            target = self._delta[terminal][state][byte] if terminal >= 0 else -1
            kept = self._step(held, byte) if target >= 0 else None
            if kept is None:
                continue
            after.add((terminal, target, kept))
            if self._accepting[terminal][target]:
                own = {(terminal, target)} if target in self._goes_on[terminal] else NOTHING
                after |= self._boundary(kept | own)
        return after

    def _step(self, held: Obligation, byte: int) -> Obligation | None:
        """Advance obligations by a byte; None where one is broken."""
        kept = set()
        for terminal, state in held:
            target = self._delta[terminal][state][byte]
            if target < 0:
                continue
            if self._accepting[terminal][target]:
                return None
            kept.add((terminal, target))
        return frozenset(kept)

    def _stretch(self, ends: Iterable[Obligation]) -> Dfa:
        """Return the stretches that leave one of these obligations."""
        wanted = set(ends)
        table = np.asarray(self._table, np.int32)[:, self._class_of]
        return Dfa.build(table, [bool(left & wanted) for left in self._obligations])

    def _less(self, terminal: Dfa, obligation: Obligation, name: str) -> Dfa:
        """Return the words of a terminal that keep an obligation.

        Raises:
            GrammarSyntaxError: a word ends before it is settled whether it keeps the obligation.
        """
        class_of, representatives = _byte_classes([terminal.delta], self._class_of)
        num_states = terminal.num_states
        index: dict[tuple[int, Obligation], int] = {(0, obligation): num_states}
        pending = [(0, obligation)]
        rows: list[list[int]] = []
        while len(rows) < len(pending):
            check_time("what is ignored")
            state, held = pending[len(rows)]
            if rows and terminal.accepting[state]:
                raise self._unsettled(held, name)
            row = [-1] * len(representatives)
            for column, byte in enumerate(representatives):
                target = int(terminal.delta[state, byte])
                kept = self._step(held, byte) if target >= 0 else None
                if kept:
                    if (target, kept) not in index:
                        index[target, kept] = num_states + len(pending)
                        pending.append((target, kept))
                    row[column] = index[target, kept]
                elif kept is not None:
                    row[column] = target
            rows.append(row)
        if len(rows) == 1 and rows[0] == terminal.delta[0, representatives].tolist():
            return terminal  # settled by the first byte of each word, and kept
        table = np.concatenate([terminal.delta, np.asarray(rows, np.int32)[:, class_of]])
        accepting = np.concatenate([terminal.accepting, np.zeros(len(rows), np.bool_)])
        return Dfa.build(table, accepting, start=num_states)

    def _unsettled(self, held: Obligation, name: str) -> GrammarSyntaxError:
        ignored = self._names[min(held)[0]]
        return GrammarSyntaxError(
            f"%ignore {ignored} can match on into what follows {name}: Lark skips as far as it can, and where "
            f"that ends is not settled by one terminal; let {ignored} end at the first chance (such as '*?' for '*')"
        )


def _undominated(threads: set[Thread]) -> frozenset[Thread]:
    """Drop each thread that another one equals but for fewer obligations."""
    least: dict[tuple[int, int], list[Obligation]] = {}
    for terminal, state, held in threads:
        least.setdefault((terminal, state), []).append(held)
    return frozenset(
        (terminal, state, held)
        for (terminal, state), all_held in least.items()
        for held in all_held
        if not any(other < held for other in all_held)
    )


def _byte_classes(deltas: Iterable[np.ndarray], known: np.ndarray | None = None) -> tuple[np.ndarray, list[int]]:
    """Return the class of each byte and one byte of each class; bytes of a class step alike everywhere."""
    rows = [*deltas] if known is None else [*deltas, known[None, :]]
    _, first, class_of = np.unique(np.concatenate(rows), axis=1, return_index=True, return_inverse=True)
    return class_of.reshape(-1), first.tolist()
