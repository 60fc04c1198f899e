"""Whoever interrupts a mask, as Ctrl-C does, and asks again gets the masks that he would have got."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

import structgen as sg
from structgen.grammar import build
from structgen.grammar.cache import CompileCache
from structgen.grammar.lr import LrTable
from structgen.grammar.normalise import Builder
from structgen.grammar.rows import RowBuilder
from structgen.grammar.stacks import StackSets
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.kernels.lane_walk import LaneWalker
from structgen.output_type import declare
from structgen.vocabulary import Vocabulary

PIECES = [b'":', b'": ', b'", "', b'{"', b"}, {", b": [", b" 1", b"20", b'"}', b'", "b": ', b"], "]
VOCABULARY = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), *PIECES, b"<stop>"], stop_ids=[267])
PARTS = CompileCache().scans_of(VOCABULARY)
SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "minLength": 2},
        "b": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "c": {"anyOf": [{"$ref": "#"}, {"enum": [1, "x", [2]]}]},
    },
    "required": ["a"],
}
TEXTS = ['{"a": "xyz", "b": [1, 20, 3], "c": {"a": "xy", "zz": null}}', '{"a": "xy", "b": [], "c": [2]}']
NUMBERING: tuple[Callable[..., Any], ...] = (
    LrTable.intern,
    LrTable.productions_of,
    Builder.new_nonterminal,
    Builder._numbered,
    Builder.nonterminal_of_rule,
    StackSets.intern_frame,
    StackSets._intern_entries,
    StackSets._shift,
    RowBuilder._lane_of,
    RowBuilder._gate_of,
    RowBuilder._reader_of,
    RowBuilder._add_sources,
    LaneWalker._add_reader,
    LaneWalker.add_lane,
    LaneWalker.add_gate,
    LaneWalker._place_lanes,
    LaneWalker._first_bytes_of,
    LaneWalker._use,
)
"""What gives numbers to what is met: state that all later masks hang on."""


class Interruption:
    """A trace function that raises KeyboardInterrupt the second time that one line begins, and stays quiet then."""

    def __init__(self, code: CodeType, line: int) -> None:
        self.code = code
        self.line = line
        self.num_seen = 0

    def __call__(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self.look if frame.f_code is self.code else None

    def look(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line" and frame.f_lineno == self.line:
            self.num_seen += 1
            if self.num_seen == 2:
                raise KeyboardInterrupt
        return self.look


def made() -> TokenAutomaton:
    """Return an automaton that has met nothing."""
    grammar = declare(sg.JsonSchema(SCHEMA)).source.grammar
    return build.build_automaton(grammar, *PARTS, limits=sg.Limits(), digest="")


def said(automaton: TokenAutomaton) -> list[bytes]:
    """Return all masks along the texts."""
    found = []
    for text in TEXTS:
        state = automaton.start()
        for token in VOCABULARY.encode(text.encode()):
            found.append(state.mask().tobytes())
            state.advance(token)
        found.append(state.mask().tobytes())
    return found


def lines() -> Iterator[Any]:
    """Yield all lines of what gives numbers."""
    for function in NUMBERING:
        code = inspect.unwrap(function).__code__
        for line in sorted({line for *_, line in code.co_lines() if line and line > code.co_firstlineno}):
            yield pytest.param(code, line, id=f"{function.__qualname__}:{line - code.co_firstlineno}")


@pytest.fixture(scope="module")
def expected() -> list[bytes]:
    """What is said if nobody interrupts."""
    return said(made())


@pytest.mark.parametrize(("code", "line"), list(lines()))
def test_an_interrupted_mask_is_made_again(code: CodeType, line: int, expected: list[bytes]) -> None:
    """At whatever line of what gives numbers somebody interrupts: asked again, all masks are as they should be."""
    automaton = made()
    before, interruption = sys.gettrace(), Interruption(code, line)
    sys.settrace(interruption)
    try:
        said(automaton)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    assert said(automaton) == expected
