"""Run the prioritised threads of a program on a text, one class of characters after another.

The threads of a place are an ordered list: what stands first is what a backtracking matcher would have tried first. A
thread that waits at a `Done` has matched here; whatever stands below such a match cannot be the first one any more.
Left out: which text is asked about (first_match takes a text whole, scanner looks at what follows as well).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.charset import FIRST_SURROGATE, LAST_SURROGATE
from structgen.grammar.lark_grammar.program import Ahead, Behind, Done, Program, Split, Take

# What the rest of the text must still fulfil: (look-ahead, its state) pairs, each to end in an accepting state.
Pending = frozenset[tuple[int, int]]
# A Take or a Done at which a thread waits, or EARLIER: it matched some characters ago.
Thread = tuple[int, Pending]
# The state of each look-behind.
Looks = tuple[int, ...]

EARLIER = -1
SETTLED: Pending = frozenset()


class Threads:
    """A program with the classes of characters that it tells apart.

    Attributes:
        program: what is run.
        starts: the first code point of each interval of code points that behave alike.
        class_of: the class of each interval.
        columns: the classes of characters that a text can hold (all but that of the surrogates).
        num_columns: how many classes there are, that of the surrogates included.
        no_text: the state of the look-behinds at the start of a text.
    """

    def __init__(self, program: Program) -> None:
        """Sort the characters."""
        self.program = program
        self.starts, self.class_of, points = _classes(program)
        self.num_columns = len(points)
        self.columns = [column for column, point in enumerate(points) if point >= 0]
        charsets = {code.charset for code in program.code if isinstance(code, Take)}
        takes = {charset: [point >= 0 and charset.contains(point) for point in points] for charset in charsets}
        none = [False] * len(points)
        self._takes = [takes[code.charset] if isinstance(code, Take) else none for code in program.code]
        self._then = [code.then if isinstance(code, Take) else EARLIER for code in program.code]
        self._behind = [_columns(dfa, points) for dfa in program.behind]
        self._ahead = [_columns(dfa, points) for dfa in program.ahead]
        self._always = [_universal(table, dfa) for table, dfa in zip(self._ahead, program.ahead, strict=True)]
        self.no_text: Looks = (0,) * len(program.behind)

    def has_matched(self, thread: Thread) -> bool:
        """Tell whether a thread has matched, here or earlier (its look-aheads aside)."""
        return thread[0] < 0 or isinstance(self.program.code[thread[0]], Done)

    def takes(self, thread: Thread, column: int) -> bool:
        """Tell whether a thread waits for such a character."""
        return thread[0] >= 0 and self._takes[thread[0]][column]

    def see(self, behind: Looks, column: int) -> Looks:
        """Move the look-behinds over a character."""
        return tuple(table[at][column] if at >= 0 else -1 for table, at in zip(self._behind, behind, strict=True))

    def move(self, threads: Iterable[Thread], column: int) -> Iterator[Thread]:
        """Move threads over a character, in order; those that have matched become EARLIER."""
        for thread in threads:
            is_matched = self.has_matched(thread)
            if is_matched or self.takes(thread, column):
                left = self.advance(thread[1], column)
                if left is not None:
                    yield (EARLIER if is_matched else self._then[thread[0]]), left

    def advance(self, pending: Pending, column: int) -> Pending | None:
        """Move what is pending over a character; None where it cannot be fulfilled any more."""
        left = []
        for look, at in pending:
            target = self._ahead[look][at][column]
            if target < 0:
                return None
            if not self._always[look][target]:
                left.append((look, target))
        return frozenset(left) if left else SETTLED

    def may_end(self, pending: Pending) -> bool:
        """Tell whether all that is pending is fulfilled if the text ends here."""
        return all(self.program.ahead[look].accepts[at] for look, at in pending)

    def close(self, threads: Iterable[Thread], behind: Looks) -> Iterator[Thread]:
        """Follow each thread to its Takes and matches, in order; stop below the first match that is settled."""
        seen: set[Thread] = set()
        stack = [*threads][::-1]
        while stack:
            thread = stack.pop()
            if thread in seen:
                continue
            seen.add(thread)
            place, pending = thread
            instruction = self.program.code[place] if place >= 0 else Done()
            if isinstance(instruction, Done | Take):
                yield thread
                if not pending and isinstance(instruction, Done):
                    return  # nothing below this match can be the first match
            else:
                stack += self._follow(instruction, place, pending, behind)

    def _follow(self, instruction: Split | Behind | Ahead, place: int, pending: Pending, behind: Looks) -> list[Thread]:
        """Return where a thread goes on without a character, the preferred way last."""
        match instruction:
            case Split(first=first, second=second):
                return [(second, pending), (first, pending)]
            case Behind(index=look):
                return [(place + 1, pending)] if self._holds_behind(look, behind) else []
            case Ahead(index=look):
                if self.program.ahead[look].is_empty:
                    return []
                more = SETTLED if self._always[look][0] else {(look, 0)}
                return [(place + 1, pending | more)]

    def _holds_behind(self, look: int, behind: Looks) -> bool:
        return behind[look] >= 0 and bool(self.program.behind[look].accepts[behind[look]])


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
