"""Targets over transformers: sequences of one model that take their passes together.

A single sequence is a batch of one row. Requests of several threads have batches of their own, so they share the
weights and nothing else.

The last digits of logits depend on the shape of a pass. With a fixed width every pass is of one row and of as many
tokens, padding included, and every head of as many hidden states, so that they depend on the text and on nothing else:
neither on what is drafted, nor on other rows. It costs what the padding costs, and a pass for each row; trees are out,
because in a tree the sums over earlier tokens have gaps.

Left out: sharing the cache of a common beginning between rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from structgen.decode.attention_mask import RowLayout
from structgen.decode.causal_model import CausalModel
from structgen.decode.sending import sent
from structgen.decode.target import Target, TokenIds, Tokens
from structgen.errors import OptionError

if TYPE_CHECKING:
    from structgen.decode.kv_cache import KvCache
    from structgen.decode.mask_table import DeviceSide

# Tokens of every pass where texts must not depend on the shape of passes; on a CPU eight cost little more than one.
DETERMINISTIC_WIDTH = 8
# Passes of a fixed width attend to a multiple of so many positions.
_POSITIONS = 64


class TransformersBatch:
    """Rows with a KV cache in common buffers."""

    def __init__(self, model: CausalModel, *, width: int | None = None, cache: KvCache | None = None) -> None:
        """Start without rows.

        Args:
            model: the model.
            width: tokens of every pass but that over a prompt; None for what there is to read.
            cache: an empty one, None for one that grows with its rows.

        Raises:
            OptionError: the model takes no masks of ours, and a fixed width needs them.
        """
        from structgen.decode.kv_cache import KvCache

        if width is not None and model.no_masks_because is not None:
            raise OptionError(f"passes cannot have a fixed width with this model: {model.no_masks_because}")
        self.model = model
        self.width = width
        self.cache = KvCache() if cache is None else cache
        self._rows: list[TransformersTarget] = []

    @property
    def alone_because(self) -> str | None:
        """Why every row has passes of its own, None if several take part in one."""
        return "passes have a fixed width" if self.width is not None else self.model.no_masks_because

    def join(self) -> TransformersTarget:
        """Return an empty sequence, a new row of the batch."""
        row = TransformersTarget(self, self.cache.add_row())
        self._rows.append(row)
        return row

    def leave(self, row: Target) -> None:
        """Take a row out of the batch; the last row moves into its place."""
        index = self._own(row).index
        self.cache.remove_row(index)
        last = self._rows.pop()
        if last is not row:
            self._rows[index] = last
            last.index = index

    def extend(self, parts: Sequence[tuple[Target, Tokens]]) -> list[torch.Tensor]:
        """Append to several rows in one pass.

        Returns:
            for each part (len(token_ids), hidden_size) hidden states.

        Raises:
            OptionError: the model takes no masks of ours, and this pass needs some.
        """
        wanted = {self._own(row).index: tokens for row, tokens in parts}
        if not wanted or len(wanted) != len(parts):
            raise ValueError("a pass takes at least one row, and each row once")
        for row, tokens in parts:
            self._own(row).check(tokens)
        if self.width is None:
            hidden, order = self._pass(wanted), sorted(wanted)
            found = [hidden[order.index(self._own(row).index), : len(tokens.token_ids)] for row, tokens in parts]
        else:
            found = [self._fixed_passes(self._own(row).index, tokens, self.width) for row, tokens in parts]
        for row, tokens in parts:
            self._own(row).took(tokens)
        return found

    def heads(self, hidden: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the logits of hidden states of several rows, in one go where the width is not fixed."""
        together, lengths = torch.cat(list(hidden)), [len(rows) for rows in hidden]
        if not len(together):
            return [together.new_empty((0, self.model.logits_width)) for _ in hidden]
        if self.width is None:
            return list(torch.split(self.model.head.logits(together), lengths))
        return [self.head(rows) for rows in hidden]

    def head(self, hidden: torch.Tensor, token_ids: Sequence[int] | TokenIds | None = None) -> torch.Tensor:
        """Return (rows, logits_width) logits of hidden states, or (rows, len(token_ids)) of them."""
        if self.width is None:
            return self.model.head.logits(hidden, token_ids)
        found = []
        for first in range(0, len(hidden), self.width):
            rows = hidden[first : first + self.width]
            padded = torch.nn.functional.pad(rows, (0, 0, 0, self.width - len(rows)))
            found.append(self.model.head.logits(padded, token_ids)[: len(rows)])
        return torch.cat(found)

    def _fixed_passes(self, index: int, tokens: Tokens, width: int) -> torch.Tensor:
        """Append to one row in passes of the fixed width, a prompt before them in one of its own."""
        start, prompt = self.cache.lengths[index], tokens.num_prompt_tokens
        bounds = [*([0] if prompt else []), *range(prompt, len(tokens.token_ids), width), len(tokens.token_ids)]
        found = []
        for first, end in itertools.pairwise(bounds):
            self.cache.lengths[index] = start + first
            piece = Tokens(tokens.token_ids[first:end])
            hidden = self._pass({index: piece}, width=None if first < prompt else width)
            found.append(hidden[0, : end - first])
        self.cache.lengths[index] = start
        return torch.cat(found)

    def _pass(self, wanted: dict[int, Tokens], *, width: int | None = None) -> torch.Tensor:
        """Run over some rows.

        Returns:
            (rows, width, size) hidden states of the rows in rising order.
        """
        from structgen.decode.kv_cache import Pass

        rows, is_fixed = tuple(sorted(wanted)), width is not None
        width = width or max(len(tokens.token_ids) for tokens in wanted.values())
        starts = tuple(self.cache.lengths[row] for row in rows)
        token_ids = torch.zeros((len(rows), width), dtype=torch.long)
        layouts = []
        for index, (row, start) in enumerate(zip(rows, starts, strict=True)):
            token_ids[index, : len(wanted[row].token_ids)] = torch.as_tensor(wanted[row].token_ids)
            layouts.append(RowLayout(start, _parents(wanted[row]), width))
        # Rounded up, because sums over positions are cut into pieces by how many there are.
        num_positions = -(-(max(starts) + width) // _POSITIONS) * _POSITIONS if is_fixed else max(starts) + width
        self.cache.begin(Pass(rows, starts, width, num_positions))
        needs_masks = is_fixed or len(rows) > 1 or any(tokens.parents is not None for tokens in wanted.values())
        if needs_masks and self.model.no_masks_because is not None:
            raise OptionError(f"the model reads neither trees nor batches: {self.model.no_masks_because}")
        token_ids = sent(token_ids, self.model.device)
        hidden: torch.Tensor = self.model.run(token_ids, layouts, self.cache, num_positions if needs_masks else None)
        return hidden

    def _own(self, row: Target) -> TransformersTarget:
        if not isinstance(row, TransformersTarget) or self._rows[row.index : row.index + 1] != [row]:
            raise ValueError("the row is not one of this batch")
        return row


class TransformersTarget:
    """One sequence through a causal language model of transformers, a row of a batch.

    Attributes:
        index: which row it is; changes when others leave.
    """

    def __init__(self, batch: TransformersBatch, index: int) -> None:
        """Take an empty row; `TransformersBatch.join` does that."""
        self._batch = batch
        self.index = index
        self._start = 0
        self._last: Tokens | None = None

    @property
    def num_cached_tokens(self) -> int:
        """How many tokens the KV cache holds."""
        return self._batch.cache.lengths[self.index]

    @property
    def logits_width(self) -> int:
        """Entries of one row of logits; often more than the vocabulary has ids."""
        return self._batch.model.logits_width

    @property
    def device(self) -> torch.device:
        """The device that tokens go to and logits come from."""
        return self._batch.model.device

    @property
    def device_side(self) -> DeviceSide | None:
        """What draws on the device share; None where draws are the host's."""
        return self._batch.model.device_side

    @property
    def takes_trees(self) -> bool:
        """Whether `extend` reads trees."""
        return self._batch.width is None and self._batch.model.no_masks_because is None

    @property
    def most_legal_rows(self) -> int:
        """Longest list of token ids for which `head` is faster with the list than without."""
        # Sums over a few rows may be cut into other pieces than those over all.
        return 0 if self._batch.width is not None else self._batch.model.head.most_legal_rows

    def prefill(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Start over with these tokens.

        Returns:
            (logits_width,) logits after the last of them, in the dtype of the model.
        """
        self.crop(0)
        return self.head(self.extend(Tokens(token_ids, num_prompt_tokens=len(token_ids)))[-1:])[0]

    def forward(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Append a chain of tokens.

        Returns:
            (len(token_ids), logits_width) logits after each of them, in the dtype of the model.
        """
        return self.head(self.extend(Tokens(token_ids)))

    def extend(self, tokens: Tokens) -> torch.Tensor:
        """Append a chain or a tree.

        Returns:
            (len(token_ids), hidden_size) hidden states, in the dtype of the model.
        """
        return self._batch.extend([(self, tokens)])[0]

    def head(self, hidden: torch.Tensor, token_ids: Sequence[int] | TokenIds | None = None) -> torch.Tensor:
        """Return (rows, logits_width) logits of hidden states, or (rows, len(token_ids)) of them."""
        return self._batch.head(hidden, token_ids)

    def crop(self, num_tokens: int) -> None:
        """Keep the first `num_tokens` tokens of the sequence and forget the rest."""
        cached = self.num_cached_tokens
        if not 0 <= num_tokens <= cached:
            raise ValueError(f"cannot keep {num_tokens} tokens of a cache that holds {cached}")
        if self._is_tree and self._start < num_tokens < cached:
            raise ValueError("a tree cannot be cut by length; keep(path) says which of its tokens stay")
        if num_tokens < cached:
            self._batch.cache.lengths[self.index] = num_tokens
            self._last = None

    def keep(self, path: Sequence[int]) -> None:
        """Keep of what the last `extend` appended only these tokens; see `Target.keep`."""
        if self._last is None:
            raise ValueError("there is nothing to keep of: extend comes first")
        parents = _parents(self._last)
        before = [-1, *path[:-1]] if path else []
        if any(
            not 0 <= node < len(parents) or parents[node] != parent for node, parent in zip(path, before, strict=True)
        ):
            raise ValueError(f"{list(path)} is no path of what was appended, from its beginning")
        self._batch.cache.move(self.index, self._start, path)
        self._batch.cache.lengths[self.index] = self._start + len(path)
        self._last = None

    @property
    def _is_tree(self) -> bool:
        return self._last is not None and self._last.parents is not None

    def check(self, tokens: Tokens) -> None:
        """Refuse what cannot be appended now."""
        if len(tokens.token_ids) == 0:
            raise ValueError("a forward pass needs at least one token")
        if self._is_tree:
            raise ValueError("keep(path) or crop has to say first what stays of the last tree")
        parents = _parents(tokens)
        known = all(-1 <= parent < index for index, parent in enumerate(parents))
        if len(parents) != len(tokens.token_ids) or not known:
            raise ValueError("parents names for each token an earlier one or -1")
        if tokens.parents is not None and self._batch.width is not None:
            raise ValueError("passes of a fixed width take chains only; see takes_trees")

    def took(self, tokens: Tokens) -> None:
        """Count tokens that a pass has appended."""
        self._start = self.num_cached_tokens
        self._last = tokens
        self._batch.cache.lengths[self.index] += len(tokens.token_ids)


def _parents(tokens: Tokens) -> Sequence[int]:
    return range(-1, len(tokens.token_ids) - 1) if tokens.parents is None else tokens.parents
