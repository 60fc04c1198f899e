"""What mypy sees of the face: each way to declare has its value's type, and a misspelt option is an error."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from mypy import api

from structgen.call_options import CallSettings, RunOptions, TypeOptions, TypeSettings

ROOT = Path(__file__).resolve().parent.parent
SOURCE = """
from typing import Literal
import structgen as sg

class A: ...

@sg.tool
def plain(a: int) -> str: return ""
@sg.tool(destructive=True)
def risky(a: int) -> str: return ""

def use(m: sg.Model) -> None:
    reveal_type(m.generate(A, "x", seed=1))  # A
    reveal_type(m.generate(int | None, "x"))  # int | None
    reveal_type(m.generate(Literal["a"], "x", policy=None))  # Literal['a']
    reveal_type(m.generate(sg.Choice([1, 2]), "x"))  # int
    reveal_type(m.generate(sg.Regex("a"), "x"))  # str
    reveal_type(m.generate(sg.ToolSet([plain, risky]), "x"))  # list[structgen.tools.ToolCall]
    reveal_type(plain(1))  # str
    reveal_type(risky(a=1))  # str
    plain("1")  # error
    reveal_type(m.run(list[A], "x", whitespace="any").value)  # list[A]
    reveal_type(m.generate_batch(A, ["x"], max_tokens=9))  # list[A]
    reveal_type(m.generator(A, property_order="any")("x"))  # A
    reveal_type(m.generate(list[int], "x"))  # list[int]
    reveal_type(m.generate(sg.ToolSet([]), "x"))  # list[structgen.tools.ToolCall]
    reveal_type(m.generate(sg.Lark("a"), "x"))  # Any
    reveal_type(m.generate(str, "x", stop=["."]))  # str
    reveal_type(m.stream(A, "x"))  # typing.Iterator[structgen.partial.Partial[A]]
    reveal_type(m.generator(A).stream("x", seed=1))  # typing.Iterator[structgen.partial.Partial[A]]
    for p in m.stream(A, "x", route="r"):
        reveal_type(p.value)  # A | Any
    reveal_type(m.generate(sg.JsonSchema({}), "x"))  # Any
    reveal_type(m.generator(sg.Choice(["a"])).run("x"))  # structgen.report.Result[str]
    reveal_type(m.run_batch([(A, "x")]))  # list[structgen.report.Result[Any]]
    reveal_type(sg.compile(A, m.vocabulary))  # structgen.grammar.token_automaton.TokenAutomaton
    reveal_type(sg.check(A))  # structgen.findings.Explanation
    m.generate(A, "x", sede=1)  # error
    m.generate(A, "x", seed="1")  # error
    m.generator(A, seed=1)  # error
    m.generator(A)("x", whitespace="any")  # error
    m.stream(A, "x", stopp=["."])  # error
    m.run(A, "x", max_tokns=1)  # error
    m.generate_batch(A, ["x"], property_order="sorted")  # error
    m.run_batch([(A, "x")], sede=1)  # error
"""


@pytest.mark.parametrize(("named", "checked"), [(TypeOptions, TypeSettings), (RunOptions, CallSettings)])
def test_what_type_checkers_see_is_what_is_checked(named: type, checked: type) -> None:
    """The options that a signature names, and their types, are those of the settings that are made of them."""
    assert {name: str(kind.__forward_arg__) for name, kind in named.__annotations__.items()} == checked.__annotations__


def test_types_and_options_of_the_face(tmp_path: Path) -> None:
    """Each line of the source gives what its comment says."""
    file = tmp_path / "use.py"
    file.write_text(SOURCE)
    limit = sys.getrecursionlimit()
    out, _, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), "--strict", "--no-pretty", str(file)])
    sys.setrecursionlimit(limit)  # mypy raises it, and tests of deep nesting come after
    seen: dict[int, set[str]] = {}
    for line, kind, text in re.findall(r"use\.py:(\d+): (error|note): (.*)", out):
        found = re.match(r'Revealed type is "(.*)"', text)
        if kind == "error" or found:
            seen.setdefault(int(line), set()).add(kind if found is None else found[1].replace("use.", ""))
    wanted = {number: {line.split("# ")[1]} for number, line in enumerate(SOURCE.splitlines(), 1) if "# " in line}
    assert seen == wanted, out
