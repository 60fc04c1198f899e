"""Greedy texts of SmolLM2 against transformers.generate, and with speculation against without, in float32.

In float32 logits move a little with the shape of a pass, so two tokens that are nearly equal may change places. Every
difference is recorded with its margin: how far the model's own logits of the two tokens are apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from pydantic import BaseModel

import structgen as sg

pytestmark = pytest.mark.model

Record = Callable[[str, object], None]

# More than rounding does to a logit of this model, less than what any wrong mask, position or cache does.
NEAR = 0.01

PROMPTS = [
    "What is the capital of Norway?",
    "Name a colour.",
    "Write a line about the sea.",
    "2 + 2 =",
    "Who wrote Hamlet?",
    "Translate 'house' into German.",
    "Say hello.",
    "What do bees make?",
    "Give me a word that rhymes with cat.",
    "How many legs has a spider?",
    "Is the sun hot?",
    "Finish: once upon a",
    "Name a river in France.",
    "What is H2O?",
    "Write the numbers from 1 to 5.",
    "What is the opposite of up?",
    "Name an animal that flies.",
    "Which month comes after May?",
    "What is a synonym for big?",
    "Write a short title for a book about snow.",
]


class Person(BaseModel):
    name: str
    age: int
    city: str


PEOPLE = [
    "Anna Lindqvist is 31 years old and lives in Oslo.",
    "Bob, 45, moved to Boston last year.",
    "In Madrid we met Carla Diaz, who is 27.",
]


def margin_of(model: sg.Model, prompt: Sequence[int], left: Sequence[int], right: Sequence[int]) -> float:
    """Return how far the logits of the first tokens that differ are apart; 0 if none does."""
    number = next((i for i, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), None)
    if number is None:
        return 0.0 if len(left) == len(right) else float("inf")
    with torch.no_grad():
        logits = model.hf_model(input_ids=torch.tensor([[*prompt, *left[:number]]])).logits[0, -1]
    return abs(float(logits[left[number]] - logits[right[number]]))


def test_greedy_texts_are_those_of_transformers(smollm2: sg.Model, record_property: Record) -> None:
    """Twenty prompts, free text, with the drafters that are on by default: token for token, up to near-ties."""
    margins = {}
    for prompt in PROMPTS:
        run = smollm2.run(str, prompt, sampling=sg.Sampling.greedy(), max_tokens=5)
        prompt_ids = run.report.record.prompt_token_ids
        options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 5, "temperature": None, "top_p": None}
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # transformers warns about its own defaults
            ids = torch.tensor([prompt_ids])
            found = smollm2.hf_model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :]
        theirs = [token_id for token_id in found.tolist() if token_id not in smollm2.vocabulary.stop_ids]
        if theirs != list(run.token_ids):
            margins[prompt] = margin_of(smollm2, prompt_ids, theirs, run.token_ids)
    record_property("texts that differ, with margin", margins)
    assert all(margin < NEAR for margin in margins.values()), margins
    assert len(margins) <= 2


def test_drafts_change_texts_at_near_ties_only(smollm2: sg.Model, record_property: Record) -> None:
    """Objects in float32, drafts in every round against plain decoding: differences are counted, with their margin."""
    margins = {}
    saved = 0
    for prompt in PEOPLE:
        options: dict[str, Any] = {"sampling": sg.Sampling.greedy(), "max_tokens": 40}
        plain = smollm2.run(Person, prompt, speculation=sg.Speculation.off(), **options)
        run = smollm2.run(Person, prompt, speculation=sg.Speculation(adaptive=False), **options)
        saved += plain.report.num_target_passes - run.report.num_target_passes
        if run.token_ids != plain.token_ids:
            prompt_ids = plain.report.record.prompt_token_ids
            margins[prompt] = margin_of(smollm2, prompt_ids, plain.token_ids, run.token_ids)
    record_property("objects that differ, with margin", margins)
    assert all(margin < NEAR for margin in margins.values()), margins
    assert saved > 40
