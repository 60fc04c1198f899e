"""The draws of a round on the host: at the places of a draft, one after the other, as far as the text goes.

A place is drawn at when the text has come to it, so that what was drafted beyond it costs no draw. Left out: draws on a
device, which are all made at once (device_draws.py), and what becomes of a token that was drawn (loop.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from structgen.decode.draft import Draft, Legal, Node
from structgen.decode.drafting import Coins
from structgen.decode.legal_rows import MEASURED_EVERY, LegalRows, NodeLogits
from structgen.decode.ratio import decide_by_ratio
from structgen.decode.sampler import Draw, Sampler, Step
from structgen.decode.target import TokenIds


@dataclass(frozen=True, eq=False)
class Places:
    """Where the draws of a round take place.

    Attributes:
        draft: its nodes that the target reads are drawn at.
        first_position: position in the sequence of the token that is drawn at the root.
        stream: that of the request.
        diagnostics: whether the legal mass is measured at every draw, and not at some of them.
    """

    draft: Draft
    first_position: int
    stream: int
    diagnostics: bool

    @cached_property
    def read(self) -> list[int]:
        """The nodes, in the order in which the target reads them."""
        return self.draft.read_nodes

    @cached_property
    def row_of(self) -> Mapping[int, int]:
        """The row of hidden states that each of them has."""
        return {node: row for row, node in enumerate(self.read)}

    @property
    def nodes(self) -> list[Node]:
        """The nodes themselves."""
        return [self.draft.nodes[node] for node in self.read]

    def legal(self, row: int) -> Legal:
        """Return what may be drawn at a row of hidden states."""
        return self.draft.legal(self.read[row])

    def position(self, row: int) -> int:
        """Return the position in the sequence of the token that is drawn at a row of hidden states."""
        return self.first_position + self.draft.nodes[self.read[row]].depth

    def is_measured(self, node: int) -> bool:
        """Say whether the legal mass of a draw is measured though the draw does not need it."""
        return self.diagnostics or (self.draft.num_before + self.draft.nodes[node].depth) % MEASURED_EVERY == 0

    def step_at(self, draft: Draft, node: int) -> Step:
        """Return the step at a node of the draft, as what decides about a whole chain asks for it."""
        return self.step(node)

    def step(self, node: int, token_ids: TokenIds | None = None) -> Step:
        """Return where a draw at a node takes place.

        Args:
            node: the node.
            token_ids: the tokens that its logits are of, None for all.
        """
        legal = self.draft.legal(node)
        return Step(
            token_ids=token_ids,
            mask=legal.mask,
            free_text_mask=legal.free_text_mask,
            position=self.first_position + self.draft.nodes[node].depth,
            stream=self.stream,
            describe=lambda: self.draft.describe(node),
        )


class NodeDraws(Protocol):
    """What draws in the rounds of one request; the methods are called in this order."""

    def begin(self, places: Places) -> None:
        """Begin a round, whose masks are made."""

    @property
    def asked(self) -> Sequence[int]:
        """The rows of hidden states that logits of all tokens are needed of."""

    def start(self, hidden: torch.Tensor, whole: torch.Tensor) -> None:
        """Take what the model made of the places.

        Args:
            hidden: (places, hidden_size).
            whole: (asked, logits_width) of those that were asked for.
        """

    def draw(self, node: int) -> Draw:
        """Return what is drawn at a node that the text has come to.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """


class HostDraws:
    """Draws by the sampler of the request, from rows on the host."""

    def __init__(self, rows: LegalRows, sampler: Sampler, coins: Coins) -> None:
        """Bind the draws of a request.

        Args:
            rows: its heads.
            sampler: that of the text.
            coins: what chains are verified with that were drawn with other noise.
        """
        self._rows = rows
        self._sampler = sampler
        self._coins = coins
        self._places: Places
        self._lists: Sequence[TokenIds | None] = ()
        self._hidden: torch.Tensor
        self._known: Sequence[NodeLogits] = ()
        self._by_ratio = False
        self._decided: Mapping[int, Draw] = {}

    def begin(self, places: Places) -> None:
        """Begin a round: find where few tokens are legal."""
        self._places = places
        self._by_ratio = decides_by_ratio(places.draft, self._sampler)
        self._decided = {}
        self._lists = self._rows.lists(places.nodes, all_whole=self._by_ratio)

    @property
    def asked(self) -> list[int]:
        """The rows where many tokens are legal."""
        return [row for row, legal in enumerate(self._lists) if legal is None]

    def start(self, hidden: torch.Tensor, whole: torch.Tensor) -> None:
        """Compute what logits are missing."""
        self._hidden = hidden
        self._known = self._rows.logits(hidden, self._lists, whole.cpu())

    def draw(self, node: int) -> Draw:
        """Draw at a node, or return what was drawn for the whole chain."""
        places, row = self._places, self._places.row_of[node]
        logits, token_ids = self._known[row]
        if self._by_ratio and not self._decided:
            rows = [here.logits for here in self._known]
            self._decided = decide_by_ratio(places.draft, rows, self._sampler, self._coins, places.step_at)
        drawn = self._decided.get(node) or self._sampler.draw(logits, places.step(node, token_ids))
        if token_ids is None or not places.is_measured(node):
            return drawn
        whole = self._rows.whole(self._hidden[row : row + 1])[0]
        return Draw(drawn.token_id, self._sampler.legal_mass_lost(whole, token_ids))


def decides_by_ratio(draft: Draft, sampler: Sampler) -> bool:
    """Say whether the draws of a draft are made for the whole chain, because it was drawn with other noise."""
    return sampler.temperature > 0 and draft.is_drawn
