"""Whether a text with drafts takes what its passes cost: measured seconds beside those that a table of passes predicts.

    python benchmarks/predicted.py [--model NAME] [--dtype NAME] [--max-tokens N]

The prompts and output types of benchmarks/speculation.py. Predicted is the pass over the prompt, and for every later
pass the seconds of one over as many tokens, measured in the same run between the same texts; and drafts, masks and
draws as the loop counts them. What is above 1 nobody accounts for: the loop itself, and passes that take longer between
other work than one after the other. Greedy, one thread; medians of passes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import torch
from rounds import PassTimes, Run, decode, setting
from speculation import TASKS

import structgen as sg
from structgen.drafter import DraftMemory

WAYS = {
    "off": sg.Speculation.off(),
    "every draft": sg.Speculation(adaptive=False),
    "adaptive, as it comes": sg.Speculation(),
}
WIDTHS = range(1, 10)


def predicted_s(run: Run, times: PassTimes) -> float:
    """Return the seconds that a text should have taken."""
    prompt, *later = run.rounds
    passes = prompt.verify_s + sum(times.seconds(one.width) for one in later)
    return passes + sum(sum(one.draft_s.values()) for one in run.rounds) + run.other_s


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--max-tokens", type=int, default=90)
    parser.add_argument("--limit", type=int, default=None, help="prompts of each type")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = sg.load(arguments.model, device="cpu", dtype=arguments.dtype)
    times = {output_type.__name__: PassTimes(WIDTHS) for output_type in TASKS}
    runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
    memories = {name: DraftMemory() for name in WAYS}
    order = list(WAYS)
    for output_type, prompts in TASKS.items():
        automaton = model.generator(output_type).automaton
        for number, prompt in enumerate([prompts[0], *prompts[: arguments.limit]]):
            message = f"Extract the {output_type.__name__.lower()} as JSON.\n{prompt}"
            for name in order[number % len(order) :] + order[: number % len(order)]:
                # The first answer compiles and warms up; nothing is learnt from it.
                memory, route = (memories[name], output_type.__name__) if number else (DraftMemory(), "warm-up")
                setup = model._runtime.route_controls.setup(WAYS[name], route=route, memory=memory, deterministic=False)
                run = decode(model, automaton, message, setup, arguments.max_tokens)
                if number:
                    runs[output_type.__name__, name].append(run)
            token_ids = [*model._runtime.encode(message), *run.token_ids[: len(run.token_ids) // 2]]
            if number:
                times[output_type.__name__].measure(model, token_ids, repeats=2)
    print(f"{setting(model)}\n")
    for name, some in times.items():
        told = ", ".join(f"{1e3 * some.seconds(width):.1f}" for width in WIDTHS)
        print(f"{name}, ms of passes over 1 to 9 tokens: {told}\n")
    print("| type | drafts | tokens | passes | ms per object | of off | predicted | measured / predicted |")
    print("|:--|:--|--:|--:|--:|--:|--:|--:|")
    for (name, way), some in runs.items():
        measured, foreseen = sum(sum(run.seconds) for run in some), sum(predicted_s(run, times[name]) for run in some)
        off = sum(sum(run.seconds) for run in runs[name, "off"])
        print(
            f"| {name} | {way} | {sum(len(run.token_ids) for run in some) / len(some):.1f} "
            f"| {sum(len(run.rounds) for run in some) / len(some):.1f} | {1e3 * measured / len(some):.0f} "
            f"| {measured / off:.2f} | {1e3 * foreseen / len(some):.0f} | {measured / foreseen:.3f} |"
        )


if __name__ == "__main__":
    main()
