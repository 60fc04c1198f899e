"""The tally kernel for CUDA: a lane for each row, which goes along its places."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def tally_kernel(  # type: ignore[no-untyped-def]  # the pointers have no Python type
    last, lost, most, num_passes, num_drafted, num_accepted,
    mask_row, token_id, log_legal_mass, parent, accepted,
    num_rows, num_nodes,
    HAS_DRAFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the places of BLOCK rows."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_row = row < num_rows
    first = row * num_nodes
    is_running = is_row & (tl.load(mask_row + first, mask=is_row, other=-1) >= 0)
    met = tl.zeros((BLOCK,), tl.int32)
    if HAS_DRAFT:
        met = tl.load(accepted + row, mask=is_running, other=0)
    total = tl.load(lost + row, mask=is_row, other=0.0)
    largest = tl.load(most + row, mask=is_row, other=0.0)
    drafted = tl.zeros((BLOCK,), tl.int64)
    for node in range(num_nodes):
        place = first + node
        is_asked = is_running & (tl.load(mask_row + place, mask=is_row, other=-1) >= 0)
        token = tl.load(token_id + place, mask=is_asked, other=-1)
        is_met = is_asked & (node <= met) & (token >= 0)
        mass = -tl.load(log_legal_mass + place, mask=is_met, other=0.0)
        total += mass.to(tl.float64)
        # A comparison with what is no number is false.
        largest = tl.where(mass > largest, mass, largest)
        if HAS_DRAFT:
            drafted += (tl.load(parent + place, mask=is_running, other=-1) >= 0).to(tl.int64)
    tl.store(lost + row, total, mask=is_running)
    tl.store(most + row, largest, mask=is_running)
    token = tl.load(token_id + first + met, mask=is_running, other=-1)
    tl.store(last + row, token, mask=is_running & (token >= 0))
    tl.store(num_passes + row, tl.load(num_passes + row, mask=is_running, other=0) + 1, mask=is_running)
    if HAS_DRAFT:
        tl.store(num_drafted + row, tl.load(num_drafted + row, mask=is_running, other=0) + drafted, mask=is_running)
        more = met.to(tl.int64)
        tl.store(num_accepted + row, tl.load(num_accepted + row, mask=is_running, other=0) + more, mask=is_running)
