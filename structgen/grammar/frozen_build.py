"""freeze: a core that is explored to its end, as a FrozenMachine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from structgen.config import Limits
from structgen.errors import LimitError
from structgen.frozen_machine import DEAD_CLASS, MAX_LISTED_TOKENS, STOP_CLASS, FrozenMachine
from structgen.grammar.core import AutomatonCore
from structgen.grammar.frozen_closure import close, distinct_rows
from structgen.grammar.frozen_free_text import free_text_rows
from structgen.grammar.scan import INFINITE
from structgen.grammar.time_limit import Deadline
from structgen.kernels.token_columns import ByteMachine, ClassTokens, Columns, token_columns, token_lists
from structgen.kernels.trie_walk import Bools, Ints

_MAX_CLASSES = 1 << 16
_STATES_AT_ONCE = 1024

_WHY = {
    "states": "it has more states than that: each count has its own, and nesting without a bound has no end of them",
    "depth": "its texts nest deeper than that, as those of a recursive grammar do",
    "memory_mb": "its tables take more memory than that",
    "compile_seconds": "it takes longer than that",
    "token_classes": "its tokens do more different things than that",
}


def freeze(core: AutomatonCore, limits: Limits) -> FrozenMachine:
    """Return all states of an automaton.

    Args:
        core: one that nobody else uses: exploring leaves every configuration in it.
        limits: what it may cost.

    Raises:
        LimitError: the states do not end within the limits.
    """
    try:
        watch = Watch(limits)
        return machine_of(core, _all_states(core, limits, watch), watch)
    except LimitError as error:
        why = _WHY.get(error.limit, str(error))
        raise LimitError(
            f"the automaton cannot be frozen, and stays as it is: {why}; use it unfrozen, or bound what may be written",
            error.limit,
            error.size,
        ) from error


class Watch:
    """Looks at the clock and at the memory."""

    def __init__(self, limits: Limits) -> None:
        """Start the clock."""
        self.deadline = Deadline(limits.compile_seconds)
        self._memory_mb = limits.memory_mb

    def __call__(self, num_bytes: int) -> None:
        """Raise LimitError if time is over, or that much memory is too much."""
        self.deadline.check("its tokens")
        if num_bytes > self._memory_mb * 2**20:
            raise LimitError("its tables are too large", "memory_mb", num_bytes / 2**20)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class States:
    """What a machine is made of: its states, and where the tokens lead.

    Attributes:
        configurations: by state, the end left out; those that are only named come last.
        num_described: how many are described: where each token leads from them is known.
        start: the state before any text.
        token_class: (V,) the class of each token; 0 is legal nowhere, none is 1.
        next_state: (states + 1, classes), the end included, -1 where a class does not lead on; class 1 leads nowhere.
        bytes: which state each byte leads to, as far as the machine tells.
    """

    configurations: list[int]
    num_described: int
    start: int
    token_class: Ints
    next_state: Ints
    bytes: ByteMachine


def _all_states(core: AutomatonCore, limits: Limits, watch: Watch) -> States:
    """Return all states of an automaton."""
    closure = close(core.parser, limits, watch.deadline)
    watch(closure.machine.table.nbytes)
    trie, num_states = core.vocabulary.trie, len(closure.configurations)
    columns = token_columns(trie, closure.machine, watch)
    token_class, used = columns.classes(trie, core.vocabulary.size)
    next_state = expanded(columns, used, num_states, watch)
    return States(
        configurations=closure.configurations,
        num_described=num_states,
        start=closure.start,
        token_class=np.where(token_class > DEAD_CLASS, token_class + 1, DEAD_CLASS),
        next_state=next_state,
        bytes=closure.machine,
    )


def expanded(columns: Columns, used: Ints, num_states: int, watch: Watch) -> Ints:
    """Return (num_states + 1, classes + 1): where each class leads. The end, and the class of stops, lead nowhere.

    Raises:
        LimitError: there are too many classes, or the table takes too much memory.
    """
    if len(used) >= _MAX_CLASSES:
        raise LimitError("there are too many token classes", "token_classes", len(used))
    watch(4 * num_states * len(used))
    next_state = np.full((num_states + 1, len(used) + 1), -1, np.int32)
    columns.expand(used[1:], next_state[:-1, STOP_CLASS + 1 :])
    return next_state


def machine_of(core: AutomatonCore, states: States, watch: Watch) -> FrozenMachine:
    """Return the machine of some states.

    Raises:
        LimitError: it takes more memory or time than it may.
    """
    vocabulary, described = core.vocabulary, states.configurations[: states.num_described]
    num_named = len(states.configurations) - states.num_described
    accepting = np.array([*map(core.is_accepting, states.configurations), False], np.bool_)
    cost = np.append(_costs(core, states.configurations), np.int32(0))
    token_class, next_state = _steps(core, states, accepting)
    is_described = np.append(np.arange(len(states.configurations)) < states.num_described, True)
    mask_row = np.full(len(is_described), -1, np.int32)
    mask_row[is_described], masks = _rows(token_class, next_state[is_described])
    free_row, free_masks = free_text_rows(core.parser, described, vocabulary.trie, vocabulary.size, watch)
    mask_rows = np.concatenate([masks, free_masks])
    watch(next_state.nbytes + mask_rows.nbytes)
    num_legal = np.bitwise_count(mask_rows.view(np.uint32)).sum(axis=1, dtype=np.int32)
    list_start, list_ids = token_lists(mask_rows, num_legal, MAX_LISTED_TOKENS)
    place, texts = _places(core, states.configurations)
    table = states.bytes.table
    return FrozenMachine(
        start=states.start,
        vocabulary_digest=vocabulary.digest,
        token_class=token_class,
        next_state=next_state,
        mask_row=mask_row,
        mask_rows=mask_rows,
        num_legal=num_legal,
        list_start=list_start,
        list_ids=list_ids,
        accepting=accepting,
        cost=cost,
        cost_after=_costs_after(next_state, cost),
        free_row=np.concatenate(
            [
                np.where(free_row >= 0, free_row + np.int32(len(masks)), np.int32(-1)),
                np.full(num_named + 1, -1, np.int32),
            ]
        ),
        byte_class=states.bytes.byte_class,
        byte_next=np.concatenate([table, np.full((1, table.shape[1]), -1, np.int32)]),
        place=place,
        place_start=np.cumsum([0, *map(len, texts)], dtype=np.int64),
        place_text=np.frombuffer(b"".join(texts), np.uint8),
        stop_ids=np.array(vocabulary.stop_ids, np.int32),
    )


def _costs(core: AutomatonCore, configurations: Sequence[int]) -> Ints:
    """Return the finishing cost of each configuration: what FinishingCosts.of_configuration says, words once each."""
    costs = core.costs
    known: dict[tuple[int, int, int], tuple[int, ...]] = {}
    result = []
    for configuration in configurations:
        threads, is_accepting = core.parser.configurations[configuration]
        best = 0 if is_accepting else INFINITE
        for terminal, state, count, stack in threads if best else ():
            word = (terminal, state, count)
            to_end = known.get(word)
            if to_end is None:
                to_end = known[word] = costs.terminals.to_end(*word)
            best = min(best, *map(int.__add__, to_end, costs.of_stack(stack)))
        result.append(best)
    return np.array(result, np.int32)


def _costs_after(next_state: Ints, cost: Ints) -> Ints:
    """Return the greatest cost after any legal token, 0 where there is none."""
    padded = np.append(cost, np.int32(0))  # its last place is what -1 takes
    parts = [padded[next_state[i : i + _STATES_AT_ONCE]].max(axis=1) for i in range(0, len(cost), _STATES_AT_ONCE)]
    return np.concatenate(parts)


def _steps(core: AutomatonCore, states: States, accepting: Bools) -> tuple[npt.NDArray[np.uint16], Ints]:
    """Return the class of each token, and where each class leads from each state, the end included."""
    num_states = len(states.configurations)
    token_class, next_state = states.token_class, states.next_state
    can_end = np.array([*map(core.can_end, states.configurations), True], np.bool_)
    if not can_end.all():
        # -1 is the last place, which stands for the end.
        next_state[~can_end[next_state]] = -1
        token_class, next_state = merged(token_class, next_state)
    stop_ids = list(core.vocabulary.stop_ids)
    if stop_ids:
        described = np.arange(num_states + 1) < states.num_described
        next_state[described & accepting, STOP_CLASS] = num_states
    classes = token_class.astype(np.uint16)
    classes[stop_ids] = STOP_CLASS
    return classes, next_state


def merged(token_class: Ints, next_state: Ints) -> tuple[Ints, Ints]:
    """Make one class of those that have come to lead to the same places; no token is of the stop class yet."""
    columns = np.ascontiguousarray(next_state.T)
    number = {columns[DEAD_CLASS].tobytes(): DEAD_CLASS, b"stop": STOP_CLASS}
    first = [DEAD_CLASS, STOP_CLASS]
    merged = [DEAD_CLASS, STOP_CLASS]
    for index, column in enumerate(columns[STOP_CLASS + 1 :], STOP_CLASS + 1):
        merged.append(number.setdefault(column.tobytes(), len(number)))
        if merged[-1] == len(first):
            first.append(index)
    return np.array(merged, np.int32)[token_class], np.ascontiguousarray(next_state[:, first])


def _rows(token_class: npt.NDArray[np.uint16], next_state: Ints) -> tuple[Ints, Ints]:
    """Return the row of each state, and the rows."""
    is_legal = next_state >= 0
    mask_row, first = distinct_rows(is_legal)
    return mask_row, ClassTokens.of(token_class, next_state.shape[1]).masks(is_legal[first])


def _places(core: AutomatonCore, configurations: Sequence[int]) -> tuple[Ints, list[bytes]]:
    """Return which text says what is being read in each state, and the texts."""
    number: dict[tuple[object, ...], int] = {}
    texts: list[bytes] = []
    place = []
    for configuration in configurations:
        threads, is_accepting = core.parser.configurations[configuration]
        index = number.setdefault((is_accepting, *(terminal for terminal, *_ in threads)), len(number))
        if index == len(texts):
            # Without the number, which only the core knows.
            texts.append(core.describe(configuration).partition(" ")[2].encode())
        place.append(index)
    return np.array([*place, len(texts)], np.int32), [*texts, b"(after the end)"]
