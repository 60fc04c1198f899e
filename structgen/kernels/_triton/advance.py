"""The step kernels for CUDA: a token in each row, and the mask row of each place within its budget.

Codes are those of kernels/advance.py (RUNNING 0, ENDED 1, LEFT 2, FAILED 3; NO_LEGAL_TOKEN 1, ILLEGAL_TOKEN 2), class 1
the stops. All counts are loads and masked stores, so nothing here waits for the host.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def next_of(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    token_class, token_class_stride, next_state, step_start, machine, here, token, num_tokens, is_asked
):
    """Return (the state after a token, -1 where it is not legal or not asked; its class)."""
    is_token = is_asked & (token >= 0) & (token < num_tokens)
    whose = tl.load(machine + here, mask=is_token, other=0).to(tl.int64)
    k = tl.load(token_class + whose * token_class_stride + token, mask=is_token, other=0).to(tl.int32) & 0xFFFF
    steps = tl.load(step_start + here, mask=is_token, other=0)
    return tl.load(next_state + steps + k, mask=is_token, other=-1), k


@triton.jit
def take(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    state, num_left, position, is_done, error, ring, ring_size, ring_end, row,
    here, left, place, end, token, after, k, is_running,
):  # fmt: skip
    """Move the registers of running rows by tokens; return (here, left, place, end, is_running) as they are then."""
    is_legal = is_running & (after >= 0)
    is_text = is_legal & (k != 1)
    tl.store(ring + row.to(tl.int64) * ring_size + end % ring_size, token, mask=is_text)
    here = tl.where(is_legal, after, here)
    step = is_text.to(tl.int32)
    left, place, end = left - step, place + step, end + step
    tl.store(ring_end + row, end, mask=is_text)
    tl.store(position + row, place, mask=is_text)
    tl.store(num_left + row, left, mask=is_text)
    tl.store(state + row, here, mask=is_legal)
    tl.store(is_done + row, tl.where(is_legal, 1, 3), mask=is_running & (is_text == 0))
    tl.store(error + row, tl.where(token < 0, 1, 2), mask=is_running & (is_legal == 0))
    return here, left, place, end, is_text


@triton.jit
def settle(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    accepting, least_after, is_done, error, row, here, left, is_running
):
    """Mark the running rows that draw nothing in their state; return which go on."""
    least = tl.load(least_after + here, mask=is_running, other=0)
    may_end = tl.load(accepting + here, mask=is_running, other=0) != 0
    is_unknown = is_running & (least < 0)
    is_over = is_running & (is_unknown == 0) & (least > left - 1)
    tl.store(is_done + row, tl.where(is_unknown, 2, tl.where(may_end, 1, 3)), mask=is_unknown | is_over)
    tl.store(error + row, tl.where(is_over, 1, 0), mask=is_over & (may_end == 0))
    return is_running & (is_over == 0) & (is_unknown == 0)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def advance_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    token_class,
    token_class_stride,
    next_state,
    step_start,
    machine,
    accepting,
    least_after,
    state,
    num_left,
    position,
    is_done,
    error,
    ring,
    ring_size,
    ring_end,
    token_id,
    token_id_stride,
    num_rows,
    num_tokens,
    TAKES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Advance BLOCK rows by their tokens, or only settle them."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_running = (row < num_rows) & (tl.load(is_done + row, mask=row < num_rows, other=1) == 0)
    here = tl.load(state + row, mask=is_running, other=0)
    left = tl.load(num_left + row, mask=is_running, other=0)
    if TAKES:
        token = tl.load(token_id + row * token_id_stride, mask=is_running, other=-1)
        after, k = next_of(
            token_class, token_class_stride, next_state, step_start, machine, here, token, num_tokens, is_running
        )
        end = tl.load(ring_end + row, mask=is_running, other=0)
        place = tl.load(position + row, mask=is_running, other=0)
        here, left, place, end, is_running = take(
            state,
            num_left,
            position,
            is_done,
            error,
            ring,
            ring_size,
            ring_end,
            row,
            here,
            left,
            place,
            end,
            token,
            after,
            k,
            is_running,
        )
    settle(accepting, least_after, is_done, error, row, here, left, is_running)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def mask_row_within_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    token_class,
    token_class_stride,
    next_state,
    step_start,
    machine,
    mask_row,
    mask_rows,
    num_words,
    cost,
    cost_after,
    state,
    num_left,
    out,
    BLOCK: tl.constexpr,
):
    """Choose the mask row of one place; where the budget binds, write BLOCK words of its private row."""
    place = tl.program_id(0)
    here = tl.load(state + place)
    left = tl.load(num_left + place)
    binds = left <= tl.load(cost_after + here)
    if tl.program_id(1) == 0:
        tl.store(out + place, tl.where(binds, place, tl.load(mask_row + here)))
    if binds:
        word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        bit = tl.arange(0, 32)
        is_inside = word < num_words
        whose = tl.load(machine + here).to(tl.int64)
        steps = tl.load(step_start + here)
        tokens = token_class + whose * token_class_stride + word[:, None] * 32 + bit[None, :]
        k = tl.load(tokens, mask=is_inside[:, None], other=0).to(tl.int32) & 0xFFFF
        after = tl.load(next_state + steps + k)
        needed = tl.load(cost + after, mask=after >= 0, other=0)
        is_legal = (after >= 0) & ((needed <= left - 1) | (k == 1))
        words = tl.sum(is_legal.to(tl.int32) << bit[None, :], axis=1)
        tl.store(mask_rows + place.to(tl.int64) * num_words + word, words, mask=is_inside)
