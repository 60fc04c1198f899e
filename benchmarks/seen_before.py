"""First masks of schemas that another process has compiled: what the cache on disk is worth.

    python benchmarks/seen_before.py TOKENIZER_FOLDER [--data FOLDER] [--limit N]

A first process compiles the schemas of a folder in MaskBench's format (see maskbench.py), walks their valid instances,
and keeps what it worked out in an empty folder. Then, in this process and in turns of a few schemas: the first mask
with that folder, and llguidance's, where it is installed; last, all of them once more with no cache. Of the first two
the least of several rounds counts, each with nothing in memory. Busy microseconds, min(wall, CPU), one thread.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from maskbench import GENERAL, OWN_DATA, Bench, Settings, Stopwatch
from rich.console import Console
from rich.table import Table

import structgen as sg
from structgen.grammar.cache import CompileCache

QUANTILES = (50, 90, 99)
TURN = 25
"""Schemas that one engine takes in a line, as it would by itself, before another has its turn."""


def settings_of(tokenizer: Path, folder: Path) -> Settings:
    """Return how the first process runs the files."""
    return Settings(tokenizer=tokenizer, property_order="declared", folder=folder, seconds=20)


def fill(tokenizer: Path, folder: Path, paths: list[Path], seen: Any) -> None:
    """Compile and walk every file, and keep what that took; send the names of those that were compiled."""
    warnings.filterwarnings("ignore", ".*is ignored")
    bench = Bench(settings_of(tokenizer, folder))
    seen.send([path.name for path in paths if bench.run(path).verdict in ("passes", "wrong")])


def peer(tokenizer: Any) -> tuple[str, Callable[[Any], object]] | None:
    """Return llguidance's name and its first mask of a schema, None where it is not installed."""
    try:
        import llguidance
        import llguidance.hf
        import llguidance.numpy
    except ImportError:
        return None
    theirs = llguidance.hf.from_tokenizer(tokenizer)

    def first_mask(schema: Any) -> None:
        matcher = llguidance.LLMatcher(theirs, json.dumps({"grammars": [{"json_schema": schema}]}))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        bits = llguidance.numpy.allocate_token_bitmask(1, theirs.vocab_size)
        llguidance.numpy.fill_next_token_bitmask(matcher, bits, 0)

    return f"llguidance {version('llguidance')}", first_mask


def measure(schemas: list[Any], engines: dict[str, Callable[[Any], object]]) -> dict[str, Any]:
    """Return the times of every engine by schema, nan where it is refused."""
    stopwatch = Stopwatch()
    times: dict[str, list[float]] = {name: [] for name in engines}
    for engine in engines.values():
        for schema in GENERAL:
            engine(schema)
    gc.freeze()
    gc.disable()
    for first in range(0, len(schemas), TURN):
        for name, engine in engines.items():
            for schema in schemas[first : first + TURN]:
                gc.collect()
                try:
                    times[name].append(stopwatch(engine, schema)[1])
                except ValueError:  # llguidance refuses it
                    times[name].append(np.nan)
    return {name: np.array(found) for name, found in times.items()}


def without_refused(times: dict[str, Any]) -> dict[str, Any]:
    """Return the times of those schemas that every engine takes."""
    taken = ~np.isnan(list(times.values())).any(axis=0)
    return {name: found[taken] for name, found in times.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--data", type=Path, default=OWN_DATA, help="folder of .json files")
    parser.add_argument("--limit", type=int, default=300, metavar="N", help="the first N of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder of the cache, to be filled only once")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", ".*is ignored")
    paths = sorted(arguments.data.glob("*.json"))[: arguments.limit]
    tokenizer = arguments.tokenizer.resolve()
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.keep or Path(made)
        ours, theirs = multiprocessing.Pipe()
        filler = multiprocessing.get_context("spawn").Process(target=fill, args=(tokenizer, folder, paths, theirs))
        filler.start()
        theirs.close()  # so that a process that fails is noticed
        names = set(ours.recv())
        filler.join()
        bench = Bench(settings_of(tokenizer, folder))

        def first_mask(schema: Any, cache: CompileCache | None) -> None:
            declared = sg.JsonSchema(schema, whitespace="any")
            sg.compile(declared, bench.vocabulary, cache=cache).start().mask()

        engines: dict[str, Callable[[Any], object]] = {}
        found = peer(bench.tokenizer)
        if found is not None:
            engines[found[0]] = found[1]
        schemas = [json.loads(path.read_text(encoding="utf-8"))["schema"] for path in paths if path.name in names]
        rounds = []
        for _ in range(arguments.rounds):
            cache = CompileCache(folder, max_disk_mb=1 << 16)
            rounds.append(measure(schemas, {"seen before": partial(first_mask, cache=cache)} | engines))
        times = {name: np.min([one[name] for one in rounds], axis=0) for name in rounds[0]}
        times |= measure(schemas, {"new": partial(first_mask, cache=None)})
        times = without_refused(times)
    table = Table("first mask, busy us", *(f"p{q}" for q in QUANTILES), title=f"{len(times['seen before'])} schemas")
    for name, taken in times.items():
        table.add_row(name, *(f"{value:,.0f}" for value in np.percentile(taken, QUANTILES)))
    for name in list(times)[1:]:
        ratios = np.percentile(times["seen before"], QUANTILES) / np.percentile(times[name], QUANTILES)
        table.add_row(f"seen before / {name}", *(f"{value:.2f}" for value in ratios))
    Console().print(table)


if __name__ == "__main__":
    main()
