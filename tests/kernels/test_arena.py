"""Machines in one set of tensors: what was added keeps its numbers, however many come behind it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from frozen_machines import VOCABULARY, legal_tokens, machines, start
from structgen.errors import VocabularyError
from structgen.kernels.advance import next_states
from structgen.kernels.arena import NOTHING_FOLLOWS, Arena, Tables, least_costs_after
from structgen.kernels.sample import Masks, SampleNoise, SampleOptions, sample


def empty(digest: str = VOCABULARY.digest) -> Arena:
    """Return an arena without machines."""
    return Arena(vocabulary_digest=digest, num_tokens=VOCABULARY.size, num_private_rows=2)


def test_what_was_added_stays_where_it_is() -> None:
    """Growth keeps the numbers and what they lead to; only a tensor that moves changes the version."""
    one, *more = machines()
    grown = empty()
    first = grown.add(one)
    tables, version = grown.tables, grown.version
    assert grown.add(one) == first
    assert grown.version == version
    for machine in [*more, *(replace(machine, start=machine.end) for machine in machines())]:
        grown.add(machine)
    assert grown.version > version
    assert tables.next_state is not grown.tables.next_state
    for machine in machines():
        offset = grown.first_state(machine)
        assert grown.machine_of(offset + machine.end) == (machine, machine.end)
        states = torch.arange(machine.num_states) + offset
        begin = grown.tables.step_start[states][:, None] + torch.arange(machine.num_classes)
        steps = grown.tables.next_state[begin].numpy()
        assert np.array_equal(np.where(steps >= 0, steps - offset, -1), machine.next_state)
        rows = grown.tables.mask_row[states]
        assert np.array_equal(grown.tables.mask_rows[rows].numpy(), machine.mask_rows[machine.mask_row])
        for row, own in zip(rows.tolist(), machine.mask_row.tolist(), strict=True):
            first_id, last_id = grown.tables.list_start[row : row + 2].tolist()
            listed = machine.list_ids[machine.list_start[own] : machine.list_start[own + 1]]
            assert grown.tables.list_ids[first_id:last_id].tolist() == listed.tolist()


def test_a_version_is_never_ahead_of_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the version first, while somebody adds, gets tables that are at least as new."""
    grown, seen = empty(), []
    snapshot = Arena._snapshot

    def watched(self: Arena) -> Tables:
        seen.append(self.version)
        return snapshot(self)

    monkeypatch.setattr(Arena, "_snapshot", watched)
    version = grown.version
    grown.add(machines()[0])
    assert seen == [version]
    assert grown.version > version


@pytest.mark.parametrize("name", ["token_class", "mask_rows", "machine"])
def test_who_is_interrupted_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The machine may be added again, and others stand where they would stand."""
    one, two, *more = machines()
    grown, whole = empty(), empty()
    grown.add(one)
    version, tables = grown.version, grown.tables
    append = Arena._append

    def interrupted(self: Arena, what: str, values: np.ndarray) -> None:
        append(self, what, values)
        if what == name:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Arena, "_append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            grown.add(two)
    assert (grown.version, grown.tables) == (version, tables)
    for machine in (one, two, *more):
        assert grown.add(machine) == whole.add(machine)
    for field in fields(Tables):
        here, there = (getattr(arena.tables, field.name) for arena in (grown, whole))
        if isinstance(here, torch.Tensor):
            size = min(len(here), len(there))
            assert torch.equal(here[:size], there[:size])


def test_room_is_used_before_anything_moves() -> None:
    """A machine that fits behind the others is there for whoever holds the tables already."""
    one, *_, small = machines()
    grown = empty()
    grown.add(one)
    tables, version = grown.tables, grown.version
    first = grown.add(small)
    assert grown.version == version
    state = torch.tensor([first], dtype=torch.int32)
    (token,) = [t for t in legal_tokens(start(small).mask()) if VOCABULARY.token_bytes(t) == b"true"]
    after, _ = next_states(tables, state, torch.tensor([token], dtype=torch.int32))
    walk = start(small)
    walk.advance(token)
    assert after.tolist() == [grown.first_state(small) + walk.configuration]


def test_least_costs_leave_stops_out() -> None:
    """Where only a stop may come nothing follows, though it costs nothing."""
    for machine in machines():
        for state in range(machine.num_states):
            after = [
                int(machine.cost[machine.next_state[state, k]])
                for k in range(2, machine.num_classes)
                if machine.next_state[state, k] >= 0
            ]
            assert least_costs_after(machine)[state] == min(after, default=NOTHING_FOLLOWS)


def test_another_vocabulary_and_unknown_states_are_refused() -> None:
    """A machine of another vocabulary would read other tokens."""
    with pytest.raises(VocabularyError, match="another vocabulary"):
        empty("00").add(machines()[0])
    for state in (-1, 0):
        with pytest.raises(IndexError, match="there is no state"):
            empty().machine_of(state)


def test_draws_take_the_lists_of_the_tables() -> None:
    """With the room behind them, and also after growth; what is drawn is what is drawn without lists."""
    grown = empty()
    for machine in machines():
        first = grown.first_state(machine)
        tables = grown.tables
        row = tables.mask_row[first : first + machine.num_states]
        number = torch.arange(len(row))
        logits = torch.randn((len(row), VOCABULARY.size), generator=torch.Generator().manual_seed(first))
        masks = Masks(words=tables.mask_rows, row=row, num_tokens=tables.num_tokens)
        given = {
            "options": SampleOptions(temperature=torch.ones(len(row))),
            "noise": SampleNoise(number, number, number),
        }
        drawn = sample(logits, masks=replace(masks, lists=(tables.list_start, tables.list_ids)), **given)
        assert torch.equal(drawn.token_id, sample(logits, masks=masks, **given).token_id)
