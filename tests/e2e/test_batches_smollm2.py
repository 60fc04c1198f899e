"""Batches of SmolLM2 in float32 against the same rows alone: texts differ at near-ties only, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

import structgen as sg
from e2e.test_speculation_smollm2 import NEAR, PEOPLE, PROMPTS, Person, Record, margin_of

pytestmark = pytest.mark.model

REQUESTS: list[Any] = [(Person, PEOPLE[0]), (str, PROMPTS[4]), (Person, PEOPLE[2])]
OPTIONS: dict[str, Any] = {"sampling": sg.Sampling.greedy(), "max_tokens": 34}


@pytest.fixture(scope="module")
def alone(smollm2: sg.Model) -> list[sg.Result[Any]]:
    """The rows by themselves, without drafts."""
    options = OPTIONS | {"speculation": sg.Speculation.off()}
    return [smollm2.run(output_type, prompt, **options) for output_type, prompt in REQUESTS]


@pytest.mark.parametrize("speculation", [sg.Speculation.off(), sg.Speculation(adaptive=False)], ids=["off", "on"])
def test_company_changes_texts_at_near_ties_only(
    smollm2: sg.Model, alone: list[sg.Result[Any]], speculation: sg.Speculation, record_property: Record
) -> None:
    """Objects and free text in common passes, with and without drafts; differences are counted, with their margin."""
    margins = {}
    for number, result in enumerate(smollm2.run_batch(REQUESTS, **OPTIONS | {"speculation": speculation})):
        if result.token_ids != alone[number].token_ids:
            prompt_ids = result.report.record.prompt_token_ids
            margins[number] = margin_of(smollm2, prompt_ids, alone[number].token_ids, result.token_ids)
    record_property("texts that differ, with margin", margins)
    assert all(margin < NEAR for margin in margins.values()), margins
    assert len(margins) <= 1


def test_deterministic_texts_are_those_alone(smollm2: sg.Model) -> None:
    """To the last token, sampled, whatever stands beside them."""
    options: dict[str, Any] = {"seed": 3, "max_tokens": 10, "deterministic": True}
    requests = [(str, PROMPTS[2]), (str, PROMPTS[4])]
    found = smollm2.run_batch(requests, **options)
    assert [result.token_ids for result in found] == [smollm2.run(*one, **options).token_ids for one in requests]
