"""Tell which NFA states make others needless: a state simulates another if it can do all that the other can.

Used to keep sets of threads small where counted repeats overlap (`.{0,50}` in the middle of a search). The greatest
simulation is found on demand, over the pairs that a question leads to. Left out: weaker relations that would need
look-ahead, and anything past a budget of pairs; a no is always safe.
"""

from __future__ import annotations

from dataclasses import dataclass

from structgen.grammar.regex.nfa import Guard, Nfa

Pair = tuple[int, int]
"""(state, the state that may simulate it)."""

MAX_PAIRS = 30_000
"""Most pairs that are looked at for one expression."""


@dataclass(frozen=True, slots=True)
class _Moves:
    """What a state can do without passing a guard.

    Attributes:
        is_final: whether a sub-automaton has matched.
        readers: (class of code points, next state) pairs.
        guarded: (guard, next state) pairs.
    """

    is_final: bool
    readers: tuple[tuple[int, int], ...]
    guarded: tuple[tuple[Guard, int], ...]


class Simulation:
    """The simulation order on the states of an NFA, found bit by bit."""

    def __init__(self, nfa: Nfa, members: list[list[int]]) -> None:
        """Start without any answer.

        Args:
            nfa: the states.
            members: the classes of code points of each set of the NFA.
        """
        self._nfa = nfa
        self._members = members
        self._finals = {part.final for part in nfa.parts}
        self._moves: dict[int, _Moves] = {}
        self._answers: dict[Pair, bool] = {}
        self._num_seen = 0

    def covers(self, stronger: int, weaker: int) -> bool:
        """Whether every text that the weaker state leads to acceptance on, the stronger does too.

        False also means that it was too much work to find out.
        """
        if stronger == weaker:
            return True
        pair = (weaker, stronger)
        if pair not in self._answers and self._num_seen < MAX_PAIRS:
            self._solve(pair)
        return self._answers.get(pair, False)

    def _solve(self, root: Pair) -> None:
        """Answer a pair, and all pairs that it depends on: assume yes, then take back what has no ground."""
        needs: dict[Pair, list[set[Pair]]] = {}
        users: dict[Pair, set[Pair]] = {}
        failed: list[Pair] = []
        stack = [root]
        while stack:
            pair = stack.pop()
            if pair in needs:
                continue
            self._num_seen += 1
            if self._num_seen > MAX_PAIRS:
                return
            needs[pair] = self._requirements(pair)
            for ways in needs[pair]:
                for way in ways:
                    users.setdefault(way, set()).add(pair)
                    stack.append(way)
            if not all(needs[pair]):
                failed.append(pair)
        no: set[Pair] = set(failed)
        while failed:
            lost = failed.pop()
            for user in users.get(lost, ()):
                if user not in no and any(ways <= no for ways in needs[user]):
                    no.add(user)
                    failed.append(user)
        self._answers.update((pair, pair not in no) for pair in needs)

    def _requirements(self, pair: Pair) -> list[set[Pair]]:
        """Return sets of pairs, of each of which one must hold; an empty set means that the answer is no.

        Pairs that are answered already, or hold by themselves, are left out.
        """
        weaker, stronger = self._of(pair[0]), self._of(pair[1])
        if weaker.is_final and not stronger.is_final:
            return [set()]
        wanted: list[set[Pair]] = [
            {(target, other) for other_number, other in stronger.readers if other_number == number}
            for number, target in weaker.readers
        ]
        wanted += [
            {(target, pair[1])} | {(target, other) for other_guard, other in stronger.guarded if other_guard == guard}
            for guard, target in weaker.guarded
        ]
        open_ways: list[set[Pair]] = []
        for ways in wanted:
            if any(low == high or self._answers.get((low, high), False) for low, high in ways):
                continue
            left = {way for way in ways if way not in self._answers}
            if not left:
                return [left]
            if left not in open_ways:
                open_ways.append(left)
        return open_ways

    def _of(self, state: int) -> _Moves:
        if state not in self._moves:
            self._moves[state] = self._explore(state)
        return self._moves[state]

    def _explore(self, start: int) -> _Moves:
        nfa = self._nfa
        seen, stack = {start}, [start]
        readers: list[tuple[int, int]] = []
        guarded: list[tuple[Guard, int]] = []
        while stack:
            state = stack.pop()
            if nfa.reads[state] >= 0:
                readers += [(number, nfa.targets[state]) for number in self._members[nfa.reads[state]]]
            for guard, target in nfa.jumps[state]:
                if guard is not None:
                    guarded.append((guard, target))
                elif target not in seen:
                    seen.add(target)
                    stack.append(target)
        return _Moves(not seen.isdisjoint(self._finals), tuple(dict.fromkeys(readers)), tuple(dict.fromkeys(guarded)))
