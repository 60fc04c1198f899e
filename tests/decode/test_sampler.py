"""The sampler against an independent float64 reference, and what it must not depend on."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sampling_reference import Reference
from structgen.config import PenaltyScope, Sampling
from structgen.decode.sampler import Sampler, Step, resolve_seed
from structgen.errors import NoLegalTokenError, OptionError

INFINITY = math.inf
SIZE = 40


def pack(token_ids: Iterable[int], size: int = SIZE) -> np.ndarray:
    """Pack a set of token ids by arithmetic on Python ints."""
    bits = sum(1 << token_id for token_id in set(token_ids))
    words = [bits >> (32 * i) & 0xFFFFFFFF for i in range(-(-size // 32))]
    return np.array(words, dtype=np.uint32).astype(np.int32)


def step(legal: Iterable[int], *, size: int = SIZE, free_text: Iterable[int] | None = None, position: int = 0) -> Step:
    """Make a step."""
    return Step(
        mask=pack(legal, size),
        free_text_mask=None if free_text is None else pack(free_text, size),
        position=position,
        describe=lambda: "state 7, after '\"age\": '",
    )


def sampler(sampling: Sampling, *, seed: int = 1, size: int = SIZE, generated: Iterable[int] = ()) -> Sampler:
    """Make a sampler that has seen tokens generated inside free text."""
    result = Sampler(sampling, seed=seed, vocabulary_size=size)
    for token_id in generated:
        result.count(token_id, pack(range(size), size))
    return result


def probabilities(made: Sampler, logits: torch.Tensor, where: Step, temperature: float) -> np.ndarray:
    """Return the law of the draw: softmax of the processed row at the temperature."""
    row = made.process(logits, where)[0].double().numpy() / temperature
    weights = np.exp(row - row.max())
    return weights / weights.sum()


samplings = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.3, 1.0, 2.5])},
    optional={
        "top_p": st.sampled_from([0.05, 0.33, 0.77, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.03, 0.41, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.3, 0.8]),
        "presence_penalty": st.sampled_from([0.0, 0.7]),
        "frequency_penalty": st.sampled_from([0.0, 0.4, -0.2]),
        "penalty_scope": st.sampled_from(list(PenaltyScope)),
        "logit_bias": st.dictionaries(st.integers(0, SIZE - 1), st.sampled_from([-3.0, 0.5, 4.0])),
    },
)


@given(
    options=samplings,
    top_k=st.sampled_from([None, 1, 3, 10, 39, 500]),
    logits=st.lists(st.integers(-8, 8).map(lambda n: n / 2), min_size=SIZE, max_size=SIZE),
    legal=st.sets(st.integers(0, SIZE - 1), min_size=1),
    free_text=st.sets(st.integers(0, SIZE - 1)),
    generated=st.lists(st.integers(0, SIZE - 1), max_size=6),
)
@settings(max_examples=400, deadline=None)
@pytest.mark.filterwarnings("ignore:top_k and top_p")
def test_law_equals_the_reference(
    options: dict[str, object],
    top_k: int | None,
    logits: list[float],
    legal: set[int],
    free_text: set[int],
    generated: list[int],
) -> None:
    """For any options, the softmax of the processed row is the promised law: same support, same probabilities."""
    sampling = Sampling(**options, top_k=top_k)  # type: ignore[arg-type]
    reference = Reference(sampling, generated)
    want = reference.law(logits, legal, free_text)
    assume(all(border > 1e-4 or border == 0.0 for border in reference.borders))
    made = sampler(sampling, generated=generated)
    got = probabilities(made, torch.tensor(logits), step(legal, free_text=free_text), sampling.temperature)
    assert np.array_equal(got > 0, np.array(want) > 0)
    assert np.allclose(got, want, rtol=3e-5, atol=1e-9)


def test_draws_follow_the_processed_law() -> None:
    """Over 8,000 positions the drawn tokens follow the reference's law: chi-square below its 99.9% point."""
    sampling = Sampling(temperature=1.4, top_p=0.93, frequency_penalty=0.5, logit_bias={2: 1.0})
    logits = [0.5, 1.0, -1.0, 0.0, 2.0, 3.0, -4.0, 0.7]
    legal, free_text, generated = {0, 1, 2, 3, 4, 6, 7}, {1, 4}, [4, 4, 0]
    want = np.array(Reference(sampling, generated).law(logits, legal, free_text))
    made = sampler(sampling, size=8, generated=generated)
    counts = np.zeros(8)
    for position in range(8000):
        where = step(legal, size=8, free_text=free_text, position=position)
        counts[made.draw(torch.tensor(logits), where).token_id] += 1
    support = want > 0
    assert counts[~support].sum() == 0
    assert support.sum() == 6
    assert (((counts - 8000 * want)[support] ** 2) / (8000 * want[support])).sum() < 20.52  # 5 degrees of freedom


def test_mask_comes_before_truncation() -> None:
    """With every legal token ranked past the 100th and top_k=40, the law is over 40 legal tokens and sums to 1."""
    logits = torch.arange(300, 0, -1).float() / 10
    legal = set(range(100, 200))
    law = probabilities(sampler(Sampling(top_k=40), size=300), logits, step(legal, size=300), 1.0)
    assert set(np.nonzero(law)[0]) == set(range(100, 140))
    assert law.sum() == pytest.approx(1.0)


def test_bias_cannot_revive_an_illegal_token() -> None:
    """However large the bias, only a legal token is drawn."""
    made = sampler(Sampling(logit_bias={5: 1e30}))
    assert made.draw(torch.zeros(SIZE), step({7})).token_id == 7


def test_equals_are_ordered_by_id() -> None:
    """Of equal tokens greedy takes the lowest, top_k keeps the lowest k exactly, and top_p the fewest."""
    logits = torch.zeros(SIZE)
    legal = set(range(3, 20))
    assert sampler(Sampling.greedy()).draw(logits, step(legal)).token_id == 3
    for k in (1, 2, 5):
        law = probabilities(sampler(Sampling(top_k=k)), logits, step(legal), 1.0)
        assert np.nonzero(law)[0].tolist() == list(range(3, 3 + k))
    law = probabilities(sampler(Sampling(top_p=0.5)), logits, step({4, 9}), 1.0)
    assert np.nonzero(law)[0].tolist() == [4]
    law = probabilities(sampler(Sampling(min_p=1.0)), logits, step({4, 9}), 1.0)
    assert np.nonzero(law)[0].tolist() == [4, 9]


def test_equals_at_the_border_beside_better_tokens() -> None:
    """Better tokens with higher ids stay, and only what is left of k goes to the equals."""
    logits = torch.zeros(SIZE)
    logits[[30, 35]] = 2.0
    law = probabilities(sampler(Sampling(top_k=4)), logits, step(range(SIZE)), 1.0)
    assert np.nonzero(law)[0].tolist() == [0, 1, 30, 35]


def test_top_p_widens_until_it_has_the_mass() -> None:
    """On a flat row of 5,000 tokens, top_p=0.9 keeps the first 4,500 in order of id, although it looks at 256 first."""
    law = probabilities(sampler(Sampling(top_p=0.9), size=5000), torch.zeros(5000), step(range(5000), size=5000), 1.0)
    assert np.nonzero(law)[0].tolist() == list(range(4500))


@pytest.mark.parametrize("spread", [0.05, 0.5, 1.5])
@pytest.mark.parametrize("top_k", [None, 300, 1500])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.999])
@pytest.mark.filterwarnings("ignore:top_k and top_p")
def test_wide_nuclei_equal_the_reference(spread: float, top_k: int | None, share: float) -> None:
    """Prefixes of hundreds and thousands of tokens, with many equals among them, are those of a full sort."""
    size, temperature = 2000, 1.3
    noise = np.random.default_rng(int(share * 1000)).standard_normal(size) * spread
    logits = (np.round(noise * 20) / 20).tolist()
    weights = sorted((math.exp(x / temperature) for x in logits), reverse=True)
    total, num = math.fsum(weights), int(share * size)
    # Half way between two sums, so that rounding cannot decide.
    top_p = (math.fsum(weights[:num]) + weights[num] / 2) / total
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k)
    want = Reference(sampling, []).law(logits, set(range(size)), set())
    made = sampler(sampling, size=size)
    got = probabilities(made, torch.tensor(logits), step(range(size), size=size), temperature)
    assert np.count_nonzero(want) == min(num + 1, top_k or size)
    assert np.array_equal(got > 0, np.array(want) > 0)
    assert np.allclose(got, want, rtol=3e-5)


def test_the_stricter_truncation_wins() -> None:
    """Whichever of top_k and top_p keeps fewer decides."""
    logits = torch.tensor([3.0, 2.0, 1.0, 0.0])
    for k, p, num in ((2, 0.99, 2), (4, 0.5, 1), (3, 0.85, 2)):
        with pytest.warns(UserWarning, match="stricter"):
            sampling = Sampling(top_k=k, top_p=p)
        assert (probabilities(sampler(sampling, size=4), logits, step(range(4), size=4), 1.0) > 0).sum() == num


@pytest.mark.parametrize("temperature", [5e-324, 1e-9, 1e-3])
def test_small_temperatures_are_greedy(temperature: float) -> None:
    """Down to the smallest float, a tiny temperature draws the best token, with and without truncation."""
    logits = torch.randn(SIZE, generator=torch.Generator().manual_seed(3))
    best = int(logits.argmax())
    for options in ({}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 3}):
        made = sampler(Sampling(temperature=temperature, **options))  # type: ignore[arg-type]
        assert {made.draw(logits, step(range(SIZE), position=i)).token_id for i in range(10)} == {best}


def test_a_draw_depends_on_nothing_else() -> None:
    """Batch slot, strides, padding columns, dtype of equal values, and what was drawn before do not change a draw."""
    logits = torch.randn(12, SIZE, generator=torch.Generator().manual_seed(5)).bfloat16().float()
    legal = set(range(0, SIZE, 2))
    alone = [sampler(Sampling(), seed=9).draw(logits[i].clone(), step(legal, position=i)).token_id for i in range(12)]
    one = sampler(Sampling(), seed=9)
    wide = torch.full((12, 3 * SIZE), 50.0)
    wide[:, :SIZE] = logits
    transposed = logits.T.contiguous().T
    for order in (range(12), reversed(range(12))):
        for i in order:
            where = step(legal, position=i)
            for row in (logits[i], wide[i], transposed[i], logits[i].double(), logits[i].bfloat16()):
                assert one.draw(row, where).token_id == alone[i]
    assert len(set(alone)) > 3


def test_seed_position_and_stream_change_draws() -> None:
    """Each part of the key gives other draws of the same law."""
    logits = torch.zeros(SIZE)
    where = [step(range(SIZE), position=i) for i in range(20)]

    def draws(seed: int, stream: int, shift: int) -> list[int]:
        made = sampler(Sampling(), seed=seed)
        moved = [Step(mask=w.mask, position=w.position + shift, describe=w.describe, stream=stream) for w in where]
        return [made.draw(logits, w).token_id for w in moved]

    first = draws(1, 0, 0)
    assert draws(1, 0, 0) == first
    assert len({tuple(draws(*key)) for key in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1))}) == 4
    assert draws(1, 0, 1)[:-1] == first[1:]


def test_logits_are_left_as_they_are() -> None:
    """The caller's row is not written to."""
    logits = torch.randn(SIZE)
    before = logits.clone()
    sampler(Sampling(top_k=2, logit_bias={1: 2.0}), generated=[1]).draw(logits, step({1, 2, 3}))
    assert torch.equal(logits, before)


def test_penalties_leave_structure_alone() -> None:
    """A token outside the free-text mask is neither penalised nor counted, unless the scope is everywhere."""
    logits = torch.full((SIZE,), 2.0)
    options = {"repetition_penalty": 4.0, "frequency_penalty": 1.0}
    inside = sampler(Sampling(**options), generated=[1, 1])  # type: ignore[arg-type]
    assert inside.process(logits, step({1, 2}, free_text={1}))[0][1] == 2.0 / 4 - 2
    assert inside.process(logits, step({1, 2}, free_text={2}))[0][1] == 2.0
    assert inside.process(logits, step({1, 2}))[0][1] == 2.0
    outside = Sampler(Sampling(**options), seed=1, vocabulary_size=SIZE)  # type: ignore[arg-type]
    outside.count(1, pack({2}))
    outside.count(1, None)
    assert outside.process(logits, step({1, 2}, free_text={1}))[0][1] == 2.0
    everywhere = Sampler(Sampling(**options, penalty_scope=PenaltyScope.EVERYWHERE), seed=1, vocabulary_size=SIZE)  # type: ignore[arg-type]
    everywhere.count(1, None)
    assert everywhere.process(logits, step({1, 2}))[0][1] == 2.0 / 4 - 1


@given(
    logits=st.lists(st.floats(-60, 60, width=32), min_size=SIZE, max_size=SIZE),
    legal=st.sets(st.integers(0, SIZE - 1), min_size=1),
)
@settings(max_examples=100, deadline=None)
def test_legal_mass_is_that_of_the_models_own_softmax(logits: list[float], legal: set[int]) -> None:
    """The lost mass is -log of the legal share in float64, whatever bias, temperature and truncation do."""
    top = max(logits)
    total = math.fsum(math.exp(x - top) for x in logits)
    best = max(logits[t] for t in legal)
    log_legal = best + math.log(math.fsum(math.exp(logits[t] - best) for t in legal))
    want = top + math.log(total) - log_legal
    padded = torch.tensor([*logits, 80.0, 90.0])
    for sampling in (Sampling(), Sampling.greedy(), Sampling(temperature=3, top_k=2, logit_bias={min(legal): 5.0})):
        lost = sampler(sampling).draw(padded, step(legal)).legal_mass_lost
        assert lost == pytest.approx(want, rel=1e-5, abs=2e-5)
        assert lost >= 0.0


def test_ids_without_logits_have_probability_zero() -> None:
    """A vocabulary that is larger than the model's head draws only what the head has."""
    made = sampler(Sampling())
    assert {made.draw(torch.zeros(10), step({4, 39}, position=i)).token_id for i in range(20)} == {4}
    with pytest.raises(NoLegalTokenError, match="probability zero"):
        made.draw(torch.zeros(10), step({39}))


@pytest.mark.parametrize(
    ("values", "bias", "legal", "message"),
    [
        ({}, None, set(), "the mask allows no token"),
        ({1: -INFINITY, 2: -INFINITY}, None, {1, 2}, "the model gives every legal token probability zero"),
        ({1: math.nan}, None, {1, 2}, "not numbers"),
        ({1: INFINITY}, None, {1, 2}, "not numbers"),
        ({}, {1: -INFINITY, 2: -INFINITY}, {1, 2}, "logit_bias bans every legal token"),
        ({2: -INFINITY}, {1: -INFINITY}, {1, 2}, "logit_bias bans every legal token"),
        ({}, {1: 1e39}, {1, 2}, "logit_bias or a penalty makes a logit inf"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_legal_token_is_an_error_that_names_state_and_cause(
    values: dict[int, float], bias: dict[int, float] | None, legal: set[int], message: str, temperature: float
) -> None:
    """A row from which nothing can be drawn raises, with the state's description and what made it so."""
    logits = torch.zeros(SIZE)
    for token_id, value in values.items():
        logits[token_id] = value
    made = sampler(Sampling(temperature=temperature, logit_bias=bias))
    with pytest.raises(NoLegalTokenError, match=message) as caught:
        made.draw(logits, step(legal))
    assert "state 7, after '\"age\": '" in str(caught.value)
    assert caught.value.state == "state 7, after '\"age\": '"


def test_bad_logits_of_illegal_tokens_do_no_harm() -> None:
    """A nan or an infinity on an illegal token is masked; the mass lost is then unknown or infinite, and says so."""
    for value, is_expected in ((math.nan, math.isnan), (INFINITY, math.isinf)):
        logits = torch.zeros(SIZE)
        logits[3] = value
        draw = sampler(Sampling()).draw(logits, step({1, 2}))
        assert draw.token_id in {1, 2}
        assert is_expected(draw.legal_mass_lost)


def test_a_bias_outside_the_vocabulary_is_refused() -> None:
    """A bias on an id that does not exist is a mistake, not a no-op."""
    with pytest.raises(OptionError, match="token 40, but the vocabulary ends at 39"):
        sampler(Sampling(logit_bias={40: 1.0}))


def test_seeds() -> None:
    """An int is used as it is, None draws a new one, and what does not fit 64 bits is refused."""
    assert resolve_seed(0) == 0
    assert resolve_seed(2**64 - 1) == 2**64 - 1
    assert resolve_seed(None) != resolve_seed(None)
    for bad in (-1, 2**64, 1.5, True, "7"):
        with pytest.raises(OptionError, match="seed must be None or an int"):
            resolve_seed(bad)  # type: ignore[arg-type]
