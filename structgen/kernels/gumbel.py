"""Noise that belongs to (seed, position, token, stream), and the draw that it makes.

argmax_t(logit_t / temperature + g_t) with independent standard Gumbel g_t is a draw from softmax(logit / temperature).
Here g_t comes from a counter-based generator, so it is a function of what it belongs to and of nothing else: not of the
row in a batch, of the batch, of padding, nor of how many tokens were drafted.

    words  = Philox4x32-10(counter = (token >> 2, position, stream, 0), key = (seed low, seed high))
    u      = (words[token & 3] + 1/2) / 2**32                      in (0, 1), never 0 or 1
    g      = -log(-log1p(-u))                                      largest where u is smallest: float32 keeps that tail

Four neighbouring tokens share one block, which makes a row of logits four times cheaper. The last counter word is kept
for other uses of the same seed. This is the plain form; structgen/kernels/sample.py draws without making most of the
noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import torch

# Below it quotients overflow; the draw is the largest logit long before.
LEAST_TEMPERATURE: Final = 1e-30

_NUM_ROUNDS: Final = 10
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_LOW: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """What a step's noise belongs to, besides the token.

    Attributes:
        seed: the request's seed, 0 <= seed < 2**64.
        position: position in the sequence of the token that is drawn, padding not counted.
        stream: 0, or another number for another draw at the same place (a retry would draw the same again).
    """

    seed: int
    position: int
    stream: int = 0

    def __post_init__(self) -> None:
        """Check that the numbers fit the counter and the key."""
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"a seed must be in 0 .. 2**64 - 1, not {self.seed}")
        if not (0 <= self.position <= _LOW and 0 <= self.stream <= _LOW):
            raise ValueError(f"position {self.position} and stream {self.stream} must be in 0 .. 2**32 - 1")

    def words(self) -> tuple[int, int, int, int]:
        """Return (seed low, seed high, position, stream)."""
        return self.seed & _LOW, self.seed >> 32, self.position, self.stream

    def packed(self) -> np.ndarray[Any, Any]:
        """Return the same as uint64."""
        return np.array(self.words(), dtype=np.uint64)


def philox4x32(counter: np.ndarray[Any, Any], key: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return Philox4x32-10 of each counter: the plain form.

    Args:
        counter: (..., 4) uint64 with values below 2**32.
        key: two values below 2**32.
    """
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    low, half = np.uint64(_LOW), np.uint64(32)
    for number in range(_NUM_ROUNDS):
        k0, k1 = (np.uint64((key[i] + number * _WEYL[i]) & _LOW) for i in range(2))
        product_0 = np.uint64(_MULTIPLIERS[0]) * c0
        product_1 = np.uint64(_MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (product_1 >> half) ^ c1 ^ k0, product_1 & low, (product_0 >> half) ^ c3 ^ k1, product_0 & low
    return np.stack([c0, c1, c2, c3], axis=-1)


def gumbel_of_words(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the standard Gumbel value of each 32-bit word, float64, always finite."""
    noise: np.ndarray[Any, Any] = -np.log(-np.log1p(-(words.astype(np.float64) + 0.5) * 2.0**-32))
    return noise


def gumbel_noise(token_ids: np.ndarray[Any, Any], key: NoiseKey) -> np.ndarray[Any, Any]:
    """Return the noise of each token id, float64 of the same shape: the plain form."""
    seed_low, seed_high, position, stream = key.words()
    counter = np.zeros((*token_ids.shape, 4), dtype=np.uint64)
    counter[..., 0] = token_ids >> 2
    counter[..., 1] = position
    counter[..., 2] = stream
    words = philox4x32(counter, (seed_low, seed_high))
    word = np.take_along_axis(words, (token_ids & 3)[..., None].astype(np.int64), axis=-1)[..., 0]
    return gumbel_of_words(word)


def gumbel_rows(num_tokens: int, seed: torch.Tensor, position: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
    """Return the noise of the first token ids in several rows, by tensor operations that never wait for the device.

    Args:
        num_tokens: ids 0 .. num_tokens - 1.
        seed: (rows,) int64, the bits of each row's seed.
        position: (rows,) int64 below 2**32.
        stream: (rows,) int64 below 2**32.

    Returns:
        (rows, num_tokens) float64: `gumbel_noise` up to the rounding of the logarithms.
    """
    import torch

    blocks = torch.arange(-(-num_tokens // 4), device=seed.device)
    c0 = blocks.expand(len(seed), -1)
    c1, c2 = (part[:, None].expand_as(c0) for part in (position, stream))
    c3 = torch.zeros_like(c0)
    key = [(seed & _LOW)[:, None], (seed >> 32 & _LOW)[:, None]]
    for number in range(_NUM_ROUNDS):
        k0, k1 = (part + number * step & _LOW for part, step in zip(key, _WEYL, strict=True))
        # The product may pass 2**63: it wraps, and its bits are the same.
        product_0, product_1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product_1 >> 32 & _LOW) ^ c1 ^ k0,
            product_1 & _LOW,
            (product_0 >> 32 & _LOW) ^ c3 ^ k1,
            product_0 & _LOW,
        )
    words = torch.stack([c0, c1, c2, c3], dim=-1).flatten(1)[:, :num_tokens]
    return -torch.log(-torch.log1p(-(words.double() + 0.5) * 2.0**-32))


def gumbel_argmax_reference(logits: np.ndarray[Any, Any], temperature: float, key: NoiseKey) -> int:
    """Draw an id from softmax(logits / temperature) by making the noise of every token; the lowest of equals wins."""
    scaled = (logits.astype(np.float64) - float(logits.max())) * (1.0 / temperature)
    return int(np.argmax(scaled + gumbel_noise(np.arange(logits.shape[0]), key)))
