"""Time to accept drafts of a batch on the CPU, plain form: where the nodes stand, the draws, and block verification.

    python benchmarks/accept.py

One thread, after a warm-up, median microseconds; chains of four tokens, laws over 32,768 tokens.
"""

from __future__ import annotations

import torch
from advance import in_arena
from measuring import median_us

from structgen.kernels.accept import Accepted, BatchDraft, ChainLaws, Places, accept_, decide_by_ratio_, draft_places_
from structgen.kernels.advance import Registers

NUM_DRAFTED = 4
NUM_COLUMNS = 32_768


def main() -> None:
    """Print a row for each batch size."""
    _, tables, start = in_arena()
    print(f"{'rows':>6}{'places':>12}{'accept_':>12}{'ratio':>12}")
    for num_rows in (1, 8):
        registers = Registers.new(num_rows, ring_size=64)
        drawn = torch.tensor([[*b'{"nam']] * num_rows, dtype=torch.int32)
        draft = BatchDraft.chain(torch.cat([drawn[:, :1], drawn[:, :-1]], dim=1))
        places, out = Places.new(num_rows, NUM_DRAFTED + 1), Accepted.new(num_rows, NUM_DRAFTED + 1)
        target = torch.rand(num_rows, NUM_DRAFTED + 1, NUM_COLUMNS).softmax(dim=2)
        laws = ChainLaws(
            target=target,
            draft=target[:, 1:].clone(),
            num_drafted=torch.full((num_rows,), NUM_DRAFTED, dtype=torch.int32),
            coins=torch.rand(num_rows, NUM_DRAFTED + 1),
        )

        def accept(r: Registers = registers, d: BatchDraft = draft, x: torch.Tensor = drawn, o: Accepted = out) -> None:
            r.state.fill_(start)
            r.num_left.fill_(1 << 20)
            r.is_done.zero_()
            accept_(tables, r, d, x, o)

        times = [
            median_us(lambda r=registers, d=draft, p=places: draft_places_(tables, r, d, p)),
            median_us(accept),
            median_us(lambda d=draft, w=laws, x=drawn: decide_by_ratio_(d, w, x.clone()), 20),
        ]
        print(f"{num_rows:>6}" + "".join(f"{one:>12.0f}" for one in times))


if __name__ == "__main__":
    main()
