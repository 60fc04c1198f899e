"""Graphs, lanes and readings without a GPU: CUDA's part is played by fakes."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from structgen.decode import device_graph
from structgen.decode.device_graph import GraphedStep, Lane
from structgen.decode.device_reader import DeviceReader, in_one_piece, views_of

CUDA = torch.device("cuda")


class Graph:
    """Stands for a captured graph."""

    num_replays = 0

    def replay(self) -> None:
        """Count."""
        self.num_replays += 1


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put fakes in the place of CUDA, and return what happens in its order."""
    seen: list[str] = []

    @contextlib.contextmanager
    def graph(_graph: Graph, **options: Any) -> Iterator[None]:
        seen.append(f"capture on {options['stream']}, {options['capture_error_mode']}")
        assert device_graph._CAPTURES.locked()
        assert not gc.isenabled()
        try:
            yield
        except RuntimeError:
            # As torch does: the end of a capture that was broken has an error of its own.
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture") from None

    fakes = {
        "device": lambda _: contextlib.nullcontext(),
        "current_stream": lambda: "the lane",
        "CUDAGraph": Graph,
        "graph": graph,
        "synchronize": lambda: seen.append("synchronize"),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return seen


def test_a_step_is_warmed_up_captured_and_replayed(events: list[str]) -> None:
    """On the stream of the lane; after it the step itself is not called any more."""
    step = GraphedStep(lambda: events.append("step"), CUDA)
    assert events == ["step"] * 3 + ["capture on the lane, thread_local", "step"]
    step()
    assert step._graph.num_replays == 1
    assert len(events) == 5
    assert step.eager_because is None


def test_a_step_that_cannot_be_captured_runs_as_it_is(events: list[str]) -> None:
    """The reason is one line; calls run the step."""

    def asks() -> None:
        events.append("step")
        if events[-2:-1] == ["capture on the lane, thread_local"]:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")

    step = GraphedStep(asks, CUDA)
    assert step.eager_because == (
        "the step cannot be captured (RuntimeError: operation not permitted when stream is capturing)"
    )
    step()
    assert events[-2:] == ["synchronize", "step"]


def test_a_capture_that_somebody_else_ended_is_tried_again(events: list[str]) -> None:
    """Whoever waits for the whole device in another thread ends captures; that is no fault of the step."""
    num_ended, most_ended = 0, 1
    capture = ["capture on the lane, thread_local", "step"]

    def step() -> None:
        nonlocal num_ended
        events.append("step")
        if events[-2:-1] == capture[:1] and num_ended < most_ended:
            num_ended += 1
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    assert GraphedStep(step, CUDA).eager_because is None
    assert events == [*["step"] * 3, *capture, "synchronize", *capture]
    most_ended, num_ended = 5, 0
    assert "previous error during capture" in str(GraphedStep(step, CUDA).eager_because)
    assert num_ended == 2
    assert gc.isenabled()
    assert not device_graph._CAPTURES.locked()


def test_a_lane_has_a_stream_that_waits_for_what_was_started_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made once; inside, work goes to it."""
    seen: list[str] = []
    stream = SimpleNamespace(wait_stream=lambda other: seen.append(f"wait for {other}"))
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "theirs")
    monkeypatch.setattr(torch.cuda, "Stream", lambda: seen.append("new stream") or stream)
    monkeypatch.setattr(
        torch.cuda, "stream", lambda one: contextlib.nullcontext(seen.append(f"on ours: {one is stream}"))
    )
    lane = Lane(CUDA)
    for _ in range(2):
        with lane():
            seen.append("work")
    assert seen == ["new stream", *["wait for theirs", "on ours: True", "work"] * 2]


def test_readings_come_oldest_first_and_stay_as_they_were_taken() -> None:
    """Tensors of several types lie in one piece of memory, and one copy has all of them."""
    layout = {"big": (torch.int64, (2,)), "small": (torch.float32, (2, 3)), "flag": (torch.int32, ())}
    memory = in_one_piece(layout, "cpu")
    tensors = views_of(memory, layout)
    reader = DeviceReader(memory, layout, num_slots=3)
    for number in range(1, 4):
        tensors["big"].fill_(-number << 40)
        tensors["small"].fill_(number / 2)
        tensors["flag"].fill_(number)
        reader.take()
        if number > 1:
            found = reader.read()
            assert found["big"].tolist() == [-(number - 1) << 40] * 2
            assert found["small"].tolist() == [[(number - 1) / 2] * 3] * 2
            assert int(found["flag"]) == number - 1
    assert reader.num_taken == 1
