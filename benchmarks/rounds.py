"""Nothing by itself: decoding with every round told, and what passes cost in the same run, for other scripts here."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import structgen as sg
from structgen.decode.control import Round, SpeculationControl
from structgen.decode.drafting import SpeculationSetup
from structgen.decode.loop import Decoding, Request
from structgen.decode.target import Tokens


def setting(model: sg.Model, *packages: str) -> str:
    """Return the machine, the model and the versions of a run."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "transformers", *packages))
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{name} ({capability}), {torch.get_num_threads()} torch thread; {versions}; {model!r}"


class Recorded:
    """A speculation control that another one decides for, and what came of every round.

    Attributes:
        rounds: one for each pass, that over the prompt first.
    """

    def __init__(self, inner: SpeculationControl) -> None:
        """Take the control that decides."""
        self._inner = inner
        self.rounds: list[Round] = []

    def __getattr__(self, name: str) -> Any:
        """Give what the inner one has."""
        return getattr(self._inner, name)

    def record(self, made: Round) -> None:
        """Take note of a round."""
        self.rounds.append(made)
        self._inner.record(made)


@dataclass(frozen=True, slots=True)
class Run:
    """One text.

    Attributes:
        text: the text.
        token_ids: its tokens.
        rounds: see Recorded.
        seconds: of each round, everything counted; as many as rounds, the last may have one more (the end).
        other_s: masks, moves of the state and draws, the first round's among them.
        drafted: tokens that were drafted for each pass.
    """

    text: str
    token_ids: tuple[int, ...]
    rounds: tuple[Round, ...]
    seconds: tuple[float, ...]
    other_s: float
    drafted: tuple[int, ...]


def decode(model: sg.Model, automaton: Any, prompt: str, setup: SpeculationSetup, max_tokens: int) -> Run:
    """Answer a prompt greedily and return every round of it."""
    runtime = model._runtime
    control: Any = Recorded(setup.control)
    request = Request(
        prompt_token_ids=runtime.encode(prompt), max_tokens=max_tokens, seed=1, sampling=sg.Sampling.greedy()
    )
    decoding = Decoding(
        runtime.new_target(), automaton.start(), runtime.vocabulary, request, replace(setup, control=control)
    )
    seconds = []
    while True:
        clock = time.perf_counter()
        added = decoding.step()
        seconds.append(time.perf_counter() - clock)
        if added is None:
            break
    trace = decoding.trace
    return Run(
        decoding.text,
        tuple(decoding.token_ids),
        tuple(control.rounds),
        tuple(seconds),
        trace.mask_s + trace.sample_s,
        tuple(map(len, trace.drafts)),
    )


class PassTimes:
    """Seconds of passes over so many tokens, body and head, measured between the texts of a run."""

    def __init__(self, widths: Sequence[int]) -> None:
        """Start without a measurement.

        Args:
            widths: numbers of tokens, rising.
        """
        self._seconds: dict[int, list[float]] = {width: [] for width in widths}

    def measure(self, model: sg.Model, token_ids: Sequence[int], *, repeats: int = 1) -> None:
        """Measure behind these tokens."""
        target = model._runtime.new_target()
        target.prefill(token_ids)
        for _ in range(repeats):
            for width, seconds in self._seconds.items():
                clock = time.perf_counter()
                target.head(target.extend(Tokens([token_ids[-1]] * width)))
                seconds.append(time.perf_counter() - clock)
                target.crop(len(token_ids))

    def seconds(self, width: int) -> float:
        """Return the median of what was measured."""
        return statistics.median(self._seconds[width])
