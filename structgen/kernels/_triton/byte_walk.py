"""The kernel that reads tokens byte by byte for CUDA: a lane is a token, and a block is done once all its lanes are."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def byte_walk_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    text_start,
    text,
    num_tokens,
    byte_class,
    table,
    num_classes,
    state,
    out,
    num_words,
    BLOCK: tl.constexpr,
):
    """Write BLOCK words of the mask row of one state."""
    row = tl.program_id(0).to(tl.int64)
    word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    bit = tl.arange(0, 32)
    token = word[:, None] * 32 + bit[None, :]
    is_token = token < num_tokens
    start = tl.load(text_start + token, mask=is_token, other=0)
    end = tl.load(text_start + token + 1, mask=is_token, other=0)
    here = tl.where(start < end, tl.load(state + row), -1)
    is_going = here >= 0
    num_going = tl.max(tl.max(is_going.to(tl.int32), axis=1), axis=0)
    while num_going > 0:
        byte = tl.load(text + start, mask=is_going, other=0).to(tl.int32)
        k = tl.load(byte_class + byte, mask=is_going, other=0)
        after = tl.load(table + here.to(tl.int64) * num_classes + k, mask=is_going, other=-1)
        here = tl.where(is_going, after, here)
        start += 1
        is_going = is_going & (after >= 0) & (start < end)
        num_going = tl.max(tl.max(is_going.to(tl.int32), axis=1), axis=0)
    words = tl.sum((here >= 0).to(tl.int32) << bit[None, :], axis=1)
    tl.store(out + row * num_words + word, words, mask=word < num_words)
