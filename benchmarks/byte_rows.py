"""Time of splitting rows for products with weights of one byte, and of putting products together, on the CPU.

    python benchmarks/byte_rows.py

One thread; each row is what, rows and width, then the median, the 10% and 90% quantiles in microseconds.
"""

from __future__ import annotations

import torch
from measuring import print_head, print_quantiles

from structgen.kernels.byte_rows import join_rows, join_rows_reference, split_rows, split_rows_reference


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print_head()
    for num_rows, width in ((1, 576), (8, 576), (8, 4096)):
        rows = torch.randn(num_rows, width, generator=torch.Generator().manual_seed(0))
        parts, scales = split_rows(rows)
        name = f"{num_rows} x {width}"
        print_quantiles(f"{name} split", lambda x=rows: split_rows(x))
        print_quantiles(f"{name} split, plain", lambda x=rows: split_rows_reference(x))
        print_quantiles(f"{name} join", lambda x=parts, s=scales: join_rows(x, s))
        print_quantiles(f"{name} join, plain", lambda x=parts, s=scales: join_rows_reference(x, s))


if __name__ == "__main__":
    main()
