"""Device mode for the requests of one model: which of them run in it, and the sessions that they take in turn.

A session has buffers and a captured graph, which take longer to make than most texts: whoever has done with one gives
it back, and the next requests of the same shape take it. Sizes are rounded up, so that there are few shapes. The
machines of a model are in one arena until that is full; then another one begins. All sessions start their work on one
stream, a step at a time, because the rows that a budget cuts are written to one place.

A session holds keys and values for all of its rows as if each were as long as the longest may become, and its steps
look at all of that. So there are slots for a power of two of tokens, and only rows that need more than a quarter of
them share a session; shorter ones have the next one. There are as many rows as wait, and no more than half of the
memory that is free has room for. Of the sessions that nobody uses some are kept, the caches of all together no larger
than the weights of the model.

Left out: the loop over a batch (device_batch.py).
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch

from structgen.config import Speculation
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_drafts import DeviceDrafts, forced_runs
from structgen.decode.device_graph import Lane
from structgen.decode.device_loop import MOST_DRAFTED, DeviceDecoding, DeviceRequest, RowFollower, SessionRows
from structgen.decode.device_session import DeviceSession
from structgen.decode.device_step import StepShape
from structgen.decode.kv_cache import KvCache
from structgen.decode.target import Tokens
from structgen.decode.transformers_target import TransformersBatch
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.kernels.arena import Arena
from structgen.vocabulary import Vocabulary

if TYPE_CHECKING:
    from structgen.grammar.frozen_part import FrozenPart

MOST_ROWS: Final = 64
"""Rows of a session; the draws at each place of each row take some bytes for every token of the vocabulary."""

# Sessions that nobody uses, and bytes of their caches that are kept with a small model too.
_MOST_FREE: Final = 4
_LEAST_KEPT_BYTES: Final = 1 << 26
# Tables of machines, past which those of the next machine begin anew; texts on their way keep theirs.
_MOST_TABLE_BYTES: Final = 1 << 30
# What one session may take of the memory that is free.
_MOST_OF_FREE_MEMORY: Final = 0.5
# Of each token of the vocabulary at each place that is drawn at: its logit, and what the draws keep beside it.
_BYTES_OF_A_LOGIT: Final = 16
_GRAIN: Final = 64


class DevicePool:
    """Safe to use from several threads."""

    def __init__(
        self, model: CausalModel, vocabulary: Vocabulary, *, device_types: tuple[str, ...] = ("cuda",)
    ) -> None:
        """Start without sessions.

        Args:
            model: the model.
            vocabulary: that of all machines.
            device_types: where device mode is chosen.
        """
        self._model = model
        self._vocabulary = vocabulary
        self._device_types = device_types
        self._lock = threading.Lock()
        self._lane = Lane(model.device)
        self._tables: tuple[Arena, DeviceDrafts] | None = None
        self._free: OrderedDict[int, DeviceSession] = OrderedDict()
        self._returned: deque[DeviceSession] = deque()

    def host_mode_because(
        self, automaton: FrozenAutomaton | FrozenPart | None, speculation: Speculation, *, deterministic: bool
    ) -> str | None:
        """Return why a request runs in host mode; None if it can run in device mode.

        Args:
            automaton: the frozen one, or its part; None where nothing of it is frozen.
            speculation: its options.
            deterministic: whether its passes have one width.
        """
        if self._model.device.type not in self._device_types:
            return f"the model is on a device of type {self._model.device.type}, and device mode needs cuda"
        if self._model.is_spread:
            return "the weights of the model are spread over several devices, and a step stands on one"
        if self._model.no_masks_because is not None:
            return f"the model cannot be given masks of ours: {self._model.no_masks_because}"
        if automaton is None:
            return (
                "the automaton is not frozen: call freeze() of the generator's automaton once, or freeze_part() where "
                "its states have no end"
            )
        if deterministic:
            return "deterministic passes have a width of their own"
        if speculation.branches:
            return "drafts with branches are read on the host"
        if speculation.drafters:
            names = ", ".join(drafter.name for drafter in speculation.drafters)
            return f"the drafters that were asked for ({names}) run on the host"
        return None

    def decoding(self, asked: DeviceRequest) -> DeviceDecoding:
        """Return a request alone, before its first token.

        Raises:
            BudgetError: the budget is smaller than the finishing cost of the automaton.
        """
        return DeviceDecoding(
            RowFollower(asked.automaton, asked.request),
            open_session=lambda: self.open([asked], most_rows=1),
            new_target=lambda: TransformersBatch(self._model).join(),
        )

    def open(self, asked: Sequence[DeviceRequest], *, most_rows: int) -> SessionRows:
        """Return a session without rows, for the first of some requests and as many of the others as are like it.

        Args:
            asked: at least one, those that need the most slots first.
            most_rows: most rows that are under way at a time.
        """
        first, shape = asked[0], asked[0].shape
        # What the steps look up is memory of their stream, so that nobody gets it while a step may still look.
        with self._lane():
            arena, drafts = self._shared(first.automaton)
            alike: list[DeviceRequest] = []
            for one in asked:
                if shape.is_like(one.shape) and (one is first or self._has_room(arena, one.automaton)):
                    self._look_up(one.automaton, arena, drafts if shape.num_drafted else None)
                    alike.append(one)
        num_rows = min(len(alike), most_rows, MOST_ROWS)
        session = self._take(replace(shape.joined(one.shape for one in alike), num_rows=num_rows), arena, drafts)
        return SessionRows(session, most_rows=num_rows, release=self._give)

    @staticmethod
    def _look_up(automaton: FrozenAutomaton | FrozenPart, arena: Arena, drafts: DeviceDrafts | None) -> None:
        """Let tables have an automaton; the drafts of a part follow where it is loaded, as it grows."""
        arena.add(automaton.machine)
        if isinstance(automaton, FrozenAutomaton) and drafts is not None:
            drafts.add(automaton.machine, lambda: forced_runs(automaton, drafts.num_drafted))

    def _take(self, wanted: StepShape, arena: Arena, drafts: DeviceDrafts) -> DeviceSession:
        """Return a session of a shape, of fewer rows where memory has no room, made now if nobody gave one back."""
        with self._lock:
            self._keep_returned()
            room = self._rows_with_room(wanted, kept_bytes=self._num_kept_bytes)
            num_rows = min(1 << (wanted.num_rows - 1).bit_length(), 1 << max(0, room.bit_length() - 1))
            shape = replace(wanted, num_rows=num_rows)
            fits = (key for key, one in self._free.items() if one.shape == shape and one.arena is arena)
            found = next(fits, None)
            session = None if found is None else self._free.pop(found)
            if session is None and self._rows_with_room(shape) < num_rows:
                self._free.clear()
        if session is None:
            return DeviceSession(self._model, arena, shape, lane=self._lane, drafts=drafts)
        session.stop(range(shape.num_rows))
        return session

    def _rows_with_room(self, shape: StepShape, *, kept_bytes: int = 0) -> int:
        """Return how many rows there is memory for.

        Args:
            shape: of the steps.
            kept_bytes: what may be given up for it.
        """
        free = _free_bytes(self._model.device)
        if free is None:
            return MOST_ROWS
        logits = shape.num_nodes * self._vocabulary.size * _BYTES_OF_A_LOGIT
        row_bytes = shape.num_slots * self._bytes_of_a_position + logits
        return int(_MOST_OF_FREE_MEMORY * (free + kept_bytes) / row_bytes)

    @functools.cached_property
    def _bytes_of_a_position(self) -> float:
        """Keys and values of one token, as a pass over one makes them."""
        cache = KvCache(least_rows=1, least_positions=_GRAIN)
        TransformersBatch(self._model, cache=cache).join().extend(Tokens([0]))
        return cache.num_bytes / _GRAIN

    def _shared(self, automaton: FrozenAutomaton | FrozenPart) -> tuple[Arena, DeviceDrafts]:
        """Return what sessions look up, made at the first use, and anew where there is no room for a machine more."""
        with self._lock:
            if self._tables is None or not self._has_room(self._tables[0], automaton):
                self._free.clear()
                arena = Arena(
                    vocabulary_digest=self._vocabulary.digest,
                    num_tokens=self._vocabulary.size,
                    num_private_rows=MOST_ROWS * (1 + MOST_DRAFTED),
                    device=self._model.device,
                )
                self._tables = arena, DeviceDrafts(arena, num_drafted=MOST_DRAFTED, device=self._model.device)
            return self._tables

    @staticmethod
    def _has_room(arena: Arena, automaton: FrozenAutomaton | FrozenPart) -> bool:
        return arena.num_bytes < _MOST_TABLE_BYTES or automaton.machine in arena

    def _give(self, session: DeviceSession) -> None:
        # A stream that nobody reads on may be given up wherever Python collects garbage, while this very thread holds
        # a lock of ours: so nothing waits here, and nothing is started on the device.
        self._returned.append(session)
        if self._lock.acquire(blocking=False):
            try:
                self._keep_returned()
            finally:
                self._lock.release()

    def _keep_returned(self) -> None:
        """Keep sessions that were given back, and let go of the oldest ones past what is kept."""
        while self._returned:
            session = self._returned.popleft()
            if self._tables is not None and session.arena is self._tables[0]:
                self._free[id(session)] = session
        most_bytes = max(_LEAST_KEPT_BYTES, self._model.num_bytes)
        while len(self._free) > _MOST_FREE or self._num_kept_bytes > most_bytes:
            self._free.popitem(last=False)

    @property
    def _num_kept_bytes(self) -> int:
        return sum(session.num_cache_bytes for session in self._free.values())


def _free_bytes(device: torch.device) -> int | None:
    """Return how much memory a device has left for us, None where that is not known."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
