"""The states that texts have met: their masks and steps as arrays, from which a later process begins.

A walk over them needs no grammar. Where a text leaves them, or more is asked than they hold, the grammar is lowered,
the way to the state is taken again in a core, and the walk goes on there. So a state is known by the tokens that lead
to it, never by a number that another process gave it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.array_store import ArrayLayout
from structgen.grammar.core import ROW_ARRAYS, AutomatonCore, packed_row, rows_fit, unpacked_row, with_stops
from structgen.grammar.rows import WIDE_NUM_BYTES
from structgen.kernels.trie_walk import Ints
from structgen.vocabulary import Vocabulary

_INT32 = np.dtype(np.int32)

MET_ARRAYS = {
    "met_states": ArrayLayout(_INT32, (None, 6)),
    "met_steps": ArrayLayout(_INT32, (None, 2)),
    "met_num_terminals": ArrayLayout(_INT32, (1,)),
}
"""The arrays that S states and E steps are kept in.

met_states: (S + 1, 6) of each state the place of its row among the row_keys, -1 where it was not worked out; 1 where
    the text may end; the state before, which has a smaller number, and the token that led here, -1 and -1 of the start;
    the place among the rows of the tokens that change nothing here, -1 where these are not known; and where its steps
    begin. The last line says where they end.
met_steps: (E, 2) token and state after it.
met_num_terminals: (1,) lexemes of the grammar.
"""
_ROW, _IS_ACCEPTING, _BEFORE, _TOKEN, _STAYING, _FIRST_STEP = range(6)

ARRAYS = ROW_ARRAYS | MET_ARRAYS
"""All arrays that `exported` gives."""

_FIRST = 1 << 48
"""Met states are numbered from here on, so that they are told from those of the core."""

_MAX_STATES = 2048
_MAX_STEPS = 1 << 13


class MetStates:
    """Which tokens may follow, for every text of a grammar (see parser_state.Automaton); thread-safe."""

    def __init__(
        self, arrays: Mapping[str, npt.NDArray[Any]], vocabulary: Vocabulary, make_core: Callable[[], AutomatonCore]
    ) -> None:
        """Make nothing yet.

        Args:
            arrays: those that `exported` gave and `fits` has looked at.
            vocabulary: the tokens that they were made for.
            make_core: makes the core of the grammar, which knows its start only.
        """
        self._vocabulary = vocabulary
        self._arrays = arrays
        self._states = arrays["met_states"]
        self._make_core = make_core
        self._lock = threading.Lock()
        self._core: AutomatonCore | None = None
        self._masks: dict[int, Ints] = {}
        self._distinct: dict[tuple[int, bool], Ints] = {}
        self._steps: dict[int, dict[int, int]] = {}
        self._in_core: dict[int, int] = {}

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that are walked over."""
        return self._vocabulary

    @property
    def has_core(self) -> bool:
        """Whether some text, or question, has led out of the met states."""
        return self._core is not None

    @property
    def core(self) -> AutomatonCore:
        """The core of the grammar, made when first asked for."""
        if self._core is None:
            with self._lock:
                if self._core is None:
                    core = self._make_core()
                    core.import_rows(self._arrays)
                    self._core = core
        return self._core

    # ------------------------------------------------------------------ how much there is

    @property
    def num_configurations(self) -> int:
        """Number of states."""
        return len(self._states) - 1

    @property
    def num_terminals(self) -> int:
        """Number of lexemes of the grammar."""
        return int(self._arrays["met_num_terminals"][0])

    @property
    def num_words(self) -> int:
        """Length of a mask."""
        return (self._vocabulary.size + 31) // 32

    @property
    def num_rows(self) -> int:
        """Number of mask rows at hand."""
        return len(self._arrays["row_keys"])

    @property
    def num_distinct_rows(self) -> int:
        """Number of rows at hand that differ."""
        return int(self._arrays["row_place"].max(initial=-1)) + 1

    # ------------------------------------------------------------------ what walks ask

    @property
    def start_configuration(self) -> int:
        """The state before any text."""
        return _FIRST

    @cached_property
    def end_mask(self) -> Ints:
        """The mask after the end: nothing is legal."""
        mask = np.zeros(self.num_words, np.int32)
        mask.setflags(write=False)
        return mask

    def is_accepting(self, configuration: int) -> bool:
        """Return whether the text may end here."""
        if configuration < _FIRST:
            return self.core.is_accepting(configuration)
        return bool(self._states[configuration - _FIRST, _IS_ACCEPTING])

    def mask(self, configuration: int) -> Ints:
        """Return the legal tokens."""
        known = self._masks.get(configuration)
        if known is None:
            row = self.row_of(configuration)
            if row < 0:
                return self.core.mask(self._placed(configuration))
            is_accepting = self.is_accepting(configuration)
            known = self._row(int(self._arrays["row_place"][row]), is_accepting=is_accepting)
            self._masks[configuration] = known
        return known

    def _row(self, place: int, *, is_accepting: bool = False) -> Ints:
        """Return one of the rows, with the stop ids where the text may end."""
        known = self._distinct.get((place, is_accepting))
        if known is None:
            known = unpacked_row(self._packed(place), self.num_words)
            if is_accepting:
                known = with_stops(known, (stop for stop in self._vocabulary.stop_ids if stop < self._vocabulary.size))
                known.setflags(write=False)
            self._distinct[place, is_accepting] = known
        return known

    def _packed(self, place: int) -> bytes:
        first, last = self._arrays["row_start"][place : place + 2].tolist()
        return self._arrays["row_data"][first:last].tobytes()

    def next_configuration(self, configuration: int, token_id: int) -> int:
        """Return the state after a token that is not a stop id.

        Raises:
            TokenRejectedError: the token is illegal here.
        """
        after = None if configuration < _FIRST else self.steps_of(configuration).get(token_id)
        if after is None and configuration >= _FIRST and self._stays(configuration, token_id):
            after = configuration
        return self.core.next_configuration(self._placed(configuration), token_id) if after is None else after

    def _stays(self, configuration: int, token_id: int) -> bool:
        """Return whether it is known of a token that it changes nothing in a met state."""
        place = int(self._states[configuration - _FIRST, _STAYING])
        return place >= 0 and bool(int(self._row(place)[token_id >> 5]) >> (token_id & 31) & 1)

    def key(self, configuration: int) -> tuple[int, int]:
        """Return a key that is the same wherever the same tokens are legal: counts far from bounds do not matter."""
        row = self.row_of(configuration)
        return self.core.key(self._placed(configuration)) if row < 0 else (id(self), row)

    def mask_within(self, configuration: int, budget: int) -> Ints:
        """Return the legal tokens after which budget - 1 more are enough to end."""
        return self.core.mask_within(self._placed(configuration), budget)

    def free_text_mask(self, configuration: int) -> Ints | None:
        """Return the tokens that stay inside free text."""
        return self.core.free_text_mask(self._placed(configuration))

    def finishing_cost(self, configuration: int) -> int:
        """Return how many tokens are enough to end from here."""
        return self.core.finishing_cost(self._placed(configuration))

    def forced_bytes(self, configuration: int) -> bytes:
        """Return the bytes that every continuation starts with."""
        return self.core.forced_bytes(self._placed(configuration))

    def describe(self, configuration: int) -> str:
        """Return a short text for messages."""
        return self.core.describe(self._placed(configuration))

    # ------------------------------------------------------------------ the states themselves

    @property
    def configurations(self) -> range:
        """The numbers of all met states, the start first."""
        return range(_FIRST, _FIRST + self.num_configurations)

    def row_of(self, configuration: int) -> int:
        """Return the place of a state's row among those of the arrays, -1 where it has none."""
        return -1 if configuration < _FIRST else int(self._states[configuration - _FIRST, _ROW])

    def row_key(self, configuration: int) -> bytes:
        """Return what the row of a state is kept by, empty where it has none."""
        row = self.row_of(configuration)
        return b"" if row < 0 else self._arrays["row_keys"][row].tobytes()

    def staying(self, configuration: int) -> bytes | None:
        """Return the packed row of the tokens that change nothing in a met state, None where these are not known."""
        place = int(self._states[configuration - _FIRST, _STAYING])
        return None if place < 0 else self._packed(place)

    def steps_of(self, configuration: int) -> dict[int, int]:
        """Return the steps from a met state: token -> met state."""
        known = self._steps.get(configuration)
        if known is None:
            state = configuration - _FIRST
            first, last = self._states[state : state + 2, _FIRST_STEP]
            steps = self._arrays["met_steps"][first:last].tolist()
            known = self._steps[configuration] = {token: _FIRST + after for token, after in steps}
        return known

    def _placed(self, configuration: int) -> int:
        """Return the state of the core that a state is."""
        if configuration < _FIRST:
            return configuration
        core, way = self.core, []
        state = configuration - _FIRST
        while state and state not in self._in_core:
            way.append((state, int(self._states[state, _TOKEN])))
            state = int(self._states[state, _BEFORE])
        place = self._in_core[state] if state else core.start_configuration
        for state, token in reversed(way):
            place = self._in_core[state] = core.next_configuration(place, token)
        return place


def fits(arrays: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Return whether arrays of the types in ARRAYS are as long as those of `exported` are."""
    states = arrays["met_states"]
    return len(states) > 1 and int(states[-1, _FIRST_STEP]) == len(arrays["met_steps"]) and rows_fit(arrays)


def exported(core: AutomatonCore, met: MetStates | None) -> dict[str, npt.NDArray[Any]]:
    """Return the rows of a core, and the states that texts have met in it or before, as arrays for a later process.

    Args:
        core: where texts have walked.
        met: the states that earlier processes had met, whose core this is.
    """
    arrays = core.export_rows()
    place_of = {key.tobytes(): place for place, key in enumerate(arrays["row_keys"])}
    after = _steps(core, met)
    order, origin = [core.start_configuration], [(-1, -1)]
    number = {core.start_configuration: 0}
    states, steps = list[tuple[int, ...]](), list[tuple[int, int]]()
    extra, found = dict[bytes, int](), dict[tuple[bytes, int], bytes]()
    for state in order:
        holder = core if met is None or state < _FIRST else met
        row = place_of.get(holder.row_key(state), -1)
        staying = holder.staying(state) if isinstance(holder, MetStates) else _staying(core, state, found)
        place = -1 if staying is None else extra.setdefault(staying, len(arrays["row_start"]) - 1 + len(extra))
        states.append((row, holder.is_accepting(state), *origin[len(states)], place, len(steps)))
        for token, target in after.get(state, {}).items():
            if target not in number and len(order) < _MAX_STATES:
                number[target] = len(order)
                origin.append((number[state], token))
                order.append(target)
            if target in number and len(steps) < _MAX_STEPS:
                steps.append((token, number[target]))
    states.append((-1, 0, -1, -1, -1, len(steps)))
    ends = arrays["row_start"][-1] + np.cumsum(list(map(len, extra)), dtype=np.int32)
    return arrays | {
        "row_start": np.concatenate([arrays["row_start"], ends]),
        "row_data": np.concatenate([arrays["row_data"], np.frombuffer(b"".join(extra), np.uint8)]),
        "met_states": np.array(states, np.int32),
        "met_steps": np.array(steps, np.int32).reshape(-1, 2),
        "met_num_terminals": np.array([core.num_terminals], np.int32),
    }


def _staying(core: AutomatonCore, configuration: int, found: dict[tuple[bytes, int], bytes]) -> bytes | None:
    """Return the packed row of the tokens that change nothing in a state, None where that is not known at once.

    It is where one lexeme alone is read whose words all end in states that lead nowhere, such as the quote of a string:
    then a token that leads back to the state has ended no word on its way. A bound on the length that is still to be
    met, or that may be passed, would change with each token. Where the text may end, another lexeme has ended, and one
    token on the text may not end any more.

    Args:
        core: whose state it is.
        configuration: the state.
        found: what was found before, by DFA and its state.
    """
    threads, is_accepting = core.parser.configurations[configuration]
    if len(threads) != 1 or is_accepting:
        return None
    ((terminal, state, count, stack),) = threads
    shape = core.parser.terminals[terminal]
    is_open = shape.max_length is None and count == shape.min_length
    if not is_open or shape.num_bytes(state) < WIDE_NUM_BYTES or core.parser.any_near_deep([stack]):
        return None
    key = shape.dfa.digest, state
    if key not in found and not any(shape.num_bytes(int(end)) for end in np.flatnonzero(shape.dfa.accepting)):
        groups = core.scans.groups(shape.dfa, state)
        mask = core.scans.new_row()
        groups.add_to(mask, core.scans.scan(shape.dfa, state).row, groups.ends[:, 0] == state, core.scans.trie)
        found[key] = packed_row(mask)
    return found.get(key)


def _steps(core: AutomatonCore, met: MetStates | None) -> dict[int, dict[int, int]]:
    """Return all steps: state -> token -> state; states are those of the core, and met ones that no walk here met."""
    after: dict[int, dict[int, int]] = {}
    taken = core.steps
    for (state, token), target in taken.items():
        after.setdefault(state, {})[token] = target
    if met is None:
        return after
    same = {met.start_configuration: core.start_configuration}
    order = [met.start_configuration]
    for state in order:
        for token, target in met.steps_of(state).items():
            place = taken.get((same[state], token))
            if place is not None and target not in same:
                same[target] = place
                order.append(target)
    for state in met.configurations:
        own = after.setdefault(same.get(state, state), {})
        for token, target in met.steps_of(state).items():
            own.setdefault(token, same.get(target, target))
    return after
