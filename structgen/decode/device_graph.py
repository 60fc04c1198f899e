"""One step of decoding as a CUDA graph: recorded once, then started with one call for all of its kernels.

What a graph can hold is a step whose shapes, addresses and launches are the same every time. Where that is not so, or
where there is no CUDA, the step runs as it is, and says why. Left out: what a step does (device_step.py).
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

# Before a capture everything has to be there that is made at the first use: buffers, handles, compiled kernels. What
# torch's own documentation does before a capture is three runs.
_NUM_WARM_UPS: Final = 3

# Captures are made one after the other: torch waits for the whole device before each, which would end any other that is
# under way, and so may what a warm-up loads. The same goes for code that is not ours, so one that was ended is tried
# once more.
_CAPTURES = threading.Lock()
_NUM_TRIES: Final = 2
_ENDED_BY_OTHERS: Final = "previous error during capture"

# Graphs whose capture failed. The allocator of older versions of torch goes on asking them which streams are theirs.
_ABANDONED: Final[list[Any]] = []


class Lane:
    """Where sessions that share memory start their work: one at a time, and on one stream, so that none overtakes."""

    def __init__(self, device: torch.device) -> None:
        """Make the stream of a device.

        Args:
            device: where the work is done.
        """
        self._lock = threading.Lock()
        self._device = device
        self._stream: Any = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Let what is started inside be done on the lane, behind all that was started on it before.

        Not in the inference mode of a caller: tensors that are made in it could only be changed in it.
        """
        with self._lock, torch.inference_mode(mode=False), torch.no_grad():
            if self._device.type != "cuda":
                yield
                return
            with torch.cuda.device(self._device):
                if self._stream is None:
                    self._stream = _new_stream()
                self._stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self._stream):
                    yield


class GraphedStep:
    """A step that runs as a graph where it can.

    Attributes:
        eager_because: why it does not run as a graph; None if it does.
    """

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        """Warm the step up and capture it on the current stream, which on CUDA must be that of a lane.

        The step runs some times, so what it changes has to bear that.

        Args:
            step: reads and writes tensors that stay where they are, and asks for no value of them.
            device: where they are.
        """
        self._step = step
        self._graph: Any = None
        self.eager_because: str | None = None
        if device.type != "cuda":
            self.eager_because = f"there are no CUDA graphs on a device of type {device.type}"
            step()
            return
        with torch.cuda.device(device):
            self._capture()

    def __call__(self) -> None:
        """Make one step."""
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()

    def _capture(self) -> None:
        with _CAPTURES:
            for _ in range(_NUM_WARM_UPS):
                self._step()
            for _ in range(_NUM_TRIES):
                reason = self._try_capture()
                if reason is None or _ENDED_BY_OTHERS not in reason:
                    break
        self.eager_because = reason

    def _try_capture(self) -> str | None:
        """Capture the step, or return why it cannot be."""
        # Buffers that the first run makes belong to the stream that uses them, so nobody else gets their memory early.
        stream = torch.cuda.current_stream()
        graph, faults = torch.cuda.CUDAGraph(), []
        try:
            # Only calls of this thread are looked at: others may use the device meanwhile.
            with _no_collection(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                try:
                    self._step()
                except Exception as error:  # the end of the capture raises one of its own then, which says nothing
                    faults.append(error)
                    raise
        except Exception as error:  # the code of any model, which may ask for values or make shapes of them
            _ABANDONED.append(graph)
            torch.cuda.synchronize()
            first, *_ = [*faults, error]
            first_line = (str(first).strip().splitlines() or [""])[0]
            return f"the step cannot be captured ({type(first).__name__}: {first_line})"
        self._graph = graph
        return None


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let Python collect no garbage: what somebody else left, a kernel say, may not be unloaded within a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _new_stream() -> Any:
    """Return a new stream of the current device."""
    stream: Any = torch.cuda.Stream  # torch has no types there
    return stream()
