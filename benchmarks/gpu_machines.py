"""Frozen machines for benchmarks/gpu.py: real ones, made beforehand and read from files, and made-up ones of any size.

    python benchmarks/gpu_machines.py TOKENIZER_FOLDER MACHINES

writes the machines of a few closed schemas for a tokenizer, with the forced run of each state, and the bytes of the
tokens. It needs all of structgen; whoever reads them needs numpy, and of structgen nothing that reads declarations.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.decode.device_loop import MOST_DRAFTED
from structgen.frozen_machine import MAX_LISTED_TOKENS, FrozenMachine
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.vocabulary import Vocabulary

NUM_DRAFTED = MOST_DRAFTED
_TEXT, _DATE, _COUNT = {"type": "string"}, {"type": "string", "format": "date"}, {"type": "integer", "minimum": 0}
_SCHEMAS: dict[str, dict[str, Any]] = {
    "person": {"name": _TEXT, "age": _COUNT, "email": _TEXT, "born": _DATE},
    "invoice": {
        "number": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{6}$"},
        "issued": _DATE,
        "currency": {"enum": ["EUR", "USD", "GBP"]},
        "is_paid": {"type": "boolean"},
        "net": {"type": "number", "minimum": 0},
        "items": {"type": "array", "items": _TEXT, "maxItems": 8},
    },
    "event": {"kind": {"enum": ["created", "changed", "deleted"]}, "at": _DATE, "by": _TEXT, "note": _TEXT},
}
_NUM_STATES = 372
_NUM_CLASSES = 460
# Of the states that are no text every fourth begins a run of tokens without a choice.
_RUN = 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """A machine that is walked, and what is drafted in its states.

    Attributes:
        name: where it comes from.
        automaton: the machine, with the vocabulary.
        drafts: (S, NUM_DRAFTED) int32, -1 from where there is no more.
    """

    name: str
    automaton: FrozenAutomaton
    drafts: npt.NDArray[np.int32]

    @property
    def machine(self) -> FrozenMachine:
        """The tables."""
        return self.automaton.machine


def made_up(num_tokens: int, *, seed: int = 0) -> Prepared:
    """Return a machine of the size of a twelve-field schema whose texts never end, so that every step is a full one.

    One class of tokens is most of the vocabulary, as inside strings; other states allow a few tokens, and a part of
    them only one.
    """
    rng = np.random.default_rng(seed)
    num_classes = min(_NUM_CLASSES, num_tokens // 10)
    token_class = np.full(num_tokens, 2, np.uint16)
    special = rng.choice(num_tokens, num_tokens // 10, replace=False)
    token_class[special] = rng.integers(num_classes // 3, num_classes, len(special))
    token_class[special[: num_classes - 3]] = np.arange(3, num_classes)
    next_state = np.full((_NUM_STATES + 1, num_classes), -1, np.int32)
    drafts = np.full((_NUM_STATES + 1, NUM_DRAFTED), -1, np.int32)
    alone = _classes_of_one(token_class, num_classes)
    for state in range(_NUM_STATES):
        if state % 10 == 0:  # text: nearly everything
            legal = np.concatenate([[2], rng.choice(np.arange(3, num_classes), num_classes // 2, replace=False)])
        elif state % (2 * _RUN) >= _RUN and len(alone):
            legal = rng.choice(alone, 1)
        else:
            legal = rng.choice(np.arange(3, num_classes), rng.integers(2, 20), replace=False)
        next_state[state, legal] = rng.integers(0, _NUM_STATES, len(legal))
        if len(legal) == 1:
            next_state[state, legal] = (state + 1) % _NUM_STATES
    first_token = np.zeros(num_classes, np.int32)
    first_token[token_class[::-1]] = np.arange(num_tokens - 1, -1, -1)
    for state in range(_NUM_STATES):
        here = state
        for place in range(NUM_DRAFTED):
            legal = np.flatnonzero(next_state[here] >= 0)
            if len(legal) != 1 or legal[0] not in alone:
                break
            drafts[state, place] = first_token[legal[0]]
            here = int(next_state[here, legal[0]])
    return Prepared(f"made up, {num_tokens} tokens", _automaton(token_class, next_state), drafts)


def everything(num_tokens: int) -> Prepared:
    """Return the machine that allows every token for ever: free text, drawn by the same kernels."""
    token_class = np.full(num_tokens, 2, np.uint16)
    next_state = np.full((2, 3), -1, np.int32)
    next_state[0, 2] = 0
    return Prepared("everything", _automaton(token_class, next_state), np.full((2, NUM_DRAFTED), -1, np.int32))


def write(folder: Path, prepared: Sequence[Prepared]) -> None:
    """Write machines of one vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in prepared:
        one.machine.save(folder / f"{one.name}.machine")
        np.save(folder / f"{one.name}.drafts.npy", one.drafts)
    vocabulary = prepared[0].automaton.vocabulary
    tokens = vocabulary.table.tokens
    np.savez(
        folder / "vocabulary.npz",
        text=np.frombuffer(b"".join(tokens), np.uint8),
        end=np.cumsum([len(token) for token in tokens]),
        special_ids=sorted(vocabulary.table.special_ids),
        stop_ids=vocabulary.stop_ids,
    )


def read(folder: Path) -> list[Prepared]:
    """Read what was prepared, none if there is no such folder."""
    paths = sorted(folder.glob("*.machine"))
    if not paths:
        return []
    stored = np.load(folder / "vocabulary.npz")
    text, ends = stored["text"].tobytes(), stored["end"].tolist()
    tokens = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    special_ids, stop_ids = (stored[name].astype(int).tolist() for name in ("special_ids", "stop_ids"))
    vocabulary = Vocabulary.from_bytes(tokens, special_ids=special_ids, stop_ids=stop_ids)
    return [
        Prepared(
            path.stem, FrozenAutomaton(FrozenMachine.load(path), vocabulary), np.load(path.with_suffix(".drafts.npy"))
        )
        for path in paths
    ]


@functools.cache
def words(num_tokens: int) -> Vocabulary:
    """Return a vocabulary of different words of five letters."""
    letters = np.arange(num_tokens)[:, None] // 26 ** np.arange(5) % 26 + ord("a")
    return Vocabulary.from_bytes([word.tobytes() for word in letters.astype(np.uint8)])


def _classes_of_one(token_class: npt.NDArray[np.uint16], num_classes: int) -> npt.NDArray[np.int64]:
    sizes = np.bincount(token_class, minlength=num_classes)
    return np.flatnonzero(sizes == 1)


def _automaton(token_class: npt.NDArray[np.uint16], next_state: npt.NDArray[np.int32]) -> FrozenAutomaton:
    """Return a machine in which a step is never the last one, over made-up words."""
    vocabulary = words(len(token_class))
    num_states = len(next_state)
    legal, mask_row = np.unique(next_state >= 0, axis=0, return_inverse=True)
    bits = legal[:, token_class].astype(np.uint8)
    num_words = (len(token_class) + 31) // 32
    padded = np.zeros((len(bits), 32 * num_words), np.uint8)
    padded[:, : bits.shape[1]] = bits
    lists = [np.flatnonzero(row) for row in bits]
    lists = [one if len(one) <= MAX_LISTED_TOKENS else one[:0] for one in lists]
    cost = np.ones(num_states, np.int32)
    cost[-1] = 0
    machine = FrozenMachine(
        start=0,
        vocabulary_digest=vocabulary.digest,
        token_class=token_class,
        next_state=next_state,
        mask_row=mask_row.reshape(-1).astype(np.int32),
        mask_rows=np.packbits(padded, axis=1, bitorder="little").view("<i4").astype(np.int32),
        num_legal=bits.sum(axis=1, dtype=np.int32),
        list_start=np.cumsum([0, *map(len, lists)], dtype=np.int64),
        list_ids=np.concatenate(lists).astype(np.int32),
        accepting=np.zeros(num_states, np.bool_),
        cost=cost,
        cost_after=np.ones(num_states, np.int32),
        free_row=np.full(num_states, -1, np.int32),
        byte_class=np.zeros(256, np.int32),
        byte_next=np.full((num_states, 1), -1, np.int32),
        place=np.zeros(num_states, np.int32),
        place_start=np.array([0, 7], np.int64),
        place_text=np.frombuffer(b"made up", np.uint8),
        stop_ids=np.empty(0, np.int32),
    )
    return FrozenAutomaton(machine, vocabulary)


def main() -> None:
    """Prepare the machines of a tokenizer."""
    from transformers import AutoTokenizer

    import structgen as sg
    from structgen.decode.device_drafts import forced_runs

    if len(sys.argv) != 3:
        sys.exit(__doc__)
    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True))
    prepared = []
    for name, properties in _SCHEMAS.items():
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        automaton = sg.compile(sg.JsonSchema(schema, whitespace="spaced"), vocabulary)
        automaton.freeze()
        machine = automaton.frozen_machine
        if machine is None:
            continue  # freeze would have raised
        frozen = FrozenAutomaton(machine, vocabulary)
        prepared.append(Prepared(name, frozen, forced_runs(frozen, NUM_DRAFTED)))
        print(f"{name}: {machine!r}")
    write(Path(sys.argv[2]), prepared)


if __name__ == "__main__":
    main()
