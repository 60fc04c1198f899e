"""The sampler for CUDA, row by row: what becomes of the tiles, lists of ids, and the border of a truncation."""

from __future__ import annotations

import triton
import triton.language as tl

from structgen.kernels._sample_codes import MASS_SLACK, NO_LEGAL_TOKEN, NO_TOKEN, NOT_FINITE
from structgen.kernels._triton.draw import (
    NO_ID,
    amount_from,
    border_key,
    exponential_of_words,
    last_kept_id,
    logit_of,
    quanta_of,
    words_of_ids,
)
from structgen.kernels._triton.sample_parts import (
    DONE,
    LEAST_TEMPERATURE,
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

_NO_TOKEN = tl.constexpr(NO_TOKEN)
_NO_LEGAL_TOKEN = tl.constexpr(NO_LEGAL_TOKEN)
_NOT_FINITE = tl.constexpr(NOT_FINITE)
_MASS_SLACK = tl.constexpr(MASS_SLACK)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def _number(work, row, place: tl.constexpr, num_tiles, TILES: tl.constexpr):  # type: ignore[no-untyped-def]  # pointers
    """Return one number of every tile of a row, -inf (a largest) or 0 (a sum) past the last."""
    tiles = tl.arange(0, TILES)
    other: tl.constexpr = 0.0 if place % 2 == 1 else float("-inf")
    return tl.load(work.numbers + (row * num_tiles + tiles) * 8 + place, mask=tiles < num_tiles, other=other)


@triton.jit
def _combined(largest, sums, inverse_temperature):  # type: ignore[no-untyped-def]  # tensors have no Python type
    """Return the largest of all tiles, and the sum of all relative to it."""
    of_all = tl.max(largest)
    shift = tl.where(largest == of_all, 1.0, tl.exp((largest - of_all) * inverse_temperature))
    return of_all, tl.sum(tl.where(sums == 0.0, 0.0, sums * shift))


@triton.jit
def _store_masses(out, row, max_all, sum_all, max_legal, sum_legal):  # type: ignore[no-untyped-def]  # pointers
    difference = (max_legal - max_all) + (tl.log(sum_legal) - tl.log(sum_all))
    difference = tl.where(difference > 0.0, 0.0, difference)
    # Whoever has an infinity has all of the mass.
    is_infinite = (max_all == float("inf")) & (sum_all == sum_all)
    tl.store(out.log_legal_mass + row, tl.where(is_infinite, float("-inf"), difference))
    tl.store(out.log_sum_exp + row, max_all + tl.log(sum_all))


@triton.jit
def _error_of(best):  # type: ignore[no-untyped-def]  # tensors have no Python type
    return tl.where(best == float("-inf"), _NO_LEGAL_TOKEN, tl.where(best == float("inf"), _NOT_FINITE, 0))


@triton.jit
def _target(chosen, row, total):  # type: ignore[no-untyped-def]  # pointers have no Python type
    """Return the sum of weights that top_p asks for, in quanta."""
    target = tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)
    if chosen.top_p is not None:
        top_p = tl.load(chosen.top_p + row).to(tl.float64)
        # At least the best token is kept.
        wanted = tl.maximum(((top_p - _MASS_SLACK) * total.to(tl.float64)).to(tl.float32), 1e-9)
        target = tl.where(top_p < 1.0, quanta_of(wanted), target)
    return target


@triton.jit
def _most(chosen, row):  # type: ignore[no-untyped-def]  # pointers
    """Return the number of tokens that top_k keeps."""
    most = tl.full((), NO_ID, tl.int32)
    if chosen.top_k is not None:
        top_k = tl.load(chosen.top_k + row)
        most = tl.where(top_k > 0, top_k, most)
    return most


@triton.jit
def _least_by_share(chosen, row, best):  # type: ignore[no-untyped-def]  # pointers have no Python type
    """Return the least logit that min_p keeps."""
    least = tl.full((), float("-inf"), tl.float32)
    if chosen.min_p is not None:
        min_p = tl.load(chosen.min_p + row).to(tl.float64)
        temperature = tl.maximum(tl.load(chosen.temperature + row).to(tl.float64), LEAST_TEMPERATURE)
        logarithm = tl.log(tl.where(min_p > 0.0, min_p, 1.0))
        least = tl.where(min_p > 0.0, (best.to(tl.float64) + temperature * logarithm).to(tl.float32), least)
    return least


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def _prepare(  # type: ignore[no-untyped-def]  # pointers have no Python type
    chosen, row, work, num_groups, groups_stride, best, total, num_tokens, CHUNK: tl.constexpr
):
    """Find a value that no kept logit is below, and hand it on; the candidates of a list, without groups, are there.

    If the best logits of k groups reach it, so do k logits; the same goes for their weights. Where these are too few,
    logits too small to make up what top_p leaves out even if all were as large are out.
    """
    least = tl.full((), float("-inf"), tl.float32)
    target = _target(chosen, row, total)
    if chosen.top_p is not None:
        top_p = tl.load(chosen.top_p + row)
        temperature = tl.maximum(tl.load(chosen.temperature + row), LEAST_TEMPERATURE)
        share = 0.5 * (1.0 - (top_p - _MASS_SLACK)) * total / num_tokens
        least = tl.where(top_p < 1.0, best + temperature * tl.log(tl.where(top_p < 1.0, share, 1.0)), least)
        # More than what rounding may have added to a weight.
        target = tl.where(top_p < 1.0, target + (target >> 16), target)
    inverse_temperature = inverse_temperature_of(chosen, row)
    most = _most(chosen, row)
    groups = work.groups + row * groups_stride
    by_groups = logit_of(border_key(groups, num_groups, least, best, inverse_temperature, most, target, CHUNK))
    if num_groups > 0:
        tl.store(work.num_candidates + row, 0)
    tl.store(work.kind + row, TRUNCATED)
    tl.store(work.bound + row * 3, tl.maximum(by_groups, _least_by_share(chosen, row, best)))
    tl.store(work.bound + row * 3 + 1, best)
    tl.store(work.bound + row * 3 + 2, total)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def _read_list(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    logits, masks, mask_row, chosen, changes, noise, work, row, LISTED: tl.constexpr
):
    """Read the logits of a list; return their masses, the best, the sum of weights, and the token if not truncated."""
    start = tl.load(masks.list_start + mask_row)
    place = tl.arange(0, LISTED)
    is_legal = place < tl.load(masks.list_start + mask_row + 1) - start
    ids = tl.load(masks.list_ids + start + place, mask=is_legal, other=NO_ID)
    is_legal = is_legal & (ids < masks.num_tokens)
    raw = load_logits(logits, row, ids, is_legal)
    max_legal = largest_of(raw)
    sum_legal = sum_exp(raw, max_legal)
    z = changed(raw, ids, is_legal, row, masks, changes)
    best = best_of(z)
    token_id = least_id(z == best, ids)
    total = tl.full((), 0.0, tl.float32)
    if (tl.load(chosen.temperature + row) != 0.0) & (_error_of(best) == 0):
        weights = tl.exp((z - best) * inverse_temperature_of(chosen, row))
        total = tl.sum(weights)
        if is_row_truncated(chosen, row):
            if work.kind is not None:
                first = row.to(tl.int64) * masks.num_tokens
                tl.store(work.candidates + first + place, z, mask=is_legal)
                tl.store(work.candidate_ids + first + place, ids, mask=is_legal)
                tl.store(work.num_candidates + row, tl.sum(is_legal.to(tl.int32)))
        else:
            words = words_of_ids(
                ids, tl.load(noise.seed + row), tl.load(noise.position + row), tl.load(noise.stream + row)
            )
            ratio = tl.where(is_legal, exponential_of_words(words) / weights, float("inf"))
            token_id = least_id(ratio == tl.min(ratio), ids)
    return max_legal, sum_legal, best, total, token_id


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def _read_tiles(chosen, work, row, num_tiles, TILES: tl.constexpr):  # type: ignore[no-untyped-def]  # tuples
    """Put the tiles of a row together: the best, the sum of weights, and the token if not truncated."""
    tiles = tl.arange(0, TILES)
    place = work.ids + (row * num_tiles + tiles) * 2
    inverse_temperature = inverse_temperature_of(chosen, row)
    of_tiles = _number(work, row, 4, num_tiles, TILES)
    best, total = _combined(of_tiles, _number(work, row, 5, num_tiles, TILES), inverse_temperature)
    token_id = least_id(of_tiles == best, tl.load(place, mask=tiles < num_tiles, other=NO_ID))
    if (tl.load(chosen.temperature + row) != 0.0) & (best > float("-inf")):
        score = _number(work, row, 6, num_tiles, TILES) + (of_tiles - best) * inverse_temperature
        token_id = least_id(score == tl.max(score), tl.load(place + 1, mask=tiles < num_tiles, other=NO_ID))
    return best, total, token_id


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def row_kernel(  # type: ignore[no-untyped-def]  # tuples of pointers have no Python type
    logits,
    masks,
    chosen,
    changes,
    noise,
    work,
    out,
    num_tiles,
    HAS_MASSES: tl.constexpr,
    TILES: tl.constexpr,
    GROUPS: tl.constexpr,
    LISTED: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Draw a row that is not truncated, and say of others what the border is looked for in."""
    row = tl.program_id(0)
    mask_row = tl.load(masks.row + row)
    tl.store(out.token_id + row, _NO_TOKEN)
    tl.store(out.error + row, 0)
    if work.kind is not None:
        tl.store(work.kind + row, DONE)
    if mask_row < 0:
        tl.store(out.log_legal_mass + row, float("nan"))
        tl.store(out.log_sum_exp + row, float("nan"))
        return
    is_listed = has_list(masks, mask_row)
    max_all, sum_all = tl.full((), float("nan"), tl.float32), tl.full((), float("nan"), tl.float32)
    if HAS_MASSES:
        max_all, sum_all = _combined(
            _number(work, row, 0, num_tiles, TILES), _number(work, row, 1, num_tiles, TILES), 1.0
        )
    max_legal, sum_legal, best, total = max_all, sum_all, max_all, sum_all
    token_id = tl.full((), _NO_TOKEN, tl.int32)
    if is_listed:
        if masks.list_start is not None:
            max_legal, sum_legal, best, total, token_id = _read_list(
                logits, masks, mask_row, chosen, changes, noise, work, row, LISTED
            )
    else:
        best, total, token_id = _read_tiles(chosen, work, row, num_tiles, TILES)
        if HAS_MASSES:
            max_legal, sum_legal = _combined(
                _number(work, row, 2, num_tiles, TILES), _number(work, row, 3, num_tiles, TILES), 1.0
            )
    is_truncated = is_row_truncated(chosen, row)
    error = _error_of(best)
    tl.store(out.error + row, error)
    _store_masses(out, row, max_all, sum_all, max_legal, sum_legal)
    if (error == 0) & (not is_truncated):
        tl.store(out.token_id + row, token_id)
    if work.kind is not None and is_truncated & (error == 0):
        num_groups = tl.where(is_listed, 0, num_tiles * GROUPS)
        _prepare(chosen, row, work, num_groups, num_tiles * GROUPS, best, total, masks.num_tokens, CHUNK)


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def select_kernel(masks, chosen, noise, work, out, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]  # tuples
    """Find the border of a truncated row and draw from what is before it."""
    row = tl.program_id(0)
    if tl.load(work.kind + row) != TRUNCATED:
        return
    bound, best = tl.load(work.bound + row * 3), tl.load(work.bound + row * 3 + 1)
    values = work.candidates + row.to(tl.int64) * masks.num_tokens
    ids = work.candidate_ids + row.to(tl.int64) * masks.num_tokens
    num = tl.load(work.num_candidates + row)
    inverse_temperature = inverse_temperature_of(chosen, row)
    most = _most(chosen, row)
    target = _target(chosen, row, tl.load(work.bound + row * 3 + 2))
    key = border_key(values, num, bound, best, inverse_temperature, most, target, CHUNK)
    border = logit_of(key)
    count, mass = amount_from(values, num, key, best, inverse_temperature, CHUNK)
    count_above, mass_above = amount_from(values, num, key + 1, best, inverse_temperature, CHUNK)
    quanta = tl.maximum(quanta_of(tl.exp((border - best) * inverse_temperature)), 1)
    num_kept = tl.minimum((most - count_above).to(tl.int64), (target - mass_above - 1) // quanta + 1)
    last_id = tl.full((), NO_ID, tl.int32)
    if ((count >= most) | (mass >= target)) & (num_kept < count - count_above):
        last_id = last_kept_id(values, ids, num, border, num_kept, masks.num_tokens, CHUNK)
    seed, position, stream = tl.load(noise.seed + row), tl.load(noise.position + row), tl.load(noise.stream + row)
    least = tl.full((), float("inf"), tl.float32)
    drawn_id = tl.full((), NO_ID, tl.int32)
    for first in range(0, num, CHUNK):
        place = first + tl.arange(0, CHUNK)
        z = tl.load(values + place, mask=place < num, other=float("-inf"))
        token = tl.load(ids + place, mask=place < num, other=NO_ID)
        is_kept = (z > border) | ((z == border) & (token <= last_id))
        weights = tl.exp((z - best) * inverse_temperature)
        words = words_of_ids(token, seed, position, stream)
        ratio = tl.where(is_kept & (weights > 0.0), exponential_of_words(words) / weights, float("inf"))
        here = tl.min(ratio)
        here_id = least_id(ratio == here, token)
        is_better = (here < least) | ((here == least) & (here_id < drawn_id))
        drawn_id = tl.where(is_better, here_id, drawn_id)
        least = tl.minimum(least, here)
    tl.store(out.token_id + row, drawn_id)
