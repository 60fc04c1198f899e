"""What a draft meets and the text does not: errors of the state or of the target at tokens that are never drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from drafts import Guess, Session, setup
from explicit import A9, C3, QUOTE, STRING, VOCABULARY, A, B, State, random_logits
from explicit import Model as Explicit
from structgen.config import Sampling
from structgen.decode.loop import Decoding, Request
from structgen.decode.pass_costs import PassCosts
from structgen.decode.request_control import RequestControl
from structgen.decode.speculation_control import RouteControl
from structgen.drafter import DraftRequest, DraftView
from structgen.errors import LimitError, NoLegalTokenError


class Limited(State):
    """Reaches a limit where é begins: in its masks, or in moving there."""

    fails_to_advance = False

    def advance(self, token_id: int) -> None:
        if token_id == C3 and self.fails_to_advance:
            raise LimitError("too many configurations", "states", 1)
        super().advance(token_id)

    def mask_within(self, budget: int) -> np.ndarray:
        if self.state == "half":
            raise LimitError("too many configurations", "states", 1)
        return super().mask_within(budget)


class LimitedMove(Limited):
    """The same, already in moving there."""

    fails_to_advance = True


def ascii_logits(tokens: list[int]) -> torch.Tensor:
    """Hardly ever write é."""
    row = random_logits(tokens).double()
    row[C3] = -40.0
    return row


def decode(state: State, speculation: Any, seed: int, logits: Any, sampling: Sampling) -> Decoding:
    """Decode to the end."""
    request = Request(prompt_token_ids=(A, B), max_tokens=12, seed=seed, sampling=sampling)
    decoding = Decoding(Explicit(logits), state, VOCABULARY, request, speculation)
    decoding.run()
    return decoding


@pytest.mark.parametrize("kind", [Limited, LimitedMove])
def test_a_limit_that_only_a_draft_reaches_changes_no_text(kind: type[State]) -> None:
    """The draft ends before it, and the state stands where it stood; every token of the text stays legal."""
    drafters = [Guess(lambda view: [QUOTE, A, C3], "Far"), Guess(lambda view: [C3, A9, A])]
    for seed in range(10):
        plain = decode(kind(STRING), None, seed, ascii_logits, Sampling())
        run = decode(kind(STRING), setup(drafters), seed, ascii_logits, Sampling())
        assert run.token_ids == plain.token_ids
        assert run.text == plain.text


@pytest.mark.parametrize("kind", [Limited, LimitedMove])
def test_a_limit_that_only_a_sibling_reaches_changes_no_text(kind: type[State]) -> None:
    """It is left out, as what a chain reaches is; the other siblings are read all the same."""

    class Forks(Session):
        def others(self, view: DraftView) -> list[int]:
            return [C3, A]

    @dataclass(frozen=True)
    class Forking(Guess):
        def start(self, request: DraftRequest) -> Session:
            return Forks(self.guess)

    accepted = 0
    for seed in range(10):
        plain = decode(kind(STRING), None, seed, ascii_logits, Sampling())
        run = decode(kind(STRING), setup([Forking(lambda view: [B])], branches=3), seed, ascii_logits, Sampling())
        assert run.token_ids == plain.token_ids
        assert run.text == plain.text
        accepted += run.trace.accepted["Guess, others"]
    assert accepted > 0


def test_a_kind_that_cannot_be_looked_up_is_the_fault_of_its_drafter() -> None:
    """It is not asked again, and the text is the same: a token, and a sibling, of such a kind get into no draft."""

    class Odd(Session):
        kind: Any = None

        def propose(self, view: DraftView) -> list[int]:
            self.kind = ["a", "list"] if view.token_ids[2:] and not branches else None
            return [B, A]

        def others(self, view: DraftView) -> list[int]:
            self.kind = {}
            return [A]

    @dataclass(frozen=True)
    class Drafts(Guess):
        def start(self, request: DraftRequest) -> Session:
            return Odd(self.guess)

    plain = decode(State(STRING), None, 3, ascii_logits, Sampling())
    for branches in (3, 0):
        route = RouteControl("route", ["Guess"], PassCosts({1: 1.0, 2: 1.01, 16: 1.02}), max_draft_tokens=8)
        control = RequestControl(route, draws_by_itself=False, most_branches=branches)
        speculation = replace(setup([Drafts(lambda view: [])]), control=control)
        run = decode(State(STRING), speculation, 3, ascii_logits, Sampling())
        assert run.token_ids == plain.token_ids


@pytest.mark.parametrize("kind", [Limited, LimitedMove])
def test_a_limit_that_the_text_reaches_is_raised(kind: type[State]) -> None:
    """With a draft as without one."""

    def always(tokens: list[int]) -> torch.Tensor:
        row = torch.zeros(16, dtype=torch.float64)
        row[C3] = 60.0
        return row

    for speculation in (None, setup([Guess(lambda view: [C3, A9, A])])):
        with pytest.raises(LimitError, match="too many configurations"):
            decode(kind(STRING), speculation, 1, always, Sampling())


def test_a_draft_into_a_place_without_probabilities_is_only_an_error_where_the_text_goes_there() -> None:
    """Ratios look at the law after each drafted token; where there is none the text may still go another way."""

    def logits(tokens: list[int]) -> torch.Tensor:
        row = torch.zeros(16, dtype=torch.float64)
        if tokens[-1] == C3:
            row[:] = -torch.inf
        else:
            row[C3] = -1.0
        return row

    def guess(view: Any) -> list[torch.Tensor]:
        row = torch.zeros(16)
        row[C3] = 4.0
        return [row, torch.zeros(16)]

    def num_errors(speculation: Any) -> tuple[int, int]:
        errors = drafted = 0
        for seed in range(300):
            try:
                decoding = decode(State(STRING), speculation, seed, logits, Sampling())
                drafted += decoding.trace.drafted["Guess"]
            except NoLegalTokenError:
                errors += 1
        return errors, drafted

    plain, _ = num_errors(None)
    ratio, drafted = num_errors(setup([Guess(guess)], mode="exact_ratio", max_draft_tokens=2))
    assert drafted > 100
    # Seeds are fixed, so this is the same each time; 40 is four standard deviations of the difference.
    assert 20 < plain < 100
    assert abs(ratio - plain) < 40
