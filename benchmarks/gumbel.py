"""Time of the noise of a row and of the plain draw with it, which the draw of `sample_row` does without, on the CPU.

    python benchmarks/gumbel.py

One thread, after a warm-up; each row is a size, then the median and the 10% and 90% quantiles in microseconds.
"""

from __future__ import annotations

import numpy as np
import torch
from measuring import print_head, print_quantiles

from structgen.kernels.gumbel import NoiseKey, gumbel_argmax_reference, gumbel_noise


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print_head()
    key = NoiseKey(1, 2)
    for size in (49_152, 128_256):
        logits, token_ids = np.random.default_rng(0).standard_normal(size) * 3.0, np.arange(size)
        print_quantiles(f"{size:>7} noise", lambda i=token_ids: gumbel_noise(i, key), 20)
        print_quantiles(f"{size:>7} draw", lambda x=logits: gumbel_argmax_reference(x, 1.0, key), 20)


if __name__ == "__main__":
    main()
