"""The step kernels for CUDA: a token in each row, and the mask row of each place within its budget.

The tuples that they take, and the codes, are in kernels/_step_values.py. All counts are loads and masked stores, so
nothing here waits for the host.
"""

from __future__ import annotations

import triton
import triton.language as tl

from structgen.frozen_machine import STOP_CLASS
from structgen.kernels import _step_values as codes

_STOP_CLASS = tl.constexpr(STOP_CLASS)
_RUNNING = tl.constexpr(codes.RUNNING)
_ENDED = tl.constexpr(codes.ENDED)
_LEFT = tl.constexpr(codes.LEFT)
_FAILED = tl.constexpr(codes.FAILED)
_NO_LEGAL_TOKEN = tl.constexpr(codes.NO_LEGAL_TOKEN)
_ILLEGAL_TOKEN = tl.constexpr(codes.ILLEGAL_TOKEN)


@triton.jit
def next_of(tables, here, token, is_asked):  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    """Return (the state after a token, -1 where it is not legal or not asked; its class)."""
    is_token = is_asked & (token >= 0) & (token < tables.num_tokens)
    whose = tl.load(tables.machine + here, mask=is_token, other=0).to(tl.int64)
    place = tables.token_class + whose * tables.token_class_stride + token
    k = tl.load(place, mask=is_token, other=0).to(tl.int32) & 0xFFFF
    steps = tl.load(tables.step_start + here, mask=is_token, other=0)
    return tl.load(tables.next_state + steps + k, mask=is_token, other=-1), k


@triton.jit
def take(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    registers, row, here, left, place, end, token, after, k, is_running
):
    """Move the registers of running rows by tokens; return (here, left, place, end, is_running) as they are then."""
    is_legal = is_running & (after >= 0)
    is_text = is_legal & (k != _STOP_CLASS)
    tl.store(registers.ring + row.to(tl.int64) * registers.ring_size + end % registers.ring_size, token, mask=is_text)
    here = tl.where(is_legal, after, here)
    step = is_text.to(tl.int32)
    left, place, end = left - step, place + step, end + step
    tl.store(registers.ring_end + row, end, mask=is_text)
    tl.store(registers.position + row, place, mask=is_text)
    tl.store(registers.num_left + row, left, mask=is_text)
    tl.store(registers.state + row, here, mask=is_legal)
    tl.store(registers.is_done + row, tl.where(is_legal, _ENDED, _FAILED), mask=is_running & (is_text == 0))
    error = tl.where(token < 0, _NO_LEGAL_TOKEN, _ILLEGAL_TOKEN)
    tl.store(registers.error + row, error, mask=is_running & (is_legal == 0))
    return here, left, place, end, is_text


@triton.jit
def settle(tables, registers, row, here, left, is_running):  # type: ignore[no-untyped-def]  # tuples of pointers
    """Mark the running rows that draw nothing in their state; return which go on."""
    least = tl.load(tables.least_after + here, mask=is_running, other=0)
    may_end = tl.load(tables.accepting + here, mask=is_running, other=0) != 0
    is_unknown = is_running & (least < 0)
    is_over = is_running & (is_unknown == 0) & (least > left - 1)
    outcome = tl.where(is_unknown, _LEFT, tl.where(may_end, _ENDED, _FAILED))
    tl.store(registers.is_done + row, outcome, mask=is_unknown | is_over)
    tl.store(registers.error + row, _NO_LEGAL_TOKEN, mask=is_over & (may_end == 0))
    return is_running & (is_over == 0) & (is_unknown == 0)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def advance_kernel(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    tables, registers, token_id, token_id_stride, num_rows, TAKES: tl.constexpr, BLOCK: tl.constexpr
):
    """Advance BLOCK rows by their tokens, or only settle them."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_row = row < num_rows
    is_running = is_row & (tl.load(registers.is_done + row, mask=is_row, other=_ENDED) == _RUNNING)
    here = tl.load(registers.state + row, mask=is_running, other=0)
    left = tl.load(registers.num_left + row, mask=is_running, other=0)
    if TAKES:
        token = tl.load(token_id + row * token_id_stride, mask=is_running, other=-1)
        after, k = next_of(tables, here, token, is_running)
        end = tl.load(registers.ring_end + row, mask=is_running, other=0)
        place = tl.load(registers.position + row, mask=is_running, other=0)
        here, left, place, end, is_running = take(registers, row, here, left, place, end, token, after, k, is_running)
    settle(tables, registers, row, here, left, is_running)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def mask_row_within_kernel(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    tables, state, num_left, out, BLOCK: tl.constexpr
):
    """Choose the mask row of one place; where the budget binds, write BLOCK words of its private row."""
    place = tl.program_id(0)
    here = tl.load(state + place)
    left = tl.load(num_left + place)
    binds = left <= tl.load(tables.cost_after + here)
    if tl.program_id(1) == 0:
        tl.store(out + place, tl.where(binds, place, tl.load(tables.mask_row + here)))
    if binds:
        word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        bit = tl.arange(0, 32)
        is_inside = word < tables.num_words
        whose = tl.load(tables.machine + here).to(tl.int64)
        steps = tl.load(tables.step_start + here)
        tokens = tables.token_class + whose * tables.token_class_stride + word[:, None] * 32 + bit[None, :]
        k = tl.load(tokens, mask=is_inside[:, None], other=0).to(tl.int32) & 0xFFFF
        after = tl.load(tables.next_state + steps + k)
        needed = tl.load(tables.cost + after, mask=after >= 0, other=0)
        is_legal = (after >= 0) & ((needed <= left - 1) | (k == _STOP_CLASS))
        words = tl.sum(is_legal.to(tl.int32) << bit[None, :], axis=1)
        tl.store(tables.mask_rows + place.to(tl.int64) * tables.num_words + word, words, mask=is_inside)
