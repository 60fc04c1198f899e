"""The free-text rows of a frozen automaton: which tokens begin and end inside a free-text body, in every state.

The threads of such bodies are a byte machine of their own: no stacks, and what follows a lexeme is left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from structgen.grammar.frozen_closure import Closure
from structgen.grammar.parser import Parser
from structgen.grammar.terminal import Terminal
from structgen.kernels.token_columns import ByteMachine, ClassTokens, token_columns
from structgen.kernels.trie_walk import Bools, Ints
from structgen.trie import ByteTrie


def free_text_rows(
    parser: Parser, closure: Closure, trie: ByteTrie, num_tokens: int, look: Callable[[int], None]
) -> tuple[Ints, Ints]:
    """Return ((S,) row of each state, -1 where no free text is live; (R, W) the rows).

    Args:
        parser: of the grammar.
        closure: its states.
        trie: of the vocabulary.
        num_tokens: V.
        look: called now and then with the bytes in use; what it raises ends the work.
    """
    bodies = _Bodies(parser)
    threads_of = [bodies.of_configuration(parser, one) for one in closure.configurations]
    live = {threads: None for threads in threads_of if threads}
    row_of_state = np.full(len(threads_of), -1, np.int32)
    if not live:
        return row_of_state, np.empty((0, (num_tokens + 31) // 32), np.int32)
    machine, is_body = bodies.machine()
    columns = token_columns(trie, machine, look)
    token_class, used = columns.classes(trie, num_tokens)
    after = columns.expand(used)
    stays: Bools = (after >= 0) & is_body[after]
    number: dict[bytes, int] = {}
    distinct: list[Bools] = []
    row_of_threads: dict[tuple[int, ...], int] = {}
    for threads in live:
        legal: Bools = np.logical_or.reduce(stays[list(threads)])
        row = row_of_threads[threads] = number.setdefault(legal.tobytes(), len(number))
        if row == len(distinct):
            distinct.append(legal)
    row_of_state[:] = [row_of_threads.get(threads, -1) for threads in threads_of]
    tokens = ClassTokens.of(token_class, len(used))
    return row_of_state, tokens.masks(np.array(distinct))


class _Bodies:
    """The (terminal, DFA state, count) of free-text lexemes as numbers: counts of one state stand in a row."""

    def __init__(self, parser: Parser) -> None:
        self.first: dict[int, int] = {}
        self.terminals: list[Terminal] = []
        self._size = 0
        for number, terminal in enumerate(parser.terminals):
            if terminal.free_text:
                self.first[number] = self._size
                self.terminals.append(terminal)
                self._size += terminal.dfa.num_states * _num_counts(terminal)

    def of_configuration(self, parser: Parser, configuration: int) -> tuple[int, ...]:
        """Return the bodies that are live in a configuration."""
        threads, _ = parser.configurations[configuration]
        return tuple(
            self.first[t] + q * _num_counts(parser.terminals[t]) + count
            for t, q, count, _ in threads
            if t in self.first and parser.terminals[t].is_body(q)
        )

    def machine(self) -> tuple[ByteMachine, Bools]:
        """Return the machine of all of them, and which are inside a body."""
        edges = np.concatenate([one.dfa.delta * 2 + one.dfa.tick_bytes for one in self.terminals])
        number_of = {np.full(len(edges), -2, edges.dtype).tobytes(): 0}
        columns = np.ascontiguousarray(edges.T)
        byte_class = np.array([number_of.setdefault(column.tobytes(), len(number_of)) for column in columns], np.int32)
        classes, some_byte = np.unique(byte_class, return_index=True)
        table = np.full((self._size, len(number_of)), -1, np.int32)
        is_body = np.zeros(self._size, np.bool_)
        for first, terminal in zip(self.first.values(), self.terminals, strict=True):
            block = _block(terminal, some_byte)
            last = first + len(block)
            table[first:last, classes] = np.where(block >= 0, block + first, -1)
            bodies = [terminal.is_body(q) for q in range(terminal.dfa.num_states)]
            is_body[first:last] = np.repeat(bodies, _num_counts(terminal))
        return ByteMachine(byte_class, table), is_body


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
