"""Several schemas and several states: what one call takes, and whether a second thread helps.

    python benchmarks/batches.py TOKENIZER_FOLDER

Schemas of benchmarks/schemas under new names each round, so that every automaton is new. One by one and in two threads,
in turns; the ratio is the median over rounds of wall times, so run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg

ROUNDS = 15
SCHEMAS = sorted(path for path in Path(__file__).with_name("schemas").glob("*.json") if path.stem != "names_differ")


class Batch:
    """The schemas of one round, each with the tokens of its valid instances."""

    def __init__(self, tokenizer: Any, vocabulary: sg.Vocabulary, turn: int) -> None:
        """Give every schema a new name."""
        self.vocabulary = vocabulary
        self.declared: list[sg.JsonSchema] = []
        self.token_ids: list[list[list[int]]] = []
        for path in SCHEMAS:
            case = json.loads(path.read_text(encoding="utf-8"))
            name = f"{path.stem}{turn}"
            one = {"type": "object", "properties": {name: case["schema"]}, "required": [name]}
            one |= {key: case["schema"][key] for key in ("$defs", "definitions") if key in case["schema"]}
            texts = [json.dumps({name: test["data"]}, ensure_ascii=False) for test in case["tests"] if test["valid"]]
            self.declared.append(sg.JsonSchema(one, whitespace="any"))
            self.token_ids.append([tokenizer.encode(text, add_special_tokens=False) for text in texts])

    def compile(self, place: int) -> sg.TokenAutomaton:
        """Compile one of the schemas."""
        return sg.compile(self.declared[place], self.vocabulary, cache=None)

    def masks(self, place: int, automaton: sg.TokenAutomaton) -> int:
        """Walk one automaton along its instances; return the number of masks."""
        count = 0
        for token_ids in self.token_ids[place]:
            state = automaton.start()
            for token_id in token_ids:
                count += 1
                if not state.allows(token_id):  # keys in another order
                    break
                state.advance(token_id)
        return count


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a call returns, its wall seconds and its CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def in_threads(number: int, call: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return the results of a call over some lists, in that many threads."""
    if number == 1:
        return list(map(call, *arguments))
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(call, *arguments))


def threads_rows(tokenizer: Any, vocabulary: sg.Vocabulary) -> list[list[str]]:
    """Return the rows of the table of threads."""
    times: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for turn in range(ROUNDS):
        for number in (1, 2) if turn % 2 else (2, 1):
            batch = Batch(tokenizer, vocabulary, 10 * turn + number)
            places = list(range(len(batch.declared)))
            automata, *spent = timed(lambda b=batch, n=number, p=places: in_threads(n, b.compile, p))
            times.setdefault(("compile", number), []).append((spent[0], spent[1]))
            _, *spent = timed(lambda b=batch, n=number, p=places, a=automata: in_threads(n, b.masks, p, a))
            times.setdefault(("masks never seen before", number), []).append((spent[0], spent[1]))
    rows = []
    for what in ("compile", "masks never seen before"):
        one, two = times[what, 1][1:], times[what, 2][1:]  # the first round makes what all later ones share
        walls, cpus = ([statistics.median(pair[i] for pair in many) * 1e3 for many in (one, two)] for i in (0, 1))
        ratio = statistics.median(a[0] / b[0] for a, b in zip(one, two, strict=True))
        rows.append([what, *(f"{value:.1f}" for value in (*walls, *cpus)), f"{ratio:.2f}"])
    return rows


def fill_rows(vocabulary: sg.Vocabulary) -> list[list[str]]:
    """Return the rows of the table of fill_masks: microseconds a state, the masks known."""
    rows = []
    state = sg.compile(sg.JsonSchema({"type": "object"}), vocabulary).start()
    for size in (1, 8, 64, 256):
        states = [state.fork() for _ in range(size)]
        out = np.empty((size, (vocabulary.size + 31) // 32), np.int32)
        sg.fill_masks(states, out=out)
        times = [timed(lambda s=states, o=out: sg.fill_masks(s, out=o))[1] * 1e6 / size for _ in range(200)]
        rows.append([str(size), f"{statistics.median(times):.2f}", f"{statistics.quantiles(times, n=10)[-1]:.2f}"])
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    vocabulary = sg.Vocabulary.from_tokenizer(tokenizer)
    table = Table(
        "what",
        *("ms, one by one", "ms, two threads", "CPU ms, one by one", "CPU ms, two threads", "times as fast"),
        title=f"{len(SCHEMAS)} new schemas, {arguments.tokenizer.name}, {vocabulary.size:,} ids",
    )
    for row in threads_rows(tokenizer, vocabulary):
        table.add_row(*row)
    Console().print(table)
    table = Table("states", "us a state, median", "p90", title="fill_masks, masks seen before")
    for row in fill_rows(vocabulary):
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
