"""Between two tokens: what a contextual lexer may skip there, and which tokens it may read next.

A *seam* is a place behind a token: the lexer that the parser asks there, and what is promised of the rest of the
text. After the skipped text, at a *middle*, a token begins. The seams of a grammar are finitely many; this module
finds them and gives their texts. Left out: which of them can be told apart at all (groups).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from structgen.errors import LimitError
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.lark_grammar.lalr import LexerTable, Tables
from structgen.grammar.lark_grammar.scanner import Rest, Scanner
from structgen.grammar.table import DEAD, IntArray
from structgen.grammar.time_limit import check_time

MAX_SEAMS = 2_000
MAX_SKIP_STATES = 5_000


class Seam(NamedTuple):
    """A place behind a token: the lexer asked there, and what of the promises matters to it."""

    lexer: int
    rest: Rest


class Skipped(NamedTuple):
    """The texts that may be skipped at a seam, as one automaton.

    Attributes:
        table: (num_states, num_columns) over the columns of the scanner.
        middles: per state, the middles at which a text that ends there may have come.
    """

    table: IntArray
    middles: list[frozenset[Rest]]


# Per terminal and promise behind it, the texts of the token.
Tokens = Mapping[str, Mapping[Rest, CharDfa]]


class Seams:
    """The seams of a grammar, made when asked for."""

    def __init__(self, tables: Tables, scanner: Scanner, words: Mapping[str, CharDfa]) -> None:
        """Take what is known of the parser and of the terminals.

        Args:
            tables: the parser and its lexers.
            scanner: all terminals that a lexer tries.
            words: the whole texts of each terminal that another one may become.
        """
        self.tables = tables
        self.scanner = scanner
        self._words = words
        self._seams: dict[tuple[int, Rest], Seam] = {}
        self._tokens: dict[Seam, Tokens] = {}
        self._skipped: dict[Seam, Skipped] = {}
        self._languages: dict[tuple[Seam, frozenset[Rest]], CharDfa] = {}
        self._becomes: dict[tuple[str, tuple[str, ...]], list[tuple[str, CharDfa | None]]] = {}

    def seam(self, lexer: int, rest: Rest) -> Seam:
        """Return the seam at which a lexer is asked, its promises narrowed to those that can still break."""
        if (lexer, rest) not in self._seams:
            narrow = self.scanner.narrow(self.tables.lexers[lexer].order, rest)
            self._seams[lexer, rest] = Seam(lexer, narrow)
        return self._seams[lexer, rest]

    def first(self) -> Seam:
        """Return the seam at the start of the text."""
        return self.seam(self.tables.lexer_of[self.tables.first], self.scanner.nothing)

    def all(self) -> list[Seam]:
        """Return every seam that tokens can lead to, the first one first."""
        found = {self.first(): None}
        pending = [*found]
        while pending:
            check_time("the terminals that hang together")
            seam = pending.pop()
            for middle in self.middles(seam):
                for name, by_rest in self.tokens(Seam(seam.lexer, middle)).items():
                    targets = {self.seam(lexer, rest) for rest in by_rest for lexer in self.tables.lexers_after[name]}
                    pending += targets - found.keys()
                    found.update(dict.fromkeys(sorted(targets - found.keys(), key=_seam_order)))
            if len(found) > MAX_SEAMS:
                raise LimitError(
                    "the terminals hang together in too many ways; use lexer='dynamic'", "places", len(found)
                )
        return [*found]

    def middles(self, seam: Seam) -> list[Rest]:
        """Return what can be promised where a token begins, after skipped text or without any."""
        found = frozenset().union(*self._skip(seam).middles)
        return [seam.rest, *sorted(found - {seam.rest}, key=_rest_order)]

    def skipped(self, seam: Seam, middles: frozenset[Rest]) -> CharDfa:
        """Return the texts that can be skipped at a seam to come to one of these middles."""
        key = seam, middles
        if key not in self._languages:
            skip = self._skip(seam)
            accepting = [not middles.isdisjoint(there) for there in skip.middles]
            self._languages[key] = self.scanner.language(skip.table, accepting)
        return self._languages[key]

    def trailing(self, seam: Seam) -> CharDfa:
        """Return the texts that can be skipped at a seam before the end of the text."""
        return self.skipped(seam, frozenset(filter(self.scanner.may_end, self.middles(seam))))

    def tokens(self, seam: Seam) -> Tokens:
        """Return the tokens that can begin at a seam at once."""
        if seam not in self._tokens:
            found: dict[str, dict[Rest, CharDfa]] = {}
            lexer = self.tables.lexers[seam.lexer]
            for name, by_rest in self._matches(lexer, seam.rest).items():
                for rest, language in by_rest.items():
                    for kind, words in self._kinds(name, lexer):
                        part = language if words is None else language.intersection(words)
                        if kind in lexer.accepts and not part.is_empty:
                            known = found.setdefault(kind, {})
                            known[rest] = known[rest].union(part) if rest in known else part
            self._tokens[seam] = found
        return self._tokens[seam]

    def _matches(self, lexer: LexerTable, rest: Rest) -> dict[str, dict[Rest, CharDfa]]:
        """Return what each terminal of a lexer matches, before it becomes another one."""
        reach = self.scanner.reach(self.scanner.open(lexer.order, rest))
        places: dict[tuple[str, Rest], list[bool]] = {}
        for place, state in enumerate(reach.states):
            for name, after in self.scanner.ends(state):
                if name not in lexer.ignored:
                    places.setdefault((name, after), [False] * len(reach.states))[place] = True
        found: dict[str, dict[Rest, CharDfa]] = {}
        for (name, after), accepting in places.items():
            found.setdefault(name, {})[after] = self.scanner.language(reach.table, accepting)
        return found

    def _kinds(self, name: str, lexer: LexerTable) -> list[tuple[str, CharDfa | None]]:
        """Return the terminals that a match can become, each with the texts for which it does (None: all)."""
        words = dict(lexer.words).get(name, ())
        key = name, words
        if key not in self._becomes:
            kinds: list[tuple[str, CharDfa | None]] = []
            taken = CharDfa.empty()
            for word in words:
                kinds.append((word, self._words[word].difference(taken)))
                taken = taken.union(self._words[word])
            self._becomes[key] = [(name, taken.complement() if words else None), *kinds]
        return self._becomes[key]

    def _skip(self, seam: Seam) -> Skipped:
        if seam not in self._skipped:
            self._skipped[seam] = self._explore(seam)
        return self._skipped[seam]

    def _explore(self, seam: Seam) -> Skipped:
        """Determinise the ignored terminals in a row."""
        lexer = self.tables.lexers[seam.lexer]
        start = frozenset([seam.rest])
        if lexer.ignored.isdisjoint(lexer.order):
            return Skipped(np.full((1, self.scanner.threads.num_columns), DEAD, np.int32), [start])
        after = self._ignored_ends(seam)
        opened = {rest: self.scanner.open(lexer.order, rest) for rest in {seam.rest}.union(*after.values())}
        scans = frozenset({opened[seam.rest]} & after.keys())
        order = [(scans, start)]
        index = {order[0]: 0}
        table: list[list[int]] = []
        for scans, _ in order:  # grows while it is read
            check_time("the terminals that hang together")
            row = [DEAD] * self.scanner.threads.num_columns
            for column in self.scanner.threads.columns:
                targets = {self.scanner.row(scan)[column] for scan in scans} & after.keys()
                middles = frozenset().union(*(after[target] for target in targets))
                targets |= {opened[middle] for middle in middles} & after.keys()
                if targets:
                    state = frozenset(targets), middles
                    row[column] = index.setdefault(state, len(order))
                    if row[column] == len(order):
                        order.append(state)
            table.append(row)
            if len(order) > MAX_SKIP_STATES:
                raise LimitError("the %ignore terminals are too large together", "states", len(order))
        return Skipped(np.array(table, dtype=np.int32), [middles for _, middles in order])

    def _ignored_ends(self, seam: Seam) -> dict[int, frozenset[Rest]]:
        """Return the scans that can still end an ignored terminal, each with the middles that it ends at."""
        lexer, scanner = self.tables.lexers[seam.lexer], self.scanner
        ends: dict[int, frozenset[Rest]] = {}
        before: dict[int, set[int]] = {}
        pending = [scanner.open(lexer.order, seam.rest)]
        while pending:
            scan = pending.pop()
            if scan in ends:
                continue
            ends[scan] = frozenset(
                self.seam(seam.lexer, rest).rest for name, rest in scanner.ends(scan) if name in lexer.ignored
            )
            steps = {target for target in scanner.row(scan) if target != DEAD}
            for target in steps:
                before.setdefault(target, set()).add(scan)
            pending += [*steps, *(scanner.open(lexer.order, rest) for rest in ends[scan])]
        alive = {scan for scan, rests in ends.items() if rests}
        pending = [*alive]
        while pending:
            fresh = before.get(pending.pop(), set()) - alive
            alive |= fresh
            pending += fresh
        return {scan: ends[scan] for scan in alive}


def _rest_order(rest: Rest) -> tuple[object, ...]:
    return rest.behind, sorted((at, sorted(pending)) for at, pending in rest.forbidden), sorted(rest.owed)


def _seam_order(seam: Seam) -> tuple[object, ...]:
    return seam.lexer, _rest_order(seam.rest)
