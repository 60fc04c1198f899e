"""A part of an automaton as frozen tables: the states that are nearest to the start, then those that texts meet.

For languages whose states have no end, or too many to keep. A state is *described* if it is known where each token
leads from it; others are only named, and a device that gets there waits until the host has described them, with those
that are nearest to them. What was described stays as it is, so a text that is under way is not disturbed.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from structgen.config import Limits
from structgen.errors import LimitError, OptionError, VocabularyError
from structgen.frozen_machine import DEAD_CLASS
from structgen.frozen_pieces import GrowingMachine, Piece
from structgen.grammar.core import AutomatonCore
from structgen.grammar.frozen_build import States, Watch, expanded, machine_of, merged
from structgen.grammar.frozen_closure import Edges, byte_machine, in_rows
from structgen.grammar.parser import DEAD, Parser
from structgen.grammar.parser_state import ParserState
from structgen.kernels.token_columns import ByteMachine, token_columns
from structgen.kernels.trie_walk import Bools, Ints
from structgen.vocabulary import Vocabulary

_MAX_ROUNDS = 24
_EXPLORED_PER_STATE = 8
_EXPLORED_ANYWAY = 4000
"""How many configurations inside tokens may be explored: so many for each state that is to be described, and these."""

_NESTING = 4
"""How far away one frame more of the stack is, in bytes that something else could have stood for."""

_EXPLORED_PER_CROSSED = 4
_ROUNDS_OF_A_REACH = 4
"""So many more for each configuration at which a token leaves what is explored, before tokens are walked anew; twice
as many after some rounds."""

_LEAST_PIECE = 128
_MOST_PIECE = 256
_SHARE_OF_PIECE = 16
"""A piece describes one state for so many that are described already, within bounds: few pieces, and short waits."""

_MAX_FORCED_BYTES = 64
"""As many as a short draft may have."""


class FrozenPart:
    """The described states of one automaton so far; thread-safe.

    Attributes:
        machine: their tables, which grow.
    """

    def __init__(self, core: AutomatonCore, limits: Limits, *, num_states: int) -> None:
        """Describe the states nearest to the start.

        Args:
            core: one that nobody else uses: exploring leaves every configuration in it.
            limits: what each growth may cost, and what the whole may.
            num_states: how many states are described at first.

        Raises:
            LimitError: not even the start can be described, or it takes more time or memory than it may.
        """
        self._core = core
        self._limits = limits
        self._lock = threading.Lock()
        self._exploration = _Exploration(core.parser)
        self._described: set[int] = set()
        self._has_failed = False
        watch = Watch(limits)
        with core.lock:
            states = self._states_near([core.parser.start], num_states, watch)
            if states is None:
                raise LimitError("its first token may nest deeper than that", "depth", limits.depth)
            if core.parser.start not in states.configurations[: states.num_described]:
                raise LimitError("tokens lead further from the start than may be explored", "states", num_states)
            machine = machine_of(core, states, watch)
        self.machine = GrowingMachine(machine, forced=self._forced(states))
        self._number_of = {one: number for number, one in enumerate(states.configurations)}
        self._described = set(states.configurations[: states.num_described])

    @property
    def is_full(self) -> bool:
        """Whether it had better begin anew, for texts that begin now: it takes much of what it may, or cannot grow."""
        num_configurations, num_bytes = self._core.num_configurations, self.machine.num_bytes
        is_large = num_bytes > self._limits.memory_mb * 2**19 or 2 * num_configurations > self._limits.states
        return is_large or self._has_failed

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that are walked over."""
        return self._core.vocabulary

    def start(self) -> ParserState:
        """Return a walk that stands before any text; it also goes where nothing is described."""
        return ParserState(self._core)

    def describe(self, state: ParserState) -> bool:
        """Describe the state of a walk that `start` gave, unless it is described; return whether it is now.

        False where nesting decides what is legal, or where that takes more than the limits allow.

        Raises:
            OptionError: the walk is over something else.
        """
        if state.automaton is not self._core:
            raise OptionError("this is no walk of the part: begin with part.start()")
        return self._describe([state.configuration])

    def meet(self, token_ids: Iterable[int]) -> None:
        """Describe the states of a text, so that no device waits in them.

        Args:
            token_ids: legal tokens from the start on; what comes after an illegal one, or a stop, is left alone.
        """
        self._describe(list(self._walk(token_ids)))

    def states_along(self, token_ids: Sequence[int]) -> list[int]:
        """Return the state before any text and after each token, -1 where it is not described.

        Args:
            token_ids: tokens from the start on; the list ends before one that cannot be read, a stop included.
        """
        return [self._number_of[one] if one in self._described else -1 for one in self._walk(token_ids)]

    def _walk(self, token_ids: Iterable[int]) -> Iterator[int]:
        """Yield the configurations before and after the tokens, as far as they can be read."""
        parser, configuration = self._core.parser, self._core.parser.start
        yield configuration
        for token_id in token_ids:
            data = self._core.vocabulary.token_bytes(token_id)
            with self._core.lock:
                for byte in data:
                    configuration = parser.step(configuration, byte)
                    if configuration == DEAD:
                        return
            if not data:
                return
            yield configuration

    def _describe(self, configurations: list[int]) -> bool:
        with self._lock:
            unknown = [one for one in dict.fromkeys(configurations) if one not in self._described]
            if unknown and not self._has_failed:
                try:
                    self._grow(unknown)
                except LimitError:
                    self._has_failed = True
            return all(one in self._described for one in unknown)

    def _grow(self, configurations: list[int]) -> None:
        """Make a piece of some states that are not described, and of those nearest to them."""
        num_states = min(max(_LEAST_PIECE, len(self._described) // _SHARE_OF_PIECE), _MOST_PIECE)
        watch = Watch(self._limits)
        with self._core.lock:
            states = self._states_near(configurations, max(num_states, len(configurations)), watch)
            if states is None:
                return
            machine = machine_of(self._core, states, watch)
        if len(self._number_of) >= self.machine.num_states:  # of a piece that somebody interrupted before it was there
            here = self.machine.num_states
            self._number_of = {one: number for one, number in self._number_of.items() if number < here}
        # One number is the end's.
        numbers = [self._number_of.setdefault(one, len(self._number_of) + 1) for one in states.configurations]
        of_states = np.array([*numbers, self.machine.end], np.int64)
        self.machine.add(Piece(machine=machine, numbers=of_states, forced=self._forced(states)))
        self._described.update(states.configurations[: states.num_described])

    def _forced(self, states: States) -> list[list[int]]:
        described = states.configurations[: states.num_described]
        texts = [self._exploration.forced(one) for one in described]
        tokens = {text: _tokens_of(text, self.vocabulary) for text in dict.fromkeys(texts)}
        return [tokens[text] for text in texts]

    def _states_near(self, sources: list[int], num_states: int, watch: Watch) -> States | None:
        """Describe the states nearest to some, those of which too little is known left out; None if none is left."""
        exploration = self._exploration
        wanted = exploration.nearest(sources, num_states, self._described, watch)
        if not wanted:
            return None
        explored = dict.fromkeys(wanted)
        most = _EXPLORED_PER_STATE * len(wanted) + _EXPLORED_ANYWAY
        for number in range(_MAX_ROUNDS):
            tables = _Tables(exploration.steps, list(explored), self._core, watch)
            is_wanted = np.isin(tables.explored, wanted)
            crossed = tables.crossed(is_wanted)
            if not len(crossed) or number == _MAX_ROUNDS - 1 or len(explored) > most:
                break
            # Where few tokens are left they are long ones.
            room = _EXPLORED_PER_CROSSED * len(crossed) << number // _ROUNDS_OF_A_REACH
            exploration.around(crossed.tolist(), explored, room, watch)
        states = tables.states(is_wanted, self._core.parser.start, watch)
        return states if states.num_described else None


def _tokens_of(forced: bytes, vocabulary: Vocabulary) -> list[int]:
    try:
        return vocabulary.encode(forced)
    except VocabularyError:  # it ends where nobody has looked further, within what only one token spells
        return []


class _Exploration:
    """The configurations of which each step is known.

    Attributes:
        steps: configuration -> configuration after it -> the bytes that lead there.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self.steps: dict[int, Mapping[int, bytes]] = {}
        self._forced: dict[int, bytes] = {}

    def nearest(self, sources: Iterable[int], num_states: int, known: set[int], watch: Watch) -> list[int]:
        """Explore by distance; return the first so many configurations, those that cannot be explored left out.

        The distance is the number of bytes that something else could have stood for. Nesting makes it longer: there
        are more places the deeper it gets, and a text passes few of them.

        Args:
            sources: where the distance is 0.
            num_states: most that are returned.
            known: what is not asked for, and what nothing is looked for behind.
            watch: looks at the clock.
        """
        distance = dict.fromkeys(sources, 0)
        todo = [(0, number, one) for number, one in enumerate(distance)]
        found: list[int] = []
        num_seen = len(todo)
        while todo and len(found) < num_states:
            so_far, _, one = heapq.heappop(todo)
            if so_far > distance[one] or one in known or not self.explore(one, watch):
                continue
            found.append(one)
            successors = self.steps[one]
            choice, depth = int(len(successors) > 1), self._depth(one)
            for after in successors:
                further = so_far + choice + _NESTING * max(0, self._depth(after) - depth)
                if further < distance.get(after, further + 1):
                    distance[after] = further
                    heapq.heappush(todo, (further, num_seen, after))
                    num_seen += 1
        return found

    def _depth(self, configuration: int) -> int:
        return max(
            (self._parser.depth(stack) for *_, stack in self._parser.configurations[configuration][0]), default=0
        )

    def around(self, crossed: list[int], explored: dict[int, None], room: int, watch: Watch) -> None:
        """Add what tokens cross, and what is near behind it, to what is explored: so many configurations."""
        todo = deque(crossed)
        most = len(explored) + room
        while todo and len(explored) < most:
            one = todo.popleft()
            if one not in explored and self.explore(one, watch):
                explored[one] = None
                todo.extend(self.steps[one])

    def explore(self, configuration: int, watch: Watch) -> bool:
        """Learn the steps of a configuration; return False where nesting decides what is legal."""
        if configuration in self.steps:
            return True
        threads, _ = self._parser.configurations[configuration]
        if self._parser.any_near_deep(stack for *_, stack in threads):
            return False
        if len(self.steps) % 256 == 0:
            watch.deadline.check("its states")
        self.steps[configuration] = {one: bytes(group) for one, group in self._parser.successors(configuration).items()}
        return True

    def forced(self, configuration: int) -> bytes:
        """Return the bytes that every text goes on with, as far as that was explored."""
        way: list[tuple[int, int]] = []
        while configuration not in self._forced:
            steps = self.steps.get(configuration, {})
            is_end = self._parser.configurations[configuration][1] or len(steps) != 1 or len(way) == _MAX_FORCED_BYTES
            if is_end or len(group := next(iter(steps.values()))) != 1:
                break
            way.append((configuration, group[0]))
            (configuration,) = steps
        forced = self._forced.get(configuration, b"")
        for one, byte in reversed(way):
            forced = (bytes([byte]) + forced)[:_MAX_FORCED_BYTES]
            self._forced[one] = forced
        return forced


class _Tables:
    """Where each token leads from some explored configurations, as far as that is known.

    States: those explored, then those only met, then a *shadow* of each of the latter: what a token that goes on from
    there comes to, whatever its other bytes are.
    """

    def __init__(
        self, steps: Mapping[int, Mapping[int, bytes]], sources: list[int], core: AutomatonCore, watch: Watch
    ) -> None:
        parser, edges = core.parser, Edges()
        for one in sources:
            edges.add(steps[one])
        explored = in_rows(parser, sources)
        is_explored = set(explored)
        border = in_rows(parser, [one for one in dict.fromkeys(edges.target) if one not in is_explored])
        self.explored = np.array(explored, np.int32)
        self.border = np.array(border, np.int32)
        num_explored, num_border = len(explored), len(border)
        index = np.empty(1 + max([*explored, *border]), np.int32)
        index[self.explored] = np.arange(num_explored, dtype=np.int32)
        index[self.border] = np.arange(num_border, dtype=np.int32) + num_explored
        num_states = num_explored + 2 * num_border
        machine = byte_machine(edges, index[sources], index, num_states)
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

    def states(self, is_wanted: Bools, start: int, watch: Watch) -> States:
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
        starts = np.flatnonzero(configurations[: len(described)] == start)
        return States(
            configurations=configurations.tolist(),
            num_described=len(described),
            start=int(starts[0]) if len(starts) else len(numbers),
            token_class=token_class,
            next_state=next_state,
            bytes=nothing,
        )
