"""A draft model beside plain decoding and beside what `sg.speedup` says of it: Qwen2.5-Coder 0.5B drafts for 1.5B.

    python benchmarks/draft_model.py MODELS [--draft-tokens N] [--max-tokens N] [--limit N]

MODELS is a folder with qwen2.5-coder-1.5b and qwen2.5-coder-0.5b, or --target and --draft name two others with one
tokenizer. Free text and JSON, float32, greedy, one thread, about 10 GB of memory. The draft model alone drafts, always
to the end; texts are answered in turns. Measured is seconds per token after the pass over the prompt; predicted is
`sg.speedup` of the acceptance and the costs of this run: drafting as the loop counts it, passes from a table measured
between the texts.

Acceptance is the share of guesses that became text, of those whose turn came. The draft model without the mask proposes
its free choice, and its draft ends where that is illegal; such a guess counts as one that did not become text.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel
from rounds import PassTimes, Run, decode, setting

import structgen as sg
from structgen.decode.control import FixedControl
from structgen.decode.drafting import SpeculationSetup
from structgen.drafter import DraftMemory, DraftRequest, DraftSession, DraftView


class Function(BaseModel):
    """A function of a library."""

    name: str
    arguments: list[str]
    returns: str
    is_async: bool


class Release(BaseModel):
    """A release of a program."""

    program: str
    version: str
    kind: Literal["major", "minor", "patch"]
    changes: list[str]


TASKS: dict[str, list[tuple[Any, str]]] = {
    "free text": [
        (str, "Write a Python function that returns the n-th Fibonacci number, with a docstring."),
        (str, "Explain in three sentences what a hash table is."),
    ],
    "JSON": [
        (Function, "Describe the function as JSON.\nasync def fetch(url: str, timeout: float = 3.0) -> bytes"),
        (Release, "Describe the release as JSON.\nlathe 2.4.0: spindles can be named, and logs are compressed."),
    ],
}


class FreeChoice:
    """Drafts what the draft model would write without the mask, and counts what was illegal of it."""

    name = "FreeChoice"

    def __init__(self, drafter: Any) -> None:
        """Take the drafter whose logits are used."""
        self._drafter = drafter
        self.illegal: set[tuple[int, ...]] = set()

    def start(self, request: DraftRequest) -> DraftSession:
        """Begin with a request."""
        self.illegal = set()
        return _FreeChoiceSession(self._drafter.start(request), self.illegal)


class _FreeChoiceSession:
    def __init__(self, inner: DraftSession, illegal: set[tuple[int, ...]]) -> None:
        self._inner = inner
        self._illegal = illegal

    def propose(self, view: DraftView) -> Iterator[int]:
        """Yield the likeliest token of all, up to an illegal one."""
        for logits in self._inner.propose(view):
            choice = int(torch.argmax(logits))  # type: ignore[arg-type]  # a draft model yields logits
            if not int(view.mask[choice >> 5]) >> (choice & 31) & 1:
                self._illegal.add(tuple(view.token_ids))
                return
            yield choice

    def observe(self, token_id: int, state_key: Any) -> None:
        """Pass it on."""
        self._inner.observe(token_id, state_key)

    def close(self) -> None:
        """Pass it on."""
        self._inner.close()


class Counts:
    """Guesses of a drafter whose turn came, over several texts."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.accepted = self.compared = self.illegal = self.drafted = self.passes = self.tokens = 0
        self.draft_s = 0.0

    def add(self, run: Run, num_illegal: int = 0) -> None:
        """Count a text; the pass over the prompt is left out of the times, not of the guesses."""
        for made, num_drafted in zip(run.rounds, run.drafted, strict=True):
            self.accepted += made.num_accepted
            self.compared += made.num_accepted + (
                made.num_draws > made.num_accepted and made.num_accepted < num_drafted
            )
        self.illegal += num_illegal
        self.compared += num_illegal
        self.passes += len(run.rounds)
        self.tokens += len(run.token_ids)
        self.drafted += sum(run.drafted[1:])
        self.draft_s += sum(sum(one.draft_s.values()) for one in run.rounds[1:])

    @property
    def acceptance(self) -> float:
        """Share of the guesses that became text."""
        return self.accepted / self.compared if self.compared else 0.0


def token_s(runs: list[Run]) -> float:
    """Return the seconds per token after the pass over the prompt."""
    tokens = sum(len(one.token_ids) for run in runs for one in run.rounds[1:])
    return sum(sum(run.seconds[1:]) for run in runs) / tokens


def num_illegal(run: Run, prompt: tuple[int, ...], illegal: set[tuple[int, ...]]) -> int:
    """Return at how many places of the text the free choice was illegal and its turn came."""
    whole = (*prompt, *run.token_ids)
    return sum(whole[: len(before)] == before for before in illegal)


class Bench:
    """The two models, and what was measured of them."""

    def __init__(self, model: sg.Model, draft: sg.Model, *, draft_tokens: int, max_tokens: int) -> None:
        """Take two models with one tokenizer."""
        self.model = model
        self.masked = sg.drafters.DraftModel(draft)
        self.free = FreeChoice(sg.drafters.DraftModel(draft))
        self.draft_tokens = draft_tokens
        self.max_tokens = max_tokens
        self.times = PassTimes((1, 1 + draft_tokens))

    def answer(self, automaton: Any, prompt: str, drafter: Any, max_tokens: int | None = None) -> Run:
        """Answer a prompt with a drafter, or with none."""
        setup = SpeculationSetup(
            drafters=() if drafter is None else (drafter,),
            control=FixedControl(0 if drafter is None else self.draft_tokens),
            memory=DraftMemory(),
        )
        return decode(self.model, automaton, prompt, setup, max_tokens or self.max_tokens)

    def rows(self, what: str, tasks: list[tuple[Any, str]]) -> Iterator[str]:
        """Answer the prompts in every way, and return the rows of the table."""
        ways = {"plain": None, "draft model": self.masked}
        if what != "free text":
            ways["draft model, no mask"] = self.free
        runs: dict[str, list[Run]] = {way: [] for way in ways}
        counts = {way: Counts() for way in ways}
        for number, (output_type, prompt) in enumerate(tasks):
            automaton = self.model.generator(output_type).automaton
            order = list(ways)
            for way in order[number % len(order) :] + order[: number % len(order)]:
                run = self.answer(automaton, prompt, ways[way])
                runs[way].append(run)
                read = self.model._runtime.encode(prompt)
                counts[way].add(run, num_illegal(run, read, self.free.illegal) if ways[way] is self.free else 0)
            self.times.measure(self.model, [*read, *run.token_ids[: len(run.token_ids) // 2]], repeats=2)
        plain_s, single_s = token_s(runs["plain"]), self.times.seconds(1)
        for way, count in counts.items():
            measured = plain_s / token_s(runs[way])
            same = sum(one.text == other.text for one, other in zip(runs[way], runs["plain"], strict=True))
            start = f"| {what} | {way} | {count.tokens} | {count.passes} | {same} of {len(tasks)} |"
            if not count.compared:
                yield f"{start} | | | | {1e3 * token_s(runs[way]):.0f} | | | |"
                continue
            draft_cost = count.draft_s / count.drafted / single_s
            verify_cost = self.times.seconds(1 + self.draft_tokens) / single_s
            told = sg.speedup(
                acceptance=count.acceptance,
                draft_tokens=self.draft_tokens,
                draft_cost=draft_cost,
                verify_cost=verify_cost,
            )
            # Drafts without the mask are cut, so that the formula, which knows one length, says nothing of them.
            says = f"{told:.2f} | {measured / told:.2f}" if ways[way] is self.masked else " | "
            yield (
                f"{start} {count.acceptance:.1%} ({count.accepted} of {count.compared}, {count.illegal} illegal) "
                f"| {draft_cost:.3f} | {verify_cost:.2f} | {1e3 * token_s(runs[way]):.0f} | {measured:.2f} | {says} |"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, metavar="MODELS", nargs="?")
    parser.add_argument("--target", default=None)
    parser.add_argument("--draft", default=None)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--draft-tokens", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--limit", type=int, default=2, help="prompts of each kind")
    arguments = parser.parse_args()
    if arguments.models is None and not (arguments.target and arguments.draft):
        parser.error("name the folder with the two models, or --target and --draft")
    torch.set_num_threads(1)
    names = (
        arguments.target or str(arguments.models / "qwen2.5-coder-1.5b"),
        arguments.draft or str(arguments.models / "qwen2.5-coder-0.5b"),
    )
    model, draft = (sg.load(name, device="cpu", dtype=arguments.dtype) for name in names)
    bench = Bench(model, draft, draft_tokens=arguments.draft_tokens, max_tokens=arguments.max_tokens)
    # Compiles, warms up, and finds its memory.
    bench.answer(model.generator(str).automaton, "Hello.", bench.masked, 2 * arguments.draft_tokens)
    print(f"{setting(model)}, {draft!r}; {arguments.draft_tokens} tokens a draft\n", flush=True)
    print(
        "| text | way | tokens | passes | same text | acceptance | draft cost | verify cost | ms per token "
        "| times faster | `sg.speedup` | measured / told |"
    )
    print("|:--|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for what, tasks in TASKS.items():
        for row in bench.rows(what, tasks[: arguments.limit]):
            print(row, flush=True)


if __name__ == "__main__":
    main()
