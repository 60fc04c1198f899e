"""The values that `sample` takes and gives: tensors by what they mean, one entry or row per row of the batch.

structgen/kernels/sample.py says what becomes of them, and is where they are imported from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from structgen.kernels.apply_mask import BITS_PER_WORD

if TYPE_CHECKING:
    import torch

# The kernels for CUDA look at so many tokens at once, and at the best of so many neighbours.
TILE: Final = 2048
GROUP: Final = 64

MAX_LISTED_TOKENS: Final = 4096
"""The longest list of `Masks.lists`."""


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


class Workspace(NamedTuple):
    """What the kernels for CUDA hand each other; allocated once, so that drawing allocates nothing.

    Attributes:
        numbers: (B, tiles, 8) float32, masses and best values of each tile.
        ids: (B, tiles, 2) int32, the tokens that have them.
        groups: (B, tiles, groups) float32, the best logits of neighbours.
        kind: (B,) int32, whether the row is still to be drawn.
        bound: (B, 3) float32, the least logit worth looking at, the best one, the sum of weights.
        num_candidates: (B,) int32.
        candidates: (B, vocabulary) float32, the logits that reach the bound.
        candidate_ids: (B, vocabulary) int32, their tokens.
    """

    numbers: torch.Tensor
    ids: torch.Tensor
    groups: torch.Tensor
    kind: torch.Tensor
    bound: torch.Tensor
    num_candidates: torch.Tensor
    candidates: torch.Tensor
    candidate_ids: torch.Tensor

    @classmethod
    def empty(cls, batch: int, *, num_tokens: int, device: torch.device | str) -> Workspace:
        """Return one that serves batches of this size or smaller."""
        import torch

        tiles = -(-num_tokens // TILE)

        def floats(*shape: int) -> torch.Tensor:
            return torch.empty(batch, *shape, dtype=torch.float32, device=device)

        def integers(*shape: int) -> torch.Tensor:
            return torch.empty(batch, *shape, dtype=torch.int32, device=device)

        return cls(
            numbers=floats(tiles, 8),
            ids=integers(tiles, 2),
            groups=floats(tiles, TILE // GROUP),
            kind=integers(),
            bound=floats(3),
            num_candidates=integers(),
            candidates=floats(num_tokens),
            candidate_ids=integers(num_tokens),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """What was drawn.

    Attributes:
        token_id: (B,) int32, NO_TOKEN where there is an error, or where the row was not asked for (mask row -1).
        error: (B,) int32: 0, NO_LEGAL_TOKEN or NOT_FINITE.
        log_legal_mass: (B,) float32, log of the share that the legal tokens have of the model's own softmax.
        log_sum_exp: (B,) float32, of the model's own logits over the vocabulary: a logit minus it is a log-probability.
            Both are nan in rows that were not asked for.
        workspace: for CUDA; None allocates one in each call.
    """

    token_id: torch.Tensor
    error: torch.Tensor
    log_legal_mass: torch.Tensor
    log_sum_exp: torch.Tensor
    workspace: Workspace | None = None

    @classmethod
    def empty(cls, batch: int, *, num_tokens: int, device: torch.device | str) -> Sampled:
        """Return tensors to write to: on a device 8 bytes per token of the vocabulary and row."""
        import torch

        token_id = torch.empty(batch, dtype=torch.int32, device=device)
        is_cuda = token_id.device.type == "cuda"
        workspace = Workspace.empty(batch, num_tokens=num_tokens, device=device) if is_cuda else None
        return cls(
            token_id=token_id,
            error=torch.empty(batch, dtype=torch.int32, device=device),
            log_legal_mass=torch.empty(batch, dtype=torch.float32, device=device),
            log_sum_exp=torch.empty(batch, dtype=torch.float32, device=device),
            workspace=workspace,
        )

    def copy_(self, other: Sampled) -> Sampled:
        """Write the values of another and return this."""
        self.token_id.copy_(other.token_id)
        self.error.copy_(other.error)
        self.log_legal_mass.copy_(other.log_legal_mass)
        self.log_sum_exp.copy_(other.log_sum_exp)
        return self


def check_sample(logits: torch.Tensor, masks: Masks, options: SampleOptions, noise: SampleNoise) -> None:
    """Say what does not fit, without reading any value.

    Raises:
        TypeError: a tensor is of another dtype.
        ValueError: its shape or device is another.
    """
    if not logits.dtype.is_floating_point or logits.dtype.itemsize not in (2, 4) or logits.dim() != 2:
        raise TypeError(f"logits must be (rows, width) float16, bfloat16 or float32, not {logits.dtype}")
    for name, tensor, dtype, shape in _tensors(logits.shape[0], masks, options, noise):
        if str(tensor.dtype) != f"torch.{dtype}":
            raise TypeError(f"{name} must be {dtype}, not {tensor.dtype}")
        if tensor.dim() != len(shape) or any(
            want not in (None, n) for n, want in zip(tensor.shape, shape, strict=True)
        ):
            raise ValueError(f"{name} must have the shape {shape}, not {tuple(tensor.shape)}")
        if tensor.dim() > 0 and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"{name} must be contiguous in its last dimension")
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
