"""The official JSON Schema suite, where it lies beside the repository: verdicts against a baseline that only improves.

The baseline holds counts per file, no data. A test counts as right only if our verdict on json.dumps of its instance
is the suite's. `PYTHONPATH=.:tests python tests/grammar/json_schema/test_suite.py` writes the baseline anew where no
count of right ones fell.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oracle.recognise import accepts
from structgen.errors import LimitError, UnsatisfiableError, UnsupportedSchemaError
from structgen.grammar.json_schema import lower_schema

ROOT = Path(__file__).parents[3]
SUITE = ROOT.parent / "shared" / "bench" / "json-schema-test-suite" / "tests"
BASELINE = Path(__file__).with_name("suite_baseline.json")
DIALECTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}
# format is an assertion here and an annotation in the suite, so these reject what the suite takes; never the reverse.
KINDS = ("right", "refused", "wrongly rejected", "wrongly accepted")

Counts = dict[str, dict[str, int]]


def _groups(path: Path, dialect: str) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    for group in json.loads(path.read_text(encoding="utf-8")):
        schema = group["schema"]
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": dialect, **schema}
        yield schema, group["tests"]


def _verdicts(schema: Any, tests: list[dict[str, Any]]) -> list[str]:
    try:
        grammar = lower_schema(schema, whitespace="any")
    except (UnsupportedSchemaError, LimitError):
        return ["refused"] * len(tests)
    except UnsatisfiableError:
        return ["wrongly rejected" if test["valid"] else "right" for test in tests]
    found = []
    for test in tests:
        is_word = accepts(grammar, json.dumps(test["data"]).encode())
        wrong = "wrongly accepted" if is_word else "wrongly rejected"
        found.append("right" if is_word == test["valid"] else wrong)
    return found


def measured(draft: str) -> Counts:
    """Return the number of verdicts of each kind, per file of the required part of a draft."""
    found: Counts = {}
    for path in sorted((SUITE / draft).glob("*.json")):
        counts = Counter[str]()
        for schema, tests in _groups(path, DIALECTS[draft]):
            counts.update(_verdicts(schema, tests))
        found[path.stem] = {kind: counts[kind] for kind in KINDS if counts[kind]}
    return found


@pytest.mark.skipif(not SUITE.exists(), reason="the official suite is not beside this repository")
@pytest.mark.parametrize("draft", list(DIALECTS))
def test_the_official_suite_is_no_worse_than_the_baseline(draft: str) -> None:
    """Nothing invalid is accepted, and in no file fewer verdicts are right than before."""
    baseline = json.loads(BASELINE.read_text(encoding="utf-8"))[draft]
    found = measured(draft)
    assert {name for name, counts in found.items() if counts.get("wrongly accepted")} == set()
    worse = {
        name: (counts.get("right", 0), baseline[name].get("right", 0))
        for name, counts in found.items()
        if name in baseline and counts.get("right", 0) < baseline[name].get("right", 0)
    }
    assert worse == {}
    assert baseline.keys() <= found.keys()


def _write() -> None:
    before = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else {}
    after = {draft: measured(draft) for draft in DIALECTS}
    for draft, files in after.items():
        for name, counts in files.items():
            known = before.get(draft, {}).get(name, {}).get("right", 0)
            if counts.get("right", 0) < known or counts.get("wrongly accepted"):
                sys.exit(f"{draft}/{name}: {counts}, {known} were right before; the baseline stays")
        sys.stdout.write(f"{draft} {sum((Counter(counts) for counts in files.values()), Counter())}\n")
    BASELINE.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
