"""How far the draws of a batch go along its drafts, where the tables lie: states at the nodes, then the registers.

A draft of a row is a tree of N nodes, or a chain; node 0 is the end of the text. `draft_places_` says where each node
stands, so that a token can be drawn at each. `accept_` takes the draw at node 0, goes on to the child that it is, and
so on: for named tokens, and for tokens that were drawn with the noise of the text. For chains drawn with other noise
`decide_by_ratio_` first puts what block verification decides in the place of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from structgen.kernels._step_values import KernelChains, KernelDraft, KernelRegisters, KernelTables
from structgen.kernels.advance import RUNNING, Registers, advance_reference_, has_triton, next_states
from structgen.kernels.arena import Device, Tables

if TYPE_CHECKING:
    import torch

ROOT: Final = 0

_COLUMNS_PER_BLOCK: Final = 1024


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class BatchDraft:
    """Drafts of B rows, in room for N nodes each; contiguous, on the device of the tables.

    Attributes:
        token_id: (B, N) int32, the token that leads to a node; not looked at for node 0.
        parent: (B, N) int32, the node before, which has a lower number; -1 for node 0, and where there is no node.
        depth: the greatest depth of any node.
    """

    token_id: torch.Tensor
    parent: torch.Tensor
    depth: int

    def __post_init__(self) -> None:
        """Check what the kernels rely on.

        Raises:
            TypeError: a tensor is not int32.
            ValueError: the shapes differ, or a tensor is not contiguous.
        """
        import torch

        for name, tensor in {"token_id": self.token_id, "parent": self.parent}.items():
            if tensor.dtype != torch.int32:
                raise TypeError(f"{name} must be int32, not {tensor.dtype}")
            if tensor.shape != self.token_id.shape or tensor.dim() != 2 or not tensor.is_contiguous():
                raise ValueError(f"{name} must be contiguous, with a value for each node of each row")

    @classmethod
    def chain(cls, token_id: torch.Tensor) -> BatchDraft:
        """Return chains.

        Args:
            token_id: (B, 1 + drafted) int32: a place for node 0, then the tokens, -1 from where a row has no more.
        """
        import torch

        num_nodes = token_id.shape[1]
        before = torch.arange(-1, num_nodes - 1, dtype=torch.int32, device=token_id.device)
        parent = torch.where(token_id < 0, -1, before)
        parent[:, ROOT] = -1
        return cls(token_id=token_id, parent=parent.int().contiguous(), depth=num_nodes - 1)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Places:
    """Where the nodes of a draft stand; contiguous. Nodes that no legal token leads to stand where their parent does.

    Attributes:
        state: (B, N) int32.
        num_left: (B, N) int32.
        position: (B, N) int64.
    """

    state: torch.Tensor
    num_left: torch.Tensor
    position: torch.Tensor

    @classmethod
    def new(cls, num_rows: int, num_nodes: int, *, device: Device = "cpu") -> Places:
        """Return room for so many."""
        import torch

        narrow = {
            name: torch.zeros((num_rows, num_nodes), dtype=torch.int32, device=device) for name in ("state", "num_left")
        }
        return cls(**narrow, position=torch.zeros((num_rows, num_nodes), dtype=torch.int64, device=device))


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Accepted:
    """What was accepted; contiguous.

    Attributes:
        path: (B, N) int32, the nodes that were met after node 0, in their order, then -1.
        num_accepted: (B,) int32, how many.
    """

    path: torch.Tensor
    num_accepted: torch.Tensor

    @classmethod
    def new(cls, num_rows: int, num_nodes: int, *, device: Device = "cpu") -> Accepted:
        """Return room for so many."""
        import torch

        return cls(
            path=torch.full((num_rows, num_nodes), -1, dtype=torch.int32, device=device),
            num_accepted=torch.zeros(num_rows, dtype=torch.int32, device=device),
        )


def draft_places_(tables: Tables, registers: Registers, draft: BatchDraft, out: Places) -> None:
    """Write where each node stands.

    Raises:
        ValueError: the draft or `out` is not for these rows.
    """
    _check_fits(registers, draft, out.state, out.num_left, out.position)
    (_draft_places_triton_ if has_triton(draft.parent) else draft_places_reference_)(tables, registers, draft, out)


def accept_(tables: Tables, registers: Registers, draft: BatchDraft, drawn: torch.Tensor, out: Accepted) -> None:
    """Take the draws along the draft, in place, as advance_ takes each of them.

    Args:
        tables: of the arena that the states belong to.
        registers: changed, where a row is not done.
        draft: what was drafted.
        drawn: (B, N) int32, contiguous: what was drawn at each node, -1 where nothing could be.
        out: what was accepted.

    Raises:
        ValueError: something is not for these rows.
    """
    _check_fits(registers, draft, drawn, out.path)
    (_accept_triton_ if has_triton(drawn) else accept_reference_)(tables, registers, draft, drawn, out)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ChainLaws:
    """What block verification compares: float32 or float64, contiguous, C columns.

    Attributes:
        target: (B, N, C), the target's law after each number of drafted tokens; 0 where nothing can be drawn.
        draft: (B, N - 1, C), the law that each token was drawn from; for one that was named it is certain of it.
        num_drafted: (B,) int32, at most N - 1.
        coins: (B, N), independent and uniform in [0, 1).
    """

    target: torch.Tensor
    draft: torch.Tensor
    num_drafted: torch.Tensor
    coins: torch.Tensor

    def __post_init__(self) -> None:
        """Check what the kernels rely on.

        Raises:
            ValueError: the shapes or dtypes do not belong together.
        """
        num_rows, num_places, num_columns = self.target.shape
        fits = self.draft.shape == (num_rows, num_places - 1, num_columns) and self.num_drafted.shape == (num_rows,)
        fits = fits and self.coins.shape == (num_rows, num_places)
        fits = fits and self.target.dtype == self.draft.dtype == self.coins.dtype
        if not fits or not all(one.is_contiguous() for one in (self.target, self.draft, self.coins)):
            raise ValueError(
                "the laws of a chain must be contiguous, of one dtype, for the same rows, places and tokens"
            )


def decide_by_ratio_(draft: BatchDraft, laws: ChainLaws, drawn: torch.Tensor) -> None:
    """Put what block verification decides in the place of the draws: the accepted tokens, and what follows them.

    Args:
        draft: chains.
        laws: of these chains.
        drawn: (B, N) int32, contiguous: the ordinary draws; those after what is decided stay.

    Raises:
        ValueError: something is not for these rows.
    """
    if draft.parent.shape != drawn.shape or drawn.shape != laws.target.shape[:2]:
        raise ValueError("draft, laws and draws must be for the same rows and places")
    (_decide_by_ratio_triton_ if has_triton(drawn) else decide_by_ratio_reference_)(draft, laws, drawn)


# ---------------------------------------------------------------------------------- plain forms


def draft_places_reference_(tables: Tables, registers: Registers, draft: BatchDraft, out: Places) -> None:
    """Do what draft_places_ does with torch, on any device and without the host, one node after the other."""
    import torch

    out.state.copy_(registers.state[:, None].expand_as(out.state))
    depth = torch.zeros_like(out.state)
    for node in range(1, draft.parent.shape[1]):
        is_drafted = draft.parent[:, node] >= 0
        parent = draft.parent[:, node].clamp(min=ROOT).long()[:, None]
        before = out.state.gather(1, parent)[:, 0]
        after, _ = next_states(tables, before, draft.token_id[:, node])
        moved = torch.where(after >= 0, after, before)
        out.state[:, node] = torch.where(is_drafted, moved, registers.state)
        depth[:, node] = torch.where(is_drafted, depth.gather(1, parent)[:, 0] + 1, 0)
    out.num_left.copy_(registers.num_left[:, None] - depth)
    out.position.copy_(registers.position[:, None] + depth)


def accept_reference_(
    tables: Tables, registers: Registers, draft: BatchDraft, drawn: torch.Tensor, out: Accepted
) -> None:
    """Do what accept_ does with torch, on any device and without the host: advance_, once for each depth."""
    import torch

    out.path.fill_(-1)
    out.num_accepted.zero_()
    cursor = torch.zeros_like(out.num_accepted)
    nodes = torch.arange(draft.parent.shape[1], dtype=torch.int32, device=drawn.device)
    waits = registers.is_done != RUNNING
    for _ in range(draft.depth + 1):
        # Rows whose draw met no child wait: advance_ leaves what is done alone.
        registers.is_done.masked_fill_(waits & (registers.is_done == RUNNING), -1)
        token = drawn.gather(1, cursor.long()[:, None])[:, 0]
        end = registers.ring_end.clone()
        advance_reference_(tables, registers, token)
        is_child = (draft.parent == cursor[:, None]) & (draft.token_id == token[:, None])
        child = torch.where(is_child, nodes, -1).amax(dim=1).int()
        is_met = (registers.ring_end > end) & (child >= 0)
        place = out.num_accepted.long()[:, None]
        out.path.scatter_(1, place, torch.where(is_met, child, out.path.gather(1, place)[:, 0])[:, None])
        out.num_accepted.add_(is_met)
        cursor = torch.where(is_met, child, cursor)
        waits = waits | ~is_met
    registers.is_done.masked_fill_(registers.is_done < 0, RUNNING)


def decide_by_ratio_reference_(draft: BatchDraft, laws: ChainLaws, drawn: torch.Tensor) -> None:
    """Do what decide_by_ratio_ does with torch, on any device and without the host."""
    import torch

    thresholds, follow, size = verify_blocks_reference(draft, laws)
    numbers = torch.arange(1, drawn.shape[1], device=drawn.device)
    passes = (laws.coins[:, :-1] < thresholds) & (numbers <= size[:, None])
    accepted = torch.where(passes, numbers, 0).amax(dim=1, keepdim=True) if len(numbers) else 0 * size[:, None]
    law = follow.gather(1, accepted[:, :, None].expand(-1, 1, follow.shape[2]).long())[:, 0]
    sums = law.cumsum(dim=1)
    goal = laws.coins.gather(1, size[:, None].long()) * sums[:, -1:]
    columns = torch.arange(law.shape[1], dtype=torch.int32, device=drawn.device)
    last = torch.where(law > 0, columns, -1).amax(dim=1, keepdim=True)
    # Rounding may lead past the last token that has a probability.
    token = torch.minimum((sums <= goal).sum(dim=1, keepdim=True), last).int()
    places = torch.arange(drawn.shape[1], device=drawn.device)
    drawn[:, :-1] = torch.where(places[:-1] < accepted, draft.token_id[:, 1:], drawn[:, :-1])
    drawn.copy_(torch.where((places == accepted) & (last >= 0), token, drawn))


def verify_blocks_reference(draft: BatchDraft, laws: ChainLaws) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what structgen.decode.acceptance.verify_block does for one chain, for each of a batch.

    Returns:
        ((B, N - 1) thresholds; (B, N, C) the law after each number of accepted tokens; (B,) the lengths of the chains,
        which end before a place at which nothing has a probability).
    """
    import torch

    num_places = laws.target.shape[1]
    total = laws.target.sum(dim=2)
    size = laws.num_drafted.clone()
    for number in range(num_places - 1, 0, -1):
        size = torch.where((number < size) & (total[:, number] == 0), number, size)
    weight = torch.ones_like(total[:, 0])
    thresholds = torch.zeros_like(laws.coins[:, 1:])
    follow = laws.target.clone()
    for number in range(num_places):
        if number > 0:
            token = draft.token_id[:, number].clamp(min=0).long()[:, None]
            ratio = laws.target[:, number - 1].gather(1, token) / laws.draft[:, number - 1].gather(1, token)
            weight = torch.where(number <= size, (weight * ratio[:, 0]).clamp(max=1), weight)
        mass = torch.zeros_like(weight)
        if number < num_places - 1:
            residual = (weight[:, None] * laws.target[:, number] - laws.draft[:, number]).clamp(min=0)
            residual = torch.where((number < size)[:, None], residual, 0)
            mass = residual.sum(dim=1)
            follow[:, number] = torch.where((mass > 0)[:, None], residual / mass[:, None], follow[:, number])
        if number > 0:
            # Where nothing remains and nothing is lost the two laws agree.
            inner = torch.where((mass == 0) & (weight == 1), 1.0, mass / (mass + 1 - weight))
            thresholds[:, number - 1] = torch.where(size == number, weight, inner)
    return thresholds, follow, size


# ---------------------------------------------------------------------------------- checks and launches


def _check_fits(registers: Registers, draft: BatchDraft, *tensors: torch.Tensor) -> None:
    if len(draft.parent) != len(registers.state):
        raise ValueError(f"a draft of {len(draft.parent)} rows does not fit {len(registers.state)}")
    for tensor in tensors:
        if tensor.shape != draft.parent.shape or not tensor.is_contiguous():
            raise ValueError("there must be a value for each node of each row, contiguous")


def _lanes(draft: BatchDraft) -> int:
    return max(16, 1 << (draft.parent.shape[1] - 1).bit_length())


def _draft_places_triton_(tables: Tables, registers: Registers, draft: BatchDraft, out: Places) -> None:
    """Find the places on CUDA."""
    import torch

    from structgen.kernels._triton.accept import draft_places_kernel

    nodes = KernelDraft(draft.token_id, draft.parent, draft.parent.shape[1], draft.depth)
    with torch.cuda.device_of(draft.parent):  # type: ignore[no-untyped-call]  # torch has no types there
        # fmt: off
        draft_places_kernel[(len(draft.parent),)](
            KernelTables.of(tables), KernelRegisters.of(registers), nodes, out.state, out.num_left, out.position,
            BLOCK=_lanes(draft), enable_fp_fusion=False,
        )
        # fmt: on


def _accept_triton_(
    tables: Tables, registers: Registers, draft: BatchDraft, drawn: torch.Tensor, out: Accepted
) -> None:
    """Accept on CUDA."""
    import torch

    from structgen.kernels._triton.accept import accept_kernel

    nodes = KernelDraft(draft.token_id, draft.parent, draft.parent.shape[1], draft.depth + 1)
    with torch.cuda.device_of(drawn):  # type: ignore[no-untyped-call]  # torch has no types there
        # fmt: off
        accept_kernel[(len(draft.parent),)](
            KernelTables.of(tables), KernelRegisters.of(registers), nodes, drawn, out.path, out.num_accepted,
            BLOCK=_lanes(draft), enable_fp_fusion=False,
        )
        # fmt: on


def _decide_by_ratio_triton_(draft: BatchDraft, laws: ChainLaws, drawn: torch.Tensor) -> None:
    """Decide on CUDA: weights, then masses, a program for each place, then the draws."""
    import torch

    from structgen.kernels._triton import accept as kernels

    num_rows, num_places, num_columns = laws.target.shape
    chains = KernelChains(
        target_laws=laws.target,
        draft_laws=laws.draft,
        draft_token=draft.token_id,
        num_drafted=laws.num_drafted,
        num_places=num_places,
        num_columns=num_columns,
        coins=laws.coins,
        weight=torch.empty_like(laws.coins),
        mass=torch.empty_like(laws.coins),
        total=torch.empty_like(laws.coins),
        drawn=drawn,
    )
    block = _COLUMNS_PER_BLOCK
    with torch.cuda.device_of(drawn):  # type: ignore[no-untyped-call]  # torch has no types there
        kernels.block_weights_kernel[(num_rows,)](chains, enable_fp_fusion=False)
        kernels.block_masses_kernel[(num_rows, num_places)](chains, BLOCK=block, enable_fp_fusion=False)
        kernels.block_draw_kernel[(num_rows,)](chains, BLOCK=block, enable_fp_fusion=False)
