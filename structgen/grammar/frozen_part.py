"""A part of an automaton as a frozen machine: the states that are nearest to the start, or that texts have met.

For languages whose states have no end, or too many to keep. A state is *described* if it is known where each token
leads from it; the others of the machine are only named, and a walk that gets there goes on elsewhere: in the lazy
automaton. Deeper states come into the next machine as they are met.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from structgen.config import Limits
from structgen.errors import LimitError
from structgen.frozen_machine import DEAD_CLASS, FrozenMachine
from structgen.grammar.core import AutomatonCore
from structgen.grammar.frozen_build import States, Watch, expanded, machine_of, merged
from structgen.grammar.frozen_closure import Edges, byte_machine, in_rows
from structgen.grammar.parser import DEAD
from structgen.kernels.token_columns import ByteMachine, token_columns
from structgen.kernels.trie_walk import Bools, Ints

_MAX_ROUNDS = 8
_EXPLORED_PER_STATE = 4
_EXPLORED_ANYWAY = 1000
"""How many configurations inside tokens may be explored: so many for each state that is to be described, and these."""


class FrozenPart:
    """The described states of one automaton so far; not for several threads at once.

    Attributes:
        machine: the newest one. Machines that were made before stay as they are.
    """

    def __init__(self, core: AutomatonCore, limits: Limits, *, num_states: int) -> None:
        """Describe the states nearest to the start, by bytes.

        Args:
            core: one that nobody else uses.
            limits: what it may cost.
            num_states: how many states are described at the most.

        Raises:
            LimitError: not even the start can be described, or it takes more time or memory than it may.
        """
        self._core = core
        self._limits = limits
        self._num_states = num_states
        self._exploration = _Exploration(core)
        self._met: dict[int, None] = {}
        self._number_of: dict[int, int] = {}
        self.machine = self.grow()

    def meet(self, token_ids: Iterable[int]) -> None:
        """Remember the states of a text, so that the next machine describes them before all others, the newest first.

        Args:
            token_ids: legal tokens from the start on; what comes after an illegal one, or a stop, is left alone.
        """
        for configuration in self._walk(token_ids):
            self._met.pop(configuration, None)
            self._met[configuration] = None
        for configuration in [*self._met][: -self._num_states]:
            del self._met[configuration]

    def states_along(self, token_ids: Sequence[int]) -> list[int]:
        """Return the state of the newest machine before any text and after each token, -1 where it describes none.

        Args:
            token_ids: tokens from the start on; the list ends before one that cannot be read, a stop included.
        """
        numbers = [self._number_of.get(configuration, -1) for configuration in self._walk(token_ids)]
        is_described = self.machine.mask_row >= 0
        return [number if number >= 0 and is_described[number] else -1 for number in numbers]

    def grow(self) -> FrozenMachine:
        """Return a new machine, that of the states which were met and of those nearest to them.

        Raises:
            LimitError: it takes more time or memory than it may; the machine is the one before.
        """
        watch = Watch(self._limits)
        wanted = self._exploration.nearest([self._core.parser.start, *reversed(self._met)], self._num_states, watch)
        if self._core.parser.start not in wanted:
            raise LimitError("its first token may nest deeper than that", "depth", self._limits.depth)
        states = self._described(wanted, watch)
        machine = machine_of(self._core, states, watch)
        self._number_of = {one: number for number, one in enumerate(states.configurations)}
        self.machine = machine
        return machine

    def _walk(self, token_ids: Iterable[int]) -> Iterable[int]:
        """Yield the configurations before and after the tokens, as far as they can be read."""
        configuration = self._core.parser.start
        yield configuration
        for token_id in token_ids:
            data = self._core.vocabulary.token_bytes(token_id)
            for byte in data:
                configuration = self._core.parser.step(configuration, byte)
                if configuration == DEAD:
                    return
            if not data:
                return
            yield configuration

    def _described(self, wanted: list[int], watch: Watch) -> States:
        """Return what is known of the wanted states: those of which too little is known in the end are only named."""
        exploration = self._exploration
        most = _EXPLORED_PER_STATE * self._num_states + _EXPLORED_ANYWAY + len(exploration.explored)
        reach = 1
        for number in range(_MAX_ROUNDS):
            tables = _Tables(exploration, self._core, watch)
            is_wanted = np.isin(tables.explored, wanted)
            crossed = tables.crossed(is_wanted)
            if not len(crossed) or number == _MAX_ROUNDS - 1 or len(exploration.explored) > most:
                break
            exploration.around(crossed.tolist(), reach, most, watch)
            reach *= 2
        return tables.states(is_wanted, watch)


class _Exploration:
    """The configurations of which each step is known, in the order in which they were explored."""

    def __init__(self, core: AutomatonCore) -> None:
        self.parser = core.parser
        self.explored: list[int] = []
        self.edges = Edges()
        self._next: dict[int, list[int]] = {}

    def nearest(self, sources: Iterable[int], num_states: int, watch: Watch) -> list[int]:
        """Explore by distance; return the first so many configurations, those that cannot be explored left out.

        The distance is the number of bytes that something else could have stood for.
        """
        distance = dict.fromkeys(sources, 0)
        todo = [(0, number, one) for number, one in enumerate(distance)]
        found: list[int] = []
        num_seen = len(todo)
        while todo and len(found) < num_states:
            so_far, _, one = heapq.heappop(todo)
            if so_far > distance[one] or not self._explore(one, watch):
                continue
            found.append(one)
            successors = self._next[one]
            for after in successors:
                further = so_far + int(len(successors) > 1)
                if further < distance.get(after, further + 1):
                    distance[after] = further
                    heapq.heappush(todo, (further, num_seen, after))
                    num_seen += 1
        return found

    def around(self, sources: Iterable[int], reach: int, most: int, watch: Watch) -> None:
        """Explore what is so many bytes away, or less, until more than `most` are explored."""
        level = list(sources)
        known = set(level)
        for _ in range(reach):
            further: dict[int, None] = {}
            for one in level:
                if len(self.explored) > most:
                    return
                if self._explore(one, watch):
                    further.update(dict.fromkeys(after for after in self._next[one] if after not in known))
            known.update(further)
            level = list(further)

    def _explore(self, configuration: int, watch: Watch) -> bool:
        """Learn the steps of a configuration; return False where nesting decides what is legal."""
        if configuration in self._next:
            return True
        threads, _ = self.parser.configurations[configuration]
        if any(self.parser.near_deep(stack) for *_, stack in threads):
            return False
        if len(self.explored) % 256 == 0:
            watch.deadline.check("its states")
        successors = self.parser.successors(configuration)
        self.explored.append(configuration)
        self.edges.add(successors)
        self._next[configuration] = list(successors)
        return True


class _Tables:
    """Where each token leads from each explored configuration, as far as that is known.

    States: those explored, then those only met, then a *shadow* of each of the latter: what a token that goes on from
    there comes to, whatever its other bytes are.
    """

    def __init__(self, exploration: _Exploration, core: AutomatonCore, watch: Watch) -> None:
        parser, edges = exploration.parser, exploration.edges
        explored = in_rows(parser, exploration.explored)
        is_explored = set(explored)
        border = in_rows(parser, [one for one in dict.fromkeys(edges.target) if one not in is_explored])
        self.explored = np.array(explored, np.int32)
        self.border = np.array(border, np.int32)
        self.start = parser.start
        num_explored, num_border = len(explored), len(border)
        index = np.empty(1 + max(*explored, *border, 0), np.int32)
        index[self.explored] = np.arange(num_explored, dtype=np.int32)
        index[self.border] = np.arange(num_border, dtype=np.int32) + num_explored
        num_states = num_explored + 2 * num_border
        machine = byte_machine(edges, index[exploration.explored], index, num_states)
        shadows = np.arange(num_explored + num_border, num_states, dtype=np.int32)
        machine.table[num_explored:] = np.tile(shadows, 2)[:, None]
        trie = core.vocabulary.trie
        columns = token_columns(trie, machine, watch)
        self._token_class, used = columns.classes(trie, core.vocabulary.size)
        self._next_state = expanded(columns, used, num_states, watch)[:num_explored]
        self._is_unknown: Bools = self._next_state >= num_explored + num_border

    def crossed(self, is_wanted: Bools) -> Ints:
        """Return the configurations at which a token leaves what was explored, coming from a wanted state."""
        after = self._next_state[is_wanted][self._is_unknown[is_wanted]]
        crossed: Ints = self.border[np.unique(after) - len(self.explored) - len(self.border)]
        return crossed

    def states(self, is_wanted: Bools, watch: Watch) -> States:
        """Return the wanted states from which it is known where each token leads, and those that they lead to."""
        is_described = is_wanted & ~self._is_unknown.any(axis=1)
        watch(4 * self._next_state.size)
        described = np.flatnonzero(is_described)
        after = self._next_state[described]
        named = np.setdiff1d(after[after >= 0], described)
        numbers = np.concatenate([described, named])
        number_of = np.full(len(self.explored) + len(self.border) + 1, -1, np.int32)
        number_of[numbers] = np.arange(len(numbers), dtype=np.int32)
        next_state = np.full((len(numbers) + 1, after.shape[1]), -1, np.int32)
        next_state[: len(described)] = number_of[after]  # the last place of number_of is what -1 takes
        token_class = np.where(self._token_class > DEAD_CLASS, self._token_class + 1, DEAD_CLASS)
        token_class, next_state = merged(token_class, next_state)
        configurations = np.concatenate([self.explored, self.border])[numbers]
        nothing = ByteMachine(np.zeros(256, np.int32), np.full((len(numbers), 1), -1, np.int32))
        starts = np.flatnonzero(configurations[: len(described)] == self.start)
        if not len(starts):
            raise LimitError(
                "tokens lead further from the start than was explored: ask for more states",
                "states",
                len(self.explored),
            )
        return States(
            configurations=configurations.tolist(),
            num_described=len(described),
            start=int(starts[0]),
            token_class=token_class,
            next_state=next_state,
            bytes=nothing,
        )
