"""What a step came to, in one op: the last token of each row, its sums of lost mass, and its counts.

The rows go on as far as their draws were the draft, so what counts is the first 1 + accepted places of each, of those
that were asked. Leaves out the draws and the acceptance, which come before it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from structgen.kernels.advance import has_triton

if TYPE_CHECKING:
    import torch

    from structgen.kernels.arena import Device
    from structgen.kernels.sample import Sampled

_ROWS_PER_BLOCK: Final = 32


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Tally:
    """What rows have come to since they were loaded; contiguous.

    Attributes:
        last: (B,) int32, the last token of each row.
        lost: (B,) float64, the sum of -log(legal mass).
        most: (B,) float32, the greatest of them.
        num_passes: (B,) int64, steps in which the row was asked.
        num_drafted: (B,) int64, tokens that were drafted in these.
        num_accepted: (B,) int64, those of them that became text.
    """

    last: torch.Tensor
    lost: torch.Tensor
    most: torch.Tensor
    num_passes: torch.Tensor
    num_drafted: torch.Tensor
    num_accepted: torch.Tensor

    @classmethod
    def new(cls, num_rows: int, *, device: Device = "cpu") -> Tally:
        """Return that of rows which have come to nothing yet."""
        import torch

        counts = ("num_passes", "num_drafted", "num_accepted")
        return cls(
            last=torch.zeros(num_rows, dtype=torch.int32, device=device),
            lost=torch.zeros(num_rows, dtype=torch.float64, device=device),
            most=torch.zeros(num_rows, dtype=torch.float32, device=device),
            **{name: torch.zeros(num_rows, dtype=torch.int64, device=device) for name in counts},
        )


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Drawn:
    """A step whose rows have N places each; contiguous.

    Attributes:
        mask_row: (B * N,) int32, negative where nothing was asked.
        sampled: what was drawn at these places.
        parent: (B, N) int32, negative where a row has no drafted token; None where nothing is drafted.
        num_accepted: (B,) int32, how many drafted tokens were met; None likewise.
    """

    mask_row: torch.Tensor
    sampled: Sampled
    parent: torch.Tensor | None = None
    num_accepted: torch.Tensor | None = None


def tally_(tally: Tally, drawn: Drawn) -> None:
    """Add a step, in place.

    Raises:
        ValueError: the step is not of these rows, or a tensor is not contiguous.
    """
    num_rows, num_places = len(tally.last), len(drawn.mask_row)
    wanted = (num_rows, 1) if drawn.parent is None else tuple(drawn.parent.shape)
    if (
        wanted[0] != num_rows
        or wanted[0] * wanted[1] != num_places
        or (drawn.parent is None) != (drawn.num_accepted is None)
    ):
        raise ValueError(f"a step of {num_places} places does not fit {num_rows} rows")
    sampled, drafted = drawn.sampled, (drawn.parent, drawn.num_accepted)
    read = (drawn.mask_row, sampled.token_id, sampled.log_legal_mass, *(one for one in drafted if one is not None))
    if not all(one.is_contiguous() for one in (*read, *(getattr(tally, field.name) for field in fields(tally)))):
        raise ValueError("a tally and what was drawn must be contiguous")
    (_tally_triton_ if has_triton(tally.last) else tally_reference_)(tally, drawn)


def tally_reference_(tally: Tally, drawn: Drawn) -> None:
    """Do the same with torch, on any device and without the host."""
    import torch

    num_rows = len(tally.last)
    is_asked = drawn.mask_row.view(num_rows, -1) >= 0
    is_running = is_asked[:, 0]
    token_id = drawn.sampled.token_id.view(is_asked.shape)
    accepted = torch.zeros_like(tally.last) if drawn.num_accepted is None else drawn.num_accepted
    nodes = torch.arange(is_asked.shape[1], device=accepted.device)
    # Where nothing could be drawn the row has failed, and its mass is not a number.
    is_met = is_running[:, None] & is_asked & (nodes <= accepted[:, None]) & (token_id >= 0)
    lost = torch.where(is_met, -drawn.sampled.log_legal_mass.view(is_asked.shape), 0.0)
    last = token_id.gather(1, accepted.long()[:, None])[:, 0]
    tally.last.copy_(torch.where(is_running & (last >= 0), last, tally.last))
    tally.lost.add_(lost.sum(dim=1, dtype=torch.float64))
    # A mass that is not a number, of logits that are none, is in the sum and not in the greatest.
    torch.fmax(tally.most, lost.nan_to_num(nan=0.0, posinf=torch.inf).amax(dim=1), out=tally.most)
    tally.num_passes.add_(is_running)
    if drawn.parent is not None:
        tally.num_drafted.add_((drawn.parent >= 0).sum(dim=1) * is_running)
        tally.num_accepted.add_(accepted * is_running)


def _tally_triton_(tally: Tally, drawn: Drawn) -> None:
    """Add on CUDA."""
    import torch

    from structgen.kernels._triton.tally import tally_kernel

    num_rows = len(tally.last)
    parent, accepted = drawn.parent, drawn.num_accepted
    has_draft = parent is not None and accepted is not None
    with torch.cuda.device_of(tally.last):  # type: ignore[no-untyped-call]  # torch has no types there
        # fmt: off
        tally_kernel[(-(-num_rows // _ROWS_PER_BLOCK),)](
            tally.last, tally.lost, tally.most, tally.num_passes, tally.num_drafted, tally.num_accepted,
            drawn.mask_row, drawn.sampled.token_id, drawn.sampled.log_legal_mass,
            parent if has_draft else drawn.mask_row, accepted if has_draft else drawn.mask_row,
            num_rows, len(drawn.mask_row) // num_rows,
            HAS_DRAFT=has_draft, BLOCK=_ROWS_PER_BLOCK, enable_fp_fusion=False,
        )
        # fmt: on
