"""dtype="int8" beside float32: seconds of passes by width, what becomes of logits, and of answers.

    python benchmarks/int8.py [--model NAME] [--limit N] [--rounds N]

One thread, both models packed, SmolLM2-135M-Instruct unless another is named. Passes are timed in turns, the least of
some rounds counts; the rest is a pass whose linear layers give what lies ready. Divergence is KL(float32 || int8) in
nats at every place of float32's own greedy texts, free and JSON. Answers are greedy; the same fields means that an
object of int8 is equal to that of float32.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import time
from collections.abc import Iterator
from typing import Any

import torch
from pydantic import BaseModel
from rounds import setting

import structgen as sg
from structgen.decode.packed_linear import PackedLinear
from structgen.decode.target import Target, Tokens

WIDTHS = (1, 2, 4, 8, 16)
CONTEXT = 64


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


PEOPLE = (
    "Nora Weiss is 28 and lives in Basel.",
    "Omar Haddad, 61, comes from Tunis.",
    "In Lyon I met Claire Petit, who is 33.",
    "Piotr Nowak (47), Gdansk",
    "My neighbour in Leeds, Ruth Clarke, turned 70.",
    "Yuki Tanaka, aged 19, studies in Kyoto.",
    "Ben Carter of Denver is 52 years old.",
    "Write to Lucia Moretti, 38, in Turin.",
    "Sven Berg, 25, Malmo",
    "The winner is Amina Diallo from Dakar; she is 22.",
    "Jan de Boer lives in Utrecht and is 44.",
    "At 65, Maria Santos still works in Recife.",
    "Tom Hall (31) moved to Perth.",
    "Elif Kaya, Izmir, 29",
    "Peter Novak from Brno is 57.",
    "Born in Cork, Sean Byrne is 36 now.",
    "Ines Costa, 40, is a baker in Faro.",
    "Hugo Lind of Turku is 8.",
    "Dr. Eva Roth, 49, works in Jena.",
    "Liam Ward, Bath, 26 years",
)
FREE = (
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about a harbour.",
    "What is a hash table?",
    "Name three uses of copper.",
)


def pass_times(models: dict[str, sg.Model], token_ids: tuple[int, ...], rounds: int) -> dict[str, dict[int, float]]:
    """Return the least seconds of a pass, body and head, by model and width, and of what is no linear layer."""
    targets = {name: model._runtime.new_target() for name, model in models.items()}
    for target in targets.values():
        target.prefill(token_ids)
    found = {name: dict.fromkeys(WIDTHS, float("inf")) for name in (*models, "rest")}
    for _ in range(rounds):
        for width in WIDTHS:
            tokens = Tokens([token_ids[-1]] * width)
            for name, target in targets.items():
                found[name][width] = min(found[name][width], pass_seconds(target, tokens))
            with idle_layers():
                found["rest"][width] = min(found["rest"][width], pass_seconds(target, tokens))
    return found


def pass_seconds(target: Target, tokens: Tokens) -> float:
    """Return how long a pass takes, and forget its tokens."""
    num_before = target.num_cached_tokens
    wall, busy = time.perf_counter(), time.thread_time()
    target.head(target.extend(tokens))
    seconds = min(time.perf_counter() - wall, time.thread_time() - busy)
    target.crop(num_before)
    return seconds


@contextlib.contextmanager
def idle_layers() -> Iterator[None]:
    """Let packed layers give numbers of the right shape, made once for each."""
    forward = PackedLinear.forward

    def give(layer: PackedLinear, states: torch.Tensor) -> torch.Tensor:
        return ready((*states.shape[:-1], layer.out_features))

    PackedLinear.forward = give
    try:
        yield
    finally:
        PackedLinear.forward = forward


@functools.cache
def ready(shape: tuple[int, ...]) -> torch.Tensor:
    """Return numbers of a shape."""
    return torch.randn(shape)


def divergences(models: dict[str, sg.Model], prompt: tuple[int, ...], token_ids: tuple[int, ...]) -> list[Any]:
    """Return (divergence, whether both have the same favourite) at every place of a text."""
    rows = []
    for model in models.values():
        target = model._runtime.new_target()
        hidden = target.extend(Tokens([*prompt, *token_ids[:-1]], num_prompt_tokens=len(prompt)))
        rows.append(torch.log_softmax(target.head(hidden[len(prompt) - 1 :]).double(), -1))
    plain, rounded = rows
    divergence = (plain.exp() * (plain - rounded)).sum(-1).tolist()
    return list(zip(divergence, (plain.argmax(-1) == rounded.argmax(-1)).tolist(), strict=True))


def answers(models: dict[str, sg.Model], limit: int) -> tuple[int, list[int], list[Any]]:
    """Answer the prompts; return equal objects, equal fields by name, and what `divergences` gives."""
    num_equal, equal_fields, places = 0, [0] * len(Person.model_fields), []
    options: dict[str, Any] = {"sampling": sg.Sampling.greedy(), "max_tokens": 60, "whitespace": "pretty"}
    for text in PEOPLE[:limit]:
        prompt = f"Extract the person as JSON.\n{text}"
        plain, rounded = (model.run(Person, prompt, **options) for model in models.values())
        num_equal += plain.value == rounded.value
        fields = zip(json.loads(plain.text).values(), json.loads(rounded.text).values(), strict=True)
        equal_fields = [sum(pair) for pair in zip(equal_fields, (a == b for a, b in fields), strict=True)]
        places += divergences(models, models["float32"]._runtime.encode(prompt), plain.token_ids)
    for prompt in FREE[: max(1, limit // 5)]:
        run = models["float32"].run(str, prompt, sampling=sg.Sampling.greedy(), max_tokens=40)
        places += divergences(models, models["float32"]._runtime.encode(prompt), run.token_ids)
    return num_equal, equal_fields, places


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--limit", type=int, default=len(PEOPLE), help="prompts")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    models = {dtype: sg.load(arguments.model, device="cpu", dtype=dtype) for dtype in ("float32", "int8")}
    token_ids = models["float32"]._runtime.encode(" ".join(PEOPLE))[:CONTEXT]
    times = pass_times(models, token_ids, arguments.rounds)
    print(f"{setting(models['int8'])}\n")
    print("| tokens of a pass |", " | ".join(map(str, WIDTHS)), "|\n|:--|" + "--:|" * len(WIDTHS))
    for name, seconds in times.items():
        print(f"| {name}, ms |", " | ".join(f"{1e3 * seconds[width]:.1f}" for width in WIDTHS), "|")
        print(f"| {name}, of one token |", " | ".join(f"{seconds[w] / seconds[1]:.2f}" for w in WIDTHS), "|")
    ratios = [times["int8"][width] / times["float32"][width] for width in WIDTHS]
    print("| int8 / float32 |", " | ".join(f"{ratio:.2f}" for ratio in ratios), "|\n", flush=True)
    num_equal, equal_fields, places = answers(models, arguments.limit)
    divergence = [one for one, _ in places]
    print(
        "| places | mean KL | largest KL | same favourite | equal objects | equal fields |\n|--:|--:|--:|--:|--:|:--|"
    )
    fields = ", ".join(f"{name} {count}" for name, count in zip(Person.model_fields, equal_fields, strict=True))
    print(
        f"| {len(places)} | {sum(divergence) / len(places):.4f} | {max(divergence):.3f} "
        f"| {sum(same for _, same in places) / len(places):.1%} "
        f"| {num_equal} of {min(arguments.limit, len(PEOPLE))} | {fields} |"
    )


if __name__ == "__main__":
    main()
