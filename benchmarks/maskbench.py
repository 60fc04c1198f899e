"""Real schemas with valid and invalid instances: what is accepted, and what each mask costs. No model is needed.

    python benchmarks/maskbench.py TOKENIZER_FOLDER [--data FOLDER] [--property-order any] [--cache warm]

The folder holds files of MaskBench's format (github.com/guidance-ai/jsonschemabench): JSON objects with "schema" and
"tests", a list of {"data": an instance, "valid": whether it fits}; without --data, the small one beside this script.
Each instance is written as json.dumps does, and its tokens are taken one by one, with the mask computed before each.

Times are busy microseconds, min(wall, CPU), on one thread of a process of its own. --cache none keeps nothing between
schemas but what lexemes mean for the vocabulary, for which a few general schemas are compiled beforehand. cold also
writes the rows of each schema to an empty folder; warm is a second process that finds them there.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import multiprocessing
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import structgen as sg
from structgen.grammar.cache import CompileCache
from structgen.output_type import declare

T = TypeVar("T")

OWN_DATA = Path(__file__).with_name("schemas")

# Written in another style than the files, so that no file finds its own automaton made.
GENERAL: list[dict[str, Any]] = [
    {"type": "object"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "number"}, "c": {"type": "boolean"}}},
    *({"type": "string", "format": name} for name in ("date", "date-time", "email", "uri", "uuid")),
]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one pass over the files is run with."""

    tokenizer: Path
    property_order: str
    folder: Path | None
    seconds: float


@dataclass(kw_only=True)
class Row:
    """What came of one file; times in busy microseconds.

    Attributes:
        verdict: "passes", "refused", "wrong" (of some instance), "limit", "timeout", "crash".
        refused: the keyword or limit that is the reason, where it has a name.
        error: the message of the refusal.
        compile_us: from the schema as data to the automaton.
        first_mask_us: the same and the first mask.
        masks_us: each mask of each instance.
        advances_us: each step.
        num_valid: valid instances tried.
        num_invalid: invalid ones.
        accepted: invalid instances that were accepted, by their place in the file.
        rejected: valid instances that were not.
        reordered: those of them that are accepted when keys may come in any order.
        exceptions: what steps raised beside a rejection, by the place of the instance.
    """

    file: str
    verdict: str = "passes"
    refused: str = ""
    error: str = ""
    compile_us: float = 0.0
    first_mask_us: float = 0.0
    masks_us: list[float] = field(default_factory=list)
    advances_us: list[float] = field(default_factory=list)
    num_valid: int = 0
    num_invalid: int = 0
    accepted: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    reordered: list[int] = field(default_factory=list)
    exceptions: dict[int, str] = field(default_factory=dict)


class Stopwatch:
    """Times calls by the smaller of wall and CPU time, so that neighbours on the machine do not count."""

    def __init__(self) -> None:
        """Find out what reading the clocks costs."""
        self.cost = 0
        self.cost = min(int(self(lambda: None)[1] * 1e3) for _ in range(1000))

    def __call__(self, call: Callable[..., T], *arguments: Any) -> tuple[T, float]:
        """Return what the call returns, and its microseconds."""
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        result = call(*arguments)
        cpu, wall = time.thread_time_ns() - cpu, time.perf_counter_ns() - wall
        return result, max(0, min(wall, cpu) - self.cost) / 1e3


class Bench:
    """Runs files in this process."""

    def __init__(self, settings: Settings) -> None:
        """Read the vocabulary, compile the kernels, and work out the lexemes that most schemas have."""
        from transformers import AutoTokenizer

        self.settings = settings
        self.tokenizer = AutoTokenizer.from_pretrained(settings.tokenizer)
        self.vocabulary = sg.Vocabulary.from_tokenizer(self.tokenizer)
        self.cache = None if settings.folder is None else CompileCache(settings.folder, max_disk_mb=1 << 16)
        self.stopwatch = Stopwatch()
        for schema in GENERAL:
            state = sg.compile(sg.JsonSchema(schema, whitespace="pretty"), self.vocabulary, cache=self.cache).start()
            for _ in range(20):
                legal = np.flatnonzero(np.unpackbits(state.mask().view(np.uint8), bitorder="little"))
                state.advance(int(legal[len(legal) // 2]))
                if state.is_finished:
                    break

    def run(self, path: Path) -> Row:
        """Compile the schema of a file and try its instances."""
        row = Row(file=path.name)
        data = json.loads(path.read_text(encoding="utf-8"))
        try:
            with cpu_limit(self.settings.seconds):
                self._run(row, data)
        except TimeoutError as error:
            row.verdict, row.error = "timeout", str(error)
        except sg.LimitError as error:
            row.verdict, row.refused, row.error = "limit", error.limit, str(error)
        except sg.StructgenError as error:
            row.verdict, row.refused, row.error = "refused", getattr(error, "keyword", type(error).__name__), str(error)
        return row

    def _run(self, row: Row, data: dict[str, Any]) -> None:
        automaton, row.compile_us = self.stopwatch(self._compile, data["schema"], self.settings.property_order)
        _, mask_us = self.stopwatch(automaton.start().mask)
        row.first_mask_us = row.compile_us + mask_us
        for place, test in enumerate(data["tests"]):
            try:
                token_ids = self.tokenizer.encode(
                    json.dumps(test["data"], ensure_ascii=False), add_special_tokens=False
                )
            except UnicodeError:  # a lone surrogate is no text
                continue
            row.num_valid += test["valid"]
            row.num_invalid += not test["valid"]
            try:
                accepts = self._accepts(automaton, token_ids, row)
            except sg.LimitError as error:
                row.exceptions[place] = str(error)
                accepts = False
            if accepts and not test["valid"]:
                row.accepted.append(place)
            if test["valid"] and not accepts:
                row.rejected.append(place)
                if self._accepts_reordered(data["schema"], token_ids):
                    row.reordered.append(place)
        if row.accepted or row.rejected:
            row.verdict = "wrong"
        if self.cache is not None:
            declared = sg.JsonSchema(data["schema"], whitespace="any")
            source = declare(declared, property_order=self.settings.property_order).source
            self.cache.store(source, automaton, sg.Limits())

    def _compile(self, schema: Any, property_order: str) -> Any:
        declared = sg.JsonSchema(schema, whitespace="any")
        return sg.compile(declared, self.vocabulary, cache=self.cache, property_order=property_order)

    def _accepts(self, automaton: Any, token_ids: list[int], row: Row | None = None) -> bool:
        """Return whether the tokens are legal one by one and the text may end after them; times go to the row."""
        state = automaton.start()
        for token_id in token_ids:
            mask, mask_us = self.stopwatch(state.mask)
            is_legal = bool(int(mask[token_id >> 5]) >> (token_id & 31) & 1)
            _, advance_us = self.stopwatch(state.advance, token_id) if is_legal else (None, 0.0)
            if row is not None:
                row.masks_us.append(mask_us)
                row.advances_us.append(advance_us)
            if not is_legal:
                return False
        return bool(state.is_accepting)

    def _accepts_reordered(self, schema: Any, token_ids: list[int]) -> bool:
        """Return whether an instance is accepted once its keys may come in any order."""
        if self.settings.property_order == "any":
            return False
        declared = sg.JsonSchema(schema, whitespace="any")
        try:
            automaton = sg.compile(declared, self.vocabulary, cache=None, property_order="any")
            return self._accepts(automaton, token_ids)
        except sg.StructgenError:
            return False


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what takes more CPU seconds than that."""

    def expired(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"over {seconds:g} s of CPU")

    before = signal.signal(signal.SIGPROF, expired)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


_bench: list[Bench] = []


def start_bench(settings: Settings) -> None:
    """Prepare a process for run_in_bench."""
    warnings.filterwarnings("ignore", ".*is ignored")  # what the authors of the schemas misspelt
    _bench.append(Bench(settings))
    gc.freeze()
    gc.disable()  # run_in_bench collects: a pause of the collector is not part of a mask


def run_in_bench(path: Path) -> Row:
    """Run one file in the process that start_bench prepared."""
    gc.collect()
    return _bench[0].run(path)


def run_pass(paths: list[Path], settings: Settings, title: str) -> Iterator[Row]:
    """Yield the row of each file, run in a process of its own; one that dies is replaced."""
    pool = None
    spawn = multiprocessing.get_context("spawn")
    for path in track(paths, title, console=Console(stderr=True), disable=not sys.stderr.isatty()):
        pool = pool or ProcessPoolExecutor(1, mp_context=spawn, initializer=start_bench, initargs=(settings,))
        try:
            yield pool.submit(run_in_bench, path).result()
        except BrokenProcessPool as error:
            yield Row(file=path.name, verdict="crash", error=str(error))
            pool = None
    if pool is not None:
        pool.shutdown()


def quantiles(name: str, times: list[float], *percents: float) -> dict[str, str]:
    """Return the rows of a table for some quantiles."""
    values = np.quantile(times, [percent / 100 for percent in percents]) if times else [np.nan] * len(percents)
    return {f"{name}, p{percent:g}": f"{value:,.1f}" for percent, value in zip(percents, values, strict=True)}


def summary(rows: list[Row], doubtful: dict[str, set[int]]) -> dict[str, str]:
    """Return what a table shows of a pass: name -> value."""
    verdicts = Counter(row.verdict for row in rows)
    masks = [us for row in rows for us in row.masks_us]
    compiled = [row for row in rows if row.first_mask_us]
    wrong = {(row.file, place) for row in rows for place in row.accepted}
    doubted = {(file, place) for file, place in wrong if place in doubtful.get(file, ())}
    rejected, reordered = (sum(len(getattr(row, name)) for row in rows) for name in ("rejected", "reordered"))
    ordered_only = sum(row.verdict == "wrong" and not row.accepted and row.rejected == row.reordered for row in rows)
    found = {
        "schemas": f"{len(rows):,}",
        "schemas that pass": f"{verdicts['passes']:,}",
        "schemas refused by name": f"{verdicts['refused']:,}",
        "schemas over a limit, over the time, crashed": ", ".join(
            str(verdicts[v]) for v in ("limit", "timeout", "crash")
        ),
        "schemas wrong only by the order of keys": f"{ordered_only:,}",
        "invalid instances accepted": f"{len(wrong - doubted):,} of {sum(row.num_invalid for row in rows):,}",
        "the same, of the doubtful": f"{len(doubted):,}",
        "valid instances refused": f"{rejected - reordered:,} of {sum(row.num_valid for row in rows):,}",
        "the same, only for the order of keys": f"{reordered:,}",
        "instances that raised": f"{sum(len(row.exceptions) for row in rows):,}",
    }
    if not doubtful:
        del found["the same, of the doubtful"]
    found |= quantiles("first mask", [row.first_mask_us for row in compiled], 50, 90, 99)
    found["mask, average"] = f"{np.mean(masks):,.1f}" if masks else "nan"
    found |= quantiles("mask", masks, 50, 90, 99, 99.9)
    found |= quantiles("advance", [us for row in rows for us in row.advances_us], 50, 99)
    found["masks"] = f"{len(masks):,}"
    return found


def chosen_files(arguments: argparse.Namespace) -> list[Path]:
    """Return the files to run, sorted by name."""
    names = arguments.files.read_text(encoding="utf-8").split("\n") if arguments.files else None
    paths = sorted(arguments.data.glob("*.json") if names is None else (arguments.data / n for n in names if n.strip()))
    paths = paths[:: arguments.every][: arguments.limit]
    missing = [path for path in paths if not path.is_file()]
    if missing or not paths:
        raise SystemExit(
            f"there is no file {missing[0]}" if missing else f"there are no .json files in {arguments.data}"
        )
    return paths


def doubtful_instances(path: Path | None) -> dict[str, set[int]]:
    """Read lines {"file": name, "invalid_accepted": places of instances that are called invalid, and are not}."""
    lines = [] if path is None else path.read_text(encoding="utf-8").splitlines()
    return {one["file"]: set(one.get("invalid_accepted", ())) for one in map(json.loads, lines)}


def print_tables(summaries: dict[str, dict[str, str]], rows: list[Row], title: str) -> None:
    """Print the summary of each pass, then what the last one refused."""
    table = Table("busy microseconds, counts", title=title)
    for name in summaries:
        table.add_column(name, justify="right")
    for name in next(iter(summaries.values())):
        table.add_row(name, *(one[name] for one in summaries.values()))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    refused = Counter((row.verdict, row.refused) for row in rows if row.verdict in ("refused", "limit"))
    if refused:
        table = Table("refused for", "schemas", "for example")
        for (verdict, name), count in refused.most_common():
            example = next(row for row in rows if (row.verdict, row.refused) == (verdict, name))
            table.add_row(f"{name} ({verdict})" if verdict == "limit" else name, str(count), example.error[:200])
        console.print(table)
    for row in rows:
        if row.accepted or row.verdict in ("timeout", "crash"):
            console.print(f"{row.file}: {row.error or f'accepts the invalid instances {row.accepted}'}", soft_wrap=True)


def parser() -> argparse.ArgumentParser:
    """Return the reader of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("tokenizer", type=Path, help="folder of a transformers tokenizer")
    made.add_argument("--data", type=Path, default=OWN_DATA, help="folder of .json files")
    made.add_argument("--files", type=Path, help="text file that names those to run, one a line")
    made.add_argument("--every", type=int, default=1, metavar="N", help="run each N-th file only")
    made.add_argument("--limit", type=int, metavar="N", help="run the first N of them only")
    made.add_argument("--property-order", choices=["declared", "any"], default="declared")
    made.add_argument("--cache", choices=["none", "cold", "warm"], default="none", help="cache of grammars on disk")
    made.add_argument("--seconds", type=float, default=20, help="CPU seconds for one schema and its instances")
    made.add_argument(
        "--doubtful", type=Path, help="JSON lines that name instances which are not as invalid as they say"
    )
    made.add_argument("--out", type=Path, help="file for one JSON line per schema and pass, each mask's time included")
    return made


def main() -> None:
    """Run the passes and print their tables."""
    arguments = parser().parse_args()
    paths, doubtful = chosen_files(arguments), doubtful_instances(arguments.doubtful)
    passes = {"none": ["no cache"], "cold": ["cold"], "warm": ["cold", "warm"]}[arguments.cache]
    summaries, rows = {}, list[Row]()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if arguments.cache != "none" else None
        out = stack.enter_context(arguments.out.open("w", encoding="utf-8")) if arguments.out else None
        settings = Settings(
            tokenizer=arguments.tokenizer.resolve(),
            property_order=arguments.property_order,
            folder=folder,
            seconds=arguments.seconds,
        )
        for name in passes:
            rows = []
            for row in run_pass(paths, settings, name):
                rows.append(row)
                if out is not None:
                    out.write(json.dumps({"pass": name, **asdict(row)}) + "\n")
                    out.flush()
            summaries[name] = summary(rows, doubtful)
    print_tables(summaries, rows, f"{arguments.data}, {arguments.tokenizer.name}, keys: {arguments.property_order}")


if __name__ == "__main__":
    main()
