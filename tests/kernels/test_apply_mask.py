"""apply_mask: each device's kernel against a plain loop over Python ints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from structgen.kernels import apply_mask
from structgen.kernels.apply_mask import apply_mask_, apply_mask_reference_
from triton_scripts import AHEAD_OF_TIME, run_script

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# (batch, vocabulary, width of the logits, mask rows)
SHAPES = [
    (1, 1, 1, 1),
    (1, 31, 31, 1),
    (2, 32, 32, 2),
    (3, 33, 33, 1),
    (5, 257, 320, 5),
    (2, 257, 352, 1),
    (4, 1000, 1003, 4),
    (2, 64, 4097, 2),
]


def random_mask(num_rows: int, vocabulary_size: int, seed: int = 0) -> np.ndarray:
    """Make packed rows with full words, empty words and mixed words, and no bit past the vocabulary."""
    generator = np.random.default_rng(seed)
    num_words = -(-vocabulary_size // 32)
    words = generator.integers(-(2**31), 2**31, size=(num_rows, num_words)).astype(np.int32)
    kind = generator.integers(0, 3, size=words.shape)
    words[kind == 0] = 0
    words[kind == 1] = -1
    excess = num_words * 32 - vocabulary_size
    if excess:
        words[:, -1] &= np.int32((1 << (32 - excess)) - 1)
    return words


def expected(logits: torch.Tensor, mask: np.ndarray) -> torch.Tensor:
    """Mask by asking each bit of each Python int."""
    result = logits.clone()
    for row in range(logits.shape[0]):
        words = [int(word) for word in mask[row if len(mask) > 1 else 0]]
        for column in range(logits.shape[1]):
            if column >= 32 * len(words) or not words[column // 32] >> (column % 32) & 1:
                result[row, column] = float("-inf")
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cpu_and_reference_equal_the_bits(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    """Both forms set exactly the columns without a bit, of every dtype, width and number of mask rows."""
    batch, vocabulary_size, width, num_mask_rows = shape
    logits = torch.randn(batch, width, generator=torch.Generator().manual_seed(1)).to(dtype)
    mask = random_mask(num_mask_rows, vocabulary_size)
    want = expected(logits, mask)
    by_numba, by_torch = logits.clone(), logits.clone()
    apply_mask_(by_numba, mask)
    apply_mask_reference_(by_torch, torch.from_numpy(mask.copy()))
    assert torch.equal(by_numba, want)
    assert torch.equal(by_torch, want)


def test_strides_are_honoured() -> None:
    """Rows of a wider tensor and transposed logits are masked in place, and nothing beside them is touched."""
    mask = random_mask(3, 70)
    wide = torch.randn(3, 200)
    before = wide.clone()
    apply_mask_(wide[:, 10:90], mask)
    assert torch.equal(wide[:, 10:90], expected(before[:, 10:90], mask))
    assert torch.equal(wide[:, :10], before[:, :10])
    assert torch.equal(wide[:, 90:], before[:, 90:])
    transposed = torch.randn(80, 3)
    before = transposed.clone()
    apply_mask_(transposed.T, mask)
    assert torch.equal(transposed.T, expected(before.T, mask))


def test_one_row_read_only_and_tensor_masks() -> None:
    """A single row of logits, a read-only numpy mask and a mask tensor all work."""
    mask = random_mask(1, 45)
    mask.flags.writeable = False
    logits = torch.randn(45)
    want = expected(logits[None], mask)[0]
    for given in (mask, mask[0], torch.tensor(mask)):
        row = logits.clone()
        apply_mask_(row, given)
        assert torch.equal(row, want)


def test_nan_and_infinite_logits_are_masked_too() -> None:
    """An illegal nan or infinity becomes minus infinity."""
    logits = torch.tensor([float("nan"), float("inf"), 1.0])
    apply_mask_(logits, np.array([0b100], dtype=np.int32))
    assert logits.tolist() == [float("-inf"), float("-inf"), 1.0]


@pytest.mark.parametrize(
    ("logits", "mask", "error", "message"),
    [
        (torch.zeros(2, 40), np.zeros((3, 2), np.int32), ValueError, "3 mask rows do not fit 2 rows"),
        (torch.zeros(2, 40), np.zeros((1, 3), np.int32), ValueError, "too many for 40 logits"),
        (torch.zeros(2, 40), np.zeros((1, 2), np.int64), TypeError, "packed int32"),
        (torch.zeros(2, 40, dtype=torch.int32), np.zeros((1, 2), np.int32), TypeError, "float16"),
        (torch.zeros(40).expand(2, 40), np.zeros((1, 2), np.int32), ValueError, "share memory"),
        (torch.zeros(1, 2, 40), np.zeros((1, 2), np.int32), ValueError, "one or two dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(
    logits: torch.Tensor, mask: np.ndarray, error: type[Exception], message: str
) -> None:
    """Wrong shapes and dtypes are refused before anything is changed."""
    with pytest.raises(error, match=message):
        apply_mask_(logits, mask)


INTERPRETED = """
import numpy as np
import torch

from structgen.kernels.apply_mask import _apply_triton_
from test_apply_mask import DTYPES, SHAPES, expected, random_mask

for shape in SHAPES:
    for dtype in DTYPES:
        batch, vocabulary_size, width, num_mask_rows = shape
        logits = torch.randn(batch, width, generator=torch.Generator().manual_seed(2)).to(dtype)
        mask = random_mask(num_mask_rows, vocabulary_size, seed=3)
        want = expected(logits, mask)
        _apply_triton_(logits, torch.from_numpy(mask))
        assert torch.equal(logits, want), (shape, dtype)
wide, mask = torch.randn(3, 200), random_mask(3, 70)
before = wide.clone()
_apply_triton_(wide[:, 10:90], torch.from_numpy(mask))
assert torch.equal(wide[:, 10:90], expected(before[:, 10:90], mask))
assert torch.equal(wide[:, :10], before[:, :10]) and torch.equal(wide[:, 90:], before[:, 90:])
transposed = torch.randn(80, 3)
before = transposed.clone()
_apply_triton_(transposed.T, torch.from_numpy(np.asfortranarray(mask)))
assert torch.equal(transposed.T, expected(before.T, mask))
print("checked")
"""

COMPILED = (
    AHEAD_OF_TIME
    + """
from structgen.kernels._triton.apply_mask import apply_mask_kernel

for dtype in ("*fp16", "*bf16", "*fp32", "*fp64"):
    build(apply_mask_kernel, {"logits": dtype, "mask": "*i32", "num_columns": "i32", "num_words": "i32",
          "logits_row_stride": "i64", "logits_column_stride": "i32", "mask_row_stride": "i32",
          "mask_column_stride": "i32"}, {"BLOCK": 1024})
print("checked")
"""
)


def test_triton_kernel_in_the_interpreter() -> None:
    """The CUDA kernel, run by Triton's interpreter on CPU tensors, gives the same bits for every shape and stride."""
    pytest.importorskip("triton")
    assert run_script(INTERPRETED, TRITON_INTERPRET="1") == "checked"


def test_triton_kernel_compiles_for_ampere_and_hopper(tmp_path: Path) -> None:
    """The kernel compiles ahead of time to sm_80 and sm_90 machine code, for every dtype, without a GPU."""
    pytest.importorskip("triton")
    assert run_script(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "checked"


def test_triton_launches_on_the_device_of_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton takes the current CUDA device, so that must be the one of the logits while the kernel is launched."""
    triton_side = pytest.importorskip("structgen.kernels._triton.apply_mask")
    current: list[torch.Tensor] = []

    @contextlib.contextmanager
    def device_of(tensor: torch.Tensor) -> Iterator[None]:
        current.append(tensor)
        yield
        current.pop()

    launched = []

    class Kernel:
        def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
            return lambda logits, *_, **__: launched.append(current[-1] is logits)

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(triton_side, "apply_mask_kernel", Kernel())
    apply_mask._apply_triton_(torch.zeros(1, 40), torch.zeros(1, 2, dtype=torch.int32))
    assert launched == [True]
