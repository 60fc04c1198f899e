"""Terminals: what the parser shifts. A lexeme without the empty word, with its length bounds made exact.

A bound on the length is kept as a counter where it is the only one, and wherever every state of the DFA can finish at
every length between its shortest and its longest word; otherwise the counter is multiplied out, or refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from structgen.errors import LimitError
from structgen.grammar.dfa import Dfa
from structgen.grammar.ir import Lexeme
from structgen.grammar.time_limit import check_time
from structgen.kernels.trie_walk import CountedDfa

UNBOUNDED = 1 << 30
"""Stands for "no longest word" in Terminal.most."""

MAX_UNROLLED_STATES = 50_000
"""Largest product of states and counter values that is multiplied out."""

_MAX_GAP_CHECK_STATES = 96

Edge = tuple[int, bool, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Terminal:
    """A lexeme as the parser shifts it: at least one byte long.

    Attributes:
        dfa: the byte DFA of the words, lengths aside.
        min_length: least number of ticks.
        max_length: greatest number of ticks, None for no bound.
        free_text: penalties apply inside it.
        need: (num_states,) fewest ticks from a state to acceptance.
        most: (num_states,) most ticks from a state to acceptance, UNBOUNDED if there is no most.
        name: for messages.
        is_counted: whether a counter goes with the state.
        counted_dfa: the same for the kernels.
        known_edges: per state what `edges` gives, None until it is asked for: a key that may be any but a few names has
            hundreds of states, of which a text passes a few.
        known_num_bytes: likewise for `num_bytes`.
    """

    dfa: Dfa
    min_length: int
    max_length: int | None
    free_text: bool
    need: tuple[int, ...]
    most: tuple[int, ...]
    name: str
    is_counted: bool
    counted_dfa: CountedDfa
    known_edges: list[tuple[Edge, ...] | None]
    known_num_bytes: list[int | None]

    def edges(self, state: int) -> tuple[Edge, ...]:
        """Return (next state, whether it ticks, ascending bytes that lead there) for each pair of the first two."""
        known = self.known_edges[state]
        if known is None:
            known = self.known_edges[state] = _edges_of(self.dfa, state)
        return known

    def num_bytes(self, state: int) -> int:
        """Return how many bytes a state goes on with."""
        known = self.known_num_bytes[state]
        if known is None:
            known = self.known_num_bytes[state] = int(np.count_nonzero(self.dfa.delta[state] >= 0))
        return known

    @property
    def key(self) -> tuple[bytes, int, int | None, bool]:
        """What makes two terminals the same one."""
        return (self.dfa.digest, self.min_length, self.max_length, self.free_text)

    def is_body(self, state: int) -> bool:
        """Return whether a state is inside the counted text: behind its opening, if it has one, and before its end."""
        is_before = state == 0 and not bool(self.dfa.tick_bytes[0].any())
        return self.num_bytes(state) > 0 and not is_before

    def accepts_at(self, state: int, count: int) -> bool:
        """Return whether a word may end in this state after this many ticks."""
        return bool(self.dfa.accepting[state]) and count >= self.min_length

    def step(self, state: int, count: int, byte: int) -> tuple[int, int] | None:
        """Return (state, count) after one byte, or None if no word continues so."""
        target = int(self.dfa.delta[state, byte])
        if target < 0:
            return None
        return self.counted(target, count + int(self.dfa.tick_bytes[state, byte]))

    def counted(self, target: int, count: int) -> tuple[int, int] | None:
        """Return (state, count to keep) for a state reached with this count, None if no word within the bounds is."""
        if not self.is_counted:
            return target, 0
        if self.max_length is None:
            count = min(count, self.min_length)
        elif count + self.need[target] > self.max_length:
            return None
        if count + self.most[target] < self.min_length:
            return None
        return target, count


@lru_cache(maxsize=4096)
def build_terminal(lexeme: Lexeme, *, allow_counter: bool = True) -> tuple[Terminal | None, bool]:
    """Return the terminal of the lexeme's non-empty words (None if there are none), and whether it has the empty word.

    Terminals are values, so equal lexemes share one; the names of lexemes are not part of their equality.

    Args:
        lexeme: what to convert.
        allow_counter: False multiplies every length bound out.

    Raises:
        LimitError: the bounds can neither be counted exactly nor be multiplied out within MAX_UNROLLED_STATES.
    """
    dfa, low, high = lexeme.dfa, lexeme.min_length, lexeme.max_length
    if dfa.is_empty:
        return None, False
    if low > 0 or high is not None:
        need, most = _lengths(dfa)
        low = 0 if low <= need[0] else low
        high = None if high is not None and most[0] <= high else high
        if (high is not None and need[0] > high) or most[0] < low:
            return None, False
    has_empty_word = dfa.accepts_empty and low == 0
    # With one bound alone, the shortest or the longest way to the end says all that a count must know.
    is_exact = low == 0 or high is None or _lengths_have_no_gap(dfa, low, high)
    if (low > 0 or high is not None) and not (allow_counter and is_exact):
        dfa, low, high = _multiplied_out(dfa, low, high, lexeme.name), 0, None
    if has_empty_word:
        dfa = _without_empty_word(dfa)
    if dfa.is_empty:
        return None, has_empty_word
    return _make_terminal(dfa, low, high, lexeme), has_empty_word


def _make_terminal(dfa: Dfa, low: int, high: int | None, lexeme: Lexeme) -> Terminal:
    is_counted = low > 0 or high is not None
    need, most = _lengths(dfa) if is_counted else ((0,) * dfa.num_states, (UNBOUNDED,) * dfa.num_states)
    counted_dfa = CountedDfa(
        dfa.delta,
        dfa.tick_bytes,
        dfa.accepting,
        # Without a bound all are alike, and an array is made faster from none of them.
        np.array(need, np.int32) if is_counted else np.zeros(len(need), np.int32),
        np.array(most, np.int32) if is_counted else np.full(len(most), UNBOUNDED, np.int32),
        low,
        -1 if high is None else high,
    )
    return Terminal(
        dfa,
        low,
        high,
        lexeme.free_text,
        need,
        most,
        lexeme.name,
        is_counted,
        counted_dfa,
        known_edges=[None] * dfa.num_states,
        known_num_bytes=[None] * dfa.num_states,
    )


def _edges_of(dfa: Dfa, state: int) -> tuple[Edge, ...]:
    """Return the edges of a state, in the order of their first bytes."""
    row, ticks = dfa.delta[state].tolist(), dfa.tick_bytes[state].tolist()
    grouped: dict[tuple[int, bool], list[int]] = {}
    for byte, target in enumerate(row):
        if target >= 0:
            grouped.setdefault((target, ticks[byte]), []).append(byte)
    return tuple((target, tick, tuple(group)) for (target, tick), group in grouped.items())


def tick_edges(dfa: Dfa) -> list[list[tuple[int, int]]]:
    """Return per state the distinct (next state, 0 or 1 ticks)."""
    result: list[list[tuple[int, int]]] = []
    for state in range(dfa.num_states):
        live = dfa.delta[state] >= 0
        pairs = np.unique(dfa.delta[state][live].astype(np.int64) * 2 + dfa.tick_bytes[state][live])
        result.append([(int(pair) >> 1, int(pair) & 1) for pair in pairs])
    return result


@lru_cache(maxsize=1024)
def _lengths(dfa: Dfa) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the fewest and the most ticks from each state to acceptance."""
    if not dfa.tick_bytes.any():
        return (0,) * dfa.num_states, (0,) * dfa.num_states
    edges = tick_edges(dfa)
    unbounded = _reaching(edges, _on_ticking_cycle(edges))
    most = [UNBOUNDED if state in unbounded else 0 for state in range(dfa.num_states)]
    need = [0 if accepting else UNBOUNDED for accepting in dfa.accepting]
    changed = True
    while changed:
        check_time("the lengths of a lexeme")
        changed = False
        # States are numbered breadth first, so going down meets successors first wherever there is no cycle.
        for state in reversed(range(dfa.num_states)):
            fewest = min([need[state], *(need[target] + tick for target, tick in edges[state])])
            longest = max([most[state], *(most[target] + tick for target, tick in edges[state])])
            longest = min(longest, UNBOUNDED)
            changed = changed or (fewest, longest) != (need[state], most[state])
            need[state], most[state] = fewest, longest
    return tuple(need), tuple(most)


def _reaching(edges: list[list[tuple[int, int]]], goal: set[int]) -> set[int]:
    """Return the states from which a goal state can be reached, the goal included."""
    before: list[list[int]] = [[] for _ in edges]
    for state, row in enumerate(edges):
        for target, _ in row:
            before[target].append(state)
    reached, todo = set(goal), list(goal)
    while todo:
        for state in before[todo.pop()]:
            if state not in reached:
                reached.add(state)
                todo.append(state)
    return reached


def _on_ticking_cycle(edges: list[list[tuple[int, int]]]) -> set[int]:
    """Return the sources of the ticking edges that lie on a cycle: both ends in one strongly connected part."""
    # Tarjan's algorithm, on an explicit stack.
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    part: dict[int, int] = {}
    open_states: list[int] = []
    work = [(0, iter(edges[0]))]
    index[0] = low[0] = 0
    open_states.append(0)
    while work:
        state, rest = work[-1]
        for target, _ in rest:
            if target not in index:
                index[target] = low[target] = len(index)
                open_states.append(target)
                work.append((target, iter(edges[target])))
                break
            if target not in part:
                low[state] = min(low[state], index[target])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[state])
            if low[state] == index[state]:
                while state not in part:
                    part[open_states.pop()] = state
    return {state for state, row in enumerate(edges) for target, tick in row if tick and part[state] == part[target]}


@lru_cache(maxsize=1024)
def _lengths_have_no_gap(dfa: Dfa, low: int, high: int | None) -> bool:
    """Return whether from each state every length from its fewest to its most ticks can be reached."""
    need, most = _lengths(dfa)
    edges = tick_edges(dfa)
    flexible = _flexible(edges, need)
    if all(flexible[state] or need[state] == most[state] for state in range(dfa.num_states)):
        return True
    if dfa.num_states > _MAX_GAP_CHECK_STATES:
        return False
    # The lengths form a unary language of an automaton with n states, which is periodic from n * n on; so looking at
    # n * n + n lengths (or up to the bound, if that is less) settles the question.
    horizon = min(max(low, high or 0), dfa.num_states**2 + dfa.num_states) + 1
    lengths = _length_bits(edges, dfa.accepting.tolist(), (1 << (horizon + 1)) - 1)
    for state in range(dfa.num_states):
        top = min(most[state], horizon)
        if need[state] <= top and lengths[state] != ((1 << (top + 1)) - 1) & ~((1 << need[state]) - 1):
            return False
    return True


def _flexible(edges: list[list[tuple[int, int]]], need: tuple[int, ...]) -> list[bool]:
    """Return for which states a shortest way to acceptance meets a cycle of one tick, so that all longer ones exist."""
    flexible = [False] * len(edges)
    for state, row in enumerate(edges):
        check_time("the lengths of a lexeme")
        todo = [target for target, tick in row if tick]
        seen = set(todo)
        while todo and not flexible[state]:
            one = todo.pop()
            flexible[state] = one == state
            fresh = {target for target, tick in edges[one] if not tick} - seen
            seen |= fresh
            todo.extend(fresh)
    changed = True
    while changed:
        changed = False
        for state in reversed(range(len(edges))):
            if not flexible[state] and any(
                flexible[target] and need[state] == need[target] + tick for target, tick in edges[state]
            ):
                flexible[state] = changed = True
    return flexible


def _length_bits(edges: list[list[tuple[int, int]]], accepting: list[bool], window: int) -> list[int]:
    """Return per state the lengths from it to acceptance, bit n for n ticks, within the window."""
    lengths = [int(ends) for ends in accepting]
    changed = True
    while changed:
        check_time("the lengths of a lexeme")
        changed = False
        for state in reversed(range(len(edges))):
            bits = lengths[state]
            for target, tick in edges[state]:
                bits |= lengths[target] << tick
            bits &= window
            if bits != lengths[state]:
                lengths[state], changed = bits, True
    return lengths


def _multiplied_out(dfa: Dfa, low: int, high: int | None, name: str) -> Dfa:
    """Return the DFA of the words within the length bounds, one state per state and counter value."""
    num_counts = (low if high is None else high) + 1
    size = dfa.num_states * num_counts
    if size > MAX_UNROLLED_STATES:
        raise LimitError(
            f"{name or 'a lexeme'}: its lengths have gaps, so the bounds {low}..{high} need {size} states; "
            "loosen the length bound or simplify the pattern",
            "states",
            size,
        )
    counts = np.arange(num_counts)
    delta = np.full((dfa.num_states, num_counts, 256), -1, np.int64)
    for state in range(dfa.num_states):
        check_time("the lengths of a lexeme")
        for byte in np.flatnonzero(dfa.delta[state] >= 0).tolist():
            after = counts + int(dfa.tick_bytes[state, byte])
            if high is None:
                after = np.minimum(after, low)
            ok = after < num_counts
            delta[state, ok, byte] = dfa.delta[state, byte].astype(np.int64) * num_counts + after[ok]
    accepting = dfa.accepting[:, None] & (counts >= low)[None, :]
    return Dfa.build(delta.reshape(size, 256).astype(np.int32), accepting.reshape(size))


def _without_empty_word(dfa: Dfa) -> Dfa:
    delta = np.concatenate([dfa.delta, dfa.delta[:1]])
    accepting = np.concatenate([dfa.accepting, np.zeros(1, bool)])
    tick_bytes = np.concatenate([dfa.tick_bytes, dfa.tick_bytes[:1]])
    return Dfa.build(delta, accepting, tick_bytes, start=dfa.num_states)
