"""What share of steps finds its state described: those that a device takes without waiting for the host.

    python benchmarks/frozen_part.py TOKENIZER_FOLDER [--data FOLDER] [--states 4000] [--every 6]
    python benchmarks/frozen_part.py TOKENIZER_FOLDER --model [--texts 8]

Over the valid instances of files in MaskBench's format (without --data, the small ones beside this script), written as
json.dumps does; with --model over texts that the default model writes for the types of examples/ and open ones, at
temperature 1. A text follows the part of its type as a row on a device does: where its state is not described, it waits
until it is, with those nearest to it. `first` is the first text of a type, for which nothing was met; `later` are the
others, each after those before it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import structgen as sg
from structgen.config import Limits
from structgen.errors import StructgenError
from structgen.grammar.frozen_part import FrozenPart
from structgen.grammar.token_automaton import TokenAutomaton

OWN_DATA = Path(__file__).with_name("schemas")
EXAMPLES = Path(__file__).parents[1] / "examples"
OPEN = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name"],
}


def follow(part: FrozenPart, token_ids: list[int]) -> Counter[str]:
    """Return the steps of a text, the waits, and the seconds that the host took for them."""
    walk, total = part.start(), Counter[str]()
    for token_id in [*token_ids, None]:
        total["steps"] += 1
        if part.states_along(walk.token_ids)[-1] < 0:
            clock = time.process_time()
            total["failed"] += not part.describe(walk)
            total["wait_s"] += time.process_time() - clock
            total["waits"] += 1
        if token_id is not None:
            walk.advance(token_id)
    return total


def of_type(automaton: TokenAutomaton, texts: list[list[int]], num_states: int) -> Counter[str]:
    """Return the counts of the texts of a type, and what its part took."""
    clock = time.process_time()
    part = automaton.freeze_part(num_states=num_states)
    total: Counter[str] = Counter({"types": 1, "freeze_s": time.process_time() - clock})
    total["first_mb"] = part.machine.num_bytes / 2**20
    for number, token_ids in enumerate(texts):
        when = "later" if number else "first"
        total.update({f"{when}_{name}": value for name, value in follow(part, token_ids).items()})
    total["last_mb"] = part.machine.num_bytes / 2**20
    total["pieces"] = len(part.machine.pieces)
    return total


def of_schema(data: dict[str, Any], vocabulary: sg.Vocabulary, num_states: int) -> Counter[str]:
    """Return the counts of the instances of a schema."""
    limits = Limits(compile_seconds=30.0)
    automaton = sg.compile(sg.JsonSchema(data["schema"], whitespace="spaced"), vocabulary, cache=None, limits=limits)
    texts = [json.dumps(test["data"], ensure_ascii=False) for test in data["tests"] if test["valid"]]
    return of_type(automaton, [vocabulary.encode(text.encode()) for text in texts], num_states)


def of_schemas(options: argparse.Namespace, vocabulary: sg.Vocabulary) -> None:
    """Print one line for each schema, and the sums."""
    total: Counter[str] = Counter()
    for path in sorted(options.data.glob("*.json"))[:: options.every]:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "schema" not in data:
            continue
        try:
            one = of_schema(data, vocabulary, options.states)
        except StructgenError as error:
            one = Counter({type(error).__name__: 1})
        total.update(one)
        show(path.name, one)
    show("all", total)


def of_model(options: argparse.Namespace) -> None:
    """Print one line for each type."""
    sys.path.insert(0, str(EXAMPLES))
    import sql_query
    import tree

    model = sg.load()
    types: dict[str, tuple[Any, str]] = {
        "the recursive tree": (tree.Folder, tree.PROMPT),
        "the SELECT grammar": (sg.Lark(sql_query.GRAMMAR), sql_query.QUESTION),
        "an open object": (sg.JsonSchema(OPEN), "Describe a person as JSON: name, age, tags, and anything else."),
        "any JSON": (Any, "Write a JSON document with some settings of a small web server."),
    }
    for name, (output_type, prompt) in types.items():
        generator = model.generator(output_type)
        runs = [generator.run(prompt, seed=seed, max_tokens=120) for seed in range(options.texts)]
        show(name, of_type(generator.automaton, [list(run.token_ids) for run in runs], options.states))


def show(name: str, total: Counter[str]) -> None:
    """Print shares and figures."""
    shares = {
        when: f"{1 - total[f'{when}_waits'] / steps:.1%}"
        for when in ("first", "later")
        if (steps := total[f"{when}_steps"])
    }
    waits = total["first_waits"] + total["later_waits"]
    wait_ms = 1e3 * (total["first_wait_s"] + total["later_wait_s"]) / max(waits, 1)
    rounded = {key: round(value, 2) for key, value in total.items() if not key.endswith("wait_s")}
    print(name, shares, f"{wait_ms:.0f} ms a wait", rounded, flush=True)


def main() -> None:
    """Measure schemas, or types with a model."""
    from transformers import AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--data", type=Path, default=OWN_DATA)
    parser.add_argument("--states", type=int, default=4000)
    parser.add_argument("--every", type=int, default=1, help="only every so many files")
    parser.add_argument("--model", action="store_true", help="texts of the default model")
    parser.add_argument("--texts", type=int, default=8, help="so many for each type")
    options = parser.parse_args()
    if options.model:
        of_model(options)
    else:
        of_schemas(options, sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(options.tokenizer)))


if __name__ == "__main__":
    main()
