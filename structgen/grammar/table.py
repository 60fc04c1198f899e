"""Transition tables: trimming, minimising, products and determinisation, for any alphabet of column classes.

A table is (num_states, num_classes) int32 with -1 where no word goes on. `Dfa` (bytes) and `CharDfa` (code
points) are both made with these functions. Left out: what a column stands for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from structgen.errors import LimitError
from structgen.grammar.time_limit import check_time

DEAD = -1
MAX_STATES = 100_000

IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]


def column_classes(delta: IntArray, ticks: BoolArray | None = None) -> tuple[IntArray, IntArray]:
    """Group equal columns, in the order of their first member.

    Returns:
        (num_classes,) first column of each class, and (num_columns,) class of each column.
    """
    columns = _rows(np.ascontiguousarray(delta.T))
    if ticks is not None and ticks.any():
        columns = [a + b for a, b in zip(columns, _rows(np.ascontiguousarray(ticks.T)), strict=True)]
    seen: dict[bytes, int] = {}
    classes = [seen.setdefault(column, len(seen)) for column in columns]
    first = np.full(len(seen), -1, np.int32)
    numbered = np.array(classes, dtype=np.int32)
    first[numbered[::-1]] = np.arange(len(columns) - 1, -1, -1, dtype=np.int32)
    return first, numbered


def _rows(matrix: npt.NDArray[np.generic]) -> list[bytes]:
    """Return each row of a contiguous matrix as bytes, to be hashed exactly."""
    data, width = matrix.tobytes(), matrix.shape[1] * matrix.itemsize
    return [data[i * width : (i + 1) * width] for i in range(matrix.shape[0])]


def _successors(table: IntArray) -> tuple[list[int], list[int], list[int]]:
    """Return (offsets, sources, targets) of the steps in column order, runs of one target taken once."""
    source, column = np.nonzero(table >= 0)
    target = table[source, column]
    keep = np.ones(len(source), np.bool_)
    keep[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    source, target = source[keep], target[keep]
    offsets = np.searchsorted(source, np.arange(len(table) + 1))
    return offsets.tolist(), source.tolist(), target.tolist()


def _predecessors(sources: list[int], targets: list[int], num_states: int) -> list[list[int]]:
    before: list[list[int]] = [[] for _ in range(num_states)]
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    return before


def trim(table: IntArray, accepting: BoolArray, start: int) -> tuple[IntArray, IntArray, IntArray]:
    """Keep the states that are reachable and can accept, the start first.

    Returns:
        the table of the kept states, the kept states as numbered in the argument, and for each the length of
        a shortest word to an accepting state. For the empty language: the start state without steps.
    """
    num_states = len(table)
    offsets, sources, targets = _successors(table)
    order, seen = [start], bytearray(num_states)
    seen[start] = 1
    for state in order:
        for target in targets[offsets[state] : offsets[state + 1]]:
            if not seen[target]:
                seen[target] = 1
                order.append(target)
    before = _predecessors(sources, targets, num_states)
    distance = [-1] * num_states
    queue = [state for state in order if accepting[state]]
    for state in queue:
        distance[state] = 0
    for state in queue:
        for source in before[state]:
            if seen[source] and distance[source] < 0:
                distance[source] = distance[state] + 1
                queue.append(source)
    if distance[start] < 0:
        return np.full((1, table.shape[1]), DEAD, np.int32), np.array([start], np.int32), np.zeros(1, np.int32)
    kept = np.array([state for state in order if distance[state] >= 0], dtype=np.int32)
    renumber = np.full(num_states + 1, DEAD, np.int32)  # the last entry stands for DEAD, which indexes it
    renumber[kept] = np.arange(len(kept), dtype=np.int32)
    return renumber[table[kept]], kept, np.array(distance, dtype=np.int32)[kept]


def quotient(table: IntArray, accepting: BoolArray, labels: BoolArray, distance: IntArray) -> tuple[IntArray, IntArray]:
    """Merge equivalent states of a trimmed DFA and number them breadth-first from state 0.

    Args:
        table: (num_states, num_classes), trimmed.
        accepting: (num_states,).
        labels: (num_states, any); states with different rows are never merged.
        distance: (num_states,) length of a shortest word to an accepting state. It is not needed for the
            result: it makes the first partition fine, so that long chains are split at once.

    Returns:
        the canonical table, and for each of its states one state of the argument.
    """
    block = _blocks(table, accepting, labels, distance)
    _, chosen, place = np.unique(block, return_index=True, return_inverse=True)
    dense = np.append(place, DEAD).astype(np.int32)
    numbered, order = breadth_first(dense[table[chosen]], int(dense[0]))
    return numbered, chosen[order].astype(np.int32)


def breadth_first(table: IntArray, start: int) -> tuple[IntArray, IntArray]:
    """Number states breadth-first from a start state; those that it does not reach are left out.

    Returns:
        the table in the new numbers, and for each of them the old one.
    """
    offsets, _, targets = _successors(table)
    order, position = [start], [DEAD] * len(table)
    position[start] = 0
    for state in order:
        for target in targets[offsets[state] : offsets[state + 1]]:
            if position[target] < 0:
                position[target] = len(order)
                order.append(target)
    renumber = np.array([*position, DEAD], dtype=np.int32)
    return renumber[table[order]], np.array(order, dtype=np.int32)


def _blocks(table: IntArray, accepting: BoolArray, labels: BoolArray, distance: IntArray) -> IntArray:
    """Return the name of each state's class of equivalent states."""
    num_states = len(table)
    seen: dict[bytes, int] = {}
    facts = _rows(np.concatenate([np.packbits(labels, axis=1), accepting[:, None].view(np.uint8)], axis=1))
    fact = np.array([seen.setdefault(row, len(seen)) for row in facts], dtype=np.int32)
    # What a state is itself is one column more of its row. DEAD (-1) indexes the last name, which stays DEAD.
    wide = np.concatenate([table, num_states + fact[:, None]], axis=1)
    own = DEAD - 1 - np.arange(len(seen), dtype=np.int32)
    names = np.concatenate([np.full(num_states, DEAD, np.int32), own, np.array([DEAD], dtype=np.int32)])
    _, sources, targets = _successors(table)
    before = _predecessors(sources, targets, num_states)
    sizes = _merge_acyclic(wide, names, before, np.bincount(sources, minlength=num_states).tolist())
    rest = np.flatnonzero(names[:num_states] == DEAD)
    first: dict[tuple[int, int, bytes], int] = {}
    live = _rows(np.packbits(table[rest] >= 0, axis=1))
    for key in zip(rest.tolist(), distance[rest].tolist(), fact[rest].tolist(), live, strict=True):
        name = first.setdefault(key[1:], len(sizes))
        if name == len(sizes):
            sizes.append(0)
        sizes[name] += 1
        names[key[0]] = name
    _refine(wide, names, sizes, before, rest.tolist())
    return names[:num_states]


def _merge_acyclic(wide: IntArray, names: IntArray, before: list[list[int]], waiting: list[int]) -> list[int]:
    """Name, in place, the states that reach no cycle; return how many states bear each name.

    Bottom-up a state is named after all its successors, so equal rows are equivalence and one pass is enough.
    """
    known: dict[bytes, int] = {}
    sizes: list[int] = []
    level = [state for state, steps in enumerate(waiting) if not steps]
    while level:
        for state, row in zip(level, _rows(names[wide[level]]), strict=True):
            name = known.setdefault(row, len(known))
            if name == len(sizes):
                sizes.append(0)
            sizes[name] += 1
            names[state] = name
        above = []
        for state in level:
            for source in before[state]:
                waiting[source] -= 1
                if not waiting[source]:
                    above.append(source)
        level = above
    return sizes


def _refine(wide: IntArray, names: IntArray, sizes: list[int], before: list[list[int]], suspects: list[int]) -> None:
    """Split blocks, in place, until all states of a block step into the same blocks.

    Only states with a renamed successor are looked at again, and the largest part of a split block keeps its
    name. A state is then renamed at most log2(num_states) times, so the whole is O(steps * log(states)).
    """
    while suspects:
        check_time("making an automaton small")
        parts: dict[int, dict[bytes, list[int]]] = {}
        rows = _rows(names[wide[suspects]])
        for state, name, row in zip(suspects, names[suspects].tolist(), rows, strict=True):
            parts.setdefault(name, {}).setdefault(row, []).append(state)
        renamed: list[int] = []
        for name, by_row in parts.items():
            renamed += _split(names, sizes, name, list(by_row.values()))
        suspects = sorted({source for state in renamed for source in before[state]})


def _split(names: IntArray, sizes: list[int], name: int, groups: list[list[int]]) -> list[int]:
    """Give all groups of a block but the largest a new name, in place; return the renamed states."""
    # Members that were not suspects all step as before, and every suspect steps otherwise: one more group.
    others = sizes[name] - sum(map(len, groups))
    if others == 0 and len(groups) == 1:
        return []
    largest = max(groups, key=len)
    if others < len(largest):
        if others:
            suspects = {state for group in groups for state in group}
            members: list[int] = np.flatnonzero(names == name).tolist()
            groups = [*groups, [state for state in members if state not in suspects]]
        groups = [group for group in groups if group is not largest]
    renamed: list[int] = []
    for group in groups:
        names[group] = len(sizes)
        sizes.append(len(group))
        sizes[name] -= len(group)
        renamed += group
    return renamed


def product(
    first: IntArray, second: IntArray, *, needs_first: bool, needs_second: bool, max_states: int = MAX_STATES
) -> tuple[IntArray, IntArray, IntArray]:
    """Run two tables over the same columns side by side, from (0, 0).

    Args:
        first: a table.
        second: a table with as many columns.
        needs_first: drop pairs in which the first is dead.
        needs_second: drop pairs in which the second is dead.
        max_states: LimitError above this many pairs.

    Returns:
        the table of the pairs, start 0, and per pair the two states, -1 where that one is dead.
    """
    # State 0 is dead while pairs are numbered, so that the pair (dead, dead) is code 0.
    width = len(second) + 1
    left = np.vstack([np.zeros((1, first.shape[1]), np.int64), first.astype(np.int64) + 1])
    right = np.vstack([np.zeros((1, second.shape[1]), np.int64), second.astype(np.int64) + 1])
    frontier = np.array([width + 1], dtype=np.int64)
    seen: set[int] = {0, width + 1}
    codes, rows = [frontier], []
    while len(frontier):
        check_time("the product of two automata")
        ahead_left, ahead_right = left[frontier // width], right[frontier % width]
        row = ahead_left * width + ahead_right
        if needs_first:
            row[ahead_left == 0] = 0
        if needs_second:
            row[ahead_right == 0] = 0
        rows.append(row)
        fresh = [code for code in set(row.ravel().tolist()) if code not in seen]
        seen.update(fresh)
        check_size(len(seen) - 1, max_states)
        frontier = np.array(sorted(fresh), dtype=np.int64)
        codes.append(frontier)
    numbered, table = np.concatenate(codes), np.concatenate(rows)
    by_code = np.argsort(numbered)
    found = by_code[np.searchsorted(numbered[by_code], np.where(table == 0, width + 1, table))]
    table = np.where(table == 0, DEAD, found).astype(np.int32)
    return table, (numbered // width - 1).astype(np.int32), (numbered % width - 1).astype(np.int32)


def determinise(
    table: IntArray, jump: Sequence[int], start: Sequence[int], max_states: int = MAX_STATES
) -> tuple[IntArray, list[tuple[int, ...]]]:
    """Run a table from several states at once, where being in a state may mean being in another as well.

    Args:
        table: (num_states, num_classes).
        jump: per state the state that comes with it for free, or -1.
        start: the states to begin in.
        max_states: LimitError above this many sets.

    Returns:
        the table of the sets, start 0, and each set, sorted.
    """
    closure = [_closure(state, jump) for state in range(len(table))]
    first = tuple(sorted({reached for state in start for reached in closure[state]}))
    numbers: dict[tuple[int, ...], int] = {first: 0}
    sets, rows = [first], []
    target_sets: dict[bytes, int] = {}
    for states in sets:
        check_time("an automaton of many states")
        columns = np.ascontiguousarray(table[list(states)].T)
        row = []
        for key, column in zip(_rows(columns), columns, strict=True):
            number = target_sets.get(key)
            if number is None:
                reached = {after for state in column.tolist() if state >= 0 for after in closure[state]}
                target = tuple(sorted(reached))
                number = target_sets[key] = numbers.setdefault(target, len(sets)) if target else DEAD
                if number == len(sets):
                    sets.append(target)
                    check_size(len(sets), max_states)
            row.append(number)
        rows.append(row)
    return np.array(rows, dtype=np.int32), sets


def _closure(state: int, jump: Sequence[int]) -> tuple[int, ...]:
    reached = [state]
    while jump[reached[-1]] >= 0 and jump[reached[-1]] not in reached:
        reached.append(jump[reached[-1]])
    return tuple(reached)


def check_size(size: int, max_states: int) -> None:
    """Raise LimitError if an automaton has more states than allowed."""
    if size > max_states:
        raise LimitError(
            "an automaton of the declaration grows too large; bound or simplify its patterns, or raise the limit",
            limit="states",
            size=size,
        )
