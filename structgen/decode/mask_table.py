"""Rows of masks on a device: what was sent once stays there, and is named by its number.

A state hands out one array for equal rows, so a row is known by the array that it is. The table holds these arrays, so
that none of them gives its place in memory to another; they are read-only. Beyond a bound the row that was used longest
ago makes room. Beside a row stands the list of its tokens where these are few, padded with a number that no token has.

What is sent goes through memory that the device reads by itself (pinned), and the stream keeps the order: a draw that
was started sees the rows of its time, whatever is sent after it. So a table belongs to one stream. Left out: which rows
a draw needs (device_draws.py).
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from structgen.kernels.gather_head import HeadWeights

# Targets name what is here, so nothing that imports them can be named here.
_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
_TokenIds: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

MaskRow: TypeAlias = "tuple[_Mask, _TokenIds | None]"
"""A mask, and its tokens where there is a list of them."""

_MOST_BYTES: Final = 64 << 20
_LEAST_ROWS: Final = 64
_MAX_TABLES: Final = 4
_PADDING: Final = np.iinfo(np.int32).max


@dataclass(slots=True)
class _Known:
    """A row of the table.

    Attributes:
        mask: keeps its place in memory.
        slot: its number.
        has_list: whether its list is there.
    """

    mask: _Mask
    slot: int
    has_list: bool = False


class MaskTable:
    """Rows of masks of one width, on one stream; safe to use from several threads.

    Attributes:
        words: (rows, num_words) int32; another tensor when the table has grown.
        lists: (starts (rows + 1,) int64, ids int32) as structgen.kernels.sample.Masks has them; None where there are
            no lists. Ids past the vocabulary are padding.
        num_sent: rows and lists that were sent, ever.
    """

    def __init__(self, num_words: int, *, list_length: int, device: torch.device, max_bytes: int = _MOST_BYTES) -> None:
        """Start without rows.

        Args:
            num_words: of a mask.
            list_length: tokens of the longest list, 0 for no lists.
            device: where the rows are.
            max_bytes: what the table takes at the most; 64 rows are there in any case, and what one draw needs.
        """
        self._lock = threading.Lock()
        self._device = device
        self._list_length = list_length
        self._max_rows = max(_LEAST_ROWS, max_bytes // (4 * (num_words + list_length)))
        self._known: OrderedDict[int, _Known] = OrderedDict()
        # Here and in _grow: what is made in the inference mode of a caller could only be changed in it.
        with torch.inference_mode(mode=False):
            self.words = torch.empty((0, num_words), dtype=torch.int32, device=device)
            self._ids = torch.empty((0, list_length), dtype=torch.int32, device=device)
        self.lists: tuple[torch.Tensor, torch.Tensor] | None = None
        self.num_sent = 0

    def send(self, rows: Sequence[MaskRow]) -> None:
        """Send rows that are not there, because a draw will need them."""
        with self.using(rows):
            pass

    @contextlib.contextmanager
    def using(self, rows: Sequence[MaskRow]) -> Iterator[list[int]]:
        """Give the numbers of rows, which keep them for what is started inside."""
        with self._lock:
            wanted = {id(mask) for mask, _ in rows}
            try:
                slots = [self._slot(mask, listed, wanted) for mask, listed in rows]
            except BaseException:  # of a key that was pressed too: a number may have no row, or the row of another mask
                self._known.clear()
                raise
            yield slots

    def _slot(self, mask: _Mask, listed: _TokenIds | None, wanted: set[int]) -> int:
        known = self._known.get(id(mask))
        if known is None:
            known = self._known[id(mask)] = _Known(mask, self._room(wanted))
            self._send(self.words[known.slot], mask)
        self._known.move_to_end(id(mask))
        if listed is not None and not known.has_list:
            padded = np.full(self._list_length, _PADDING, np.int32)
            padded[: len(listed)] = listed
            self._send(self._ids[known.slot], padded)
            known.has_list = True
        return known.slot

    def _room(self, wanted: set[int]) -> int:
        """Return a number that no row has, or none any more."""
        num = len(self._known)
        if num >= self._max_rows:
            oldest = next((key for key in self._known if key not in wanted), None)
            if oldest is not None:
                return self._known.pop(oldest).slot
        if num == len(self.words):
            self._grow(max(_LEAST_ROWS, min(2 * num, self._max_rows), num + 1))
        return num

    @torch.inference_mode(mode=False)
    def _grow(self, num_rows: int) -> None:
        """Take more memory; what was started goes on with the old one, which the stream gives free after it."""
        more = num_rows - len(self.words)
        words = torch.cat([self.words, self.words.new_empty((more, self.words.shape[1]))])
        ids = torch.cat([self._ids, self._ids.new_empty((more, self._list_length))])
        starts = torch.arange(num_rows + 1, dtype=torch.int64, device=self._device) * self._list_length
        lists = (starts, ids.view(-1)) if self._list_length else None
        self.words, self._ids, self.lists = words, ids, lists  # at once: nobody interrupts in between

    def _send(self, row: torch.Tensor, values: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        staged = torch.empty(row.shape, dtype=row.dtype, pin_memory=self._device.type == "cuda")
        staged.numpy()[:] = values
        row.copy_(staged, non_blocking=True)
        self.num_sent += 1


class MaskTables:
    """The tables of one device, one for each stream and width that is in use."""

    def __init__(self, device: torch.device) -> None:
        """Start without tables.

        Args:
            device: where they are.
        """
        self._device = device
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[int, int, int], MaskTable] = OrderedDict()

    def of(self, *, num_words: int, list_length: int) -> MaskTable:
        """Return the table of the current stream for masks of a width, made now if there is none."""
        stream: Any = torch.cuda.current_stream(self._device).cuda_stream if self._device.type == "cuda" else 0
        key = int(stream), num_words, list_length
        with self._lock:
            if key not in self._tables:
                self._tables[key] = MaskTable(num_words, list_length=list_length, device=self._device)
                if len(self._tables) > _MAX_TABLES:
                    self._tables.popitem(last=False)
            self._tables.move_to_end(key)
            return self._tables[key]


@dataclass(frozen=True, eq=False, slots=True)
class DeviceSide:
    """What the draws of all requests of a model share on its device.

    Attributes:
        device: where the model is.
        tables: mask rows.
        head: the weights of the head, None where the rows of a few tokens cannot be computed alone.
    """

    device: torch.device
    tables: MaskTables
    head: HeadWeights | None
