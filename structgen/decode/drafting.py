"""The drafters of one request at work: they are asked in order, and one goes on where another has ended.

Whoever adds something is followed by the first again: after a forced run the state table may know what comes, after
that another run may be forced. A drafter that raises is logged and not asked again by this request; the text is the
same without it. Left out: what the target makes of the draft.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from structgen.config import DraftMode
from structgen.decode.acceptance import draw_from, law_of
from structgen.decode.acceptance_estimates import Place
from structgen.decode.control import FixedControl, Sibling, SpeculationControl
from structgen.decode.draft import Draft, Drawn
from structgen.decode.sampler import PackedMask, Sampler, Step
from structgen.drafter import Drafter, DraftMemory, DraftRequest, DraftSession
from structgen.errors import LimitError, OptionError

if TYPE_CHECKING:
    import torch

_log = logging.getLogger("structgen")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeculationSetup:
    """How a request speculates.

    Attributes:
        drafters: who may draft, in the order in which they are asked.
        control: what decides about drafts.
        memory: what drafters remember beyond the request.
        mode: how drafts of a model are drawn and accepted.
    """

    drafters: Sequence[Drafter]
    control: SpeculationControl
    memory: DraftMemory
    mode: DraftMode = "coupled"

    @classmethod
    def off(cls) -> SpeculationSetup:
        """Return plain decoding."""
        return cls(drafters=(), control=FixedControl(0), memory=DraftMemory())


class Drafting:
    """The sessions of one request's drafters."""

    def __init__(self, setup: SpeculationSetup, request: DraftRequest, sampler: Sampler, coins: Coins) -> None:
        """Begin with a request.

        Args:
            setup: who drafts.
            request: what they may know.
            sampler: that of the text, whose penalties and noise drawn drafts share.
            coins: what drafts are drawn with that do not share the noise.
        """
        self._setup = setup
        self._sampler = sampler
        self._coins = coins
        self._prefix = list(request.prompt_token_ids)
        self._sessions: dict[str, DraftSession] = {}
        self._seconds: dict[str, float] = {}
        for drafter in setup.drafters:
            try:
                self._sessions[drafter.name] = drafter.start(request)
            except OptionError:
                raise
            except Exception:  # code of a user
                self._drop(drafter.name)

    def propose(
        self, draft: Draft, *, stream: int, num_rows: int = 1, takes_trees: bool = False
    ) -> Mapping[str, float]:
        """Fill a draft that stands at the end of the text; return the seconds by drafter, masks not counted."""
        self._seconds.clear()
        control = self._setup.control
        control.start_round(num_rows)
        if self._sessions:
            round_ = _Round(self, draft, stream)
            while any(self._ask(name, round_) for name in list(self._sessions)):
                pass
        token_ids = [node.token_id for node in draft.nodes[1:]]
        draft.cut(control.keep(draft.places, token_ids, is_drawn=draft.is_drawn))
        if self._sessions and takes_trees and num_rows == 1 and control.most_branches and not draft.is_drawn:
            self._branch(draft, _Round(self, draft, stream))
        return dict(self._seconds)

    def _branch(self, draft: Draft, round_: _Round) -> None:
        """Draft siblings of the tokens of a chain, and of the one that comes after it."""
        siblings: dict[tuple[int, int], Sibling] = {}
        for node in range(len(draft.nodes)):
            draft.move_to(node)
            for name in list(self._sessions):
                for token_id, place in self._others(name, round_):
                    siblings.setdefault((node, token_id), Sibling(node, token_id, place))
        for sibling in self._setup.control.branch(list(siblings.values())):
            draft.move_to(sibling.depth)
            # Who reaches a limit of the grammar there is left out: the text may never come to it.
            with contextlib.suppress(LimitError):
                draft.take((sibling.token_id, None), sibling.place)

    def _others(self, name: str, round_: _Round) -> list[tuple[int, Place]]:
        """Return what else a drafter knows of at the cursor, if it knows of more than one token at all."""
        session, draft = self._sessions[name], round_.draft
        others = getattr(session, "others", None)
        if others is None or draft.here.is_end:
            return []
        clock, found = time.perf_counter(), []
        try:
            for token_id in others(round_):
                if draft.takes(token_id) and int(token_id) not in draft.here.children:
                    found.append((int(token_id), _place(f"{name}, others", session)))
        except Exception:  # code of a user
            self._drop(name)
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - clock
        return found

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Tell every drafter of a token that became part of the text."""
        self._prefix.append(token_id)
        for name in list(self._sessions):
            try:
                self._sessions[name].observe(token_id, state_key)
            except Exception:  # code of a user
                self._drop(name)

    def close(self) -> None:
        """Tell every drafter that the text is complete."""
        for name in list(self._sessions):
            try:
                self._sessions[name].close()
            except Exception:  # code of a user
                self._drop(name)

    def _ask(self, name: str, round_: _Round) -> bool:
        """Let a drafter go on with a draft; say whether it got any longer."""
        draft = round_.draft
        if name not in self._sessions or not self._wants(draft, name):
            return False
        num_before, clock, mask_s = len(draft.nodes), time.perf_counter(), draft.mask_s
        try:
            session = self._sessions[name]
            for proposal in session.propose(round_):
                place = _place(name, session)
                if not round_.take(proposal, place) or not self._wants(draft, name):
                    break
        except Exception:  # code of a user, or a draft model that gives no legal token a probability
            self._drop(name)
        seconds = time.perf_counter() - clock - (draft.mask_s - mask_s)
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        return len(draft.nodes) > num_before

    def _wants(self, draft: Draft, name: str) -> bool:
        return not draft.here.is_end and self._setup.control.wants(draft.places, name)

    def _drop(self, name: str) -> None:
        _log.warning(
            "drafter %s failed and is not asked again by this request; the text is the same", name, exc_info=True
        )
        self._sessions.pop(name, None)


def _place(name: str, session: DraftSession) -> Place:
    """Return what is known of the token that a session gave last; raise TypeError where nothing can be kept by it."""
    place = Place(name, getattr(session, "kind", None))
    hash(place)
    return place


class _Round:
    """What drafters see of a round (structgen.drafter.DraftView), and how their tokens get into the draft."""

    def __init__(self, drafting: Drafting, draft: Draft, stream: int) -> None:
        self.draft = draft
        self._drafting = drafting
        self._stream = stream
        # Its counts run ahead of the text's, so that penalties see the draft.
        self._sampler = drafting._sampler.fork()

    @property
    def token_ids(self) -> Sequence[int]:
        """Prompt, text, and the draft so far."""
        return [*self._drafting._prefix, *self.drafted]

    @property
    def drafted(self) -> Sequence[int]:
        """The draft so far."""
        return [self.draft.nodes[index].token_id for index in self.draft.path(self.draft.cursor)]

    @property
    def mask(self) -> PackedMask:
        """Which tokens are legal here."""
        return self.draft.legal(self.draft.cursor).mask

    @property
    def state_key(self) -> Hashable:
        """The key of the state."""
        return self.draft.here.key

    def forced_tokens(self) -> Sequence[int]:
        """Return the forced tokens."""
        return self.draft.forced_tokens()

    def take(self, proposed: object, place: Place) -> bool:
        """Take a token, or draw one from logits; say whether there was one that is legal."""
        import torch

        if isinstance(proposed, torch.Tensor) and proposed.dim() == 1:
            drawn = self._drawn(proposed)
        elif self.draft.takes(proposed):
            drawn = (int(proposed), None)  # type: ignore[call-overload]  # it is an integer
        else:
            return False
        if self._sampler.has_penalties:
            self._sampler.count(drawn[0], self.draft.legal(self.draft.cursor).free_text_mask)
        self.draft.take(drawn, place)
        return True

    def _drawn(self, logits: torch.Tensor) -> Drawn:
        legal = self.draft.legal(self.draft.cursor)
        step = Step(
            mask=legal.mask,
            free_text_mask=legal.free_text_mask,
            position=len(self._drafting._prefix) + len(self.drafted),
            stream=self._stream,
            describe=lambda: self.draft.describe(self.draft.cursor),
        )
        if self._drafting._setup.mode == "coupled":
            return self._sampler.draw(logits, step).token_id, None
        law = law_of(self._sampler.process(logits, step)[0], self._sampler.temperature)
        return draw_from(law, self._drafting._coins()), law


class Coins:
    """Uniform numbers in [0, 1) of one request that no two rounds share; the text's own noise is another."""

    def __init__(self, seed: int, stream: int) -> None:
        """Start from a seed."""
        self._generator: Any = None
        self._key = (seed, stream)

    def __call__(self) -> float:
        """Return the next one."""
        if self._generator is None:
            seed, stream = self._key
            self._generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, stream))))
        return float(self._generator.random())
