"""Time of the keyed draw on the CPU beside its plain numpy form, which makes the noise of every token.

    python benchmarks/gumbel.py

One thread, after a warm-up; each row is a size, then the median and the 10% and 90% quantiles in microseconds.
"""

from __future__ import annotations

import torch
from measuring import print_head, print_quantiles

from structgen.kernels.gumbel import NoiseKey, gumbel_argmax, gumbel_argmax_reference


def main() -> None:
    """Print the table: sizes by spread of the logits; a flat row is the worst case."""
    torch.set_num_threads(1)
    print_head()
    for size in (49_152, 128_256):
        for spread in (0.0, 3.0, 8.0):
            logits = torch.randn(size, generator=torch.Generator().manual_seed(0)) * spread
            largest, key = float(logits.max()), NoiseKey(1, 2)
            name = f"{size:>7} spread {spread:g}"
            print_quantiles(name, lambda x=logits, m=largest, k=key: gumbel_argmax(x, m, 1.0, k))
            print_quantiles(name + ", plain", lambda x=logits, k=key: gumbel_argmax_reference(x.numpy(), 1.0, k), 20)


if __name__ == "__main__":
    main()
