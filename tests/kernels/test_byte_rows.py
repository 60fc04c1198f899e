"""Rows split into two of seven bits: against the plain form, and what of a row is lost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from structgen.kernels.byte_rows import (
    LARGEST,
    STEP,
    join_rows,
    join_rows_reference,
    split_rows,
    split_rows_reference,
)


@given(num_rows=st.integers(0, 5), width=st.integers(1, 70), seed=st.integers(0, 2**32), exponent=st.integers(-25, 30))
@example(num_rows=2, width=24, seed=128, exponent=-4)
def test_both_forms_agree(num_rows: int, width: int, seed: int, exponent: int) -> None:
    """Parts and scales bit for bit; and what was split is put together again, within half a step."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn((num_rows, width), generator=generator) * 10.0**exponent
    parts, scales = split_rows(rows)
    plain_parts, plain_scales = split_rows_reference(rows)
    assert torch.equal(parts, plain_parts)
    assert torch.equal(scales, plain_scales)
    assert int(parts.abs().max() if num_rows else 0) <= 64
    joined = join_rows(parts, scales)
    assert torch.equal(joined, join_rows_reference(parts, scales))
    first = width // 3
    some = join_rows(parts, scales, first=first, num_columns=width // 2)
    assert torch.equal(some, joined[:, first : first + width // 2])
    # float32 rounds five times on the way, each by 2**-24 at most: 0.005 of half a step, together.
    bound = rows.abs().amax(1, keepdim=True) * (0.5 / LARGEST + 5 * 2.0**-24) if num_rows else rows
    assert bool(((joined - rows).abs() <= bound).all())


def test_rows_that_are_at_an_end() -> None:
    """Zeros stay zeros; nan and infinities spoil their own row only; parts of another layout are read rightly."""
    rows = torch.ones(5, 40)
    rows[0], rows[1, 7], rows[2, 39], rows[3, 3] = 0.0, torch.nan, torch.inf, -torch.inf
    parts, scales = split_rows(rows)
    joined = join_rows(parts, scales)
    assert not joined[0].any()
    assert bool(joined[1:4].isnan().all())
    torch.testing.assert_close(joined[4], rows[4], rtol=1e-6, atol=0)
    strided = torch.randn(40, 6).T
    assert torch.equal(split_rows(strided)[0], split_rows_reference(strided)[0])
    assert float(STEP * parts[4, 0] + parts[9, 0]) == LARGEST


def test_what_does_not_fit() -> None:
    """Other dtypes, shapes and numbers of rows are said by name."""
    with pytest.raises(TypeError, match=r"must be float32 on the CPU, not torch\.float64 on cpu"):
        split_rows(torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"shape \(3,\) must have two dimensions"):
        split_rows(torch.ones(3))
    with pytest.raises(ValueError, match="3 rows of products are not two for each of 2 scales"):
        join_rows(torch.ones(3, 2), torch.ones(2))
    with pytest.raises(ValueError, match="no 2 columns from 1 on in products of 2"):
        join_rows(torch.ones(4, 2), torch.ones(2), first=1, num_columns=2)
    with pytest.raises(TypeError, match=r"scales must be float32 on the CPU, not torch\.float64"):
        join_rows(torch.ones(4, 2), torch.ones(2, dtype=torch.float64))
