"""The KV cache: buffers for several rows, each with a length of its own.

transformers' caches have one length for all rows, and forget in sliding windows what a rollback has to bring back.
Here every layer has a buffer of (rows, heads, positions, size) that is written in place and grows by half; a rollback
changes a number, and after a tree the nodes that stay move together. Sliding windows are a matter of the mask. What is
beyond a row's length is left over from earlier; it is finite, and masked. A buffer that has become much larger than its
rows need, because the longest one left, is made anew.

The cache knows no model: the model calls `update` of each layer in the pass that `begin` told of. A pass is told in
numbers, or by a tensor of positions that only the device knows. Left out: layers whose state is not keys and values per
position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from structgen.decode.sending import sent

# Positions that a buffer grows by, at least; a buffer of a few tokens would grow in every pass.
_GRAIN = 64
# A buffer grows to three times what is needed at most; past this factor it is too large.
_MOST_SPARE = 4


class _Numbers:
    """Numbers that index the buffers of all layers, sent to a device once; a list would be waited for in each."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._sent: dict[torch.device, torch.Tensor] = {}

    def on(self, device: torch.device) -> torch.Tensor:
        """Return them on a device."""
        if device not in self._sent:
            self._sent[device] = sent(torch.tensor(self._numbers), device)
        return self._sent[device]


@dataclass(frozen=True, slots=True)
class Pass:
    """Where the new keys and values of one pass go.

    Attributes:
        rows: the rows that take part, rising.
        starts: for each of them the position of its first new token.
        width: new tokens of each row, padding included.
        num_positions: positions that the attention reads.
    """

    rows: tuple[int, ...]
    starts: tuple[int, ...]
    width: int
    num_positions: int
    _places: _Numbers = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make room for what the layers share."""
        object.__setattr__(self, "_places", _Numbers(self.rows))

    def write(self, buffer: torch.Tensor, states: torch.Tensor) -> None:
        """Put (rows, heads, width, size) new states where they belong."""
        for row, start, new in zip(self.rows, self.starts, states, strict=True):
            buffer[row, :, start : start + self.width] = new

    def read(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return what the attention reads: a view, or a copy where there are other rows between."""
        first, last = self.rows[0], self.rows[-1]
        if last - first + 1 == len(self.rows):
            return buffer[first : last + 1, :, : self.num_positions]
        return buffer[self._places.on(buffer.device), :, : self.num_positions]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPass:
    """A pass of all rows whose places are in a tensor, so that whoever makes it need not know them.

    Attributes:
        positions: (rows, width) int64, where the new tokens go; they fit into the buffers.
        num_positions: positions that the attention reads.
    """

    positions: torch.Tensor
    num_positions: int

    # The longest row before the pass: not known here, and only asked for where a pass has no positions of its own.
    starts = (0,)

    def write(self, buffer: torch.Tensor, states: torch.Tensor) -> None:
        """Put (rows, heads, width, size) new states where they belong."""
        buffer.scatter_(2, self.positions[:, None, :, None].expand_as(states), states)

    def read(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return what the attention reads, a view."""
        return buffer[: len(self.positions), :, : self.num_positions]


class KvCache(Cache):
    """Keys and values of every layer of a model, for rows that come and go."""

    def __init__(self, *, least_rows: int = 0, least_positions: int = 0) -> None:
        """Start without rows; layers are added as the model names them.

        Args:
            least_rows: how many rows the buffers have from the beginning.
            least_positions: how many positions; what fits into both never moves in memory.
        """
        super().__init__(layer_class_to_replicate=self._new_layer)  # type: ignore[arg-type]  # it is only called
        self._own: list[_Layer] = []
        self.least = (least_rows, least_positions)
        self.lengths: list[int] = []
        self.running: Pass | PlacedPass = Pass((0,), (0,), 0, 0)

    @property
    def num_bytes(self) -> int:
        """Memory of the buffers."""
        return sum(buffer.nbytes for buffer in self._buffers())

    def add_row(self) -> int:
        """Add an empty row, and return its index."""
        self.lengths.append(0)
        return len(self.lengths) - 1

    def remove_row(self, row: int) -> None:
        """Remove a row; the last one takes its index."""
        last = len(self.lengths) - 1
        if row != last:
            length = self.lengths[last]
            # A row that was in no pass yet has no place in the buffers.
            for buffer in self._buffers() if length else ():
                buffer[row, :, :length] = buffer[last, :, :length]
            self.lengths[row] = length
        self.lengths.pop()
        if not self.lengths:
            self.layers.clear()
            self._own.clear()

    def begin(self, running: Pass | PlacedPass) -> None:
        """Say where the keys and values of the next pass go."""
        self.running = running

    def move(self, row: int, start: int, nodes: Sequence[int]) -> None:
        """Move what stands at start + nodes[i] to start + i, for one row; the nodes rise."""
        if all(node == index for index, node in enumerate(nodes)):
            return
        places = _Numbers([start + node for node in nodes])
        for buffer in self._buffers():
            # An index by numbers makes a copy first, so that nothing is overwritten before it is read.
            buffer[row, :, start : start + len(nodes)] = buffer[row, :, places.on(buffer.device)]

    def _buffers(self) -> list[torch.Tensor]:
        # Models that share keys and values between layers leave some layers without.
        found = [buffer for layer in self._own for buffer in (layer.keys, layer.values)]
        return [buffer for buffer in found if buffer is not None]

    def _new_layer(self) -> _Layer:
        self._own.append(_Layer(self))
        return self._own[-1]


class _Layer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # its __init_subclass__ has no types
    """One layer; what it answers about its length is that of the pass that runs."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, cache: KvCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # it has no types
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the buffers are made in `update`, which knows how long they have to be."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, kwargs: object = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take the keys and values of a pass, and return what its attention reads."""
        running, lengths = self._cache.running, self._cache.lengths
        least_rows, least_positions = self._cache.least
        needed = max(least_rows, len(lengths)), max(least_positions, running.num_positions, *lengths)
        self.keys = keys = _fitting(self.keys, key_states, *needed)
        self.values = values = _fitting(self.values, value_states, *needed)
        running.write(keys, key_states)
        running.write(values, value_states)
        return running.read(keys), running.read(values)

    def get_seq_length(self) -> int:
        """Return how many tokens there were before the pass, in the longest row."""
        return max(self._cache.running.starts)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many positions the attention reads, and the first of them."""
        return self._cache.running.num_positions, 0

    def get_max_length(self) -> int:
        """Return -1: there is no bound."""
        return -1


def _fitting(buffer: torch.Tensor | None, states: torch.Tensor, num_rows: int, num_positions: int) -> torch.Tensor:
    """Return the buffer, or another one with its contents, that has room for such states and not far too much."""
    _, heads, _, size = states.shape
    rows, positions = (0, 0) if buffer is None else (buffer.shape[0], buffer.shape[2])
    is_large = rows * positions > _MOST_SPARE * num_rows * max(num_positions, _GRAIN)
    if buffer is not None and num_rows <= rows and num_positions <= positions and not is_large:
        return buffer
    # Twice the rows, half of the positions more: what joins and grows one by one is not copied each time.
    new_rows = num_rows if is_large or num_rows <= rows else max(num_rows, 2 * rows)
    new_positions = positions
    if is_large or num_positions > positions:
        spare = num_positions if is_large else positions * 3 // 2
        new_positions = -(-max(num_positions, spare) // _GRAIN) * _GRAIN
    # Zeros and not just memory: masked positions count with weight 0, and 0 times NaN is NaN.
    fitting = states.new_zeros((max(new_rows, num_rows), heads, new_positions, size))
    if buffer is not None:
        both = min(rows, len(fitting)), min(positions, new_positions)
        fitting[: both[0], :, : both[1]] = buffer[: both[0], :, : both[1]]
    return fitting
