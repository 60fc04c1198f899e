"""Time of the head of a few tokens beside the full head, on the CPU.

    python benchmarks/gather_head.py

One thread, float32, one row; the size of SmolLM2's head, which is 49,152 x 576. Each row is a number of listed tokens,
then the least time in microseconds of the listed rows, and of the whole head.
"""

from __future__ import annotations

import torch
from measuring import least_us

from structgen.kernels.gather_head import HeadWeights, gather_head_
from structgen.kernels.sample import Masks

NUM_TOKENS, SIZE = 49_152, 576


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    hidden, weight = torch.randn(1, SIZE), torch.randn(NUM_TOKENS, SIZE)
    logits = torch.zeros(1, NUM_TOKENS)
    print(f"{'listed':>8}{'listed rows':>14}{'whole head':>14}")
    for num in (1, 16, 256, 4096):
        ids = torch.arange(0, NUM_TOKENS, NUM_TOKENS // num, dtype=torch.int32)[:num]
        words = torch.zeros(1, NUM_TOKENS // 32, dtype=torch.int32)  # the lists say it all
        lists = (torch.tensor([0, num]), ids)
        masks = Masks(words=words, row=torch.zeros(1, dtype=torch.int32), num_tokens=NUM_TOKENS, lists=lists)
        some = least_us(lambda m=masks: gather_head_(logits, hidden, HeadWeights(weight), m))
        whole = least_us(lambda: torch.nn.functional.linear(hidden, weight))
        print(f"{num:>8}{some:>14.0f}{whole:>14.0f}")


if __name__ == "__main__":
    main()
