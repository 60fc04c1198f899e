"""Time of the batched draw beside its plain form, which sorts and makes the noise of every token, on the CPU.

    python benchmarks/sample.py

One thread, after a warm-up; each row is a size and its options, then the least time in microseconds per row of the
batch: of `sample`, and of the plain form.
"""

from __future__ import annotations

import torch
from measuring import least_us

from structgen.kernels.sample import Masks, SampleNoise, SampleOptions, sample, sample_reference

BATCH = 4
SPREAD = 3.0


def all_options() -> dict[str, SampleOptions]:
    """Name the options that are timed."""
    one = torch.ones(BATCH)
    top_p, top_k = torch.full((BATCH,), 0.95), torch.full((BATCH,), 50, dtype=torch.int32)
    return {
        "greedy": SampleOptions(temperature=torch.zeros(BATCH)),
        "temperature 1": SampleOptions(temperature=one),
        "top_k 50": SampleOptions(temperature=one, top_k=top_k),
        "top_p 0.95": SampleOptions(temperature=one, top_p=top_p),
        "top_k 50, top_p 0.95": SampleOptions(temperature=one, top_k=top_k, top_p=top_p),
    }


def main() -> None:
    """Print the table; every token is legal, the worst case."""
    torch.set_num_threads(1)
    print(f"{'':<40}{'sample':>12}{'plain':>12}")
    for size in (49_152, 128_256):
        logits = torch.randn(BATCH, size, generator=torch.Generator().manual_seed(0)) * SPREAD
        words = torch.full((1, size // 32), -1, dtype=torch.int32)
        masks = Masks(words=words, row=torch.zeros(BATCH, dtype=torch.int32), num_tokens=size)
        number = torch.arange(BATCH)
        noise = SampleNoise(number, number, torch.zeros_like(number))
        for name, options in all_options().items():
            given = {"masks": masks, "options": options, "noise": noise}
            quick = least_us(lambda x=logits, g=given: sample(x, **g), 10) / BATCH
            plain = least_us(lambda x=logits, g=given: sample_reference(x, **g), 3) / BATCH
            print(f"{size:>8}  {name:<30}{quick:>12.0f}{plain:>12.0f}")


if __name__ == "__main__":
    main()
