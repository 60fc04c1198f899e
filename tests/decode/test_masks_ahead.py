"""Masks made ahead of time: the text is the same, the state stands where it stood, and rows are there when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import structgen as sg
from device_rows import SAMPLINGS, model, random_schema, vocabulary
from drafts import setup
from explicit import A9, C3, QUOTE, STRING, VOCABULARY, A, State
from structgen.decode import rounds
from structgen.decode.causal_model import CausalModel
from structgen.decode.draft import Draft, Masks
from structgen.decode.drafters import ForcedRun
from structgen.decode.loop import Decoding, Request
from structgen.decode.masks_ahead import MasksAhead
from structgen.decode.pass_watch import DonePass
from structgen.decode.transformers_target import TransformersBatch
from structgen.drafter import DraftMemory
from structgen.errors import LimitError
from tiny_tokenizer import tiny_llama

TREE: Any = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}, "below": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["on", "below"],
            "additionalProperties": False,
        }
    },
}


class Slow(DonePass):
    """A pass that is not over before somebody waits for it."""

    def is_done(self) -> bool:
        return False


def decode(causal: CausalModel, automaton: Any, request: Request, memory: DraftMemory | None = None) -> Decoding:
    """Decode to the end, with forced runs drafted."""
    target = TransformersBatch(causal).join()
    decoding = Decoding(target, automaton.start(), vocabulary(), request, setup([ForcedRun()], memory=memory))
    decoding.run()
    return decoding


@pytest.fixture
def slow_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every pass leave the host as much time as it likes."""
    monkeypatch.setattr(rounds, "watch", lambda _: Slow())
    monkeypatch.setattr(MasksAhead, "add_pass", lambda self, _: self._pass_s.append(1e9))


@pytest.mark.usefixtures("slow_passes")
@pytest.mark.parametrize("seed", range(8))
def test_texts_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With options of every kind, near the end of budgets: nobody looks where the text goes by looking ahead."""
    looks: list[int] = []
    look = Draft.look_ahead
    monkeypatch.setattr(Draft, "look_ahead", lambda self, *where: looks.append(1) or look(self, *where))
    automaton = sg.compile(sg.JsonSchema(TREE) if seed % 2 else random_schema(seed), vocabulary())
    request = Request(prompt_token_ids=(5, 6), max_tokens=60, seed=seed, sampling=SAMPLINGS[seed % len(SAMPLINGS)])
    plain = decode(model(), automaton, request)
    assert not looks
    ahead = decode(CausalModel(tiny_llama(), device_types=("cpu",)), automaton, request)
    assert ahead.token_ids == plain.token_ids
    assert ahead.trace.drafts == plain.trace.drafts
    assert looks or ahead.trace.num_target_passes < 5


@pytest.mark.usefixtures("slow_passes")
def test_rows_are_there_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a recursive type, after other texts of it: most of its new rows are made before the round that needs them."""
    causal, memory = CausalModel(tiny_llama(), device_types=("cpu",)), DraftMemory()
    known, new = (sg.compile(sg.JsonSchema(TREE), vocabulary(), cache=None) for _ in range(2))
    for seed in range(6):
        decode(causal, known, Request(prompt_token_ids=(5, 6), max_tokens=200, seed=seed), memory)
    missing, make = [0], Decoding.make_masks

    def counted(self: Decoding) -> None:
        before = new.num_rows
        make(self)
        missing[0] += new.num_rows - before

    monkeypatch.setattr(Decoding, "make_masks", counted)
    for seed in range(6, 9):
        decode(causal, new, Request(prompt_token_ids=(5, 6), max_tokens=200, seed=seed), memory)
    assert new.num_rows > 20
    assert missing[0] < new.num_rows / 3


def test_nothing_is_made_once_the_pass_is_over() -> None:
    """Nor where the longest mask would not be finished before: time is looked at before each token."""
    draft = Draft(State(STRING), Masks(VOCABULARY), num_before=0, budget=9, asks_free_text=False)
    ahead = MasksAhead(setup([]).memory, QUOTE)
    for token_id in (A, A, QUOTE, QUOTE):
        ahead.observe(token_id)
    assert list(ahead.make(draft, lambda: False, started=0.0)) == []  # no pass was measured
    ahead.add_pass(1e12)
    assert list(ahead.make(draft, lambda: True, started=0.0)) == []
    assert len(list(ahead.make(draft, lambda: False, started=0.0))) > 0
    ahead._look_s = 1e13
    assert list(ahead.make(draft, lambda: False, started=0.0)) == []


def test_a_look_leaves_everything_as_it_was() -> None:
    """Over legal tokens, illegal ones, forced runs, and limits of the grammar; after the budget too."""

    class Limited(State):
        def mask_within(self, budget: int) -> np.ndarray:
            if self.state == "half":
                raise LimitError("too many configurations", "states", 1)
            return super().mask_within(budget)

    never: Callable[[], bool] = lambda: False  # noqa: E731
    for state, token_id, num_made in ((State(STRING), QUOTE, 1), (State(STRING), A9, 0), (Limited(STRING), QUOTE, 1)):
        draft = Draft(state, Masks(VOCABULARY), num_before=0, budget=9, asks_free_text=True)
        before = state.state, list(state.history), len(draft.nodes), draft.cursor
        made = draft.look_ahead(0, token_id, never)
        assert (state.state, list(state.history), len(draft.nodes), draft.cursor) == before
        assert len(made) == num_made
    inside = State(STRING)
    inside.advance(QUOTE)
    draft = Draft(inside, Masks(VOCABULARY), num_before=1, budget=9, asks_free_text=True)
    made = draft.look_ahead(0, C3, never)  # é is two tokens, the second is forced
    assert [legal.mask.tolist() for legal in made] == [[1 << A9], inside.mask_within(7).tolist()]
    assert (
        Draft(Limited(STRING, "body"), Masks(VOCABULARY), num_before=1, budget=9, asks_free_text=False).look_ahead(
            0, C3, never
        )
        == []
    )
