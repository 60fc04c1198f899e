"""Heads of the legal tokens alone beside whole heads: seconds per step where few tokens are legal, on a real model.

    python benchmarks/legal_rows.py [--model NAME] [--rounds N]

One thread, float32, no drafts. The same request runs with the one and the other in turns, step by step, so that
neighbours on the machine meet both alike; texts are compared. A step's time is that of its thread. Step by step, the
time with few rows over that with whole ones: median and quartiles, apart for steps with few legal tokens and others.
"""

from __future__ import annotations

import statistics
import time
from datetime import date
from typing import Any, Literal

from measuring import model_and_rounds, quartiles
from pydantic import BaseModel, Field
from rich.console import Console
from rich.table import Table

import structgen as sg
from structgen.decode.loop import Decoding, Request


class Order(BaseModel):
    """Mostly states with few legal tokens."""

    kind: Literal["purchase", "return", "exchange"]
    placed: date
    paid: bool
    items: list[Literal["lamp", "chair", "table", "rug"]] = Field(min_length=2, max_length=4)
    cents: int = Field(ge=0, le=100_000)
    customer: str = Field(max_length=20)


PROMPTS = (
    "Write as JSON: Anna bought two lamps and a rug on 2026-11-03 for 129.90, and has paid.",
    "Write as JSON: Bo returns a chair and a table, ordered on 14 March 2027 for 480.00, not paid yet.",
)


class Whole:
    """A target whose head is always computed whole."""

    most_legal_rows = 0

    def __init__(self, target: Any) -> None:
        """Stand for a target."""
        self._target = target

    def __getattr__(self, name: str) -> Any:
        """Leave the rest to it."""
        return getattr(self._target, name)


def compare(model: sg.Model, automaton: Any, prompt: str, seed: int) -> tuple[list[tuple[bool, float, float]], bool]:
    """Return for each step whether few tokens were legal, and both times; and whether the texts are the same."""
    runtime = model._runtime
    request = Request(prompt_token_ids=runtime.encode(prompt), max_tokens=200, seed=seed)
    few = Decoding(runtime.new_target(), automaton.start(), runtime.vocabulary, request)
    whole = Decoding(Whole(runtime.new_target()), automaton.start(), runtime.vocabulary, request)  # type: ignore[arg-type]
    few.step()
    whole.step()
    steps: list[tuple[bool, float, float]] = []
    while True:
        pair = []
        for decoding in (few, whole) if len(steps) % 2 else (whole, few):
            start = time.thread_time()
            goes_on = decoding.step() is not None
            pair.append((decoding is whole, time.thread_time() - start))
        if not goes_on:
            return steps, few.token_ids == whole.token_ids
        (_, of_few), (_, of_whole) = sorted(pair)
        steps.append((few._lists[0] is not None, of_few, of_whole))


def main() -> None:
    """Print the table."""
    model, rounds = model_and_rounds(__doc__, rounds=4)
    automaton = model.generator(Order).automaton
    steps, num_same = [], 0
    for turn in range(rounds + 1):
        made, is_same = compare(model, automaton, PROMPTS[turn % len(PROMPTS)], turn)
        if turn:  # the first compiles and warms up
            steps += made
            num_same += is_same
    table = Table("steps", "number", "few rows, ms", "whole rows, ms", "ratio, median", "quartiles")
    for name, kind in {"few legal tokens": True, "many": False}.items():
        chosen = [step for step in steps if step[0] is kind]
        if len(chosen) < 2:
            continue
        times = [statistics.median(step[index] for step in chosen) for index in (1, 2)]
        table.add_row(
            name,
            str(len(chosen)),
            *(f"{seconds * 1e3:.1f}" for seconds in times),
            *quartiles([few / whole for _, few, whole in chosen], 2),
        )
    Console().print(table)
    print(f"same texts: {num_same} of {rounds}; {model!r}")


if __name__ == "__main__":
    main()
