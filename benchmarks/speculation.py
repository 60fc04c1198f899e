"""What speculation saves with SmolLM2, float32, one thread: target passes and time per object, by drafters.

    python benchmarks/speculation.py [temperature]

Prompts and schemas are below. Every prompt is answered in every way one after the other, the ways in turn first, so a
machine that gets slower does so for all; times are told as ratios to plain decoding in the same run. All ways use the
same loop and the same model. Whether the texts are the same is counted too.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from typing import Any, Literal

import torch
from pydantic import BaseModel

import structgen as sg

D = sg.drafters


class Person(BaseModel):
    """A contact."""

    name: str
    age: int
    city: str
    email: str


class Line(BaseModel):
    """A line of an order."""

    item: str
    quantity: int


class Order(BaseModel):
    """An order, nested."""

    customer: str
    status: Literal["open", "paid", "shipped"]
    express: bool
    lines: list[Line]


class Note(BaseModel):
    """An extraction that repeats its input."""

    sender: str
    subject: str
    body: str


TASKS: dict[type[BaseModel], list[str]] = {
    Person: [
        "Anna Lindqvist from Oslo is 31 years old: anna@lindqvist.no",
        "Bob Miller, 45, lives in Boston, bob@miller.com",
        "Carla Diaz from Madrid is 27. Write to carla@diaz.es",
        "Georg Huber (58) of Graz, georg@huber.at",
    ],
    Order: [
        "Mrs. Sato ordered 2 lamps and 1 chair. It is paid and goes out express.",
        "Order of Mr. Khan, still open: 12 pencils, 3 notebooks.",
        "Shipped to Erin Walsh: one tent, four sleeping bags. No hurry.",
    ],
    Note: [
        "From: Hana. Subject: The meeting on Friday. Body: The meeting on Friday is moved to ten o'clock in room 4.",
        "From: Dmitri. Subject: Broken printer. Body: The printer on the second floor does not print any more.",
        "From: Olga. Subject: Lunch. Body: Shall we have lunch at the new place by the river tomorrow?",
    ],
}

WAYS: dict[str, sg.Speculation] = {
    "off": sg.Speculation.off(),
    "forced runs": sg.Speculation(drafters=[D.ForcedRun()], adaptive=False),
    "forced runs, table": sg.Speculation(drafters=[D.ForcedRun(), D.StateTable()], adaptive=False),
    "all three": sg.Speculation(adaptive=False),
    "all three, adaptive": sg.Speculation(),
    "the same, branches": sg.Speculation(branches=4),
}


def measure(model: sg.Model, output_type: type[BaseModel], prompts: list[str], sampling: sg.Sampling) -> None:
    """Print a row for each way."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: Counter[str] = Counter()
    others: Counter[str] = Counter()
    rounds = list(enumerate(prompts))
    for number, prompt in [(-1, prompts[0]), *rounds]:
        texts = {}
        order = list(WAYS)
        for name in order[number % len(order) :] + order[: number % len(order)]:
            options: dict[str, Any] = {"speculation": WAYS[name], "route": f"{output_type.__name__} {name}"}
            message = f"Extract the {output_type.__name__.lower()} as JSON.\n{prompt}"
            # A scope for each way: what one has seen is nothing to the others.
            run = model.run(
                output_type, message, seed=number + 1, sampling=sampling, max_tokens=90, scope=name, **options
            )
            texts[name] = run.text
            if number >= 0:  # the first answer compiles, and warms up
                report = run.report
                sums[name].update(tokens=report.num_tokens, passes=report.num_target_passes)
                sums[name].update(drafted=sum(report.drafted.values()), accepted=sum(report.accepted.values()))
                seconds[name] += report.total_s
        others.update(name for name, text in texts.items() if text != texts["off"])
    for name, counts in sums.items():
        print(
            f"{output_type.__name__:<8}{name:<22}{counts['tokens'] / len(prompts):>8.1f}"
            f"{counts['passes'] / len(prompts):>8.1f}{counts['tokens'] / counts['passes']:>8.2f}"
            f"{counts['accepted'] / max(counts['drafted'], 1):>10.0%}{seconds[name] / len(prompts):>9.2f}"
            f"{seconds[name] / seconds['off']:>8.2f}{others[name]:>7}"
        )


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    temperature = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    model = sg.load(device="cpu", dtype="float32")
    print(f"{model!r}, temperature {temperature:g}; tokens, passes and seconds per object")
    print(
        f"{'type':<8}{'drafters':<22}{'tokens':>8}{'passes':>8}{'ratio':>8}{'accepted':>10}{'seconds':>9}{'of off':>8}"
        f"{'other':>7}"
    )
    for output_type, prompts in TASKS.items():
        measure(model, output_type, prompts, sg.Sampling(temperature=temperature))


if __name__ == "__main__":
    main()
