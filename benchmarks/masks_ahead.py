"""What masks add to the time of a text beside a pass of a few milliseconds that leaves the host alone, as on a GPU.

    python benchmarks/masks_ahead.py TOKENIZER_FOLDER [--pass-ms 5] [--rounds 5]

There is no model: the target prefers the tokens of a text, and its passes are over after a given time, whatever the
host does meanwhile. The automata are new in every round, so that their rows are missing, as in the first text of a
type; what lexemes mean for the vocabulary is known. Three ways: masks before the pass, beside it, and beside it with
those of likely places made ahead. Milliseconds per text in which no pass was under way because of masks, the median and
the worst of the rounds. One thread, on the CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

import structgen as sg
from structgen.decode import rounds
from structgen.decode.control import FixedControl
from structgen.decode.drafters import ForcedRun
from structgen.decode.drafting import SpeculationSetup
from structgen.decode.loop import Decoding, Request
from structgen.decode.mask_table import DeviceSide, MaskTables
from structgen.decode.target import Tokens
from structgen.drafter import DraftMemory


class Tree(BaseModel):
    """A recursive type."""

    name: str
    weight: int
    children: list[Tree]


class Expression(BaseModel):
    """Another one, whose nesting is in two places."""

    op: str
    left: int | Expression
    right: int | Expression


_EMAIL = {"type": "string", "format": "email"}
PEOPLE = {
    "type": "object",
    "properties": {"owner": _EMAIL, "readers": {"type": "array", "items": _EMAIL}},
    "required": ["owner", "readers"],
    "additionalProperties": False,
}


def _tree(depth: int, number: int) -> dict[str, Any]:
    children = [_tree(depth - 1, 3 * number + index) for index in range(2)] if depth else []
    return {"name": f"node {number}", "weight": 7 * number % 40, "children": children}


def _expression(depth: int, number: int) -> Any:
    if not depth:
        return number
    return {"op": "+*-"[number % 3], "left": _expression(depth - 1, number + 1), "right": _expression(depth - 1, 3)}


CASES: dict[str, tuple[Any, Any]] = {
    "recursive tree": (Tree, _tree(3, 1)),
    "recursive expression": (Expression, _expression(4, 5)),
    "email fields": (
        sg.JsonSchema(PEOPLE),
        {
            "owner": "anna.lindqvist@harbour-office.example.org",
            "readers": ["bo@mail.example.com", "c.okafor+coral@reef.example.net", "lena_17@uni.example.edu"],
        },
    ),
}


WAYS = ("before", "beside", "ahead")


class Scripted:
    """A target that prefers the tokens of a text; its device is the CPU."""

    num_cached_tokens = 0
    most_legal_rows = 0
    takes_trees = False
    device = torch.device("cpu")

    def __init__(self, token_ids: list[int], num_prompt_tokens: int, width: int) -> None:
        """Take a text."""
        self.logits_width = width
        self.device_side = DeviceSide(self.device, MaskTables(self.device), None)
        self._text = token_ids
        self._start = num_prompt_tokens

    def extend(self, tokens: Tokens) -> torch.Tensor:
        """Return the place of each token in the text."""
        first = self.num_cached_tokens
        self.num_cached_tokens += len(tokens.token_ids)
        return torch.arange(first, self.num_cached_tokens)[:, None] + 1 - self._start

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Prefer the token at each place, and after the text the last one of the vocabulary."""
        logits = torch.zeros((len(hidden), self.logits_width))
        for row, place in enumerate(hidden[:, 0].tolist()):
            if 0 <= place < len(self._text):
                logits[row, self._text[place]] = 50.0
        return logits

    def crop(self, num_tokens: int) -> None:
        """Forget the rest."""
        self.num_cached_tokens = num_tokens


class Clock:
    """Time of this process, without that of logits and draws, which a GPU makes in no time of the host."""

    left_out = 0.0

    def __call__(self) -> float:
        """Return seconds."""
        return time.process_time() - self.left_out


# The wall's clock would count what others do on this machine too.
CLOCK = Clock()
time.perf_counter = CLOCK


class Simulated:
    """A pass that leaves the host alone for a time."""

    def __init__(self, seconds: float) -> None:
        """Begin it."""
        self._end = CLOCK() + seconds
        self._ready = self._wait_s = 0.0

    def masks_are_ready(self) -> None:
        """Note when, and how long the pass was over by then."""
        self._ready = CLOCK()
        self._wait_s = max(0.0, self._ready - self._end)

    def draws_are_started(self) -> None:
        """Stop the clock until here."""
        CLOCK.left_out += CLOCK() - self._ready
        self._end = max(self._end, self._ready)

    def is_done(self) -> bool:
        """Look at the clock."""
        return CLOCK() >= self._end

    def wait(self) -> float:
        """Wait for the end; return how long nothing was under way."""
        late = max(0.0, CLOCK() - self._end)
        while not self.is_done():
            pass
        return self._wait_s + late


def wait_s(automaton: Any, token_ids: list[int], way: str, pass_s: float) -> float:
    """Decode a text; return the seconds for which no pass was under way because of masks."""
    rounds.watch = lambda _: Simulated(pass_s if way != "before" else 0.0)
    vocabulary = automaton.vocabulary
    request = Request(prompt_token_ids=(1, 2), max_tokens=len(token_ids) + 200, seed=0, sampling=sg.Sampling.greedy())
    setup = SpeculationSetup(drafters=[ForcedRun()], control=FixedControl(8), memory=DraftMemory())
    target: Any = Scripted(token_ids, 2, vocabulary.size)
    decoding = Decoding(target, automaton.start(), vocabulary, request, setup)
    if way != "ahead":
        decoding._ahead = None
    decoding.run()
    if decoding.token_ids[: len(token_ids)] != token_ids:
        raise SystemExit(f"another text came: {decoding.text}")
    return decoding.trace.mask_wait_s


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("--pass-ms", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    vocabulary = sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(options.tokenizer))
    table = Table("type", "tokens", *(f"{way}: ms, worst" for way in WAYS))
    for name, (declared, value) in CASES.items():
        text = json.dumps(value, ensure_ascii=False)
        token_ids = vocabulary.encode(text.encode())
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(1 + options.rounds):
            for way in WAYS:
                automaton = sg.compile(declared, vocabulary, cache=None, whitespace="spaced")
                automaton.start().tokens_to_end_bound  # noqa: B018  # costs, which a request asks for before its first pass
                seconds = wait_s(automaton, token_ids, way, options.pass_ms * 1e-3)
                if turn:
                    found[way].append(seconds * 1e3)
        cells = [f"{statistics.median(times):.1f}, {max(times):.1f}" for times in found.values()]
        table.add_row(name, str(len(token_ids)), *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
