"""Time of the keyed draw on the CPU beside its plain numpy form, which makes the noise of every token.

    python benchmarks/gumbel.py

One thread, after a warm-up; each row is a size, then the median and the 10% and 90% quantiles in microseconds.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import torch

from structgen.kernels.gumbel import NoiseKey, gumbel_argmax, gumbel_argmax_reference


def row(name: str, call: Callable[[], object], rounds: int = 200) -> None:
    """Print the quantiles of a call's time."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    deciles = statistics.quantiles(times, n=10)
    print(f"{name:<44}{statistics.median(times):>10.0f}{deciles[0]:>10.0f}{deciles[-1]:>10.0f}")


def main() -> None:
    """Print the table: sizes by spread of the logits; a flat row is the worst case."""
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}")
    print(f"{'':<44}{'median':>10}{'10%':>10}{'90%':>10}")
    for size in (49_152, 128_256):
        for spread in (0.0, 3.0, 8.0):
            logits = torch.randn(size, generator=torch.Generator().manual_seed(0)) * spread
            largest, key = float(logits.max()), NoiseKey(1, 2)
            name = f"{size:>7} spread {spread:g}"
            row(name, lambda x=logits, m=largest, k=key: gumbel_argmax(x, m, 1.0, k))
            row(name + ", plain", lambda x=logits, k=key: gumbel_argmax_reference(x.numpy(), 1.0, k), 20)


if __name__ == "__main__":
    main()
