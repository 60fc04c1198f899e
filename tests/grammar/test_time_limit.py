"""The time that a compilation may take is kept, wherever in it the time goes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import structgen as sg
from structgen import explanation
from structgen.config import Limits
from structgen.errors import LimitError
from structgen.grammar.time_limit import check_time, time_limit

VOCABULARY = sg.Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), b""], stop_ids=[256])
SECONDS = 0.1
MOST_CPU_SECONDS = 3.0
"""Far below what the cases take without a limit (on one core 4 to 60 s), far above what one step of them takes."""


def branches() -> sg.JsonSchema:
    """Return a schema whose branches all overlap, so that each is taken from each."""
    fields = {"z": {"type": "string"}}
    return sg.JsonSchema({"oneOf": [{"properties": {f"k{i}": fields["z"], "z": {"minimum": i}}} for i in range(60)]})


def patterns() -> sg.JsonSchema:
    """Return a schema of patterns whose automata have thousands of states each."""
    parts = [f"^(a|b|{c})*{c}(a|b|{c}){{10}}$" for c in "cdefghijklm"]
    return sg.JsonSchema({"anyOf": [{"pattern": part} for part in parts]})


def looks() -> sg.JsonSchema:
    """Return a schema of patterns that look both ways."""
    parts = [f"^(?=(a|b|{c})*{c}(a|b|{c}){{9}}$)(?!.*ba{{3}}{c})[ab{c}]*(?<=a.{{4}})$" for c in "cdefghijklm"]
    return sg.JsonSchema({"anyOf": [{"pattern": part} for part in parts]})


def terminals() -> sg.Lark:
    """Return a grammar with many terminals that a contextual lexer has to tell apart."""
    rules = [f"r{i}: T{i} r{(i * 7 + 1) % 90}? r{(i * 3 + 2) % 90}?" for i in range(90)]
    words = [f"T{i}: /k{i}[a-z]*;?/" for i in range(90)]
    return sg.Lark("\n".join(["start: r0+", *rules, *words, "%ignore / +/"]), lexer="contextual")


@pytest.mark.parametrize("declared", [branches, patterns, looks, terminals])
def test_it_ends_in_time(declared: Callable[[], object]) -> None:
    """Products of subschemas, determinised patterns, look-arounds, contextual lexers: each stops, and says why."""
    output_type = declared()
    started = time.process_time()
    with pytest.raises(LimitError, match="took too long") as caught:
        sg.compile(output_type, VOCABULARY, cache=None, limits=Limits(compile_seconds=SECONDS))
    assert caught.value.limit == "compile_seconds"
    assert time.process_time() - started < MOST_CPU_SECONDS


@pytest.mark.parametrize("declared", [branches, looks])
def test_check_ends_in_time(declared: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` stands under the limit too, with all that it looks for once something is refused."""
    monkeypatch.setattr(explanation, "Limits", lambda: Limits(compile_seconds=SECONDS))
    output_type = declared()
    started = time.process_time()
    with pytest.raises(LimitError) as caught:
        sg.check(output_type)
    assert caught.value.limit == "compile_seconds"
    assert time.process_time() - started < MOST_CPU_SECONDS


def test_the_closer_limit_holds() -> None:
    """A limit inside another one never outlives it, and ends with its block; without one there is none."""
    with time_limit(0.0), time_limit(60.0), pytest.raises(LimitError):
        check_time("this")
    with time_limit(60.0):
        with time_limit(0.0), pytest.raises(LimitError):
            check_time("this")
        check_time("that")
    check_time("whatever")


def test_what_ran_out_of_time_is_not_kept() -> None:
    """The same declaration compiles when it is given time."""
    schema = sg.JsonSchema({"type": "string", "pattern": "^(a|b)*a(a|b){8}$"})
    with pytest.raises(LimitError):
        sg.compile(schema, VOCABULARY, cache=None, limits=Limits(compile_seconds=1e-9))
    assert sg.compile(schema, VOCABULARY, cache=None).start().allows(ord('"'))
