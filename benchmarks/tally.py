"""Time of adding up a step on the CPU, in its plain form: what device mode does beside its draws.

    python benchmarks/tally.py

One thread, after a warm-up, median microseconds.
"""

from __future__ import annotations

import torch
from measuring import median_us

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
        tally = Tally.new(num_rows)
        median = median_us(lambda t=tally, s=step: tally_(t, s))
        print(f"{num_rows:>4} rows, {num_nodes} places each {median:>8.1f} us")


if __name__ == "__main__":
    main()
