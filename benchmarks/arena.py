"""Time to put a frozen machine into an arena on the CPU, and what it takes there.

    python benchmarks/arena.py

One thread; a schema over the bytes and made-up words of a vocabulary of 128,256 tokens.
"""

from __future__ import annotations

import torch
from advance import frozen, new_arena
from measuring import median_us


def main() -> None:
    """Print one line: milliseconds for a machine, with and without room, and MiB."""
    torch.set_num_threads(1)
    machine = frozen()
    arena = new_arena(machine)
    took = median_us(lambda one: one.add(machine), 9, prepare=lambda: new_arena(machine))
    arena.add(machine)
    print(f"{machine!r}: {took / 1e3:.1f} ms, {arena.num_bytes / 2**20:.1f} MiB with its room")


if __name__ == "__main__":
    main()
