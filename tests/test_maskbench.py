"""benchmarks/maskbench.py: what it counts is what the files say, on its own small folder and on files that lie."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tiny_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "benchmarks" / "maskbench.py"


@pytest.fixture(scope="module")
def maskbench() -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("maskbench", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer().save_pretrained(folder)
    return folder


def bench(maskbench: ModuleType, tokenizer: Path, **options: Any) -> Any:
    """Return a bench in this process."""
    settings = {"property_order": "declared", "folder": None, "seconds": 60} | options
    return maskbench.Bench(maskbench.Settings(tokenizer=tokenizer, **settings))


@pytest.mark.parametrize("property_order", ["declared", "any"])
def test_the_small_folder_is_judged_rightly(maskbench: ModuleType, tokenizer: Path, property_order: str) -> None:
    """No invalid instance is accepted, no valid one refused but for its order, and one schema is refused by name."""
    one = bench(maskbench, tokenizer, property_order=property_order)
    rows = [one.run(path) for path in sorted(maskbench.OWN_DATA.glob("*.json"))]
    others = {row.file: (row.verdict, row.refused) for row in rows if row.verdict != "passes"}
    expected = {"names_differ.json": ("refused", "uniqueItems")}
    reordered = {"key_order.json": [1]} if property_order == "declared" else {}
    assert others == expected | dict.fromkeys(reordered, ("wrong", ""))
    assert {row.file: row.reordered for row in rows if row.rejected} == reordered
    assert [row.accepted for row in rows if row.accepted] == []
    tests = [test for path in maskbench.OWN_DATA.glob("*.json") for test in json.loads(path.read_text())["tests"]]
    assert sum(row.num_valid + row.num_invalid for row in rows) == len(tests) - 2
    assert all(0 < row.compile_us <= row.first_mask_us for row in rows if row.verdict != "refused")
    found = maskbench.summary(rows, {})
    assert found["schemas that pass"] == str(len(rows) - 1 - len(reordered))
    assert found["the same, only for the order of keys"] == str(len(reordered))
    assert found["masks"] == f"{sum(len(row.masks_us) for row in rows):,}"


def test_files_that_lie_are_told(maskbench: ModuleType, tokenizer: Path, tmp_path: Path) -> None:
    """An instance with the wrong label is counted as accepted or refused, less those that are known to be doubtful."""
    tests = [{"valid": False, "data": 1}, {"valid": True, "data": "one"}, {"valid": False, "data": 2}]
    file = tmp_path / "lies.json"
    file.write_text(json.dumps({"schema": {"type": "integer"}, "tests": tests}))
    row = bench(maskbench, tokenizer).run(file)
    assert (row.verdict, row.accepted, row.rejected, row.reordered) == ("wrong", [0, 2], [1], [])
    assert maskbench.summary([row], {})["invalid instances accepted"] == "2 of 2"
    found = maskbench.summary([row], {"lies.json": {2}})
    assert (found["invalid instances accepted"], found["the same, of the doubtful"]) == ("1 of 2", "1")
    assert found["valid instances refused"] == "1 of 1"


def test_what_takes_too_long_is_told(maskbench: ModuleType, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that passes its time is a row of its own, and the next one is run as ever."""

    def endless(*_: Any) -> None:
        while True:
            pass

    one = bench(maskbench, tokenizer, seconds=1e-3)
    monkeypatch.setattr(one, "_compile", endless)
    path = maskbench.OWN_DATA / "settings.json"
    assert one.run(path).verdict == "timeout"
    assert bench(maskbench, tokenizer).run(path).verdict == "passes"


def test_times_are_those_of_the_call(maskbench: ModuleType) -> None:
    """The stopwatch gives what the call returned, and about the time that it took on the CPU."""
    stopwatch = maskbench.Stopwatch()
    data = np.ones(3_000_000)
    result, busy = stopwatch(lambda: float(np.sqrt(data).sum()))
    assert result == 3_000_000
    assert busy > 1000
    assert stopwatch(lambda: None)[1] < 1000


@pytest.mark.slow
def test_a_second_process_finds_the_rows_of_the_first(tokenizer: Path, tmp_path: Path) -> None:
    """--cache warm runs two passes, writes a line for each file of each, and both judge alike."""
    out = tmp_path / "rows.jsonl"
    (tmp_path / "names").write_text("file_tree.json\nkey_order.json\nmatrix.json\n")
    options = ["--cache", "warm", "--out", str(out), "--files", str(tmp_path / "names")]
    command = [sys.executable, str(SCRIPT), str(tokenizer), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"schemas that pass +[|│] +2 +[|│] +2 ", done.stdout), done.stdout
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["pass"], row["file"]) for row in rows] == [
        (name, f"{file}.json") for name in ("cold", "warm") for file in ("file_tree", "key_order", "matrix")
    ]
    cold, warm = ([us for row in rows if row["pass"] == name for us in row["masks_us"]] for name in ("cold", "warm"))
    assert len(cold) == len(warm) > 200
    assert np.mean(warm) < np.mean(cold)
