"""Nothing by itself: how other scripts here time a call, write quantiles, and load the model that they measure."""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import structgen as sg


def microseconds(
    call: Callable[..., object], rounds: int = 200, *, prepare: Callable[[], Any] | None = None
) -> list[float]:
    """Return the time of each of some calls, after one that warms up.

    Args:
        call: what is timed.
        rounds: how often.
        prepare: makes what a call is given, anew for each and not timed; without it a call is given nothing.
    """
    times = []
    for _ in range(1 + rounds):
        given = () if prepare is None else (prepare(),)
        start = time.perf_counter()
        call(*given)
        times.append((time.perf_counter() - start) * 1e6)
    return times[1:]


def least_us(call: Callable[..., object], rounds: int = 20, *, prepare: Callable[[], Any] | None = None) -> float:
    """Return the least time of a call."""
    return min(microseconds(call, rounds, prepare=prepare))


def median_us(call: Callable[..., object], rounds: int = 200, *, prepare: Callable[[], Any] | None = None) -> float:
    """Return the median time of a call."""
    return statistics.median(microseconds(call, rounds, prepare=prepare))


def print_head() -> None:
    """Print the machine, and the head of a table of quantiles."""
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}")
    print(f"{'':<44}{'median':>10}{'10%':>10}{'90%':>10}")


def print_quantiles(name: str, call: Callable[[], object], rounds: int = 200) -> None:
    """Print the quantiles of a call's time."""
    times = microseconds(call, rounds)
    deciles = statistics.quantiles(times, n=10)
    print(f"{name:<44}{statistics.median(times):>10.0f}{deciles[0]:>10.0f}{deciles[-1]:>10.0f}")


def quartiles(ratios: Sequence[float], digits: int) -> tuple[str, str]:
    """Return the median, and the quartiles on both sides of it, as cells of a table."""
    low, middle, high = (f"{one:.{digits}f}" for one in statistics.quantiles(ratios, n=4))
    return middle, f"{low} - {high}"


def model_and_rounds(description: str | None, *, rounds: int) -> tuple[sg.Model, int]:
    """Read --model and --rounds from the command line; return that model, in float32 on one thread, and the rounds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--rounds", type=int, default=rounds)
    options = parser.parse_args()
    torch.set_num_threads(1)
    return sg.load(options.model, device="cpu", dtype="float32"), options.rounds
