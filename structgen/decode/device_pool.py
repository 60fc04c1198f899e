"""Device mode for the requests of one model: which of them run in it, and the sessions that they take in turn.

A session has buffers and a captured graph, which take longer to make than most texts: whoever has done with one gives
it back, and the next request of the same shape takes it. Sizes are rounded up, so that there are few shapes. The
machines of a model are in one arena until that is full; then another one begins. All sessions start their work on one
stream, a step at a time, because the rows that a budget cuts are written to one place.

Left out: several requests in one session, which device_session.py can have.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from structgen.config import Sampling, Speculation
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_drafts import DeviceDrafts, forced_runs
from structgen.decode.device_graph import Lane
from structgen.decode.device_loop import DeviceDecoding, RowFollower
from structgen.decode.device_session import DeviceSession
from structgen.decode.device_step import StepShape
from structgen.decode.loop import Decoding, Request
from structgen.decode.transformers_target import TransformersBatch
from structgen.frozen_machine import FrozenMachine
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.kernels.arena import Arena
from structgen.vocabulary import Vocabulary

_LEAST_POSITIONS: Final = 256
# Tokens of a draft, where the request allows so many: a pass over five tokens reads the weights once, as one over one
# does. Chosen, not measured.
_MOST_DRAFTED: Final = 4
# Sessions that nobody uses; each has a KV cache.
_MOST_FREE: Final = 4
# Tables of machines, past which those of the next machine begin anew; texts on their way keep theirs.
_MOST_TABLE_BYTES: Final = 1 << 30


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

    def host_mode_because(
        self, automaton: FrozenAutomaton | None, speculation: Speculation, *, deterministic: bool
    ) -> str | None:
        """Return why a request runs in host mode; None if it can run in device mode.

        Args:
            automaton: the frozen one, None where it is not frozen.
            speculation: its options.
            deterministic: whether its passes have one width.
        """
        if self._model.device.type not in self._device_types:
            return f"the model is on a device of type {self._model.device.type}, and device mode needs cuda"
        if self._model.no_masks_because is not None:
            return f"the model cannot be given masks of ours: {self._model.no_masks_because}"
        if automaton is None:
            return "the automaton is not frozen: call freeze() of the generator's automaton once"
        if deterministic:
            return "deterministic passes have a width of their own"
        if speculation.branches:
            return "drafts with branches are read on the host"
        if speculation.drafters:
            names = ", ".join(drafter.name for drafter in speculation.drafters)
            return f"the drafters that were asked for ({names}) run on the host"
        return None

    def decoding(self, automaton: FrozenAutomaton, request: Request, *, max_draft_tokens: int = 0) -> DeviceDecoding:
        """Return a request before its first token.

        Args:
            automaton: what the text follows.
            request: prompt, budget, seed and sampling.
            max_draft_tokens: most tokens of a draft.

        Raises:
            BudgetError: the budget is smaller than the state's finishing cost.
        """
        follower = RowFollower(automaton.start(), self._vocabulary, request)
        shape = _shape(request, max_draft_tokens)
        # What the steps look up is memory of their stream, so that nobody gets it while a step may still look.
        with self._lane():
            arena, drafts = self._shared(automaton.machine)
            if shape.num_drafted:
                drafts.add(automaton.machine, lambda: forced_runs(automaton, drafts.num_drafted))

        def go_on(left: RowFollower) -> Decoding:
            rest = Decoding(TransformersBatch(self._model).join(), automaton.start(), self._vocabulary, request)
            rest.take_over(left.token_ids, left.trace)
            return rest

        session = self._take(shape, arena, drafts)
        return DeviceDecoding(session, follower, automaton.machine, release=self._give, go_on=go_on)

    def _shared(self, machine: FrozenMachine) -> tuple[Arena, DeviceDrafts]:
        """Return what sessions look up, made at the first use, and anew where there is no room for a machine more."""
        with self._lock:
            is_full = self._tables is not None and self._tables[0].num_bytes >= _MOST_TABLE_BYTES
            if self._tables is None or (is_full and machine not in self._tables[0]):
                self._free.clear()
                arena = Arena(
                    vocabulary_digest=self._vocabulary.digest,
                    num_tokens=self._vocabulary.size,
                    num_private_rows=1 + _MOST_DRAFTED,
                    device=self._model.device,
                )
                drafts = DeviceDrafts(arena, num_drafted=_MOST_DRAFTED, device=self._model.device)
                self._tables = arena, drafts
            return self._tables

    def _take(self, shape: StepShape, arena: Arena, drafts: DeviceDrafts) -> DeviceSession:
        with self._lock:
            fits = (key for key, one in self._free.items() if one.shape == shape and one.arena is arena)
            found = next(fits, None)
            if found is not None:
                return self._free.pop(found)
        return DeviceSession(self._model, arena, shape, lane=self._lane, drafts=drafts)

    def _give(self, session: DeviceSession) -> None:
        with self._lock:
            if self._tables is None or session.arena is not self._tables[0]:
                return
            self._free[id(session)] = session
            if len(self._free) > _MOST_FREE:
                self._free.popitem(last=False)


def _shape(request: Request, max_draft_tokens: int) -> StepShape:
    """Return the shape of a request alone."""
    sampling: Sampling = request.sampling
    needed = len(request.prompt_token_ids) + request.max_tokens
    return StepShape(
        num_rows=1,
        num_positions=max(_LEAST_POSITIONS, 1 << (needed - 1).bit_length()),
        num_drafted=0 if sampling.has_penalties else min(max_draft_tokens, _MOST_DRAFTED),
        has_truncation=sampling.top_k is not None or sampling.top_p is not None or bool(sampling.min_p),
        has_penalties=sampling.has_penalties,
        has_bias=bool(sampling.logit_bias),
    )
