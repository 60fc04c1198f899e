"""The keyed draw: published Philox vectors, the law of the noise, and the quick draw against the plain one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structgen.kernels._numba.gumbel import fill_words
from structgen.kernels.gumbel import (
    LEAST_TEMPERATURE,
    NoiseKey,
    gumbel_argmax_reference,
    gumbel_noise,
    gumbel_of_words,
    philox4x32,
)
from structgen.kernels.sample_row import ALL, GivenRow, RowNumbers, sample_row

# philox4x32 with 10 rounds, from the file of known answers of Random123 1.14: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def numbers(text: str) -> list[int]:
    """Read words in hexadecimal."""
    return [int(word, 16) for word in text.split()]


def quick(logits: np.ndarray, temperature: float, key: NoiseKey, token_ids: np.ndarray = ALL) -> int:
    """Draw by the compiled loop, from logits of all tokens or of some."""
    words = np.full(-(-len(logits) // 32), -1, dtype=np.int32)
    row = GivenRow(torch.from_numpy(logits), words, len(logits), ids=token_ids)
    return sample_row(row, RowNumbers(temperature).packed(), key=key.packed()).token_id


def draw(logits: list[float], temperature: float, key: NoiseKey) -> int:
    """Draw from a few numbers."""
    return quick(np.array(logits, dtype=np.float32), temperature, key)


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(counter: str, key: str, result: str) -> None:
    """The plain form agrees with Random123's known answers."""
    key_low, key_high = numbers(key)
    words = philox4x32(np.array(numbers(counter), dtype=np.uint64), (key_low, key_high))
    assert words.tolist() == numbers(result)


def test_compiled_philox_gives_the_published_words() -> None:
    """The compiled form agrees too, where its counter layout (block, position, stream, 0) reaches: all zero."""
    words = np.empty(64, dtype=np.uint32)
    least = fill_words(0, np.zeros(4, dtype=np.uint64), words)
    assert words[::16].tolist() == numbers(KNOWN_ANSWERS[0][2])
    assert least == words.min()


@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**32 - 1),
    stream=st.integers(0, 2**32 - 1),
    group=st.integers(0, 2**16),
)
@settings(max_examples=50, deadline=None)
def test_compiled_words_equal_the_plain_words(seed: int, position: int, stream: int, group: int) -> None:
    """For any key, every word of a group is bit for bit that of the plain form."""
    key = NoiseKey(seed, position, stream)
    words = np.empty(64, dtype=np.uint32)
    fill_words(group, key.packed(), words)
    counter = np.zeros((16, 4), dtype=np.uint64)
    counter[:, 0] = 16 * group + np.arange(16, dtype=np.uint64)
    counter[:, 1], counter[:, 2] = position, stream
    # The words of one kind stand together.
    assert np.array_equal(words.reshape(4, 16).T, philox4x32(counter, (seed % 2**32, seed >> 32)))


def test_noise_is_the_documented_function_of_the_word() -> None:
    """The noise is -log(-log(1 - (w + 1/2) / 2**32)), w = word token % 4 of block token // 4, key the seed."""
    key = NoiseKey(seed=0x299F31D0A4093822, position=0x85A308D3, stream=0x13198A2E)
    for token_id in (0, 1, 2, 3, 4, 49151, 0x243F6A88 * 4 + 1):
        counter = np.array([token_id // 4, key.position, key.stream, 0], dtype=np.uint64)
        word = int(philox4x32(counter, (0xA4093822, 0x299F31D0))[token_id % 4])
        want = -math.log(-math.log1p(-(word + 0.5) / 2**32))
        assert gumbel_noise(np.array([token_id]), key)[0] == pytest.approx(want, rel=1e-14)


def test_extreme_words_give_finite_noise() -> None:
    """The least and the greatest word give finite noise, within the bound that the quick form passes over by."""
    most, least = gumbel_of_words(np.array([0, 2**32 - 1], dtype=np.uint64))
    assert most == pytest.approx(33 * math.log(2), rel=1e-9)
    assert most < 22.9
    assert least == pytest.approx(-math.log(33 * math.log(2)), rel=1e-9)


def test_law_of_the_noise_by_integration() -> None:
    """With the other tokens' noise Gumbel, a token whose noise runs over an even grid of words wins with softmax."""
    logits = np.array([0.3, -1.0, 2.0, 0.0])
    noise = gumbel_of_words(np.arange(1 << 20, dtype=np.uint64) * 4096 + 2048)
    softmax = np.exp(logits) / np.exp(logits).sum()
    for i, logit in enumerate(logits):
        others = np.delete(logits, i)
        wins = np.exp(-np.exp(others[None] - (logit + noise)[:, None])).prod(axis=1)
        assert wins.mean() == pytest.approx(softmax[i], abs=2e-6)


def test_draws_follow_softmax_over_positions() -> None:
    """Over 20,000 positions of one seed the draws follow softmax(logits / T): chi-square below its 99.9% point."""
    logits, temperature = [1.0, -math.inf, 0.0, -2.0, 0.5, 3.0], 1.7
    num_draws = 20_000
    counts = np.zeros(6)
    for position in range(num_draws):
        counts[draw(logits, temperature, NoiseKey(42, position))] += 1
    weights = np.exp(np.array(logits) / temperature)
    expected = num_draws * weights / weights.sum()
    assert counts[1] == 0
    legal = expected > 0
    assert (((counts - expected)[legal] ** 2) / expected[legal]).sum() < 18.47  # 4 degrees of freedom


@given(
    size=st.sampled_from([1, 2, 3, 4, 5, 63, 64, 65, 127, 1000]),
    scale=st.sampled_from([0.0, 0.1, 1.0, 5.0, 30.0]),
    temperature=st.sampled_from([LEAST_TEMPERATURE, 1e-9, 0.01, 0.7, 1.0, 3.0, 1e4]),
    legal_share=st.sampled_from([0.01, 0.5, 1.0]),
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=300, deadline=None)
def test_quick_draw_equals_the_plain_draw(
    size: int, scale: float, temperature: float, legal_share: float, seed: int
) -> None:
    """Passing over groups by bounds never changes the winner, at any size, spread, temperature and mask."""
    generator = np.random.default_rng(seed % 2**32)
    logits = (generator.standard_normal(size) * scale).astype(np.float32)
    is_illegal = generator.random(size) > legal_share
    is_illegal[generator.integers(size)] = False
    logits[is_illegal] = -np.inf
    for position in range(4):
        key = NoiseKey(seed, position)
        drawn = quick(logits, temperature, key)
        assert drawn == gumbel_argmax_reference(logits, temperature, key)
        assert logits[drawn] > -np.inf


def test_full_size_rows() -> None:
    """The same on rows of 49,152 and 128,256 logits, flat and peaked."""
    for size, scale in ((49_152, 0.0), (49_152, 3.0), (128_256, 8.0)):
        logits = (np.random.default_rng(7).standard_normal(size) * scale).astype(np.float32)
        for position in range(20):
            key = NoiseKey(3, position)
            drawn = quick(logits, 1.0, key)
            assert drawn == gumbel_argmax_reference(logits, 1.0, key)


def test_equal_scores_go_to_the_lowest_id() -> None:
    """Two tokens with the same word and logit have equal scores: the lower id wins, whichever group is seen first."""
    size = 400_000
    key = NoiseKey(11, 0)
    noise = gumbel_noise(np.arange(size), key)
    order = np.argsort(noise, kind="stable")
    same = np.nonzero(noise[order][:-1] == noise[order][1:])[0]
    assert len(same) > 0  # 400,000 words of 32 bits: 18 pairs expected
    for place in same:
        low, high = sorted((int(order[place]), int(order[place + 1])))
        logits = np.full(size, -np.inf, dtype=np.float32)
        logits[[low, high]] = 1.5
        assert quick(logits, 1.0, key) == low
        assert gumbel_argmax_reference(logits, 1.0, key) == low


def test_noise_belongs_to_seed_position_stream_and_token() -> None:
    """Each part of the key changes the noise, and the same key gives the same noise for a token in any company."""
    key = NoiseKey(5, 9, 0)
    ids = np.arange(200)
    noise = gumbel_noise(ids, key)
    for other in (NoiseKey(6, 9, 0), NoiseKey(5 + 2**32, 9, 0), NoiseKey(5, 10, 0), NoiseKey(5, 9, 1)):
        assert not np.any(gumbel_noise(ids, other) == noise)
    assert np.array_equal(gumbel_noise(ids[77:80], key), noise[77:80])


@pytest.mark.parametrize("key", [(-1, 0, 0), (2**64, 0, 0), (0, -1, 0), (0, 2**32, 0), (0, 0, 2**32)])
def test_keys_outside_the_counter_are_refused(key: tuple[int, int, int]) -> None:
    """A number that would be cut off, and so collide with another, is refused."""
    with pytest.raises(ValueError, match="must be in 0"):
        NoiseKey(*key)


@given(
    size=st.sampled_from([1, 2, 3, 64, 65, 1000, 49_152]),
    share=st.sampled_from([0.002, 0.05, 1.0]),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    temperature=st.sampled_from([LEAST_TEMPERATURE, 0.01, 1.0, 1e4]),
    seed=st.integers(0, 2**64 - 1),
)
@settings(deadline=None)
def test_logits_of_few_tokens_give_the_same_draw(
    size: int, share: float, scale: float, temperature: float, seed: int
) -> None:
    """Whatever tokens they are of, and with some at minus infinity: the draw is that from the row of all tokens."""
    generator = np.random.default_rng(seed % 2**32)
    token_ids = np.flatnonzero(generator.random(size) < share)
    token_ids = token_ids if len(token_ids) else np.array([size // 2])
    few = (generator.standard_normal(len(token_ids)) * scale).astype(np.float32)
    few[(generator.random(len(few)) < 0.3) & (few < few.max())] = -np.inf
    row = np.full(size, -np.inf, dtype=np.float32)
    row[token_ids] = few
    for position in range(3):
        key = NoiseKey(seed, position)
        drawn = quick(few, temperature, key, token_ids)
        assert drawn == gumbel_argmax_reference(row, temperature, key)


def test_equal_scores_of_few_tokens_go_to_the_lowest_id() -> None:
    """Two tokens with the same word and logit: the lower id wins, also where the larger one is looked at first."""
    key = NoiseKey(11, 0)
    noise = gumbel_noise(np.arange(400_000), key)
    order = np.argsort(noise, kind="stable")
    place = np.nonzero(noise[order][:-1] == noise[order][1:])[0][0]
    low, high = sorted((int(order[place]), int(order[place + 1])))
    assert quick(np.zeros(2, np.float32), 1.0, key, np.array([low, high])) == low
    least = float(np.nextafter(np.float32(0), np.float32(1)))  # lost in the sum, but the larger logit
    assert quick(np.array([0.0, least], np.float32), 1.0, key, np.array([low, high])) == low
