"""The free-text rows of a frozen automaton: which tokens begin and end inside a free-text body, in every state.

The threads of such bodies are a byte machine of their own: no stacks, and what follows a lexeme is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from structgen.grammar.frozen_closure import distinct_rows
from structgen.grammar.parser import Parser
from structgen.grammar.terminal import Terminal
from structgen.kernels.token_columns import ByteMachine, ClassTokens, token_columns
from structgen.kernels.trie_walk import Bools, Ints
from structgen.trie import ByteTrie


def free_text_rows(
    parser: Parser, configurations: Sequence[int], trie: ByteTrie, num_tokens: int, look: Callable[[int], None]
) -> tuple[Ints, Ints]:
    """Return ((S,) row of each state, -1 where no free text is live; (R, W) the rows).

    Args:
        parser: of the grammar.
        configurations: that of each state.
        trie: of the vocabulary.
        num_tokens: V.
        look: called now and then with the bytes in use; what it raises ends the work.
    """
    bodies = _Bodies(parser)
    threads_of = [bodies.of_configuration(parser, one) for one in configurations]
    live = [threads for threads in dict.fromkeys(threads_of) if threads]
    if not live:
        return np.full(len(threads_of), -1, np.int32), np.empty((0, (num_tokens + 31) // 32), np.int32)
    columns = token_columns(trie, bodies.machine(), look)
    token_class, used = columns.classes(trie, num_tokens)
    after = np.full((len(bodies.is_body), len(used)), -1, np.int32)
    columns.expand(used, after)
    stays: Bools = (after >= 0) & bodies.is_body[after]
    legal = np.logical_or.reduceat(stays[list(chain(*live))], np.cumsum([0, *map(len, live[:-1])]))
    row_of_live, first = distinct_rows(legal)
    row_of_threads = dict(zip(live, row_of_live.tolist(), strict=True))
    row_of_state = np.array([row_of_threads.get(threads, -1) for threads in threads_of], np.int32)
    return row_of_state, ClassTokens.of(token_class, len(used)).masks(legal[first])


class _Bodies:
    """The (terminal, DFA state, count) of free-text lexemes as numbers: counts of one state stand in a row.

    Attributes:
        is_body: which of them are inside a body.
    """

    def __init__(self, parser: Parser) -> None:
        self._blocks: dict[int, tuple[int, int]] = {}
        self._terminals: list[Terminal] = []
        self._is_body: dict[int, list[bool]] = {}
        bodies: list[Bools] = [np.zeros(0, np.bool_)]
        size = 0
        for number, terminal in enumerate(parser.terminals):
            if terminal.free_text:
                num_counts = _num_counts(terminal)
                self._blocks[number] = (size, num_counts)
                self._terminals.append(terminal)
                self._is_body[number] = [terminal.is_body(q) for q in range(terminal.dfa.num_states)]
                bodies.append(np.repeat(self._is_body[number], num_counts))
                size += len(bodies[-1])
        self.is_body = np.concatenate(bodies)

    def of_configuration(self, parser: Parser, configuration: int) -> tuple[int, ...]:
        """Return the bodies that are live in a configuration."""
        found = []
        for t, q, count, _ in parser.configurations[configuration][0]:
            block = self._blocks.get(t)
            if block is not None and self._is_body[t][q]:
                found.append(block[0] + q * block[1] + count)
        return tuple(found)

    def machine(self) -> ByteMachine:
        """Return the machine of all of them."""
        edges = np.concatenate([one.dfa.delta * 2 + one.dfa.tick_bytes for one in self._terminals])
        number_of = {np.full(len(edges), -2, edges.dtype).tobytes(): 0}
        columns = np.ascontiguousarray(edges.T)
        byte_class = np.array([number_of.setdefault(column.tobytes(), len(number_of)) for column in columns], np.int32)
        classes, some_byte = np.unique(byte_class, return_index=True)
        table = np.full((len(self.is_body), len(number_of)), -1, np.int32)
        for (first, _), terminal in zip(self._blocks.values(), self._terminals, strict=True):
            block = _block(terminal, some_byte)
            table[first : first + len(block), classes] = np.where(block >= 0, block + first, -1)
        return ByteMachine(byte_class, table)


def _num_counts(terminal: Terminal) -> int:
    """Return how many counts are kept apart: from 0 to the greatest."""
    if not terminal.is_counted:
        return 1
    return 1 + (terminal.min_length if terminal.max_length is None else terminal.max_length)


def _block(terminal: Terminal, some_bytes: npt.NDArray[np.intp]) -> Ints:
    """Return (states times counts, len(some_bytes)): what Terminal.step does, for all of them at once."""
    num_counts = _num_counts(terminal)
    delta = terminal.dfa.delta[:, None, some_bytes]
    count = np.arange(num_counts)[None, :, None] + terminal.dfa.tick_bytes[:, None, some_bytes]
    is_alive = np.broadcast_to(delta >= 0, count.shape)
    if terminal.is_counted:
        need, most = np.array(terminal.need, np.int64)[delta], np.array(terminal.most, np.int64)[delta]
        if terminal.max_length is None:
            count = np.minimum(count, terminal.min_length)
        else:
            is_alive = is_alive & (count + need <= terminal.max_length)
        is_alive = is_alive & (count + most >= terminal.min_length)
    else:
        count = np.zeros_like(count)
    after = np.where(is_alive, delta * num_counts + count, -1)
    result: Ints = after.reshape(-1, len(some_bytes)).astype(np.int32)
    return result
