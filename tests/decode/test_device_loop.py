"""Device mode by the reference operations on the CPU: the text of host mode, and no step that waits for the host."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from device_rows import (
    DRAFTED,
    SAMPLINGS,
    frozen,
    model,
    new_session,
    on_the_device,
    on_the_host,
    random_schema,
    vocabulary,
    walked,
)
from structgen.config import Sampling
from structgen.decode import device_session
from structgen.decode.device_graph import Lane
from structgen.decode.device_loop import DeviceRequest, RowFollower
from structgen.decode.device_pool import DevicePool
from structgen.decode.device_session import RowNews
from structgen.decode.device_step import StepState
from structgen.decode.loop import Request
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.kernels.advance import RUNNING

NUM_SCHEMAS = 100


def requests(first: int, num: int) -> list[tuple]:
    """Return rows of different schemas, sampling options, prompts and budgets, half of them near the end."""
    rows = []
    for seed in range(first, first + num):
        rng = random.Random(seed)
        automaton = frozen(random_schema(seed))
        needed = automaton.start().tokens_to_end_bound
        request = Request(
            prompt_token_ids=tuple(rng.randrange(250) for _ in range(rng.choice([1, 2, 7, 30]))),
            max_tokens=needed + rng.choice([0, 1, 3, 9, 20, 40]),
            seed=rng.choice([seed, 2**64 - 1 - seed]),
            sampling=SAMPLINGS[seed % len(SAMPLINGS)],
            stream=seed % 2,
        )
        rows.append((automaton, request))
    return rows


@pytest.mark.parametrize("first", range(0, NUM_SCHEMAS, 25))
def test_the_text_is_that_of_host_mode(first: int) -> None:
    """Rows of many grammars share a batch, come and go, and each gives the tokens and counts of host mode."""
    rows = requests(first, 25)
    check(rows, on_the_device(new_session(), rows))


@pytest.mark.parametrize("first", [0, NUM_SCHEMAS])
def test_drafts_change_the_passes_and_not_the_text(first: int) -> None:
    """Forced runs that the device drafts by itself: the same tokens and counts, in fewer passes."""
    rows = [one for one in requests(first, 25) if not one[1].sampling.has_penalties]
    found = on_the_device(new_session(DRAFTED), rows)
    check(rows, found)
    accepted = sum(one.trace.accepted["ForcedRun"] for one in found)
    assert accepted > 20
    for one in found:
        trace = one.trace
        num_known = trace.num_target_passes - 1 + trace.accepted["ForcedRun"]
        # The first pass is that over the prompt but for its last token; a text of no choice at all has no other.
        assert trace.num_draws <= num_known <= trace.num_draws + 1


def check(rows: list[tuple], followers: list) -> None:
    """Compare with host mode, row by row."""
    for (automaton, request), found in zip(rows, followers, strict=True):
        wanted = on_the_host(automaton, request)
        assert found.token_ids == wanted.token_ids
        assert found.text == wanted.text
        assert found.trace.truncated == wanted.trace.truncated
        assert found.trace.num_draws == wanted.trace.num_draws
        assert found.trace.legal_mass_lost == pytest.approx(wanted.trace.legal_mass_lost, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("sampling", [SAMPLINGS[1], SAMPLINGS[5]], ids=["plain", "penalties"])
def test_where_the_tables_end_the_host_goes_on(share: float, sampling: Sampling) -> None:
    """Tables that describe a part of the states only: the rest of the text is made on the host, and it is the same."""
    pool = DevicePool(model(), vocabulary(), device_types=("cpu",))
    for seed in range(3):
        automaton = frozen(random_schema(seed))
        whole = walked(automaton)
        unknown = np.random.default_rng(seed).random(whole.machine.num_states) < share
        unknown[[whole.machine.start, whole.machine.end]] = False
        partial = FrozenAutomaton(whole.machine, vocabulary())
        partial.machine = replace(whole.machine, mask_row=np.where(unknown, -1, whole.machine.mask_row))
        request = Request(prompt_token_ids=(1, 2, 3), max_tokens=80, seed=seed, sampling=sampling)
        found = pool.decoding(DeviceRequest(automaton=partial, request=request))
        wanted = on_the_host(automaton, request)
        found.run()
        assert found.token_ids == wanted.token_ids
        assert found.text == wanted.text
        assert found.trace.num_draws == wanted.trace.num_draws


def test_what_a_step_writes_is_memory_of_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session may be given up while its steps are under way: nobody off their stream may get its memory then."""
    lane, is_held = Lane(model().device), []

    class Watched(StepState):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            is_held.append(lane._lock.locked())
            super().__init__(*arguments, **options)

    monkeypatch.setattr(device_session, "StepState", Watched)
    new_session(lane=lane)
    assert is_held == [True]


def test_figures_of_steps_after_a_stop_string_are_of_the_steps_that_are_counted() -> None:
    """The sums hold what the device did until it was read, so the number of steps is that of all of them."""
    request = Request(prompt_token_ids=(1,), max_tokens=20, seed=0, stop=("b",))
    follower = RowFollower(walked(frozen(str)), request)
    ids = [vocabulary().encode(letter.encode())[0] for letter in "abcd"]
    follower.take(RowNews(token_ids=ids, is_done=RUNNING, legal_mass_lost=0.4, most_mass_lost=0.1, num_passes=4))
    trace = follower.trace
    assert (follower.text, follower.token_ids, follower.is_finished) == ("a", ids[:2], True)
    assert (trace.num_tokens, trace.num_draws, trace.num_measured, trace.num_target_passes) == (2, 4, 4, 4)
