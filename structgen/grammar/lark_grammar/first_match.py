"""The language that Lark's dynamic lexer sees in a terminal: the texts that Python's `re.match` takes whole.

`re.match` takes the first way to match, not the longest: `a|ab` never takes "ab", and `".*?"` stops at the first
quote. Lark's Earley parser with the lexer `dynamic_complete` offers a terminal at a place the match there and the
matches of all that is shorter, cut off. For an expression without look-around these are exactly the texts w
that `re.match(expression, w)` takes whole, whatever stands around them. This module computes that language: it runs
all prioritised threads at once, as an ordered list, and drops what stands below a match.

Left out: the text around the terminal. A look-around, an anchor or a word boundary at the edge of a terminal sees
the terminal's edge as the end of the text, as Lark's cut texts do; Lark's longest match sees the real neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

from structgen.errors import LimitError
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.charset import FIRST_SURROGATE, LAST_SURROGATE
from structgen.grammar.lark_grammar.program import Ahead, Behind, Done, Program, Split, Take, build_program
from structgen.grammar.regex import syntax

MAX_STATES = 20_000

# What the rest of the text must still fulfil: (look-ahead, its state) pairs, each to end in an accepting state.
Pending = frozenset[tuple[int, int]]
# A Take at which a thread waits, or _NOW / _EARLIER for a match at this place / at an earlier one.
Thread = tuple[int, Pending]
# Threads by priority, and the state of each look-behind.
State = tuple[tuple[Thread, ...], tuple[int, ...]]

_NOW, _EARLIER = -1, -2
_SETTLED: Pending = frozenset()


def first_match_language(node: syntax.Node) -> CharDfa:
    """Return the texts that `re.match` takes whole.

    Raises:
        GrammarSyntaxError: a look-around reaches past its place from inside another one.
        LimitError: more than MAX_STATES states.
    """
    return _Determiniser(build_program(node)).run()


class _Determiniser:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._starts, self._class_of, self._points = _classes(program)
        charsets = {code.charset for code in program.code if isinstance(code, Take)}
        self._takes = {
            charset: [point >= 0 and charset.contains(point) for point in self._points] for charset in charsets
        }
        self._behind = [_columns(dfa, self._points) for dfa in program.behind]
        self._ahead = [_columns(dfa, self._points) for dfa in program.ahead]
        self._always = [_universal(table, dfa) for table, dfa in zip(self._ahead, program.ahead, strict=True)]

    def run(self) -> CharDfa:
        """Explore the ordered lists of threads from the start."""
        behind = (0,) * len(self._behind)
        start: State = (tuple(self._close([(0, _SETTLED)], behind)), behind)
        index = {start: 0}
        states, delta = [start], []
        for state in states:  # grows while it is read
            row = []
            for column, point in enumerate(self._points):
                after = self._step(state, column) if point >= 0 else None
                if after is None or not after[0]:
                    row.append(-1)
                    continue
                if after not in index:
                    if len(states) >= MAX_STATES:
                        raise LimitError("a terminal is too large", "states", len(states))
                    index[after] = len(states)
                    states.append(after)
                row.append(index[after])
            delta.append([row[column] for column in self._class_of])
        return CharDfa.build(self._starts, delta, [self._is_taken_whole(threads) for threads, _ in states])

    def _step(self, state: State, column: int) -> State:
        threads, behind = state
        after = tuple(table[at][column] if at >= 0 else -1 for table, at in zip(self._behind, behind, strict=True))
        moved: list[Thread] = []
        for place, pending in threads:
            instruction = self._program.code[place] if place >= 0 else None
            if isinstance(instruction, Take) and not self._takes[instruction.charset][column]:
                continue
            left = self._advance(pending, column)
            if left is not None:
                moved.append((place + 1 if place >= 0 else _EARLIER, left))
        return tuple(self._close(moved, after)), after

    def _advance(self, pending: Pending, column: int) -> Pending | None:
        """Move what is pending over a character; None where it cannot be fulfilled any more."""
        left = []
        for look, at in pending:
            target = self._ahead[look][at][column]
            if target < 0:
                return None
            if not self._always[look][target]:
                left.append((look, target))
        return frozenset(left)

    def _close(self, threads: list[Thread], behind: tuple[int, ...]) -> Iterator[Thread]:
        """Follow each thread to its Takes and matches, in order; stop below the first match that is settled."""
        seen: set[Thread] = set()
        stack = threads[::-1]
        while stack:
            thread = stack.pop()
            if thread in seen:
                continue
            seen.add(thread)
            place, pending = thread
            instruction = self._program.code[place] if place >= 0 else None
            if instruction is None or isinstance(instruction, Done | Take):
                yield thread if place < 0 or isinstance(instruction, Take) else (_NOW, pending)
                if not pending and not isinstance(instruction, Take):
                    return  # nothing below this match can be the first match
            else:
                stack += self._follow(instruction, place, pending, behind)

    def _follow(
        self, instruction: Split | Behind | Ahead, place: int, pending: Pending, behind: tuple[int, ...]
    ) -> list[Thread]:
        """Return where a thread goes on without a character, the preferred way last."""
        match instruction:
            case Split(first=first, second=second):
                return [(second, pending), (first, pending)]
            case Behind(index=look):
                return [(place + 1, pending)] if self._holds_behind(look, behind) else []
            case Ahead(index=look):
                if self._program.ahead[look].is_empty:
                    return []
                more = _SETTLED if self._always[look][0] else {(look, 0)}
                return [(place + 1, pending | more)]

    def _holds_behind(self, look: int, behind: tuple[int, ...]) -> bool:
        return behind[look] >= 0 and bool(self._program.behind[look].accepts[behind[look]])

    def _is_taken_whole(self, threads: tuple[Thread, ...]) -> bool:
        """Tell whether, with the text ending here, the first match is the one that ends here."""
        for place, pending in threads:
            if place < 0 and all(self._program.ahead[look].accepts[at] for look, at in pending):
                return place == _NOW
        return False


def _classes(program: Program) -> tuple[list[int], list[int], list[int]]:
    """Split the code points into intervals that the program cannot tell apart inside.

    Returns:
        the start of each interval, the class of each, and per class a code point in it (-1: surrogates).
    """
    starts = {0, FIRST_SURROGATE, LAST_SURROGATE + 1}
    charsets = list({code.charset for code in program.code if isinstance(code, Take)})
    for charset in charsets:
        starts.update(point for low, high in charset.ranges for point in (low, high + 1))
    automata = [*program.behind, *program.ahead]
    for dfa in automata:
        starts.update(dfa.boundaries)
    ordered = sorted(start for start in starts if start <= 0x10FFFF)
    index: dict[object, int] = {}
    class_of: list[int] = []
    points: list[int] = []
    for start in ordered:
        signature: object = None
        if not FIRST_SURROGATE <= start <= LAST_SURROGATE:
            inside = tuple(charset.contains(start) for charset in charsets)
            signature = (inside, tuple(_column(dfa, start) for dfa in automata))
        if signature not in index:
            index[signature] = len(points)
            points.append(-1 if signature is None else start)
        class_of.append(index[signature])
    return ordered, class_of, points


def _column(dfa: CharDfa, point: int) -> tuple[int, ...]:
    return tuple(dfa.step(state, point) for state in range(dfa.num_states))


def _columns(dfa: CharDfa, points: list[int]) -> list[list[int]]:
    """Return the next state by state and class."""
    return [[dfa.step(state, point) if point >= 0 else -1 for point in points] for state in range(dfa.num_states)]


def _universal(table: list[list[int]], dfa: CharDfa) -> list[bool]:
    """Tell per state whether every text from there on is accepted; in a minimal DFA such a state steps to itself."""
    return [
        # The one dead step is that of the surrogates, which are in no text.
        bool(dfa.accepts[state]) and sorted(row) == [-1] + [state] * (len(row) - 1)
        for state, row in enumerate(table)
    ]
