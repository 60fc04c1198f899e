"""What a drafter is: something that guesses tokens for the target model to verify. Drafters are in decode/drafters/.

A guess costs time and nothing else: every token is drawn from the target as if nobody had guessed, so a drafter may be
wrong, illegal or broken, and the text is the same. Left out: the acceptance, and which drafters are asked when.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import torch

MemoryT = TypeVar("MemoryT")

_MAX_MEMORIES = 16
_MAX_SCOPES = 64

Proposal: TypeAlias = "int | torch.Tensor"
"""A token id; or a row of logits, from which the engine draws the token, under the mask and the request's options."""


class DraftVocabulary(Protocol):
    """The vocabulary, as far as drafters need it."""

    @property
    def size(self) -> int:
        """Highest id + 1."""

    @property
    def digest(self) -> str:
        """The same for equal vocabularies."""

    def token_bytes(self, token_id: int) -> bytes:
        """Return what an id spells, b"" if nothing."""

    def encode(self, data: bytes) -> list[int]:
        """Return the canonical token ids of bytes in mid-text."""


class DraftView(Protocol):
    """Where a draft is to go on; it moves along as tokens are taken."""

    @property
    def token_ids(self) -> Sequence[int]:
        """Prompt, text, and the draft so far."""

    @property
    def drafted(self) -> Sequence[int]:
        """The draft so far, of whatever drafters."""

    @property
    def mask(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Which tokens are legal here within the budget: (ceil(vocabulary / 32),) packed, bit 1 = legal."""

    @property
    def state_key(self) -> Hashable:
        """A key that is the same wherever the same tokens are legal, in every text of one output type."""

    def forced_tokens(self) -> Sequence[int]:
        """Return the canonical tokens of the bytes that every continuation starts with."""


class DraftSession(Protocol):
    """A drafter at work for one request.

    A session may have an attribute `kind`, hashable and of few values: what kind of guess the token is that it gave
    last. Speculation control measures kinds apart. Where several tokens are likely a session may have a method `others`
    that yields them for a view as `propose` does, none after another: they may be read beside the draft.
    """

    def propose(self, view: DraftView) -> Iterable[Proposal]:
        """Return or yield what may come next, token by token.

        It is read up to the first token that is illegal or not worth drafting any more, and need not end by itself.
        """

    def observe(self, token_id: int, state_key: Hashable) -> None:
        """Take note of a token that became part of the text, and of the key of the state before it."""

    def close(self) -> None:
        """Take note that the text is complete."""


@runtime_checkable
class Drafter(Protocol):
    """A way to guess tokens: an option, as one writes it into `Speculation(drafters=[...])`.

    It is hashable, and holds nothing of a request. What it remembers from one request to the next it gets from
    `DraftRequest.memory`.
    """

    @property
    def name(self) -> str:
        """What reports call it."""

    def start(self, request: DraftRequest) -> DraftSession:
        """Begin with a request.

        Raises:
            OptionError: the drafter does not fit the target model. Any other exception, here or in a session, is
                logged, and the request goes on without this drafter.
        """


class DraftMemory:
    """What drafters remember beyond a request: belongs to one generator and scope; safe to use from several threads."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def of(self, drafter: Hashable, make: Callable[[], MemoryT]) -> MemoryT:
        """Return what a drafter keeps here, made now if there is nothing yet; equal drafters share it."""
        with self._lock:
            if drafter not in self._kept:
                self._kept[drafter] = make()
                if len(self._kept) > _MAX_MEMORIES:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(drafter)
            kept: MemoryT = self._kept[drafter]
            return kept


class DraftMemories:
    """The memories of one generator, by the scope of its calls; the least used are forgotten first."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[str | None, DraftMemory] = OrderedDict()

    def of(self, scope: str | None) -> DraftMemory:
        """Return the memory of a scope; None is that of calls without one."""
        with self._lock:
            memory = self._kept.setdefault(scope, DraftMemory())
            self._kept.move_to_end(scope)
            if len(self._kept) > _MAX_SCOPES:
                self._kept.popitem(last=False)
            return memory


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftRequest:
    """What a drafter may know of a request.

    Attributes:
        prompt_token_ids: the prompt.
        vocabulary: that of the target model.
        memory: what outlives the request.
    """

    prompt_token_ids: tuple[int, ...]
    vocabulary: DraftVocabulary
    memory: DraftMemory
