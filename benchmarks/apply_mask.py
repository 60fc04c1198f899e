"""Time of apply_mask on the CPU beside its plain torch form.

    python benchmarks/apply_mask.py

One thread, after a warm-up; each row is a size, then the median and the 10% and 90% quantiles in microseconds.
"""

from __future__ import annotations

import numpy as np
import torch
from measuring import print_head, print_quantiles

from structgen.kernels.apply_mask import apply_mask_, apply_mask_reference_


def main() -> None:
    """Print the table: sizes by share of legal tokens and dtype."""
    torch.set_num_threads(1)
    print_head()
    generator = np.random.default_rng(0)
    for size in (49_152, 128_256):
        for share in (0.001, 0.33, 0.95):
            mask = np.packbits(generator.random(size) < share, bitorder="little").view(np.int32)[None]
            tensor_mask = torch.from_numpy(mask)
            for dtype in (torch.float32, torch.bfloat16):
                logits = torch.randn(1, size).to(dtype)
                name = f"{size:>7} {share:>6.1%} {str(dtype).removeprefix('torch.')}"
                print_quantiles(name, lambda x=logits, m=mask: apply_mask_(x, m))
                print_quantiles(name + ", plain", lambda x=logits, m=tensor_mask: apply_mask_reference_(x, m))


if __name__ == "__main__":
    main()
