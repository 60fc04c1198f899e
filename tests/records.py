"""A record of a run for tests that need one and not what is in it."""

from __future__ import annotations

from typing import Any

import structgen as sg
from structgen.replay_record import SpeculationRecord


def make_record(**fields: Any) -> sg.ReplayRecord:
    """Return a record of nothing much, with some fields set."""
    plain: dict[str, Any] = {
        "versions": {"structgen": "0"},
        "model": "fake",
        "dtype": "float32",
        "device": "cpu",
        "backend": "cpu",
        "threads": 1,
        "model_digest": "0",
        "vocabulary_digest": "0",
        "tokenizer_digest": "0",
        "chat_template_digest": "0",
        "automaton_digest": "0",
        "grammar": "",
        "limits": sg.Limits(),
        "answers": None,
        "seed": 3,
        "sampling": sg.Sampling(),
        "speculation": SpeculationRecord.of(sg.Speculation.off(), ()),
        "drafts": (),
        "max_tokens": 20,
        "stop": (),
        "deterministic": False,
        "prompt_token_ids": (1, 2),
        "token_ids": (3, 4),
    }
    return sg.ReplayRecord(**plain | fields)
