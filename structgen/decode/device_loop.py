"""Requests in device mode: the device makes their texts, and the host follows each of them, a few tokens behind.

What the host does here is what nobody waits for: bytes to text, stop strings, counts, and where the grammar stood for a
message. Where a stop string ends the text, or nobody reads on, the device has made some steps in vain. The text is that
of the loop on the host (loop.py). Where the tables end, as those of a recursive grammar do, the row waits until the
host has described more states; where that cannot be, the rest of the text is made there.

A request alone is a session of one row, with the face of loop.Decoding; batches of them are in device_batch.py. Left
out: whole answers, and which requests run in device mode (device_pool.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from structgen.decode.device_session import DeviceSession, RowNews, RowStart
from structgen.decode.device_step import StepShape
from structgen.decode.draft import Masks
from structgen.decode.drafters import ForcedRun
from structgen.decode.loop import Decoding, Request
from structgen.decode.sampler import Sampler
from structgen.decode.target import Target
from structgen.decode.text import GrowingText
from structgen.decode.trace import Trace
from structgen.errors import BudgetError, NoLegalTokenError, StructgenError
from structgen.frozen_pieces import GrowingMachine
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.kernels.advance import FAILED, LEFT, RUNNING

if TYPE_CHECKING:
    from structgen.grammar.frozen_part import FrozenPart

MOST_DRAFTED: Final = 4
"""Tokens of a draft, where the request allows so many: a pass over five tokens reads the weights once, as one over one
does. Chosen, not measured."""

_LEAST_SLOTS: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRequest:
    """What runs in device mode.

    Attributes:
        automaton: what the text follows.
        request: prompt, budget, seed and sampling.
        max_draft_tokens: most tokens of a draft.
    """

    automaton: FrozenAutomaton | FrozenPart
    request: Request
    max_draft_tokens: int = 0

    @property
    def shape(self) -> StepShape:
        """The shape of its steps alone; slots are rounded up to a power of two, so that there are few shapes."""
        sampling = self.request.sampling
        num_drafted = 0 if sampling.has_penalties else min(self.max_draft_tokens, MOST_DRAFTED)
        needed = len(self.request.prompt_token_ids) + self.request.max_tokens + num_drafted
        num_slots = max(_LEAST_SLOTS, 1 << (needed - 1).bit_length())
        return StepShape(
            num_rows=1,
            num_positions=num_slots - num_drafted,
            num_drafted=num_drafted,
            has_truncation=sampling.top_k is not None or sampling.top_p is not None or bool(sampling.min_p),
            has_penalties=sampling.has_penalties,
            has_bias=bool(sampling.logit_bias),
        )


class RowFollower:
    """One row of a session on the host: what its tokens come to.

    Attributes:
        token_ids: tokens of the text so far.
        trace: counts and times so far.
        is_finished: whether the text has ended.
        has_left: whether it has come to a state that the device has no tables of, and cannot have any of.
    """

    def __init__(self, automaton: FrozenAutomaton | FrozenPart, request: Request) -> None:
        """Start before the first token.

        Args:
            automaton: what the text follows.
            request: prompt, budget, seed and sampling.

        Raises:
            BudgetError: the budget is smaller than the finishing cost of the automaton.
            OptionError: the bias names a token that the vocabulary does not have.
        """
        vocabulary = automaton.vocabulary
        Sampler(request.sampling, seed=request.seed, vocabulary_size=vocabulary.size)  # looks at the bias
        self._state = automaton.start()
        if request.max_tokens < self._state.tokens_to_end_bound:
            raise BudgetError(request.max_tokens, self._state.tokens_to_end_bound)
        self._automaton = automaton
        self._vocabulary = vocabulary
        self._request = request
        self._masks = Masks(vocabulary)
        self._text = GrowingText(request.stop)
        self.token_ids: list[int] = []
        self.is_finished = self.has_left = False
        self.trace = Trace(num_prompt_tokens=len(request.prompt_token_ids), mode="device")

    @property
    def is_over(self) -> bool:
        """Whether the device has nothing more to do for it."""
        return self.is_finished or self.has_left

    @property
    def text(self) -> str:
        """The text so far, without a character whose bytes are not all there, and what may become a stop string."""
        return self._text.text

    def start(self) -> RowStart:
        """Return what the row starts from."""
        request = self._request
        return RowStart(
            prompt_token_ids=request.prompt_token_ids,
            machine=self._automaton.machine,
            max_tokens=request.max_tokens,
            seed=request.seed,
            stream=request.stream,
            sampling=request.sampling,
        )

    def describe(self) -> GrowingMachine | None:
        """Have the state described that the row waits in; return the machine that has it now, None if none can."""
        part = self._automaton
        if isinstance(part, FrozenAutomaton):
            return None
        clock = time.perf_counter()
        self.has_left = not part.describe(self._state)
        self.trace.add_wait(time.perf_counter() - clock)
        return None if self.has_left else part.machine

    def go_on(self, target: Target) -> Decoding:
        """Return the text in host mode, standing where it has left the device.

        Args:
            target: a sequence of its own in the target model.
        """
        self.trace.host_mode_because = (
            f"the tables of the device end after {len(self.token_ids)} tokens of this text, where nesting or a limit "
            "of memory, time or states let no more of them be made: the rest was made in host mode"
        )
        rest = Decoding(target, self._automaton.start(), self._vocabulary, self._request)
        rest.take_over(self.token_ids, self.trace)
        return rest

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


class SessionRows:
    """The rows of a session that are under way, each with its follower; one thread uses it at a time.

    Attributes:
        num_rows: most rows that are under way at a time.
    """

    def __init__(self, session: DeviceSession, *, most_rows: int, release: Callable[[DeviceSession], None]) -> None:
        """Begin without rows.

        Args:
            session: which nobody else uses.
            most_rows: most rows that are under way at a time.
            release: takes the session back.
        """
        self._session: DeviceSession | None = session
        self._release = release
        self.num_rows = min(most_rows, session.shape.num_rows)
        self._free = list(range(self.num_rows))
        self._seated: dict[int, RowFollower] = {}

    @property
    def num_free(self) -> int:
        """How many rows more there is room for."""
        return len(self._free)

    def takes(self, asked: DeviceRequest) -> bool:
        """Say whether a request may join."""
        session = self._open_session
        return session.shape.takes(asked.shape) and asked.automaton.machine in session.arena

    def seat(self, followers: Sequence[RowFollower]) -> None:
        """Let texts join, before their first tokens; their prompts are read together."""
        session, clock = self._open_session, time.perf_counter()
        joining = {self._free.pop(0): follower for follower in followers}
        session.load({row: follower.start() for row, follower in joining.items()})
        self._seated |= joining
        seconds = (time.perf_counter() - clock) / max(1, len(followers))
        for follower in followers:
            follower.trace.add_prefill(seconds)
            follower.trace.eager_because = session.eager_because

    def step(self) -> list[tuple[RowFollower, StructgenError | None]]:
        """Wait for news, and return who is over: finished, left, or failed with the error that is beside it."""
        session, clock = self._open_session, time.perf_counter()
        told = session.news()
        seconds = (time.perf_counter() - clock) / max(1, len(self._seated))
        over: dict[int, StructgenError | None] = {}
        for row, follower in self._seated.items():
            follower.trace.verify_s += seconds
            try:
                follower.take(told[row])
            except StructgenError as error:
                over[row] = error
            else:
                machine = follower.describe() if follower.has_left else None
                if machine is not None:
                    session.resume(row, machine, last_token_id=follower.token_ids[-1])
                if follower.is_over:
                    over[row] = None
        session.stop(over)
        self._free += over
        return [(self._seated.pop(row), error) for row, error in over.items()]

    def close(self) -> None:
        """Give the session back; whoever has not ended is not followed any more. Not after an error of the device."""
        session, self._session = self._session, None
        if session is not None:
            self._release(session)

    @property
    def _open_session(self) -> DeviceSession:
        if self._session is None:
            raise ValueError("the session was given back")
        return self._session


class DeviceDecoding:
    """One request alone in a session: call step() until it returns None, or run(); close() where it is left early."""

    def __init__(
        self, follower: RowFollower, *, open_session: Callable[[], SessionRows], new_target: Callable[[], Target]
    ) -> None:
        """Start before the first token.

        Args:
            follower: of the request.
            open_session: gives a session for it, without rows; called at the first step.
            new_target: gives a sequence for the rest of a text in host mode, where the tables of the device end.
        """
        self._follower = follower
        self._open_session = open_session
        self._new_target = new_target
        self._rows: SessionRows | None = None
        self._rest: Decoding | None = None
        self._is_over = False

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
        follower = self._follower
        num_tokens, shown = len(follower.token_ids), len(follower.text)
        try:
            error = self._follow(num_tokens)
        except BaseException:
            self._rows, self._is_over = None, True  # what the session holds now is not known: it is not used again
            raise
        if self._is_over:
            self.close()
        if error is not None:
            raise error
        if follower.has_left:
            self._rest = follower.go_on(self._new_target())
        return follower.text[shown:] if len(follower.token_ids) > num_tokens else None

    def close(self) -> None:
        """Give the session back, if there is one: nobody reads on."""
        rows, self._rows, self._is_over = self._rows, None, True
        if rows is not None:
            rows.close()

    def _follow(self, num_tokens: int) -> StructgenError | None:
        """Wait until there are more tokens than so many, or the row is over; return the error that it failed with."""
        while not self._is_over and len(self._follower.token_ids) == num_tokens:
            if self._rows is None:
                self._rows = self._open_session()
                self._rows.seat([self._follower])
            over = self._rows.step()
            if over:
                self._is_over = True
                return over[0][1]
        return None
