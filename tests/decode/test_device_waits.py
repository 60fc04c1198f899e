"""No step of device mode asks a tensor for a value: its state refuses to tell, and so does all that is made from it.

Nor does a row that joins: what it starts from is written beside rows that are under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from device_rows import DRAFTED, EVERYTHING, frozen, new_session, on_the_device, on_the_host, random_schema
from on_device import OnDevice, WaitError, as_tensors, by_the_device
from structgen.config import Sampling
from structgen.decode import device_step
from structgen.decode.causal_model import CausalModel
from structgen.decode.device_session import DeviceSession
from structgen.decode.device_step import StepShape
from structgen.decode.loop import Request
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.kernels.accept import accept_reference_, draft_places_reference_
from structgen.kernels.advance import advance_reference_, mask_row_within_reference_
from structgen.kernels.sample import Sampled, sample_reference
from structgen.kernels.tally import tally_reference_

STEPS = (mask_row_within_reference_, advance_reference_, accept_reference_, draft_places_reference_, tally_reference_)


def refusing(shape: StepShape) -> DeviceSession:
    """Return a session whose whole state refuses."""
    made = new_session(shape)
    for name, value in list(vars(made._state).items()):
        setattr(made._state, name, as_tensors(value, OnDevice))
    return made


SHAPES = [replace(shape, num_rows=2) for shape in (EVERYTHING, DRAFTED)]


@pytest.fixture(params=SHAPES, ids=["plain", "drafted"])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DeviceSession:
    """Return a session whose whole state refuses; kernels are the reference operations."""
    for operation in (*STEPS, sample_reference):
        monkeypatch.setattr(device_step, operation.__name__.replace("_reference", ""), by_the_device(operation))
    return refusing(request.param)


def rows(*, drafted: bool) -> list[tuple[TokenAutomaton, Request]]:
    """Return five rows of different grammars, options and lengths, for two places: three of them join later."""
    samplings = [
        Sampling(top_k=9),
        Sampling(),
        Sampling(logit_bias={34: 2.0}) if drafted else Sampling(repetition_penalty=1.2),
        Sampling.greedy(),
        Sampling(top_p=0.9),
    ]
    return [
        (
            frozen(random_schema(3 + number)),
            Request(prompt_token_ids=(5, 6, 7)[: 1 + number % 3], max_tokens=70, seed=5 - number, sampling=sampling),
        )
        for number, sampling in enumerate(samplings)
    ]


def check(session: DeviceSession) -> None:
    """Make the texts: they are those of host mode."""
    asked = rows(drafted=session.drafts is not None)
    found = on_the_device(session, asked)
    assert [one.text for one in found] == [on_the_host(*row).text for row in asked]


def test_no_step_waits_for_the_host(session: DeviceSession) -> None:
    """Texts are made, and rows join, though the state tells nobody anything."""
    check(session)


@pytest.mark.parametrize("shape", SHAPES, ids=["plain", "drafted"])
def test_plain_forms_do_not_wait_either(shape: StepShape, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run where there is no Triton, and ask their tensors nothing."""

    def draw(*values: Any, out: Sampled, **options: Any) -> Sampled:
        return out.copy_(sample_reference(*values, **options))

    monkeypatch.setattr(device_step, "sample", draw)
    for operation in STEPS:
        monkeypatch.setattr(device_step, operation.__name__.replace("_reference", ""), operation)
    check(refusing(shape))


PLANTED: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda one: one.sum().item(),
    "a condition": lambda one: 1 if one.max() > 0 else 0,
    "a number": lambda one: int(one[0]),
    "a list": lambda one: one.tolist(),
    "numpy": lambda one: one.numpy(),
    "the host's memory": lambda one: one.to("cpu"),
    "a selection": lambda one: one[one > 0],
    "places": lambda one: torch.where(one > 0),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_step_that_waits_is_found(name: str, session: DeviceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof can fail: whatever asks in the middle of a step, of what the model made of its state, is refused."""
    run_chains = CausalModel.run_chains

    def asks(self: CausalModel, token_ids: torch.Tensor, positions: torch.Tensor, *more: Any) -> Any:
        hidden = run_chains(self, token_ids, positions, *more)
        PLANTED[name](hidden[:, 0, 0])
        return hidden

    monkeypatch.setattr(CausalModel, "run_chains", asks)
    with pytest.raises(WaitError):
        check(session)


def test_a_join_that_waits_is_found(session: DeviceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is what asks while a row is written."""
    write = DeviceSession._write

    def asks(self: DeviceSession, row: int, *more: Any) -> None:
        write(self, row, *more)
        if self.num_steps:
            int(self._state.registers.num_left[row])

    monkeypatch.setattr(DeviceSession, "_write", asks)
    with pytest.raises(WaitError):
        check(session)
