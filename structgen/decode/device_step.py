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

from dataclasses import dataclass

import torch

from structgen.decode.causal_model import CausalModel
from structgen.decode.kv_cache import KvCache, PlacedPass
from structgen.kernels.accept import ROOT, Accepted, BatchDraft, Places, accept_, draft_places_
from structgen.kernels.advance import RUNNING, Registers, mask_row_within_
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
        registers: state, budget, place, end and ring buffer of each row.
        last: (rows,) int64, the last token of each row, which the next pass reads.
        places: (rows, nodes), where each node stands.
        mask_row: (places,) int32, what the step draws within; -1 where it draws nothing.
        drawn: what it drew.
        accepted: how much of the drafts was accepted.
        options: how each place is drawn.
        noise: what each place's noise belongs to.
        penalises_all: (rows,) bool, whether penalties touch every token, and not only those inside free text.
        legal_mass_lost: (rows,) float64, sum of -log(legal mass).
        most_mass_lost: (rows,) float32, the greatest of them.
        counts: (rows, 3) int64, steps that drew something, drafted tokens, accepted ones.
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

        self.registers = Registers.new(num_rows, ring_size=ring_size, device=device)
        # The pass of a row that never was loaded reads token 0 at position 0.
        self.registers.position.fill_(1)
        self.last = full(0, torch.int64, num_rows)
        self.places = Places.new(num_rows, num_nodes, device=device)
        self.mask_row = full(-1, torch.int32)
        self.drawn = Sampled.empty(num_places, num_tokens=num_tokens, device=device)
        self.accepted = Accepted.new(num_rows, num_nodes, device=device)
        self.penalises_all = full(0, torch.bool, num_rows)
        self.legal_mass_lost = full(0.0, torch.float64, num_rows)
        self.most_mass_lost = full(0.0, torch.float32, num_rows)
        self.counts = torch.zeros((num_rows, 3), dtype=torch.int64, device=device)
        position = self.places.position.view(-1)
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
        draft_places_(tables, registers, draft, state.places)
        is_asked = self._asked(draft)
        mask_row_within_(tables, state.places.state.view(-1), state.places.num_left.view(-1), state.mask_row)
        state.mask_row.masked_fill_(~is_asked.view(-1), -1)
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
        token_id = drawn.token_id.view(is_asked.shape)
        accept_(tables, registers, draft, token_id, state.accepted)
        self._count(draft, is_asked, drawn.log_legal_mass.view(is_asked.shape))
        last = token_id.gather(1, state.accepted.num_accepted[:, None].long())[:, 0]
        state.last.copy_(torch.where(is_asked[:, 0] & (last >= 0), last, state.last))

    def _draft(self) -> BatchDraft:
        """Return what is drafted after each row: a chain, whose node 0 is the end of the text."""
        state = self._state
        token_id = state.last[:, None].int()
        if self._drafts is not None:
            token_id = torch.cat([token_id, self._drafts[state.registers.state.long()]], dim=1)
        return BatchDraft.chain(token_id)

    def _logits(self, draft: BatchDraft) -> torch.Tensor:
        """Return (places, width) what each node gives."""
        num_slots = self._shape.num_slots
        nodes = torch.arange(self._shape.num_nodes, device=draft.token_id.device)
        positions = (self._state.registers.position - 1)[:, None] + nodes
        self._cache.begin(PlacedPass(positions, num_slots))
        token_id = draft.token_id.clamp(min=0).long()
        hidden = self._model.run_chains(token_id, positions, self._cache, num_slots)
        logits = self._model.head.logits(hidden.flatten(0, 1))
        return logits.float() if logits.dtype == torch.float64 else logits

    def _asked(self, draft: BatchDraft) -> torch.Tensor:
        """Return (rows, nodes) bool: where something is drawn, if the text comes there."""
        places = self._state.places
        is_node = draft.parent >= 0
        # Where the text can only end nothing is drawn; of node 0 the registers say so.
        is_node &= self._tables.least_after[places.state.long()] <= places.num_left - 1
        is_node[:, ROOT] = True
        return is_node & (self._state.registers.is_done == RUNNING)[:, None]

    def _find_penalties(self) -> None:
        """Write which tokens the penalties touch in the states of the rows."""
        penalties, registers = self._state.options.penalties, self._state.registers
        if penalties is not None:
            free_row = self._tables.free_row[registers.state.long()]
            penalties.free_row.copy_(torch.where(self._state.penalises_all, EVERYWHERE, free_row))

    def _count(self, draft: BatchDraft, is_asked: torch.Tensor, log_legal_mass: torch.Tensor) -> None:
        """Add what the rows have met to their sums."""
        state, num_accepted = self._state, self._state.accepted.num_accepted
        nodes = torch.arange(self._shape.num_nodes, device=num_accepted.device)
        is_met = is_asked & (nodes <= num_accepted[:, None]) & (state.drawn.error.view(is_asked.shape) == 0)
        lost = torch.where(is_met, -log_legal_mass, 0.0)
        state.legal_mass_lost.add_(lost.sum(dim=1, dtype=torch.float64))
        torch.fmax(state.most_mass_lost, lost.amax(dim=1), out=state.most_mass_lost)
        is_running = is_asked[:, 0]
        num_drafted = (draft.parent >= 0).sum(dim=1)
        state.counts.add_(torch.stack([is_running, num_drafted * is_running, num_accepted * is_running], dim=1))
