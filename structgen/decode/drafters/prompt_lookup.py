"""The drafter that copies: where the end of the text occurred before, what followed there is drafted.

It looks in the prompt and the text itself, and in earlier outputs of the same type; the longer match is taken.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from structgen.config import check_count
from structgen.decode.drafters.suffix_automaton import NO_MATCH, Match, SuffixAutomaton
from structgen.drafter import DraftRequest, DraftView

# Stands between two outputs, and is no token: a draft ends there.
_BETWEEN = -1
# Bits of a length from which on matches are of one kind.
_LONG_MATCH = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptLookup:
    """Drafts what followed the same tokens before; costs no model.

    Attributes:
        min_match: tokens that have to agree before what followed them is drafted.
        max_outputs: tokens of earlier outputs that are remembered, the oldest are forgotten first; 0 looks only in the
            prompt and the text itself.
    """

    min_match: int = 2
    max_outputs: int = 8192

    def __post_init__(self) -> None:
        """Check the sizes."""
        check_count("min_match", self.min_match)
        check_count("max_outputs", self.max_outputs, minimum=0)

    @property
    def name(self) -> str:
        """What reports call it."""
        return "PromptLookup"

    def start(self, request: DraftRequest) -> PromptLookupSession:
        """Begin with a request: its prompt is read."""
        outputs = request.memory.of(self, lambda: EarlierOutputs(self.max_outputs)) if self.max_outputs else None
        return PromptLookupSession(request.prompt_token_ids, outputs, self.min_match)


class EarlierOutputs:
    """Outputs of earlier requests as one text; safe to use from several threads."""

    def __init__(self, max_tokens: int) -> None:
        """Start empty."""
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self._outputs: deque[tuple[int, ...]] = deque()
        self._automaton = SuffixAutomaton()

    @property
    def automaton(self) -> SuffixAutomaton:
        """The text as it is now; its matches are void once there is another one."""
        return self._automaton

    @property
    def lock(self) -> threading.Lock:
        """Held by whoever asks the automaton, as it grows."""
        return self._lock

    def add(self, token_ids: Sequence[int]) -> None:
        """Remember an output."""
        with self._lock:
            self._outputs.append(tuple(token_ids[: self._max_tokens]))
            if len(self._automaton.token_ids) + len(self._outputs[-1]) > self._max_tokens:
                self._forget_half()
            else:
                self._append(self._outputs[-1])

    def _forget_half(self) -> None:
        """Start over with the latest outputs: an automaton cannot forget, and half leaves room for a while."""
        while len(self._outputs) > 1 and 2 * sum(map(len, self._outputs)) > self._max_tokens:
            self._outputs.popleft()
        self._automaton = SuffixAutomaton()
        for output in self._outputs:
            self._append(output)

    def _append(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            self._automaton.append(token_id)
        self._automaton.append(_BETWEEN)


class PromptLookupSession:
    """Keeps the longest match of the end of a text as it grows.

    Attributes:
        kind: how long the match before the token was that was given last: the bits of its length.
    """

    def __init__(self, prompt_token_ids: Sequence[int], outputs: EarlierOutputs | None, min_match: int) -> None:
        """Read the prompt."""
        self._min_match = min_match
        self.kind = 0
        self._own = SuffixAutomaton()
        self._match = NO_MATCH
        self._outputs = outputs
        # Of earlier outputs: matches of this automaton, and of no later one.
        self._earlier = SuffixAutomaton() if outputs is None else outputs.automaton
        self._earlier_match = NO_MATCH
        self._num_prompt_tokens = len(prompt_token_ids)
        for token_id in prompt_token_ids:
            self._read(token_id)

    def propose(self, view: DraftView) -> Iterator[int]:
        """Yield what followed the longest match, in the text itself or in an earlier output."""
        drafted = view.drafted
        own = _followed(self._own, self._match, drafted)
        proposed, length = _continued(self._own, own) if own.length >= self._min_match else [], own.length
        if self._outputs is not None:
            with self._outputs.lock:
                earlier = _followed(self._earlier, self._earlier_match, drafted)
                # What was said of this type before is the better guide where both agree on as much.
                if earlier.length >= max(own.length, self._min_match):
                    proposed, length = _continued(self._earlier, earlier), earlier.length
        for number, token_id in enumerate(proposed):
            self.kind = min((length + number).bit_length(), _LONG_MATCH)
            yield token_id

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Follow the matches, then add the token to the text."""
        self._read(token_id)
        if self._outputs is not None:
            with self._outputs.lock:
                self._earlier_match = self._earlier.follow(self._earlier_match, token_id)

    def close(self) -> None:
        """Remember the output."""
        if self._outputs is not None:
            self._outputs.add(self._own.token_ids[self._num_prompt_tokens :])

    def _read(self, token_id: int) -> None:
        # In this order: the match is of what occurred before.
        self._match = self._own.follow(self._match, token_id)
        self._own.append(token_id)


def _followed(automaton: SuffixAutomaton, match: Match, token_ids: Sequence[int]) -> Match:
    """Return the match after some more tokens."""
    for token_id in token_ids:
        match = automaton.follow(match, token_id)
    return match


def _continued(automaton: SuffixAutomaton, match: Match) -> list[int]:
    """Return what followed a match; the more agreed before it, the further it is believed."""
    at = automaton.after(match)
    return automaton.token_ids[at : at + 2 * match.length]
