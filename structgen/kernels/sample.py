"""Draw a token per row: bias, mask row by its number, penalties, temperature, truncation and draw in one op.

The law is that of structgen/decode/sampler.py, for a batch and from tensors alone, so that nothing waits for the host:

    z      = float32 logit (-inf past the logits' width), plus the bias; -inf where the mask row has no bit
    z      = z / repetition if z > 0 else z * repetition; then - presence - frequency * count   (counted ids in scope)
    order  : larger z first, the lower id of equals first; share = softmax(z / temperature) over all of it
    kept   = the first top_k; the first whose shares reach top_p (to a millionth); z >= max z + temperature * log(min_p)
    token  = argmax of (z - max z) / temperature + noise over what is kept, lowest id of equals; temperature 0: of z

A row is an error, and draws nothing, where no legal token has a logit above -inf, or where a legal logit is nan or
+inf; nan and +inf on an illegal token only show in log_sum_exp. The masses are of the logits as they were given,
without bias, penalties and temperature.

`sample_reference` sorts in float64. The kernels find the same borders without a sort; that of a row on the CPU is in
structgen/kernels/sample_row.py.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final, NamedTuple

from structgen.kernels._sample_codes import EVERYWHERE, MASS_SLACK, NO_LEGAL_TOKEN, NO_TOKEN, NOT_FINITE
from structgen.kernels._sample_values import (
    GROUP,
    MAX_LISTED_TOKENS,
    TILE,
    Bias,
    Masks,
    Penalties,
    Sampled,
    SampleNoise,
    SampleOptions,
    Workspace,
    check_sample,
)
from structgen.kernels.apply_mask import BITS_PER_WORD
from structgen.kernels.gumbel import LEAST_TEMPERATURE, gumbel_rows
from structgen.kernels.sample_row import sample_rows

if TYPE_CHECKING:
    import torch

__all__ = [
    "EVERYWHERE",
    "MAX_LISTED_TOKENS",
    "NOT_FINITE",
    "NO_LEGAL_TOKEN",
    "NO_TOKEN",
    "Bias",
    "Masks",
    "Penalties",
    "SampleNoise",
    "SampleOptions",
    "Sampled",
    "Workspace",
    "allowed",
    "count_tokens_",
    "sample",
    "sample_reference",
]

# How many candidates of a truncation the kernels for CUDA look at at once.
_CHUNK: Final = 1024

# With fewer, the longest list does not fit the registers of sm_80.
NUM_WARPS: Final = {"tile_kernel": 8, "row_kernel": 16, "candidate_kernel": 8, "select_kernel": 8}


def sample(
    logits: torch.Tensor, *, masks: Masks, options: SampleOptions, noise: SampleNoise, out: Sampled | None = None
) -> Sampled:
    """Draw a token per row.

    Args:
        logits: (B, width) float16, bfloat16 or float32, any strides; left as they are.
        masks: which tokens are legal.
        options: how each row is drawn.
        noise: what the draws belong to.
        out: tensors to write to, see `Sampled.empty`.

    Raises:
        TypeError: a tensor is of another dtype.
        ValueError: the shapes do not belong together.
    """
    check_sample(logits, masks, options, noise)
    if logits.device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        out = out or Sampled.empty(logits.shape[0], num_tokens=masks.num_tokens, device=logits.device)
        _sample_triton(logits, masks, options, noise, out)
        return out
    form = sample_rows if logits.device.type == "cpu" else sample_reference
    drawn = form(logits, masks=masks, options=options, noise=noise)
    return drawn if out is None else out.copy_(drawn)


def sample_reference(logits: torch.Tensor, *, masks: Masks, options: SampleOptions, noise: SampleNoise) -> Sampled:
    """Draw with tensor operations in float64 and a full sort, on any device and without waiting for it: the plain form.

    Args:
        logits: (B, width) floating point.
        masks: which tokens are legal; lists are not looked at.
        options: how each row is drawn.
        noise: what the draws belong to.
    """
    import torch

    raw = _vocabulary_columns(logits, masks.num_tokens)
    legal = allowed(masks.words, masks.row, masks.num_tokens)
    z = _changed(raw, masks, options).masked_fill(~legal, -torch.inf).double()
    best = z.amax(1, keepdim=True)
    score = _scores(z, best, options, noise)
    token_id = _first(score == score.amax(1, keepdim=True)).int()
    is_asked = masks.row >= 0
    error = torch.where(best[:, 0] == -torch.inf, NO_LEGAL_TOKEN, torch.where(best[:, 0].isfinite(), 0, NOT_FINITE))
    error = torch.where(is_asked, error, 0).int()
    log_sum = raw.double().logsumexp(1).masked_fill(~is_asked, torch.nan)
    return Sampled(
        token_id=torch.where(is_asked & (error == 0), token_id, NO_TOKEN).int(),
        error=error,
        log_legal_mass=_log_legal_mass(raw.double().masked_fill(~legal, -torch.inf), log_sum).float(),
        log_sum_exp=log_sum.float(),
    )


def _log_legal_mass(masked: torch.Tensor, log_sum: torch.Tensor) -> torch.Tensor:
    """Return log of the legal share of the model's own softmax; whoever has an infinity has all of it."""
    import torch

    return -torch.where(log_sum == torch.inf, torch.inf, (log_sum - masked.logsumexp(1)).clamp(min=0.0))


def allowed(mask_rows: torch.Tensor, mask_row: torch.Tensor, size: int) -> torch.Tensor:
    """Return (B, size) bool: the bits of the rows of these numbers, none where the number is negative."""
    import torch

    shifts = torch.arange(BITS_PER_WORD, dtype=torch.int32, device=mask_rows.device)
    words = mask_rows[mask_row.clamp(min=0)]
    bits = ((words[:, :, None] >> shifts) & 1).bool().flatten(1)
    return torch.nn.functional.pad(bits, (0, max(0, size - bits.shape[1])))[:, :size] & (mask_row >= 0)[:, None]


def count_tokens_(penalties: Penalties, token_id: torch.Tensor, mask_rows: torch.Tensor) -> None:
    """Count a generated token per row where the penalties reach it, in place; no host synchronisation.

    Args:
        penalties: those of the step at which the tokens were drawn.
        token_id: (B,) integers; NO_TOKEN counts nothing.
        mask_rows: (rows of masks, words) int32.
    """
    token = token_id.long().clamp(min=0)[:, None]
    word = mask_rows[penalties.free_row.clamp(min=0)].gather(1, token >> 5)
    is_inside = ((word >> (token & 31)) & 1).bool()[:, 0] & (penalties.free_row >= 0)
    is_counted = (is_inside | (penalties.free_row == EVERYWHERE)) & (token_id >= 0)
    penalties.counts.scatter_add_(1, token, is_counted[:, None].to(penalties.counts.dtype))


def _vocabulary_columns(logits: torch.Tensor, size: int) -> torch.Tensor:
    """Return float32 logits of exactly the ids of the vocabulary."""
    import torch

    row = logits[:, :size].to(torch.float32, copy=True)
    return torch.nn.functional.pad(row, (0, size - row.shape[1]), value=-torch.inf)


def _changed(z: torch.Tensor, masks: Masks, options: SampleOptions) -> torch.Tensor:
    """Return logits with bias and penalties."""
    import torch

    if (bias := options.bias) is not None:
        z = torch.where(bias.row[:, None] >= 0, z + bias.values[bias.row.clamp(min=0)], z)
    return z if options.penalties is None else _penalised(z, options.penalties, masks.words)


def _penalised(z: torch.Tensor, penalties: Penalties, mask_rows: torch.Tensor) -> torch.Tensor:
    """Return logits less the penalties."""
    import torch

    in_scope = allowed(mask_rows, penalties.free_row, z.shape[1]) | (penalties.free_row == EVERYWHERE)[:, None]
    factor = penalties.repetition[:, None]
    lower = torch.where(z > 0, z / factor, z * factor)
    lower = torch.where(factor == 1.0, z, lower) - penalties.presence[:, None]
    lower = lower - penalties.frequency[:, None] * penalties.counts
    return torch.where(in_scope & (penalties.counts > 0), lower, z)


def _scores(z: torch.Tensor, best: torch.Tensor, options: SampleOptions, noise: SampleNoise) -> torch.Tensor:
    """Return what the drawn token has the most of."""
    import torch

    temperature = options.temperature.double()[:, None].clamp(min=LEAST_TEMPERATURE)
    kept = torch.ones_like(z, dtype=torch.bool)
    if options.min_p is not None:
        min_p = options.min_p.double()[:, None]
        kept = kept & ((min_p <= 0) | (z >= (best + temperature * min_p.log()).float()))
    if options.top_k is not None or options.top_p is not None:
        kept = kept & _prefix(z, best, temperature, options)
    perturbed = (z - best) * (1.0 / temperature) + gumbel_rows(z.shape[1], *noise)
    return torch.where(options.temperature[:, None] == 0, z, perturbed.masked_fill(~kept, -torch.inf))


def _prefix(z: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor, options: SampleOptions) -> torch.Tensor:
    """Return which tokens are in the shorter of the prefixes of top_k and top_p."""
    import torch

    values, order = z.sort(dim=1, descending=True, stable=True)
    kept = torch.ones_like(z, dtype=torch.bool)
    if options.top_k is not None:
        top_k = options.top_k[:, None]
        kept = kept & ((top_k <= 0) | (torch.arange(z.shape[1], device=z.device) < top_k))
    if options.top_p is not None:
        top_p = options.top_p.double()[:, None]
        weights = ((values - best) / temperature).exp()
        mass_before = weights.cumsum(1) - weights
        is_in = mass_before < (top_p - MASS_SLACK) * weights.sum(1, keepdim=True)
        is_in[:, 0] = True
        kept = kept & ((top_p >= 1.0) | is_in)
    return torch.zeros_like(kept).scatter(1, order, kept)


def _first(found: torch.Tensor) -> torch.Tensor:
    """Return the first column that is true in each row, the number of columns where none is."""
    import torch

    columns = torch.arange(found.shape[1], device=found.device)
    return torch.where(found, columns, found.shape[1]).amin(1)


class _Logits(NamedTuple):
    """The tuples that the Triton kernels take instead of long lists of arguments; None is a constant to them."""

    data: torch.Tensor
    row_stride: int
    column_stride: int
    width: int


class _Masks(NamedTuple):
    words: torch.Tensor
    row_stride: int
    row: torch.Tensor
    num_tokens: int
    list_start: torch.Tensor | None
    list_ids: torch.Tensor | None


class _Options(NamedTuple):
    temperature: torch.Tensor
    top_k: torch.Tensor | None
    top_p: torch.Tensor | None
    min_p: torch.Tensor | None


class _Changes(NamedTuple):
    bias: torch.Tensor | None = None
    bias_stride: int | None = None
    bias_row: torch.Tensor | None = None
    counts: torch.Tensor | None = None
    counts_stride: int | None = None
    free_row: torch.Tensor | None = None
    repetition: torch.Tensor | None = None
    presence: torch.Tensor | None = None
    frequency: torch.Tensor | None = None


class _Out(NamedTuple):
    token_id: torch.Tensor
    error: torch.Tensor
    log_legal_mass: torch.Tensor
    log_sum_exp: torch.Tensor


def _changes(options: SampleOptions) -> _Changes:
    """Return bias and penalties as the kernels take them."""
    changes = _Changes()
    if (bias := options.bias) is not None:
        changes = changes._replace(bias=bias.values, bias_stride=bias.values.stride(0), bias_row=bias.row)
    if (penalties := options.penalties) is not None:
        changes = changes._replace(
            counts=penalties.counts,
            counts_stride=penalties.counts.stride(0),
            free_row=penalties.free_row,
            repetition=penalties.repetition,
            presence=penalties.presence,
            frequency=penalties.frequency,
        )
    return changes


def _sample_triton(
    logits: torch.Tensor, masks: Masks, options: SampleOptions, noise: SampleNoise, out: Sampled
) -> None:
    """Draw on CUDA, by two launches, or by four where rows may be truncated; only options that are None decide it."""
    import torch

    from structgen.kernels._triton.sample_rows import row_kernel, select_kernel
    from structgen.kernels._triton.sample_tiles import candidate_kernel, tile_kernel

    batch, num_tiles = logits.shape[0], -(-masks.num_tokens // TILE)
    work = out.workspace or Workspace.empty(batch, num_tokens=masks.num_tokens, device=logits.device)
    lists = masks.lists or (None, None)
    row_logits = _Logits(logits, logits.stride(0), logits.stride(1), logits.shape[1])
    legal = _Masks(masks.words, masks.words.stride(0), masks.row, masks.num_tokens, *lists)
    chosen = _Options(options.temperature, options.top_k, options.top_p, options.min_p)
    changes, results = _changes(options), _Out(out.token_id, out.error, out.log_legal_mass, out.log_sum_exp)
    is_truncating = any(part is not None for part in chosen[1:])
    # Constants to the compiler: without truncation there is nothing to prepare.
    if not is_truncating:
        work = Workspace(**{**work._asdict(), "groups": None, "kind": None})
    # Without contraction each number is that of the plain form, whatever the compiler's version.
    settings = {name: {"enable_fp_fusion": False, "num_warps": num} for name, num in NUM_WARPS.items()}
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]  # torch has no types there
        tile_kernel[batch, num_tiles](
            row_logits, legal, chosen, changes, noise, work, options.has_masses, TILE, GROUP, **settings["tile_kernel"]
        )
        row_kernel[batch,](
            row_logits,
            legal,
            chosen,
            changes,
            noise,
            work,
            results,
            num_tiles,
            HAS_MASSES=options.has_masses,
            TILES=_power_of_two(num_tiles),
            GROUPS=TILE // GROUP,
            LISTED=MAX_LISTED_TOKENS,
            CHUNK=_CHUNK,
            **settings["row_kernel"],
        )
        if is_truncating:
            candidate_kernel[batch, num_tiles](row_logits, legal, changes, work, TILE, **settings["candidate_kernel"])
            select_kernel[batch,](legal, chosen, noise, work, results, CHUNK=_CHUNK, **settings["select_kernel"])


def _power_of_two(num: int) -> int:
    """Return the least power of two that is not below."""
    return 1 << (num - 1).bit_length()
