"""Every example runs as it stands, stays short, and says what it shows."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))

# What each prints; the facts are the model's, the form is ours.
OUTPUT = {
    "classify": r"((delivery|invoice|praise|complaint) +\S.*\n){3}",
    "person": r"Person\(name='.{0,40}', age=\d+, email=.*\)\n\d+ tokens, \d+ ms each\n",
    "sql_query": r"SELECT .+ FROM users.*\n(\(.*\)\n)*",
    "stream": r"(\{.*\}\n)+Person\(name='.*', age=\d+, city='.*'\)\n",
    "tree": r"[a-z]{1,12}/\n( +[a-z]{1,12}/\n)*",
    "weather": r"((get_weather|delete_reports) \{'city': '(Oslo|Bergen|Tromso)'.*\}\n-> .+\n){2}",
}


def test_every_example_is_tested() -> None:
    """There is an expectation for each example, and an example for each expectation."""
    assert [path.stem for path in EXAMPLES] == sorted(OUTPUT)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_explained(path: Path) -> None:
    """An example has under 60 lines and opens with what it shows; its name hides no module of Python."""
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 60
    assert (ast.get_docstring(ast.parse(source)) or "").count("\n") >= 1
    assert path.stem not in sys.stdlib_module_names


@pytest.mark.model
@pytest.mark.usefixtures("weights_are_read_once")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example ends without an error and prints what it is about."""
    runpy.run_path(str(path), run_name="__main__")
    out, err = capsys.readouterr()
    assert err == ""
    assert re.fullmatch(OUTPUT[path.stem], out), out


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_in_a_process_of_their_own(path: Path) -> None:
    """The same, as a reader runs it, with every warning an error."""
    code = f"import runpy, torch; torch.set_num_threads(1); runpy.run_path({str(path)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(OUTPUT[path.stem], done.stdout), done.stdout
