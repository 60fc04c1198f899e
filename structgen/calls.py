"""A call on its way: the request, what its report needs, and its faces as a row of a batch.

Left out: how calls are prepared, and what becomes of their texts (generator.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from structgen.replay_record import SpeculationRecord

if TYPE_CHECKING:
    from structgen.config import Speculation
    from structgen.decode.device_loop import DeviceDecoding, DeviceRequest, RowFollower
    from structgen.decode.exact_choice import ExactChoice
    from structgen.decode.loop import Decoding, Request
    from structgen.decode.target import Target
    from structgen.drafter import DraftMemory

T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class Call:
    """A request, and what its report needs.

    Attributes:
        asked: what it asks of the device, None where it runs in host mode.
        host_mode_because: why it does; None if it does not.
        decoding: the text on its way, once it has been started.
        drafting: who drafts, and how, since then.
    """

    request: Request
    route: str
    compile_cache: str
    deterministic: bool
    speculation: Speculation
    memory: DraftMemory
    asked: DeviceRequest | None
    host_mode_because: str | None
    decoding: Decoding | ExactChoice | DeviceDecoding | RowFollower = field(init=False)
    drafting: SpeculationRecord = field(init=False)


class HostCallRow(Generic[T]):
    """A call as a row of a batch (structgen.decode.batch_loop.Row)."""

    def __init__(
        self, call: Call, start: Callable[[Call, Target], Decoding | ExactChoice], result: Callable[[Call], T]
    ) -> None:
        """Keep what begins with the call, and what reads its text."""
        self._call = call
        self._start = start
        self._result = result

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of its prompt."""
        return len(self._call.request.prompt_token_ids)

    def start(self, target: Target) -> Decoding | ExactChoice:
        """Return the text before its first token."""
        return self._start(self._call, target)

    def result(self) -> T:
        """Return what came of the text."""
        return self._result(self._call)


class DeviceCallRow(Generic[T]):
    """A call as a row of a batch in device mode (structgen.decode.device_batch.DeviceRow)."""

    def __init__(self, call: Call, asked: DeviceRequest, result: Callable[[Call], T]) -> None:
        """Keep what is asked of the device, and what reads the text of the call."""
        self._call = call
        self._result = result
        self.asked = asked

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens that are read before the first one is drawn in host mode: the prompt, and what the device made."""
        return len(self._call.request.prompt_token_ids) + len(self._follower.token_ids)

    def follow(self) -> RowFollower:
        """Return the text before its first token."""
        from structgen.decode.device_loop import RowFollower

        self._call.drafting = SpeculationRecord.of(self._call.speculation, ())
        self._call.decoding = self._follower = RowFollower(self.asked.automaton, self.asked.request)
        return self._follower

    def start(self, target: Target) -> Decoding:
        """Return the text where it has left the device."""
        self._call.decoding = rest = self._follower.go_on(target)
        return rest

    def result(self) -> T:
        """Return what came of the text."""
        return self._result(self._call)
