"""The sampler for CUDA, tile by tile: one read of the logits, then only of the tiles that hold what is kept.

    tile_kernel       rows x tiles: masses, best logit and, without truncation, the draw of each tile
    row_kernel        rows: puts the tiles together; rows with a list of ids are read here and nowhere else; for a
                      truncated row, a bound that no kept logit is below
    candidate_kernel  rows x tiles: gathers the logits that reach the bound; tiles without any are not read
    select_kernel     rows: the border of the truncation among the candidates, and the draw

The last two are only launched where some row may be truncated. Nothing depends on the order in which blocks run:
masses are summed as whole numbers, and the lowest id wins among equals. The law is in structgen/kernels/sample.py,
and so are the tuples of pointers that the kernels take. The kernels of rows are in sample_rows.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from structgen.kernels._triton.draw import NO_ID, exponential_of_words, words_of_blocks
from structgen.kernels._triton.sample_parts import (
    TRUNCATED,
    best_of,
    changed,
    has_list,
    inverse_temperature_of,
    is_row_truncated,
    largest_of,
    least_id,
    load_logits,
    sum_exp,
)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def tile_ids(tile, TILE: tl.constexpr):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return the ids of a tile, (words, bits)."""
    return tile * TILE + tl.arange(0, TILE // 32)[:, None] * 32 + tl.arange(0, 32)[None, :]


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def legal_in_tile(masks, mask_row, tile, ids, end, TILE: tl.constexpr):  # type: ignore[no-untyped-def]  # tuples
    """Return which ids of a tile are legal and below an end."""
    index = tile * (TILE // 32) + tl.arange(0, TILE // 32)
    place = masks.words + mask_row.to(tl.int64) * masks.row_stride + index
    words = tl.load(place, mask=index < tl.cdiv(masks.num_tokens, 32), other=0)
    is_legal = ((words[:, None] >> tl.arange(0, 32)[None, :]) & 1) != 0
    return is_legal & (ids < end)


@triton.jit
def _store_legal(  # type: ignore[no-untyped-def]  # pointers have no Python type
    work, number, max_legal, sum_legal, best, total, score, best_id, drawn_id
):
    """Hand on what is known of the legal tokens of a tile; row_kernel reads it by the same places."""
    tl.store(work.numbers + number * 8 + 2, max_legal)
    tl.store(work.numbers + number * 8 + 3, sum_legal)
    tl.store(work.numbers + number * 8 + 4, best)
    tl.store(work.numbers + number * 8 + 5, total)
    tl.store(work.numbers + number * 8 + 6, score)
    tl.store(work.ids + number * 2, best_id)
    tl.store(work.ids + number * 2 + 1, drawn_id)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def _draw_in_tile(weights, ids, row, first, noise, TILE: tl.constexpr):  # type: ignore[no-untyped-def]  # tuples
    """Return the best score relative to that of the weight 1 without noise, and its id."""
    seed, position, stream = tl.load(noise.seed + row), tl.load(noise.position + row), tl.load(noise.stream + row)
    words = words_of_blocks(first, seed, position, stream, TILE // 4)
    # The largest score is the least E / weight.
    ratio = exponential_of_words(tl.reshape(words, (TILE // 32, 32))) / weights
    least = tl.min(ratio, axis=None)
    return -tl.log(least), least_id(ratio == least, ids)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def _sum_up_legal(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    raw,
    ids,
    is_legal,
    row,
    tile,
    masks,
    chosen,
    changes,
    noise,
    work,
    HAS_MASSES: tl.constexpr,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Sum up the legal tokens of a tile that has some."""
    number = row * tl.num_programs(1) + tile
    z = changed(raw, ids, is_legal, row, masks, changes)
    best = best_of(z)
    inverse_temperature = inverse_temperature_of(chosen, row)
    is_drawn = (tl.load(chosen.temperature + row) != 0.0) & (best > float("-inf"))
    weights = tl.zeros_like(z)
    total = tl.full((), 0.0, tl.float32)
    score = tl.full((), float("-inf"), tl.float32)
    drawn_id = tl.full((), NO_ID, tl.int32)
    groups = tl.full((TILE // GROUP,), float("-inf"), tl.float32)
    if is_drawn:
        weights = tl.exp((z - best) * inverse_temperature)
        total = tl.sum(weights, axis=None)
        if is_row_truncated(chosen, row):
            groups = tl.max(tl.reshape(tl.max(z, axis=1), (TILE // GROUP, GROUP // 32)), axis=1)
        else:
            score, drawn_id = _draw_in_tile(weights, ids, row, tile * TILE, noise, TILE)
    max_legal, sum_legal = best, total
    if HAS_MASSES:
        # Where nothing changes the logits, the weights at temperature 1 are those of the model's own softmax.
        is_same = is_drawn & (inverse_temperature == 1.0) & (best < float("inf"))
        if (not is_same) | (changes.bias is not None) | (changes.counts is not None):
            max_legal = largest_of(raw)
            sum_legal = sum_exp(raw, max_legal)
    _store_legal(work, number, max_legal, sum_legal, best, total, score, least_id(z == best, ids), drawn_id)
    if work.groups is not None:
        tl.store(work.groups + number * (TILE // GROUP) + tl.arange(0, TILE // GROUP), groups)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def tile_kernel(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    logits, masks, chosen, changes, noise, work, HAS_MASSES: tl.constexpr, TILE: tl.constexpr, GROUP: tl.constexpr
):
    """Sum up one tile of one row, and draw from it where nothing is truncated."""
    row, tile = tl.program_id(0), tl.program_id(1)
    mask_row = tl.load(masks.row + row)
    is_listed = has_list(masks, mask_row)
    if (mask_row < 0) | (is_listed & (not HAS_MASSES)):
        return
    number = row * tl.num_programs(1) + tile
    ids = tile_ids(tile, TILE)
    end = tl.where(is_listed, 0, masks.num_tokens)
    is_legal = legal_in_tile(masks, mask_row, tile, ids, end, TILE)
    is_read = is_legal
    if HAS_MASSES:
        is_read = ids < masks.num_tokens
    has_legal = tl.max(is_legal.to(tl.int32), axis=None) > 0
    if HAS_MASSES | has_legal:
        raw = load_logits(logits, row, ids, is_read)
        if HAS_MASSES:
            max_all = largest_of(raw)
            tl.store(work.numbers + number * 8, max_all)
            tl.store(work.numbers + number * 8 + 1, sum_exp(raw, max_all))
            raw = tl.where(is_legal, raw, float("-inf"))
        if has_legal:
            _sum_up_legal(raw, ids, is_legal, row, tile, masks, chosen, changes, noise, work, HAS_MASSES, TILE, GROUP)
    if not has_legal:
        _store_legal(work, number, float("-inf"), 0.0, float("-inf"), 0.0, float("-inf"), NO_ID, NO_ID)
        if work.groups is not None:
            place = number * (TILE // GROUP) + tl.arange(0, TILE // GROUP)
            tl.store(work.groups + place, tl.full((TILE // GROUP,), float("-inf"), tl.float32))


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def candidate_kernel(logits, masks, changes, work, TILE: tl.constexpr):  # type: ignore[no-untyped-def]  # tuples
    """Gather what reaches the bound in one tile of one row, in any order."""
    row, tile = tl.program_id(0), tl.program_id(1)
    mask_row = tl.load(masks.row + row)
    if (tl.load(work.kind + row) != TRUNCATED) | has_list(masks, mask_row):
        return
    bound = tl.load(work.bound + row * 3)
    if tl.load(work.numbers + (row * tl.num_programs(1) + tile) * 8 + 4) < bound:
        return
    ids = tile_ids(tile, TILE)
    is_legal = legal_in_tile(masks, mask_row, tile, ids, masks.num_tokens, TILE)
    z = changed(load_logits(logits, row, ids, is_legal), ids, is_legal, row, masks, changes)
    z = tl.reshape(z, (TILE,))
    is_in = (z >= bound) & (z > float("-inf"))
    num = tl.sum(is_in.to(tl.int32))
    first = tl.atomic_add(work.num_candidates + row, num).to(tl.int64) + row.to(tl.int64) * masks.num_tokens
    place = first + tl.cumsum(is_in.to(tl.int32), 0) - 1
    tl.store(work.candidates + place, z, mask=is_in)
    tl.store(work.candidate_ids + place, tl.reshape(ids, (TILE,)), mask=is_in)
