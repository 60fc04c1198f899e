"""The engine loop: prefill, then mask, draw and advance per token until the text ends.

The budget is a promise. max_tokens counts the tokens of the text; the stop token is not counted, and is not part of the
result. A budget below the state's finishing cost is refused before the prefill. From there on the state only offers
tokens after which what remains of the budget is enough to end, so the text is always complete. Where that took choices
away the sample is of the masked target given the budget, and the trace says so.

Where the end is the only choice no pass is made for the stop token. A stop string ends the text before itself: its
tokens are drawn and counted, and are not in the text. Left out: drafts, batches, prompts as text.
"""

from __future__ import annotations

import codecs
import time
from dataclasses import dataclass, field

import numpy as np
import torch

from structgen.config import Sampling, check_count
from structgen.decode.sampler import PackedMask, Sampler, Step
from structgen.decode.state import DecodeState
from structgen.decode.stop_strings import StopStrings
from structgen.decode.target import Target
from structgen.decode.trace import Trace
from structgen.errors import BudgetError, NoLegalTokenError, OptionError
from structgen.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What one text is made from.

    Attributes:
        prompt_token_ids: the prompt, at least one token.
        max_tokens: most tokens of the text, the stop token not counted.
        seed: seed of the noise, 0 <= seed < 2**64.
        sampling: how tokens are drawn.
        stream: 0, or another number for another text from the same seed.
        stop: strings that end the text, none of them empty; only for grammars whose texts may be cut anywhere.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    sampling: Sampling = field(default_factory=Sampling)
    stream: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check what the loop relies on."""
        if not self.prompt_token_ids:
            raise OptionError("the prompt has no tokens; pass at least one")
        check_count("max_tokens", self.max_tokens, minimum=0)


class Decoding:
    """One request on its way: call step() until it returns None, or run().

    Attributes:
        token_ids: tokens of the text so far.
        text: their text so far, without a character whose bytes are not all there, and without what may become a stop
            string.
        trace: counts and times so far.
    """

    def __init__(self, target: Target, state: DecodeState, vocabulary: Vocabulary, request: Request) -> None:
        """Start before the first token.

        Args:
            target: a sequence of its own in the target model.
            state: the start state; the loop moves it.
            vocabulary: that of the state.
            request: prompt, budget, seed and sampling.

        Raises:
            BudgetError: the budget is smaller than the state's finishing cost.
            OptionError: the bias names a token that the vocabulary does not have.
        """
        if request.max_tokens < state.tokens_to_end_bound:
            raise BudgetError(request.max_tokens, state.tokens_to_end_bound)
        self._target = target
        self._state = state
        self._vocabulary = vocabulary
        self._request = request
        self._sampler = Sampler(request.sampling, seed=request.seed, vocabulary_size=vocabulary.size)
        self._stop_ids = frozenset(vocabulary.stop_ids)
        self._not_stop = _all_but(vocabulary.stop_ids, vocabulary.size)
        # Strict: every grammar is of UTF-8 texts, so bytes that are none are a fault of ours, not to be papered over.
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._stop_strings = StopStrings(request.stop)
        self._is_finished = False
        self.token_ids: list[int] = []
        self.text = ""
        self.trace = Trace(num_prompt_tokens=len(request.prompt_token_ids))

    def run(self) -> None:
        """Decode to the end."""
        while self.step() is not None:
            pass

    def step(self) -> str | None:
        """Decode one token.

        Returns:
            What it adds to the text (may be empty), None once the text has ended.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        if self._is_finished:
            return None
        mask = self._next_mask()
        if mask is None:
            self._finish()
            return None
        logits = self._next_logits()
        clock = time.perf_counter()
        step = Step(
            mask=mask,
            free_text_mask=self._state.free_text_mask() if self._request.sampling.has_penalties else None,
            position=len(self._request.prompt_token_ids) + len(self.token_ids),
            stream=self._request.stream,
            describe=lambda: self._state.description,
        )
        draw = self._sampler.draw(logits, step)
        self.trace.add_draw(time.perf_counter() - clock, draw.legal_mass_lost)
        if draw.token_id in self._stop_ids:
            self._finish()
            return None
        self._sampler.count(draw.token_id, step.free_text_mask)
        return self._take(draw.token_id)

    def _next_mask(self) -> PackedMask | None:
        """Return what may be drawn, None if the text can only end."""
        clock = time.perf_counter()
        mask = self._state.mask_within(self._request.max_tokens - len(self.token_ids))
        if not self.trace.truncated:
            whole = self._state.mask()
            # Where the budget does not bind the state gives the same array twice, and nothing needs comparing.
            self.trace.truncated = mask is not whole and not np.array_equal(mask, whole)
        has_text_token = bool((mask & self._not_stop).any())
        self.trace.mask_s += time.perf_counter() - clock
        if has_text_token:
            return mask
        if not self._state.is_accepting:
            raise NoLegalTokenError(self._state.description, "no token is legal, and the text may not end here")
        return None

    def _next_logits(self) -> torch.Tensor:
        """Run the target up to the end of the text so far, and return the last row."""
        clock = time.perf_counter()
        if self.token_ids:
            logits = self._target.forward(self.token_ids[-1:])[-1]
        else:
            logits = self._target.prefill(self._request.prompt_token_ids)
        if logits.device.type == "cuda":
            # The draw would wait for the pass anyway; waiting here keeps the times apart.
            torch.cuda.synchronize(logits.device)
        self.trace.add_pass(time.perf_counter() - clock)
        return logits

    def _take(self, token_id: int) -> str:
        """Append a token to the text."""
        clock = time.perf_counter()
        self._state.advance(token_id)
        self.trace.mask_s += time.perf_counter() - clock
        self.token_ids.append(token_id)
        piece = self._stop_strings.feed(self._decoder.decode(self._vocabulary.token_bytes(token_id)))
        self.text += piece
        if self._stop_strings.found is not None:
            self._close()
        return piece

    def _finish(self) -> None:
        """End the text where the grammar lets it end."""
        self.text += self._stop_strings.feed(self._decoder.decode(b"", final=True)) + self._stop_strings.flush()
        self._close()

    def _close(self) -> None:
        """Take no more tokens."""
        self._is_finished = True
        self.trace.stopped_by = self._stop_strings.found
        self.trace.finish(len(self.token_ids))


def _all_but(token_ids: tuple[int, ...], size: int) -> PackedMask:
    """Return a mask of every token except these."""
    is_text = np.ones((size + 31) // 32 * 32, dtype=np.uint8)
    is_text[list(token_ids)] = 0
    return np.packbits(is_text, bitorder="little").view("<i4").astype(np.int32)
