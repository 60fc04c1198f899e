"""Time per object on a real model: structgen as it comes, beside transformers.generate with another engine's masks.

    python benchmarks/end_to_end.py --peers PEERS [--model NAME] [--tasks FILE] [--max-tokens N]

Greedy, one thread, one request at a time, the same prompts through the same chat template. Every prompt is answered in
every way, in turns, so that a machine that gets slower does so for all; each object is validated by jsonschema. A time
is the shorter of wall clock and processor time. Every way compiles the schemas before, and answers one other prompt,
which drafters do not learn from. Peers are set up as their own examples do it; PEERS is the folder that they are
installed in (see benchmarks/README.md), or several separated by a colon. --tasks reads SCHEMAS and PROMPTS from a
Python file instead of those below, --limit takes the first so many.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import torch
from rounds import setting
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor

import structgen as sg

PEERS = ("xgrammar", "llguidance")
WARM_UP = "Write any JSON object that fits."


def record(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object whose keys are all there, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "maxLength": 50}
COUNT = {"type": "integer", "minimum": 1, "maximum": 999}
SCHEMAS: dict[str, dict[str, Any]] = {
    "contact": record(name=TEXT, age=COUNT, city=TEXT, is_member={"type": "boolean"}),
    "invoice": record(
        number=TEXT,
        customer=record(name=TEXT, country=TEXT),
        lines={"type": "array", "minItems": 1, "maxItems": 2, "items": record(item=TEXT, quantity=COUNT)},
        currency={"enum": ["EUR", "USD", "GBP"]},
    ),
    "issue": record(kind={"enum": ["bug", "question", "wish"]}, title=TEXT, is_urgent={"type": "boolean"}),
}
PROMPTS: list[tuple[str, str]] = [
    ("contact", "Extract the contact as JSON. Ines Duarte, 42, of Porto has been a member for years."),
    ("contact", "Extract the contact as JSON. Pekka (29, from Turku) is not a member."),
    ("invoice", "Extract the invoice as JSON. Invoice 2041 to Brandt & Co in Germany: 3 office chairs, paid in EUR."),
    ("invoice", "Extract the invoice as JSON. R-17, Aiko Mori, Japan: 12 notebooks and 2 pens, in USD."),
    ("issue", "Sort the report, as JSON. Since the update the export button does nothing at all, please hurry."),
    ("issue", "Sort the report, as JSON. It would be nice if the calendar could show two weeks."),
]


@dataclass(slots=True)
class Sums:
    """What one way took, over all prompts."""

    seconds: float = 0.0
    tokens: int = 0
    passes: int = 0
    valid: int = 0
    objects: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Answer:
    """A text, and how many tokens and passes it took."""

    text: str
    num_tokens: int
    num_passes: int


class Masks(LogitsProcessor):
    """Another engine's masks in transformers.generate, for one sequence."""

    def __init__(
        self, fill: Callable[[Any], Any], apply: Callable[[Any, Any], Any], take: Callable[[int], Any], width: int
    ):
        """Start before the first token.

        Args:
            fill: writes the mask into (1, width / 32) int32.
            apply: masks (1, width) logits in place.
            take: moves on by a token.
            width: of the logits.
        """
        self._fill, self._apply, self._take = fill, apply, take
        self._bits = torch.full((1, -(-width // 32)), -1, dtype=torch.int32)
        self._has_started = False

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Mask the logits of the next token."""
        if self._has_started:
            self._take(int(input_ids[0, -1]))
        self._has_started = True
        self._fill(self._bits)
        self._apply(scores, self._bits)
        return scores


class Transformers:
    """transformers.generate, free or with the masks of a peer."""

    def __init__(self, folder: str, max_tokens: int) -> None:
        """Load the model as transformers does."""
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.width = int(self.model.config.vocab_size)
        self.max_tokens = max_tokens
        self._made: dict[str, Any] = {}

    def answer(self, prompt: str, processors: list[Any]) -> Answer:
        """Answer a prompt."""
        chat = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        given = self.tokenizer(text, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            found = self.model.generate(
                **given,
                do_sample=False,
                max_new_tokens=self.max_tokens,
                logits_processor=processors,
                pad_token_id=self.tokenizer.eos_token_id,
            )[0, given["input_ids"].shape[1] :]
        return Answer(self.tokenizer.decode(found, skip_special_tokens=True), len(found), len(found))

    def masks(self, peer: str, schema: dict[str, Any]) -> list[Any]:
        """Return a peer's processor for a schema; none for "free"."""
        return [] if peer == "free" else [self._xgrammar(schema) if peer == "xgrammar" else self._llguidance(schema)]

    def _xgrammar(self, schema: dict[str, Any]) -> Masks:
        import xgrammar

        if "xgrammar" not in self._made:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self.tokenizer, vocab_size=self.width, stop_token_ids=[self.tokenizer.eos_token_id]
            )
            self._made["xgrammar"] = xgrammar.GrammarCompiler(info)
        matcher = xgrammar.GrammarMatcher(self._made["xgrammar"].compile_json_schema(json.dumps(schema)))

        def fill(bits: Any) -> None:
            if not matcher.is_terminated():
                matcher.fill_next_token_bitmask(bits)

        return Masks(fill, xgrammar.apply_token_bitmask_inplace, matcher.accept_token, self.width)

    def _llguidance(self, schema: dict[str, Any]) -> Masks:
        import llguidance.hf
        import llguidance.torch

        if "llguidance" not in self._made:
            self._made["llguidance"] = llguidance.hf.from_tokenizer(self.tokenizer, n_vocab=self.width)
        # Without free whitespace, which small models fill their budget with.
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides={"whitespace_flexible": False}
        )
        matcher = llguidance.LLMatcher(self._made["llguidance"], grammar)

        def fill(bits: Any) -> None:
            llguidance.torch.fill_next_token_bitmask(matcher, bits)

        return Masks(fill, llguidance.torch.apply_token_bitmask_inplace, matcher.consume_token, self.width)


def ways(model: sg.Model, plain: Transformers, schemas: dict[str, Any]) -> dict[str, Callable[..., Answer]]:
    """Return the ways to answer: what each makes of the name of a schema and a prompt."""

    def ours(speculation: sg.Speculation | None) -> Callable[..., Answer]:
        def answer(name: str, prompt: str) -> Answer:
            options: dict[str, Any] = {} if speculation is None else {"speculation": speculation}
            options |= {"scope": "warm-up", "route": "warm-up"} if prompt == WARM_UP else {}
            found = model.run(
                sg.JsonSchema(schemas[name]),
                prompt,
                sampling=sg.Sampling.greedy(),
                max_tokens=plain.max_tokens,
                **options,
            )
            return Answer(found.text, found.report.num_tokens, found.report.num_target_passes)

        return answer

    def theirs(peer: str) -> Callable[..., Answer]:
        def answer(name: str, prompt: str) -> Answer:
            return plain.answer(prompt, plain.masks(peer, schemas[name]))

        return answer

    found = {"transformers, free text": theirs("free")}
    found |= {f"transformers, {peer}": theirs(peer) for peer in PEERS}
    return {**found, "structgen, no drafts": ours(sg.Speculation.off()), "structgen": ours(None)}


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    """Say whether a text is an object of the schema."""
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def measure(
    answers: dict[str, Callable[..., Answer]], schemas: dict[str, Any], prompts: list[tuple[str, str]]
) -> dict[str, Sums]:
    """Answer every prompt in every way, the ways in turn first."""
    for answer in answers.values():
        answer(next(iter(schemas)), WARM_UP)
    found = {way: Sums() for way in answers}
    order = list(answers)
    for number, (name, prompt) in enumerate(prompts):
        for way in order[number % len(order) :] + order[: number % len(order)]:
            wall, busy = time.perf_counter(), time.process_time()
            answer = answers[way](name, prompt)
            seconds = min(time.perf_counter() - wall, time.process_time() - busy)
            sums = found[way]
            sums.seconds += seconds
            sums.tokens += answer.num_tokens
            sums.passes += answer.num_passes
            sums.valid += is_valid(answer.text, schemas[name])
            sums.objects += 1
            sums.examples.append(answer.text)
    return found


def table(found: dict[str, Sums]) -> list[str]:
    """Return the lines of the Markdown table."""
    peers = [sums for way, sums in found.items() if way.removeprefix("transformers, ") in PEERS]
    per_object = min(sums.seconds / sums.objects for sums in peers)
    per_token = min(sums.seconds / sums.tokens for sums in peers)
    lines = [
        "| way | objects valid | tokens | passes | seconds per object | of the better peer | ms per token "
        "| of the better peer |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for way, sums in found.items():
        each, token = sums.seconds / sums.objects, sums.seconds / sums.tokens
        lines.append(
            f"| {way} | {sums.valid} of {sums.objects} | {sums.tokens} | {sums.passes} | {each:.2f} "
            f"| {each / per_object:.2f} | {1e3 * token:.1f} | {token / per_token:.2f} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="", help="folders with xgrammar and llguidance, separated by :")
    parser.add_argument("--model", default=None)
    parser.add_argument("--tasks", type=Path, default=None)
    parser.add_argument("--max-tokens", type=int, default=90)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--show", action="store_true", help="print the texts, too")
    arguments = parser.parse_args()
    # At the end, so that nothing there stands for a package of the project.
    sys.path += [folder for folder in arguments.peers.split(":") if folder]
    missing = [peer for peer in PEERS if importlib.util.find_spec(peer) is None]
    if missing:
        sys.exit(f"end_to_end.py: {' and '.join(missing)} not found; benchmarks/README.md says how to install them")
    torch.set_num_threads(1)
    schemas, prompts = SCHEMAS, PROMPTS
    if arguments.tasks is not None:
        read = runpy.run_path(str(arguments.tasks))
        schemas, prompts = read["SCHEMAS"], read["PROMPTS"]
    model = sg.load(arguments.model, device="cpu")
    plain = Transformers(str(model.folder or arguments.model), arguments.max_tokens)
    for schema in schemas.values():
        model.generator(sg.JsonSchema(schema))
        for peer in PEERS:
            plain.masks(peer, schema)
    found = measure(ways(model, plain, schemas), schemas, prompts[: arguments.limit])
    print(f"{setting(model, *PEERS)}; at most {arguments.max_tokens} tokens\n")
    print("\n".join(table(found)))
    if arguments.show:
        for way, sums in found.items():
            print(f"\n{way}:", *sums.examples, sep="\n  ")


if __name__ == "__main__":
    main()
