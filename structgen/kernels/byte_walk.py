"""Mask rows of many states at once, on a device: each token's bytes read by a byte machine, from every state.

For states that no table of tokens describes, where the masks are wanted on the device: `kernels/trie_walk.py` does it
for one state on the CPU, and token_columns.py for all states of a machine. What follows a lexeme is in the machine, or
it is left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from structgen.kernels.arena import Device

if TYPE_CHECKING:
    import torch

_WORDS_PER_BLOCK: Final = 32


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class TokenTexts:
    """The bytes of V tokens, one after the other; contiguous, on one device.

    Attributes:
        start: (V + 1,) int32, where each begins in `text`; tokens without text are nowhere legal.
        text: uint8.
        longest: bytes of the longest token.
    """

    start: torch.Tensor
    text: torch.Tensor
    longest: int

    @classmethod
    def of(cls, tokens: Sequence[bytes], *, device: Device = "cpu") -> TokenTexts:
        """Lay them out.

        Args:
            tokens: by token id; those that are no text are empty.
            device: where the tensors lie.
        """
        import torch

        sizes = [len(token) for token in tokens]
        start = np.cumsum([0, *sizes], dtype=np.int32)
        text = np.frombuffer(b"".join(tokens) or b"\0", np.uint8).copy()
        return cls(
            start=torch.from_numpy(start).to(device),
            text=torch.from_numpy(text).to(device),
            longest=max(sizes, default=0),
        )


def byte_walk_(
    texts: TokenTexts, byte_class: torch.Tensor, table: torch.Tensor, state: torch.Tensor, out: torch.Tensor
) -> None:
    """Write the mask row of each state: the tokens whose bytes can all be read from it, one after the other.

    Args:
        texts: the tokens.
        byte_class: (256,) int32, the class of each byte.
        table: (states, classes) int32, contiguous, the next state or -1.
        state: (N,) int32, which states; nothing is legal in one that is negative.
        out: (N, ceil(V / 32)) int32, contiguous, bit 1 = legal.

    Raises:
        TypeError: a tensor is not int32.
        ValueError: the shapes do not belong together, or a tensor is not contiguous.
    """
    import torch

    for name, tensor in {"byte_class": byte_class, "table": table, "state": state, "out": out}.items():
        if tensor.dtype != torch.int32:
            raise TypeError(f"{name} must be int32, not {tensor.dtype}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous")
    num_words = (len(texts.start) - 1 + 31) // 32
    if byte_class.shape != (256,) or table.dim() != 2 or state.dim() != 1 or out.shape != (len(state), num_words):
        raise ValueError(
            f"{len(state)} states over these tokens have rows of {num_words} words, not {tuple(out.shape)}"
        )
    if out.device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        _byte_walk_triton_(texts, byte_class, table, state, out)
    else:
        byte_walk_reference_(texts, byte_class, table, state, out)


def byte_walk_reference_(
    texts: TokenTexts, byte_class: torch.Tensor, table: torch.Tensor, state: torch.Tensor, out: torch.Tensor
) -> None:
    """Do the same with torch, on any device: all tokens of all states, byte by byte."""
    import torch

    start, length = texts.start[:-1].long(), texts.start.diff()
    here = torch.where(length > 0, state[:, None], -1)
    for place in range(texts.longest):
        byte = texts.text[(start + place).clamp(max=len(texts.text) - 1)].long()
        after = table[here.clamp(min=0).long(), byte_class[byte].long()]
        here = torch.where((here >= 0) & (place < length), after, here)
    bits = torch.zeros((len(state), 32 * out.shape[1]), dtype=torch.int32, device=out.device)
    bits[:, : len(length)] = (here >= 0).int()
    shifts = torch.arange(32, dtype=torch.int32, device=out.device)
    out.copy_((bits.view(len(state), -1, 32) << shifts).sum(dim=-1, dtype=torch.int32))


def _byte_walk_triton_(
    texts: TokenTexts, byte_class: torch.Tensor, table: torch.Tensor, state: torch.Tensor, out: torch.Tensor
) -> None:
    """Walk on CUDA, a program for each state and some words of its row."""
    import torch

    from structgen.kernels._triton.byte_walk import byte_walk_kernel

    num_states, num_words = out.shape
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]  # torch has no types there
        byte_walk_kernel[(num_states, -(-num_words // _WORDS_PER_BLOCK))](
            texts.start,
            texts.text,
            len(texts.start) - 1,
            byte_class,
            table,
            table.shape[1],
            state,
            out,
            num_words,
            BLOCK=_WORDS_PER_BLOCK,
            enable_fp_fusion=False,
        )
