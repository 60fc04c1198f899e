"""Rows of many states at once are those that the walk of the trie gives for one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from structgen.kernels import byte_walk as op
from structgen.kernels.byte_walk import TokenTexts
from structgen.kernels.trie_walk import CountedDfa, TrieWalker, set_tokens_
from structgen.trie import ByteTrie
from triton_scripts import AHEAD_OF_TIME, run_script


def check_rows(byte_walk: Callable[..., None], *, num_tokens: int, num_states: int, seed: int) -> None:
    """Walk random tokens, some of them empty, from random states of a random machine, and compare with the trie."""
    generator = np.random.default_rng(seed)
    tokens = [bytes(generator.choice(list(b"abcd"), generator.integers(0, 6)).tolist()) for _ in range(num_tokens)]
    byte_class = np.zeros(256, np.int32)
    byte_class[list(b"abcd")] = [1, 2, 3, 2]
    # What stands before the table leads on: whoever reads it finds tokens.
    table = generator.integers(-1, num_states, (1 + num_states, 4)).astype(np.int32)
    table[0] = 0
    table = table[1:]
    table[:, 0] = -1
    states = np.append(generator.integers(0, num_states, num_states + 2), -1).astype(np.int32)
    out = torch.full((len(states), (num_tokens + 31) // 32), -1, dtype=torch.int32)
    byte_walk(TokenTexts.of(tokens), *map(torch.from_numpy, (byte_class, table, states)), out)
    trie = ByteTrie.build(tokens)
    nothing = np.zeros(num_states, np.int32)
    delta = np.ascontiguousarray(table[:, byte_class])
    dfa = CountedDfa(delta, np.zeros((num_states, 256), np.bool_), nothing > 0, nothing, nothing)
    walker = TrieWalker(trie)
    assert not out[-1].any()
    for row, state in zip(out.numpy()[:-1], states.tolist()[:-1], strict=True):
        want = np.zeros_like(row)
        set_tokens_(want, np.ascontiguousarray(walker.walk(dfa, state, 0, walker.whole).stay[:, 0]), trie)
        assert np.array_equal(row, want)


@pytest.mark.parametrize("num_tokens", [1, 31, 32, 97, 1000])
def test_rows_are_those_of_the_trie(num_tokens: int) -> None:
    """Vocabularies that are no multiple of a word, states asked twice, none at all, bytes that one class holds."""
    for seed in range(5):
        check_rows(op.byte_walk_, num_tokens=num_tokens, num_states=1 + 2 * seed, seed=seed)


def test_tokens_without_text_only() -> None:
    """Nothing is legal then."""
    out = torch.full((1, 1), -1, dtype=torch.int32)
    ints = torch.zeros(256, dtype=torch.int32)
    op.byte_walk_(TokenTexts.of([b"", b""]), ints, ints[:1, None].clone(), ints[:1].clone(), out)
    assert out.tolist() == [[0]]


def test_what_does_not_fit_is_refused() -> None:
    """Other dtypes, layouts and shapes."""
    texts, ints = TokenTexts.of([b"a"]), torch.zeros(256, dtype=torch.int32)
    table, state, out = ints[:1, None].clone(), ints[:2].clone(), torch.zeros((2, 1), dtype=torch.int32)
    with pytest.raises(TypeError, match="byte_class must be int32"):
        op.byte_walk_(texts, ints.long(), table, state, out)
    with pytest.raises(ValueError, match="state must be contiguous"):
        op.byte_walk_(texts, ints, table, ints[::128], out)
    with pytest.raises(ValueError, match="rows of 1 words"):
        op.byte_walk_(texts, ints, table, state, out[:1])


INTERPRETED = """
from structgen.kernels import byte_walk as op
from test_byte_walk import check_rows

for num_tokens in (1, 97, 1100):
    check_rows(op._byte_walk_triton_, num_tokens=num_tokens, num_states=3, seed=num_tokens)
print("checked")
"""


def test_triton_kernel_in_the_interpreter() -> None:
    """The CUDA kernel, run by Triton's interpreter, gives the same rows."""
    pytest.importorskip("triton")
    assert run_script(INTERPRETED, TRITON_INTERPRET="1") == "checked"


COMPILED = (
    AHEAD_OF_TIME
    + """
from structgen.kernels._triton.byte_walk import byte_walk_kernel

build(byte_walk_kernel, {"text_start": "*i32", "text": "*u8", "num_tokens": "i32", "byte_class": "*i32",
      "table": "*i32", "num_classes": "i32", "state": "*i32", "out": "*i32", "num_words": "i32"}, {"BLOCK": 32})
print("checked")
"""
)


def test_triton_kernel_compiles_for_ampere_and_hopper(tmp_path: Path) -> None:
    """The kernel compiles ahead of time to sm_80 and sm_90 machine code, without a GPU."""
    pytest.importorskip("triton")
    assert run_script(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "checked"
