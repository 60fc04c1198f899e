"""Rows of a batch in device mode whose options differ, as no public call asks for yet: who shares a session."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from device_rows import SAMPLINGS, frozen, model, on_the_host, random_schema, vocabulary, walked
from structgen.config import Sampling
from structgen.decode.device_batch import DeviceRow, run_device_rows
from structgen.decode.device_loop import DeviceRequest, RowFollower
from structgen.decode.device_pool import DevicePool
from structgen.decode.device_session import DeviceSession
from structgen.decode.device_step import StepShape
from structgen.decode.loop import Request
from structgen.decode.rounds import Rounds
from structgen.decode.target import Target
from structgen.grammar.token_automaton import TokenAutomaton


@dataclass
class TextRow:
    """A row that gives its tokens."""

    asked: DeviceRequest
    num_prompt_tokens: int = 0
    follower: RowFollower = field(init=False)

    def follow(self) -> RowFollower:
        """Begin."""
        self.follower = RowFollower(self.asked.automaton, self.asked.request)
        return self.follower

    def start(self, target: Target) -> Rounds:
        """Go on in host mode."""
        raise AssertionError("no machine here is a part")

    def result(self) -> list[int]:
        """Return the text."""
        return self.follower.token_ids


def run(asked: list[tuple[TokenAutomaton, Request, int]], *, max_rows: int) -> list[Any]:
    """Return what a batch gives, row by row."""
    pool = DevicePool(model(), vocabulary(), device_types=("cpu",))
    rows: dict[int, DeviceRow[list[int]]] = {
        number: TextRow(DeviceRequest(automaton=walked(automaton), request=request, max_draft_tokens=num_drafted))
        for number, (automaton, request, num_drafted) in enumerate(asked)
    }
    ended = dict(run_device_rows(pool, rows, max_rows=max_rows, left={}))
    assert rows == {}
    return [ended[number] for number in range(len(asked))]


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[StepShape]:
    """The shape of each session that is made."""
    found: list[StepShape] = []
    init = DeviceSession.__init__

    def told(self: DeviceSession, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        found.append(self.shape)

    monkeypatch.setattr(DeviceSession, "__init__", told)
    return found


def test_options_of_every_kind_share_a_session(shapes: list[StepShape]) -> None:
    """One that has all of them, for those that draft alike; each row gives the tokens of host mode."""
    asked = [
        (
            frozen(random_schema(seed)),
            Request(prompt_token_ids=(1, seed), max_tokens=90, seed=seed, sampling=sampling),
            3 * (seed % 2),
        )
        for seed, sampling in enumerate(SAMPLINGS)
    ]
    assert run(asked, max_rows=3) == [on_the_host(automaton, request).token_ids for automaton, request, _ in asked]
    plain = StepShape(num_rows=4, num_positions=256, has_truncation=True, has_penalties=True)
    drafted = StepShape(num_rows=4, num_positions=253, num_drafted=3, has_truncation=True, has_bias=True)
    assert sorted(shapes, key=lambda shape: shape.num_drafted) == [plain, drafted]


def test_streams_of_one_prompt_are_different_texts() -> None:
    """The noise belongs to seed, stream and place, whoever is beside a row."""
    automaton = frozen(random_schema(9))
    request = Request(prompt_token_ids=(1, 2, 3), max_tokens=90, seed=2**64 - 1, sampling=Sampling(temperature=1.5))
    asked = [(automaton, replace(request, stream=stream), 4) for stream in range(5)]
    found = run(asked, max_rows=4)
    assert found == [on_the_host(automaton, request).token_ids for automaton, request, _ in asked]
    assert len({tuple(one) for one in found}) > 2


def test_which_rows_are_alike() -> None:
    """Half of the slots will do, a quarter will not; no row joins a session that lacks its options."""

    def one(num_slots: int, **options: Any) -> StepShape:
        return StepShape(num_rows=1, num_positions=num_slots - options.get("num_drafted", 0), **options)

    assert one(1024).is_like(one(512))
    assert one(1024).is_like(one(1024))
    assert not one(1024).is_like(one(256))
    assert not one(512).is_like(one(1024))
    assert not one(512).is_like(one(512, num_drafted=2))
    assert one(512, num_drafted=2).is_like(one(256, num_drafted=2, has_bias=True))
    assert one(512, has_bias=True).takes(one(512))
    assert not one(512).takes(one(512, has_truncation=True))
    assert one(512).joined([one(256, has_truncation=True), one(512, has_bias=True)]) == one(
        512, has_truncation=True, has_bias=True
    )
