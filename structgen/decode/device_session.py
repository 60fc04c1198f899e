"""Rows on a device: loaded by the host, stepped without it, and read while later steps are under way.

Rows are loaded at any time between two steps, beside rows that are under way: their prompts are read but for the last
tokens, which the first step reads; prompts of like length share a pass. Whoever asks for news starts steps until enough
of them are under way, and then waits for the oldest copy only: the host is told of a token a few steps late, and the
device is never told to wait.

The KV cache has room for all rows and positions from the beginning, because a captured graph holds where it is. How
many that are is the business of whoever opens the session (device_pool.py). Left out: what the tokens mean
(device_loop.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from structgen.config import PenaltyScope, Sampling
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_drafts import DeviceDrafts
from structgen.decode.device_graph import GraphedStep, Lane
from structgen.decode.device_reader import DeviceReader
from structgen.decode.device_step import DeviceStep, StepShape, StepState, StepTables
from structgen.decode.kv_cache import KvCache
from structgen.decode.pass_groups import ON_A_CORE, ON_CUDA, grouped
from structgen.decode.sending import sent
from structgen.decode.target import Target, Tokens
from structgen.decode.transformers_target import TransformersBatch
from structgen.frozen_machine import FrozenMachine
from structgen.frozen_pieces import GrowingMachine
from structgen.kernels.advance import ENDED, RUNNING, settle_
from structgen.kernels.arena import Arena

STEPS_PER_READING: Final = 2
"""Steps between two copies that the host reads."""

_READINGS_AHEAD: Final = 2
_SUMS: Final = ("lost", "most", "num_passes", "num_drafted", "num_accepted")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowStart:
    """What a row starts from.

    Attributes:
        prompt_token_ids: at least one token.
        machine: the grammar; one that grows has tables of its part.
        max_tokens: most tokens of the text.
        seed: of the noise.
        stream: of the noise.
        sampling: how tokens are drawn.
    """

    prompt_token_ids: tuple[int, ...]
    machine: FrozenMachine | GrowingMachine
    max_tokens: int
    seed: int
    stream: int
    sampling: Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class RowNews:
    """What became of a row since the host was told last.

    Attributes:
        token_ids: tokens that were taken.
        is_done: see structgen.kernels.advance.
        legal_mass_lost: since the row was loaded, the sum of -log(legal mass).
        most_mass_lost: the greatest of them.
        num_passes: since the row was loaded, that over its prompt not counted.
        num_drafted: likewise, tokens that were drafted and read.
        num_accepted: those of them that became text.
    """

    token_ids: list[int]
    is_done: int
    legal_mass_lost: float = 0.0
    most_mass_lost: float = 0.0
    num_passes: int = 0
    num_drafted: int = 0
    num_accepted: int = 0


class DeviceSession:
    """A batch of rows with buffers of its own; one thread uses it at a time.

    Attributes:
        shape: of its steps.
        arena: where the machines of its rows are.
        drafts: what is drafted; None where nothing is.
        num_steps: steps that were started, ever.
    """

    def __init__(
        self,
        model: CausalModel,
        arena: Arena,
        shape: StepShape,
        *,
        steps_per_reading: int = STEPS_PER_READING,
        lane: Lane | None = None,
        drafts: DeviceDrafts | None = None,
    ) -> None:
        """Make buffers; the first load captures the step.

        Args:
            model: one that takes masks of ours.
            arena: where the machines of all rows are.
            shape: of the step.
            steps_per_reading: steps between two copies that the host reads.
            lane: that of all sessions of the arena; None if this is the only one.
            drafts: of the arena; they are used where the shape has drafts.
        """
        self.shape = shape
        self.drafts = drafts if shape.num_drafted else None
        self._all_drafts = drafts
        self.num_steps = 0
        self._model = model
        self.arena = arena
        self._steps_per_reading = steps_per_reading
        self._lane = Lane(model.device) if lane is None else lane
        self._cache = KvCache(least_rows=shape.num_rows, least_positions=shape.num_slots)
        self._batch = TransformersBatch(model, cache=self._cache)
        self._rows = [self._batch.join() for _ in range(shape.num_rows)]
        # Memory belongs to the stream that it is made on: steps may be under way when a session is given up.
        with self._lane():
            self._state = state = StepState(
                shape,
                num_tokens=arena.tables.num_tokens,
                ring_size=steps_per_reading * (_READINGS_AHEAD + 1) * shape.num_nodes,
                device=model.device,
            )
            self._reader = DeviceReader(state.memory, state.told, num_slots=_READINGS_AHEAD + 1)
        self._version: tuple[int, int] | None = None
        self._step: GraphedStep
        # Of each row: how many of its tokens the host was told of, and how many copies from before it was loaded come,
        # or from before it went on.
        self._num_told = [0] * shape.num_rows
        self._num_stale = [0] * shape.num_rows
        self._num_waiting = [0] * shape.num_rows

    @property
    def eager_because(self) -> str | None:
        """Why steps do not run as CUDA graphs; None if they do, or if none was made yet."""
        return None if self._version is None else self._step.eager_because

    @property
    def num_cache_bytes(self) -> int:
        """Memory of its keys and values."""
        return self._cache.num_bytes

    def load(self, starts: Mapping[int, RowStart]) -> None:
        """Read a prompt into each of some rows, whatever these held, and let them run from the next step on."""
        for start in starts.values():
            needed = len(start.prompt_token_ids) + start.max_tokens
            if needed > self.shape.num_positions:
                raise ValueError(f"a row of {needed} tokens does not fit {self.shape.num_positions} positions")
        with self._lane():
            self._load(starts)
        for row in starts:
            self._num_told[row] = self._num_waiting[row] = 0
            self._num_stale[row] = self._reader.num_taken

    def resume(self, row: int, machine: GrowingMachine, *, last_token_id: int) -> None:
        """Let a row go on that has left, from the next step on.

        Args:
            row: the host has been told of all its tokens.
            machine: the row's, which describes its state by now.
            last_token_id: the last of its tokens. Where that was drafted the step does not know that it is the last.
        """
        with self._lane():
            self._start_of(machine)
            if self._version != self._current_version:
                self._prepare()
            self._state.tally.last[row].fill_(last_token_id)
            self._state.registers.is_done[row].fill_(RUNNING)
            settle_(self.arena.tables, self._state.registers)
        self._num_waiting[row] = self._reader.num_taken

    def _start_of(self, machine: FrozenMachine | GrowingMachine) -> int:
        """Return the start of a machine in the arena, which has all that is there of it by now."""
        start = self.arena.add(machine)
        if self._all_drafts is not None and isinstance(machine, GrowingMachine):
            self._all_drafts.follow(machine)
        return start

    def _load(self, starts: Mapping[int, RowStart]) -> None:
        first_states = {row: self._start_of(start.machine) for row, start in starts.items()}
        self._rest(starts)
        if self._version != self._current_version:
            self._prepare()
        # Only now: trying the step writes keys and values where the rows stood before.
        self._read(starts)
        for row, start in starts.items():
            self._write(row, start, first_states[row])
        settle_(self.arena.tables, self._state.registers)

    def _read(self, starts: Mapping[int, RowStart]) -> None:
        """Read prompts but for their last tokens."""
        parts: list[tuple[Target, Tokens]] = []
        for row, start in starts.items():
            self._rows[row].crop(0)
            read = start.prompt_token_ids[:-1]
            if read:
                parts.append((self._rows[row], Tokens(read, num_prompt_tokens=len(read))))
        price = ON_CUDA if self._model.device.type == "cuda" else ON_A_CORE
        for group in grouped([len(tokens.token_ids) for _, tokens in parts], price):
            self._batch.extend([parts[index] for index in group])

    def stop(self, rows: Iterable[int]) -> None:
        """Let rows draw nothing more."""
        with self._lane():
            self._rest(rows)

    def _rest(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._state.registers.is_done[row].fill_(ENDED)

    def news(self) -> list[RowNews]:
        """Start steps until enough are under way, and return what the oldest copy says of each row."""
        while self._reader.num_taken < _READINGS_AHEAD:
            with self._lane():
                for _ in range(self._steps_per_reading):
                    self._step()
                self._reader.take()
            self.num_steps += self._steps_per_reading
        told = {name: one.tolist() for name, one in self._reader.read().items()}
        return [
            self._news_of(row, {name: column[row] for name, column in told.items()}) for row in range(len(self._rows))
        ]

    def _news_of(self, row: int, told: dict[str, Any]) -> RowNews:
        if self._num_stale[row]:
            self._num_stale[row] -= 1
            return RowNews(token_ids=[], is_done=RUNNING)
        ring = told["ring"]
        token_ids = [ring[number % len(ring)] for number in range(self._num_told[row], told["ring_end"])]
        self._num_told[row] = told["ring_end"]
        is_waiting = self._num_waiting[row] > 0
        self._num_waiting[row] -= is_waiting
        return RowNews(
            token_ids=token_ids,
            is_done=RUNNING if is_waiting else told["is_done"],
            legal_mass_lost=told["lost"],
            most_mass_lost=told["most"],
            num_passes=told["num_passes"],
            num_drafted=told["num_drafted"],
            num_accepted=told["num_accepted"],
        )

    @property
    def _current_version(self) -> tuple[int, int]:
        return self.arena.version, 0 if self.drafts is None else self.drafts.version

    def _prepare(self) -> None:
        """Bind the step to where the tables are now, while all rows rest: trying it draws nothing."""
        is_done = self._state.registers.is_done
        before = is_done.clone()
        is_done.fill_(ENDED)
        if self.drafts is not None:
            self.drafts.make_room()
        version = self._current_version
        drafted = None if self.drafts is None else self.drafts.tensor[:, : self.shape.num_drafted]
        tables = StepTables(arena=self.arena.tables, drafts=drafted)
        step = DeviceStep(self._model, self._cache, tables, self.shape, self._state)
        self._step = GraphedStep(step, self._model.device)
        self._version = version
        is_done.copy_(before)

    def _write(self, row: int, start: RowStart, first_state: int) -> None:
        """Set what a row starts from, not settled; every value goes along with its launch, and nothing waits."""
        state, registers, sampling = self._state, self._state.registers, start.sampling
        signed_seed = start.seed - (1 << 64) if start.seed >> 63 else start.seed
        written = [
            (registers.state, first_state),
            (registers.num_left, start.max_tokens),
            (registers.position, len(start.prompt_token_ids)),
            (registers.error, 0),
            (registers.ring_end, 0),
            (state.tally.last, start.prompt_token_ids[-1]),
            (state.noise.seed, signed_seed),
            (state.noise.stream, start.stream),
            *((getattr(state.tally, name), 0) for name in _SUMS),
            (state.penalises_all, sampling.penalty_scope is PenaltyScope.EVERYWHERE),
            (state.options.temperature, sampling.temperature),
            *self._truncations(sampling),
            *self._penalties(row, sampling),
            (registers.is_done, RUNNING),
        ]
        for tensor, value in written:
            # An option has a value for each place of the row.
            tensor.view(self.shape.num_rows, -1)[row].fill_(value)
        self._write_bias(row, sampling)

    def _truncations(self, sampling: Sampling) -> list[tuple[torch.Tensor, float]]:
        options = self._state.options
        if options.top_k is None or options.top_p is None or options.min_p is None:
            return []
        return [
            (options.top_k, 0 if sampling.top_k is None else min(sampling.top_k, (1 << 31) - 1)),
            (options.top_p, 1.0 if sampling.top_p is None else sampling.top_p),
            (options.min_p, 0.0 if sampling.min_p is None else sampling.min_p),
        ]

    def _penalties(self, row: int, sampling: Sampling) -> list[tuple[torch.Tensor, float]]:
        penalties = self._state.options.penalties
        if penalties is None:
            return []
        penalties.counts[row].zero_()
        return [
            (penalties.repetition, sampling.repetition_penalty),
            (penalties.presence, sampling.presence_penalty),
            (penalties.frequency, sampling.frequency_penalty),
        ]

    def _write_bias(self, row: int, sampling: Sampling) -> None:
        bias = self._state.options.bias
        if bias is None:
            return
        bias.values[row].zero_()
        bias.row.view(self.shape.num_rows, -1)[row].fill_(row if sampling.logit_bias else -1)
        if sampling.logit_bias:
            token_ids = torch.tensor(list(sampling.logit_bias), dtype=torch.int64)
            values = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32)
            device = self._model.device
            bias.values[row].index_copy_(0, sent(token_ids, device), sent(values, device))
