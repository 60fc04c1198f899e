"""What passes cost on the machine at hand: a table measured once and kept in the user's cache directory.

Each width is timed once, twice for a small model: half a second for SmolLM2 on one core. The table belongs to what was
loaded (configuration, dtype, packing) and to where it runs (processor, number of threads). Left out: that attention
takes longer in a long context, and whatever else runs on the machine; who uses the table corrects it by the passes that
are made (see pass_costs.py).
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import platformdirs
import torch

from structgen.array_store import ArrayLayout, ArrayStore
from structgen.decode.causal_model import CausalModel, text_config
from structgen.decode.target import Tokens
from structgen.decode.transformers_target import TransformersBatch

WIDTHS: Final = (1, 2, 3, 4, 8, 16)
_CONTEXT_TOKENS = 32
# The shorter time of two counts; where one round takes so long it is enough.
_MOST_ROUNDS = 2
_ENOUGH_S = 0.4
_MAX_BYTES = 1 << 20
_LAYOUT = {"seconds": ArrayLayout(np.float64, (2, len(WIDTHS)))}
_SOURCES = (
    "decode/step_costs.py",
    "decode/transformers_target.py",
    "decode/causal_model.py",
    "decode/kv_cache.py",
    "decode/head.py",
    "decode/packing.py",
    "decode/packed_linear.py",
    "decode/int8_linear.py",
    "kernels/byte_rows.py",
    "kernels/_numba/byte_rows.py",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCosts:
    """Seconds by number of tokens.

    Attributes:
        body_s: of a pass over so many tokens, up to its hidden states.
        head_s: of the logits of so many hidden states.
    """

    body_s: dict[int, float]
    head_s: dict[int, float]

    @property
    def pass_s(self) -> dict[int, float]:
        """Of a pass over so many tokens, with the logits of all of them."""
        return {width: self.body_s[width] + self.head_s[width] for width in self.body_s}


def user_folder() -> Path:
    """Return the folder in the user's cache directory."""
    return platformdirs.user_cache_path("structgen") / "step_costs"


def step_costs(model: CausalModel, loaded: Any, *, folder: Path | None) -> StepCosts:
    """Return the table of a model on this machine, measured where there is none.

    Args:
        model: the model.
        loaded: the transformers model that it is made from.
        folder: where tables are kept; None measures anew and keeps nothing.
    """
    store = ArrayStore(folder, sources=_SOURCES, max_bytes=_MAX_BYTES)
    key = _key(loaded)
    found = store.read(key, _LAYOUT)
    if found is None:
        context = getattr(text_config(loaded.config), "max_position_embeddings", None)
        found = {"seconds": _measure(model, context if isinstance(context, int) else None)}
        store.write(key, found)
    body, head = found["seconds"].tolist()
    return StepCosts(
        body_s=dict(zip(WIDTHS, body, strict=True)),
        head_s=dict(zip(WIDTHS, head, strict=True)),
    )


def _measure(model: CausalModel, context_length: int | None) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return (2, widths) seconds of the body and of the head; of a width that no text has room for those of less."""
    most = _CONTEXT_TOKENS + WIDTHS[-1] if context_length is None else context_length
    num_before = max(1, min(_CONTEXT_TOKENS, most - WIDTHS[-1]))
    target = TransformersBatch(model).join()
    target.prefill([0] * num_before)
    seconds = np.full((2, len(WIDTHS)), np.inf)
    for _ in range(_MOST_ROUNDS):
        for index, width in enumerate(WIDTHS):
            hidden, body_s = _timed(
                model.device, functools.partial(target.extend, Tokens([0] * min(width, most - num_before)))
            )
            _, head_s = _timed(model.device, functools.partial(target.head, hidden))
            target.crop(num_before)
            seconds[:, index] = np.minimum(seconds[:, index], (body_s, head_s))
        if seconds.sum() > _ENOUGH_S:
            break
    return seconds


def _timed(device: torch.device, call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    # What one thread computes is timed by its own clock, which stands while other programs have the processor.
    clock = time.thread_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    _wait(device)
    start = clock()
    found = call()
    _wait(device)
    # A clock that is too coarse would make a table of zeros, and a ratio of nothing.
    return found, max(clock() - start, 1e-9)


def _wait(device: torch.device) -> None:
    # For the stream that is timed, and not for the device: a graph that another thread captures there would be lost.
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _key(loaded: Any) -> str:
    """Return what the times depend on: no weight does, but where and how they lie."""
    layers = sorted({type(module).__qualname__ for module in loaded.modules()})
    place = torch.cuda.get_device_name(loaded.device) if loaded.device.type == "cuda" else platform.processor()
    told = (
        repr(loaded.config),
        str(loaded.dtype),
        str(loaded.device),
        layers,
        place,
        platform.node(),
        os.cpu_count(),
        torch.get_num_threads(),
        torch.__version__,
    )
    return f"step costs {hashlib.sha256(repr(told).encode()).hexdigest()}"
