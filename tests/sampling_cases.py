"""Batches to draw from, with each row's options also as the host's Sampler takes them."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from structgen.config import PenaltyScope, Sampling
from structgen.decode.sampler import Draw, Sampler, Step
from structgen.kernels.gumbel import NoiseKey, gumbel_noise
from structgen.kernels.sample import (
    EVERYWHERE,
    NO_LEGAL_TOKEN,
    NO_TOKEN,
    NOT_FINITE,
    Bias,
    Masks,
    Penalties,
    SampleNoise,
    SampleOptions,
)

# Numbers that float32 holds, so that the host's float64 options are the same.
TEMPERATURES = (0.0, 0.25, 0.75, 1.0, 1.5, 1e-6)
TOP_K = (None, 1, 3, 40, 5000)
TOP_P = (None, 0.0625, 0.5, 0.9375, 1.0)
MIN_P = (None, 0.03125, 0.5, 1.0)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A batch: what `sample` takes, and the same row by row for the host."""

    logits: torch.Tensor
    masks: Masks
    options: SampleOptions
    noise: SampleNoise
    samplings: Sequence[Sampling]
    keys: Sequence[NoiseKey]

    def arguments(self) -> dict[str, Any]:
        """Return the keywords of `sample`."""
        return {"masks": self.masks, "options": self.options, "noise": self.noise}

    def host_draw(self, row: int) -> Draw:
        """Draw one row by the host's sampler."""
        size, key, words = self.masks.num_tokens, self.keys[row], self.masks.words.numpy()
        sampler = Sampler(self.samplings[row], seed=key.seed, vocabulary_size=size)
        free_text_mask = None
        if self.options.penalties is not None:
            free_row = int(self.options.penalties.free_row[row])
            free_text_mask = words[free_row] if free_row >= 0 else None
            every = np.full(words.shape[1], -1, dtype=np.int32)
            for token_id, times in enumerate(self.options.penalties.counts[row].tolist()):
                for _ in range(times):
                    sampler.count(token_id, every)
        mask = words[int(self.masks.row[row])]
        where = Step(
            mask=mask,
            free_text_mask=free_text_mask,
            position=key.position,
            stream=key.stream,
            describe=lambda: f"row {row}",
        )
        return sampler.draw(self.logits[row], where)

    def margin(self, row: int) -> float:
        """Return how far the best perturbed score of a row is above the second, before truncation."""
        mask = np.unpackbits(self.masks.words[int(self.masks.row[row])].numpy().view(np.uint8), bitorder="little")
        size = self.masks.num_tokens
        z = np.full(size, -np.inf)
        known = self.logits[row, :size].double().numpy()
        z[: len(known)] = known
        z[mask[:size] == 0] = -np.inf
        temperature = max(self.samplings[row].temperature, 1e-30)
        scores = np.sort((z - z.max()) / temperature + gumbel_noise(np.arange(size), self.keys[row]))
        return float(scores[-1] - scores[-2])


def masks_of(bits: np.ndarray, row: Sequence[int]) -> Masks:
    """Pack (rows, vocabulary) booleans."""
    size = bits.shape[1]
    padded = np.zeros((len(bits), -(-size // 32) * 32), dtype=bool)
    padded[:, :size] = bits
    words = np.packbits(padded, axis=1, bitorder="little").view(np.int32)
    ids = [np.flatnonzero(one) if one.sum() <= 4096 else np.zeros(0) for one in bits]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in ids])])
    lists = (torch.from_numpy(starts), torch.from_numpy(np.concatenate(ids).astype(np.int32)))
    return Masks(words=torch.from_numpy(words), row=torch.tensor(row, dtype=torch.int32), num_tokens=size, lists=lists)


def case(
    logits: torch.Tensor,
    bits: np.ndarray,
    samplings: Sequence[Sampling],
    *,
    mask_row: Sequence[int] | None = None,
    free_row: Sequence[int] | None = None,
    counts: torch.Tensor | None = None,
    seed: int = 7,
) -> Case:
    """Make a batch; bits are (rows of masks, vocabulary), and mask_row is 0, 1, 2 ... unless given."""
    batch = len(logits)
    row = list(range(batch)) if mask_row is None else mask_row
    keys = [NoiseKey((seed * 0x9E3779B97F4A7C15 + i) % 2**64, 1000 * i + 2**31, i) for i in range(batch)]
    masks = masks_of(bits, row)
    return Case(
        logits=logits,
        masks=masks,
        options=options_of(samplings, masks, free_row=free_row, counts=counts),
        noise=SampleNoise(
            torch.from_numpy(np.array([key.seed for key in keys], dtype=np.uint64).view(np.int64)),
            torch.tensor([key.position for key in keys]),
            torch.tensor([key.stream for key in keys]),
        ),
        samplings=samplings,
        keys=keys,
    )


def options_of(
    samplings: Sequence[Sampling],
    masks: Masks,
    *,
    free_row: Sequence[int] | None,
    counts: torch.Tensor | None,
) -> SampleOptions:
    """Write options of the host as tensors; each table is left out where no row needs it."""

    def column(values: list[Any], dtype: torch.dtype, *, off: float) -> torch.Tensor | None:
        if all(value is None for value in values):
            return None
        return torch.tensor([off if value is None else value for value in values], dtype=dtype)

    temperature = torch.tensor([one.temperature for one in samplings])
    penalties = None
    if counts is not None:
        scopes = [-1] * len(samplings) if free_row is None else list(free_row)
        everywhere = [one.penalty_scope is PenaltyScope.EVERYWHERE for one in samplings]
        scope = [EVERYWHERE if every else row for every, row in zip(everywhere, scopes, strict=True)]
        penalties = Penalties(
            counts=counts,
            free_row=torch.tensor(scope, dtype=torch.int32),
            repetition=torch.tensor([one.repetition_penalty for one in samplings]),
            presence=torch.tensor([one.presence_penalty for one in samplings]),
            frequency=torch.tensor([one.frequency_penalty for one in samplings]),
        )
    bias = None
    if any(one.logit_bias for one in samplings):
        having = [i for i, one in enumerate(samplings) if one.logit_bias]
        values = torch.zeros(len(having), masks.num_tokens)
        for place, i in enumerate(having):
            for token_id, value in (samplings[i].logit_bias or {}).items():
                values[place, token_id] = value
        rows = [having.index(i) if i in having else -1 for i in range(len(samplings))]
        bias = Bias(values=values, row=torch.tensor(rows, dtype=torch.int32))
    return SampleOptions(
        temperature=temperature,
        top_k=column([one.top_k for one in samplings], torch.int32, off=0),
        top_p=column([one.top_p for one in samplings], torch.float32, off=1.0),
        min_p=column([one.min_p for one in samplings], torch.float32, off=0.0),
        bias=bias,
        penalties=penalties,
    )


def random_sampling(generator: np.random.Generator, size: int, *, plain: bool = False) -> Sampling:
    """Draw options; plain ones have neither bias nor penalties."""

    def pick(values: Sequence[Any]) -> Any:
        return values[int(generator.integers(len(values)))]

    options: dict[str, Any] = {
        "temperature": pick(TEMPERATURES),
        "top_k": pick(TOP_K),
        "top_p": pick(TOP_P),
        "min_p": pick(MIN_P),
    }
    if not plain:
        some = generator.integers(0, size, 5).tolist()
        options |= {
            "logit_bias": pick([None, {some[0]: -np.inf, some[1]: 2.5}, dict.fromkeys(some, 0.5)]),
            "repetition_penalty": pick([1.0, 1.25]),
            "presence_penalty": pick([0.0, 0.5]),
            "frequency_penalty": pick([0.0, 0.125]),
            "penalty_scope": pick(list(PenaltyScope)),
        }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Sampling(**options)


def random_case(
    seed: int,
    *,
    batch: int,
    size: int,
    width: int | None = None,
    dtype: torch.dtype = torch.float32,
    samplings: Sequence[Sampling] | None = None,
) -> Case:
    """Draw a batch: rounded logits (ties), masks of many densities, options of every kind."""
    generator = np.random.default_rng(seed)
    width = size if width is None else width
    spread = generator.choice([0.1, 1.0, 4.0], size=(batch, 1))
    logits = torch.from_numpy(np.round(generator.standard_normal((batch, width)) * spread * 16) / 16).to(dtype)
    density = generator.choice([1.0, 0.5, 4 / size, 0.0], size=(batch, 1))
    bits = generator.random((batch, size)) < density
    bits[np.arange(batch), generator.integers(0, min(size, width), batch)] = True
    plain = bool(generator.integers(2))
    samplings = samplings or [random_sampling(generator, size, plain=plain) for _ in range(batch)]
    counts = torch.from_numpy(generator.integers(0, 3, (batch, size)).astype(np.int32))
    return case(
        logits,
        bits,
        samplings,
        free_row=generator.integers(-1, batch, batch).tolist(),
        counts=None if plain else counts,
        seed=seed,
    )


def edge_cases() -> list[tuple[str, Case, list[int | None], list[int]]]:
    """Name rows with what they must draw (None: any token) and their error."""
    size = 97
    zero = torch.zeros(1, size)
    everything, nothing, one = np.ones((1, size), bool), np.zeros((1, size), bool), np.zeros((1, size), bool)
    one[0, 93] = True
    bad = {
        value: zero.clone().index_fill(1, torch.tensor([5]), value) for value in (math.nan, math.inf, -math.inf, 3e38)
    }
    without_5 = everything.copy()
    without_5[0, 5] = False
    only_5 = ~without_5
    greedy, plain = Sampling.greedy(), Sampling()
    wide = torch.full((1, size + 7), 90.0)
    wide[:, :size] = torch.arange(size) / 8
    tied = torch.tensor([[0.0, 2.0, 1.0, 2.0, 1.0, 1.0]])
    only_first = dataclasses.replace(case(tied, np.ones((1, 6), bool), [Sampling(top_p=0.5)]))
    only_first = dataclasses.replace(only_first, options=dataclasses.replace(only_first.options, top_p=torch.zeros(1)))
    return [
        ("all legal", case(zero, everything, [plain]), [None], [0]),
        ("one legal", case(zero, one, [plain]), [93], [0]),
        ("none legal", case(zero, nothing, [plain]), [NO_TOKEN], [NO_LEGAL_TOKEN]),
        ("none legal, greedy", case(zero, nothing, [greedy]), [NO_TOKEN], [NO_LEGAL_TOKEN]),
        ("probability zero", case(bad[-math.inf], only_5, [plain]), [NO_TOKEN], [NO_LEGAL_TOKEN]),
        ("legal nan", case(bad[math.nan], everything, [plain]), [NO_TOKEN], [NOT_FINITE]),
        ("legal infinity", case(bad[math.inf], everything, [greedy]), [NO_TOKEN], [NOT_FINITE]),
        ("illegal nan", case(bad[math.nan], without_5, [greedy]), [0], [0]),
        ("illegal infinity", case(bad[math.inf], without_5, [greedy]), [0], [0]),
        ("not asked", case(zero, everything, [plain], mask_row=[-1]), [NO_TOKEN], [0]),
        ("banned", case(zero, only_5, [Sampling(logit_bias={5: -math.inf})]), [NO_TOKEN], [NO_LEGAL_TOKEN]),
        ("biased past float32", case(bad[3e38], only_5, [Sampling(logit_bias={5: 3e38})]), [NO_TOKEN], [NOT_FINITE]),
        ("greedy, equals", case(tied, np.ones((1, 6), bool), [greedy]), [1], [0]),
        ("greedy, padded", case(wide, everything, [greedy]), [96], [0]),
        ("top_k 1, equals", case(tied, np.ones((1, 6), bool), [Sampling(top_k=1)]), [1], [0]),
        ("top_p 0", only_first, [1], [0]),
        ("top_p 1", case(tied, np.ones((1, 6), bool), [Sampling(top_p=1.0)]), [None], [0]),
        ("narrow logits", case(zero[:, :90], one | only_5, [plain]), [5], [0]),
        ("no logits", case(zero[:, :90], one, [plain]), [NO_TOKEN], [NO_LEGAL_TOKEN]),
    ]
