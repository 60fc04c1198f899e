"""Declarations that other engines give up on: processor time to the first mask, and memory, each in a new process.

    python benchmarks/hard_cases.py TOKENIZER_FOLDER [--rounds 3]

Each process first compiles something small, so that neither numba nor the vocabulary is measured; nothing is cached
beyond that. One thread.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg
from structgen.declarations import OutputDeclaration


def _fields(number: int) -> sg.JsonSchema:
    names = [f"f{index}" for index in range(number)]
    fields = {name: {"type": "string", "maxLength": 2000} for name in names}
    return sg.JsonSchema({"type": "object", "additionalProperties": False, "required": names, "properties": fields})


CASES: dict[str, Callable[[], OutputDeclaration[Any]]] = {
    "enum of 5,000 short values": lambda: sg.JsonSchema({"enum": [f"{i * 7919 % 100003:x}" for i in range(5000)]}),
    "enum of 5,000 values of 30 bytes": lambda: sg.JsonSchema(
        {"enum": [f"value number {i * 7919 % 100003} of row {i:05}" for i in range(5000)]}
    ),
    "string, maxLength 10,000": lambda: sg.JsonSchema({"type": "string", "maxLength": 10000}),
    "20 strings, maxLength 2,000 each": lambda: _fields(20),
    "regex (([a-z]{1,50} ){1,50}\\.){1,50}": lambda: sg.Regex(r"(([a-z]{1,50} ){1,50}\.){1,50}"),
    "the same as the pattern of a string": lambda: sg.JsonSchema(
        {"type": "string", "pattern": r"^(([a-z]{1,50} ){1,50}\.){1,50}$"}
    ),
}


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(tokenizer: Path, case: str) -> None:
    """Print milliseconds to the first mask, and how many megabytes the peak of the process has grown."""
    vocabulary = sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(tokenizer))
    small = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "y"]}}, "required": ["a"]}
    for warm in (sg.JsonSchema(small), sg.Regex("([a-c]{1,60} ){1,60}x")):
        sg.compile(warm, vocabulary, cache=None).start().mask()
    declared = CASES[case]()
    peak, start = _peak_megabytes(), time.process_time()
    sg.compile(declared, vocabulary, cache=None).start().mask()
    print((time.process_time() - start) * 1e3, _peak_megabytes() - peak)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", choices=[*CASES], help="measure this one in this process")
    arguments = parser.parse_args()
    if arguments.case is not None:
        measure(arguments.tokenizer, arguments.case)
        return
    table = Table("declaration", "first mask, ms", "most", "memory, MB", title=arguments.tokenizer.name)
    for case in CASES:
        command = [sys.executable, __file__, str(arguments.tokenizer), "--case", case]
        found = [
            [float(one) for one in subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()]
            for _ in range(arguments.rounds)
        ]
        times = [milliseconds for milliseconds, _ in found]
        memory = max(megabytes for _, megabytes in found)
        table.add_row(escape(case), f"{statistics.median(times):.1f}", f"{max(times):.1f}", f"{memory:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
