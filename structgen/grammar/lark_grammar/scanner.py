"""The characters of one token, as Lark's lexers see them: which terminal matches, and what that says of the rest.

Lark's scanner is one alternation of terminals, matched by `re.match`: the first way to match counts. Whether "if" is
all of a name depends on what follows. So a token may end wherever a thread has matched, *provided that* the rest of
the text keeps a promise: no thread that stands above the match ever matches, and the look-aheads of the match are
fulfilled. That promise (`Rest`) is carried over as many tokens as it takes to be settled; nothing is approximated.

Left out: which terminals are looked for where (seams), and the parser (lalr).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from structgen.errors import LimitError
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.lark_grammar.program import Program, add_expression
from structgen.grammar.lark_grammar.threads import EARLIER, SETTLED, Looks, Pending, Thread, Threads
from structgen.grammar.regex import syntax
from structgen.grammar.table import DEAD, IntArray

MAX_STATES = 20_000


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

    def __init__(self, patterns: Mapping[str, syntax.Node]) -> None:
        """Put all terminals into one program."""
        program = Program()
        self._place: dict[str, int] = {}
        self._name: dict[int, str] = {}
        for name, node in patterns.items():
            self._place[name], done = add_expression(program, node)
            self._name[done] = name
        self.threads = Threads(program)
        self.nothing = Rest(self.threads.no_text, frozenset(), SETTLED)
        self._states: list[tuple[tuple[Thread, ...], Rest]] = []
        self._number: dict[tuple[tuple[Thread, ...], Rest], int] = {}
        self._rows: dict[int, list[int]] = {}
        self._reach: dict[int, Reach] = {}

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
        return rest._replace(forbidden=forbidden)

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
                found.append((self._name[thread[0]], Rest(rest.behind, frozenset(above), rest.owed | thread[1])))
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
