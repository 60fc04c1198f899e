"""One step of decoding on tensors alone: pass, head, draw, advance, for all rows of a batch, whatever their grammars.

Nothing here asks a tensor for a value, and nothing has a shape that depends on one, so the step can run ahead of the
host, and as a CUDA graph. A row that is done stays as it is: its pass writes the same keys and values again. The law is
that of the loop on the host (loop.py), and so are the noise and the budget.

    position - 1 .......... where the last token of the row is read; what it gives is drawn at `position`
    state, num_left ....... the mask row, the private one of the place where the budget takes tokens away
    token ................. class, next state, ring buffer, end

With drafts the pass reads a chain after the last token, and a token is drawn at each place of it; the rows go on as far
as the draws are the draft, and one token more. What was read beyond is written over: rolling back is a number.

Left out: what a row starts from, and what the host makes of the ring buffer (device_session.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from structgen.decode.causal_model import CausalModel
from structgen.decode.device_reader import Layout, in_one_piece, views_of
from structgen.decode.kv_cache import KvCache, PlacedPass
from structgen.kernels.accept import ROOT, Accepted, BatchDraft, Places, accept_, draft_places_
from structgen.kernels.advance import ENDED, RUNNING, Registers, advance_, mask_row_within_
from structgen.kernels.arena import Tables
from structgen.kernels.sample import (
    EVERYWHERE,
    Bias,
    Masks,
    Penalties,
    Sampled,
    SampleNoise,
    SampleOptions,
    count_tokens_,
    sample,
)
from structgen.kernels.tally import Drawn, Tally, tally_


@dataclass(frozen=True, kw_only=True, slots=True)
class StepShape:
    """What the launches of a step depend on; everything else is in tensors.

    Attributes:
        num_rows: rows of the batch.
        num_positions: tokens of prompt and text together, at most.
        num_drafted: most tokens of a draft; 0 where rows have penalties, whose counts run along the text alone.
        has_truncation: whether any row has top-k, top-p or min-p.
        has_penalties: whether any row has penalties.
        has_bias: whether any row has a bias.
    """

    num_rows: int
    num_positions: int
    num_drafted: int = 0
    has_truncation: bool = False
    has_penalties: bool = False
    has_bias: bool = False

    def __post_init__(self) -> None:
        """Check what cannot be together."""
        if self.num_drafted and self.has_penalties:
            raise ValueError("rows with penalties have no drafts")

    def is_like(self, other: StepShape) -> bool:
        """Say whether rows of another shape may be among rows of this one: they draft alike, and padding has bounds.

        Numbers of slots are powers of two; who could do with half of them is no stranger, with a quarter is one.
        """
        return (
            self.num_drafted == other.num_drafted
            and self.num_slots <= 2 * other.num_slots
            and other.num_slots <= self.num_slots
        )

    def joined(self, others: Iterable[StepShape]) -> StepShape:
        """Return the same with whatever options others have."""
        shapes = [self, *others]
        return replace(
            self,
            has_truncation=any(one.has_truncation for one in shapes),
            has_penalties=any(one.has_penalties for one in shapes),
            has_bias=any(one.has_bias for one in shapes),
        )

    def takes(self, other: StepShape) -> bool:
        """Say whether a row of another shape may be among rows of this one, as the steps are."""
        return self.is_like(other) and self.joined([other]) == self

    @property
    def num_nodes(self) -> int:
        """Places of a row at which a token is drawn: the end of its text, and after each drafted token."""
        return 1 + self.num_drafted

    @property
    def num_slots(self) -> int:
        """Positions of the KV cache: a draft may reach beyond the text."""
        return self.num_positions + self.num_drafted


class StepState:
    """The tensors that a step reads and writes; they stay where they are. A place is a node of a row, row by row.

    Attributes:
        told: what the host is told, as a layout of `memory`.
        memory: the tensors of it, in one piece.
        registers: state, budget, place, end and ring buffer of each row.
        tally: the last token of each row, and its sums and counts.
        places: (rows, nodes), where each node stands; without drafts the registers say it.
        mask_row: (places,) int32, what the step draws within; -1 where it draws nothing.
        drawn: what it drew.
        accepted: how much of the drafts was accepted.
        options: how each place is drawn.
        noise: what each place's noise belongs to.
        penalises_all: (rows,) bool, whether penalties touch every token, and not only those inside free text.
    """

    def __init__(self, shape: StepShape, *, num_tokens: int, ring_size: int, device: torch.device) -> None:
        """Make rows that are done.

        Args:
            shape: which options there are.
            num_tokens: ids of the vocabulary.
            ring_size: tokens of a row between two readings, at most.
            device: where the model is.
        """
        num_rows, num_nodes = shape.num_rows, shape.num_nodes
        num_places = num_rows * num_nodes

        def full(value: float, dtype: torch.dtype, size: int = num_places) -> torch.Tensor:
            return torch.full((size,), value, dtype=dtype, device=device)

        self.told: Layout = {
            **dict.fromkeys(("ring_end", "num_passes", "num_drafted", "num_accepted"), (torch.int64, (num_rows,))),
            "lost": (torch.float64, (num_rows,)),
            "most": (torch.float32, (num_rows,)),
            "is_done": (torch.int32, (num_rows,)),
            "ring": (torch.int32, (num_rows, ring_size)),
        }
        self.memory = in_one_piece(self.told, device)
        told = views_of(self.memory, self.told)
        in_registers = {name: told.pop(name) for name in ("ring_end", "is_done", "ring")}
        self.registers = replace(Registers.new(num_rows, ring_size=1, device=device), **in_registers)
        self.registers.is_done.fill_(ENDED)
        # The pass of a row that never was loaded reads token 0 at position 0.
        self.registers.position.fill_(1)
        self.tally = Tally(last=full(0, torch.int32, num_rows), **told)
        self.places = Places.new(num_rows, num_nodes, device=device)
        self.mask_row = full(-1, torch.int32)
        self.drawn = Sampled.empty(num_places, num_tokens=num_tokens, device=device)
        self.accepted = Accepted.new(num_rows, num_nodes, device=device)
        self.penalises_all = full(0, torch.bool, num_rows)
        position = self.places.position.view(-1) if shape.num_drafted else self.registers.position
        self.noise = SampleNoise(seed=full(0, torch.int64), position=position, stream=full(0, torch.int64))
        bias = penalties = None
        if shape.has_bias:
            values = torch.zeros((num_rows, num_tokens), dtype=torch.float32, device=device)
            bias = Bias(values=values, row=full(-1, torch.int32))
        if shape.has_penalties:
            penalties = Penalties(
                counts=torch.zeros((num_rows, num_tokens), dtype=torch.int32, device=device),
                free_row=full(-1, torch.int32),
                repetition=full(1.0, torch.float32),
                presence=full(0.0, torch.float32),
                frequency=full(0.0, torch.float32),
            )
        self.options = SampleOptions(
            temperature=full(0.0, torch.float32),
            top_k=full(0, torch.int32) if shape.has_truncation else None,
            top_p=full(1.0, torch.float32) if shape.has_truncation else None,
            min_p=full(0.0, torch.float32) if shape.has_truncation else None,
            bias=bias,
            penalties=penalties,
        )


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class StepTables:
    """What a step looks up; captured graphs hold where it is.

    Attributes:
        arena: of the machines.
        drafts: (S, drafted) int32, what is drafted after each state, -1 from where there is no more; None for none.
    """

    arena: Tables
    drafts: torch.Tensor | None


class DeviceStep:
    """One pass for every row that is not done: one token, or as many as were drafted and accepted and one more."""

    def __init__(
        self, model: CausalModel, cache: KvCache, tables: StepTables, shape: StepShape, state: StepState
    ) -> None:
        """Bind a step to its tensors.

        Args:
            model: the model.
            cache: its buffers have the rows and slots of the shape from the beginning.
            tables: of the arena that the rows' states belong to.
            shape: that of the state.
            state: read and written.
        """
        self._model = model
        self._cache = cache
        self._tables = tables.arena
        self._drafts = tables.drafts
        self._shape = shape
        self._state = state

    def __call__(self) -> None:
        """Read the last token of each row and its draft, draw after each, and take what is accepted."""
        state, registers, tables = self._state, self._state.registers, self._tables
        draft = self._draft()
        logits = self._logits(draft)
        self._ask(draft)
        self._find_penalties()
        drawn = sample(
            logits,
            masks=Masks(words=tables.mask_rows, row=state.mask_row, num_tokens=tables.num_tokens),
            options=state.options,
            noise=state.noise,
            out=state.drawn,
        )
        if state.options.penalties is not None:
            count_tokens_(state.options.penalties, drawn.token_id, tables.mask_rows)
        if draft is None:
            advance_(tables, registers, drawn.token_id)
            tally_(state.tally, Drawn(mask_row=state.mask_row, sampled=drawn))
        else:
            accept_(tables, registers, draft, drawn.token_id.view(draft.parent.shape), state.accepted)
            met = state.accepted.num_accepted
            tally_(state.tally, Drawn(mask_row=state.mask_row, sampled=drawn, parent=draft.parent, num_accepted=met))

    def _draft(self) -> BatchDraft | None:
        """Return what is drafted after each row: a chain, whose node 0 is the end of the text."""
        if self._drafts is None:
            return None
        drafted = self._drafts[self._state.registers.state.long()]
        return BatchDraft.chain(torch.cat([self._state.tally.last[:, None], drafted], dim=1))

    def _logits(self, draft: BatchDraft | None) -> torch.Tensor:
        """Return (places, width) what each node gives."""
        num_slots = self._shape.num_slots
        positions = (self._state.registers.position - 1)[:, None]
        if draft is None:
            token_id = self._state.tally.last[:, None].long()
        else:
            positions = positions + torch.arange(self._shape.num_nodes, device=positions.device)
            token_id = draft.token_id.clamp(min=0).long()
        self._cache.begin(PlacedPass(positions, num_slots))
        hidden = self._model.run_chains(token_id, positions, self._cache, num_slots)
        logits = self._model.head.logits(hidden.flatten(0, 1))
        return logits.float() if logits.dtype == torch.float64 else logits

    def _ask(self, draft: BatchDraft | None) -> None:
        """Write what each place is drawn within, -1 where nothing is drawn."""
        state, registers, places = self._state, self._state.registers, self._state.places
        is_resting = registers.is_done != RUNNING
        if draft is None:
            mask_row_within_(self._tables, registers.state, registers.num_left, state.mask_row)
            state.mask_row.masked_fill_(is_resting, -1)
            return
        draft_places_(self._tables, registers, draft, places)
        mask_row_within_(self._tables, places.state.view(-1), places.num_left.view(-1), state.mask_row)
        # Where there is no token, and where the text can only end: of node 0 the registers say so.
        is_none = draft.parent < 0
        is_none |= self._tables.least_after[places.state.long()] > places.num_left - 1
        is_none[:, ROOT] = False
        state.mask_row.masked_fill_((is_none | is_resting[:, None]).view(-1), -1)

    def _find_penalties(self) -> None:
        """Write which tokens the penalties touch in the states of the rows."""
        penalties, registers = self._state.options.penalties, self._state.registers
        if penalties is not None:
            free_row = self._tables.free_row[registers.state.long()]
            penalties.free_row.copy_(torch.where(self._state.penalises_all, EVERYWHERE, free_row))
