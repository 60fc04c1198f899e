"""What holds for the whole tree: the page of the data flow, sizes, twins of kernels, light imports, lint exceptions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "structgen"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
MAX_LINES = 400
MAX_TEST_LINES = 600  # tables of cases are long, and belong together

# Files that may be longer, each with its limit and the reason. A new entry is a commit of its own.
LONGER: dict[str, tuple[int, str]] = {}


def relative(path: Path) -> str:
    """Return the path as the documentation writes it, from the package folder on."""
    return path.relative_to(PACKAGE).as_posix()


@pytest.fixture(scope="module")
def architecture() -> str:
    """Return the page of the data flow."""
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_module_is_named_in_the_architecture(path: Path, architecture: str) -> None:
    """A reader finds each module on the one page that shows the data flow."""
    assert f"`{relative(path)}`" in architecture


def test_the_architecture_names_no_module_that_is_gone(architecture: str) -> None:
    """Each module that the page names exists."""
    named = set(re.findall(r"`([\w/]+\.py)`", architecture))
    assert named - {relative(path) for path in PACKAGE.rglob("*.py")} == set()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")) + sorted((ROOT / "tests").rglob("*.py")), ids=str)
def test_files_stay_short(path: Path) -> None:
    """A file does one thing: it stays under the limit, or has an entry in LONGER that says why."""
    usual = MAX_LINES if path.is_relative_to(PACKAGE) else MAX_TEST_LINES
    limit, _ = LONGER.get(path.relative_to(ROOT).as_posix(), (usual, ""))
    assert len(path.read_text(encoding="utf-8").splitlines()) <= limit


def test_longer_files_are_still_longer() -> None:
    """An exception that is no longer needed is taken away."""
    for name, (_, reason) in LONGER.items():
        assert reason
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) > MAX_LINES, name


# A name with an underscore is a part of an op.
KERNELS = sorted(path.stem for path in (PACKAGE / "kernels").glob("*.py") if path.name[0] != "_")


FUSION = "enable_fp_fusion"


@pytest.mark.parametrize("op", KERNELS)
def test_every_kernel_has_its_test_and_its_benchmark(op: str) -> None:
    """One op is one file, one test and one benchmark, all of one name."""
    assert (ROOT / "tests" / "kernels" / f"test_{op}.py").is_file()
    assert (ROOT / "benchmarks" / f"{op}.py").is_file()


@pytest.mark.parametrize("op", [op for op in KERNELS if "_kernel[" in (PACKAGE / f"kernels/{op}.py").read_text()])
def test_launches_say_how_sums_are_rounded(op: str) -> None:
    """What Triton does where nobody says so changes with its version, and is a warning to whoever runs it."""
    tree = ast.parse((PACKAGE / "kernels" / f"{op}.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)]
    launches = [call for call in calls if ast.unparse(call.func.value).endswith("_kernel")]
    assert launches
    # None is a dictionary of settings.
    assert [ast.unparse(call) for call in launches if not {FUSION, None} & {word.arg for word in call.keywords}] == []


LIGHT = ["structgen", *sorted(f"structgen.{relative(path)[:-3].replace('/', '.')}" for path in MODULES)]
LIGHT = [name for name in LIGHT if "._numba" not in name and "._triton" not in name]


HEAVY = ("torch", "transformers", "numba", "triton")


def loaded_by(program: str, *packages: str) -> list[str]:
    """Run a program in a fresh interpreter; return which of the packages it has loaded."""
    program += f"\nimport sys\nprint(*[name for name in {packages!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()


def test_importing_the_package_and_the_grammar_side_stays_light() -> None:
    """Neither the package nor any front end loads torch, transformers, numba or triton before it needs them."""
    side = [
        name for name in LIGHT if name == "structgen" or name.split(".")[1] in {"grammar", "declarations", "errors"}
    ]
    program = f"import importlib\nfor name in {side!r}: importlib.import_module(name)"
    assert loaded_by(program, *HEAVY) == []


def test_what_is_not_used_is_not_loaded() -> None:
    """`import structgen` alone loads nothing of weight, and declaring texts loads no reader of any."""
    assert loaded_by("import structgen", *HEAVY, "numpy", "pydantic", "lark", "rich", "typer") == []
    declaring = "import structgen as sg\nsg.Regex('a'), sg.Choice(['a']), sg.Lark('start: \"a\"')"
    assert loaded_by(declaring, *HEAVY, "numpy", "pydantic", "lark", "rich", "typer") == []
    assert loaded_by(f"{declaring}, sg.JsonSchema({{}})", *HEAVY, "pydantic", "lark", "rich", "typer") == []


NOQA = re.compile(r"#\s*(?:noqa|type:\s*ignore)(?::\s*[A-Z0-9, ]+|\[[\w\-, ]+\])?(?P<rest>.*)$")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=relative)
def test_every_lint_exception_has_its_reason(path: Path) -> None:
    """A line that switches a check off says why beside it."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = NOQA.search(line)
        if match is not None:
            assert re.search(r"\w{3,}", match["rest"]), f"{path}:{number}: say why"


def test_every_ignore_in_the_settings_has_its_reason() -> None:
    """Each rule that pyproject.toml ignores stands beside a comment."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ignores = text.split("\nignore = [", 1)[1].split("[tool.ruff.lint.pydocstyle]", 1)[0]
    for line in ignores.splitlines():
        if re.match(r'\s+"[A-Z]+\d*",', line):
            assert "# " in line, line


def public_functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions and methods of a module whose names are public."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_no_public_signature_takes_anything(path: Path) -> None:
    """A misspelt option is an error: no public function takes ``**kwargs``, except options that a TypedDict names.

    Type checkers see each of those. What runs says by ``@takes`` which they are, and refuses all others.
    """
    for node in public_functions(path):
        if node.args.kwarg is not None:
            annotation = node.args.kwarg.annotation
            decorators = list(map(ast.unparse, node.decorator_list))
            assert any(name == "overload" or name.startswith("takes(") for name in decorators), node.name
            assert annotation is not None, node.name
            assert ast.unparse(annotation).startswith("Unpack["), node.name
