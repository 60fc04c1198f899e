"""Logits of the legal tokens alone: draws are those from whole rows, and whole rows are computed only where said."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafts import Markov, oracle, setup
from explicit import (
    A_QUOTE,
    NESTED,
    NOTHING,
    OPEN,
    QUOTE,
    STAR,
    STRING,
    VOCABULARY,
    A,
    Automaton,
    B,
    Model,
    State,
    random_logits,
)
from random_types import TOKENS, automaton_of, liking
from random_types import VOCABULARY as BYTES
from structgen.config import PenaltyScope, Sampling
from structgen.decode.causal_model import CausalModel
from structgen.decode.drafters import ForcedRun
from structgen.decode.legal_rows import MEASURED_EVERY, few_legal
from structgen.decode.loop import Decoding, Request
from structgen.decode.sampler import Sampler, Step
from structgen.decode.transformers_target import TransformersBatch
from structgen.errors import NoLegalTokenError
from structgen.output_type import lower
from tiny_models import tiny_model

SIZE = 90
SAMPLINGS = [
    Sampling(),
    Sampling.greedy(),
    Sampling(temperature=0.7, top_p=0.8),
    Sampling(top_k=2, repetition_penalty=1.3, frequency_penalty=0.3),
    Sampling(min_p=0.2, presence_penalty=0.6, penalty_scope="everywhere"),  # type: ignore[arg-type]
    Sampling(temperature=1.5, logit_bias={A: -1.5, QUOTE: 0.5, NOTHING: 90.0, B: -math.inf}),
]


def pack(token_ids: Sequence[int], size: int) -> np.ndarray:
    """Pack a set of token ids."""
    bits = np.zeros(-(-size // 32) * 32, dtype=np.uint8)
    bits[list(token_ids)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


@given(st.integers(1, 200), st.sets(st.integers(0, 199)), st.integers(1, 30))
def test_the_list_of_a_mask(size: int, legal: set[int], most: int) -> None:
    """It has the legal tokens in order; none is given for an empty mask, and for one with more of them."""
    legal = {token_id for token_id in legal if token_id < size}
    found = few_legal(pack(sorted(legal), size), most)
    assert (None if found is None else found.tolist()) == (sorted(legal) if 0 < len(legal) <= most else None)


@given(
    options=st.fixed_dictionaries(
        {"temperature": st.sampled_from([0.0, 0.3, 1.0, 2.5])},
        optional={
            "top_k": st.sampled_from([1, 3, 10, 500]),
            "top_p": st.sampled_from([0.05, 0.33, 0.77, 0.95]),
            "min_p": st.sampled_from([0.03, 0.41, 1.0]),
            "repetition_penalty": st.sampled_from([1.3, 0.8]),
            "presence_penalty": st.just(0.7),
            "frequency_penalty": st.sampled_from([0.4, -0.2]),
            "penalty_scope": st.sampled_from(list(PenaltyScope)),
            "logit_bias": st.dictionaries(st.integers(0, SIZE - 1), st.sampled_from([-3.0, 0.5, 4.0, -math.inf])),
        },
    ),
    legal=st.sets(st.integers(0, SIZE - 1), min_size=1),
    free_text=st.sets(st.integers(0, SIZE - 1)),
    generated=st.lists(st.integers(0, SIZE - 1), max_size=8),
    seed=st.integers(0, 2**64 - 1),
    is_flat=st.booleans(),
)
@settings(max_examples=100, deadline=None)
@pytest.mark.filterwarnings("ignore:top_k and top_p")
def test_a_row_of_the_legal_tokens_gives_the_same_draw(
    options: dict[str, Any], legal: set[int], free_text: set[int], generated: list[int], seed: int, is_flat: bool
) -> None:
    """For any options, ties included: the token, the row that it is drawn from, and the error where there is none."""
    rng = np.random.default_rng(seed % 2**32)
    values = rng.integers(-2, 3, SIZE) / 2 if is_flat else rng.normal(size=SIZE) * 3
    logits = torch.from_numpy(values)
    legal_ids = np.array(sorted(legal), dtype=np.int64)
    sampler = Sampler(Sampling(**options), seed=seed, vocabulary_size=SIZE)
    for token_id in generated:
        sampler.count(token_id, pack(range(SIZE), SIZE))
    for position in range(3):
        whole = Step(
            mask=pack(legal_ids.tolist(), SIZE),
            free_text_mask=pack(sorted(free_text), SIZE),
            position=position,
            describe=lambda: "here",
        )
        few = dataclasses.replace(whole, token_ids=legal_ids)
        if all(options.get("logit_bias", {}).get(token_id) == -math.inf for token_id in legal):
            told = [_error(sampler, logits, whole), _error(sampler, logits[legal_ids], few)]
            assert told[0] == told[1]
            continue
        drawn = sampler.draw(logits, whole)
        same = sampler.draw(logits[legal_ids], few)
        assert (same.token_id, same.legal_mass_lost) == (drawn.token_id, None)
        row, lost = sampler.process(logits, whole)
        torch.testing.assert_close(sampler.process(logits[legal_ids], few)[0], row[legal_ids], rtol=0, atol=0)
        assert sampler.legal_mass_lost(logits, legal_ids) == pytest.approx(lost, abs=1e-6)


def _error(sampler: Sampler, logits: torch.Tensor, step: Step) -> str:
    with pytest.raises(NoLegalTokenError) as caught:
        sampler.draw(logits, step)
    return str(caught.value)


def test_lost_mass_of_rows_that_are_none() -> None:
    """Where the model gives the legal tokens nothing all is lost; where it gives no numbers it is not known."""
    sampler, legal = Sampler(Sampling(), seed=0, vocabulary_size=4), np.array([1, 2])
    assert sampler.legal_mass_lost(torch.tensor([0.0, -math.inf, -math.inf, 1.0]), legal) == math.inf
    assert math.isnan(sampler.legal_mass_lost(torch.tensor([math.nan, 0.0, 0.0, 1.0]), legal))


class Watched:
    """A target that tells how its head is used, and may be told never to compute a few rows only."""

    def __init__(self, target: Any, *, most_legal_rows: int) -> None:
        self._target = target
        self.most_legal_rows = most_legal_rows
        self.used = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def head(self, hidden: torch.Tensor, token_ids: Any = None) -> torch.Tensor:
        self.used["whole" if token_ids is None else "few"] += 1
        found: torch.Tensor = self._target.head(hidden, token_ids)
        assert found.shape == (len(hidden), self.logits_width if token_ids is None else len(token_ids))
        return found


def figures(decoding: Decoding) -> tuple[Any, ...]:
    """Return what the rows that were computed must not change."""
    trace = decoding.trace
    return decoding.token_ids, decoding.text, trace.num_draws, trace.truncated, trace.stopped_by, trace.accepted


@pytest.mark.parametrize(
    "name", ["llama", "qwen2, tied", "phi, head with a bias", "gemma2, soft caps", "granite, scaled logits"]
)
def test_texts_are_those_of_whole_rows(name: str) -> None:
    """With heads of every kind, wider than the vocabulary, in float64: any options, drafts accepted and rejected."""
    causal = CausalModel(tiny_model(name))
    used, drafted, accepted = Counter[str](), Counter[str](), Counter[str]()
    for number, sampling in enumerate(SAMPLINGS):
        for automaton in (STRING, NESTED, STAR):
            runs: list[Decoding] = []
            for most in (0, 4, 7):
                target = Watched(TransformersBatch(causal).join(), most_legal_rows=most)
                request = Request(prompt_token_ids=(A, B), max_tokens=12, seed=number, sampling=sampling)
                drafter = oracle(2, runs[0].token_ids if runs else [], wrong_every=3, size=VOCABULARY.size)
                runs.append(Decoding(target, State(automaton), VOCABULARY, request, setup([drafter]) if runs else None))  # type: ignore[arg-type]
                runs[-1].run()
                assert figures(runs[-1])[:5] == figures(runs[0])[:5]
                used += Counter({f"{most} {kind}": count for kind, count in target.used.items()})
                drafted += runs[-1].trace.drafted
                accepted += runs[-1].trace.accepted
    assert used["0 few"] == 0
    assert min(used["4 few"], used["4 whole"], used["7 few"]) > 10
    assert sum(drafted.values()) > sum(accepted.values()) > 40


def test_texts_over_schemas_are_those_of_whole_rows() -> None:
    """Over types of many states and a repetitive model: few rows or whole ones, text and counts are the same."""
    types: list[Any] = [list[bool], dict[str, int], tuple[bool, float | None], list[tuple[str, bool]]]
    num_few = 0
    for seed in range(24):
        automaton = automaton_of(lower(types[seed % len(types)], whitespace="spaced").grammar)
        runs = []
        for most in (0, 8, 40):
            target = Markov(seed, len(TOKENS), liking=liking())
            target.most_legal_rows = most
            state = automaton.start()
            request = Request(
                prompt_token_ids=tuple(b"abc"),
                max_tokens=state.tokens_to_end_bound + 25,
                seed=seed,
                sampling=SAMPLINGS[seed % 5],
            )
            runs.append(Decoding(target, state, BYTES, request, setup([ForcedRun()])))
            runs[-1].run()
            assert figures(runs[-1]) == figures(runs[0])
            num_few += target.num_few_heads
    assert num_few > 100


def decode(automaton: Automaton, model: Model, *, diagnostics: bool = False, max_tokens: int = 80) -> Decoding:
    """Decode to the end."""
    request = Request(prompt_token_ids=(A, B), max_tokens=max_tokens, seed=4, diagnostics=diagnostics)
    decoding = Decoding(model, State(automaton), VOCABULARY, request)  # type: ignore[arg-type]
    decoding.run()
    return decoding


def test_the_lost_mass_is_measured_where_it_is_said() -> None:
    """At one draw in 16, or with diagnostics at all: the figures are those of whole rows, the text is the same."""

    def goes_on(tokens: list[int]) -> torch.Tensor:
        row = random_logits(tokens).double()
        row[[QUOTE, A_QUOTE]] -= 30.0 if len(tokens) < 55 else -9.0
        return row

    whole = decode(STRING, Model(goes_on))
    some = decode(STRING, Model(goes_on, most_legal_rows=8))
    every = decode(STRING, Model(goes_on, most_legal_rows=8), diagnostics=True)
    assert some.token_ids == every.token_ids == whole.token_ids
    num_draws = whole.trace.num_draws
    assert num_draws > 3 * MEASURED_EVERY
    assert whole.trace.num_measured == every.trace.num_measured == num_draws
    assert some.trace.num_measured == len(range(0, num_draws, MEASURED_EVERY))
    assert every.trace.legal_mass_lost == pytest.approx(whole.trace.legal_mass_lost, rel=1e-6)
    assert every.trace.most_mass_lost == pytest.approx(whole.trace.most_mass_lost, rel=1e-6)
    assert 0 < some.trace.legal_mass_lost < whole.trace.legal_mass_lost


def test_one_legal_token_needs_no_head() -> None:
    """It is drawn whatever the model says of it, numbers or none, unless a bias bans it."""
    automaton: Automaton = {"start": {OPEN: "1"}, "1": {QUOTE: "2"}, "2": {A: "end"}, "end": {}}
    model = Model(lambda _: torch.full((16,), math.nan), most_legal_rows=8)
    decoding = decode(automaton, model)
    assert decoding.token_ids == [OPEN, QUOTE, A]
    assert model.num_few_heads == 0
    assert math.isnan(decoding.trace.legal_mass_lost)  # of the first draw, which is measured
    request = Request(prompt_token_ids=(A,), max_tokens=9, seed=0, sampling=Sampling(logit_bias={QUOTE: -math.inf}))
    banned = Decoding(Model(random_logits, most_legal_rows=8), State(automaton), VOCABULARY, request)  # type: ignore[arg-type]
    with pytest.raises(NoLegalTokenError, match=r"explicit state '1'.*bans every legal token"):
        banned.run()


def test_lists_that_are_not_few_together_take_heads_of_their_own() -> None:
    """A draft over states with other tokens is read in as many heads as their lists need, none longer than allowed."""
    automaton: Automaton = {str(i): {t: str(i + 1) for t in (i, i + 1, i + 2)} for i in range(6)}
    automaton |= {"6": {A: "end"}, "end": {}}
    plain = decode(automaton, Model(random_logits))
    drafter = oracle(2, plain.token_ids, wrong_every=99, size=VOCABULARY.size)
    for most, num_heads in ((3, 6), (6, 3), (12, 2), (2, 0)):
        model = Model(random_logits, most_legal_rows=most)
        request = Request(prompt_token_ids=(A, B), max_tokens=60, seed=4)
        decoding = Decoding(model, State(automaton), VOCABULARY, request, setup([drafter]))  # type: ignore[arg-type]
        decoding.run()
        assert decoding.token_ids == plain.token_ids
        assert (len(model.calls), model.num_few_heads) == (1, num_heads)


def test_ids_that_the_head_has_no_rows_for() -> None:
    """A vocabulary that is larger than the head: where such an id is legal the whole row is taken; it is not drawn."""
    automaton: Automaton = {"start": {QUOTE: "body"}, "body": {A: "end", NOTHING: "end"}, "end": {}}
    model = Model(lambda tokens: random_logits(tokens)[:NOTHING], most_legal_rows=8)
    model.logits_width = NOTHING
    decoding = decode(automaton, model)
    assert decoding.token_ids == [QUOTE, A]
    assert model.num_few_heads == 0
