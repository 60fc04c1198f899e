"""What a drafter that is seldom right costs once speculation control knows it: its time beside plain decoding.

    python benchmarks/speculation_control.py [--model NAME] [--acceptance 0.2] [--tokens N] [--rounds N]

The drafter knows the text that is coming, and each of its tokens is right with the given probability; else it is some
other legal one. Plain decoding and decoding with this drafter take turns token by token in one process, so that what
else the machine does meets both alike. The first 20 passes after the prompt are the warm-up and are given apart. The
model is SmolLM2-135M-Instruct unless another is named. One thread; processor time.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import structgen as sg
from structgen.decode.drafting import SpeculationSetup
from structgen.decode.loop import Decoding, Request
from structgen.drafter import DraftMemory, DraftRequest, DraftView

_PROMPT = "Tell a long story about a lighthouse keeper and a lost ship."
_WARM_UP = 20


@dataclass(frozen=True)
class Oracle:
    """Knows the text, and says it wrongly most of the time."""

    num_prompt_tokens: int
    text: tuple[int, ...]
    acceptance: float
    name: str = "Oracle"

    def start(self, request: DraftRequest) -> Oracle:
        """Begin with a request."""
        return self

    def propose(self, view: DraftView) -> Iterator[int]:
        """Yield what comes, or something else."""
        at = len(view.token_ids) - self.num_prompt_tokens
        while at < len(self.text):
            coin = hashlib.sha256(f"{at}".encode()).digest()[0] / 256
            yield self.text[at] if coin < self.acceptance else (self.text[at] + 1) % 1000
            at += 1

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Learn nothing."""

    def close(self) -> None:
        """Keep nothing."""


@dataclass
class Timed:
    """A decoding on its way, and what its rounds took."""

    decoding: Decoding
    seconds: float = 0.0
    warm_up_s: float = 0.0
    num_warm_up: int = 0
    num_rounds: int = 0

    def advance_to(self, num_tokens: int) -> None:
        """Decode until the text has so many tokens."""
        while len(self.decoding.token_ids) < num_tokens:
            clock = time.process_time()
            if self.decoding.step() is None:
                return
            took = time.process_time() - clock
            self.num_rounds += 1
            if self.num_rounds == 1:
                continue  # the pass over the prompt
            if self.num_rounds <= _WARM_UP + 1:
                self.warm_up_s += took
                self.num_warm_up = len(self.decoding.token_ids)
            else:
                self.seconds += took

    @property
    def seconds_per_token(self) -> float:
        """Seconds per token after the warm-up."""
        return self.seconds / (len(self.decoding.token_ids) - self.num_warm_up)


def decoding(model: Any, state: Any, prompt: tuple[int, ...], num_tokens: int, setup: SpeculationSetup) -> Decoding:
    """Return a request before its first token."""
    runtime = model._runtime
    request = Request(prompt_token_ids=prompt, max_tokens=num_tokens, seed=0, sampling=sg.Sampling.greedy())
    return Decoding(runtime.new_target(), state, runtime.vocabulary, request, setup)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--acceptance", type=float, nargs="+", default=[0.0, 0.2, 0.4, 0.8])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = sg.load(options.model)
    automaton = model.generator(sg.Regex("[^\\0]+")).automaton
    prompt = model._runtime.encode(_PROMPT)
    plain = decoding(model, automaton.start(), prompt, options.tokens, SpeculationSetup.off())
    plain.run()
    table = Table("acceptance", "control", "of the time of plain", "in the warm-up", "tokens a pass", box=None)
    for acceptance in options.acceptance:
        oracle = Oracle(len(prompt), tuple(plain.token_ids), acceptance)
        for name in ("adaptive", "fixed"):
            ratios, warm_ups, per_pass = [], [], []
            for number in range(options.rounds):
                speculation = sg.Speculation(drafters=[oracle], adaptive=name == "adaptive")
                setup = model._runtime.route_controls.setup(
                    speculation, route=f"{name} {acceptance} {number}", memory=DraftMemory(), deterministic=False
                )
                off = Timed(decoding(model, automaton.start(), prompt, options.tokens, SpeculationSetup.off()))
                on = Timed(decoding(model, automaton.start(), prompt, options.tokens, setup))
                for num_tokens in range(1, len(plain.token_ids) + 1):
                    on.advance_to(num_tokens)
                    off.advance_to(num_tokens)
                ratios.append(on.seconds_per_token / off.seconds_per_token)
                warm_up = on.warm_up_s / on.num_warm_up * off.num_warm_up / off.warm_up_s
                warm_ups.append(warm_up)
                per_pass.append(len(on.decoding.token_ids) / on.num_rounds)
                if on.decoding.token_ids != off.decoding.token_ids:
                    print("the texts differ: two tokens were nearly equally likely")
            table.add_row(
                f"{acceptance:.2f}",
                name,
                f"{statistics.median(ratios):.3f}",
                f"{statistics.median(warm_ups):.2f}",
                f"{statistics.median(per_pass):.2f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
