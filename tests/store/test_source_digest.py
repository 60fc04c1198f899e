"""What ties stored data to code: every source that it depends on counts, and one that cannot be read is noticed."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable
from pathlib import Path

import pytest

from structgen import vocabulary_cache
from structgen.grammar import cache
from structgen.kernels import _numba
from structgen.source_digest import digest_of, source_digest

PACKAGE = Path(__file__).parents[2] / "structgen"
# They hold options, messages and reports; and how files are kept, which the store itself adds.
NO_MATTER = {"__init__.py", "errors.py", "config.py", "report.py", "findings.py", "source_digest.py"}
NO_MATTER |= {"array_file.py", "array_store.py"}


def imported(module: Path) -> set[Path]:
    """Return the modules of the package that a module imports anywhere, packages as their __init__."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        names: Iterable[str] = ()
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.split(".")[0] == "structgen":
                path = PACKAGE.parent / Path(*name.split("."))
                found |= {one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()}
    return found


def closure(*modules: str) -> set[str]:
    """Return what modules import, directly or not, themselves included, as paths in the package."""
    waiting = [PACKAGE / module for module in modules]
    seen: set[Path] = set()
    while waiting:
        module = waiting.pop()
        if module not in seen and module.relative_to(PACKAGE).as_posix() not in NO_MATTER:
            seen.add(module)
            waiting += imported(module)
    return {module.relative_to(PACKAGE).as_posix() for module in seen}


def uncovered(modules: set[str], parts: Iterable[str]) -> set[str]:
    """Return the modules that are neither one of the parts nor below one."""
    return {one for one in modules if not any(one == part or one.startswith(f"{part}/") for part in parts)}


def test_the_table_of_a_tokenizer_depends_on_what_makes_it() -> None:
    """Every module that the vocabulary's files come from is among their sources."""
    modules = closure("vocabulary_cache.py")

    assert {"token_bytes.py", "trie.py"} <= modules
    assert uncovered(modules, vocabulary_cache._SOURCES) == set()
    assert source_digest(*vocabulary_cache._SOURCES) is not None


def test_rows_and_scans_depend_on_what_makes_them() -> None:
    """Every module that rows and scans come from, front ends included, is among their sources."""
    front_ends = [f"grammar/{name}" for name in ("json_schema/__init__.py", "lark_grammar/__init__.py", "policy.py")]
    modules = closure("grammar/cache.py", "grammar/regex_grammar.py", *front_ends)

    assert {"grammar/parser.py", "grammar/dfa.py", "kernels/_numba/trie_walk.py", "vocabulary.py"} <= modules
    assert uncovered(modules, cache._SOURCES) == set()
    assert source_digest(*cache._SOURCES) is not None


def test_rows_depend_on_the_tables_that_are_shipped() -> None:
    """On a hit no schema is lowered, so files that lowering reads are sources too, though they are no modules."""
    shipped = [path for path in (PACKAGE / "grammar").rglob("*") if path.is_file()]
    data = {path.relative_to(PACKAGE).as_posix() for path in shipped if path.suffix not in (".py", ".pyc")}

    assert data == {part for part in cache._SOURCES if part.startswith("grammar/")}


def test_compiled_kernels_depend_on_what_they_inline() -> None:
    """Every module that a compiled kernel comes from is in the folder that names the kernels' cache."""
    kernels = [path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "kernels" / "_numba").glob("*.py")]

    assert uncovered(closure(*kernels), [_numba._SOURCES]) == set()
    assert source_digest(_numba._SOURCES) is not None


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small package."""
    for name in ["one.py", "two.py", "folder/three.py", "folder/deep/four.py", "folder/notes.txt"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return tmp_path


def test_each_source_counts(tree: Path) -> None:
    """A changed, new, renamed or deleted source is another digest; what is no part is none."""
    parts = ("one.py", "folder")
    digests = [digest_of(tree, parts)]
    assert digests == [digest_of(tree, parts)]

    (tree / "two.py").write_text("# changed\n")
    (tree / "folder" / "notes.txt").write_text("changed\n")
    assert digests == [digest_of(tree, parts)]

    (tree / "one.py").write_text("# one.pY\n")
    digests.append(digest_of(tree, parts))
    (tree / "folder" / "deep" / "four.py").write_text("# changed\n")
    digests.append(digest_of(tree, parts))
    (tree / "folder" / "deep" / "four.py").rename(tree / "folder" / "four.py")
    digests.append(digest_of(tree, parts))
    (tree / "folder" / "deep" / "five.py").write_text("")
    digests.append(digest_of(tree, parts))
    (tree / "folder" / "four.py").unlink()
    digests.append(digest_of(tree, parts))

    assert None not in digests
    assert len(set(digests)) == 6


@pytest.mark.parametrize("part", ["gone.py", "empty"])
def test_a_source_that_cannot_be_read_gives_no_digest(tree: Path, part: str) -> None:
    """Neither a missing file nor a folder without sources passes for an unchanged one."""
    (tree / "empty").mkdir()

    assert digest_of(tree, ["one.py", part]) is None


def test_the_package_is_the_one_that_runs() -> None:
    """The sources are those that this process has imported."""
    spec = importlib.util.find_spec("structgen.trie")

    assert spec is not None
    assert spec.origin is not None
    assert digest_of(Path(spec.origin).parent, ["trie.py"]) == source_digest("trie.py")
