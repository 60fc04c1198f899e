"""Device mode where tables have no end: rows wait until states are described, and the text is that of host mode."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import structgen as sg
from device_rows import DRAFTED, EVERYTHING, SAMPLINGS, model, new_session, on_the_host, run_to_the_end, vocabulary
from structgen.config import Limits, Sampling
from structgen.decode.device_loop import DeviceRequest, RowFollower
from structgen.decode.device_pool import DevicePool
from structgen.decode.device_session import DeviceSession
from structgen.decode.loop import Decoding, Request
from structgen.decode.transformers_target import TransformersBatch
from structgen.errors import LimitError
from structgen.grammar import frozen_part
from structgen.grammar.token_automaton import TokenAutomaton

TREE = sg.JsonSchema(
    {
        "$ref": "#/$defs/folder",
        "$defs": {
            "folder": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z]{1,12}$"},
                    "folders": {"type": "array", "items": {"$ref": "#/$defs/folder"}, "maxItems": 3},
                },
                "required": ["name", "folders"],
                "additionalProperties": False,
            }
        },
    },
    whitespace="compact",
)
SELECT = sg.Lark(
    r"""
start: "SELECT " columns " FROM users" [where]
columns: "*" | column (", " column)*
where: " WHERE " condition (" AND " condition)*
condition: "age" (" < " | " > ") NUMBER | "(" condition ")"
column: "name" | "age" | "city"
NUMBER: /[1-9][0-9]?/
"""
)
OPEN = sg.JsonSchema({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})
BRACKETS = sg.Lark('start: ("[" start "]" | "(" start ")" | "x")~1..3')
TYPES = {"tree": TREE, "select": SELECT, "open": OPEN, "brackets": BRACKETS}


@pytest.fixture(params=[1, 20], ids=["one state a piece", "twenty"])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many states a piece describes."""
    monkeypatch.setattr(frozen_part, "_LEAST_PIECE", request.param)
    monkeypatch.setattr(frozen_part, "_MOST_PIECE", request.param)
    return int(request.param)


def compiled(output_type: Any, **limits: Any) -> TokenAutomaton:
    """Return an automaton whose part begins small."""
    automaton = sg.compile(output_type, vocabulary(), cache=None, limits=Limits(**limits))
    automaton.freeze_part(num_states=12)
    return automaton


def requests(automaton: TokenAutomaton, num: int, *, has_penalties: bool = True) -> list[Request]:
    """Return requests with different sampling options and budgets, some of them near the end."""
    rng = random.Random(num)
    needed = automaton.start().tokens_to_end_bound
    samplings = [one for one in SAMPLINGS if has_penalties or not one.has_penalties]
    return [
        Request(
            prompt_token_ids=tuple(rng.randrange(250) for _ in range(rng.choice([1, 7]))),
            max_tokens=needed + rng.choice([0, 3, 20, 60]),
            seed=seed,
            sampling=samplings[seed % len(samplings)],
        )
        for seed in range(num)
    ]


def check(found: RowFollower | Any, wanted: Decoding) -> None:
    """Compare with host mode."""
    assert found.token_ids == wanted.token_ids
    assert found.text == wanted.text
    assert found.trace.truncated == wanted.trace.truncated
    assert found.trace.num_draws == wanted.trace.num_draws
    assert found.trace.legal_mass_lost == pytest.approx(wanted.trace.legal_mass_lost, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("shape", [EVERYTHING, DRAFTED], ids=["plain", "drafted"])
def test_rows_wait_and_go_on(piece: int, shape: Any) -> None:
    """Rows of several types share a session and wait often; each gives the tokens and counts of host mode."""
    automata = {name: compiled(one) for name, one in TYPES.items()}
    rows = [
        (automaton, request)
        for automaton in automata.values()
        for request in requests(automaton, 2, has_penalties=shape is EVERYTHING)
    ]
    followers = []
    for automaton, request in rows:
        part = automaton.frozen_part
        assert part is not None
        followers.append(RowFollower(part, request))
    run_to_the_end(new_session(shape), followers)
    for (automaton, request), found in zip(rows, followers, strict=True):
        check(found, on_the_host(automaton, request))
        assert found.trace.num_device_draws == found.trace.num_draws
    num_waits = sum(found.trace.num_device_waits for found in followers)
    num_pieces = sum(len(automaton.frozen_part.machine.pieces) - 1 for automaton in automata.values())
    assert num_waits >= num_pieces > (40 if piece == 1 else 5)


def pool() -> DevicePool:
    """Return a pool that takes the CPU for a device."""
    return DevicePool(model(), vocabulary(), device_types=("cpu",))


@contextmanager
def watched_resumes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the tables that a session is bound to anew where a row goes on."""
    versions: list[int] = []
    resume = DeviceSession.resume

    def watched(self: DeviceSession, row: int, machine: Any, *, last_token_id: int) -> None:
        before = self._version
        resume(self, row, machine, last_token_id=last_token_id)
        versions.append(self._version != before)

    with monkeypatch.context() as patched:
        patched.setattr(DeviceSession, "resume", watched)
        yield versions


def test_a_text_alone_waits_where_nothing_was_met(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next text of the same kind does not wait; few waits move tables; drafts go on."""
    automaton, devices = compiled(TREE), pool()
    request = Request(prompt_token_ids=(1, 2, 3), max_tokens=60, seed=5)
    waits = []
    with watched_resumes(monkeypatch) as moves:
        for _ in range(2):
            asked = DeviceRequest(automaton=automaton.frozen_part, request=request, max_draft_tokens=4)
            found = devices.decoding(asked)
            found.run()
            check(found, on_the_host(automaton, request))
            waits.append(found.trace.num_device_waits)
            assert found.trace.accepted["ForcedRun"] > 10
    assert waits[0] > 2
    assert waits[1] == 0
    assert len(moves) == waits[0]
    assert piece > 1 or 0 < sum(moves) < len(moves) / 3


def test_where_nothing_can_be_described_the_host_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits end the growth: the rest of the text is host mode's, the same, and the report tells how much was whose."""
    automaton = compiled(TREE)
    part = automaton.frozen_part
    assert part is not None
    request = Request(prompt_token_ids=(1, 2, 3), max_tokens=100, seed=5)
    wanted = on_the_host(automaton, request)

    def too_much(*arguments: Any) -> None:
        raise LimitError("its tables are too large", "memory_mb", 1)

    with monkeypatch.context() as patched:
        patched.setattr(frozen_part, "machine_of", too_much)
        found = pool().decoding(DeviceRequest(automaton=part, request=request))
        found.run()
    assert (found.token_ids, found.text) == (wanted.token_ids, wanted.text)
    trace = found.trace
    assert 0 < trace.num_device_draws < trace.num_draws == wanted.trace.num_draws
    assert trace.num_device_waits == 1
    assert part.is_full
    assert automaton.frozen_part is not part


def test_near_the_limit_of_depth_the_host_goes_on() -> None:
    """There nesting decides what is legal, and the part is as good as before."""
    automaton = compiled(sg.Lark('start: "a" | "(" start ")"'), depth=40)
    part = automaton.frozen_part
    assert part is not None
    bias = Sampling(logit_bias={vocabulary().encode(b"(")[0]: 30.0})
    request = Request(prompt_token_ids=(1,), max_tokens=90, seed=1, sampling=bias)
    found, wanted = pool().decoding(DeviceRequest(automaton=part, request=request)), on_the_host(automaton, request)
    found.run()
    assert found.text == wanted.text
    assert found.text.count("(") > 30
    assert 3 < found.trace.num_device_draws < found.trace.num_draws
    assert not part.is_full


def test_a_session_with_older_tables_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one text waits and grows the tables, others of the part stand in sessions of their own."""
    monkeypatch.setattr(frozen_part, "_LEAST_PIECE", 3)
    monkeypatch.setattr(frozen_part, "_MOST_PIECE", 3)
    automaton, devices = compiled(TREE), pool()
    asked = requests(automaton, 5, has_penalties=False)
    found = [
        devices.decoding(
            DeviceRequest(automaton=automaton.frozen_part, request=request, max_draft_tokens=4 * (number % 2))
        )
        for number, request in enumerate(asked)
    ]
    is_under_way = [True] * len(found)
    while any(is_under_way):
        for number, one in enumerate(found):
            is_under_way[number] = is_under_way[number] and one.step() is not None
    for one, request in zip(found, asked, strict=True):
        check(one, on_the_host(automaton, request))
    assert sum(one.trace.num_device_waits for one in found) > 4


def test_a_walk_of_a_part_is_that_of_its_automaton() -> None:
    """In host mode too: the core of a part knows what the automaton knows."""
    automaton = compiled(OPEN)
    part = automaton.frozen_part
    assert part is not None
    request = Request(prompt_token_ids=(1, 2), max_tokens=60, seed=3, diagnostics=True)
    found = Decoding(TransformersBatch(model()).join(), part.start(), vocabulary(), request)
    found.run()
    check(found, on_the_host(automaton, request))
