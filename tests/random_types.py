"""Random output types from a seed, and a random model that writes texts of them through the real decoding loop."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import ipaddress
import pathlib
import random
import uuid
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, Union

import numpy as np
import torch
from pydantic import ConfigDict, Field, HttpUrl, create_model
from typing_extensions import TypedDict

import zoo_types as z
from structgen.config import Limits
from structgen.decode.loop import Decoding, Request
from structgen.decode.target import Tokens
from structgen.grammar.build import build_automaton
from structgen.grammar.ir import Grammar
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.vocabulary import Vocabulary

_LONGER = ['": ', '", "', '{"', '"}', '[{"', "true", "false", "null", "\\u00", '\\"', "00", "-0", "T1", "]}", "}}", "é"]
TOKENS = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in _LONGER), "😀".encode()[:3], b""]
VOCABULARY = Vocabulary.from_bytes(TOKENS, stop_ids=[len(TOKENS) - 1])

_LEAVES: list[Any] = [
    int,
    float,
    bool,
    None,
    Decimal,
    bytes,
    datetime.date,
    datetime.time,
    datetime.datetime,
    datetime.timedelta,
    uuid.UUID,
    pathlib.Path,
    ipaddress.IPv4Address,
    HttpUrl,
    z.Colour,
    z.Level,
    z.Odd,
    Annotated[str, Field(max_length=4)],
    Annotated[str, Field(pattern=r"^[A-Z]{2}\d+$", max_length=6)],
    Annotated[Decimal, Field(max_digits=5, decimal_places=2)],
    Annotated[float, Field(ge=-1, lt=1)],
    Annotated[datetime.date, Field(ge=datetime.date(2020, 1, 1))],
]
_KEYS: list[Any] = [str, int, z.Level, z.Odd, Literal["b", "a"], uuid.UUID, datetime.date, bool, Decimal]


def random_type(seed: int) -> Any:
    """Return a type of classes, containers, unions and bounds; the same for the same seed."""
    return _Maker(random.Random(seed)).compound(3)


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def any(self, depth: int) -> Any:
        return self.leaf() if depth == 0 or self.rng.random() < 0.4 else self.compound(depth)

    def leaf(self) -> Any:
        rng = self.rng
        match rng.randrange(5):
            case 0:
                low = rng.randint(-50, 50)
                return Annotated[int, Field(ge=low, le=low + rng.randint(0, 200))]
            case 1:
                return Literal[tuple(rng.sample(["a", 'b"', "ü", 1, 2, True, None], rng.randint(1, 4)))]
            case 2:
                members = {f"M{i}": value for i, value in enumerate(rng.sample(["x", "y z", 3, 4.5, None], 3))}
                return enum.Enum("Random", members)  # type: ignore[misc]
            case _:
                return rng.choice(_LEAVES)

    def compound(self, depth: int) -> Any:
        classes = [self.model, self.model, self.dataclass, self.dataclass, self.typed_dict, self.named_tuple, self.box]
        make = self.rng.choice(
            [self.array, self.tuple, self.set, self.dict, self.union, self.tagged, *classes],
        )
        return make(depth - 1)

    def bounded(self, container: Any, *, most: int = 3) -> Any:
        low = self.rng.choice([0, 0, 1, most])
        bounds = Field(min_length=low, max_length=self.rng.choice([None, low + 1, low + 2]))
        return self.rng.choice([container, Annotated[container, bounds]])

    def array(self, depth: int) -> Any:
        return self.bounded(list[self.any(depth)])  # type: ignore[misc]

    def tuple(self, depth: int) -> Any:
        items = tuple(self.any(depth) for _ in range(self.rng.randint(1, 3)))
        return tuple[items] if self.rng.random() < 0.7 else tuple[(items[0], ...)]  # type: ignore[valid-type]

    def set(self, depth: int) -> Any:
        kind = self.rng.choice([set, frozenset])
        return self.bounded(kind[self.leaf()], most=1)

    def dict(self, depth: int) -> Any:
        return self.bounded(dict[self.rng.choice(_KEYS), self.any(depth)], most=1)  # type: ignore[misc]

    def union(self, depth: int) -> Any:
        parts = tuple(self.any(depth) for _ in range(self.rng.randint(2, 3)))
        return Union[parts] if self.rng.random() < 0.6 else Optional[parts[0]]  # noqa: UP007, UP045 - made at run time

    def tagged(self, depth: int) -> Any:
        alias = self.rng.choice([None, "type"])
        parts = [
            create_model(f"Tagged{i}", tag=(Literal[f"t{i}"], Field(alias=alias)), field=(self.any(depth), ...))
            for i in range(2)
        ]
        return Annotated[Union[tuple(parts)], Field(discriminator="tag")]  # noqa: UP007 - made at run time

    def maybe(self, annotation: Any) -> Any:
        return Optional[annotation]  # noqa: UP045 - made at run time

    def fields(self, depth: int) -> list[tuple[str, Any]]:
        return [(f"field_{i}", self.any(depth)) for i in range(self.rng.randint(1, 4))]

    def model(self, depth: int) -> Any:
        fields: dict[str, Any] = {}
        for name, annotation in self.fields(depth):
            default = self.rng.choice([..., None])
            alias = self.rng.choice([None, None, f"{name} é", f'"{name}"', f"\\{name}"])
            fields[name] = (annotation if default is ... else self.maybe(annotation), Field(default, alias=alias))
        config = ConfigDict(extra=self.rng.choice(["ignore", "ignore", "forbid", "allow"]))
        return create_model("RandomModel", __config__=config, **fields)

    def dataclass(self, depth: int) -> Any:
        needed = self.fields(depth)
        names = [f"more_{i}" for i in range(self.rng.randrange(3))]
        more = [(name, self.maybe(self.leaf()), dataclasses.field(default=None)) for name in names]
        return dataclasses.make_dataclass("RandomData", [*needed, *more])

    def typed_dict(self, depth: int) -> Any:
        fields = {
            name: self.rng.choice([annotation, NotRequired[annotation]]) for name, annotation in self.fields(depth)
        }
        return TypedDict("RandomDict", fields)  # type: ignore[operator]

    def named_tuple(self, depth: int) -> Any:
        return NamedTuple("RandomTuple", self.fields(depth))  # type: ignore[misc]

    def box(self, depth: int) -> Any:
        return z.Box[self.any(depth)]  # type: ignore[misc]


class RandomModel:
    """Logits from a seed, with a liking for what closes, so that texts are short."""

    device = torch.device("cpu")
    logits_width = len(TOKENS)
    most_legal_rows = 40
    takes_trees = False
    device_side = None
    num_cached_tokens = 0

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def extend(self, tokens: Tokens) -> torch.Tensor:
        noise = self._rng.normal(scale=1.5, size=(len(tokens.token_ids), len(TOKENS)))
        return torch.from_numpy(noise + liking())

    def head(self, hidden: torch.Tensor, token_ids: Any = None) -> torch.Tensor:
        return hidden if token_ids is None else hidden[:, torch.as_tensor(token_ids)]

    def crop(self, num_tokens: int) -> None:
        assert num_tokens == 0, "nothing is drafted here"


@cache
def liking() -> np.ndarray:
    """Return what is added to logits so that texts end: what closes is liked, bytes of no ASCII are not."""
    liked = np.zeros(len(TOKENS))
    for token_id, token in enumerate(TOKENS):
        liked[token_id] += 2 * token.startswith((b'"', b"}", b"]")) - 1.5 * token.startswith(tuple(TOKENS[128:256]))
    return liked


@cache
def _scans() -> tuple[VocabularyScans, Spelling]:
    return VocabularyScans(VOCABULARY), Spelling(VOCABULARY)


def automaton_of(grammar: Grammar) -> TokenAutomaton:
    """Return the automaton; what lexemes mean for the vocabulary is shared by all."""
    return build_automaton(grammar, *_scans(), limits=Limits(), digest="random types")


def write(automaton: TokenAutomaton, seed: int, *, more_tokens: int = 60) -> str:
    """Return what the random model writes within a budget that ends most texts in the middle."""
    state = automaton.start()
    budget = state.tokens_to_end_bound + more_tokens
    request = Request(prompt_token_ids=(1,), max_tokens=budget, seed=seed)
    decoding = Decoding(RandomModel(seed), state, VOCABULARY, request)
    decoding.run()
    return decoding.text
