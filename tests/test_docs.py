"""What the documentation says is so: its Python runs, its output is real, its names and links resolve.

A fenced block marked ``python`` is run; ``python model`` is run with SmolLM2. The blocks of a page share one
namespace, from top to bottom. A block marked ``output`` right after one is exactly what that one prints.
"""

from __future__ import annotations

import codeop
import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import io
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]
    + list((ROOT / "docs").rglob("*.md")),
)
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
INFOS = {"python", "python model", "output", "text", "console", "json", "lark", "toml", "makefile"}


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block: its mark, its text, the line it starts on."""

    info: str
    body: str
    line: int


def name_of(page: Path) -> str:
    """Return the path of a page as a test id."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match["info"].strip(), match["body"], text.count("\n", 0, match.start("body")) + 1)
        for match in FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def pages_that_run() -> Iterator[Any]:
    """Yield each page that has Python in it, marked where it needs the model."""
    for page in PAGES:
        infos = {block.info for block in blocks(page)}
        if "python model" in infos:
            yield pytest.param(page, id=name_of(page), marks=pytest.mark.model)
        elif "python" in infos:
            yield pytest.param(page, id=name_of(page))


pytestmark = pytest.mark.usefixtures("weights_are_read_once")


@pytest.mark.parametrize("page", list(pages_that_run()))
def test_the_python_of_a_page_runs_and_prints_what_it_says(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader who pastes the blocks of a page in order gets no error, and the output that stands there."""
    module = types.ModuleType("page_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    printed = ""
    for block in blocks(page):
        if block.info.startswith("python"):
            source = "\n" * (block.line - 1) + block.body
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(source, str(page), "exec", dont_inherit=True), vars(module))
            printed = out.getvalue()
        elif block.info == "output":
            assert printed == block.body, f"{page}:{block.line}"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "tutorial.md"], ids=name_of)
def test_what_a_newcomer_pastes_is_taken_line_by_line(page: Path) -> None:
    """The prompt of Python takes each block as it stands: there an empty line ends what is indented, and nothing else.

    From Python 3.13 on the prompt reads a pasted block as a whole; before that it reads line by line.
    """
    for block in blocks(page):
        waiting: list[str] = []
        for line in [*block.body.splitlines(), ""] if block.info.startswith("python") else []:
            waiting.append(line)
            if codeop.compile_command("\n".join(waiting), str(page), "single") is not None:
                waiting = []
        assert waiting == [], f"{page}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    """No block escapes the run by a missing or misspelt mark."""
    for block in blocks(page):
        assert block.info in INFOS, f"{page}:{block.line}: {block.info!r}"


def slug(heading: str) -> str:
    """Return the anchor that a heading gets when the page is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_resolve(page: Path) -> None:
    """Each link to a file, and to a heading in it, leads there."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(file), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, target


def test_every_page_is_found_from_the_index() -> None:
    """Following links from docs/index.md leads to every page of docs/."""
    found, waiting = set[Path](), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        found.add(page)
        links = re.findall(r"\]\(([^)\s#]+\.md)", prose(page))
        waiting += [path for link in links if (path := (page.parent / link).resolve()) not in found and path in PAGES]
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - found == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_in_the_text_exist(page: Path) -> None:
    """Each path in code type is a file of the repository, from its root or from the package folder."""
    for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml|json))`", prose(page)):
        assert (ROOT / path).exists() or (ROOT / "structgen" / path).exists(), path


def resolve(dotted: str) -> bool:
    """Say whether a dotted name leads to a module, an attribute, or a field of a class."""
    first, *rest = dotted.split(".")
    value: Any = importlib.import_module({"sg": "structgen"}.get(first, first))
    for part in rest:
        if isinstance(value, types.ModuleType) and not hasattr(value, part):
            try:
                value = importlib.import_module(f"{value.__name__}.{part}")
            except ModuleNotFoundError:
                return False
        elif hasattr(value, part):
            value = getattr(value, part)
        else:
            return inspect.isclass(value) and any(part in vars(c).get("__annotations__", {}) for c in value.__mro__)
    return True


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_in_the_text_resolve(page: Path) -> None:
    """Each ``sg.name`` and ``structgen.module.name`` in code type exists."""
    for dotted in re.findall(r"`(?:@)?((?:sg|structgen)(?:\.[A-Za-z_]\w*)+)", prose(page)):
        assert resolve(dotted), dotted


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_the_text_exist(page: Path) -> None:
    """Each ``make target`` and ``structgen command`` that is shown can be typed."""
    from typer.main import get_command

    from structgen.cli import app

    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"(?:`|^\$ )make ([a-z-]+)", text, re.MULTILINE)) - targets == set()
    assert set(re.findall(r"(?:`|^\$ )structgen ([a-z-]+)", text, re.MULTILINE)) - commands == set()


def option_rows() -> dict[str, dict[str, list[str]]]:
    """Read docs/options.md: class -> option -> the cells of its row."""
    rows: dict[str, dict[str, list[str]]] = {}
    for section in re.split(r"^## ", (ROOT / "docs" / "options.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[
        1:
    ]:
        title = section.splitlines()[0].strip("` ")
        cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
        rows[title] = {row[0].strip("`"): row[1:] for row in cells}
    return rows


def test_every_option_has_a_row_that_says_who_would_change_it() -> None:
    """Each field of each option value is in docs/options.md: its default, its meaning, who changes it and when."""
    config = importlib.import_module("structgen.config")
    classes = {
        name: value
        for name, value in vars(config).items()
        if inspect.isclass(value)
        and dataclasses.is_dataclass(value)
        and value.__module__ == config.__name__
        and name[0] != "_"
    }
    options = importlib.import_module("structgen.call_options")
    classes |= {"Options of a call": options.CallSettings, "Options of an output type": options.TypeSettings}
    rows = option_rows()
    assert len(classes) > 5
    for name, cls in classes.items():
        assert set(rows[name]) == {field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")}
        assert all(len(cells) == 3 and all(cells) for cells in rows[name].values()), name


def test_every_public_name_is_in_the_reference() -> None:
    """docs/reference/api.md has each name of ``structgen.__all__`` in code type."""
    sg = importlib.import_module("structgen")
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:@)?sg\.(\w+)", text))
    assert set(sg.__all__) - named == set()


def test_generated_parts_are_current() -> None:
    """Writing the generated parts of docs/ again changes nothing."""
    script = importlib.util.spec_from_file_location("build_docs", ROOT / "scripts" / "build_docs.py")
    assert script is not None
    assert script.loader is not None
    module = importlib.util.module_from_spec(script)
    script.loader.exec_module(module)
    for path, text in module.rendered().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run `make docs`"
