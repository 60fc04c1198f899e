"""Time of a draw, and of the loop around the model, per token on the CPU.

    python benchmarks/sampler.py

One thread. The logits are random with the spread of a small language model; the share of legal tokens is that of a
structural state (3 tokens), a mixed one (1 in 3) and the inside of a string (most of the vocabulary). Each is the
median over rounds, in microseconds. The second table is the best of five texts by the whole loop over a model that
costs nothing.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from measuring import median_us

from structgen.config import Sampling
from structgen.decode.loop import Decoding, Request
from structgen.decode.sampler import Sampler, Step
from structgen.decode.target import Tokens
from structgen.vocabulary import Vocabulary

SIZES = (49_152, 128_256)
SPREAD = 3.0
LEGAL_SHARES = {"3 tokens": 0.0, "1 in 3": 0.33, "most": 0.95}


def random_mask(size: int, share: float) -> np.ndarray:
    """Pack random bits; three tokens if the share is 0."""
    generator = np.random.default_rng(0)
    bits = generator.random(-(-size // 32) * 32) < share
    bits[size:] = False
    bits[[5, 77, 1000]] = True
    return np.packbits(bits, bitorder="little").view(np.int32)


def samplings() -> dict[str, Sampling]:
    """Name the options that are timed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = Sampling(top_k=50, top_p=0.95)
    return {
        "greedy": Sampling.greedy(),
        "temperature 1": Sampling(),
        "top_k 50": Sampling(top_k=50),
        "top_p 0.95": Sampling(top_p=0.95),
        "min_p 0.05": Sampling(min_p=0.05),
        "top_k 50, top_p 0.95": both,
    }


def time_draws(size: int) -> None:
    """Print a table: options by share of legal tokens."""
    logits = torch.randn(size, generator=torch.Generator().manual_seed(0)) * SPREAD
    for name, sampling in samplings().items():
        row = []
        for share in LEGAL_SHARES.values():
            sampler = Sampler(sampling, seed=1, vocabulary_size=size)
            step = Step(mask=random_mask(size, share), position=3, describe=lambda: "benchmark")
            row.append(median_us(lambda s=sampler, w=step: s.draw(logits, w), 60))
        print(f"{size:>8}  {name:<22}" + "".join(f"{value:>12.0f}" for value in row))


class FreeState:
    """A parser state that allows every text token for ever: what free decoding costs in the same loop."""

    tokens_to_end_bound = 0
    is_accepting = True
    description = "free text"
    key = 0

    def __init__(self, size: int) -> None:
        """Allow all ids but the last, which is the stop token."""
        bits = np.ones(-(-size // 32) * 32, dtype=bool)
        bits[size - 1 :] = False
        self._mask = np.packbits(bits, bitorder="little").view(np.int32)

    def mask(self) -> np.ndarray:
        """Return the one mask."""
        return self._mask

    def mask_within(self, budget: int) -> np.ndarray:
        """Return the one mask while there is budget."""
        return self._mask if budget > 0 else np.zeros_like(self._mask)

    def free_text_mask(self) -> np.ndarray | None:
        """Return the same: all is free text."""
        return self._mask

    def forced_tokens(self) -> list[int]:
        """Force nothing."""
        return []

    def advance(self, token_id: int) -> None:
        """Stay."""

    def rollback(self, num_tokens: int) -> None:
        """Stay."""


class FreeModel:
    """A target that costs nothing."""

    device = torch.device("cpu")
    num_cached_tokens = 0
    most_legal_rows = 0
    takes_trees = False
    device_side = None

    def __init__(self, size: int) -> None:
        """Make the only row."""
        self.logits_width = size
        self._row = torch.randn(1, size, generator=torch.Generator().manual_seed(0)) * SPREAD

    def extend(self, tokens: Tokens) -> torch.Tensor:
        """Return the row."""
        return self._row

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the same."""
        return hidden

    def crop(self, num_tokens: int) -> None:
        """Keep nothing."""


def time_loop(size: int, num_tokens: int = 100) -> None:
    """Print the loop's own time per token."""
    vocabulary = Vocabulary.from_bytes([b"a"] * (size - 1) + [b""], stop_ids=(size - 1,))
    for name, sampling in samplings().items():
        request = Request(prompt_token_ids=(1,), max_tokens=num_tokens, seed=1, sampling=sampling)
        traces = []
        for _ in range(5):
            decoding = Decoding(FreeModel(size), FreeState(size), vocabulary, request)
            decoding.run()
            traces.append(decoding.trace)
        trace = min(traces, key=lambda trace: trace.total_s)
        each = (trace.total_s, trace.sample_s, trace.mask_s)
        print(f"{size:>8}  {name:<22}" + "".join(f"{value / num_tokens * 1e6:>12.0f}" for value in each))


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    print(f"{'size':>8}  {'draw':<22}" + "".join(f"{name:>12}" for name in LEGAL_SHARES))
    for size in SIZES:
        time_draws(size)
    print(f"\n{'size':>8}  {'loop, per token':<22}{'all':>12}{'sample':>12}{'mask':>12}")
    for size in SIZES:
        time_loop(size)


if __name__ == "__main__":
    main()
