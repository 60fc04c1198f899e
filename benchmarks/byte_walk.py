"""Time of the mask rows of many states from a byte table: the plain form of the device's walk on the CPU.

    python benchmarks/byte_walk.py

One thread, after a warm-up, median milliseconds; a schema over a made-up vocabulary of 128,256 tokens. On a CPU
kernels/token_columns.py does this for all states of a machine in a few milliseconds; this form is the device's.
"""

from __future__ import annotations

import numpy as np
import torch
from advance import NUM_TOKENS, frozen
from measuring import median_us

from structgen.kernels.byte_walk import TokenTexts, byte_walk_


def main() -> None:
    """Print a row for each number of states."""
    torch.set_num_threads(1)
    machine = frozen()
    letters = np.random.default_rng(0).integers(97, 123, (NUM_TOKENS, 6)).astype(np.uint8)
    texts = TokenTexts.of([bytes(word[: 1 + index % 6]) for index, word in enumerate(letters)])
    byte_class = torch.from_numpy(machine.byte_class.copy())
    table = torch.from_numpy(machine.byte_next.copy())
    print(f"{'states':>8}{'ms':>10}")
    for num_states in (1, 16, 64):
        state = torch.arange(num_states, dtype=torch.int32)
        out = torch.zeros((num_states, (NUM_TOKENS + 31) // 32), dtype=torch.int32)
        once = median_us(lambda s=state, o=out: byte_walk_(texts, byte_class, table, s, o), 3)
        print(f"{num_states:>8}{once / 1e3:>10.1f}")


if __name__ == "__main__":
    main()
