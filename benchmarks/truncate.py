"""Time of a truncation of one row on the CPU beside its plain form, which sorts.

    python benchmarks/truncate.py

One thread, after a warm-up; each row is a size, the spread of its logits and the options, then the least time in
microseconds of both.
"""

from __future__ import annotations

import torch
from measuring import least_us

from structgen.kernels.truncate import Truncation, truncate_, truncate_reference_


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    options = {
        "top_k 50": Truncation(top_k=50),
        "top_p 0.95": Truncation(top_p=0.95),
        "both": Truncation(top_k=50, top_p=0.95),
        "min_p 0.05": Truncation(min_p=0.05),
    }
    print(f"{'size':>8}{'spread':>8}  {'options':<12}{'truncate':>10}{'plain':>10}")
    for size in (49_152, 128_256):
        for spread in (0.05, 3.0, 8.0):
            row = torch.randn(size, generator=torch.Generator().manual_seed(0)) * spread
            for name, truncation in options.items():
                largest = float(row.max())
                each = [
                    least_us(lambda x, f=form, m=largest, t=truncation: f(x, m, 1.0, t), prepare=row.clone)
                    for form in (truncate_, truncate_reference_)
                ]
                print(f"{size:>8}{spread:>8g}  {name:<12}" + "".join(f"{value:>10.0f}" for value in each))


if __name__ == "__main__":
    main()
