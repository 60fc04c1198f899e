"""The engine loop over small explicit automata and scripted models: budgets, ends, counts, text and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from explicit import (
    A9,
    A_QUOTE,
    C3,
    NESTED,
    NOTHING,
    OPEN,
    OTHER_STOP,
    QUOTE,
    STAR,
    STOP,
    STRING,
    VOCABULARY,
    A,
    Automaton,
    B,
    Model,
    State,
    favourite,
    random_logits,
)
from records import make_record
from structgen.config import Sampling
from structgen.decode.loop import Decoding, Request
from structgen.errors import BudgetError, NoLegalTokenError, OptionError
from structgen.kernels.gumbel import NoiseKey, gumbel_argmax_reference


def decode(
    automaton: Automaton,
    logits: Callable[[list[int]], torch.Tensor],
    *,
    max_tokens: int = 20,
    seed: int = 1,
    prompt: tuple[int, ...] = (A, B),
    sampling: Sampling | None = None,
) -> tuple[Decoding, Model]:
    """Decode to the end."""
    model = Model(logits)
    request = Request(prompt_token_ids=prompt, max_tokens=max_tokens, seed=seed, sampling=sampling or Sampling())
    decoding = Decoding(model, State(automaton), VOCABULARY, request)
    decoding.run()
    return decoding, model


def is_in_language(automaton: Automaton, token_ids: list[int]) -> bool:
    """Walk the tokens."""
    state = State(automaton)
    for token_id in token_ids:
        state.advance(token_id)
    return state.is_accepting


HOSTILE = {
    "random": random_logits,
    "never ends": favourite(A),
    "half a character": favourite(C3),
    "opens": favourite(OPEN),
    "illegal": favourite(A9),
    "stops at once": favourite(STOP),
    "infinite on an illegal token": favourite(NOTHING, float("inf")),
    "uniform": lambda _: torch.zeros(16),
}


@pytest.mark.parametrize("automaton", [STRING, NESTED, STAR], ids=["string", "nested", "star"])
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_text_is_complete_within_any_budget(automaton: Automaton, name: str, temperature: float) -> None:
    """Whatever the model prefers, at every budget from the finishing cost on, the text is in the language and fits."""
    needed = State(automaton).tokens_to_end_bound
    for max_tokens in (needed, needed + 1, needed + 2, needed + 5, 40):
        decoding, _ = decode(
            automaton, HOSTILE[name], max_tokens=max_tokens, sampling=Sampling(temperature=temperature)
        )
        assert is_in_language(automaton, decoding.token_ids)
        assert len(decoding.token_ids) <= max_tokens


@pytest.mark.parametrize("automaton", [STRING, NESTED], ids=["string", "nested"])
def test_a_budget_below_the_finishing_cost_is_refused(automaton: Automaton) -> None:
    """One token less than the finishing cost is refused before the model is asked, and the message gives the cost."""
    needed = State(automaton).tokens_to_end_bound
    assert needed == 2
    model = Model(random_logits)
    with pytest.raises(BudgetError, match=f"needs {needed}; pass max_tokens={needed}") as caught:
        Decoding(model, State(automaton), VOCABULARY, Request(prompt_token_ids=(A,), max_tokens=needed - 1, seed=1))
    assert (caught.value.max_tokens, caught.value.needed) == (needed - 1, needed)
    assert model.calls == []


def test_truncated_says_whether_the_budget_cut_anything() -> None:
    """A budget that never took a choice away leaves `truncated` and the law as they are; one that did is told."""
    cut, _ = decode(STRING, favourite(A), max_tokens=6)
    assert cut.text == '"aaaa"'
    assert cut.trace.truncated
    free, _ = decode(STRING, favourite(QUOTE), max_tokens=6)
    assert free.text == '""'
    assert not free.trace.truncated
    at_the_end, _ = decode(STAR, favourite(A), max_tokens=3)
    assert at_the_end.token_ids == [A, A, A]
    assert at_the_end.trace.truncated
    stopped, _ = decode(STAR, favourite(OTHER_STOP), max_tokens=3)
    assert stopped.token_ids == []
    assert not stopped.trace.truncated


def test_stop_token_is_neither_counted_nor_returned() -> None:
    """A drawn stop ends the text without being part of it; either stop id will do."""
    for stop in (STOP, OTHER_STOP):
        decoding, model = decode(STAR, lambda tokens, s=stop: favourite(s if len(tokens) == 5 else A)(tokens))  # type: ignore[misc]
        assert decoding.token_ids == [A, A, A]
        assert decoding.trace.num_tokens == 3
        assert decoding.trace.num_target_passes == 4
        assert model.calls == [2, 1, 1, 1]
        assert decoding.step() is None


def test_no_pass_is_made_where_the_end_is_the_only_choice() -> None:
    """After the closing quote only a stop is legal: the text ends without asking the model."""
    decoding, model = decode(STRING, favourite(QUOTE))
    assert decoding.token_ids == [QUOTE, QUOTE]
    assert len(model.calls) == 2
    empty, idle = decode(STAR, random_logits, max_tokens=0)
    assert (empty.token_ids, empty.text, idle.calls) == ([], "", [])


def naive(automaton: Automaton, prompt: tuple[int, ...], seed: int, max_tokens: int) -> list[int]:
    """Decode by the plainest code: all noise, one dictionary of legal tokens a step."""
    state, tokens = State(automaton), list(prompt)
    while len(tokens) - len(prompt) < max_tokens:
        left = max_tokens - (len(tokens) - len(prompt))
        edges = automaton[state.state]
        legal = [t for t, target in edges.items() if state.costs[target] < left]
        if not legal:
            break
        row = np.full(VOCABULARY.size, -np.inf, dtype=np.float32)
        for token_id in legal + ([STOP, OTHER_STOP] if state.is_accepting else []):
            row[token_id] = random_logits(tokens)[token_id]
        token_id = gumbel_argmax_reference(row, 1.0, NoiseKey(seed, len(tokens)))
        if token_id in (STOP, OTHER_STOP):
            break
        state.advance(token_id)
        tokens.append(token_id)
    return tokens[len(prompt) :]


@pytest.mark.parametrize("automaton", [STRING, NESTED, STAR], ids=["string", "nested", "star"])
def test_tokens_equal_those_of_plain_code(automaton: Automaton) -> None:
    """For 40 seeds the tokens are those of an independent loop with noise keyed by seed and absolute position."""
    texts = set()
    for seed in range(40):
        decoding, _ = decode(automaton, random_logits, seed=seed, max_tokens=9)
        assert decoding.token_ids == naive(automaton, (A, B), seed, 9)
        texts.add(decoding.text)
    assert len(texts) >= 3


def test_stream_gives_another_text_from_the_same_seed() -> None:
    """Requests that differ in the stream alone draw differently; the same request draws the same."""

    def text(stream: int) -> str:
        request = Request(prompt_token_ids=(A,), max_tokens=30, seed=5, stream=stream)
        decoding = Decoding(Model(lambda _: torch.zeros(16)), State(STRING), VOCABULARY, request)
        decoding.run()
        return decoding.text

    texts = [text(stream) for stream in range(6)]
    assert texts == [text(stream) for stream in range(6)]
    assert len(set(texts)) > 3


def test_text_comes_in_whole_characters() -> None:
    """A step returns what its token completes: nothing for the first byte of é, then the character."""
    script: Iterator[int] = iter([QUOTE, A, C3, A9, A_QUOTE])
    model = Model(lambda _: favourite(next(script))([]))
    decoding = Decoding(model, State(STRING), VOCABULARY, Request(prompt_token_ids=(A,), max_tokens=9, seed=0))
    pieces = []
    while (piece := decoding.step()) is not None:
        pieces.append(piece)
    assert pieces == ['"', "a", "", "é", 'a"']
    assert decoding.text == '"aéa"'
    assert VOCABULARY.decode(decoding.token_ids).decode() == decoding.text


def test_bytes_that_are_no_text_are_not_hidden() -> None:
    """An automaton that lets half a character through is a fault, and the text does not cover it up."""
    broken: Automaton = {"start": {C3: "half"}, "half": {A: "end"}, "end": {}}
    decoding = Decoding(
        Model(random_logits), State(broken), VOCABULARY, Request(prompt_token_ids=(A,), max_tokens=9, seed=0)
    )
    with pytest.raises(UnicodeDecodeError):
        decoding.run()


def test_equal_masks_are_compared_only_where_they_are_two_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the state gives the same array twice, the budget took nothing and no mask is read for it."""

    class Same(State):
        def __init__(self, automaton: Automaton) -> None:
            super().__init__(automaton)
            self.kept: dict[str, np.ndarray] = {}

        def mask_within(self, budget: int) -> np.ndarray:
            return self.kept.setdefault(self.state, super().mask_within(budget))

    def refuse(*_: object) -> bool:
        raise LookupError("compared")

    monkeypatch.setattr(np, "array_equal", refuse)
    request = Request(prompt_token_ids=(A,), max_tokens=9, seed=0)
    decoding = Decoding(Model(favourite(A)), Same(STAR), VOCABULARY, request)
    assert decoding.step() == "a"
    with pytest.raises(LookupError, match="compared"):
        Decoding(Model(favourite(A)), State(STAR), VOCABULARY, request).step()


def test_penalties_reach_free_text_only() -> None:
    """A strong frequency penalty makes a greedy model alternate inside the string, and the quotes stay free."""

    def prefers_a_then_b(tokens: list[int]) -> torch.Tensor:
        row = torch.zeros(16)
        row[A], row[B], row[QUOTE], row[C3], row[A_QUOTE] = 5.0, 4.5, -9.0 if len(tokens) < 6 else 9.0, -9.0, -9.0
        return row

    plain, _ = decode(STRING, prefers_a_then_b, sampling=Sampling.greedy())
    penalised, _ = decode(
        STRING, prefers_a_then_b, sampling=Sampling(temperature=0, frequency_penalty=1.0, presence_penalty=0.0)
    )
    assert plain.text == '"aaa"'
    assert penalised.text == '"aba"'


def test_a_request_that_fails_fails_alone() -> None:
    """Logits that are not numbers raise with the state's name; another request on its own target goes on."""
    broken = Model(lambda tokens: torch.full((16,), float("nan")) if len(tokens) > 3 else favourite(A)(tokens))
    sound = Model(favourite(A))
    request = Request(prompt_token_ids=(A,), max_tokens=9, seed=0)
    failing = Decoding(broken, State(STRING), VOCABULARY, request)
    working = Decoding(sound, State(STRING), VOCABULARY, request)
    failing.step()
    working.step()
    failing.step()
    with pytest.raises(NoLegalTokenError, match=r"explicit state 'body'.*not numbers"):
        failing.run()
    working.run()
    assert is_in_language(STRING, working.token_ids)


def test_a_state_without_tokens_or_end_is_an_error() -> None:
    """A state that allows nothing and may not end raises: found while the model reads, and before anything is drawn."""

    class Stuck(State):
        def mask_within(self, budget: int) -> np.ndarray:
            return np.zeros(1, dtype=np.int32)

    model = Model(random_logits)
    decoding = Decoding(model, Stuck(STRING), VOCABULARY, Request(prompt_token_ids=(A,), max_tokens=9, seed=0))
    with pytest.raises(NoLegalTokenError, match=r"explicit state 'start'.*may not end here"):
        decoding.step()
    assert model.calls == [1]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [((), 5, "the prompt has no tokens"), ((A,), -1, "max_tokens must be"), ((A,), 2.5, "max_tokens must be")],
)
def test_requests_are_checked(prompt: tuple[int, ...], max_tokens: int, message: str) -> None:
    """An empty prompt and a budget that is no count are refused when the request is made."""
    with pytest.raises(OptionError, match=message):
        Request(prompt_token_ids=prompt, max_tokens=max_tokens, seed=0)


def test_report_adds_up() -> None:
    """Counts are those of the calls, the parts of the time fit the whole, and the mass lost is the sum of the steps."""
    decoding, model = decode(NESTED, lambda _: torch.zeros(16), seed=3)
    record = make_record()
    report = decoding.trace.report(compile_cache="miss", record=record)
    assert report.law == "masked target"
    assert report.num_prompt_tokens == 2
    assert report.num_tokens == len(decoding.token_ids)
    assert report.num_target_passes == len(model.calls) == report.num_tokens
    assert report.tokens_per_target_pass == 1.0
    assert report.num_measured_steps == report.num_tokens
    # Eleven ids, all equally likely: a step with n legal tokens keeps n / 11.
    state, lost = State(NESTED), []
    for token_id in decoding.token_ids:
        lost.append(np.log(11 / len(NESTED[state.state])))
        state.advance(token_id)
    assert report.legal_mass_lost == pytest.approx(sum(lost), rel=1e-5)
    assert report.min_legal_mass == pytest.approx(1 / 11, rel=1e-5)
    parts = report.prefill_s + report.verify_s + report.mask_s + report.sample_s
    assert 0 < parts <= report.total_s
    assert 0 < report.ttft_s <= report.total_s
    assert report.ttft_s + report.tpot_s * (report.num_tokens - 1) <= report.total_s
    assert report.record is record


def test_report_of_a_text_without_a_pass() -> None:
    """An empty text that needed no pass has no times per token and lost nothing."""
    decoding, _ = decode(STAR, random_logits, max_tokens=0)
    report = decoding.trace.report(compile_cache="hit", record=make_record())
    assert (report.tokens_per_target_pass, report.ttft_s, report.tpot_s) == (0.0, 0.0, 0.0)
    assert (report.legal_mass_lost, report.min_legal_mass, report.num_measured_steps) == (0.0, 1.0, 0)
    assert report.law == "masked target given the budget"
