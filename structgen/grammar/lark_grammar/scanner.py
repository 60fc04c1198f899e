"""The characters of one token, as Lark's lexers see them: which terminal matches, and what that says of the rest.

Lark's scanner is one alternation of terminals, matched by `re.match`: the first way to match counts. Whether "if" is
all of a name depends on what follows. So a token may end wherever a thread has matched, *provided that* the rest of
the text keeps a promise: no thread that stands above the match ever matches, and the look-aheads of the match are
fulfilled. That promise (`Rest`) is carried over as many tokens as it takes to be settled; nothing is approximated.

Left out: which terminals are looked for where (seams), and the parser (lalr).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from structgen.errors import LimitError
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.lark_grammar.program import Program
from structgen.grammar.lark_grammar.threads import EARLIER, SETTLED, Looks, Pending, Thread, Threads
from structgen.grammar.table import DEAD, IntArray
from structgen.grammar.time_limit import check_time

MAX_STATES = 20_000
MAX_PROMISE_STATES = 200
"""Larger promises are not compared with others; that is only slower."""


class Rest(NamedTuple):
    """What has been promised of the rest of the text.

    Attributes:
        behind: where the look-behinds stand.
        forbidden: threads of which none may match.
        owed: what look-aheads must still see.
    """

    behind: Looks
    forbidden: frozenset[Thread]
    owed: Pending


@dataclass(frozen=True)
class Reach:
    """The states that a scan can come to.

    Attributes:
        states: their numbers, the first one first.
        table: (num_states, num_columns) int32, the next state by its place in `states`, -1 for none.
    """

    states: tuple[int, ...]
    table: IntArray


class Scanner:
    """The terminals of a grammar, and the states of a scan for any choice of them."""

    def __init__(self, program: Program, places: Mapping[str, tuple[int, int]]) -> None:
        """Take a program of all terminals, and where each begins and is done."""
        self._place = {name: start for name, (start, _) in places.items()}
        self._name = {done: name for name, (_, done) in places.items()}
        self.threads = Threads(program)
        self.nothing = Rest(self.threads.no_text, frozenset(), SETTLED)
        self._states: list[tuple[tuple[Thread, ...], Rest]] = []
        self._number: dict[tuple[tuple[Thread, ...], Rest], int] = {}
        self._rows: dict[int, list[int]] = {}
        self._reach: dict[int, Reach] = {}
        self._standing_for: dict[Rest, Rest] = {}
        self._by_promise: dict[tuple[Looks, Hashable], Rest] = {}

    def open(self, names: Iterable[str], rest: Rest) -> int:
        """Return the state in which a scan for terminals begins, the first one being tried first."""
        begins = [(self._place[name], SETTLED) for name in names]
        return self._intern(tuple(self.threads.close(begins, rest.behind)), rest)

    def narrow(self, names: Iterable[str], rest: Rest) -> Rest:
        """Drop what is forbidden to the rest and cannot begin where one of these terminals begins."""
        begins = [*self.threads.close([(self._place[name], SETTLED) for name in names], rest.behind)]
        columns = [c for c in self.threads.columns if any(self.threads.takes(thread, c) for thread in begins)]
        forbidden = frozenset(
            thread
            for thread in rest.forbidden
            if thread[0] == EARLIER or any(self.threads.takes(thread, column) for column in columns)
        )
        return self._standing(rest._replace(forbidden=forbidden))

    def row(self, state: int) -> list[int]:
        """Return the next state by column, DEAD for none."""
        if state not in self._rows:
            row = [DEAD] * self.threads.num_columns
            for column in self.threads.columns:
                row[column] = self._step(state, column)
            self._rows[state] = row
        return self._rows[state]

    def ends(self, state: int) -> list[tuple[str, Rest]]:
        """Return the terminals that may end here, each with what it then promises."""
        waiting, rest = self._states[state]
        found, above = [], set(rest.forbidden)
        for thread in waiting:
            if thread[0] in self._name:
                after = Rest(rest.behind, frozenset(above), rest.owed | thread[1])
                found.append((self._name[thread[0]], self._standing(after)))
                above.add((EARLIER, thread[1]))
            else:
                above.add(thread)
        return found

    def may_end(self, rest: Rest) -> bool:
        """Tell whether all promises are kept if the text ends here."""
        is_broken = any(at == EARLIER and self.threads.may_end(pending) for at, pending in rest.forbidden)
        return not is_broken and self.threads.may_end(rest.owed)

    def reach(self, start: int) -> Reach:
        """Return what a scan can come to."""
        if start not in self._reach:
            order, place = [start], {start: 0, DEAD: DEAD}
            for state in order:  # grows while it is read
                check_time("the terminals that hang together")
                for target in self.row(state):
                    if target not in place:
                        place[target] = len(order)
                        order.append(target)
            table = np.array([[place[target] for target in self.row(state)] for state in order], dtype=np.int32)
            self._reach[start] = Reach(tuple(order), table)
        return self._reach[start]

    def language(self, table: IntArray, accepting: list[bool]) -> CharDfa:
        """Return the texts of a table over the columns of the scanner."""
        return CharDfa.build_over_classes(self.threads.starts, self.threads.class_of, table, accepting)

    def _standing(self, rest: Rest) -> Rest:
        """Return the promise that stands for all that the same texts keep; else each length of a name were one."""
        if rest not in self._standing_for:
            kept = self._kept(rest)
            standing = rest if kept is None else self._by_promise.setdefault((rest.behind, kept), rest)
            self._standing_for[rest] = standing
        return self._standing_for[rest]

    def _kept(self, rest: Rest) -> Hashable | None:
        """Return what stands for the texts that keep a promise, None if it takes many states to tell."""
        ahead = {column: self._step_rest(rest, column) for column in self.threads.columns}
        broken = frozenset(column for column, after in ahead.items() if after is None)
        if self.may_end(rest) and all(after is None or after[1:] == self.nothing[1:] for after in ahead.values()):
            return broken  # settled by the next character, as most are
        place = {rest: 0}
        order, table = [rest], []
        for state in order:  # grows while it is read
            check_time("the terminals that hang together")
            row = [DEAD] * self.threads.num_columns
            for column in self.threads.columns:
                after = self._step_rest(state, column)
                if after is not None:
                    row[column] = place.setdefault(after, len(order))
                    if row[column] == len(order):
                        order.append(after)
            table.append(row)
            if len(order) > MAX_PROMISE_STATES:
                return None
        return self.language(np.array(table, dtype=np.int32), [self.may_end(state) for state in order])

    def _intern(self, waiting: tuple[Thread, ...], rest: Rest) -> int:
        key = waiting, rest
        if key not in self._number:
            if len(self._states) >= MAX_STATES:
                raise LimitError("the terminals are too large together", "states", len(self._states))
            self._number[key] = len(self._states)
            self._states.append(key)
        return self._number[key]

    def _step(self, state: int, column: int) -> int:
        threads = self.threads
        waiting, rest = self._states[state]
        if not any(threads.takes(thread, column) for thread in waiting):
            return DEAD
        after = self._step_rest(rest, column)
        if after is None:
            return DEAD
        # To go on is to say that the match which is settled here is not the first one: one above it will come.
        unsettled = [thread for thread in waiting if thread[1] or not threads.has_matched(thread)]
        moved = [
            thread
            for thread in threads.close(threads.move(unsettled, column), after.behind)
            if thread != (EARLIER, SETTLED)
        ]
        return self._intern(tuple(moved), after) if any(thread[0] != EARLIER for thread in moved) else DEAD

    def _step_rest(self, rest: Rest, column: int) -> Rest | None:
        """Move promises over a character; None where one is broken."""
        threads = self.threads
        behind = threads.see(rest.behind, column)
        owed = threads.advance(rest.owed, column)
        if owed is None:
            return None
        forbidden = set()
        for thread in threads.close(threads.move(rest.forbidden, column), behind):
            is_matched = threads.has_matched(thread)
            if is_matched and not thread[1]:
                return None
            forbidden.add((EARLIER, thread[1]) if is_matched else thread)
        return Rest(behind, frozenset(forbidden), owed)
