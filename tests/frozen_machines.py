"""Frozen machines of small vocabularies, and walks over them that go wrong now and then."""

from __future__ import annotations

import functools

import numpy as np

import structgen as sg
from structgen.frozen_machine import FrozenMachine
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.grammar.parser_state import ParserState
from structgen.vocabulary import Vocabulary

PIECES = ["na", "name", '":', '{"', '", "', '"}', "ab", "aab", "tru", "true", "12", "  ", "é", "\\u00"]
VOCABULARY = Vocabulary.from_bytes(
    [*(bytes([b]) for b in range(256)), *map(str.encode, PIECES), b"", b""], stop_ids=[271, 270]
)
TYPES = [
    sg.JsonSchema(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 5},
                "kind": {"enum": ["ab", "aab", None]},
                "many": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 3},
            },
            "required": ["name", "kind"],
            "additionalProperties": False,
        },
        whitespace="spaced",
    ),
    sg.Choice(["a", "ab", "aab!"]),
    sg.Regex("(?:[a-z]{1,4} ){1,3}!"),
    sg.JsonSchema({"type": "string"}, whitespace="compact"),
    bool,
]


@functools.cache
def machines() -> tuple[FrozenMachine, ...]:
    """Return a machine for each type."""
    frozen = []
    for output_type in TYPES:
        automaton = sg.compile(output_type, VOCABULARY, cache=None)
        automaton.freeze()
        assert automaton.frozen_machine is not None
        frozen.append(automaton.frozen_machine)
    return tuple(frozen)


def start(machine: FrozenMachine) -> ParserState:
    """Return a walk over a machine."""
    return FrozenAutomaton(machine, VOCABULARY).start()


def legal_tokens(mask: np.ndarray) -> list[int]:
    """Return the ids whose bits are set."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
