"""A request in device mode: the device makes the text, and the host follows it, a few tokens behind.

It has the face of the loop on the host (loop.Decoding), and gives the same text. What the host does here is what nobody
waits for: bytes to text, stop strings, counts, and where the grammar stood for a message. Where a stop string ends the
text, or nobody reads on, the device has made some steps in vain.

Where the tables end, as those of a recursive grammar may, the rest of the text is made in host mode.

Left out: whole answers, and which requests run in device mode (device_pool.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from structgen.decode.device_session import DeviceSession, RowNews, RowStart
from structgen.decode.draft import Masks
from structgen.decode.drafters import ForcedRun
from structgen.decode.loop import Decoding, Request
from structgen.decode.sampler import Sampler
from structgen.decode.state import DecodeState
from structgen.decode.text import GrowingText
from structgen.decode.trace import Trace
from structgen.errors import BudgetError, NoLegalTokenError
from structgen.frozen_machine import FrozenMachine
from structgen.kernels.advance import FAILED, LEFT, RUNNING
from structgen.vocabulary import Vocabulary


class RowFollower:
    """One row of a session on the host: what its tokens come to.

    Attributes:
        token_ids: tokens of the text so far.
        trace: counts and times so far.
        is_finished: whether the text has ended.
        has_left: whether it has come to a state that the device has no tables of.
    """

    def __init__(self, state: DecodeState, vocabulary: Vocabulary, request: Request) -> None:
        """Start before the first token.

        Args:
            state: the start state; following moves it.
            vocabulary: that of the state.
            request: prompt, budget, seed and sampling.

        Raises:
            BudgetError: the budget is smaller than the state's finishing cost.
            OptionError: the bias names a token that the vocabulary does not have.
        """
        Sampler(request.sampling, seed=request.seed, vocabulary_size=vocabulary.size)  # looks at the bias
        if request.max_tokens < state.tokens_to_end_bound:
            raise BudgetError(request.max_tokens, state.tokens_to_end_bound)
        self._state = state
        self._vocabulary = vocabulary
        self._request = request
        self._masks = Masks(vocabulary)
        self._text = GrowingText(request.stop)
        self.token_ids: list[int] = []
        self.is_finished = self.has_left = False
        self.trace = Trace(num_prompt_tokens=len(request.prompt_token_ids), mode="device")

    @property
    def text(self) -> str:
        """The text so far, without a character whose bytes are not all there, and what may become a stop string."""
        return self._text.text

    def start(self, machine: FrozenMachine) -> RowStart:
        """Return what the row starts from.

        Args:
            machine: that of the state.
        """
        request = self._request
        return RowStart(
            prompt_token_ids=request.prompt_token_ids,
            machine=machine,
            max_tokens=request.max_tokens,
            seed=request.seed,
            stream=request.stream,
            sampling=request.sampling,
        )

    def take(self, news: RowNews) -> None:
        """Follow the row.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        if self.is_finished:
            return
        for number, token_id in enumerate(news.token_ids, 1):
            self._can_go_on()
            self._state.advance(token_id)
            self.token_ids.append(token_id)
            self._text.add(self._vocabulary.token_bytes(token_id))
            if self._text.stopped_by is not None:
                # The sums know nothing of the stop, so the steps after it count too.
                self._note(news, num_draws=len(self.token_ids) + len(news.token_ids) - number)
                self._close()
                return
        self.has_left = news.is_done == LEFT
        if news.is_done in (RUNNING, LEFT):
            self._note(news, num_draws=len(self.token_ids))
            return
        if news.is_done == FAILED:
            raise NoLegalTokenError(
                self._state.description,
                "no legal token has a probability: the model's logits are not numbers there, or are -inf, or "
                "logit_bias bans what is legal; check the bias first, then the model's weights and dtype",
            )
        # Where the end was the only choice nothing was drawn there; else a stop was.
        self._note(news, num_draws=len(self.token_ids) + self._can_go_on())
        self._text.end()
        self._close()

    def _can_go_on(self) -> bool:
        """Say whether any text may follow within the budget, and note whether the budget takes something away."""
        state = self._state
        mask, whole = state.mask_within(self._request.max_tokens - len(self.token_ids)), state.mask()
        if mask is whole:
            return self._masks.has_text(mask)
        self.trace.truncated = self.trace.truncated or not np.array_equal(mask, whole)
        return self._masks.has_text(mask)

    def _note(self, news: RowNews, *, num_draws: int) -> None:
        trace, sums = self.trace, (news.legal_mass_lost, news.most_mass_lost)
        trace.follow(num_draws, news.num_passes, legal_mass_lost=sums)
        if news.num_drafted:
            name = ForcedRun().name
            trace.drafted[name], trace.accepted[name] = news.num_drafted, news.num_accepted

    def _close(self) -> None:
        self.is_finished = True
        self.trace.stopped_by = self._text.stopped_by
        self.trace.finish(len(self.token_ids))


class DeviceDecoding:
    """One request alone in a session: call step() until it returns None, or run()."""

    def __init__(
        self,
        session: DeviceSession,
        follower: RowFollower,
        machine: FrozenMachine,
        *,
        release: Callable[[DeviceSession], None],
        go_on: Callable[[RowFollower], Decoding],
    ) -> None:
        """Start before the first token.

        Args:
            session: one of a row, which nobody else uses.
            follower: of the request.
            machine: that of its state.
            release: takes the session back once it is not needed any more.
            go_on: gives the rest of a text in host mode, where the tables of the device end.
        """
        self._session: DeviceSession | None = session
        self._follower = follower
        self._machine = machine
        self._release = release
        self._go_on = go_on
        self._rest: Decoding | None = None
        self._is_loaded = False

    @property
    def token_ids(self) -> list[int]:
        """Tokens of the text so far."""
        return self._follower.token_ids if self._rest is None else self._rest.token_ids

    @property
    def text(self) -> str:
        """The text so far; see RowFollower."""
        return self._follower.text if self._rest is None else self._rest.text

    @property
    def trace(self) -> Trace:
        """Counts and times so far."""
        return self._follower.trace

    def run(self) -> None:
        """Decode to the end."""
        while self.step() is not None:
            pass

    def step(self) -> str | None:
        """Wait until the text has grown, or has ended.

        Returns:
            What is new of the text (may be empty), None once the text has ended.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        if self._rest is not None:
            return self._rest.step()
        session, follower = self._session, self._follower
        if session is None:
            return None
        num_tokens, shown = len(follower.token_ids), len(follower.text)
        try:
            if not self._is_loaded:
                clock = time.perf_counter()
                session.load(0, follower.start(self._machine))
                follower.trace.add_prefill(time.perf_counter() - clock)
                follower.trace.eager_because = session.eager_because
                self._is_loaded = True
            while not (follower.is_finished or follower.has_left) and len(follower.token_ids) == num_tokens:
                clock = time.perf_counter()
                [news] = session.news()
                follower.trace.verify_s += time.perf_counter() - clock
                follower.take(news)
        except BaseException:
            self._session = None  # what it holds now is nobody's business: it is not used again
            raise
        if follower.is_finished or follower.has_left:
            session.stop(0)
            self._session = None
            self._release(session)
        if follower.has_left:
            self._rest = self._go_on(follower)
        return follower.text[shown:] if len(follower.token_ids) > num_tokens else None
