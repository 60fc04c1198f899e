"""One row on the CPU: masses, bias, mask, penalties, temperature, truncation and draw in one compiled loop.

The law is that of structgen/kernels/sample.py. Logits are read once for the masses and for the best of each group of
neighbours; where something is truncated, once more for the sum of weights; and else only where a group may matter. The
row may be of a few tokens only, where no others are legal: the draw is the same, to the last bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from structgen.kernels._sample_codes import EVERYWHERE, MASS_SLACK, NO_LEGAL_TOKEN, NO_TOKEN, NOT_FINITE
from structgen.kernels._sample_values import Masks, Sampled, SampleNoise, SampleOptions
from structgen.kernels.gumbel import LEAST_TEMPERATURE, NoiseKey

if TYPE_CHECKING:
    import torch

Array: TypeAlias = "np.ndarray[Any, Any]"

# What is not given to the compiled loop.
_NO_FLOATS: Final = np.empty(0, np.float32)
_NO_HALVES: Final = np.empty(0, np.uint16)
NO_WORDS: Final = np.empty(0, np.int32)
NOTHING: Final = np.empty(0, np.uint64)
ALL: Final = np.empty(0, np.int64)
NOWHERE: Final = np.empty(0, np.float32)


class RowChanges(NamedTuple):
    """Bias and penalties of one row on the CPU, of the tokens that have any.

    Attributes:
        ids: (n,) int64, ascending.
        bias: (n,) float32, added to the logit.
        counts: (n,) int32, how often each was generated where penalties reach.
        free_words: packed mask of the tokens that the penalties touch; None for all.
    """

    ids: Array
    bias: Array
    counts: Array
    free_words: Array | None

    def counted(self, token_id: int) -> RowChanges:
        """Return them after one more token was generated; this may be written to."""
        place = int(np.searchsorted(self.ids, token_id))
        if place < len(self.ids) and self.ids[place] == token_id:
            self.counts[place] += 1
            return self
        return self._replace(
            ids=np.insert(self.ids, place, token_id),
            bias=np.insert(self.bias, place, 0.0),
            counts=np.insert(self.counts, place, 1),
        )


_NO_CHANGES: Final = RowChanges(ALL, _NO_FLOATS, np.empty(0, np.int32), NO_WORDS)


class RowNumbers(NamedTuple):
    """How a row on the CPU is drawn.

    Attributes:
        temperature: 0 takes the largest.
        top_k: the most tokens; None is off.
        top_p: the least share of the probability; None is off.
        min_p: the least share of the best token's probability; None is off.
        repetition: 1 is off.
        presence: 0 is off.
        frequency: 0 is off.
    """

    temperature: float
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0

    def packed(self) -> tuple[Array, int]:
        """Return them as the compiled loop takes them."""
        share = 1.0 if self.top_p is None or self.top_p >= 1.0 else self.top_p - MASS_SLACK
        log_min_p = math.log(self.min_p) if self.min_p else -math.inf
        temperature = max(self.temperature, LEAST_TEMPERATURE) if self.temperature > 0.0 else 0.0
        penalties = (self.repetition, self.presence, self.frequency)
        return np.array([temperature, share, log_min_p, *penalties]), self.top_k or 1 << 62


class RowDraw(NamedTuple):
    """What became of a row on the CPU.

    Attributes:
        token_id: NO_TOKEN where nothing was drawn.
        best: the largest legal logit after bias and penalties: -inf if there is none, infinity if one is no number.
        log_sum_exp: of the model's own logits; nan where nobody asked.
        legal_mass_lost: -log of the share of the legal tokens in the model's own softmax; nan where nobody asked.
    """

    token_id: int
    best: float
    log_sum_exp: float
    legal_mass_lost: float

    @property
    def error(self) -> int:
        """0, NO_LEGAL_TOKEN or NOT_FINITE."""
        return 0 if math.isfinite(self.best) else NOT_FINITE if self.best > 0 else NO_LEGAL_TOKEN


class GivenRow(NamedTuple):
    """What is drawn from.

    Attributes:
        logits: (width,) floating point, left as they are, on any device; those past the vocabulary are no tokens.
        words: packed mask of the legal tokens.
        num_tokens: size of the vocabulary.
        changes: bias and penalties; None for none.
        ids: (width,) int64, the tokens that the logits are of, ascending, all of them legal; ALL where they are of all.
    """

    logits: torch.Tensor
    words: Array
    num_tokens: int
    changes: RowChanges | None = None
    ids: Array = ALL

    @property
    def num(self) -> int:
        """How many tokens the logits are of."""
        return len(self.ids) or self.num_tokens


def sample_row(
    row: GivenRow,
    numbers: tuple[Array, int],
    *,
    key: Array = NOTHING,
    kept: Array = NOWHERE,
    has_masses: bool = True,
) -> RowDraw:
    """Draw from one row, on the CPU, by the law of structgen.kernels.sample.

    Args:
        row: what is drawn from.
        numbers: of `RowNumbers.packed`.
        key: of `NoiseKey.packed`; NOTHING draws nothing.
        kept: (row.num,) float32 for what would be drawn from, -inf for what would not; nothing is drawn then. NOWHERE
            writes it nowhere.
        has_masses: whether they are wanted; where tokens are named they are not known.
    """
    from structgen.kernels._numba.sample_row import sample_row as compiled

    changes = row.changes or _NO_CHANGES
    free_words = NO_WORDS if changes.free_words is None else changes.free_words
    return RowDraw(
        *compiled(
            *_floats_or_halves(row.logits, row.num),
            row.words,
            row.ids,
            row.num,
            changes.ids,
            changes.bias,
            changes.counts,
            free_words,
            changes.free_words is None,
            *numbers,
            key,
            has_masses,
            kept,
        )
    )


def _floats_or_halves(logits: torch.Tensor, num: int) -> tuple[Array, Array, bool]:
    """Return so many logits as float32, or else the bits of those of two bytes, and whether these are bfloat16."""
    import torch

    logits = logits.detach()
    if logits.dtype.itemsize == 2:
        bits: Array = logits.view(torch.int16).cpu().numpy()[:num].view(np.uint16)
        return _NO_FLOATS, np.ascontiguousarray(bits), logits.dtype == torch.bfloat16
    if logits.dtype != torch.float32:
        logits = logits.float()
    return np.ascontiguousarray(logits.cpu().numpy()[:num]), _NO_HALVES, False


def sample_rows(logits: torch.Tensor, *, masks: Masks, options: SampleOptions, noise: SampleNoise) -> Sampled:
    """Draw on the CPU, one row after the other; see `structgen.kernels.sample.sample`."""
    out = Sampled.empty(len(logits), num_tokens=masks.num_tokens, device="cpu")
    words = masks.words.numpy()
    out.token_id.fill_(NO_TOKEN)
    out.error.fill_(0)
    out.log_legal_mass.fill_(math.nan)
    out.log_sum_exp.fill_(math.nan)
    for row, mask_row in enumerate(masks.row.tolist()):
        if mask_row < 0:
            continue
        seed, position, stream = (int(part[row]) for part in noise)
        given = GivenRow(logits[row], words[mask_row], masks.num_tokens, _row_changes(options, row, words))
        drawn = sample_row(
            given,
            _numbers(options, row).packed(),
            key=NoiseKey(seed % (1 << 64), position, stream).packed(),
            has_masses=options.has_masses,
        )
        out.token_id[row] = drawn.token_id
        out.error[row] = drawn.error
        out.log_legal_mass[row] = -drawn.legal_mass_lost
        out.log_sum_exp[row] = drawn.log_sum_exp
    return out


def _numbers(options: SampleOptions, row: int) -> RowNumbers:
    """Return the options of a row."""
    top_k = 0 if options.top_k is None else int(options.top_k[row])
    min_p = 0.0 if options.min_p is None else float(options.min_p[row])
    numbers = RowNumbers(
        float(options.temperature[row]),
        top_k=top_k if top_k > 0 else None,
        top_p=None if options.top_p is None else float(options.top_p[row]),
        min_p=min_p if min_p > 0.0 else None,
    )
    if (penalties := options.penalties) is None:
        return numbers
    return numbers._replace(
        repetition=float(penalties.repetition[row]),
        presence=float(penalties.presence[row]),
        frequency=float(penalties.frequency[row]),
    )


def _row_changes(options: SampleOptions, row: int, words: Array) -> RowChanges | None:
    """Return bias and penalties of a row."""
    bias: Array | None = None
    counts: Array | None = None
    free_words: Array | None = NO_WORDS
    if options.bias is not None and (bias_row := int(options.bias.row[row])) >= 0:
        bias = options.bias.values[bias_row].numpy()
    if options.penalties is not None and (free_row := int(options.penalties.free_row[row])) != -1:
        counts = options.penalties.counts[row].numpy()
        free_words = None if free_row == EVERYWHERE else words[free_row]
    if bias is None and counts is None:
        return None
    has_any = (False if bias is None else bias != 0.0) | (False if counts is None else counts > 0)
    ids = np.flatnonzero(has_any)
    return RowChanges(
        ids,
        np.zeros(len(ids), np.float32) if bias is None else bias[ids],
        np.zeros(len(ids), np.int32) if counts is None else counts[ids],
        free_words,
    )
