"""Values of the steps: the codes of rows, their registers, and the tuples in which the kernels for CUDA take them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import torch

    from structgen.kernels.arena import Device, Tables

RUNNING: Final = 0
ENDED: Final = 1
LEFT: Final = 2
FAILED: Final = 3

NO_LEGAL_TOKEN: Final = 1
ILLEGAL_TOKEN: Final = 2


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Registers:
    """What a step changes, a value for each of B rows; contiguous, on the device of the tables.

    Attributes:
        state: (B,) int32, of the arena.
        num_left: (B,) int32, tokens that may still come; the stop token is not counted.
        position: (B,) int64, of the token that is drawn next.
        is_done: (B,) int32: RUNNING; ENDED, a stop was drawn or the text can only end; LEFT, the tables do not say what
            may follow the state; FAILED.
        error: (B,) int32: why a row failed. NO_LEGAL_TOKEN: none could be drawn; ILLEGAL_TOKEN.
        ring: (B, N) int32, the tokens of the text, number i at i % N; stops are not written.
        ring_end: (B,) int64, how many were written, ever.
    """

    state: torch.Tensor
    num_left: torch.Tensor
    position: torch.Tensor
    is_done: torch.Tensor
    error: torch.Tensor
    ring: torch.Tensor
    ring_end: torch.Tensor

    def __post_init__(self) -> None:
        """Check what the kernels rely on.

        Raises:
            ValueError: shapes do not belong together, or a tensor is not contiguous.
        """
        num_rows = len(self.state)
        for field in fields(self):
            tensor = getattr(self, field.name)
            if len(tensor) != num_rows or tensor.dim() != 1 + (field.name == "ring") or not tensor.is_contiguous():
                raise ValueError(f"{field.name} must be contiguous, with a value for each of {num_rows} rows")

    @classmethod
    def new(cls, num_rows: int, *, ring_size: int, device: Device = "cpu") -> Registers:
        """Return rows that are done: write state, num_left and position, set is_done to RUNNING, and settle_.

        Args:
            num_rows: B.
            ring_size: N, more than are written between two readings.
            device: that of the tables.
        """
        import torch

        narrow = {name: torch.zeros(num_rows, dtype=torch.int32, device=device) for name in ("state", "num_left")}
        return cls(
            **narrow,
            position=torch.zeros(num_rows, dtype=torch.int64, device=device),
            is_done=torch.full((num_rows,), ENDED, dtype=torch.int32, device=device),
            error=torch.zeros(num_rows, dtype=torch.int32, device=device),
            ring=torch.zeros((num_rows, ring_size), dtype=torch.int32, device=device),
            ring_end=torch.zeros(num_rows, dtype=torch.int64, device=device),
        )


class KernelTables(NamedTuple):
    """What the kernels for CUDA take of the tables."""

    token_class: torch.Tensor
    token_class_stride: int
    next_state: torch.Tensor
    step_start: torch.Tensor
    machine: torch.Tensor
    mask_row: torch.Tensor
    mask_rows: torch.Tensor
    num_words: int
    accepting: torch.Tensor
    cost: torch.Tensor
    cost_after: torch.Tensor
    least_after: torch.Tensor
    num_tokens: int

    @classmethod
    def of(cls, tables: Tables) -> KernelTables:
        """Return those of an arena."""
        stride, num_words = tables.token_class.stride(0), tables.mask_rows.shape[1]
        sizes: dict[str, Any] = {"token_class_stride": stride, "num_words": num_words}
        return cls(**sizes, **{name: getattr(tables, name) for name in cls._fields if name not in sizes})


class KernelRegisters(NamedTuple):
    """What the kernels for CUDA take of the registers: all, and the size of a ring."""

    state: torch.Tensor
    num_left: torch.Tensor
    position: torch.Tensor
    ring: torch.Tensor
    ring_size: int
    ring_end: torch.Tensor
    is_done: torch.Tensor
    error: torch.Tensor

    @classmethod
    def of(cls, registers: Registers) -> KernelRegisters:
        """Return those of a batch."""
        ring_size = registers.ring.shape[1]
        return cls(ring_size=ring_size, **{field.name: getattr(registers, field.name) for field in fields(registers)})


class KernelDraft(NamedTuple):
    """What they take of drafts; rounds are how many nodes follow each other, at most."""

    token_id: torch.Tensor
    parent: torch.Tensor
    num_nodes: int
    num_rounds: int


class KernelChains(NamedTuple):
    """What the kernels of block verification for CUDA take: what they compare, what they hand each other, the draws."""

    target_laws: torch.Tensor
    draft_laws: torch.Tensor
    draft_token: torch.Tensor
    num_drafted: torch.Tensor
    num_places: int
    num_columns: int
    coins: torch.Tensor
    weight: torch.Tensor
    mass: torch.Tensor
    total: torch.Tensor
    drawn: torch.Tensor
