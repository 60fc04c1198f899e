"""gather_head: logits of listed tokens against plain loops, on the CPU and by the kernel for CUDA."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from sampling_cases import masks_of
from structgen.kernels import gather_head
from structgen.kernels.gather_head import HeadWeights, gather_head_, gather_head_reference_
from structgen.kernels.sample import Masks, SampleNoise, SampleOptions, sample
from triton_scripts import run_script

Form = Callable[[torch.Tensor, torch.Tensor, HeadWeights, Masks], None]

# (batch, vocabulary, width of the logits, size of a hidden state, rows of the weights)
SHAPES = [(1, 97, 97, 8, 97), (2, 1000, 1003, 576, 1024), (7, 97, 90, 257, 97), (3, 6000, 6000, 16, 6000)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def check(
    form: Form, shape: tuple[int, int, int, int, int], dtype: torch.dtype, *, has_bias: bool, soft_cap: float | None
) -> None:
    """Compare one batch with dot products in float64, and everything beside them with what stood there."""
    batch, num_tokens, width, size, num_rows = shape
    generator = np.random.default_rng(batch + size)

    def floats(*sizes: int) -> torch.Tensor:
        return torch.from_numpy(generator.standard_normal(sizes)).to(dtype)

    hidden, weight = floats(batch, size + 3)[:, :size], floats(num_rows, size)
    head = HeadWeights(weight, floats(num_rows) if has_bias else None, soft_cap)
    # The first row has too many tokens for a list where the vocabulary is large; the last row is not asked for.
    bits = generator.random((batch, num_tokens)) < np.array([1.0] + [0.1] * (batch - 1))[:, None]
    masks = masks_of(bits, [*range(batch - 1), -1] if batch > 1 else [0])
    wide = torch.full((width + 2, batch), 7.0, dtype=dtype)
    logits = wide[1:-1].T
    form(logits, hidden, head, masks)
    whole = hidden.double() @ weight.double().T + (0 if head.bias is None else head.bias.double())
    tolerance = 4 * torch.finfo(dtype).eps * max(1.0, float(whole.abs().max()))
    if soft_cap is not None:
        whole = torch.tensor([[soft_cap * math.tanh(x / soft_cap) for x in row] for row in whole.tolist()])
    want = torch.full((batch, width), 7.0, dtype=torch.float64)
    for row in range(batch):
        if masks.row[row] >= 0 and bits[row].sum() <= 4096:
            for token_id in np.flatnonzero(bits[row]):
                if token_id < width:
                    want[row, token_id] = whole[row, token_id]
    assert torch.allclose(logits.double(), want, rtol=0, atol=tolerance)
    assert (wide[[0, -1]] == 7).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", [gather_head_, gather_head_reference_])
def test_listed_logits_are_the_dot_products(form: Form, shape: tuple[int, int, int, int, int]) -> None:
    """Listed columns hold weights times hidden state, bias and soft cap included; nothing else is touched."""
    for dtype in DTYPES:
        check(form, shape, dtype, has_bias=dtype != torch.float16, soft_cap=30.0 if shape[0] == 2 else None)


def test_the_sampler_reads_nothing_else() -> None:
    """Draws from a row of nan in which only the listed logits were written are draws from the whole row."""
    generator = np.random.default_rng(5)
    bits = generator.random((3, 200)) < 0.2
    masks = masks_of(bits, [0, 1, 2])
    hidden, weight = torch.randn(3, 16), torch.randn(200, 16)
    logits = torch.full((3, 200), math.nan)
    gather_head_(logits, hidden, HeadWeights(weight), masks)
    number = torch.arange(3)
    given = {
        "masks": masks,
        "options": SampleOptions(temperature=torch.ones(3), has_masses=False),
        "noise": SampleNoise(number, number, number),
    }
    drawn = sample(logits, **given)
    assert drawn.error.tolist() == [0, 0, 0]
    assert torch.equal(drawn.token_id, sample(hidden @ weight.T, **given).token_id)


def test_what_does_not_fit_is_refused() -> None:
    """Wrong dtypes and shapes, and masks without lists, are refused before anything is written."""
    masks = masks_of(np.ones((1, 40), dtype=bool), [0])
    logits, hidden, weight = torch.zeros(1, 40), torch.zeros(1, 8), torch.zeros(40, 8)
    no_lists = Masks(words=masks.words, row=masks.row, num_tokens=40)
    assert masks.lists is not None
    spread = (masks.lists[0], torch.zeros(80, dtype=torch.int32)[::2])
    for arguments, error, message in (
        ((logits, hidden.double(), HeadWeights(weight), masks), TypeError, "one floating dtype"),
        ((logits, hidden[:, :4], HeadWeights(weight), masks), ValueError, "do not fit"),
        ((logits, hidden, HeadWeights(weight, torch.zeros(3)), masks), ValueError, "does not fit"),
        ((logits, hidden, HeadWeights(weight.T.contiguous().T), masks), ValueError, "contiguous"),
        ((logits, hidden, HeadWeights(weight, torch.zeros(80)[::2]), masks), ValueError, "contiguous"),
        ((logits, hidden, HeadWeights(weight), dataclasses.replace(masks, lists=spread)), ValueError, "contiguous"),
        ((logits, hidden, HeadWeights(weight), no_lists), ValueError, "lists"),
    ):
        with pytest.raises(error, match=message):
            gather_head_(*arguments)
    assert not logits.any()


INTERPRETED = """
import torch
from structgen.kernels.gather_head import _gather_triton_
from test_gather_head import DTYPES, SHAPES, check

for number, shape in enumerate(SHAPES[:3]):
    check(_gather_triton_, shape, DTYPES[number % 3], has_bias=number % 2 == 0, soft_cap=30.0 if number else None)
print("checked")
"""


def test_kernel_in_the_interpreter() -> None:
    """The CUDA kernel, run by Triton's interpreter on CPU tensors, computes the same."""
    pytest.importorskip("triton")
    assert run_script(INTERPRETED, TRITON_INTERPRET="1") == "checked"


def test_the_grid_covers_the_longest_list() -> None:
    """Blocks of rows fill a list of 4,096 ids exactly."""
    assert gather_head.MAX_LISTED_TOKENS % gather_head.ROWS == 0
