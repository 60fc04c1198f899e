"""truncate: the border of one row against a full sort, and what it must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structgen.kernels._numba.truncate import border, fill_weights
from structgen.kernels.gumbel import LEAST_TEMPERATURE
from structgen.kernels.truncate import Truncation, truncate_, truncate_reference_


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
    got, want, largest = row.clone(), row.clone(), float(row.max())
    truncation = Truncation(top_k, top_p, min_p)
    truncate_(got, largest, temperature, truncation)
    truncate_reference_(want, largest, temperature, truncation)
    if border_margin(row, temperature, top_p) > 1e-9:
        assert torch.equal(got, want)
    assert torch.equal(got[got > -math.inf], row[got > -math.inf])
    assert int(got.argmax()) == int(row.argmax())


@pytest.mark.parametrize("spread", [0.02, 3.0, 9.0])
def test_full_size_rows(spread: float) -> None:
    """The same on 128,256 logits, flat and peaked."""
    row = torch.randn(128_256, generator=torch.Generator().manual_seed(2)) * spread
    largest = float(row.max())
    for truncation in (Truncation(top_k=50), Truncation(top_p=0.95), Truncation(top_k=2000, top_p=0.5, min_p=1e-4)):
        got, want = row.clone(), row.clone()
        truncate_(got, largest, 0.75, truncation)
        truncate_reference_(want, largest, 0.75, truncation)
        assert torch.equal(got, want)


def test_illegal_tokens_do_not_change_a_bit() -> None:
    """The legal tokens alone are truncated exactly as among illegal ones, whatever rounding does at the border."""
    for seed in range(200):
        row = random_row(2000, 2.0, 0.3, seed) + torch.rand(2000, generator=torch.Generator().manual_seed(seed)) / 7
        legal = row > -math.inf
        alone, largest = row[legal].clone(), float(row.max())
        # The border lies on a sum exactly, up to rounding: the sum of the first 40.
        top_p = float(torch.softmax(row.double(), 0).sort(descending=True).values[:40].sum()) + 1e-6
        for each in (row, alone):
            truncate_(each, largest, 1.0, Truncation(top_p=top_p))
        assert torch.equal(row[legal], alone)


def test_weights_are_those_of_the_exponential() -> None:
    """The weights are exp within 2e-9 of itself, 0 for -inf, and the same bits wherever a value stands."""
    values = -np.concatenate([np.linspace(0, 60, 509), [1e-30, np.inf, 0.0]]).astype(np.float32)
    weights, one = np.zeros(512), np.zeros(512)
    fill_weights(values, 0, 512, 0.0, 1 / math.log(2), weights)
    assert np.allclose(weights, np.exp(values.astype(np.float64)), rtol=2e-9, atol=0)
    assert weights[-2] == 0.0
    assert weights[-1] == 1.0
    for place in (3, 100, 508):
        fill_weights(values, place, place + 1, 0.0, 1 / math.log(2), one)
        assert one[0] == weights[place]


def test_nothing_to_cut_leaves_a_row_as_it_is() -> None:
    """Options that keep everything change nothing, not even illegal tokens."""
    row = random_row(100, 1.0, 0.5, 3)
    got = row.clone()
    for truncation in (Truncation(), Truncation(top_k=100, top_p=1.0, min_p=0.0)):
        truncate_(got, float(row.max()), 1.0, truncation)
        assert torch.equal(got, row)


def test_strided_rows_are_written_in_place() -> None:
    """A column of a matrix is truncated where it stands, and its neighbours are not touched."""
    matrix = torch.randn(300, 3, generator=torch.Generator().manual_seed(1))
    before = matrix.clone()
    truncate_(matrix[:, 1], float(matrix[:, 1].max()), 1.0, Truncation(top_k=7))
    assert int((matrix[:, 1] > -math.inf).sum()) == 7
    assert torch.equal(matrix[:, [0, 2]], before[:, [0, 2]])


def test_only_one_float32_row_is_truncated() -> None:
    """Other shapes and dtypes are refused."""
    for bad in (torch.zeros(2, 3), torch.zeros(3, dtype=torch.float64)):
        with pytest.raises(TypeError, match="one row of float32"):
            truncate_(bad, 0.0, 1.0, Truncation(top_k=1))


def test_a_prefix_that_ends_with_its_bin_ends_there() -> None:
    """Sums of one bin in two orders differ in the last bit, and the share may lie between: no further bin is kept."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        near, far = -0.01 * rng.random(6), -5.0 - 3.0 * rng.random(10)
        row = np.concatenate([[0.0], near[1:], far]).astype(np.float32)
        weights = np.zeros(512)
        fill_weights(row, 0, len(row), 0.0, 1.0 / math.log(2.0), weights)
        share = sum(weights[:6]) / weights.sum()
        for close in (share, np.nextafter(share, 1.0), np.nextafter(share, 0.0)):
            value, num_equal = border(row, 0.0, 1.0, 1 << 62, close)
            assert 5 <= (row >= value).sum() <= 7
            assert num_equal >= 1
