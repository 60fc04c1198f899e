"""SmolLM2: the style that it writes by itself, and the law over whole answers, each against full passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

import structgen as sg
from structgen.decode.exact_choice import ExactChoice
from structgen.decode.loop import Request
from structgen.decode.style import PROMPT, RENDERINGS, preferred_whitespace, style_scores

pytestmark = pytest.mark.model


def log_prob(model: sg.Model, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Return the log-probability of an answer and its end from one full pass without a cache."""
    vocabulary = model.vocabulary
    with torch.no_grad():
        logits = model.hf_model(input_ids=torch.tensor([[*prompt, *answer]]), use_cache=False).logits[0]
    rows = torch.log_softmax(logits[len(prompt) - 1 :, : vocabulary.size].double(), 1)
    tokens = float(rows[range(len(answer)), list(answer)].sum())
    return tokens + float(rows[-1, list(vocabulary.stop_ids)].logsumexp(0))


def test_it_writes_indented_json_by_itself(smollm2: sg.Model) -> None:
    """Its scores are those of full passes, and the indented example wins clearly: by more than a factor of ten."""
    runtime = smollm2._runtime
    scores = style_scores(runtime)
    prompt = runtime.encode(PROMPT)
    truth = [log_prob(smollm2, prompt, runtime.canonical_tokens(text)) for text in RENDERINGS.values()]
    np.testing.assert_allclose(scores, truth, rtol=0, atol=1e-2)
    spaced, compact, pretty = scores
    assert pretty > max(spaced, compact) + np.log(10)
    assert preferred_whitespace(runtime, folder=None) is runtime.whitespace is sg.Whitespace.PRETTY


def test_an_exact_choice_has_the_law_of_full_passes(smollm2: sg.Model) -> None:
    """Three answers score as full passes say, and greedy takes the most probable of them."""
    runtime = smollm2._runtime
    prompt = runtime.encode("Is this review positive, negative or neutral? 'I love it!' Answer with one word.")
    answers = {text: runtime.canonical_tokens(text) for text in ("negative", "neutral", "positive")}
    request = Request(prompt_token_ids=prompt, max_tokens=9, seed=1, sampling=sg.Sampling.greedy())
    choice = ExactChoice(runtime.new_target(), smollm2.vocabulary, answers, request)
    choice.run()
    truth = [log_prob(smollm2, prompt, token_ids) for token_ids in answers.values()]
    np.testing.assert_allclose(choice.log_probs, truth, rtol=0, atol=1e-2)
    assert choice.text == "positive"
