"""What all tests share: one torch thread, fixed seeds, the two Hypothesis profiles, the local model.

A test never talks to a hub. Tests that need SmolLM2 take the ``smollm2`` fixture and carry the mark ``model``.
"""

from __future__ import annotations

import functools
import importlib
import os
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

# Before torch, transformers or numba are imported by anything; processes that a test starts inherit them too.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Tests run in several processes: one thread each.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from structgen import Model

torch.set_num_threads(1)

# No deadline: the first example of a test may compile numba, and machines are shared.
settings.register_profile(
    "ci",
    max_examples=50,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long",
    max_examples=1000,
    database=None,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Start every test from the same global random states."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def smollm2() -> Model:
    """Return SmolLM2-135M-Instruct on the CPU in float32, loaded once per run."""
    import structgen as sg

    return sg.load(device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def weights_are_read_once() -> Iterator[None]:
    """Let every `sg.load` of a module share the weights of the default model; each still gets a Model of its own."""
    models = importlib.import_module("structgen.decode.models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "load_model", functools.cache(models.load_model))
        yield
