"""Several places of a round in one call of the batched draw, against the same places one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sampling_cases import masks_of, random_sampling
from structgen.decode.sampler import DrawPlace, Sampler, Step
from structgen.errors import NoLegalTokenError
from structgen.kernels.sample import Masks, sample

SIZE = 97
NUM_PLACES = 5


def steps_of(masks: Masks, places: list[DrawPlace]) -> list[Step]:
    """Return the places as steps of their own; place i has mask row i."""
    words = masks.words.numpy()
    return [
        Step(
            mask=words[number],
            free_text_mask=words[place.free_row] if place.free_row >= 0 else None,
            position=place.position,
            stream=place.stream,
            describe=lambda: "here",
        )
        for number, place in enumerate(places)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_places_of_a_round_are_drawn_as_one_by_one(seed: int) -> None:
    """With every option, counts of the text and of the path: the token, the mass, and the error of each place."""
    generator = np.random.default_rng(seed)
    sampler = Sampler(random_sampling(generator, SIZE), seed=2**64 - 1 - seed, vocabulary_size=SIZE)
    bits = generator.random((NUM_PLACES, SIZE)) < generator.choice([0.03, 0.5, 1.0], size=(NUM_PLACES, 1))
    masks = masks_of(bits, list(range(NUM_PLACES)))
    every = np.full(masks.words.shape[1], -1, dtype=np.int32)
    for token_id in generator.integers(0, SIZE, 6).tolist():
        sampler.count(token_id, every)
    logits = torch.from_numpy(np.round(generator.standard_normal((NUM_PLACES, SIZE)) * 16) / 16).float()
    path: list[tuple[int, Any]] = []
    places = []
    for number in range(NUM_PLACES):
        free_row = int(generator.integers(-1, NUM_PLACES))
        drafted = (
            [token_id for token_id, mask in path if sampler.reaches(token_id, mask)] if sampler.has_penalties else []
        )
        places.append(DrawPlace(1000 + number, stream=seed, free_row=free_row, drafted=drafted))
        path.append((int(generator.integers(SIZE)), masks.words[free_row].numpy() if free_row >= 0 else None))
    options, noise = sampler.for_places(places, logits.device)
    drawn = sample(logits, masks=masks, options=options, noise=noise)
    for number, step in enumerate(steps_of(masks, places)):
        try:
            want = sampler.draw(logits[number], step)
        except NoLegalTokenError:
            assert drawn.error[number] > 0
        else:
            assert (drawn.token_id[number], drawn.error[number]) == (want.token_id, 0)
            assert 0.0 - float(drawn.log_legal_mass[number]) == pytest.approx(want.legal_mass_lost, rel=1e-5, abs=1e-5)
        sampler.count(*path[number])


def test_masses_that_nobody_wants_are_left_out() -> None:
    """What is fixed for a request is made once, and the masses are asked for call by call."""
    sampler = Sampler(random_sampling(np.random.default_rng(0), SIZE, plain=True), seed=1, vocabulary_size=SIZE)
    first, _ = sampler.for_places([DrawPlace(3)], torch.device("cpu"))
    again, noise = sampler.for_places([DrawPlace(4)], torch.device("cpu"), has_masses=False)
    assert (first.has_masses, again.has_masses) == (True, False)
    assert again.temperature is first.temperature
    assert noise.position.tolist() == [4]
