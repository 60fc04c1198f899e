"""The public names: one sorted list, true for people, type checkers and the module itself; and cheap to import."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import types
from pathlib import Path

import pytest

import structgen
from structgen import errors

SOURCE = Path(structgen.__file__).read_text(encoding="utf-8")


def names_for_type_checkers() -> dict[str, str]:
    """Read which module each name is imported from under TYPE_CHECKING."""
    imports = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.ImportFrom) and node.module]
    return {
        alias.name: str(node.module)
        for node in imports
        if str(node.module).startswith("structgen")
        for alias in node.names
    }


def test_the_list_is_sorted_and_has_no_repeats() -> None:
    """`__all__` is in alphabetical order, each name once."""
    assert structgen.__all__ == sorted(set(structgen.__all__))


def test_type_checkers_see_the_same_names() -> None:
    """What mypy sees under TYPE_CHECKING is the list, and each comes from the module that it is got from."""
    seen = names_for_type_checkers()
    assert sorted(seen) == structgen.__all__
    for name, module in seen.items():
        assert getattr(structgen, name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", structgen.__all__)
def test_each_name_has_a_docstring(name: str) -> None:
    """Each public name says in a sentence what it is."""
    assert inspect.getdoc(getattr(structgen, name))


def test_every_error_is_public() -> None:
    """Each exception class of the package is exported at the top, and derives from StructgenError."""
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and not name.startswith("_")}
    assert classes - set(structgen.__all__) == set()
    assert all(issubclass(getattr(errors, name), structgen.StructgenError) for name in classes)


def test_other_names_are_refused() -> None:
    """A misspelt name is an AttributeError, as with any module; submodules are not in dir()."""
    with pytest.raises(AttributeError, match="generte"):
        structgen.generte  # noqa: B018 - the access is the test
    assert dir(structgen) == structgen.__all__
    modules = {name for name in structgen.__all__ if isinstance(getattr(structgen, name), types.ModuleType)}
    assert modules == {"drafters"}


def test_star_import_gives_the_list() -> None:
    """`from structgen import *` works, and gives exactly the list."""
    code = "from structgen import *; print(*sorted(n for n in dir() if not n.startswith('_')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == structgen.__all__


def test_importing_is_quick() -> None:
    """`import structgen` takes under 0.3 s of CPU, without the start of Python itself (best of three)."""
    code = "import time; t = time.process_time(); import structgen; print(time.process_time() - t)"
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(seconds) < 0.3


def test_declaring_loads_no_model_library() -> None:
    """Options, declarations and vocabularies need neither torch, transformers nor numba."""
    code = (
        "import sys, structgen as sg\n"
        "sg.Sampling.greedy(); sg.Choice(['a']); sg.Regex('a'); sg.JsonSchema({}); sg.Raw('x'); sg.Model; sg.load\n"
        "sg.Vocabulary.from_bytes([b'a', b''], stop_ids=[1])\n"
        "print([name for name in ('torch', 'transformers', 'numba', 'triton') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_the_package_is_typed() -> None:
    """The marker that tells type checkers to read our annotations is there."""
    assert (Path(structgen.__file__).parent / "py.typed").is_file()
