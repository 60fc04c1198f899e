"""The table of what passes cost: measured once, kept, and never taken for another model or machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from structgen.decode import step_costs as subject
from structgen.decode.causal_model import CausalModel
from structgen.decode.pass_costs import PassCosts
from structgen.decode.step_costs import WIDTHS, step_costs
from tiny_models import tiny_model


def _costs(model: Any, folder: Path | None) -> subject.StepCosts:
    return step_costs(CausalModel(model), model, folder=folder)


def test_the_table() -> None:
    """Every width has a positive time for body and head, and speculation control takes their sum."""
    costs = _costs(tiny_model("llama"), None)
    assert tuple(costs.body_s) == tuple(costs.head_s) == tuple(costs.pass_s) == WIDTHS
    assert min(*costs.body_s.values(), *costs.head_s.values()) > 0
    assert costs.pass_s[4] == costs.body_s[4] + costs.head_s[4]
    assert PassCosts(costs.pass_s).seconds(4) == pytest.approx(costs.pass_s[4])


def test_it_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is kept for the model, and measured anew for another shape, dtype or number of threads."""
    model = tiny_model("llama")
    first = _costs(model, tmp_path)
    assert _costs(tiny_model("llama"), tmp_path) == first
    monkeypatch.setattr(subject, "_measure", lambda *_: pytest.fail("measured again"))
    assert _costs(model, tmp_path) == first
    for other in (tiny_model("qwen2, tied"), tiny_model("llama").float()):
        with pytest.raises(pytest.fail.Exception, match="measured again"):
            _costs(other, tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        _costs(model, tmp_path)


@pytest.mark.parametrize("num_positions", [2, 12, 17, 40])
def test_a_model_with_few_positions_is_measured_within_them(num_positions: int) -> None:
    """Learnt positions end where the table of them ends; a pass beyond would be an error in the first call."""
    config = GPT2Config(
        vocab_size=61, n_embd=32, n_layer=1, n_head=2, n_positions=num_positions, bos_token_id=1, eos_token_id=2
    )
    costs = _costs(GPT2LMHeadModel(config).eval(), None)
    assert tuple(costs.pass_s) == WIDTHS
    assert min(costs.pass_s.values()) > 0


def test_on_cuda_its_own_stream_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the whole device ends the graph that another thread captures."""
    waits: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("waited for the device"))
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: waits.append(device))
    )
    found, seconds = subject._timed(torch.device("cuda", 1), lambda: torch.ones(1))
    assert waits == [torch.device("cuda", 1)] * 2
    assert found == 1
    assert seconds > 0
