"""Drafters and models for tests of speculation: an oracle that is sometimes wrong, hostile ones, a repetitive model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from explicit import Model
from structgen.config import DraftMode
from structgen.decode.control import FixedControl
from structgen.decode.drafting import SpeculationSetup
from structgen.drafter import DraftMemory, DraftRequest, DraftView


class Session:
    """Proposes what a function of the view gives; learns nothing."""

    def __init__(self, guess: Callable[[DraftView], Iterable[Any]]) -> None:
        self.guess = guess

    def propose(self, view: DraftView) -> Iterable[Any]:
        return self.guess(view)

    def observe(self, token_id: int, state_key: Hashable) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Guess:
    """A drafter that is a function of the view."""

    guess: Callable[[DraftView], Iterable[Any]]
    name: str = "Guess"

    def start(self, request: DraftRequest) -> Session:
        return Session(self.guess)


def oracle(num_prompt_tokens: int, text: Sequence[int], *, wrong_every: int, size: int) -> Guess:
    """Return a drafter that knows the text, and is wrong at every n-th place of it."""

    def guess(view: DraftView) -> Iterable[int]:
        at = len(view.token_ids) - num_prompt_tokens
        while at < len(text):
            if at % wrong_every == wrong_every - 1:
                # Some other legal token, from the middle: the first ones end a text, and are not read by the target.
                others = [t for t in range(size) if _is_legal(view, t) and t != text[at]]
                yield from others[len(others) // 2 :][:1]
                return
            yield text[at]
            at += 1

    return Guess(guess, f"Oracle{wrong_every}")


def _is_legal(view: DraftView, token_id: int) -> bool:
    return bool(int(view.mask[token_id >> 5]) >> (token_id & 31) & 1)


def raises(view: DraftView) -> Iterable[int]:
    """Fail after the first token."""
    yield from list(view.forced_tokens())[:1]
    raise LookupError("a drafter of a user failed")


HOSTILE: dict[str, Callable[[DraftView], Iterable[Any]]] = {
    "always illegal": lambda view: [t for t in range(32 * view.mask.size) if not _is_legal(view, t)],
    "always the first id": lambda view: [0] * 100,
    "outside the vocabulary": lambda view: [10**9, -1, 2**70],
    "no tokens at all": lambda view: ["x", None, 1.5, [1], torch.ones(2, 2)],
    "never ends": lambda view: iter(lambda: 1, None),
    "raises": raises,
    "logits of nan": lambda view: [torch.full((300,), float("nan"))],
    "logits of minus infinity": lambda view: [torch.full((300,), float("-inf"))],
    "logits of the wrong width": lambda view: [torch.zeros(3)],
    "flat logits": lambda view: iter(lambda: torch.zeros(300), None),
}


def setup(
    drafters: Sequence[Any],
    *,
    max_draft_tokens: int = 8,
    mode: DraftMode = "coupled",
    memory: DraftMemory | None = None,
    branches: int = 0,
) -> SpeculationSetup:
    """Return a setup that asks these drafters in every round."""
    return SpeculationSetup(
        drafters=drafters, control=FixedControl(max_draft_tokens, branches), memory=memory or DraftMemory(), mode=mode
    )


class Markov(Model):
    """A target in float64 whose logits hang on the last two tokens: repetitive, so that drafts are accepted.

    It counts what was cropped, too.
    """

    def __init__(self, seed: int, width: int, *, liking: np.ndarray | None = None, strength: float = 4.0) -> None:
        super().__init__(lambda path: self._row(tuple(path[-2:])), most_legal_rows=40)
        self.logits_width = width
        self.num_cropped = 0
        self._seed = seed
        self._liking = np.zeros(width) if liking is None else liking
        self._strength = strength
        self._rows: dict[tuple[int, ...], torch.Tensor] = {}

    def crop(self, num_tokens: int) -> None:
        self.num_cropped += len(self.tokens) - num_tokens
        super().crop(num_tokens)

    def _row(self, last: tuple[int, ...]) -> torch.Tensor:
        if last not in self._rows:
            noise = np.random.default_rng([self._seed, *last]).normal(scale=self._strength, size=self.logits_width)
            self._rows[last] = torch.from_numpy(noise + self._liking)
        return self._rows[last]
