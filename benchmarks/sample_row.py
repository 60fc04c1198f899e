"""Time of a draw from one row on the CPU, with masses and without, beside its plain form, which sorts.

    python benchmarks/sample_row.py

One thread, after a warm-up; each row is a size, the spread of the logits (0.05 is flat, 8 is peaked), the share of
legal tokens and the options, then the least time in microseconds: with masses, without, and of the plain form.
"""

from __future__ import annotations

import numpy as np
import torch
from measuring import least_us

from structgen.kernels.gumbel import NoiseKey
from structgen.kernels.sample import Masks, SampleNoise, SampleOptions, sample_reference
from structgen.kernels.sample_row import GivenRow, RowNumbers, sample_row

OPTIONS = {
    "greedy": RowNumbers(0.0),
    "temperature 1": RowNumbers(1.0),
    "0.7, top_p 0.9": RowNumbers(0.7, top_p=0.9),
    "top_k 40": RowNumbers(1.0, top_k=40),
    "min_p 0.05": RowNumbers(1.0, min_p=0.05),
}


def plain_options(numbers: RowNumbers) -> SampleOptions:
    """Return the same for a batch of one row."""
    return SampleOptions(
        temperature=torch.tensor([numbers.temperature]),
        top_k=None if numbers.top_k is None else torch.tensor([numbers.top_k], dtype=torch.int32),
        top_p=None if numbers.top_p is None else torch.tensor([numbers.top_p]),
        min_p=None if numbers.min_p is None else torch.tensor([numbers.min_p]),
    )


def print_row(size: int, spread: float, share: float) -> None:
    """Print the times of one row by options."""
    logits = torch.randn(size, generator=torch.Generator().manual_seed(0)) * spread
    bits = np.random.default_rng(0).random(size) < share
    bits[:3] = True
    words = np.packbits(bits, bitorder="little").view(np.int32)
    key, row = NoiseKey(1, 2).packed(), GivenRow(logits, words, size)
    masks = Masks(words=torch.from_numpy(words)[None], row=torch.zeros(1, dtype=torch.int32), num_tokens=size)
    noise = SampleNoise(*torch.tensor([[1], [2], [0]]))
    for name, numbers in OPTIONS.items():
        packed, options = numbers.packed(), plain_options(numbers)
        quick = [
            least_us(lambda p=packed, h=has_masses: sample_row(row, p, key=key, has_masses=h))
            for has_masses in (True, False)
        ]
        plain = least_us(lambda o=options: sample_reference(logits[None], masks=masks, options=o, noise=noise), 3)
        cells = "".join(f"{value:>10.0f}" for value in (*quick, plain))
        print(f"{size:>8}{spread:>8g}{share:>8g}  {name:<16}{cells}")


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"{'size':>8}{'spread':>8}{'legal':>8}  {'options':<16}{'masses':>10}{'none':>10}{'plain':>10}")
    for size in (49_152, 128_256, 262_144):
        for spread in (0.05, 3.0, 8.0):
            for share in (0.0, 0.5, 1.0):
                print_row(size, spread, share)


if __name__ == "__main__":
    main()
