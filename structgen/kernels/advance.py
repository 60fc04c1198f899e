"""Take a token in every row of a batch: class, next state, budget, ring buffer, end; all of it where the tables lie.

A step is two loads. Near the end of a budget the legal set shrinks: `mask_row_within_` gives each place the row to draw
with, and writes one of its own only where the budget takes something away. Leaves out the draws, and drafts
(accept.py).
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

from structgen.frozen_machine import STOP_CLASS
from structgen.kernels._step_values import (
    ENDED,
    FAILED,
    ILLEGAL_TOKEN,
    LEFT,
    NO_LEGAL_TOKEN,
    RUNNING,
    KernelRegisters,
    KernelTables,
    Registers,
)

if TYPE_CHECKING:
    import torch

    from structgen.kernels.arena import Tables

__all__ = [
    "ENDED",
    "FAILED",
    "ILLEGAL_TOKEN",
    "LEFT",
    "NO_LEGAL_TOKEN",
    "RUNNING",
    "Registers",
    "advance_",
    "advance_reference_",
    "has_triton",
    "mask_row_within_",
    "mask_row_within_reference_",
    "next_states",
    "settle_",
    "settle_reference_",
]

_ROWS_PER_BLOCK: Final = 128
_WORDS_PER_BLOCK: Final = 64


def advance_(tables: Tables, registers: Registers, token_id: torch.Tensor) -> None:
    """Take a token in each row that is not done, in place, and settle the row.

    Args:
        tables: of the arena that the states belong to.
        registers: changed.
        token_id: (B,) int32, what was drawn; -1 where nothing could be.

    Raises:
        TypeError: the tokens are not int32.
        ValueError: there is not one for each row.
    """
    _check_rows(registers, token_id)
    if has_triton(token_id):
        _advance_triton_(tables, registers, token_id)
    else:
        advance_reference_(tables, registers, token_id)


def settle_(tables: Tables, registers: Registers) -> None:
    """Mark, in place, the running rows that draw nothing in their state; advance_ ends with that."""
    if has_triton(registers.state):
        _advance_triton_(tables, registers, None)
    else:
        settle_reference_(tables, registers)


def mask_row_within_(tables: Tables, state: torch.Tensor, num_left: torch.Tensor, out: torch.Tensor) -> None:
    """Write the mask row that each place is drawn with, within its budget: the state's own wherever that is the same.

    Where the budget takes tokens away, the row is the private one of the place, which is written.

    Args:
        tables: of the arena that the states belong to.
        state: (places,) int32.
        num_left: (places,) int32.
        out: (places,) int32.

    Raises:
        TypeError: one of them is not int32.
        ValueError: they differ in length, or there are more places than private rows.
    """
    _check_places(tables, state, num_left, out)
    if has_triton(state):
        _mask_row_within_triton_(tables, state, num_left, out)
    elif state.device.type == "cpu":
        _mask_row_within_numba_(tables, state, num_left, out)
    else:
        mask_row_within_reference_(tables, state, num_left, out)


# ---------------------------------------------------------------------------------- plain forms


def advance_reference_(tables: Tables, registers: Registers, token_id: torch.Tensor) -> None:
    """Do what advance_ does with torch, on any device and without the host: what the kernel is held to."""
    import torch

    is_running = registers.is_done == RUNNING
    next_state, token_class = next_states(tables, registers.state, token_id)
    is_legal = next_state >= 0
    is_text = is_running & is_legal & (token_class != STOP_CLASS)
    place = (registers.ring_end % registers.ring.shape[1])[:, None]
    registers.ring.scatter_(1, place, torch.where(is_text, token_id, registers.ring.gather(1, place)[:, 0])[:, None])
    for counter, step in ((registers.ring_end, 1), (registers.position, 1), (registers.num_left, -1)):
        counter.add_(is_text, alpha=step)
    registers.state.copy_(torch.where(is_running & is_legal, next_state, registers.state))
    registers.is_done.masked_fill_(is_running & is_legal & (token_class == STOP_CLASS), ENDED)
    registers.is_done.masked_fill_(is_running & ~is_legal, FAILED)
    registers.error.masked_fill_(is_running & ~is_legal, ILLEGAL_TOKEN)
    registers.error.masked_fill_(is_running & (token_id < 0), NO_LEGAL_TOKEN)
    settle_reference_(tables, registers)


def settle_reference_(tables: Tables, registers: Registers) -> None:
    """Do what settle_ does with torch, on any device and without the host."""
    is_running = registers.is_done == RUNNING
    state = registers.state.long()
    least = tables.least_after[state]
    is_unknown = is_running & (least < 0)
    is_end = is_running & (least >= 0) & (least > registers.num_left - 1)
    may_end = tables.accepting[state]
    registers.is_done.masked_fill_(is_unknown, LEFT)
    registers.is_done.masked_fill_(is_end & may_end, ENDED)
    registers.is_done.masked_fill_(is_end & ~may_end, FAILED)
    registers.error.masked_fill_(is_end & ~may_end, NO_LEGAL_TOKEN)


def next_states(tables: Tables, state: torch.Tensor, token_id: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ((N,) the state after a token, -1 where it is not legal; (N,) its class), both int32."""
    import torch

    state = state.long()
    is_token = (token_id >= 0) & (token_id < tables.num_tokens)
    token = torch.where(is_token, token_id, 0).long()
    token_class = tables.token_class[tables.machine[state].long(), token].int() & 0xFFFF
    token_class = torch.where(is_token, token_class, 0)
    return tables.next_state[tables.step_start[state] + token_class], token_class


def mask_row_within_reference_(tables: Tables, state: torch.Tensor, num_left: torch.Tensor, out: torch.Tensor) -> None:
    """Do what mask_row_within_ does with torch, on any device and without the host; every private row is written."""
    import torch

    state = state.long()
    binds = num_left <= tables.cost_after[state]
    token_class = tables.token_class[tables.machine[state].long()].int() & 0xFFFF
    after = tables.next_state[tables.step_start[state][:, None] + token_class]
    is_in_time = tables.cost[after.clamp(min=0).long()] <= (num_left - 1)[:, None]
    is_legal = (after >= 0) & (is_in_time | (token_class == STOP_CLASS))
    shifts = torch.arange(32, dtype=torch.int32, device=state.device)
    words = (is_legal.view(len(state), -1, 32).int() << shifts).sum(dim=-1, dtype=torch.int32)
    tables.mask_rows[: len(state)] = words
    places = torch.arange(len(state), dtype=torch.int32, device=state.device)
    out.copy_(torch.where(binds, places, tables.mask_row[state]))


# ---------------------------------------------------------------------------------- checks and launches


def has_triton(tensor: torch.Tensor) -> bool:
    """Say whether Triton's kernels run where a tensor lies."""
    return tensor.device.type == "cuda" and importlib.util.find_spec("triton") is not None


def _check_rows(registers: Registers, token_id: torch.Tensor) -> None:
    import torch

    if token_id.dtype != torch.int32:
        raise TypeError(f"tokens must be int32, not {token_id.dtype}")
    if token_id.shape != registers.state.shape:
        raise ValueError(f"{tuple(token_id.shape)} tokens do not fit {len(registers.state)} rows")


def _check_places(tables: Tables, state: torch.Tensor, num_left: torch.Tensor, out: torch.Tensor) -> None:
    import torch

    for name, tensor in {"state": state, "num_left": num_left, "out": out}.items():
        if tensor.dtype != torch.int32:
            raise TypeError(f"{name} must be int32, not {tensor.dtype}")
        if tensor.shape != state.shape or tensor.dim() != 1 or not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, with a value for each place")
    if len(state) > tables.num_private_rows:
        raise ValueError(f"{len(state)} places are too many for {tables.num_private_rows} private rows: ask for more")


def _advance_triton_(tables: Tables, registers: Registers, token_id: torch.Tensor | None) -> None:
    """Advance, or only settle where there are no tokens, on CUDA."""
    import torch

    from structgen.kernels._triton.advance import advance_kernel

    num_rows = len(registers.state)
    with torch.cuda.device_of(registers.state):  # type: ignore[no-untyped-call]  # torch has no types there
        advance_kernel[(-(-num_rows // _ROWS_PER_BLOCK),)](
            KernelTables.of(tables),
            KernelRegisters.of(registers),
            registers.state if token_id is None else token_id,
            0 if token_id is None else token_id.stride(0),
            num_rows,
            TAKES=token_id is not None,
            BLOCK=_ROWS_PER_BLOCK,
            enable_fp_fusion=False,
        )


def _mask_row_within_numba_(tables: Tables, state: torch.Tensor, num_left: torch.Tensor, out: torch.Tensor) -> None:
    """Choose and write mask rows on the CPU."""
    import numpy as np

    from structgen.kernels._numba import advance as compiled

    # fmt: off
    compiled.mask_rows_within(
        tables.token_class.numpy().view(np.uint16), tables.next_state.numpy(), tables.step_start.numpy(),
        tables.machine.numpy(), tables.mask_row.numpy(), tables.mask_rows.numpy(),
        tables.cost.numpy(), tables.cost_after.numpy(), state.numpy(), num_left.numpy(), STOP_CLASS, out.numpy(),
    )
    # fmt: on


def _mask_row_within_triton_(tables: Tables, state: torch.Tensor, num_left: torch.Tensor, out: torch.Tensor) -> None:
    """Choose and write mask rows on CUDA."""
    import torch

    from structgen.kernels._triton.advance import mask_row_within_kernel

    num_words = tables.mask_rows.shape[1]
    with torch.cuda.device_of(state):  # type: ignore[no-untyped-call]  # torch has no types there
        mask_row_within_kernel[(len(state), -(-num_words // _WORDS_PER_BLOCK))](
            KernelTables.of(tables), state, num_left, out, BLOCK=_WORDS_PER_BLOCK, enable_fp_fusion=False
        )
