"""A draft: tokens that may come next, as a tree, with what the automaton says before and after each of them.

Node 0 is the end of the text; every other node is a drafted token after its parent. The parser state walks along while
drafting, and nothing illegal or beyond the budget gets in, so the target reads no token that could not be drawn.

Masks are not needed for that: the state takes a token or refuses it. They are made when somebody asks, so that a pass
can be started first; only where the text may end is the mask needed at once, because it may be that it can only end.
Left out: who drafts (drafting.py), and what is accepted (acceptance.py).
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from structgen.decode.acceptance_estimates import Place
from structgen.decode.sampler import PackedMask
from structgen.decode.state import DecodeState
from structgen.errors import LimitError, TokenRejectedError
from structgen.vocabulary import Vocabulary

if TYPE_CHECKING:
    from structgen.decode.acceptance import FloatArray

ROOT = 0

# Tokens of a forced run that are looked at ahead of time.
_MOST_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Legal:
    """What may be drawn at a place.

    Attributes:
        mask: the legal tokens, within the budget.
        free_text_mask: tokens that stay inside free text, None where there are none or nobody asked.
        is_cut: whether the budget took something from the mask.
        has_text: whether the mask has any token but stops.
    """

    mask: PackedMask
    free_text_mask: PackedMask | None
    is_cut: bool
    has_text: bool


@dataclass(slots=True)
class Node:
    """A place in a draft.

    Attributes:
        token_id: the drafted token that leads here, -1 at the root.
        parent: index of the node before, -1 at the root.
        depth: how many drafted tokens lead here.
        place: who drafted it, and what is known of it.
        draft_law: the law that the token was drawn from, None if it was not drawn but named.
        key: that of the state.
        may_end: whether the text may end here.
        is_end: whether nothing is drawn here: the text can only end, or has.
        legal: what may be drawn here, None where it was not made yet; ask `Draft.legal`.
        children: node by token.
    """

    token_id: int
    parent: int
    depth: int
    place: Place
    draft_law: FloatArray | None
    key: Hashable
    may_end: bool
    is_end: bool
    legal: Legal | None
    children: dict[int, int] = field(default_factory=dict)


class Masks:
    """Which tokens are text, and which are an end: what a draft asks of every mask."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Prepare for a vocabulary."""
        self.size = vocabulary.size
        self.stop_ids = frozenset(vocabulary.stop_ids)
        is_text = np.ones((vocabulary.size + 31) // 32 * 32, dtype=np.uint8)
        is_text[list(vocabulary.stop_ids)] = 0
        self._is_text: PackedMask = np.packbits(is_text, bitorder="little").view("<i4").astype(np.int32)

    def has_text(self, mask: PackedMask) -> bool:
        """Say whether a mask has any token but stops."""
        return bool((mask & self._is_text).any())

    def allows(self, mask: PackedMask, token_id: int) -> bool:
        """Say whether a token is legal and one of the vocabulary."""
        return 0 <= token_id < self.size and bool(int(mask[token_id >> 5]) >> (token_id & 31) & 1)


# What a drafter named or drew: the token, and the law that it was drawn from.
Drawn: TypeAlias = "tuple[int, FloatArray | None]"


class Draft:
    """A draft on its way: the cursor is the node that is drafted after, and stands where the state stands.

    Attributes:
        num_before: tokens of the text that the draft follows.
        nodes: in the order drafted, so parents come first.
        cursor: index of a node.
        mask_s: seconds spent on masks and on moving the state.
    """

    def __init__(self, state: DecodeState, masks: Masks, *, num_before: int, budget: int, asks_free_text: bool) -> None:
        """Start at the end of the text.

        Args:
            state: that of the text; the draft moves it.
            masks: those of the vocabulary.
            num_before: tokens of the text so far.
            budget: tokens that may still come.
            asks_free_text: whether penalties need to know where free text is.
        """
        self._state = state
        self._masks = masks
        self._budget = budget
        self._asks_free_text = asks_free_text
        self.num_before = num_before
        self.mask_s = 0.0
        self.cursor = -1
        self.nodes: list[Node] = []
        self._append(-1, Place(""), None)

    @property
    def places(self) -> list[Place]:
        """Who drafted the tokens, in their order."""
        return [node.place for node in self.nodes[1:]]

    @property
    def chain_length(self) -> int:
        """How many drafted tokens follow each other from the root on; what is drafted beside them comes later."""
        return next((i for i, node in enumerate(self.nodes[1:]) if node.parent != i), len(self.nodes) - 1)

    @property
    def read_nodes(self) -> list[int]:
        """The nodes at which something is drawn: the root, and the drafted tokens that the target has to read."""
        return [index for index, node in enumerate(self.nodes) if index == ROOT or not node.is_end]

    @property
    def read_token_ids(self) -> list[int]:
        """The drafted tokens that the target has to read."""
        return [self.nodes[index].token_id for index in self.read_nodes[1:]]

    @property
    def told_token_ids(self) -> tuple[int, ...]:
        """The chain as a record tells it: -1 - id for a token that was drawn with noise of its own."""
        chain = self.nodes[1 : 1 + self.chain_length]
        return tuple(node.token_id if node.draft_law is None else -1 - node.token_id for node in chain)

    @property
    def is_drawn(self) -> bool:
        """Whether any token was drawn with noise of its own."""
        return any(node.draft_law is not None for node in self.nodes)

    @property
    def here(self) -> Node:
        """The node at the cursor."""
        return self.nodes[self.cursor]

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root, which is left out, to a node."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.nodes[node].parent
        return path[::-1]

    def takes(self, token_id: object) -> bool:
        """Say whether something is a text token that is legal at the cursor; what is no integer is none."""
        try:
            number = operator.index(token_id)  # type: ignore[arg-type]  # whatever a drafter gives
        except TypeError:
            return False
        here = self.here
        if here.is_end or number in self._masks.stop_ids or not 0 <= number < self._masks.size:
            return False
        return self._goes_on(number) if here.legal is None else self._masks.allows(here.legal.mask, number)

    def _goes_on(self, token_id: int) -> bool:
        """Say whether the state takes a text token, and can end within the budget after it: what its mask says too."""
        clock, left = time.perf_counter(), self._budget - self.here.depth - 1
        try:
            self._state.advance(token_id)
        except (TokenRejectedError, LimitError):  # beyond a limit the text may go on, but no draft
            return False
        try:
            return self._state.tokens_to_end_bound <= left
        finally:
            self._state.rollback(1)
            self.mask_s += time.perf_counter() - clock

    def take(self, drawn: Drawn, place: Place) -> None:
        """Draft a token at the cursor and move there: one that `takes` allows, or a stop that was drawn.

        Whatever the state raises, such as LimitError, the draft is as it was.
        """
        token_id, draft_law = drawn
        known = self.here.children.get(token_id)
        if known is not None:
            self.move_to(known)
            return
        parent = self.here
        if token_id in self._masks.stop_ids:
            # After a stop nothing comes, so nothing is asked of it.
            self.nodes.append(
                replace(
                    self.here,
                    token_id=token_id,
                    parent=self.cursor,
                    depth=self.here.depth + 1,
                    place=place,
                    draft_law=draft_law,
                    is_end=True,
                    children={},
                )
            )
            self.cursor = len(self.nodes) - 1
        else:
            self._advance(token_id, place, draft_law)
        parent.children[token_id] = self.cursor

    def _advance(self, token_id: int, place: Place, draft_law: FloatArray | None) -> None:
        """Draft a text token; where the state reaches a limit of the grammar draft and state stay as they are."""
        clock = time.perf_counter()
        self._state.advance(token_id)
        self.mask_s += time.perf_counter() - clock
        try:
            self._append(token_id, place, draft_law)
        except BaseException:
            self._state.rollback(1)
            raise

    def move_to(self, node: int) -> None:
        """Move cursor and state to a node."""
        there, here = self.path(node), self.path(self.cursor)
        common = sum(1 for one, other in zip(there, here, strict=False) if one == other)
        clock = time.perf_counter()
        taken = [index for index in here[common:] if self.nodes[index].token_id not in self._masks.stop_ids]
        self._state.rollback(len(taken))
        for index in there[common:]:
            if self.nodes[index].token_id not in self._masks.stop_ids:
                self._state.advance(self.nodes[index].token_id)
        self.mask_s += time.perf_counter() - clock
        self.cursor = node

    def cut(self, num_drafted: int) -> None:
        """Forget all but the first so many tokens of a chain."""
        if num_drafted < len(self.nodes) - 1:
            self.move_to(num_drafted)
            del self.nodes[num_drafted + 1 :]
            self.here.children.clear()

    def describe(self, node: int) -> str:
        """Return where a node is, for messages."""
        self.move_to(node)
        return self._state.description

    def legal(self, node: int) -> Legal:
        """Return what may be drawn at a node, made now if it was not asked for before."""
        known = self.nodes[node].legal
        if known is None:
            self.move_to(node)
            clock = time.perf_counter()
            known = self.nodes[node].legal = self._legal_here(self.nodes[node].depth)
            self.mask_s += time.perf_counter() - clock
        return known

    def make_masks(self) -> None:
        """Make what may be drawn at every node that the target reads.

        Where a drafted one is beyond a limit of the grammar it is left out: the text may never come to it.

        Raises:
            LimitError: the end of the text is.
        """
        for node in reversed(self.read_nodes):
            if self.nodes[node].legal is None:
                with contextlib.suppress(*(() if node == ROOT else (LimitError,))):
                    self.legal(node)

    def forced_tokens(self) -> Sequence[int]:
        """Return the forced tokens at the cursor."""
        return [] if self.here.is_end else self._state.forced_tokens()

    def look_ahead(self, node: int, token_id: int, is_over: Callable[[], bool]) -> list[Legal]:
        """Make what may be drawn after a token at a node, and along the run that is forced then: nothing is drafted.

        Returns:
            As far as it is legal, or was made before time was over.
        """
        self.move_to(node)
        clock, depth, made = time.perf_counter(), self.here.depth, list[Legal]()
        state, run, num_taken = self._state, [token_id], 0
        try:
            while num_taken < len(run) and not is_over():
                state.advance(run[num_taken])
                num_taken += 1
                made.append(self._legal_here(depth + num_taken))
                if num_taken == 1 and not state.is_accepting:
                    run += state.forced_tokens()[:_MOST_AHEAD]
        except (TokenRejectedError, LimitError):  # no text goes there, or none that has to be thought of now
            pass
        finally:
            state.rollback(num_taken)
            self.mask_s += time.perf_counter() - clock
        return made

    def _append(self, token_id: int, place: Place, draft_law: FloatArray | None) -> None:
        """Add a node after the cursor, where the state stands by now, and move there."""
        clock = time.perf_counter()
        depth = self.here.depth + 1 if self.nodes else 0
        may_end = self._state.is_accepting
        # Whether the text can only end here, decides about a pass, which no mask of another place does.
        legal = self._legal_here(depth) if may_end else None
        node = Node(
            token_id=token_id,
            parent=self.cursor,
            depth=depth,
            place=place,
            draft_law=draft_law,
            key=self._state.key,
            may_end=may_end,
            is_end=legal is not None and not legal.has_text,
            legal=legal,
        )
        self.nodes.append(node)
        self.cursor = len(self.nodes) - 1
        self.mask_s += time.perf_counter() - clock

    def _legal_here(self, depth: int) -> Legal:
        """Return what may be drawn where the state stands, after so many drafted tokens."""
        state = self._state
        mask, whole = state.mask_within(self._budget - depth), state.mask()
        return Legal(
            mask=mask,
            free_text_mask=state.free_text_mask() if self._asks_free_text else None,
            # Where the budget does not bind the state gives the same array twice, and nothing needs comparing.
            is_cut=mask is not whole and not np.array_equal(mask, whole),
            has_text=self._masks.has_text(mask),
        )
