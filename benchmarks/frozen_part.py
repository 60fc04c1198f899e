"""What share of steps a part of an automaton describes: those that a device takes without the host.

    python benchmarks/frozen_part.py TOKENIZER_FOLDER [--data FOLDER] [--states 4000] [--every 6]

Over the valid instances of files in MaskBench's format (without --data, the small ones beside this script), written as
json.dumps does. A step is counted where the state before it is described: `first`, until the text leaves the part for
the first time; `any`, wherever it is; `met`, the same where the part has met the instances before this one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import structgen as sg
from structgen.config import Limits
from structgen.errors import StructgenError
from structgen.grammar.frozen_part import FrozenPart

OWN_DATA = Path(__file__).with_name("schemas")


def count(part: FrozenPart, token_ids: list[int], met: str | None = None) -> Counter[str]:
    """Return how many steps of a text start in a state that the part describes."""
    described = [state >= 0 for state in part.states_along(token_ids)]
    described += [False] * (len(token_ids) + 1 - len(described))
    if met is not None:
        return Counter({met: sum(described)})
    first = described.index(False) if False in described else len(described)
    return Counter({"steps": len(described), "any": sum(described), "first": first})


def of_schema(data: dict[str, Any], vocabulary: sg.Vocabulary, num_states: int) -> Counter[str]:
    """Return the counts of a schema, and the seconds of its part."""
    limits = Limits(compile_seconds=30.0)
    automaton = sg.compile(sg.JsonSchema(data["schema"], whitespace="spaced"), vocabulary, cache=None, limits=limits)
    clock = time.process_time()
    part = automaton.freeze_part(num_states=num_states)
    total: Counter[str] = Counter({"schemas": 1, "whole": part.machine.is_whole})
    total["seconds"] += time.process_time() - clock
    texts = [json.dumps(test["data"], ensure_ascii=False) for test in data["tests"] if test["valid"]]
    tokens = [vocabulary.encode(text.encode()) for text in texts]
    for token_ids in tokens:
        total += count(part, token_ids)
    for token_ids in tokens:
        total += count(part, token_ids, "met")
        part.meet(token_ids)
        part.grow()
    return total


def main() -> None:
    """Print one line for each schema, and the sums."""
    from transformers import AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--data", type=Path, default=OWN_DATA)
    parser.add_argument("--states", type=int, default=4000)
    parser.add_argument("--every", type=int, default=1, help="only every so many files")
    options = parser.parse_args()
    vocabulary = sg.Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(options.tokenizer))
    total: Counter[str] = Counter()
    for path in sorted(options.data.glob("*.json"))[:: options.every]:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "schema" not in data:
            continue
        try:
            one = of_schema(data, vocabulary, options.states)
        except StructgenError as error:
            one = Counter({type(error).__name__: 1})
        total += one
        print(path.name, dict(one), flush=True)
    shares = {name: f"{total[name] / max(total['steps'], 1):.1%}" for name in ("first", "any", "met")}
    print(dict(total), shares)


if __name__ == "__main__":
    main()
