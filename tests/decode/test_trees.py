"""Drafts that branch: the text, state and cache are those of plain decoding, whichever sibling comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import structgen as sg
from drafts import Markov, setup
from explicit import NESTED, STAR, STRING, VOCABULARY, A, Automaton, B, Model, State, random_logits
from random_types import TOKENS, automaton_of, liking
from random_types import VOCABULARY as BYTES
from structgen.config import Sampling
from structgen.decode.acceptance_estimates import Place
from structgen.decode.control import Round, Sibling
from structgen.decode.drafters import StateTable
from structgen.decode.drafters.state_table import Followers
from structgen.decode.loop import Decoding, Request
from structgen.decode.pass_costs import PassCosts
from structgen.decode.request_control import RequestControl
from structgen.decode.speculation_control import RouteControl
from structgen.drafter import DraftMemory, DraftRequest, DraftView
from structgen.output_type import lower
from tiny_tokenizer import byte_tokenizer, tiny_llama

SAMPLINGS = [
    Sampling(),
    Sampling.greedy(),
    Sampling(temperature=0.7, top_p=0.9),
    Sampling(top_k=3, repetition_penalty=1.3, frequency_penalty=0.3),
]


@dataclass(frozen=True)
class Forks:
    """Knows a text, drafts another token at every n-th place of it, and names right and wrong ones beside it."""

    text: tuple[int, ...]
    wrong_every: int
    num_prompt_tokens: int = 2
    name: str = "Forks"

    def start(self, request: DraftRequest) -> Forks:
        return self

    def propose(self, view: DraftView) -> Iterator[int]:
        while (at := len(view.token_ids) - self.num_prompt_tokens) < len(self.text):
            if at % self.wrong_every == self.wrong_every - 1:
                yield from [token_id for token_id in _legal(view) if token_id != self.text[at]][-1:]
                return
            yield self.text[at]

    def others(self, view: DraftView) -> Iterable[Any]:
        at = len(view.token_ids) - self.num_prompt_tokens
        # Illegal and impossible ones are left out by the engine.
        return [10**9, "x", *_legal(view)[at % 3 :], *self.text[at : at + 1]]

    def observe(self, token_id: int, state_key: Hashable) -> None:
        pass

    def close(self) -> None:
        pass


def _legal(view: DraftView) -> list[int]:
    mask = view.mask
    return [t for t in range(32 * mask.size) if int(mask[t >> 5]) >> (t & 31) & 1 and t not in VOCABULARY.stop_ids]


def decode(automaton: Automaton, seed: int, speculation: Any, sampling: Sampling) -> Decoding:
    """Decode to the end; the state and the cache are looked at after every round."""
    target = Model(lambda tokens: random_logits(tokens).double(), most_legal_rows=seed % 3 * 4)
    state = State(automaton)
    request = Request(prompt_token_ids=(A, B), max_tokens=14, seed=seed, sampling=sampling)
    decoding = Decoding(target, state, VOCABULARY, request, speculation)  # type: ignore[arg-type]
    while decoding.step() is not None:
        fresh = State(automaton)
        for token_id in decoding.token_ids:
            fresh.advance(token_id)
        assert (state.state, state.history) == (fresh.state, fresh.history)
        whole = [A, B, *decoding.token_ids]
        assert target.tokens == whole[: len(target.tokens)]
        assert len(target.tokens) >= len(whole) - 1 or not automaton[state.state]
    return decoding


def figures(decoding: Decoding) -> tuple[Any, ...]:
    """Return everything of a run that drafts must not change."""
    trace = decoding.trace
    return decoding.token_ids, decoding.text, trace.num_draws, trace.truncated, round(trace.legal_mass_lost, 9)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
def test_texts_are_those_of_plain_decoding(sampling: Sampling) -> None:
    """An oracle with siblings that are accepted and refused: text, figures, state and cache, and passes saved."""
    drafted, accepted, num_passes = Counter[str](), Counter[str](), Counter[int]()
    for automaton in (STRING, NESTED, STAR):
        for seed in range(12):
            plain = decode(automaton, seed, None, sampling)
            for branches in (0, 1, 3, 20):
                drafter = Forks(tuple(plain.token_ids), 2 + seed % 3)
                run = decode(automaton, seed, setup([drafter], branches=branches), sampling)
                assert figures(run) == figures(plain)
                drafted += run.trace.drafted
                accepted += run.trace.accepted
                num_passes[branches] += run.trace.num_target_passes
    assert accepted["Forks, others"] > 8
    assert drafted["Forks, others"] - accepted["Forks, others"] > 40
    assert accepted["Forks"] > 40
    assert num_passes[20] < num_passes[0]
    assert max(num_passes[1], num_passes[3]) <= num_passes[0]


@given(st.lists(st.lists(st.integers(0, 12), max_size=4), max_size=30), st.integers(0, 10**6), st.integers(0, 6))
def test_any_siblings_leave_state_and_cache_right(guesses: list[list[int]], seed: int, branches: int) -> None:
    """Whatever is drafted and named beside it, by drafters that know nothing."""
    rounds = iter(guesses)

    class Wild(Forks):
        def propose(self, view: DraftView) -> Iterator[int]:
            yield from [] if view.drafted else next(rounds, [])

        def others(self, view: DraftView) -> Iterable[Any]:
            return next(rounds, [])

    plain = decode(STRING, seed, None, Sampling())
    assert figures(decode(STRING, seed, setup([Wild((), 2)], branches=branches), Sampling())) == figures(plain)


def test_a_cache_cut_by_length_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison sees a cache that keeps the first tokens of a tree, whichever were accepted."""

    def cut(self: Model, path: Sequence[int]) -> None:
        del self.tokens[self.last[0] + len(path) :]

    monkeypatch.setattr(Model, "keep", cut)
    with pytest.raises(AssertionError):
        test_texts_are_those_of_plain_decoding(Sampling())


def test_a_table_branches() -> None:
    """Over types of few choices and one table: texts are the same, siblings are accepted and refused."""
    drafted, accepted = Counter[str](), Counter[str]()
    types: list[Any] = [list[bool], tuple[bool, bool | None, bool]]
    for number, output_type in enumerate(types):
        automaton = automaton_of(lower(output_type, whitespace="compact").grammar)
        memory = DraftMemory()
        for seed in range(30):
            runs = []
            for speculation in (None, setup([StateTable()], branches=3, memory=memory)):
                target = Markov(number, len(TOKENS), liking=liking(), strength=2.0)
                request = Request(prompt_token_ids=tuple(b"ab"), max_tokens=30, seed=seed)
                runs.append(Decoding(target, automaton.start(), BYTES, request, speculation))
                runs[-1].run()
            assert figures(runs[0]) == figures(runs[1])
            drafted += runs[1].trace.drafted
            accepted += runs[1].trace.accepted
    name = "StateTable, others"
    assert drafted[name] > accepted[name] > 10


def test_followers_that_are_not_the_likeliest() -> None:
    """Tokens that followed twice, and in more than an eighth of the cases, the likeliest first."""
    followers = Followers(10)
    for token_id, times in ((1, 9), (2, 4), (3, 2), (4, 1)):
        for _ in range(times):
            followers.add("here", token_id)
    assert [(one.token_id, one.kind) for one in followers.others("here")] == [(1, "third"), (2, "eighth")]
    assert followers.others("elsewhere") == []


def test_a_transformers_model_writes_the_same() -> None:
    """With a real KV cache in float64: branches change the passes alone; deterministic passes are chains."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    accepted = drafted = 0
    flags = sg.JsonSchema({"type": "array", "items": {"type": "boolean"}, "minItems": 8, "maxItems": 8})
    for seed in range(6):
        plain = model.run(flags, "x", seed=seed, max_tokens=80, speculation=sg.Speculation.off())
        for deterministic in (False, True):
            options: dict[str, Any] = {"seed": seed, "max_tokens": 80, "deterministic": deterministic}
            speculation = sg.Speculation(drafters=[StateTable()], branches=4, adaptive=False)
            run = model.run(flags, "x", speculation=speculation, **options)
            assert run.token_ids == plain.token_ids
            drafted += run.report.drafted.get("StateTable, others", 0)
            accepted += run.report.accepted.get("StateTable, others", 0)
    assert drafted > accepted > 3


def control(seconds: dict[int, float]) -> RouteControl:
    """Return a control of a machine with these costs."""
    return RouteControl("route", ["Forks"], PassCosts(seconds), max_draft_tokens=8)


def test_siblings_are_read_where_they_pay() -> None:
    """Likely ones on a machine where a wider pass costs next to nothing, none where it costs as much as a pass."""
    siblings = [Sibling(0, 5, Place("x", "a")), Sibling(1, 6, Place("x", "b")), Sibling(1, 7, Place("x", "c"))]
    chain = [Place("Forks"), Place("Forks")]
    cheap, dear = control({1: 1.0, 2: 1.01, 16: 1.02}), control({1: 1.0, 2: 2.0, 16: 16.0})
    for made in (cheap, dear):
        for sibling, accepted in zip(siblings, (0, 9, 3), strict=True):
            for trial in range(20):
                made._estimates.record(sibling.place, accepted=trial < accepted)
    assert cheap.branch(chain, siblings, 8) == [siblings[1], siblings[2], siblings[0]]
    assert cheap.branch(chain, siblings, 1) == [siblings[1]]
    assert dear.branch(chain, siblings, 8) == []


@pytest.mark.parametrize(
    ("token_ids", "num_accepted", "learnt"),
    [
        ([1, 2, 9], 2, [("chain", 2, 2), ("a", 0, 1), ("b", 0, 1), ("c", 1, 1)]),
        ([1, 6, 3], 1, [("chain", 1, 2), ("a", 0, 1), ("b", 1, 1), ("c", 0, 0)]),
        ([5, 2, 9], 0, [("chain", 0, 1), ("a", 1, 1), ("b", 0, 0), ("c", 0, 0)]),
    ],
)
def test_what_a_round_teaches(token_ids: list[int], num_accepted: int, learnt: Sequence[tuple[str, int, int]]) -> None:
    """Siblings are compared where the text came to their place, read or not; a chain as far as it was followed."""
    route = control({1: 1.0, 2: 2.0, 16: 16.0})
    request = RequestControl(route, draws_by_itself=False, most_branches=4)
    tried: list[Any] = []
    route.record = lambda outcome: tried.extend(outcome.tried)  # type: ignore[method-assign]
    route.keep = lambda places, num_rows=1: len(places)  # type: ignore[method-assign]
    request.start_round(1)
    request.keep([Place("chain"), Place("chain")], [1, 2], is_drawn=False)
    request.branch([Sibling(0, 5, Place("a")), Sibling(1, 6, Place("b")), Sibling(2, 9, Place("c"))])
    made = Round(
        num_accepted=num_accepted, num_draws=3, token_ids=token_ids, draft_s={}, width=3, verify_s=1.0, num_rows=1
    )
    request.record(made)
    for name, successes, trials in learnt:
        found = [one.accepted for one in tried if one.place.drafter == name]
        assert (sum(found), len(found)) == (successes, trials)


def test_the_status_of_siblings_is_of_those_that_were_read() -> None:
    """They are drafters of their own in the metrics: on while they are read, and off when they are not."""
    route = control({1: 1.0, 2: 1.01, 16: 1.02})
    for most in (4, 0):
        request = RequestControl(route, draws_by_itself=False, most_branches=most)
        for number in range(40):
            request.start_round(1)
            request.keep([], [], is_drawn=False)
            read = request.branch([Sibling(0, 5, Place("Forks, others")), Sibling(0, 6, Place("Forks, others"))])
            assert len(read) == (2 if most else 0)
            made = Round(
                num_accepted=0, num_draws=1, token_ids=[5 + number % 2], draft_s={}, width=1 + len(read), verify_s=1.0
            )
            request.record(made)
        status = route.status()["Forks, others"]
        assert status.has_drafted
        if most:
            assert (status.is_on, status.draft_tokens) == (True, pytest.approx(2.0))
            assert status.acceptance == pytest.approx(0.5, abs=0.05)
    assert not status.is_on
