"""What tests of device mode share: small frozen automata, a tiny model in float64, and both ways to a text."""

from __future__ import annotations

import dataclasses
import random
from functools import cache, partial
from typing import Any

import structgen as sg
from structgen.config import PenaltyScope, Sampling
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_drafts import DeviceDrafts, forced_runs
from structgen.decode.device_loop import RowFollower, SessionRows
from structgen.decode.device_session import DeviceSession
from structgen.decode.device_step import StepShape
from structgen.decode.loop import Decoding, Request
from structgen.decode.transformers_target import TransformersBatch
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.kernels.arena import Arena
from tiny_tokenizer import byte_tokenizer, tiny_llama

MOST_POSITIONS = 160
_LEAVES: list[Any] = [
    {"type": "boolean"},
    {"type": "null"},
    {"const": 'a "quoted" é'},
    {"enum": ["red", "green", 3, None]},
    {"type": "integer", "minimum": -20, "maximum": 105},
    {"type": "integer", "minimum": 0},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "string", "maxLength": 5},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$", "maxLength": 8},
    {"type": "string"},
    {"type": "string", "format": "date"},
]
SAMPLINGS = [
    Sampling.greedy(),
    Sampling(),
    Sampling(temperature=0.7, top_k=5),
    Sampling(top_p=0.9),
    Sampling(temperature=1.3, min_p=0.2),
    Sampling(repetition_penalty=1.3, frequency_penalty=0.5),
    Sampling(presence_penalty=1.0, penalty_scope=PenaltyScope.EVERYWHERE, top_k=40),
    Sampling(logit_bias={34: 3.0, 262: -30.0}),
]
EVERYTHING = StepShape(num_rows=8, num_positions=MOST_POSITIONS, has_truncation=True, has_penalties=True, has_bias=True)
DRAFTED = StepShape(num_rows=8, num_positions=MOST_POSITIONS, num_drafted=3, has_truncation=True, has_bias=True)


def random_schema(seed: int) -> sg.JsonSchema:
    """Return a schema of closed objects, bounded arrays and unions, whose automaton has an end."""
    rng = random.Random(seed)

    def make(depth: int) -> Any:
        kind = rng.choice(["leaf", "leaf", "array", "object", "object", "any"]) if depth else "leaf"
        if kind == "array":
            return {"type": "array", "items": make(depth - 1), "minItems": rng.randrange(2), "maxItems": 2}
        if kind == "any":
            return {"anyOf": [make(depth - 1), make(0)]}
        if kind == "object":
            names = rng.sample(["name", "true", "é", "x", 'a"b'], rng.randint(1, 3))
            return {
                "type": "object",
                "properties": {name: make(depth - 1) for name in names},
                "required": [name for name in names if rng.random() < 0.7],
                "additionalProperties": False,
            }
        return rng.choice(_LEAVES)

    return sg.JsonSchema(make(2), whitespace=rng.choice(["compact", "spaced"]))


@cache
def vocabulary() -> sg.Vocabulary:
    """Return that of the tiny tokenizer."""
    return sg.Vocabulary.from_tokenizer(byte_tokenizer(), stop_ids=[264])


@cache
def model() -> CausalModel:
    """Return the tiny model."""
    return CausalModel(tiny_llama())


def frozen(output_type: Any) -> TokenAutomaton:
    """Return a frozen automaton."""
    automaton = sg.compile(output_type, vocabulary())
    automaton.freeze()
    return automaton


def new_session(shape: StepShape = EVERYTHING, **options: Any) -> DeviceSession:
    """Return a session with an arena of its own."""
    arena = Arena(
        vocabulary_digest=vocabulary().digest, num_tokens=vocabulary().size, num_private_rows=8 * shape.num_rows
    )
    drafts = DeviceDrafts(arena, num_drafted=shape.num_drafted, device=model().device)
    return DeviceSession(model(), arena, shape, drafts=drafts, **options)


def on_the_host(automaton: TokenAutomaton, request: Request) -> Decoding:
    """Decode to the end in host mode, which measures every draw as a device does."""
    request = dataclasses.replace(request, diagnostics=True)
    decoding = Decoding(TransformersBatch(model()).join(), automaton.start(), vocabulary(), request)
    decoding.run()
    return decoding


def walked(automaton: TokenAutomaton) -> FrozenAutomaton:
    """Return what walks of a frozen automaton go over."""
    found = automaton.start().automaton
    assert isinstance(found, FrozenAutomaton)
    return found


def run_to_the_end(session: DeviceSession, followers: list[RowFollower]) -> None:
    """Decode all rows, as many at a time as there is room for, none of which fails."""
    under_way = SessionRows(session, most_rows=session.shape.num_rows, release=lambda _: None)
    num_begun = num_over = 0
    while num_over < len(followers):
        joining = followers[num_begun : num_begun + under_way.num_free]
        if joining:
            under_way.seat(joining)
        num_begun += len(joining)
        for _, error in under_way.step():
            assert error is None
            num_over += 1


def on_the_device(session: DeviceSession, rows: list[tuple[TokenAutomaton, Request]]) -> list[RowFollower]:
    """Decode rows together to the end, by the reference operations on the CPU; whoever ends gives its row on."""
    followers = [RowFollower(walked(automaton), request) for automaton, request in rows]
    if session.drafts is not None:
        for automaton, _ in rows:
            runs = partial(forced_runs, walked(automaton), session.drafts.num_drafted)
            session.drafts.add(walked(automaton).machine, runs)
    run_to_the_end(session, followers)
    return followers
