"""The draws of a round on the device: at all places of a draft in one call, and one small copy to the host.

The logits never leave the device. Masks are rows of a table there (mask_table.py); where few tokens are legal only
their rows of the head are computed, by `gather_head`, at their columns in rows of -inf. Drawing at places that the text
does not come to costs next to nothing there. Nothing between the pass and the copy waits for the device, so all of it
is in its queue while the pass runs; what comes back for each place is a token, an error and a probability.

The law and the noise are those of the host (sampler.py), so the draws are the same but for the last digits of float32.
Chains that were drawn with other noise are decided about on the host, from rows that are copied there. Left out: what
becomes of a token (loop.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch

from structgen.decode.draft import ROOT, Legal
from structgen.decode.legal_rows import LegalRows, rows_of
from structgen.decode.mask_table import DeviceSide, MaskRow, MaskTable
from structgen.decode.node_draws import HostDraws, Places, decides_by_ratio
from structgen.decode.sampler import Draw, DrawPlace, Sampler
from structgen.decode.sending import sent
from structgen.decode.target import TokenIds
from structgen.kernels.gather_head import gather_head_
from structgen.kernels.sample import Masks, Sampled, Workspace, sample

# Each kind of result begins at 16 bytes: where tensors begin otherwise Triton compiles other kernels, within a text.
_GRAIN: Final = 4


class _Round(NamedTuple):
    """Where a round draws; rows are those of the hidden states.

    Attributes:
        places: the nodes.
        lists: the legal tokens at each row, None where they are many, or not known.
        whole: rows that logits of all tokens are needed of.
        listed: rows of which the logits of the list are enough.
    """

    places: Places
    lists: Sequence[TokenIds | None]
    whole: list[int]
    listed: list[int]

    @property
    def rows(self) -> list[int]:
        """The row of hidden states behind each row of logits."""
        return [*self.whole, *self.listed]

    def mask_rows(self) -> list[MaskRow]:
        """Return the rows of masks that are needed."""
        found: list[MaskRow] = []
        for row in self.rows:
            legal = self.places.legal(row)
            found.append((legal.mask, self.lists[row]))
            if legal.free_text_mask is not None:
                found.append((legal.free_text_mask, None))
        return found


class _Drawn(NamedTuple):
    """What was started in a round.

    Attributes:
        logits: (rows, width) what was drawn from.
        told: (4, rows or more) int32 on the host, what came of it: see `_sampled`.
        is_there: an event behind the copy, None where copies are waited for.
    """

    logits: torch.Tensor
    told: torch.Tensor
    is_there: Any


class DeviceDraws:
    """Draws of one request; see NodeDraws."""

    def __init__(self, side: DeviceSide, rows: LegalRows, sampler: Sampler, host: HostDraws, *, size: int) -> None:
        """Bind the draws of a request.

        Args:
            side: what requests share.
            rows: where few tokens are legal.
            sampler: that of the text.
            host: decides about chains that were drawn with other noise.
            size: ids of the vocabulary.
        """
        self._side = side
        self._rows = rows
        self._sampler = sampler
        self._host = host
        self._size = size
        self._round: _Round | None = None
        self._drawn: _Drawn | None = None
        self._workspace: tuple[int, Workspace | None] = 0, None

    @property
    def table(self) -> MaskTable:
        """The rows of masks on the current stream."""
        return self._side.tables.of(num_words=-(-self._size // 32), list_length=self._rows.most)

    def begin(self, places: Places) -> None:
        """Begin a round: send the rows of masks that are not on the device."""
        self._round = self._drawn = None
        if decides_by_ratio(places.draft, self._sampler):
            self._host.begin(places)
            return
        lists = self._rows.lists(places.nodes)
        known = [row for row, node in enumerate(places.nodes) if node.legal is not None]
        listed = [row for row in known if lists[row] is not None]
        whole = [row for row in known if lists[row] is None or places.is_measured(places.read[row])]
        self._round = _Round(places, lists, whole, listed)
        self.table.send(self._round.mask_rows())

    def send(self, made: Sequence[Legal]) -> None:
        """Send the rows of masks that a later round may need."""
        masks = [mask for legal in made for mask in (legal.mask, legal.free_text_mask) if mask is not None]
        self.table.send([(mask, None) for mask in masks])

    @property
    def asked(self) -> Sequence[int]:
        """The rows where many tokens are legal, and those at which the legal mass is measured."""
        return self._host.asked if self._round is None else self._round.whole

    def start(self, hidden: torch.Tensor, whole: torch.Tensor) -> None:
        """Start head, draws and the copy of what they give; wait for nothing."""
        made, device, table = self._round, self._side.device, self.table
        if made is None:
            self._host.start(hidden, whole)
            return
        mask_rows = made.mask_rows()
        with table.using(mask_rows) as slots:
            slot_of = {id(mask): slot for (mask, _), slot in zip(mask_rows, slots, strict=True)}
            numbers = [slot_of[id(made.places.legal(row).mask)] for row in made.rows]
            masks = Masks(
                words=table.words,
                row=sent(torch.tensor(numbers, dtype=torch.int32), device),
                num_tokens=self._size,
                lists=table.lists,
            )
            logits = self._logits(made, hidden, whole, masks)
            places = [self._place(made.places, row, slot_of) for row in made.rows]
            options, noise = self._sampler.for_places(places, device, has_masses=bool(made.whole))
            memory = _new_memory(len(numbers), device)
            out = _sampled(memory[:, : len(numbers)], self._workspace_for(len(numbers)))
            # Without lists, because rows of few logits have -inf everywhere else.
            sample(logits, masks=replace(masks, lists=None), options=options, noise=noise, out=out)
        self._drawn = _Drawn(logits, *_received(memory))

    def draw(self, node: int) -> Draw:
        """Return what was drawn at a node.

        Raises:
            NoLegalTokenError: no legal token has a probability.
        """
        made, drawn = self._round, self._drawn
        if made is None or drawn is None:
            return self._host.draw(node)
        if drawn.is_there is not None:
            drawn.is_there.synchronize()
        row = made.places.row_of[node]
        token_ids = made.lists[row]
        number = made.whole.index(row) if token_ids is None else len(made.whole) + made.listed.index(row)
        told = _sampled(drawn.told)
        if int(told.error[number]):
            # Only the host has words for it.
            logits = drawn.logits[number].cpu()
            few = logits if token_ids is None else logits[torch.from_numpy(token_ids)]
            return self._sampler.draw(few, made.places.step(node, token_ids))
        lost = 0.0 - float(told.log_legal_mass[made.whole.index(row)]) if row in made.whole else None
        return Draw(int(told.token_id[number]), lost)

    def _logits(self, made: _Round, hidden: torch.Tensor, whole: torch.Tensor, masks: Masks) -> torch.Tensor:
        """Return (rows, width) logits: whole rows, and those that have the logits of their list only."""
        if made.listed and self._side.head is not None:
            few = whole.new_full((len(made.listed), whole.shape[1]), -torch.inf)
            listed = replace(masks, row=masks.row[len(made.whole) :])
            gather_head_(few, rows_of(hidden, made.listed), self._side.head, listed)
            whole = torch.cat([whole, few]) if len(whole) else few
        return whole.float() if whole.dtype == torch.float64 else whole

    def _place(self, places: Places, row: int, slot_of: Mapping[int, int]) -> DrawPlace:
        """Return where the draw at a row takes place."""
        legal = places.legal(row)
        return DrawPlace(
            position=places.position(row),
            stream=places.stream,
            free_row=-1 if legal.free_text_mask is None else slot_of[id(legal.free_text_mask)],
            drafted=self._counted(places, row) if self._sampler.has_penalties else (),
        )

    def _counted(self, places: Places, row: int) -> list[int]:
        """Return the drafted tokens that lead to a row, of those that the penalties reach."""
        draft, before, found = places.draft, ROOT, []
        for node in draft.path(places.read[row]):
            token_id = draft.nodes[node].token_id
            if self._sampler.reaches(token_id, draft.legal(before).free_text_mask):
                found.append(token_id)
            before = node
        return found

    def _workspace_for(self, num_rows: int) -> Workspace | None:
        """Return what the kernels for CUDA write to meanwhile, made for the most rows so far."""
        most, workspace = self._workspace
        if num_rows > most and self._side.device.type == "cuda":
            most = 1 << (num_rows - 1).bit_length()
            workspace = Workspace.empty(most, num_tokens=self._size, device=self._side.device)
            self._workspace = most, workspace
        return workspace


def _new_memory(num_rows: int, device: torch.device) -> torch.Tensor:
    """Return room for what is drawn at so many rows, and for some more."""
    return torch.empty((4, -(-num_rows // _GRAIN) * _GRAIN), dtype=torch.int32, device=device)


def _sampled(memory: torch.Tensor, workspace: Workspace | None = None) -> Sampled:
    """Return what is drawn as views of (4, rows) int32, so that one copy takes all of it."""
    return Sampled(
        token_id=memory[0],
        error=memory[1],
        log_legal_mass=memory[2].view(torch.float32),
        log_sum_exp=memory[3].view(torch.float32),
        workspace=workspace,
    )


def _received(memory: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Start a copy to the host; return it, and the event behind it."""
    if memory.device.type != "cuda":
        return memory.cpu(), None
    received = torch.empty(memory.shape, dtype=memory.dtype, pin_memory=True)
    received.copy_(memory, non_blocking=True)
    new: Any = torch.cuda.Event  # torch has no types there
    is_there = new()
    is_there.record(torch.cuda.current_stream(memory.device))
    return received, is_there
