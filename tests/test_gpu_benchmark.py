"""benchmarks/gpu.py without a GPU: it runs to the end, finds no fault, needs nothing that a GPU machine may lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What reads declarations: pydantic and its parts, Lark, regular expressions, JSON Schema.
_ABSENT = ("pydantic", "pydantic_core", "annotated_types", "lark", "interegular", "jsonschema", "referencing", "rich")
# What else this package needs, and torch, Triton, transformers and numba do not.
_ABSENT_TOO = ("platformdirs", "accelerate", "gguf", "typer")
_BARE = f"sys.modules.update(dict.fromkeys({_ABSENT_TOO!r}))\n"
_BLOCK = f"import sys\nsys.modules.update(dict.fromkeys({_ABSENT!r}))\n"


def run(program: str, *arguments: str) -> str:
    """Run a program in a fresh interpreter without these packages."""
    result = subprocess.run(
        [sys.executable, "-c", _BLOCK + program, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'benchmarks'}"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


def test_the_block_blocks() -> None:
    """The test can fail: what is absent cannot be imported."""
    with pytest.raises(AssertionError, match="import of pydantic halted"):
        run("import pydantic")


def test_kernels_and_decoding_import_nothing_that_reads_declarations() -> None:
    """Every module of both packages is imported."""
    program = """
import importlib, pkgutil
import structgen.decode, structgen.kernels
for package in (structgen.decode, structgen.kernels):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print("imported", len([name for name in sys.modules if name.startswith("structgen.")]))
"""
    assert int(run(program).split()[-1]) > 60


def test_the_benchmark_is_imported_on_a_bare_machine() -> None:
    """With nothing there but what it says that it needs."""
    program = "sys.argv = ['gpu.py', '--check']\nimport gpu\nprint(gpu.environment(gpu.torch.device('cpu'))['torch'])"
    assert run(_BARE + program)


def test_machines_are_prepared_and_read(tmp_path: Path) -> None:
    """Made-up machines and their vocabulary go through files, and a step along each drafted token is legal."""
    program = """
from pathlib import Path
from gpu_machines import everything, made_up, read, write
folder = Path(sys.argv[1])
one = made_up(2_000)
write(folder, [one, everything(2_000)])
other, again = read(folder)
assert (other.name, again.name) == ("everything", one.name)
assert again.automaton.vocabulary == one.automaton.vocabulary
num_drafted = 0
for state, drafts in enumerate(again.drafts):
    for token_id in drafts[drafts >= 0]:
        state = again.machine.next_state[state, again.machine.token_class[token_id]]
        num_drafted += 1
        assert state >= 0
print(num_drafted)
"""
    assert int(run(program, str(tmp_path))) > 100


@pytest.mark.slow
def test_the_whole_run_on_the_cpu(tmp_path: Path) -> None:
    """Every part runs, through Triton's interpreter, and nothing is wrong."""
    run(
        _BARE + "import runpy; sys.argv = ['gpu.py', '--check', '--out', sys.argv[1]]; "
        "sys.path.insert(0, 'benchmarks'); runpy.run_path('benchmarks/gpu.py', run_name='__main__')",
        str(tmp_path),
    )
    found = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert found["faults"] == []
    assert {figure["table"] for figure in found["figures"]} == {"Kernels", "Steps", "Other kernels"}
    assert "is a measurement" in (tmp_path / "gpu.md").read_text(encoding="utf-8")
