"""The kernels of accepted drafts for CUDA: where the nodes of a draft stand, and how far the draws go along it.

Codes are those of kernels/advance.py. One program is one row; its nodes are lanes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from structgen.kernels._triton.advance import next_of, settle, take


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def draft_places_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    token_class,
    token_class_stride,
    next_state,
    step_start,
    machine,
    num_tokens,
    state,
    num_left,
    position,
    draft_token,
    draft_parent,
    num_nodes,
    num_rounds,
    place_state,
    place_left,
    place_position,
    BLOCK: tl.constexpr,
):
    """Find the state, budget and position of each node of one draft; round r is right for nodes of depth r."""
    row = tl.program_id(0)
    node = tl.arange(0, BLOCK)
    is_node = node < num_nodes
    at = row.to(tl.int64) * num_nodes + node
    token = tl.load(draft_token + at, mask=is_node, other=-1)
    parent = tl.load(draft_parent + at, mask=is_node, other=-1)
    is_drafted = is_node & (parent >= 0)
    parent = tl.where(is_drafted, parent, 0)
    start = tl.load(state + row)
    here = tl.full((BLOCK,), 0, tl.int32) + start
    depth = tl.full((BLOCK,), 0, tl.int32)
    for _ in range(num_rounds):
        before = tl.gather(here, parent, axis=0)
        after, _k = next_of(
            token_class, token_class_stride, next_state, step_start, machine, before, token, num_tokens, is_drafted
        )
        here = tl.where(is_drafted, tl.where(after >= 0, after, before), start)
        depth = tl.where(is_drafted, tl.gather(depth, parent, axis=0) + 1, 0)
    tl.store(place_state + at, here, mask=is_node)
    tl.store(place_left + at, tl.load(num_left + row) - depth, mask=is_node)
    tl.store(place_position + at, tl.load(position + row) + depth, mask=is_node)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def accept_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    token_class,
    token_class_stride,
    next_state,
    step_start,
    machine,
    accepting,
    least_after,
    num_tokens,
    state,
    num_left,
    position,
    is_done,
    error,
    ring,
    ring_size,
    ring_end,
    draft_token,
    draft_parent,
    drawn,
    num_nodes,
    num_rounds,
    path,
    num_accepted,
    BLOCK: tl.constexpr,
):
    """Take what was drawn at the root of one draft, then at the child that it is, and so on."""
    row = tl.program_id(0)
    node = tl.arange(0, BLOCK)
    is_node = node < num_nodes
    at = row.to(tl.int64) * num_nodes + node
    drafted = tl.load(draft_token + at, mask=is_node, other=-1)
    parent = tl.load(draft_parent + at, mask=is_node, other=-1)
    draws = tl.load(drawn + at, mask=is_node, other=-1)
    here, left = tl.load(state + row), tl.load(num_left + row)
    place, end = tl.load(position + row), tl.load(ring_end + row)
    is_running = tl.load(is_done + row) == 0
    met = tl.full((BLOCK,), -1, tl.int32)
    cursor = row * 0
    num_met = row * 0
    for _ in range(num_rounds):
        token = tl.sum(tl.where(node == cursor, draws, 0), axis=0)
        after, k = next_of(
            token_class, token_class_stride, next_state, step_start, machine, here, token, num_tokens, is_running
        )
        here, left, place, end, is_running = take(
            state, num_left, position, is_done, error, ring, ring_size, ring_end, row,
            here, left, place, end, token, after, k, is_running,
        )  # fmt: skip
        child = tl.max(tl.where(is_node & (parent == cursor) & (drafted == token), node, -1), axis=0)
        is_met = is_running & (child >= 0)
        met = tl.where((node == num_met) & is_met, child, met)
        num_met += is_met.to(tl.int32)
        is_running = settle(accepting, least_after, is_done, error, row, here, left, is_running) & is_met
        cursor = tl.where(is_met, child, cursor)
    tl.store(path + at, met, mask=is_node)
    tl.store(num_accepted + row, num_met)


@triton.jit
def block_weights_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    target_laws,
    draft_laws,
    draft_token,
    num_drafted,
    num_places,
    num_columns,
    weight,
):
    """Write w_0 to w_k of one chain: w_i = min(1, w_(i-1) P_(i-1)(d_i) / Q_(i-1)(d_i))."""
    row = tl.program_id(0).to(tl.int64)
    size = tl.load(num_drafted + row)
    value = tl.load(target_laws + row * num_places * num_columns) * 0 + 1
    tl.store(weight + row * num_places, value)
    for number in range(num_places - 1):
        is_drafted = number < size
        token = tl.load(draft_token + row * num_places + number + 1, mask=is_drafted, other=0)
        one = tl.load(target_laws + (row * num_places + number) * num_columns + token, mask=is_drafted, other=1)
        two = tl.load(draft_laws + (row * (num_places - 1) + number) * num_columns + token, mask=is_drafted, other=1)
        value = tl.minimum(value * (one / two), 1.0)
        tl.store(weight + row * num_places + number + 1, value)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def block_masses_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    target_laws,
    draft_laws,
    num_drafted,
    num_places,
    num_columns,
    weight,
    mass,
    total,
    BLOCK: tl.constexpr,
):
    """Write, for one place, the sum of max(w P - Q, 0), where no draft follows 0, and that of P."""
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = row * num_places + number
    has_draft = number < tl.load(num_drafted + row)
    scale = tl.load(weight + place)
    num_drafted_columns = tl.where(has_draft, num_columns, 0)
    left = scale * 0
    whole = scale * 0
    for first in range(0, num_columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        is_inside = column < num_columns
        one = tl.load(target_laws + place * num_columns + column, mask=is_inside, other=0)
        two = tl.load(
            draft_laws + (row * (num_places - 1) + number) * num_columns + column,
            mask=column < num_drafted_columns,
            other=0,
        )
        left += tl.sum(tl.maximum(scale * one - two, 0.0), axis=0)
        whole += tl.sum(one, axis=0)
    tl.store(mass + place, tl.where(has_draft, left, 0.0))
    tl.store(total + place, whole)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def block_draw_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    target_laws,
    draft_laws,
    draft_token,
    num_drafted,
    num_places,
    num_columns,
    weight,
    mass,
    total,
    coin,
    drawn,
    BLOCK: tl.constexpr,
):
    """Decide how much of one chain is accepted, write its tokens, and the draw that follows them."""
    row = tl.program_id(0).to(tl.int64)
    size = tl.load(num_drafted + row)
    # The chain ends before a place at which nothing has a probability.
    for number in range(1, num_places):
        is_empty = (number < size) & (tl.load(total + row * num_places + number) == 0)
        size = tl.where(is_empty, number, size)
    accepted = size * 0
    for number in range(1, num_places):
        w = tl.load(weight + row * num_places + number)
        m = tl.load(mass + row * num_places + number)
        # Where nothing remains and nothing is lost the two laws agree.
        agrees = (m == 0) & (w == 1)
        inner = tl.where(agrees, 1.0, m / tl.where(agrees, 1.0, m + 1 - w))
        threshold = tl.where(number == size, w, inner)
        passes = (number <= size) & (tl.load(coin + row * num_places + number - 1) < threshold)
        accepted = tl.where(passes, number, accepted)
    for number in range(num_places - 1):
        token = tl.load(draft_token + row * num_places + number + 1)
        tl.store(drawn + row * num_places + number, token, mask=number < accepted)
    place = row * num_places + accepted
    residual = tl.load(mass + place)
    is_residual = (accepted < size) & (residual > 0)
    scale = tl.where(is_residual, tl.load(weight + place), 1.0)
    all_mass = tl.where(is_residual, residual, tl.load(total + place))
    num_residual_columns = tl.where(is_residual, num_columns, 0)
    goal = tl.load(coin + row * num_places + size) * all_mass
    so_far = goal * 0
    chosen = size * 0 - 1
    last = size * 0 - 1
    for first in range(0, num_columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        is_inside = column < num_columns
        one = tl.load(target_laws + place * num_columns + column, mask=is_inside, other=0)
        two = tl.load(
            draft_laws + (row * (num_places - 1) + accepted) * num_columns + column,
            mask=column < num_residual_columns,
            other=0,
        )
        law = tl.maximum(scale * one - two, 0.0)
        passed = is_inside & (so_far + tl.cumsum(law, axis=0) > goal) & (law > 0)
        here = tl.min(tl.where(passed, column, num_columns), axis=0)
        chosen = tl.where((chosen < 0) & (here < num_columns), here, chosen)
        last = tl.maximum(last, tl.max(tl.where(law > 0, column, -1), axis=0))
        so_far += tl.sum(law, axis=0)
    # Rounding may lead past the last token that has a probability.
    token = tl.where(chosen >= 0, chosen, last)
    tl.store(drawn + place, token, mask=last >= 0)
