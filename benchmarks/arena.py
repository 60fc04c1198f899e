"""Time to put a frozen machine into an arena on the CPU, and what it takes there.

    python benchmarks/arena.py

One thread; a schema over the bytes and made-up words of a vocabulary of 128,256 tokens.
"""

from __future__ import annotations

import statistics
import time

import torch
from advance import frozen

from structgen.kernels.arena import Arena


def main() -> None:
    """Print one line: milliseconds for a machine, with and without room, and MiB."""
    torch.set_num_threads(1)
    machine = frozen()
    times = []
    for _ in range(9):
        arena = Arena(vocabulary_digest=machine.vocabulary_digest, num_tokens=machine.num_tokens, num_private_rows=64)
        clock = time.perf_counter()
        arena.add(machine)
        times.append((time.perf_counter() - clock) * 1e3)
    print(f"{machine!r}: {statistics.median(times):.1f} ms, {arena.num_bytes / 2**20:.1f} MiB with its room")


if __name__ == "__main__":
    main()
