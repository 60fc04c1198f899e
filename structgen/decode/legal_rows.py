"""Logits of the places of a draft: of all tokens, or of the legal ones alone where these are few.

Which of the two hangs on the state alone, and the draw is the same from either (sampler.py). What a few logits do not
say is the legal mass, so now and then the row of all tokens is computed as well, to measure it: by itself, so that it
changes no draw, to the last bit.
Where one token is legal nothing is computed at all. Left out: how a head computes a few rows (head.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from structgen.decode.rounds import whole_logits
from structgen.decode.sampler import PackedMask
from structgen.decode.target import Target, TokenIds

if TYPE_CHECKING:
    from structgen.decode.draft import Node

MEASURED_EVERY = 16
"""The legal mass is measured at every place of a text whose number is a multiple of this, whatever the state."""

_MAX_STATES = 1024


class NodeLogits(NamedTuple):
    """What is known at a node of a draft.

    Attributes:
        logits: (width,) of all tokens, or one for each of the token ids.
        token_ids: the legal tokens, ascending, where the logits are of these alone.
    """

    logits: torch.Tensor
    token_ids: TokenIds | None


class LegalRows:
    """The heads of one request; remembers by state which tokens are legal, where these are few.

    Attributes:
        most: longest list of them.
    """

    def __init__(self, target: Target) -> None:
        """Start with a target, whose head says how few is few."""
        self._target = target
        self.most = target.most_legal_rows
        self._known: OrderedDict[Hashable, TokenIds | None] = OrderedDict()

    def lists(self, nodes: Sequence[Node], *, all_whole: bool = False) -> list[TokenIds | None]:
        """Return the legal tokens at each node, None where the logits of all tokens are needed.

        Args:
            nodes: the places.
            all_whole: whether that is everywhere.
        """
        return [None if all_whole else self._legal(node) for node in nodes]

    def logits(self, hidden: torch.Tensor, lists: Sequence[TokenIds | None], whole: torch.Tensor) -> list[NodeLogits]:
        """Return what the head says at each node.

        Args:
            hidden: (nodes, hidden_size).
            lists: (nodes,) of `lists`.
            whole: (nodes without a list, width) what `whole` gives of these.
        """
        found = self._of_few(hidden, lists)
        rows = iter(whole)
        return [NodeLogits(next(rows) if legal is None else found[number], legal) for number, legal in enumerate(lists)]

    def whole(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (rows, width) logits of all tokens of (rows, hidden_size) hidden states, or of none."""
        return whole_logits(self._target, hidden)

    def _of_few(self, hidden: torch.Tensor, lists: Sequence[TokenIds | None]) -> dict[int, torch.Tensor]:
        """Return the logits of the nodes with lists: one head for as many lists as together are few."""
        found: dict[int, torch.Tensor] = {}
        members: dict[int, tuple[TokenIds, list[int]]] = {}
        for number, legal in enumerate(lists):
            if legal is not None and len(legal) == 1:
                found[number] = torch.zeros(1)  # whatever the model says, it is drawn
            elif legal is not None:
                members.setdefault(id(legal), (legal, []))[1].append(number)
        together: list[tuple[TokenIds, list[int]]] = []
        for legal, numbers in members.values():
            if sum(len(other) for other, _ in together) + len(legal) > self.most:
                self._head(hidden, together, found)
                together = []
            together.append((legal, numbers))
        self._head(hidden, together, found)
        return found

    def _head(
        self, hidden: torch.Tensor, together: Sequence[tuple[TokenIds, list[int]]], found: dict[int, torch.Tensor]
    ) -> None:
        """Compute the logits of some lists at once: more of them than are needed, which costs less than more heads."""
        numbers = [number for _, members in together for number in members]
        if not numbers:
            return
        token_ids = np.concatenate([legal for legal, _ in together])
        rows = iter(self._target.head(hidden if numbers == list(range(len(hidden))) else hidden[numbers], token_ids))
        first = 0
        for legal, members in together:
            for number in members:
                found[number] = next(rows)[first : first + len(legal)]
            first += len(legal)

    def _legal(self, node: Node) -> TokenIds | None:
        """Return the legal tokens of a node if they are few, None otherwise, and where they are not known."""
        legal = node.legal
        if self.most == 0 or legal is None:
            return None
        if legal.is_cut:  # by a budget, which is not part of the key
            return self._listed(legal.mask)
        if node.key not in self._known:
            self._known[node.key] = self._listed(legal.mask)
            if len(self._known) > _MAX_STATES:
                self._known.popitem(last=False)
        return self._known[node.key]

    def _listed(self, mask: PackedMask) -> TokenIds | None:
        legal = few_legal(mask, self.most)
        # The tokenizer may know ids that the head has no rows for.
        return None if legal is None or legal[-1] >= self._target.logits_width else legal


def few_legal(mask: PackedMask, most: int) -> TokenIds | None:
    """Return the legal tokens of a mask, ascending; None if there is none, or more than so many."""
    words = np.flatnonzero(mask)
    if not 0 < len(words) <= most:
        return None
    bits = np.unpackbits(mask[words].view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    rows, offsets = np.nonzero(bits)
    return None if len(rows) > most else words[rows] * 32 + offsets


def rows_of(hidden: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """Return some rows in rising order, without a list of indices that a device would have to be sent."""
    if len(rows) == hidden.shape[0]:
        return hidden
    if not rows:
        return hidden[:0]
    first, last = rows[0], rows[-1]
    if last - first + 1 == len(rows):
        return hidden[first : last + 1]
    return torch.cat([hidden[row : row + 1] for row in rows])
