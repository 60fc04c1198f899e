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

`sample_reference` sorts in float64. The kernels find the same borders without a sort.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from structgen.kernels.apply_mask import BITS_PER_WORD
from structgen.kernels.gumbel import LEAST_TEMPERATURE, gumbel_rows

if TYPE_CHECKING:
    import torch

NO_TOKEN: Final = -1

EVERYWHERE: Final = -2
"""In `Penalties.free_row`: the penalties touch every token."""

# In `Sampled.error`.
NO_LEGAL_TOKEN: Final = 1
NOT_FINITE: Final = 2

# Sums of probabilities carry rounding: see structgen/decode/truncation.py.
MASS_SLACK: Final = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Masks:
    """Which tokens are legal in each row.

    Attributes:
        words: (R, ceil(num_tokens / 32)) int32, packed rows that batches and states share.
        row: (B,) int32, which of them each row of logits has; -1 draws nothing.
        num_tokens: size of the vocabulary; further logits are no tokens, missing ones have probability zero.
        lists: (list_start (R + 1,) int64, list_ids int32): the ids of a row in ascending order, for rows that have a
            list (the longest has MAX_LISTED_TOKENS); a row without one has an empty range. None: no lists.
    """

    words: torch.Tensor
    row: torch.Tensor
    num_tokens: int
    lists: tuple[torch.Tensor, torch.Tensor] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Bias:
    """What is added to logits before anything else, by rows that requests may share.

    Attributes:
        values: (rows of bias, vocabulary) float32; -inf bans.
        row: (B,) int32, which of them each row of logits has; -1 for none.
    """

    values: torch.Tensor
    row: torch.Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Penalties:
    """Penalties on tokens that were generated.

    Attributes:
        counts: (B, vocabulary) int32, how often each token was generated where penalties reach: see `count_tokens_`.
        free_row: (B,) int32, the mask row of the tokens that they touch; -1 for none, EVERYWHERE for all.
        repetition: (B,) float32, divides positive logits and multiplies others; 1 is off.
        presence: (B,) float32, subtracted once; 0 is off.
        frequency: (B,) float32, subtracted per count; 0 is off.
    """

    counts: torch.Tensor
    free_row: torch.Tensor
    repetition: torch.Tensor
    presence: torch.Tensor
    frequency: torch.Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleOptions:
    """How each row is drawn; None is off for all rows, and saves the work.

    Attributes:
        temperature: (B,) float32; 0 takes the largest.
        top_k: (B,) int32; 0 or less is off.
        top_p: (B,) float32; 1 or more is off.
        min_p: (B,) float32; 0 or less is off.
        bias: added before the mask.
        penalties: taken off after it.
        has_masses: whether log_legal_mass and log_sum_exp are wanted. Without them, rows with a list read no logit but
            those of the list, and both may be nan.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor | None = None
    top_p: torch.Tensor | None = None
    min_p: torch.Tensor | None = None
    bias: Bias | None = None
    penalties: Penalties | None = None
    has_masses: bool = True


class SampleNoise(NamedTuple):
    """What each row's noise belongs to, besides the token: see structgen/kernels/gumbel.py.

    Attributes:
        seed: (B,) int64, the bits of a uint64.
        position: (B,) int64 below 2**32.
        stream: (B,) int64 below 2**32.
    """

    seed: torch.Tensor
    position: torch.Tensor
    stream: torch.Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """What was drawn.

    Attributes:
        token_id: (B,) int32, NO_TOKEN where there is an error, or where the row was not asked for (mask row -1).
        error: (B,) int32: 0, NO_LEGAL_TOKEN or NOT_FINITE.
        log_legal_mass: (B,) float32, log of the share that the legal tokens have of the model's own softmax.
        log_sum_exp: (B,) float32, of the model's own logits over the vocabulary: a logit minus it is a log-probability.
    """

    token_id: torch.Tensor
    error: torch.Tensor
    log_legal_mass: torch.Tensor
    log_sum_exp: torch.Tensor

    @classmethod
    def empty(cls, batch: int, *, device: torch.device | str) -> Sampled:
        """Return tensors to write to."""
        import torch

        return cls(
            token_id=torch.empty(batch, dtype=torch.int32, device=device),
            error=torch.empty(batch, dtype=torch.int32, device=device),
            log_legal_mass=torch.empty(batch, dtype=torch.float32, device=device),
            log_sum_exp=torch.empty(batch, dtype=torch.float32, device=device),
        )

    def copy_(self, other: Sampled) -> Sampled:
        """Write the values of another and return this."""
        self.token_id.copy_(other.token_id)
        self.error.copy_(other.error)
        self.log_legal_mass.copy_(other.log_legal_mass)
        self.log_sum_exp.copy_(other.log_sum_exp)
        return self


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
    _check(logits, masks, options, noise)
    drawn = sample_reference(logits, masks=masks, options=options, noise=noise)
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
    z = raw
    if options.bias is not None:
        z = torch.where(options.bias.row[:, None] >= 0, z + options.bias.values[options.bias.row.clamp(min=0)], z)
    if options.penalties is not None:
        z = _penalised(z, options.penalties, masks.words)
    z = z.masked_fill(~legal, -torch.inf).double()
    best = z.amax(1, keepdim=True)
    score = _scores(z, best, options, noise)
    token_id = _first(score == score.amax(1, keepdim=True)).int()
    is_asked = masks.row >= 0
    error = torch.where(best[:, 0] == -torch.inf, NO_LEGAL_TOKEN, torch.where(best[:, 0].isfinite(), 0, NOT_FINITE))
    error = torch.where(is_asked, error, 0).int()
    log_sum = raw.double().logsumexp(1)
    log_legal = raw.masked_fill(~legal, -torch.inf).double().logsumexp(1)
    # Whoever has an infinity has all of the mass.
    lost = torch.where(log_sum == torch.inf, torch.inf, (log_sum - log_legal).clamp(min=0.0))
    return Sampled(
        token_id=torch.where(is_asked & (error == 0), token_id, NO_TOKEN).int(),
        error=error,
        log_legal_mass=-lost.float(),
        log_sum_exp=log_sum.float(),
    )


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


def _check(logits: torch.Tensor, masks: Masks, options: SampleOptions, noise: SampleNoise) -> None:
    """Say what does not fit, without reading any value."""
    if not logits.dtype.is_floating_point or logits.dtype.itemsize not in (2, 4) or logits.dim() != 2:
        raise TypeError(f"logits must be (rows, width) float16, bfloat16 or float32, not {logits.dtype}")
    for name, tensor, dtype, shape in _tensors(logits.shape[0], masks, options, noise):
        if str(tensor.dtype) != f"torch.{dtype}":
            raise TypeError(f"{name} must be {dtype}, not {tensor.dtype}")
        if tensor.dim() != len(shape) or any(
            want not in (None, n) for n, want in zip(tensor.shape, shape, strict=True)
        ):
            raise ValueError(f"{name} must have the shape {shape}, not {tuple(tensor.shape)}")
        if tensor.device != logits.device:
            raise ValueError(f"{name} is on {tensor.device}, the logits on {logits.device}")


_Layout: TypeAlias = "tuple[str, torch.Tensor, str, tuple[int | None, ...]]"


def _tensors(batch: int, masks: Masks, options: SampleOptions, noise: SampleNoise) -> Iterator[_Layout]:
    """Give each tensor with its name, and the dtype and the shape it must have."""
    size = masks.num_tokens
    yield "masks.words", masks.words, "int32", (None, -(-size // BITS_PER_WORD))
    yield "masks.row", masks.row, "int32", (batch,)
    if masks.lists is not None:
        yield "list_start", masks.lists[0], "int64", (len(masks.words) + 1,)
        yield "list_ids", masks.lists[1], "int32", (None,)
    for name, tensor in zip(noise._fields, noise, strict=True):
        yield f"noise.{name}", tensor, "int64", (batch,)
    for name, dtype in (("temperature", "float32"), ("top_k", "int32"), ("top_p", "float32"), ("min_p", "float32")):
        if getattr(options, name) is not None:
            yield f"options.{name}", getattr(options, name), dtype, (batch,)
    if options.bias is not None:
        yield "bias.values", options.bias.values, "float32", (None, size)
        yield "bias.row", options.bias.row, "int32", (batch,)
    if options.penalties is not None:
        yield "penalties.counts", options.penalties.counts, "int32", (batch, size)
        yield "penalties.free_row", options.penalties.free_row, "int32", (batch,)
        for name in ("repetition", "presence", "frequency"):
            yield f"penalties.{name}", getattr(options.penalties, name), "float32", (batch,)


def _vocabulary_columns(logits: torch.Tensor, size: int) -> torch.Tensor:
    """Return float32 logits of exactly the ids of the vocabulary."""
    import torch

    row = logits[:, :size].float()
    return torch.nn.functional.pad(row, (0, size - row.shape[1]), value=-torch.inf)


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
