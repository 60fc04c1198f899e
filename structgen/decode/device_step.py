"""One step of decoding on tensors alone: pass, head, draw, advance, for all rows of a batch, whatever their grammars.

Nothing here asks a tensor for a value, and nothing has a shape that depends on one, so the step can run ahead of the
host, and as a CUDA graph. A row that is done stays as it is: its pass writes the same keys and values again. The law is
that of the loop on the host (loop.py), and so are the noise and the budget.

    position - 1 .......... where the last token of the row is read; what it gives is drawn at `position`
    state, num_left ....... the mask row, the private one of the row where the budget takes tokens away
    token ................. class, next state, ring buffer, end

Left out: what a row starts from, and what the host makes of the ring buffer (device_session.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from structgen.decode.causal_model import CausalModel
from structgen.decode.kv_cache import KvCache, PlacedPass
from structgen.kernels.advance import RUNNING, Registers, advance_, mask_row_within_
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
        num_positions: positions of the KV cache, and what the attention reads.
        has_truncation: whether any row has top-k, top-p or min-p.
        has_penalties: whether any row has penalties.
        has_bias: whether any row has a bias.
    """

    num_rows: int
    num_positions: int
    has_truncation: bool = False
    has_penalties: bool = False
    has_bias: bool = False


class StepState:
    """The tensors that a step reads and writes; they stay where they are.

    Attributes:
        registers: state, budget, place, end and ring buffer of each row.
        last: (rows,) int64, the last token of each row, which the next pass reads.
        options: how each row is drawn.
        noise: what each row's noise belongs to; its positions are those of the registers.
        mask_row: (rows,) int32, what the step draws within; -1 where it draws nothing.
        drawn: what it drew.
        penalises_all: (rows,) bool, whether penalties touch every token, and not only those inside free text.
        legal_mass_lost: (rows,) float64, sum of -log(legal mass).
        most_mass_lost: (rows,) float32, the greatest of them.
    """

    def __init__(self, shape: StepShape, *, num_tokens: int, ring_size: int, device: torch.device) -> None:
        """Make rows that are done.

        Args:
            shape: which options there are.
            num_tokens: ids of the vocabulary.
            ring_size: tokens of a row between two readings, at most.
            device: where the model is.
        """
        num_rows = shape.num_rows

        def full(value: float, dtype: torch.dtype) -> torch.Tensor:
            return torch.full((num_rows,), value, dtype=dtype, device=device)

        self.registers = Registers.new(num_rows, ring_size=ring_size, device=device)
        # The pass of a row that never was loaded reads token 0 at position 0.
        self.registers.position.fill_(1)
        self.last = full(0, torch.int64)
        self.mask_row = full(-1, torch.int32)
        self.drawn = Sampled.empty(num_rows, device=device)
        self.penalises_all = full(0, torch.bool)
        self.legal_mass_lost = full(0.0, torch.float64)
        self.most_mass_lost = full(0.0, torch.float32)
        self.noise = SampleNoise(
            seed=full(0, torch.int64), position=self.registers.position, stream=full(0, torch.int64)
        )
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


class DeviceStep:
    """One token for every row that is not done."""

    def __init__(self, model: CausalModel, cache: KvCache, tables: Tables, shape: StepShape, state: StepState) -> None:
        """Bind a step to its tensors.

        Args:
            model: the model.
            cache: its buffers have the rows and positions of the shape from the beginning.
            tables: of the arena that the rows' states belong to.
            shape: that of the state.
            state: read and written.
        """
        self._model = model
        self._cache = cache
        self._tables = tables
        self._shape = shape
        self._state = state

    def __call__(self) -> None:
        """Read the last token of each row, draw the next one, and take it."""
        state, registers, tables = self._state, self._state.registers, self._tables
        logits = self._logits()
        is_running = registers.is_done == RUNNING
        mask_row_within_(tables, registers.state, registers.num_left, state.mask_row)
        state.mask_row.masked_fill_(~is_running, -1)
        penalties = state.options.penalties
        if penalties is not None:
            free_row = tables.free_row[registers.state.long()]
            penalties.free_row.copy_(torch.where(state.penalises_all, EVERYWHERE, free_row))
        drawn = sample(
            logits,
            masks=Masks(words=tables.mask_rows, row=state.mask_row, num_tokens=tables.num_tokens),
            options=state.options,
            noise=state.noise,
            out=state.drawn,
        )
        lost = torch.where(is_running & (drawn.token_id >= 0), -drawn.log_legal_mass, 0.0)
        state.legal_mass_lost.add_(lost)
        torch.fmax(state.most_mass_lost, lost, out=state.most_mass_lost)
        if penalties is not None:
            count_tokens_(penalties, drawn.token_id, tables.mask_rows)
        state.last.copy_(torch.where(drawn.token_id >= 0, drawn.token_id, state.last))
        advance_(tables, registers, drawn.token_id)

    def _logits(self) -> torch.Tensor:
        """Return (rows, width) what the last token of each row gives."""
        positions = (self._state.registers.position - 1)[:, None]
        self._cache.begin(PlacedPass(positions, self._shape.num_positions))
        hidden = self._model.run_chains(self._state.last[:, None], positions, self._cache, self._shape.num_positions)
        logits = self._model.head.logits(hidden[:, 0])
        return logits.float() if logits.dtype == torch.float64 else logits
