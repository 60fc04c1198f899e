"""Hostile models: whatever a model prefers, every result parses and validates, at every budget that is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
import torch
from annotated_types import Len
from pydantic import BaseModel, Field, TypeAdapter

import structgen as sg
from structgen.decode.loop import Decoding, Request
from structgen.decode.target import Tokens
from structgen.output_type import lower

# Every byte, and tokens that cross the borders of JSON's lexemes.
TOKENS = [bytes([byte]) for byte in range(256)] + [
    *(b'{"', b'":', b'": "', b'", "', b'"}', b"}}", b"[[", b"]]", b"\n\n", b"\n  ", b"00", b"123", b"tr", b"true"),
    *("né".encode(), b'\\"', b'":"', b"null", b'"name', b', "', b"       ", b""),
]
STOP = len(TOKENS) - 1
VOCABULARY = sg.Vocabulary.from_bytes(TOKENS, stop_ids=[STOP])
WIDTH = 320  # logits wider than the vocabulary


class Tree(BaseModel):
    value: int
    children: list[Tree]


class Person(BaseModel):
    name: str = Field(min_length=2, max_length=40)
    age: int = Field(ge=0, le=150)
    mood: Literal["good", "né"]
    notes: Annotated[list[str], Len(1, 3)]


class Long(BaseModel):
    essay: str = Field(min_length=300)
    marks: Annotated[list[Literal[1, 2]], Len(60)]
    lines: Annotated[list[Annotated[str, Field(min_length=20)]], Len(5, 9)]


TYPES: dict[str, Any] = {
    "long": Long,
    "person": Person,
    "tree": Tree,
    "numbers": list[float],
    "text": str,
    "map": dict[str, bool | None],
}


class Hostile:
    """A target whose logits a function of the number of tokens read makes; the stop token is its least favourite."""

    device = torch.device("cpu")
    logits_width = WIDTH
    most_legal_rows = 40
    takes_trees = False
    device_side = None

    def __init__(self, make: Callable[[int], torch.Tensor]) -> None:
        self.make = make
        self.num_cached_tokens = 0

    def extend(self, tokens: Tokens) -> torch.Tensor:
        rows = []
        for _ in tokens.token_ids:
            self.num_cached_tokens += 1
            row = self.make(self.num_cached_tokens)
            row[STOP] = -50.0
            row[WIDTH - 1] = 100.0
            rows.append(row)
        return torch.stack(rows)

    def head(self, hidden: torch.Tensor, token_ids: Any = None) -> torch.Tensor:
        return hidden if token_ids is None else hidden[:, torch.as_tensor(token_ids)]

    def crop(self, num_tokens: int) -> None:
        self.num_cached_tokens = num_tokens


def favouring(token: bytes) -> Callable[[int], torch.Tensor]:
    """Return a model that always prefers one token."""

    def make(_: int) -> torch.Tensor:
        row = torch.zeros(WIDTH)
        row[TOKENS.index(token)] = 40.0
        return row

    return make


def noise(position: int) -> torch.Tensor:
    """Return what has nothing to say."""
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(position))


MODELS: dict[str, Callable[[int], torch.Tensor]] = {
    "newline": favouring(b"\n"),
    "newlines": favouring(b"\n\n"),
    "zero": favouring(b"0"),
    "zeros": favouring(b"00"),
    "quote": favouring(b'"'),
    "brackets": favouring(b"[["),
    "half a character": favouring(b"\xc3"),
    "backslash": favouring(b"\\"),
    "noise": noise,
    "uniform": lambda _: torch.zeros(WIDTH),
}


def generate(kind: str, whitespace: str, model: str, max_tokens: int, sampling: sg.Sampling) -> tuple[str, int]:
    """Return (text, number of tokens) of one type by one model."""
    declaration = lower(TYPES[kind], whitespace=whitespace)
    state = sg.compile(TYPES[kind], VOCABULARY, whitespace=whitespace).start()
    request = Request(prompt_token_ids=(65,), max_tokens=max_tokens, seed=3, sampling=sampling)
    decoding = Decoding(Hostile(MODELS[model]), state, VOCABULARY, request)
    decoding.run()
    value = declaration.parse(decoding.text)
    TypeAdapter(TYPES[kind]).validate_python(value)
    return decoding.text, len(decoding.token_ids)


@pytest.mark.parametrize("whitespace", ["spaced", "any"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", TYPES)
def test_every_result_is_valid_at_every_budget(kind: str, model: str, whitespace: str) -> None:
    """From the finishing cost of the start up to 200 tokens, greedy and sampled."""
    least = sg.compile(TYPES[kind], VOCABULARY, whitespace=whitespace).start().tokens_to_end_bound
    for max_tokens in [least, least + 1, least + 3, least + 9, 60, 200]:
        for sampling in [sg.Sampling.greedy(), sg.Sampling(temperature=1.5)]:
            if max_tokens >= least:
                _, num_tokens = generate(kind, whitespace, model, max_tokens, sampling)

                assert num_tokens <= max_tokens


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "text"])
def test_one_token_less_is_refused_with_the_number(kind: str) -> None:
    """The message says how many tokens are needed."""
    least = sg.compile(TYPES[kind], VOCABULARY).start().tokens_to_end_bound

    with pytest.raises(sg.BudgetError, match=str(least)) as caught:
        generate(kind, "spaced", "noise", least - 1, sg.Sampling())

    assert (caught.value.max_tokens, caught.value.needed) == (least - 1, least)


def test_a_bias_on_every_way_out_is_named() -> None:
    """A bias that leaves no legal token is an error that says so, not a sample."""
    bias = {token_id: float("-inf") for token_id in range(len(TOKENS)) if TOKENS[token_id].startswith(b"{")}

    with pytest.raises(sg.NoLegalTokenError, match="bias"):
        generate("person", "spaced", "noise", 200, sg.Sampling(logit_bias=bias))
