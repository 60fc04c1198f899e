"""Time of adding up a step on the CPU, in its plain form: what device mode does beside its draws.

    python benchmarks/tally.py

One thread, after a warm-up, median microseconds.
"""

from __future__ import annotations

import statistics
import time

import torch

from structgen.kernels.sample import Sampled
from structgen.kernels.tally import Drawn, Tally, tally_


def main() -> None:
    """Print a line for each size."""
    torch.set_num_threads(1)
    for num_rows, num_nodes in ((1, 1), (64, 1), (1, 5), (64, 5)):
        num_places = num_rows * num_nodes
        sampled = Sampled.empty(num_places, num_tokens=50, device="cpu")
        for tensor in (sampled.token_id, sampled.log_legal_mass):
            tensor.zero_()
        draft = {}
        if num_nodes > 1:
            draft = {
                "parent": torch.zeros((num_rows, num_nodes), dtype=torch.int32),
                "num_accepted": torch.zeros(num_rows, dtype=torch.int32),
            }
        step = Drawn(mask_row=torch.zeros(num_places, dtype=torch.int32), sampled=sampled, **draft)
        tally, times = Tally.new(num_rows), []
        for _ in range(200):
            clock = time.perf_counter()
            tally_(tally, step)
            times.append((time.perf_counter() - clock) * 1e6)
        print(f"{num_rows:>4} rows, {num_nodes} places each {statistics.median(times):>8.1f} us")


if __name__ == "__main__":
    main()
