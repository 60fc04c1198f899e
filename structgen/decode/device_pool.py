"""Device mode for the requests of one model: which of them run in it, and the sessions that they take in turn.

A session has buffers and a captured graph, which take longer to make than most texts: whoever has done with one gives
it back, and the next request of the same shape takes it. Sizes are rounded up, so that there are few shapes. All
machines of a model are in one arena, and all of its sessions start their work on one stream, a step at a time, because
the rows that a budget cuts are written to one place.

Left out: several requests in one session (device_session.py can), and drafts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from structgen.config import Sampling, Speculation
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_graph import Lane
from structgen.decode.device_loop import DeviceDecoding, RowFollower
from structgen.decode.device_session import DeviceSession
from structgen.decode.device_step import StepShape
from structgen.decode.loop import Request
from structgen.decode.state import DecodeState
from structgen.frozen_machine import FrozenMachine
from structgen.kernels.arena import Arena
from structgen.vocabulary import Vocabulary

_LEAST_POSITIONS: Final = 256
# Sessions that nobody uses; each has a KV cache.
_MOST_FREE: Final = 4


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
        self._arena: Arena | None = None
        self._free: OrderedDict[int, DeviceSession] = OrderedDict()

    def host_mode_because(
        self, machine: FrozenMachine | None, speculation: Speculation, *, deterministic: bool
    ) -> str | None:
        """Return why a request runs in host mode; None if it can run in device mode.

        Args:
            machine: that of its automaton, None where it is not frozen.
            speculation: its options.
            deterministic: whether its passes have one width.
        """
        if self._model.device.type not in self._device_types:
            return f"the model is on a device of type {self._model.device.type}, and device mode needs cuda"
        if self._model.no_masks_because is not None:
            return f"the model cannot be given masks of ours: {self._model.no_masks_because}"
        if machine is None:
            return "the automaton is not frozen: call freeze() of the generator's automaton once"
        if deterministic:
            return "deterministic passes have a width of their own"
        if speculation.drafters:
            names = ", ".join(drafter.name for drafter in speculation.drafters)
            return f"the drafters that were asked for ({names}) run on the host"
        return None

    def decoding(self, state: DecodeState, machine: FrozenMachine, request: Request) -> DeviceDecoding:
        """Return a request before its first token.

        Args:
            state: the start state, which follows the text.
            machine: that of the state.
            request: prompt, budget, seed and sampling.

        Raises:
            BudgetError: the budget is smaller than the state's finishing cost.
        """
        follower = RowFollower(state, self._vocabulary, request)
        session = self._take(_shape(request))
        return DeviceDecoding(session, follower, machine, release=self._give)

    def _take(self, shape: StepShape) -> DeviceSession:
        with self._lock:
            if self._arena is None:
                self._arena = Arena(
                    vocabulary_digest=self._vocabulary.digest,
                    num_tokens=self._vocabulary.size,
                    num_private_rows=1,
                    device=self._model.device,
                )
            found = next((key for key, session in self._free.items() if session.shape == shape), None)
            if found is not None:
                return self._free.pop(found)
            return DeviceSession(self._model, self._arena, shape, lane=self._lane)

    def _give(self, session: DeviceSession) -> None:
        with self._lock:
            self._free[id(session)] = session
            if len(self._free) > _MOST_FREE:
                self._free.popitem(last=False)


def _shape(request: Request) -> StepShape:
    """Return the shape of a request alone."""
    sampling: Sampling = request.sampling
    needed = len(request.prompt_token_ids) + request.max_tokens
    return StepShape(
        num_rows=1,
        num_positions=max(_LEAST_POSITIONS, 1 << (needed - 1).bit_length()),
        has_truncation=sampling.top_k is not None or sampling.top_p is not None or bool(sampling.min_p),
        has_penalties=sampling.has_penalties,
        has_bias=bool(sampling.logit_bias),
    )
