"""Nesting: whatever a model opens, what is written can be read."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import structgen as sg
from structgen.generator_pool import limits_of
from structgen.output_type import lower

TOKENS = [*(bytes([byte]) for byte in range(256)), b"[[", b"[[[[", b'{"', b'": ', b"]]", b'{"children": [', b""]
VOCABULARY = sg.Vocabulary.from_bytes(TOKENS, stop_ids=[len(TOKENS) - 1])


class Tree(BaseModel):
    children: list[Tree]


class Chain(BaseModel):
    next: dict[str, list[Chain]]


@pytest.mark.parametrize("declared", [Any, list[Any], Tree, Chain, sg.JsonSchema({"type": ["array", "object"]})])
def test_a_model_that_opens_brackets_for_ever_is_read(declared: Any) -> None:
    """The text is led to its end before it is nested deeper than its reader goes."""
    declaration = lower(declared)
    state = sg.compile(declared, VOCABULARY, limits=limits_of(declaration), cache=None).start()
    for _ in range(900):
        legal = [i for i in range(len(TOKENS) - 1) if state.allows(i)]
        # Opening is worth most; keys are kept short.
        state.advance(max(legal, key=lambda i: (TOKENS[i].count(b"[") + TOKENS[i].count(b"{"), TOKENS[i] == b'"')))
    while not state.is_accepting:
        within = state.mask_within(state.tokens_to_end_bound)
        state.advance(next(i for i in range(len(TOKENS) - 1) if int(within[i >> 5]) >> (i & 31) & 1))
    text = state.text_bytes.decode()

    assert text.count("[") + text.count("{") > 60
    declaration.parse(text)
