"""The draw of Choice(exact=True): one of a few whole answers, by the model's own law over them.

An answer's probability is that of its canonical tokens followed by the end (see whole_answers.py); at temperature T it
is drawn with p ** (1 / T), at 0 the most probable one is taken, the first of equals. It is one Gumbel-max draw whose
noise belongs to (seed, position after the prompt, index of the answer, stream), so a seed gives the same answer again
as long as the answers stand in the same order.

Token by token under a mask (decode/loop.py) the model may begin an answer because many likely texts begin so, and then
be left with the only answer that does; here an answer counts by the whole of it. What that costs is a pass for every
answer, so it is for sets of up to a few hundred.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

from structgen.config import Sampling
from structgen.decode.loop import Request
from structgen.decode.rounds import PassTimes, make_round
from structgen.decode.target import Target, Tokens
from structgen.decode.trace import Trace
from structgen.decode.whole_answers import FloatArray, Walk
from structgen.errors import BudgetError, NoLegalTokenError, OptionError, VocabularyError
from structgen.kernels.gumbel import LEAST_TEMPERATURE, NoiseKey, gumbel_argmax_reference
from structgen.vocabulary import Vocabulary

_TOKEN_OPTIONS = (
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
)


class ExactChoice:
    """One request for a whole answer; it stands where a Decoding would.

    Its trace has one measured step: the legal mass is what the model gives all the answers together, each with its end.

    Attributes:
        token_ids: canonical tokens of the answer, empty before the draw.
        text: the answer, empty before the draw.
        trace: counts and times so far.
        log_probs: log-probability of each answer with its end, before the temperature; empty before the draw.
    """

    def __init__(
        self, target: Target, vocabulary: Vocabulary, answers: Mapping[str, tuple[int, ...]], request: Request
    ) -> None:
        """Start before the draw.

        Args:
            target: a sequence of its own in the target model.
            vocabulary: that of the model.
            answers: each answer with its canonical tokens, at least one.
            request: prompt, budget, seed and temperature.

        Raises:
            BudgetError: the longest answer does not fit into the budget.
            OptionError: the sampling options have one that is about tokens.
            VocabularyError: the model has no stop token, so its answers have no end.
        """
        _check_sampling(request.sampling)
        needed = max(map(len, answers.values()))
        if request.max_tokens < needed:
            raise BudgetError(request.max_tokens, needed)
        if not vocabulary.stop_ids:
            raise VocabularyError(
                "neither the tokenizer nor the model names a stop token, so the model has no law over whole answers; "
                "leave exact=True out, or set eos_token_id in the model's generation config"
            )
        self._target = target
        self._answers = dict(answers)
        self._request = request
        self._walk = Walk(vocabulary, request.prompt_token_ids, list(self._answers.values()))
        self._logits: torch.Tensor
        self._is_finished = False
        self.token_ids: list[int] = []
        self.text = ""
        self.trace = Trace(num_prompt_tokens=len(request.prompt_token_ids), law="exact choice")
        self.log_probs: FloatArray = np.empty(0)

    def run(self) -> None:
        """Draw the answer."""
        while self.step() is not None:
            pass

    def step(self) -> str | None:
        """Draw the answer.

        Returns:
            The answer, None once it has been drawn.

        Raises:
            NoLegalTokenError: no answer has a probability.
        """
        if self._is_finished:
            return None
        while make_round(self._target, self):
            pass
        return self.text

    def begin_round(self, *, num_rows: int = 1) -> Tokens | None:
        """Return the next path to read, None once the answer has been drawn.

        Raises:
            NoLegalTokenError: no answer has a probability.
        """
        if self._is_finished:
            return None
        tokens = self._walk.next_path(self._target)
        if tokens is None:
            self._finish()
        return tokens

    def offer(self) -> None:
        """Have nothing cut: what is read is no draft."""

    def narrow(self, num_drafted: int) -> Tokens:
        """Refuse: there is no draft."""
        raise ValueError("whole answers are read whole")

    def make_masks(self) -> None:
        """Make none: answers are read whole."""

    def asked(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states that logits are needed of: of the prompt only the end is."""
        return self._walk.asked(hidden)

    def start_draws(self, hidden: torch.Tensor, logits: torch.Tensor) -> None:
        """Keep the logits; nothing is drawn before all answers are read."""
        self._logits = logits

    def prepare(self, is_done: Callable[[], bool]) -> None:
        """Prepare nothing."""

    def end_round(self, times: PassTimes) -> None:
        """Take what the target made of a path; see `Rounds.end_round`."""
        self.trace.add_pass(times.seconds)
        self._walk.read(self._logits)

    def _finish(self) -> None:
        """Draw the answer."""
        self.log_probs = self._walk.log_probs
        clock = time.perf_counter()
        chosen = self._draw()
        # Rounding may take a sum of probabilities past 1.
        legal_mass_lost = max(0.0, -float(np.logaddexp.reduce(self.log_probs)))
        self.trace.add_draw(time.perf_counter() - clock, legal_mass_lost)
        self.text, token_ids = list(self._answers.items())[chosen]
        self.token_ids = list(token_ids)
        self.trace.finish(len(token_ids))
        self._is_finished = True

    def _draw(self) -> int:
        """Return the index of an answer."""
        if np.isnan(self.log_probs).any():
            raise self._error("the model's logits are not numbers; check its weights and dtype")
        if self.log_probs.max() == -np.inf:
            raise self._error("the model gives every answer probability zero")
        temperature = self._request.sampling.temperature
        if temperature == 0.0:
            return int(np.argmax(self.log_probs))
        key = NoiseKey(self._request.seed, len(self._request.prompt_token_ids), self._request.stream)
        # The plain form of the draw: it compares in float64, and so few answers need no fast one.
        return gumbel_argmax_reference(self.log_probs, max(temperature, LEAST_TEMPERATURE), key)

    def _error(self, cause: str) -> NoLegalTokenError:
        return NoLegalTokenError(f"'exact choice among {len(self._answers)} answers'", cause)


def _check_sampling(sampling: Sampling) -> None:
    """Raise OptionError for options that are about tokens."""
    usual = Sampling()
    set_ones = [name for name in _TOKEN_OPTIONS if getattr(sampling, name) != getattr(usual, name)]
    if set_ones:
        raise OptionError(
            f"{', '.join(set_ones)}: Choice(exact=True) draws a whole answer, so only temperature applies; leave the "
            "others out, or leave exact=True out"
        )
