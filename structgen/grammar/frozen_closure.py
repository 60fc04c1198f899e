"""Every configuration of a parser, as a machine that reads bytes: what a frozen automaton is made of.

Languages whose nesting has no bound have no end of configurations, and long counts have one each; a limit says so then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from structgen.config import Limits
from structgen.errors import LimitError
from structgen.grammar.parser import Parser
from structgen.grammar.time_limit import Deadline
from structgen.kernels.token_columns import ByteMachine
from structgen.kernels.trie_walk import Bools, Ints

_STATES_PER_LOOK = 256


@dataclass(frozen=True, eq=False, slots=True)
class Closure:
    """All configurations that a text leads to.

    Attributes:
        configurations: by state; counts of one place of the grammar stand in a row.
        start: the state before any text.
        machine: which state each byte leads to.
    """

    configurations: list[int]
    start: int
    machine: ByteMachine


class Edges:
    """The steps of one configuration after the other, with the groups of bytes that make them."""

    def __init__(self) -> None:
        """Start with none."""
        self.groups: dict[bytes, int] = {}
        self.num_edges: list[int] = []
        self.group: list[int] = []
        self.target: list[int] = []

    def add(self, successors: Mapping[int, bytes | Sequence[int]]) -> None:
        """Take the next configuration's."""
        self.num_edges.append(len(successors))
        self.target.extend(successors)
        for choices in successors.values():
            self.group.append(self.groups.setdefault(bytes(choices), len(self.groups)))


def close(parser: Parser, limits: Limits, deadline: Deadline) -> Closure:
    """Follow all bytes from the start until nothing new is met.

    Raises:
        LimitError: there are more configurations than may be, they are nested beyond the limit, or it takes too long.
    """
    found = [parser.start]
    known = {parser.start}
    todo = [parser.start]
    explored: list[int] = []
    edges = Edges()
    _check_depth(parser, {stack for *_, stack in parser.configurations[parser.start][0]}, limits)
    num_stacks = len(parser.stacks)
    while todo:
        # The newest first: nesting without a bound then meets the limit of depth early.
        configuration = todo.pop()
        successors = parser.successors(configuration)
        explored.append(configuration)
        edges.add(successors)
        fresh = successors.keys() - known
        known |= fresh
        todo.extend(fresh)
        found.extend(fresh)
        if len(found) > limits.states:
            raise LimitError("there are too many parser configurations", "states", len(found))
        if len(parser.stacks) > num_stacks:
            num_stacks = len(parser.stacks)
            _check_depth(parser, {stack for one in fresh for *_, stack in parser.configurations[one][0]}, limits)
        if len(explored) % _STATES_PER_LOOK == 0:
            deadline.check("its states")
    order = in_rows(parser, explored)
    index = np.empty(1 + max(order), np.int32)
    index[order] = np.arange(len(order), dtype=np.int32)
    machine = byte_machine(edges, index[explored], index, len(order))
    return Closure(order, int(index[parser.start]), machine)


def distinct_rows(rows: Bools) -> tuple[Ints, Ints]:
    """Return (the number of each row among those that differ, a row for each number), both int32."""
    number: dict[bytes, int] = {}
    first: list[int] = []
    of_row = []
    for index, row in enumerate(np.packbits(rows, axis=1)):
        one = number.setdefault(row.tobytes(), len(number))
        if one == len(first):
            first.append(index)
        of_row.append(one)
    return np.array(of_row, np.int32), np.array(first, np.int32)


def _check_depth(parser: Parser, stacks: set[int], limits: Limits) -> None:
    if any(parser.is_deep(stack) for stack in stacks):
        raise LimitError("its texts nest deeper than that", "depth", limits.depth + 1)


def in_rows(parser: Parser, configurations: list[int]) -> list[int]:
    """Return the configurations so ordered that those which differ in a count only stand in a row."""

    def key(configuration: int) -> tuple[int, ...]:
        threads, _ = parser.configurations[configuration]
        if len(threads) != 1:
            return (1, configuration)
        ((terminal, state, count, stack),) = threads
        return (0, terminal, stack, state, count)

    return sorted(configurations, key=key)


def byte_machine(edges: Edges, sources: Ints, index: Ints, num_states: int) -> ByteMachine:
    """Return the table of the edges, with as few byte classes as they tell apart.

    Args:
        edges: those of the sources, in their order.
        sources: the number of each state that has edges.
        index: the number of the state of each configuration.
        num_states: how many rows the table has.
    """
    groups = list(edges.groups)
    member = np.zeros((len(groups), 256), np.bool_)
    for number, choices in enumerate(groups):
        member[number, np.frombuffer(choices, np.uint8)] = True
    number_of = {bytes(len(groups)): 0}
    columns = np.ascontiguousarray(member.T)
    byte_class = np.array([number_of.setdefault(column.tobytes(), len(number_of)) for column in columns], np.int32)
    table = np.full((num_states, len(number_of)), -1, np.int32)
    if edges.target:
        _, first_byte = np.unique(byte_class, return_index=True)
        if byte_class.min() > 0:  # every byte is read somewhere, so no byte stands for class 0
            first_byte = np.concatenate([[0], first_byte])
        has_class = member[:, first_byte]
        has_class[:, 0] = False
        group_of, class_of = np.nonzero(has_class)
        begin = np.searchsorted(group_of, np.arange(len(groups) + 1))
        group = np.array(edges.group)
        size = np.diff(begin)[group]
        within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        classes = class_of[np.repeat(begin[group], size) + within]
        source = np.repeat(sources, edges.num_edges)
        table[np.repeat(source, size), classes] = np.repeat(index[edges.target], size)
    return ByteMachine(byte_class, table)
