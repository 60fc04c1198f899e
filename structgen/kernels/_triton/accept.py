"""The kernels of accepted drafts for CUDA: where the nodes of a draft stand, and how far the draws go along it.

One program is one row; its nodes are lanes. Tables and registers are the tuples of kernels/_step_values.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from structgen.kernels._step_values import RUNNING
from structgen.kernels._triton.advance import next_of, settle, take

_RUNNING = tl.constexpr(RUNNING)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def nodes_of(draft, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    """Return (the row; its nodes, which there are, where they are; their tokens; their parents)."""
    row, node = tl.program_id(0), tl.arange(0, BLOCK)
    is_node = node < draft.num_nodes
    at = row.to(tl.int64) * draft.num_nodes + node
    token = tl.load(draft.token_id + at, mask=is_node, other=-1)
    return row, node, is_node, at, token, tl.load(draft.parent + at, mask=is_node, other=-1)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def draft_places_kernel(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    tables, registers, draft, place_state, place_left, place_position, BLOCK: tl.constexpr
):
    """Find the state, budget and position of each node of one draft; round r is right for nodes of depth r."""
    row, _node, is_node, at, token, parent = nodes_of(draft, BLOCK)
    is_drafted = is_node & (parent >= 0)
    parent = tl.where(is_drafted, parent, 0)
    start = tl.load(registers.state + row)
    here = tl.full((BLOCK,), 0, tl.int32) + start
    depth = tl.full((BLOCK,), 0, tl.int32)
    for _ in range(draft.num_rounds):
        before = tl.gather(here, parent, axis=0)
        after, _k = next_of(tables, before, token, is_drafted)
        here = tl.where(is_drafted, tl.where(after >= 0, after, before), start)
        depth = tl.where(is_drafted, tl.gather(depth, parent, axis=0) + 1, 0)
    tl.store(place_state + at, here, mask=is_node)
    tl.store(place_left + at, tl.load(registers.num_left + row) - depth, mask=is_node)
    tl.store(place_position + at, tl.load(registers.position + row) + depth, mask=is_node)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def accept_kernel(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    tables, registers, draft, drawn, path, num_accepted, BLOCK: tl.constexpr
):
    """Take what was drawn at the root of one draft, then at the child that it is, and so on."""
    row, node, is_node, at, drafted, parent = nodes_of(draft, BLOCK)
    draws = tl.load(drawn + at, mask=is_node, other=-1)
    here, left = tl.load(registers.state + row), tl.load(registers.num_left + row)
    place, end = tl.load(registers.position + row), tl.load(registers.ring_end + row)
    is_running = tl.load(registers.is_done + row) == _RUNNING
    met = tl.full((BLOCK,), -1, tl.int32)
    cursor = row * 0
    num_met = row * 0
    for _ in range(draft.num_rounds):
        token = tl.sum(tl.where(node == cursor, draws, 0), axis=0)
        after, k = next_of(tables, here, token, is_running)
        here, left, place, end, is_running = take(registers, row, here, left, place, end, token, after, k, is_running)
        child = tl.max(tl.where(is_node & (parent == cursor) & (drafted == token), node, -1), axis=0)
        is_met = is_running & (child >= 0)
        met = tl.where((node == num_met) & is_met, child, met)
        num_met += is_met.to(tl.int32)
        is_running = settle(tables, registers, row, here, left, is_running) & is_met
        cursor = tl.where(is_met, child, cursor)
    tl.store(path + at, met, mask=is_node)
    tl.store(num_accepted + row, num_met)


@triton.jit
def laws_at(chains, row, number, column, num_drafted_columns):  # type: ignore[no-untyped-def]  # tuples of pointers
    """Return columns of both laws of a place, the draft's as 0 from one on."""
    target = chains.target_laws + (row * chains.num_places + number) * chains.num_columns + column
    draft = chains.draft_laws + (row * (chains.num_places - 1) + number) * chains.num_columns + column
    one = tl.load(target, mask=column < chains.num_columns, other=0)
    return one, tl.load(draft, mask=column < num_drafted_columns, other=0)


@triton.jit
def block_weights_kernel(chains):  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    """Write w_0 to w_k of one chain: w_i = min(1, w_(i-1) P_(i-1)(d_i) / Q_(i-1)(d_i))."""
    row, num_places, num_columns = tl.program_id(0).to(tl.int64), chains.num_places, chains.num_columns
    size = tl.load(chains.num_drafted + row)
    value = tl.load(chains.target_laws + row * num_places * num_columns) * 0 + 1
    tl.store(chains.weight + row * num_places, value)
    for number in range(num_places - 1):
        is_drafted = number < size
        token = tl.load(chains.draft_token + row * num_places + number + 1, mask=is_drafted, other=0)
        target = chains.target_laws + (row * num_places + number) * num_columns + token
        draft = chains.draft_laws + (row * (num_places - 1) + number) * num_columns + token
        ratio = tl.load(target, mask=is_drafted, other=1) / tl.load(draft, mask=is_drafted, other=1)
        value = tl.minimum(value * ratio, 1.0)
        tl.store(chains.weight + row * num_places + number + 1, value)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def block_masses_kernel(chains, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # tuples of pointers
    """Write, for one place, the sum of max(w P - Q, 0), where no draft follows 0, and that of P."""
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = row * chains.num_places + number
    has_draft = number < tl.load(chains.num_drafted + row)
    scale = tl.load(chains.weight + place)
    num_drafted_columns = tl.where(has_draft, chains.num_columns, 0)
    left = scale * 0
    whole = scale * 0
    for first in range(0, chains.num_columns, BLOCK):
        one, two = laws_at(chains, row, number, first + tl.arange(0, BLOCK), num_drafted_columns)
        left += tl.sum(tl.maximum(scale * one - two, 0.0), axis=0)
        whole += tl.sum(one, axis=0)
    tl.store(chains.mass + place, tl.where(has_draft, left, 0.0))
    tl.store(chains.total + place, whole)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def block_draw_kernel(chains, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # tuples of pointers
    """Decide how much of one chain is accepted, write its tokens, and the draw that follows them."""
    row, num_places, num_columns = tl.program_id(0).to(tl.int64), chains.num_places, chains.num_columns
    size = tl.load(chains.num_drafted + row)
    # The chain ends before a place at which nothing has a probability.
    for number in range(1, num_places):
        is_empty = (number < size) & (tl.load(chains.total + row * num_places + number) == 0)
        size = tl.where(is_empty, number, size)
    accepted = size * 0
    for number in range(1, num_places):
        w = tl.load(chains.weight + row * num_places + number)
        m = tl.load(chains.mass + row * num_places + number)
        # Where nothing remains and nothing is lost the two laws agree.
        agrees = (m == 0) & (w == 1)
        inner = tl.where(agrees, 1.0, m / tl.where(agrees, 1.0, m + 1 - w))
        threshold = tl.where(number == size, w, inner)
        passes = (number <= size) & (tl.load(chains.coins + row * num_places + number - 1) < threshold)
        accepted = tl.where(passes, number, accepted)
    for number in range(num_places - 1):
        token = tl.load(chains.draft_token + row * num_places + number + 1)
        tl.store(chains.drawn + row * num_places + number, token, mask=number < accepted)
    place = row * num_places + accepted
    residual = tl.load(chains.mass + place)
    is_residual = (accepted < size) & (residual > 0)
    scale = tl.where(is_residual, tl.load(chains.weight + place), 1.0)
    all_mass = tl.where(is_residual, residual, tl.load(chains.total + place))
    num_residual_columns = tl.where(is_residual, num_columns, 0)
    goal = tl.load(chains.coins + row * num_places + size) * all_mass
    so_far = goal * 0
    chosen = size * 0 - 1
    last = size * 0 - 1
    for first in range(0, num_columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        one, two = laws_at(chains, row, accepted, column, num_residual_columns)
        law = tl.maximum(scale * one - two, 0.0)
        passed = (column < num_columns) & (so_far + tl.cumsum(law, axis=0) > goal) & (law > 0)
        here = tl.min(tl.where(passed, column, num_columns), axis=0)
        chosen = tl.where((chosen < 0) & (here < num_columns), here, chosen)
        last = tl.maximum(last, tl.max(tl.where(law > 0, column, -1), axis=0))
        so_far += tl.sum(law, axis=0)
    # Rounding may lead past the last token that has a probability.
    token = tl.where(chosen >= 0, chosen, last)
    tl.store(chains.drawn + place, token, mask=last >= 0)
