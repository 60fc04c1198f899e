"""From a row of logits and a mask to a token: bias, mask, penalties, temperature, truncation, draw.

The draw is a Gumbel-max with the noise of (seed, position, token, stream), see structgen.kernels.gumbel; at temperature
0 it is the largest logit, the lowest id of equals. Which tokens a truncation keeps is in structgen.kernels.truncate.
A row may be of a few tokens only, where no others are legal: the draw is the same.
Left out: which tokens are legal (the parser state), and several positions at once.
"""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from structgen.config import PenaltyScope, Sampling, check_seed
from structgen.decode.sending import sent
from structgen.decode.target import TokenIds
from structgen.errors import NoLegalTokenError, OptionError
from structgen.kernels.apply_mask import apply_mask_
from structgen.kernels.gumbel import LEAST_TEMPERATURE, NoiseKey, gumbel_argmax
from structgen.kernels.sample import EVERYWHERE, Bias, Penalties, SampleNoise, SampleOptions
from structgen.kernels.truncate import Truncation, truncate_

PackedMask: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Where a draw takes place.

    Attributes:
        mask: (ceil(vocabulary / 32),) legal tokens.
        free_text_mask: same shape, tokens that stay inside free text; None where there is none.
        position: position of the token in the sequence, prompt included, padding not.
        stream: 0, or another number for another draw at the same place.
        describe: gives the parser state in words, for messages.
        token_ids: the legal tokens, ascending, where logits are of these alone; None where they are of all tokens.
    """

    mask: PackedMask
    position: int
    describe: Callable[[], str]
    free_text_mask: PackedMask | None = None
    stream: int = 0
    token_ids: TokenIds | None = None

    def columns(self, token_ids: TokenIds) -> tuple[TokenIds, TokenIds]:
        """Return where in a row of logits those of some tokens that are legal stand, and which of them these are."""
        if self.token_ids is None:
            which = np.flatnonzero(self.mask[token_ids >> 5] >> (token_ids & 31) & 1)
            return token_ids[which], which
        columns = np.minimum(np.searchsorted(self.token_ids, token_ids), len(self.token_ids) - 1)
        which = np.flatnonzero(self.token_ids[columns] == token_ids)
        return columns[which], which


@dataclass(frozen=True, slots=True)
class DrawPlace:
    """One of several places that are drawn at in one call of structgen.kernels.sample.

    Attributes:
        position: position of the token in the sequence, prompt included, padding not.
        stream: 0, or another number for another draw at the same place.
        free_row: row of the masks that the call is given with the tokens that stay inside free text; -1 for none.
        drafted: the drafted tokens that lead here, of those that the penalties reach.
    """

    position: int
    stream: int = 0
    free_row: int = -1
    drafted: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Draw:
    """A drawn token, and what the mask cost.

    Attributes:
        token_id: the token.
        legal_mass_lost: -log of the probability that the model's own softmax over the vocabulary gives to the legal
            tokens, in nats, before any option: 0 if the mask took nothing; None where only their logits are known.
    """

    token_id: int
    legal_mass_lost: float | None


@dataclass(frozen=True, slots=True)
class LogMass:
    """The logarithm of a sum of exponentials, as largest - log_best, which keeps small differences.

    Attributes:
        largest: the largest logit.
        log_best: log of the share that it has of the sum.
    """

    largest: float
    log_best: float

    @classmethod
    def of(cls, row: torch.Tensor) -> LogMass:
        """Measure a row; log_softmax is twice as fast as logsumexp (28 and 57 us for 49,152 on one EPYC core)."""
        largest, log_best = torch.stack([row.amax(), torch.log_softmax(row, 0).amax()]).tolist()
        return cls(largest, log_best)

    def minus(self, part: LogMass) -> float:
        """Return how much larger this is than that of a part of the row; never negative, nan if a logit is nan."""
        if self.largest == math.inf:
            return math.inf
        difference = (self.largest - part.largest) + (part.log_best - self.log_best)
        return 0.0 if difference < 0.0 else difference


def resolve_seed(seed: int | None) -> int:
    """Return the seed, drawn afresh if None.

    Raises:
        OptionError: it is not an int in 0 .. 2**64 - 1.
    """
    check_seed(seed)
    if seed is None:
        return secrets.randbits(63)
    return seed


class Sampler:
    """Draws the tokens of one request; it counts what it is told was generated, for the penalties."""

    def __init__(self, sampling: Sampling, *, seed: int, vocabulary_size: int) -> None:
        """Prepare the options for a vocabulary.

        Raises:
            OptionError: the bias names a token that the vocabulary does not have.
        """
        self._sampling = sampling
        self._seed = seed
        self._vocabulary_size = vocabulary_size
        self._truncation = Truncation(top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p)
        self._counts: dict[int, int] = {}
        self._fixed_options: dict[tuple[int, torch.device], SampleOptions] = {}
        bias = sampling.logit_bias or {}
        outside = [token_id for token_id in bias if token_id >= vocabulary_size]
        if outside:
            raise OptionError(f"logit_bias names token {outside[0]}, but the vocabulary ends at {vocabulary_size - 1}")
        self._biased = np.array(list(bias), dtype=np.int64)
        self._bias = torch.tensor(list(bias.values()), dtype=torch.float32)

    @property
    def temperature(self) -> float:
        """Divides the rows of `process`; 0 takes the largest entry."""
        return self._sampling.temperature

    @property
    def has_penalties(self) -> bool:
        """Whether what was counted makes a difference."""
        return self._sampling.has_penalties

    def fork(self) -> Sampler:
        """Return a sampler with the same options and noise, whose counts go their own way from here."""
        other = copy.copy(self)
        other._counts = dict(self._counts)
        return other

    def draw(self, logits: torch.Tensor, step: Step) -> Draw:
        """Draw the token of one step.

        Args:
            logits: (width,) floating point, left as they are; columns past the vocabulary are ignored. With token ids
                in the step: one for each of these.
            step: where the draw takes place.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        row, legal_mass_lost = self.process(logits, step)
        if self._sampling.temperature == 0.0:
            best = int(torch.argmax(row))
            return Draw(best if step.token_ids is None else int(step.token_ids[best]), legal_mass_lost)
        temperature = max(self._sampling.temperature, LEAST_TEMPERATURE)
        key = NoiseKey(self._seed, step.position, step.stream)
        return Draw(gumbel_argmax(row, float(row.amax()), temperature, key, step.token_ids), legal_mass_lost)

    def process(self, logits: torch.Tensor, step: Step) -> tuple[torch.Tensor, float | None]:
        """Return the row that is drawn from, and -log of the legal mass.

        Returns:
            (vocabulary,) float32, or one for each of the step's token ids, in which only the support of the draw is
            above -inf. The draw is from its softmax at the temperature, which is not yet applied; the largest entry is
            finite. The mass is None where the step names token ids, see `legal_mass_lost`.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        legal_mass_lost = None
        if step.token_ids is None:
            row = self._vocabulary_row(logits)
            free = LogMass.of(row)
            apply_mask_(row, step.mask)
            legal = LogMass.of(row)
            raw_largest, legal_mass_lost = legal.largest, free.minus(legal)
        else:
            row = logits.detach().to(torch.float32, copy=True)
            raw_largest = float(row.amax())
        largest = raw_largest
        if len(self._biased) or self._counts:
            self._add_bias_(row, step)
            self._penalise_(row, step)
            largest = float(row.amax())
        if not math.isfinite(largest):
            raise NoLegalTokenError(step.describe(), self._cause(step.mask, raw_largest, largest))
        if self._sampling.temperature > 0.0:  # greedy: the best token is in every truncation
            truncate_(row, largest, self._sampling.temperature, self._truncation)
        return row, legal_mass_lost

    def legal_mass_lost(self, logits: torch.Tensor, token_ids: TokenIds) -> float:
        """Return -log of the legal mass of a row of all tokens, as `process` does.

        Args:
            logits: (width,) floating point.
            token_ids: the legal tokens.
        """
        row = self._vocabulary_row(logits)
        legal = row[torch.as_tensor(token_ids, device=row.device)]
        return math.inf if float(legal.amax()) == -math.inf else LogMass.of(row).minus(LogMass.of(legal))

    def count(self, token_id: int, free_text_mask: PackedMask | None) -> None:
        """Count a generated token for the penalties, where they reach it.

        Args:
            token_id: the token.
            free_text_mask: that of the step at which it was drawn.
        """
        if self._sampling.has_penalties and self.reaches(token_id, free_text_mask):
            self._counts[token_id] = self._counts.get(token_id, 0) + 1

    def for_places(
        self, places: Sequence[DrawPlace], device: torch.device, *, has_masses: bool = True
    ) -> tuple[SampleOptions, SampleNoise]:
        """Return how structgen.kernels.sample draws at several places as `draw` does, with tensors on a device.

        Args:
            places: where; what was counted so far lies before all of them.
            device: that of the logits.
            has_masses: whether the legal mass is wanted.
        """
        key = len(places), device
        if key not in self._fixed_options:
            self._fixed_options[key] = self._options_of(len(places), device)
        penalties = self._penalties_at(places, device) if self._sampling.has_penalties else None
        options = replace(self._fixed_options[key], penalties=penalties, has_masses=has_masses)
        seed = self._seed - (1 << 64) if self._seed >> 63 else self._seed
        noise = [[seed] * len(places), [place.position for place in places], [place.stream for place in places]]
        return options, SampleNoise(*sent(torch.tensor(noise, dtype=torch.int64), device))

    def _options_of(self, num: int, device: torch.device) -> SampleOptions:
        """Return the options that are the same at every place and in every round."""
        sampling = self._sampling

        def every(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.full((num,), value, dtype=dtype, device=device)

        bias = None
        if len(self._biased):
            values = torch.zeros((1, self._vocabulary_size), dtype=torch.float32)
            values[0, torch.from_numpy(self._biased)] = self._bias
            bias = Bias(values=sent(values, device), row=every(0, torch.int32))
        return SampleOptions(
            temperature=every(sampling.temperature),
            # More than all tokens is all of them, and fits.
            top_k=None if sampling.top_k is None else every(min(sampling.top_k, self._vocabulary_size), torch.int32),
            top_p=None if sampling.top_p is None else every(sampling.top_p),
            min_p=None if not sampling.min_p else every(sampling.min_p),
            bias=bias,
        )

    def _penalties_at(self, places: Sequence[DrawPlace], device: torch.device) -> Penalties:
        """Return the penalties of places, with what was counted before each of them."""
        sampling, num = self._sampling, len(places)
        counted = [
            (row, token_id, times)
            for row, place in enumerate(places)
            for token_id, times in [*self._counts.items(), *((token_id, 1) for token_id in place.drafted)]
        ]
        counts = torch.zeros((num, self._vocabulary_size), dtype=torch.int32, device=device)
        if counted:
            rows, token_ids, times = sent(torch.tensor(counted, dtype=torch.int64), device).unbind(1)
            counts.index_put_((rows, token_ids), times.int(), accumulate=True)
        is_everywhere = sampling.penalty_scope is PenaltyScope.EVERYWHERE
        free_row = [EVERYWHERE if is_everywhere else place.free_row for place in places]
        return Penalties(
            counts=counts,
            free_row=sent(torch.tensor(free_row, dtype=torch.int32), device),
            repetition=torch.full((num,), sampling.repetition_penalty, device=device),
            presence=torch.full((num,), sampling.presence_penalty, device=device),
            frequency=torch.full((num,), sampling.frequency_penalty, device=device),
        )

    def _vocabulary_row(self, logits: torch.Tensor) -> torch.Tensor:
        """Return a float32 copy with exactly one column per id of the vocabulary."""
        row = logits.detach()[: self._vocabulary_size].to(torch.float32, copy=True)
        num_missing = self._vocabulary_size - row.shape[0]
        if num_missing > 0:
            # The tokenizer knows ids that the model has no logits for: their probability is zero.
            row = torch.nn.functional.pad(row, (0, num_missing), value=-math.inf)
        return row

    def reaches(self, token_id: int, free_text_mask: PackedMask | None) -> bool:
        """Say whether the penalties touch a token where these are free text."""
        if self._sampling.penalty_scope is PenaltyScope.EVERYWHERE:
            return True
        return free_text_mask is not None and bool(free_text_mask[token_id >> 5] >> (token_id & 31) & 1)

    def _add_bias_(self, row: torch.Tensor, step: Step) -> None:
        """Add the bias of the legal tokens, in place."""
        columns, which = step.columns(self._biased)
        if len(columns):
            row[torch.as_tensor(columns, device=row.device)] += self._bias[which].to(row.device)

    def _penalise_(self, row: torch.Tensor, step: Step) -> None:
        """Apply the penalties, in place, to the legal tokens that were counted."""
        counts = {t: n for t, n in self._counts.items() if self.reaches(t, step.free_text_mask)}
        columns, which = step.columns(np.array(list(counts), dtype=np.int64))
        if not len(columns):
            return
        places = torch.as_tensor(columns, device=row.device)
        values = row[places]
        factor = self._sampling.repetition_penalty
        if factor != 1.0:
            values = torch.where(values > 0, values / factor, values * factor)
        num_times = torch.tensor(list(counts.values()), dtype=row.dtype, device=row.device)[which]
        row[places] = values - self._sampling.presence_penalty - self._sampling.frequency_penalty * num_times

    def _cause(self, mask: PackedMask, raw_largest: float, largest: float) -> str:
        """Say why no legal token can be drawn."""
        if not mask.any():
            return "the mask allows no token at all"
        if raw_largest == -math.inf:
            return "the model gives every legal token probability zero (logits of -inf)"
        if not math.isfinite(raw_largest):
            return f"the model's logits are not numbers ({raw_largest}); check its weights and dtype"
        if bool(self._bias.isinf().any()) and largest == -math.inf:
            return "logit_bias bans every legal token that the model gives a probability; lift the ban on one of them"
        return f"logit_bias or a penalty makes a logit {largest}; use smaller values"
