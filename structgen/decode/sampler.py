"""From a row of logits and a mask to a token: bias, mask, penalties, temperature, truncation, draw.

The draw is a Gumbel-max with the noise of (seed, position, token, stream), see structgen.kernels.gumbel; at temperature
0 it is the largest logit, the lowest id of equals. Which tokens a truncation keeps is in structgen.kernels.sample.
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
from structgen.kernels.gumbel import NoiseKey
from structgen.kernels.sample import EVERYWHERE, Bias, Penalties, SampleNoise, SampleOptions
from structgen.kernels.sample_row import ALL, NO_WORDS, GivenRow, RowChanges, RowDraw, RowNumbers, sample_row

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
        self._numbers = RowNumbers(
            sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repetition=sampling.repetition_penalty,
            presence=sampling.presence_penalty,
            frequency=sampling.frequency_penalty,
        ).packed()
        self._fixed_options: dict[tuple[int, torch.device], SampleOptions] = {}
        bias = sampling.logit_bias or {}
        outside = [token_id for token_id in bias if token_id >= vocabulary_size]
        if outside:
            raise OptionError(f"logit_bias names token {outside[0]}, but the vocabulary ends at {vocabulary_size - 1}")
        biased = sorted(bias)
        values = np.array([bias[token_id] for token_id in biased], dtype=np.float64)
        with np.errstate(over="ignore"):  # what is too large for a logit is infinite, and told when it is drawn from
            # Tokens with a bias, and those that were counted.
            self._changes = RowChanges(
                np.array(biased, dtype=np.int64), values.astype(np.float32), np.zeros(len(biased), np.int32), None
            )

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
        other._changes = self._changes._replace(counts=self._changes.counts.copy())
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
        key = NoiseKey(self._seed, step.position, step.stream).packed()
        drawn = self._checked(sample_row(self._row(logits, step), self._numbers, key=key), logits, step)
        return Draw(drawn.token_id, _mass(drawn, step))

    def process(self, logits: torch.Tensor, step: Step) -> tuple[torch.Tensor, float | None]:
        """Return the row that is drawn from, and -log of the legal mass.

        Returns:
            (vocabulary,) float32 on the CPU, or one for each of the step's token ids, in which only the support of the
            draw is above -inf. The draw is from its softmax at the temperature, which is not yet applied; the largest
            entry is finite. The mass is None where the step names token ids, see `legal_mass_lost`.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        kept = torch.empty(self._vocabulary_size if step.token_ids is None else len(step.token_ids))
        drawn = self._checked(sample_row(self._row(logits, step), self._numbers, kept=kept.numpy()), logits, step)
        return kept, _mass(drawn, step)

    def _row(self, logits: torch.Tensor, step: Step) -> GivenRow:
        """Return what is drawn from."""
        changes = self._changes
        if self._sampling.penalty_scope is not PenaltyScope.EVERYWHERE:
            free_words = NO_WORDS if step.free_text_mask is None else step.free_text_mask
            changes = changes._replace(free_words=free_words)
        return GivenRow(
            logits, step.mask, self._vocabulary_size, changes, ALL if step.token_ids is None else step.token_ids
        )

    def _checked(self, drawn: RowDraw, logits: torch.Tensor, step: Step) -> RowDraw:
        """Return what was drawn, or raise what made it impossible."""
        if drawn.error:
            raise NoLegalTokenError(step.describe(), self._cause(logits, step, drawn.best))
        return drawn

    def legal_mass_lost(self, logits: torch.Tensor, token_ids: TokenIds) -> float:
        """Return -log of the legal mass of a row of all tokens, as `process` does.

        Args:
            logits: (width,) floating point.
            token_ids: the legal tokens.
        """
        bits = np.zeros(-(-self._vocabulary_size // 32) * 32, dtype=np.uint8)
        bits[token_ids] = 1
        words = np.packbits(bits, bitorder="little").view("<i4").astype(np.int32, copy=False)
        return sample_row(GivenRow(logits, words, self._vocabulary_size), self._numbers).legal_mass_lost

    def count(self, token_id: int, free_text_mask: PackedMask | None) -> None:
        """Count a generated token for the penalties, where they reach it.

        Args:
            token_id: the token.
            free_text_mask: that of the step at which it was drawn.
        """
        if self._sampling.has_penalties and self.reaches(token_id, free_text_mask):
            self._changes = self._changes.counted(token_id)

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
        # A place more where they are odd: what begins at no multiple of 16 bytes makes Triton compile other kernels.
        padded = [*places, *places[: len(places) % 2]]
        noise = [[seed] * len(padded), [place.position for place in padded], [place.stream for place in padded]]
        return options, SampleNoise(*sent(torch.tensor(noise, dtype=torch.int64), device)[:, : len(places)])

    def _options_of(self, num: int, device: torch.device) -> SampleOptions:
        """Return the options that are the same at every place and in every round."""
        sampling = self._sampling

        def every(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.full((num,), value, dtype=dtype, device=device)

        bias = None
        if sampling.logit_bias:
            values = torch.zeros((1, self._vocabulary_size), dtype=torch.float32)
            values[0, torch.from_numpy(self._changes.ids)] = torch.from_numpy(self._changes.bias)
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
        before = list(zip(self._changes.ids.tolist(), self._changes.counts.tolist(), strict=True))
        counted = [
            (row, token_id, times)
            for row, place in enumerate(places)
            for token_id, times in [*before, *((token_id, 1) for token_id in place.drafted)]
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

    def reaches(self, token_id: int, free_text_mask: PackedMask | None) -> bool:
        """Say whether the penalties touch a token where these are free text."""
        if self._sampling.penalty_scope is PenaltyScope.EVERYWHERE:
            return True
        return free_text_mask is not None and bool(free_text_mask[token_id >> 5] >> (token_id & 31) & 1)

    def _cause(self, logits: torch.Tensor, step: Step, best: float) -> str:
        """Say why no legal token can be drawn, where the best logit is so after bias and penalties."""
        if not step.mask.any():
            return "the mask allows no token at all"
        raw = self._largest_given(logits, step)
        if raw == -math.inf:
            return "the model gives every legal token probability zero (logits of -inf)"
        if not math.isfinite(raw):
            return f"the model's logits are not numbers ({raw}); check its weights and dtype"
        if bool(np.isinf(self._changes.bias).any()) and best == -math.inf:
            return "logit_bias bans every legal token that the model gives a probability; lift the ban on one of them"
        return f"logit_bias or a penalty makes a logit {best}; use smaller values"

    def _largest_given(self, logits: torch.Tensor, step: Step) -> float:
        """Return the largest of the legal logits as they were given; nan if one is, -inf if there are none."""
        values = logits.detach().float().cpu()
        if step.token_ids is None:
            bits = np.unpackbits(step.mask.view(np.uint8), bitorder="little")[: self._vocabulary_size]
            values = values[: len(bits)][torch.from_numpy(bits[: len(values)]).bool()]
        return float(values.amax()) if len(values) else -math.inf


def _mass(drawn: RowDraw, step: Step) -> float | None:
    """Return -log of the legal mass, None where only the logits of legal tokens are known."""
    return drawn.legal_mass_lost if step.token_ids is None else None
