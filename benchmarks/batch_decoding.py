"""What a batch gains: tokens per second of rows that share passes, beside the same rows one after the other.

    python benchmarks/batch_decoding.py [--rows 2 4 8 16] [--num-prompts N] [--max-tokens N] [--repeats N]

The same prompts with the same seed, as an object and as free text, without drafts and with those of speculation as it
comes, on SmolLM2-135M-Instruct in float32 with packed layers. Ways take turns in one process; the least of some repeats
counts, in processor time, so that what else the machine does is left out. One torch thread. Drafters remember nothing
of the ways before, as each has a scope of its own. Texts that are not those of plain decoding row by row are counted:
in float32 two tokens that are all but equally likely may change places.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

import structgen as sg

_PEOPLE = [
    "Anna Lindqvist",
    "Bob Stone",
    "Carla Diaz",
    "Dmitri Orlov",
    "Eva Novak",
    "Farid Haddad",
    "Grace Lee",
    "Hugo",
]
_CITIES = ["Oslo", "Boston", "Madrid", "Riga", "Prague", "Cairo", "Seoul", "Lyon"]


class Person(BaseModel):
    """What is read out of a line."""

    name: str
    age: int
    city: str
    hobbies: list[str]


@dataclass
class Way:
    """One way to answer all prompts, and what it took."""

    max_rows: int
    speculation: sg.Speculation
    seconds: float = float("inf")
    tokens: int = 0
    passes: int = 0
    texts: list[tuple[int, ...]] = field(default_factory=list)


def prompts_of(count: int, output_type: Any) -> list[str]:
    """Return prompts of unlike length."""
    lines = []
    for number in range(count):
        who, where = _PEOPLE[number % 8], _CITIES[(3 * number + number // 8) % 8]
        told = f"{who}, {21 + number}, lives in {where} and likes chess" + ", music and long walks" * (number % 4)
        lines.append(f"{told}." if output_type is Person else f"Write a short letter to {who} in {where}.")
    return lines


def route_of(output_type: Any, way: Way) -> str:
    """Return what the metrics of a way are kept under."""
    return f"{output_type.__name__} {way.max_rows} {way.speculation.max_draft_tokens}"


def measure(model: sg.Model, output_type: Any, ways: list[Way], options: argparse.Namespace) -> None:
    """Answer all prompts in every way, in turns."""
    for speculation in {id(way.speculation): way.speculation for way in ways}.values():
        model.run(output_type, "Hello.", max_tokens=64, seed=0, speculation=speculation)  # finds masks and costs
    requests = [(output_type, prompt) for prompt in prompts_of(options.num_prompts, output_type)]
    for repeat in range(options.repeats):
        for way in ways:
            clock = time.process_time()
            results = model.run_batch(
                requests,
                seed=1,
                max_tokens=options.max_tokens,
                max_rows=way.max_rows,
                speculation=way.speculation,
                route=route_of(output_type, way),
                scope=f"{way.max_rows} {way.speculation.max_draft_tokens} {repeat}",
            )
            way.seconds = min(way.seconds, time.process_time() - clock)
            way.tokens = sum(result.report.num_tokens for result in results)
            way.passes = sum(result.report.num_target_passes for result in results)
            way.texts = [result.token_ids for result in results]


def main() -> None:
    """Print a table for each output type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--num-prompts", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    model = sg.load()
    for output_type, title in ((Person, "an object"), (str, "free text")):
        spoken = {"without drafts": sg.Speculation.off(), "with drafts": sg.Speculation()}
        ways = {
            (rows, name): Way(rows, speculation) for name, speculation in spoken.items() for rows in (1, *options.rows)
        }
        measure(model, output_type, list(ways.values()), options)
        table = Table(title=f"{title}, {options.num_prompts} prompts: tokens per second")
        for column in ("rows", *(f"{name}{what}" for name in spoken for what in ("", ", ratio", ", other texts"))):
            table.add_column(column, justify="right")
        for rows in (1, *options.rows):
            cells = []
            for name in spoken:
                way, plain = ways[rows, name], ways[1, "without drafts"]
                rate = way.tokens / way.seconds
                other = sum(one != text for one, text in zip(way.texts, plain.texts, strict=True))
                cells += [f"{rate:.1f}", f"{rate * plain.seconds / plain.tokens:.2f}", str(other)]
            table.add_row(str(rows), *cells)
        console.print(table)
        for rows in (1, *options.rows):
            statuses = model.metrics[route_of(output_type, ways[rows, "with drafts"])].drafters
            console.print(f"{rows} rows:", *(f"{name} {status.reason};" for name, status in statuses.items()))


if __name__ == "__main__":
    main()
