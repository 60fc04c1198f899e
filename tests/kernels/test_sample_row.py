"""One row on the CPU: what a truncation keeps, against a full sort, what it must not depend on, and what is read."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structgen.kernels._numba.weights import ONE, fill_quanta
from structgen.kernels.gumbel import LEAST_TEMPERATURE, NoiseKey
from structgen.kernels.sample_row import ALL, GivenRow, RowChanges, RowNumbers, sample_row


def kept_of(row: torch.Tensor, numbers: RowNumbers, token_ids: np.ndarray = ALL) -> torch.Tensor:
    """Return a row, or one of named tokens, with -inf for what is cut; -inf is illegal."""
    bits = np.zeros(-(-len(row) // 32) * 32, dtype=bool)
    bits[: len(row)] = (row > -math.inf).numpy()
    kept = np.empty(len(row), dtype=np.float32)
    given = GivenRow(row, np.packbits(bits, bitorder="little").view(np.int32), len(row), ids=token_ids)
    sample_row(given, numbers.packed(), kept=kept)
    return torch.from_numpy(kept)


def sorted_cut(row: torch.Tensor, numbers: RowNumbers) -> torch.Tensor:
    """Return the same by a full sort in float64."""
    temperature, largest = max(numbers.temperature, LEAST_TEMPERATURE), float(row.max())
    values, order = row.double().sort(descending=True, stable=True)
    weights = ((values - largest) / temperature).exp()
    is_out = torch.arange(len(row)) >= (numbers.top_k or len(row))
    if numbers.top_p is not None and numbers.top_p < 1.0:
        is_out |= weights.cumsum(0) - weights >= (numbers.top_p - 1e-6) * weights.sum()
        is_out[0] = False
    kept = row.clone()
    kept[order[is_out]] = -math.inf
    if numbers.min_p:
        kept[row.double() < float(np.float32(largest + temperature * math.log(numbers.min_p)))] = -math.inf
    return kept


def random_row(size: int, spread: float, legal_share: float, seed: int) -> torch.Tensor:
    """Make logits with many equals, some of them illegal, and at least one legal."""
    generator = np.random.default_rng(seed)
    logits = (np.round(generator.standard_normal(size) * spread * 8) / 8).astype(np.float32)
    is_illegal = generator.random(size) >= legal_share
    is_illegal[generator.integers(size)] = False
    logits[is_illegal] = -np.inf
    return torch.from_numpy(logits)


def border_margin(row: torch.Tensor, temperature: float, top_p: float | None) -> float:
    """Return how near any sum of probabilities comes to the one that decides, in float64."""
    if top_p is None:
        return math.inf
    shares = torch.softmax((row.double() - row.max()) / temperature, 0).sort(descending=True).values
    return float((shares.cumsum(0) - (top_p - 1e-6)).abs().min())


@given(
    size=st.sampled_from([1, 2, 5, 97, 513, 1000, 3000]),
    spread=st.sampled_from([0.0, 0.1, 1.0, 4.0, 30.0]),
    legal_share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    temperature=st.sampled_from([LEAST_TEMPERATURE, 1e-3, 0.3, 1.0, 2.5, 1e4]),
    top_k=st.sampled_from([None, 1, 3, 40, 900, 10_000]),
    top_p=st.sampled_from([None, 1e-3, 0.05, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([None, 0.001, 0.1, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=300, deadline=None)
def test_border_equals_that_of_a_full_sort(
    size: int,
    spread: float,
    legal_share: float,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int,
) -> None:
    """The same tokens stay as after a sort in float64, at any spread, temperature and mask, equals kept by id."""
    row = random_row(size, spread, legal_share, seed)
    numbers = RowNumbers(temperature, top_k, top_p, min_p)
    got = kept_of(row, numbers)
    if border_margin(row, temperature, top_p) > 1e-9:
        assert torch.equal(got, sorted_cut(row, numbers))
    assert torch.equal(got[got > -math.inf], row[got > -math.inf])
    assert int(got.argmax()) == int(row.argmax())
    legal = row > -math.inf
    assert torch.equal(kept_of(row[legal], numbers, np.flatnonzero(legal)), got[legal])


@pytest.mark.parametrize("spread", [0.02, 3.0, 9.0])
def test_full_size_rows(spread: float) -> None:
    """The same on 128,256 logits, flat and peaked."""
    row = torch.randn(128_256, generator=torch.Generator().manual_seed(2)) * spread
    for options in ({"top_k": 50}, {"top_p": 0.95}, {"top_k": 2000, "top_p": 0.5, "min_p": 1e-4}, {"top_k": 128_000}):
        numbers = RowNumbers(0.75, **options)  # type: ignore[arg-type]
        assert torch.equal(kept_of(row, numbers), sorted_cut(row, numbers))


def test_illegal_tokens_do_not_change_a_bit() -> None:
    """The legal tokens alone are truncated exactly as among illegal ones, whatever rounding does at the border."""
    for seed in range(200):
        row = random_row(2000, 2.0, 0.3, seed) + torch.rand(2000, generator=torch.Generator().manual_seed(seed)) / 7
        legal = row > -math.inf
        # The border lies on a sum exactly, up to rounding: the sum of the first 40.
        top_p = float(torch.softmax(row.double(), 0).sort(descending=True).values[:40].sum()) + 1e-6
        numbers = RowNumbers(1.0, top_p=top_p)
        assert torch.equal(kept_of(row[legal], numbers, np.flatnonzero(legal)), kept_of(row, numbers)[legal])


def test_weights_are_those_of_the_exponential() -> None:
    """They are exp within 2e-9 of itself and half a quantum, 0 for -inf, and the same wherever a value stands."""
    values = -np.concatenate([np.linspace(0, 60, 509), [1e-30, np.inf, 0.0]]).astype(np.float32)
    quanta, few = np.zeros(512, dtype=np.int64), np.zeros(64, dtype=np.int64)
    fill_quanta(values, 512, 0.0, 1 / math.log(2), quanta)
    assert np.allclose(quanta, np.exp(values.astype(np.float64)) * ONE, rtol=2e-9, atol=0.51)
    assert quanta[-2] == 0
    assert quanta[-1] == ONE
    for shift in (1, 3, 17, 440):
        fill_quanta(values[shift : shift + 64].copy(), 64, 0.0, 1 / math.log(2), few)
        assert np.array_equal(few, quanta[shift : shift + 64])


def test_nothing_to_cut_leaves_a_row_as_it_is() -> None:
    """Options that keep everything change nothing."""
    row = random_row(100, 1.0, 0.5, 3)
    for numbers in (RowNumbers(1.0), RowNumbers(1.0, top_k=100, top_p=1.0, min_p=0.0), RowNumbers(0.0, top_k=1)):
        assert torch.equal(kept_of(row, numbers), row)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_finite_half_is_read_as_it_is(dtype: torch.dtype) -> None:
    """All bit patterns of two bytes, denormal ones too, at every place of a group; strided rows are read as well."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    halves = every[every.isfinite()]
    for row in (halves, halves[5:], torch.stack([halves, halves], dim=1)[:, 1]):
        assert torch.equal(kept_of(row, RowNumbers(1.0)), row.float())


def test_a_row_of_one_value_is_cut_by_id() -> None:
    """Where all are equal, even with others far below, the first ids are kept, as many as the share asks for."""
    for far in (0.0, -30.0, -1e30):
        row = torch.zeros(49_152)
        row[40_000:] = far
        num = 40_000 if far else 49_152
        assert (kept_of(row, RowNumbers(1.0, top_k=30_000)) > -1).nonzero().flatten().tolist() == list(range(30_000))
        kept = (kept_of(row, RowNumbers(1.0, top_p=0.25)) > -1).nonzero().flatten()
        assert kept.tolist() == list(range(num // 4))


def test_what_is_illegal_or_far_below_is_measured_as_it_is() -> None:
    """An infinite bias of an illegal token is nothing; a legal one 100 nats below the others has lost these 100."""
    row = torch.tensor([100.0, 0.0])
    changes = RowChanges(np.array([0]), np.array([np.inf], np.float32), np.zeros(1, np.int32), None)
    key = NoiseKey(1, 2).packed()
    drawn = sample_row(GivenRow(row, np.array([2], np.int32), 2, changes), RowNumbers(1.0).packed(), key=key)
    assert (drawn.token_id, drawn.error, drawn.best) == (1, 0, 0.0)
    assert drawn.legal_mass_lost == pytest.approx(100.0, rel=1e-6)
