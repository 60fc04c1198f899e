"""Constrained beside free decoding, in the same loop, on a real model: seconds per token, and their ratio.

    python benchmarks/overhead.py [--model NAME] [--rounds N]

The model is SmolLM2-135M-Instruct unless another is named. One thread. Free decoding allows every text token. Both make
the same number of tokens after the same prompt, in turns (free, constrained, free, ...), so that neighbours on the
machine and the growing KV cache meet both alike. A round's time per token is the median over its tokens; the ratio is
taken round by round, and its median and quartiles are printed.
"""

from __future__ import annotations

import statistics
import time
from datetime import date
from typing import Any, Literal

import numpy as np
from measuring import model_and_rounds, quartiles
from pydantic import BaseModel, Field
from rich.console import Console
from rich.progress import track
from rich.table import Table

import structgen as sg
from structgen.decode.loop import Decoding, Request


class Event(BaseModel):
    """What the prompt describes."""

    title: str = Field(max_length=60)
    day: date
    people: list[str] = Field(min_length=2, max_length=6)
    kind: Literal["meeting", "party", "talk"]
    minutes: int = Field(ge=0, le=600)
    notes: str = Field(min_length=40, max_length=160)


PROMPTS = (
    "Write an event as JSON: Anna, Bo and Cyril meet on 2026-12-01 for 45 minutes to plan the harbour party.",
    "Write an event as JSON: a talk by Dr. Okafor about coral reefs, 14 March 2027, an hour and a half, with Lena.",
)


class Free:
    """A state that allows every text token and never ends."""

    is_accepting = False
    tokens_to_end_bound = 0
    description = "free"
    key = 0

    def __init__(self, vocabulary: sg.Vocabulary) -> None:
        """Make the mask once."""
        bits = np.zeros((vocabulary.size + 31) // 32 * 32, np.uint8)
        bits[[i for i in range(vocabulary.size) if vocabulary.token_bytes(i)]] = 1
        self.row = np.packbits(bits, bitorder="little").view(np.int32)

    def mask(self) -> Any:
        """Allow all."""
        return self.row

    def mask_within(self, _budget: int) -> Any:
        """Allow all."""
        return self.row

    def free_text_mask(self) -> Any:
        """Say that there is no free text."""
        return None

    def forced_tokens(self) -> list[int]:
        """Force nothing."""
        return []

    def advance(self, token_id: int) -> None:
        """Take anything."""

    def rollback(self, num_tokens: int) -> None:
        """Stay."""


def token_times(model: sg.Model, state: Any, prompt: tuple[int, ...], sampling: sg.Sampling, limit: int) -> list[float]:
    """Return the seconds of each token after the first (which has the prompt in it), at most `limit` of them."""
    request = Request(prompt_token_ids=prompt, max_tokens=400, seed=1, sampling=sampling)
    decoding = Decoding(model._runtime.new_target(), state, model._runtime.vocabulary, request)
    decoding.step()
    times = []
    while len(times) < limit:
        start = time.perf_counter()
        if decoding.step() is None:
            break
        times.append(time.perf_counter() - start)
    return times


def measure(model: sg.Model, sampling: sg.Sampling, rounds: int, name: str) -> list[str]:
    """Return a row of the table."""
    generator = model.generator(Event)
    free, constrained, ratios = [], [], []
    for turn in track(range(rounds + 1), description=name):
        prompt = model._runtime.encode(PROMPTS[turn % len(PROMPTS)])
        ours = token_times(model, generator.automaton.start(), prompt, sampling, 400)
        plain = token_times(model, Free(model._runtime.vocabulary), prompt, sampling, len(ours))
        if turn == 0:
            continue  # compiles and warms up
        free.append(statistics.median(plain))
        constrained.append(statistics.median(ours))
        ratios.append(constrained[-1] / free[-1])
    times = f"{statistics.median(free) * 1e3:.2f}", f"{statistics.median(constrained) * 1e3:.2f}"
    return [name, *times, *quartiles(ratios, 3)]


def main() -> None:
    """Print the table."""
    model, rounds = model_and_rounds(__doc__, rounds=8)
    table = Table("sampling", "free, ms/token", "constrained, ms/token", "ratio, median", "quartiles")
    for name, sampling in {"greedy": sg.Sampling.greedy(), "temperature 1": sg.Sampling()}.items():
        table.add_row(*measure(model, sampling, rounds, name))
    Console().print(table)


if __name__ == "__main__":
    main()
