"""What benchmarks/gpu.py finds: faults, times beside their floors, and how both are timed and written."""

from __future__ import annotations

import json
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

_LAUNCHES = 10
_ROUNDS = 9
# Clocks for which a device is kept busy before it is timed, so that all that is timed is in its queue by then.
_HEAD_START = 1_000_000


@dataclass(kw_only=True, slots=True)
class Figure:
    """One time.

    Attributes:
        table: which table it belongs to.
        what: what was timed.
        vocabulary: ids.
        batch: rows.
        us: microseconds.
        floor_us: what the bytes that have to be read take, None where that is no measure.
        more: further values of the row.
    """

    table: str
    what: str
    vocabulary: int
    batch: int
    us: float
    floor_us: float | None = None
    more: dict[str, Any] = field(default_factory=dict)


class Report:
    """Collects, writes what there is as it comes, and keeps an eye on the clock.

    Attributes:
        is_check: whether this is the small run on a CPU.
        faults: what was wrong, in words.
        figures: what was timed.
    """

    def __init__(self, environment: dict[str, str], *, folder: Path, deadline: float, is_check: bool) -> None:
        """Start empty."""
        self.environment = environment
        self._folder = folder
        self.is_check = is_check
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.figures: list[Figure] = []
        self._deadline = deadline

    def stage(self, run: Callable[..., None], *arguments: Any) -> None:
        """Run a part; what it raises is a fault, and the next part runs all the same."""
        started = time.monotonic()
        try:
            run(self, *arguments)
        except Exception:
            self.faults.append(f"{run.__name__} failed: {traceback.format_exc(limit=-4)}")
        self.note(f"{run.__name__}: {time.monotonic() - started:.0f} s")

    def has_time(self, what: str) -> bool:
        """Say whether something may still begin, and note it if not."""
        if time.monotonic() < self._deadline:
            return True
        self.note(f"left out for want of time: {what}")
        return False

    def note(self, text: str) -> None:
        """Keep a remark, and show it at once."""
        self.notes.append(text)
        print(text, flush=True)
        self._write()

    def expect(self, is_right: bool, what: str) -> None:  # noqa: FBT001 - a condition, as of assert
        """Keep a fault if something does not hold."""
        if not is_right:
            self.faults.append(what)
            print(f"FAULT: {what}", flush=True)
            self._write()

    def add(self, table: str, what: str, *, us: float, **rest: Any) -> None:
        """Keep a time."""
        self.figures.append(Figure(table=table, what=what, us=us, **rest))
        self._write()

    def _write(self) -> None:
        # Each time, because a machine that is lent may be taken back, and a kernel may never end.
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "gpu.json").write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")
        (self._folder / "gpu.md").write_text(self.as_markdown(), encoding="utf-8")

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        figures = [asdict(figure) for figure in self.figures]
        kind = "check: no measurement" if self.is_check else "measured"
        return {
            "kind": kind,
            "environment": self.environment,
            "faults": self.faults,
            "notes": self.notes,
            "figures": figures,
        }

    def as_markdown(self) -> str:
        """Return a table for each kind of figure."""
        lines = [", ".join(f"{name} {value}" for name, value in self.environment.items()), ""]
        if self.is_check:
            lines += ["**A check on the CPU through Triton's interpreter. No time here is a measurement.**", ""]
        lines += [] if self.faults else ["No faults.", ""]
        lines += [f"- FAULT: {fault}" for fault in self.faults] + [f"- {note}" for note in self.notes]
        for table in dict.fromkeys(figure.table for figure in self.figures):
            rows = [figure for figure in self.figures if figure.table == table]
            more = list(dict.fromkeys(name for row in rows for name in row.more))
            head = ["", "vocabulary", "batch", "µs", "floor µs", "of the floor", *more]
            lines += ["", f"## {table}", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
            for row in rows:
                floor = ["", ""] if row.floor_us is None else [f"{row.floor_us:.2f}", f"{row.us / row.floor_us:.2f}"]
                rest = [str(row.more.get(name, "")) for name in more]
                cells = [row.what, str(row.vocabulary), str(row.batch), f"{row.us:.2f}", *floor, *rest]
                lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"


def microseconds(call: Callable[[], object], device: torch.device, *, launches: int = _LAUNCHES) -> float:
    """Return the median time of a call: on CUDA of launches in one graph, so that only the device counts.

    A call that cannot be captured is timed as it is launched.
    """
    if device.type == "cpu":
        started = time.perf_counter()
        call()
        return (time.perf_counter() - started) * 1e6
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(launches):
                call()
    except RuntimeError:
        torch.cuda.synchronize()
        return event_microseconds(call)
    return event_microseconds(graph.replay, per=launches, is_queued=True)


def event_microseconds(
    call: Callable[[], object], *, per: int = 1, rounds: int = _ROUNDS, is_queued: bool = False
) -> float:
    """Return the median time between two events around a call, over a number of parts.

    Args:
        call: what is timed.
        per: number of parts.
        rounds: how often.
        is_queued: whether the device begins when all is in its queue, so that what the host needs is not in the time.
    """
    call()
    times = []
    for _ in range(rounds):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if is_queued:
            torch.cuda._sleep(_HEAD_START)
        first.record()
        call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) * 1e3 / per)
    return statistics.median(times)


def bytes_per_us(device: torch.device) -> float:
    """Return what a plain copy of 1 GiB reads and writes per microsecond; 1 where there is no card."""
    if device.type == "cpu":
        return 1.0
    source = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / event_microseconds(lambda: target.copy_(source), is_queued=True)
