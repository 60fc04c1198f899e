"""The sampler's kernels for CUDA on CPU tensors, for a process in which Triton interprets (TRITON_INTERPRET=1)."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import torch
import triton
import triton.language as tl

from sampling_cases import Case, case, edge_cases, random_case
from structgen.config import Sampling
from structgen.kernels import sample as op
from structgen.kernels._triton.draw import exponential_of_words, words_of_blocks, words_of_ids
from structgen.kernels.gumbel import NoiseKey, gumbel_of_words, philox4x32
from structgen.kernels.sample import Sampled, Workspace, sample_reference

NEAR = 1e-5


def margins(made: Case) -> torch.Tensor:
    """Return how far the best score of each row is above the second."""
    raw = op._vocabulary_columns(made.logits, made.masks.num_tokens)
    legal = op.allowed(made.masks.words, made.masks.row, made.masks.num_tokens)
    z = op._changed(raw, made.masks, made.options).masked_fill(~legal, -torch.inf).double()
    best = op._scores(z, z.amax(1, keepdim=True), made.options, made.noise).topk(2, dim=1).values
    return best[:, 0] - best[:, 1]


def check(made: Case, *, with_lists: bool, **changes: object) -> np.ndarray:
    """Compare one batch; return how many rows there were, and how many near-ties went the other way."""
    want = sample_reference(made.logits, **made.arguments())
    near = margins(made) < NEAR
    options = dataclasses.replace(made.options, **changes)
    masks = made.masks if with_lists else dataclasses.replace(made.masks, lists=None)
    batch, size = len(made.logits), made.masks.num_tokens
    workspace = Workspace.empty(batch + 1, num_tokens=size + 3, device="cpu")
    out = dataclasses.replace(Sampled.empty(batch, num_tokens=size, device="cpu"), workspace=workspace)
    op._sample_triton(made.logits, masks, options, made.noise, out)
    assert torch.equal(out.error, want.error)
    differs = out.token_id != want.token_id
    assert not (differs & ~near).any(), (made.samplings, out.token_id, want.token_id)
    drawn = out.error == 0
    if options.has_masses:
        for name in ("log_legal_mass", "log_sum_exp"):
            got, wanted = getattr(out, name)[drawn], getattr(want, name)[drawn]
            assert torch.allclose(got, wanted, rtol=1e-5, atol=2e-6, equal_nan=True), name
    return np.array([batch, int(differs.sum())])


@triton.jit
def noise_kernel(words, by_block, by_id, exponential, given, seed, position, stream, num: tl.constexpr):
    """Write words in both forms, and E of given words."""
    ids = tl.arange(0, num)
    tl.store(by_block + ids, words_of_blocks(tl.load(words), seed, position, stream, num // 4).to(tl.int64))
    tl.store(by_id + ids, words_of_ids(tl.load(words).to(tl.int32) + ids, seed, position, stream).to(tl.int64))
    tl.store(exponential + ids, exponential_of_words(tl.load(given + ids).to(tl.uint32)))


def check_noise() -> None:
    """Compare the words bit for bit, and the noise within 4 units in the last place of what is at least 1."""
    size, first = 1024, 4 * 12345
    given = np.random.default_rng(0).integers(0, 2**32, size)
    given[:8] = [0, 1, 2**32 - 1, 2**32 - 2, 127, 128, 2**31, 2**24 + 1]
    for key in (NoiseKey(0, 0, 0), NoiseKey(2**64 - 1, 2**32 - 1, 2**31), NoiseKey(2**63 + 11, 5, 2**32 - 3)):
        by_block, by_id = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
        exponential = torch.zeros(size)
        seed = int(np.uint64(key.seed).astype(np.int64))
        numbers = (torch.tensor([number]) for number in (first, seed, key.position, key.stream))
        start, *noise = numbers
        launch_noise(start, by_block, by_id, exponential, torch.from_numpy(given), *noise)
        counter = np.zeros((size // 4, 4), dtype=np.uint64)
        counter[:, 0] = first // 4 + np.arange(size // 4)
        counter[:, 1], counter[:, 2] = key.position, key.stream
        words = philox4x32(counter, (key.seed % 2**32, key.seed >> 32)).reshape(-1)
        assert np.array_equal(by_block.numpy(), words.astype(np.int64))
        assert np.array_equal(by_id.numpy(), words.astype(np.int64))
        want = gumbel_of_words(given.astype(np.uint64))
        error = np.abs(-np.log(exponential.double().numpy()) - want)
        assert (error <= 4 * np.spacing(np.maximum(np.abs(want), 1).astype(np.float32))).all()


@triton.jit
def load_and_run(start, by_block, by_id, exponential, given, seed, position, stream, num: tl.constexpr):
    """Load the numbers, as the sampler does."""
    noise_kernel(start, by_block, by_id, exponential, given, tl.load(seed), tl.load(position), tl.load(stream), num)


def launch_noise(*arguments: torch.Tensor) -> None:
    """Run the kernel once."""
    load_and_run[1,](*arguments, num=1024)


def strided(made: Case) -> Case:
    """Return the batch in columns of a wider tensor, transposed."""
    wide = torch.full((made.logits.shape[1] + 9, len(made.logits)), 60.0, dtype=made.logits.dtype)
    wide[4:-5] = made.logits.T
    return dataclasses.replace(made, logits=wide[4:-5].T)


def large(dtype: torch.dtype, seed: int) -> Case:
    """Draw two rows of a large vocabulary: plain, and with everything that truncates."""
    size, generator = 128_256, np.random.default_rng(seed)
    logits = torch.from_numpy(generator.standard_normal((2, size + 44)) * 3).to(dtype)
    bits = generator.random((2, size)) < 0.9
    both = [Sampling(), Sampling(temperature=0.75, top_p=0.9375, min_p=0.0009765625)]
    return case(logits, bits, both, seed=seed)


def main(*, is_full: bool) -> None:
    """Run all cases; print how many rows were drawn, and how many draws differed where two scores are nearly equal."""
    np.seterr(all="ignore")
    check_noise()
    total = np.zeros(2, dtype=int)
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    for seed in range(32 if is_full else 7):
        size, batch = ((97, 7), (1000, 2), (2500, 1), (1000, 7))[seed % 4]
        made = random_case(seed, batch=batch, size=size, width=size + 5 * (seed % 3), dtype=dtypes[seed % 3])
        made = strided(made) if seed % 5 in (1, 2) else made
        total += check(made, with_lists=seed % 3 == 0, has_masses=seed % 5 != 0)
    for number, (_, made, *_) in enumerate(edge_cases()):
        for with_lists in (False, True) if is_full else (number % 2 == 0,):
            total += check(made, with_lists=with_lists)
    for seed, dtype in enumerate(dtypes if is_full else dtypes[:1]):
        total += check(large(dtype, seed), with_lists=False)
    sys.stdout.write(f"{total[0]} {total[1]}")
