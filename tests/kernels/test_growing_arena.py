"""Machines that grow in an arena: pieces come in, states keep their numbers, nobody finds a state half described."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

import structgen as sg
from frozen_machines import VOCABULARY, legal_tokens, machines
from structgen.errors import VocabularyError
from structgen.frozen_pieces import GrowingMachine, Piece
from structgen.grammar import frozen_part
from structgen.grammar.frozen_part import FrozenPart
from structgen.grammar.parser_state import ParserState
from structgen.kernels import arena as kernel
from structgen.kernels.advance import LEFT, RUNNING, Registers, advance_, settle_
from structgen.kernels.arena import UNKNOWN, Arena, Tables

NESTED = sg.Lark('start: "<" NAME ("," start)* ">"\nNAME: /[a-z]{1,4}/')


def new_part(num_states: int) -> FrozenPart:
    """Return the part of a language that nests without a bound."""
    return sg.compile(NESTED, VOCABULARY, cache=None).freeze_part(num_states=num_states)


def empty(digest: str = VOCABULARY.digest) -> Arena:
    """Return an arena without machines."""
    return Arena(vocabulary_digest=digest, num_tokens=VOCABULARY.size, num_private_rows=1)


def random_token(walk: ParserState, generator: np.random.Generator) -> int:
    """Return a legal token."""
    return int(generator.choice(legal_tokens(walk.mask())))


def check_state(tables: Tables, state: int, walk: ParserState) -> None:
    """Assert that a state is described as its walk says."""
    row = int(tables.mask_row[state])
    assert np.array_equal(tables.mask_rows[row].numpy(), walk.mask())
    listed = tables.list_ids[int(tables.list_start[row]) : int(tables.list_start[row + 1])]
    assert listed.tolist() in ([], legal_tokens(walk.mask()))
    assert int(tables.cost[state]) == walk.tokens_to_end_bound
    assert bool(tables.accepting[state]) == walk.is_accepting


def test_a_row_waits_and_goes_on_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each state that is only named the row is LEFT; once it is described the same row goes on, to the end."""
    monkeypatch.setattr(frozen_part, "_LEAST_PIECE", 4)
    part, arena = new_part(4), empty()
    other = machines()[0]
    generator = np.random.default_rng(0)
    num_waits = 0
    for number in range(6):
        registers = Registers.new(1, ring_size=4)
        registers.state.fill_(arena.add(part.machine))
        if number == 1:
            arena.add(other)  # numbers of later pieces do not follow those of the first
        registers.num_left.fill_(60)
        registers.is_done.fill_(RUNNING)
        walk = part.start()
        while not walk.is_finished:
            settle_(arena.tables, registers)
            state = int(registers.state[0])
            if registers.is_done[0] == LEFT:
                num_waits += 1
                assert int(arena.tables.least_after[state]) == UNKNOWN
                assert part.describe(walk)
                assert arena.states_of(part.machine)[part.states_along(walk.token_ids)[-1]] == state
                registers.is_done.fill_(RUNNING)
                settle_(arena.tables, registers)
            if registers.is_done[0] != RUNNING:
                break
            check_state(arena.tables, state, walk)
            token = random_token(walk, generator)
            walk.advance(token)
            advance_(arena.tables, registers, torch.tensor([token], dtype=torch.int32))
    assert num_waits > 8
    assert len(part.machine.pieces) == num_waits + 1


def test_what_was_described_stays() -> None:
    """A piece changes what was only named, and nothing else; rows that are there already are used again."""
    part, arena = new_part(8), empty()
    start = arena.add(part.machine)
    before = {field.name: getattr(arena.tables, field.name) for field in fields(Tables)}
    before = {name: one.clone() for name, one in before.items() if isinstance(one, torch.Tensor)}
    num_before, num_rows = arena.num_states, arena._tensors["mask_rows"].size
    named = before["least_after"][:num_before] == UNKNOWN
    part.meet(VOCABULARY.encode(b"<ab,<ab,<ab,<ab>>,<na>>>"))
    assert arena.add(part.machine) == start
    assert arena.num_states > num_before
    for name in ("least_after", "cost_after", "machine", "step_start", "mask_row", "cost", "accepting"):
        now = getattr(arena.tables, name)[:num_before]
        assert torch.equal(now[~named], before[name][:num_before][~named])
    assert (arena.tables.least_after[:num_before][named] != UNKNOWN).any()
    fresh = sum(piece.machine.num_rows for piece in part.machine.pieces[1:])
    assert arena._tensors["mask_rows"].size < num_rows + fresh


def test_who_holds_older_tables_finds_no_state_without_its_steps() -> None:
    """Where one tensor moves, those of the states move too, so that older ones know what they knew."""
    part, arena = new_part(4), empty()
    arena.add(part.machine)
    num_moves = 0
    walk = part.start()
    generator = np.random.default_rng(3)
    for _ in range(200):
        held, version = arena.tables, arena.version
        known = held.least_after.clone()
        if walk.is_finished:
            walk = part.start()
        assert part.describe(walk)
        arena.add(part.machine)
        if arena.version != version:
            num_moves += 1
            assert torch.equal(held.least_after, known)
        steps = arena.tables.next_state
        is_known = arena.tables.least_after[: arena.num_states] != UNKNOWN
        assert int(arena.tables.step_start[: arena.num_states][is_known].max()) < len(steps)
        walk.advance(random_token(walk, generator))
    assert num_moves


@pytest.mark.parametrize("room", [64, 1 << 14])
@pytest.mark.parametrize("name", ["token_class", "mask_rows", "least_after"])
def test_who_is_interrupted_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, name: str, room: int) -> None:
    """The piece may be added again, and the tables are as if nothing had happened, whether or not something moved."""
    monkeypatch.setattr(kernel, "_FIRST_ROOM", room)
    part, grown, whole = new_part(6), empty(), empty()
    grown.add(part.machine)
    whole.add(part.machine)
    part.meet(VOCABULARY.encode(b"<ab,<ab,<ab,<ab>>>>"))
    version, tables, num_states = grown.version, grown.tables, grown.num_states
    before = {one: getattr(tables, one)[:num_states].clone() for one in kernel._IN_PLACE}
    append, described = Arena._append, Arena._describe

    def interrupted(self: Arena, what: str, values: np.ndarray) -> None:
        append(self, what, values)
        if what == name != "least_after":
            raise KeyboardInterrupt

    def interrupted_at_the_end(self: Arena, *arguments: object) -> None:
        described(self, *arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Arena, "_append", interrupted)
        patched.setattr(Arena, "_describe", interrupted_at_the_end)
        with pytest.raises(KeyboardInterrupt):
            grown.add(part.machine)
    assert (grown.version, grown.tables) == (version, tables)
    for one, values in before.items():
        assert torch.equal(getattr(tables, one)[:num_states], values)
    assert grown.states_of(part.machine).tolist() == whole.states_of(part.machine).tolist()
    for field in fields(Tables):
        here, there = (getattr(arena.tables, field.name) for arena in (grown, whole))
        if isinstance(here, torch.Tensor):
            size = min(len(here), len(there))
            assert torch.equal(here[:size], there[:size])


def test_whose_states_they_are() -> None:
    """Each state is found again in the piece that named it first; the end is that of the first piece."""
    part, arena = new_part(6), empty()
    first = machines()[0]
    arena.add(first)
    arena.add(part.machine)
    assert part.machine in arena
    assert first in arena
    assert new_part(6).machine not in arena
    part.meet(VOCABULARY.encode(b"<ab,<ab,<ab,<ab>>>>"))
    states = arena.states_of(part.machine)
    assert len(states) == part.machine.num_states
    for number, state in enumerate(states.tolist()):
        machine, local = arena.machine_of(state)
        piece = next(one for one in part.machine.pieces if one.machine is machine)
        assert piece.numbers[local] == number
    assert arena.machine_of(int(states[part.machine.end])) == (part.machine.pieces[0].machine, part.machine.end)


def test_another_vocabulary_is_refused() -> None:
    """As for machines that do not grow."""
    with pytest.raises(VocabularyError, match="another vocabulary"):
        empty("0" * 64).add(new_part(4).machine)


def test_sizes_are_shown() -> None:
    """Pieces, states, bytes."""
    part = new_part(4)
    machine = part.machine
    part.meet(VOCABULARY.encode(b"<ab,<ab>>"))
    assert isinstance(machine, GrowingMachine)
    assert isinstance(machine.pieces[1], Piece)
    assert str(machine).startswith(f"GrowingMachine(2 pieces, states={machine.num_states}, ")
    assert machine.num_described == sum(piece.num_described for piece in machine.pieces) > 4
