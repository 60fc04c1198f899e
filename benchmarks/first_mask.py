"""Time to the first mask of a new schema, time of later masks, and what importing the package costs.

    python benchmarks/first_mask.py TOKENIZER_FOLDER [--peers]

Twelve fields of every kind; each round compiles another schema (other names), with nothing cached but what lexemes mean
for the vocabulary, which is what a process has after its first schema. --peers times llguidance and xgrammar on the
same schemas in the same run, if they are installed. One thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg

ROUNDS = 40


def schema(prefix: str) -> dict[str, Any]:
    """Return a schema of twelve fields whose names begin with the prefix."""
    point = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x", "y"]}
    kinds: list[dict[str, Any]] = [
        {"type": "string"},
        {"type": "integer"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "string", "maxLength": 40},
        {"enum": ["red", "green", "blue"]},
        {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        {"type": "string", "format": "date"},
        {"type": ["string", "null"]},
        {**point, "additionalProperties": False},
        {"type": "integer", "minimum": 0, "maximum": 150},
        {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"},
    ]
    properties = {f"{prefix}_{index}": kind for index, kind in enumerate(kinds)}
    required = list(properties)[:9]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def milliseconds(call: Callable[[], object]) -> float:
    """Return the time of a call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def row(name: str, times: list[float], unit: str) -> list[str]:
    """Return a row of the table; the first time is given apart."""
    first, *rest = times
    cuts = statistics.quantiles(rest, n=10)
    return [name, unit, f"{first:.3f}", f"{statistics.median(rest):.3f}", f"{cuts[-1]:.3f}", f"{max(rest):.3f}"]


def first_masks(vocabulary: sg.Vocabulary) -> list[float]:
    """Return milliseconds from the schema to its first mask, round by round."""
    times = []
    for turn in range(ROUNDS):
        declared = sg.JsonSchema(schema(f"field{turn}"), whitespace="spaced")
        times.append(milliseconds(lambda one=declared: sg.compile(one, vocabulary, cache=None).start().mask()))
    return times


def ready(vocabulary: sg.Vocabulary) -> list[float]:
    """Return milliseconds from the schema to what a first step needs: its finishing cost, and a mask in a budget."""

    def prepare(declared: sg.JsonSchema) -> None:
        state = sg.compile(declared, vocabulary, cache=None).start()
        state.mask_within(state.tokens_to_end_bound + 500)

    schemas = [sg.JsonSchema(schema(f"ready{turn}"), whitespace="spaced") for turn in range(ROUNDS)]
    return [milliseconds(lambda one=declared: prepare(one)) for declared in schemas]


def known_masks(vocabulary: sg.Vocabulary) -> list[float]:
    """Return microseconds of one mask seen before, as means over a thousand calls."""
    mask = sg.compile(sg.JsonSchema(schema("again")), vocabulary).start().mask
    return [milliseconds(lambda: [mask() for _ in range(1000)]) for _ in range(ROUNDS)]


def imports() -> list[float]:
    """Return seconds of `import structgen` in a new process, without those of the interpreter."""
    code = "import time; t = time.perf_counter(); import structgen; structgen.Sampling; print(time.perf_counter() - t)"
    return [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(9)
    ]


def peers(tokenizer: Any) -> dict[str, list[float]]:
    """Return milliseconds to the first mask of the peers that are installed."""
    found = {}
    try:
        import llguidance
        import llguidance.hf
        import llguidance.numpy

        theirs = llguidance.hf.from_tokenizer(tokenizer)

        def llguidance_mask(one: dict[str, Any]) -> None:
            matcher = llguidance.LLMatcher(theirs, json.dumps({"grammars": [{"json_schema": one}]}))
            bits = llguidance.numpy.allocate_token_bitmask(1, theirs.vocab_size)
            llguidance.numpy.fill_next_token_bitmask(matcher, bits, 0)

        found[f"llguidance {version('llguidance')}"] = [
            milliseconds(lambda t=turn: llguidance_mask(schema(f"field{t}"))) for turn in range(ROUNDS)
        ]
    except ImportError as error:
        print(f"llguidance is not measured: {error}", file=sys.stderr)
    try:
        import xgrammar

        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer))
        compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

        def xgrammar_mask(one: dict[str, Any]) -> None:
            matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(one)))
            matcher.fill_next_token_bitmask(xgrammar.allocate_token_bitmask(1, len(tokenizer)))

        found[f"xgrammar {version('xgrammar')}"] = [
            milliseconds(lambda t=turn: xgrammar_mask(schema(f"field{t}"))) for turn in range(ROUNDS)
        ]
    except ImportError as error:
        print(f"xgrammar is not measured: {error}", file=sys.stderr)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--peers", action="store_true")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    vocabulary = sg.Vocabulary.from_tokenizer(tokenizer)
    table = Table(
        "what", "unit", "first", "median", "p90", "max", title=f"{arguments.tokenizer.name}, {vocabulary.size:,} ids"
    )
    table.add_row(*row("first mask of a new schema", first_masks(vocabulary), "ms"))
    table.add_row(*row("the same, ready to generate", ready(vocabulary), "ms"))
    table.add_row(*row("a mask seen before", known_masks(vocabulary), "us"))
    table.add_row(*row("import structgen", imports(), "s"))
    if arguments.peers:
        for name, times in peers(tokenizer).items():
            table.add_row(*row(f"first mask, {name}", times, "ms"))
    Console().print(table)


if __name__ == "__main__":
    main()
