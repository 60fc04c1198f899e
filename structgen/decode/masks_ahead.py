"""Masks of places that the text may come to next, made while the device is busy with what comes before.

A state that no text has come to yet has no mask, and making one takes longer than anything else that the host does in a
round. What will be drawn is not known, but what followed the same tokens before is a good guess, in whatever state: in
nested and repeated structure it is what opens, parts and closes that is new each time, and not the tokens. After each
guess the run that is forced there is followed too, because the next draft will be that run.

A mask that is not finished when the device is done makes it wait, so none is begun that would probably not be: passes
take about as long as those before, and masks at the most as long as the longest one lately. Nothing here changes a
text: masks are made sooner, or for nothing. Where passes are over when they return, nothing is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from structgen.decode.draft import Draft, Legal
from structgen.decode.drafters.state_table import Followers
from structgen.drafter import DraftMemory

# Guesses at one place, and places of one draft, the last ones first.
_MOST_GUESSES: Final = 8
_MOST_PLACES: Final = 3
# Tokens and pairs of tokens whose followers are remembered.
_MAX_PLACES: Final = 8192
# Each look may add states to the automaton, whose number is limited, so that one text looks at so many at the most.
_MOST_LOOKS: Final = 4000
# By how much less than the longest look before the next one is thought to take.
_FORGETTING: Final = 0.98
# Passes whose shortest one says how long the next will take.
_NUM_PASSES: Final = 4


class MasksAhead:
    """The guesses of one request."""

    def __init__(self, memory: DraftMemory, last_token_id: int) -> None:
        """Begin after a prompt.

        Args:
            memory: what outlives the request.
            last_token_id: of the prompt.
        """
        self._followers = memory.of("masks ahead", lambda: Followers(_MAX_PLACES))
        self._last = (-1, last_token_id)
        self._num_looks = 0
        self._look_s = 0.0
        self._pass_s: list[float] = []

    def observe(self, token_id: int) -> None:
        """Take note of a token of the text."""
        before, last = self._last
        self._followers.add((before, last), token_id)
        self._followers.add(last, token_id)
        self._last = last, token_id

    def add_pass(self, seconds: float) -> None:
        """Take note of how long a pass took from its start to the end of the draws."""
        self._pass_s = [*self._pass_s[1 - _NUM_PASSES :], seconds]

    def make(self, draft: Draft, is_done: Callable[[], bool], *, started: float) -> Iterator[list[Legal]]:
        """Yield what may be drawn at places after those of a draft, as long as there is time.

        Args:
            draft: a draft that the device is busy with.
            is_done: whether the device has done with it.
            started: time.perf_counter() when the pass over it was started.
        """
        end = started + min(self._pass_s, default=0.0)

        def is_over() -> bool:
            return time.perf_counter() + self._look_s > end or is_done()

        for node in draft.read_nodes[::-1][:_MOST_PLACES]:
            for token_id in self._guesses(draft, node):
                if self._num_looks >= _MOST_LOOKS or is_over():
                    return
                clock = time.perf_counter()
                made = draft.look_ahead(node, token_id, is_over)
                seconds = (time.perf_counter() - clock) / max(len(made), 1)
                self._look_s = max(self._look_s * _FORGETTING, seconds)
                self._num_looks += len(made)
                yield made

    def _guesses(self, draft: Draft, node: int) -> list[int]:
        """Return tokens that may come at a node, the likeliest first."""
        before, last = [*self._last, *(draft.nodes[index].token_id for index in draft.path(node))][-2:]
        children = draft.nodes[node].children
        known = [*self._followers.known((before, last)), *self._followers.known(last)]
        return [token_id for token_id in dict.fromkeys(known) if token_id not in children][:_MOST_GUESSES]
