"""The working part of a token automaton: configurations, rows and costs, lazily made under one lock.

A state is a number: the configuration of the parser. Rows are keyed by the saturated configuration
(counters far from their bounds count as one), and equal rows are one array. Nothing here forgets a state
while a walk may hold it; token_automaton.py changes the whole core instead when it has grown.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.array_store import ArrayLayout
from structgen.errors import TokenRejectedError
from structgen.grammar.costs import FinishingCosts
from structgen.grammar.parser import DEAD, Parser
from structgen.grammar.rows import Cut, RowBuilder
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.kernels.trie_walk import Ints, are_equal, fingerprint
from structgen.vocabulary import Vocabulary

_MAX_CUT_ROWS = 64
_MAX_EDGES = 1 << 20
_MAX_MASKS = 1 << 16
_MAX_FORCED_BYTES = 4096

_INT32 = np.dtype(np.int32)

ROW_ARRAYS = {
    "row_keys": ArrayLayout(_INT32, (None, 8)),
    "row_place": ArrayLayout(_INT32, (None,)),
    "row_start": ArrayLayout(_INT32, (None,)),
    "row_data": ArrayLayout(np.dtype(np.uint8), (None,)),
    "worst_keys": ArrayLayout(_INT32, (None, 8)),
    "worst_costs": ArrayLayout(_INT32, (None,)),
}
"""The arrays that rows are kept in, packed: keys of 32 bytes, the row of each, where rows begin, and costs by key."""


class AutomatonCore:
    """Which tokens may follow, for every text of a grammar; thread-safe."""

    def __init__(
        self,
        parser: Parser,
        scans: VocabularyScans,
        spelling: Spelling,
        *,
        memory_mb: float,
    ) -> None:
        """Start with the start state only.

        Args:
            parser: the configurations of the grammar.
            scans: what lexemes mean for the vocabulary.
            spelling: which bytes the vocabulary has.
            memory_mb: bound on the mask rows that are kept, in MiB; beyond it they are made anew when needed.

        Raises:
            VocabularyError: the vocabulary cannot spell any text of the grammar.
        """
        self._vocabulary = scans.vocabulary
        self._parser = parser
        self._scans = scans
        self._spelling = spelling
        self._lock = threading.RLock()
        self._costs: FinishingCosts | None = None
        self._crosses = spelling.meets_needed_tokens(terminal.dfa for terminal in parser.terminals)
        if self._crosses:
            self._costs = FinishingCosts(parser, scans, spelling)
        self._builder = RowBuilder(parser, scans, None if self._costs is None else Cut(self._costs), lambda: self.costs)
        # A row is held once by what was built and once with the stop ids.
        self._max_rows = max(16, int(memory_mb * 2**20) // (self._scans.num_words * 8))
        self._stop_ids = tuple(i for i in self._vocabulary.stop_ids if i < self._vocabulary.size)
        self._rows: OrderedDict[int, Ints] = OrderedDict()
        self._stored: dict[bytes, bytes] = {}
        self._stored_worst: dict[bytes, int] = {}
        self._distinct: dict[int, Ints] = {}
        self._masks: dict[int, Ints] = {}
        self._worst: dict[int, int] = {}
        self._cut_rows: OrderedDict[tuple[int, int], Ints] = OrderedDict()
        self._free_text: dict[int, Ints | None] = {}
        self._edges: dict[tuple[int, int], int] = {}
        self._end_mask = self._scans.new_row()
        self._end_mask.setflags(write=False)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that are walked over."""
        return self._vocabulary

    @property
    def parser(self) -> Parser:
        """The configurations; whoever makes new ones holds the only reference to this core."""
        return self._parser

    @property
    def lock(self) -> threading.RLock:
        """Held while the parser is asked from outside, where others walk meanwhile."""
        return self._lock

    @property
    def scans(self) -> VocabularyScans:
        """What lexemes mean for the vocabulary."""
        return self._scans

    @property
    def start_configuration(self) -> int:
        """The state before any text."""
        return self._parser.start

    @property
    def num_configurations(self) -> int:
        """Number of states met so far."""
        return len(self._parser.configurations)

    @property
    def num_terminals(self) -> int:
        """Number of lexemes of the grammar."""
        return len(self._parser.terminals)

    @property
    def num_words(self) -> int:
        """Length of a mask."""
        return self._scans.num_words

    @property
    def num_distinct_rows(self) -> int:
        """Number of rows at hand that differ."""
        return len(self._distinct)

    def is_accepting(self, configuration: int) -> bool:
        """Return whether the text may end here."""
        return self._parser.configurations[configuration][1]

    def describe(self, configuration: int) -> str:
        """Return a short text for messages."""
        with self._lock:
            return self._parser.describe(configuration)

    # ------------------------------------------------------------------ masks

    def mask(self, configuration: int) -> Ints:
        """Return the mask: (ceil(V / 32),) int32, read-only, bit 1 = legal, stop ids set where the text may end."""
        known = self._masks.get(configuration)
        if known is None:
            with self._lock:
                key = self._mask_key(configuration)
                known = self._finished_mask(key, self._stored_mask(key))
                if len(self._masks) >= _MAX_MASKS:
                    self._masks.clear()
                self._masks[configuration] = known
        return known

    def mask_within(self, configuration: int, budget: int) -> Ints:
        """Return the mask of the tokens after which budget - 1 more tokens are enough to end.

        It is the mask itself unless the budget is near the finishing cost. Stop ids stay legal where the text may end.
        """
        with self._lock:
            key = self._cost_key(configuration)
            if budget > self._worst_cost(key):
                return self.mask(configuration)
            cut = self._cut_rows.get((key, budget))
            if cut is None:
                row = self._builder.cut_mask(key, Cut(self.costs, budget - 1))
                cut = self._cut_rows[key, budget] = self._finished_mask(key, row)
                if len(self._cut_rows) > _MAX_CUT_ROWS:
                    self._cut_rows.popitem(last=False)
            return cut

    def key(self, configuration: int) -> tuple[int, int]:
        """Return a key that is the same wherever the same tokens are legal: counts far from bounds do not matter."""
        # Another core numbers its states anew. That an id may come again does no harm: it would mislead a draft.
        with self._lock:
            return id(self), self._mask_key(configuration)

    def _mask_key(self, configuration: int) -> int:
        """Return the configuration that the mask is kept by."""
        # Where tokens cross borders, whether a text can end at all may hang on a count: its parity, say.
        if self._crosses:
            return configuration
        if self._builder.may_get_deep(configuration):
            return self._cost_key(configuration)
        return self._parser.saturated(configuration)

    def _cost_key(self, configuration: int) -> int:
        """Return the configuration that costs after tokens are kept by."""
        return configuration if self._crosses else self._parser.saturated(configuration, keep_costs=True)

    def _worst_cost(self, key: int) -> int:
        """Return the greatest finishing cost after any legal token."""
        worst = self._worst.get(key)
        if worst is None:
            digest = self._parser.key_of(key) if self._stored_worst else b""
            worst = self._stored_worst.get(digest)
            self._worst[key] = self._builder.worst_cost(key) if worst is None else worst
            return self._worst[key]
        return worst

    def free_text_mask(self, configuration: int) -> Ints | None:
        """Return the mask of the tokens that stay inside a free-text lexeme, None if none is live."""
        with self._lock:
            key = self._mask_key(configuration)
            if key not in self._free_text:
                mask = self._builder.free_text(key)
                self._free_text[key] = None if mask is None else self._shared(mask)
            return self._free_text[key]

    @property
    def end_mask(self) -> Ints:
        """The mask after the end: nothing is legal."""
        return self._end_mask

    @property
    def costs(self) -> FinishingCosts:
        """The finishing costs, worked out when first asked for."""
        with self._lock:
            if self._costs is None:
                self._costs = FinishingCosts(self._parser, self._scans, self._spelling)
            return self._costs

    def finishing_cost(self, configuration: int) -> int:
        """Return d(s): this many tokens (stop token not counted) are enough to end from here."""
        with self._lock:
            return self.costs.of_configuration(configuration)

    def _stored_mask(self, key: int) -> Ints:
        """Return the mask from disk where there is one; the row itself is only needed for costs."""
        if self._stored and key not in self._rows:
            stored = self._stored.get(self._parser.key_of(key))
            if stored is not None:
                return unpacked_row(stored, self._scans.num_words)
        return self._row(key)

    def _row(self, key: int) -> Ints:
        known = self._rows.get(key)
        if known is None:
            known = self._rows[key] = self._builder.mask(key)
            if self._stored:
                self._stored.pop(self._parser.key_of(key), None)
            if len(self._rows) > self._max_rows:
                self._rows.popitem(last=False)
        return known

    def _finished_mask(self, key: int, mask: Ints) -> Ints:
        return self._shared(with_stops(mask, self._stop_ids) if self._parser.configurations[key][1] else mask)

    def _shared(self, mask: Ints) -> Ints:
        if len(self._distinct) > self._max_rows:
            self._distinct.clear()
            self._masks.clear()
        number = fingerprint(mask)
        known = self._distinct.setdefault(number, mask)
        while known is not mask and not are_equal(known, mask):
            number += 1  # another mask with the same fingerprint has this place
            known = self._distinct.setdefault(number, mask)
        known.setflags(write=False)
        return known

    # ------------------------------------------------------------------ rows on disk

    @property
    def num_rows(self) -> int:
        """Number of mask rows at hand, those from disk included."""
        return len(self._rows) + len(self._stored)

    def export_rows(self) -> dict[str, npt.NDArray[Any]]:
        """Return the rows as arrays (see ROW_ARRAYS): import_rows takes them in another process."""
        with self._lock:
            by_key = dict(self._stored)
            by_key |= {self._parser.key_of(key): packed_row(mask) for key, mask in self._rows.items()}
            worst = self._stored_worst | {self._parser.key_of(key): cost for key, cost in self._worst.items()}
        number = {data: index for index, data in enumerate(dict.fromkeys(by_key.values()))}
        return {
            "row_keys": np.frombuffer(b"".join(by_key), np.int32).reshape(-1, 8),
            "row_place": np.array([number[data] for data in by_key.values()], np.int32),
            "row_start": np.cumsum([0, *map(len, number)], dtype=np.int32),
            "row_data": np.frombuffer(b"".join(number), np.uint8),
            "worst_keys": np.frombuffer(b"".join(worst), np.int32).reshape(-1, 8),
            "worst_costs": np.array(list(worst.values()), np.int32),
        }

    def import_rows(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take rows that export_rows gave, in another process as a rule; `rows_fit` says of arrays that these are."""
        keys, places, start, data, worst_keys, worst = (arrays[name] for name in ROW_ARRAYS)
        whole, cuts = data.tobytes(), start.tolist()
        rows = [whole[first:last] for first, last in pairwise(cuts)]
        with self._lock:
            self._stored.update({key.tobytes(): rows[place] for key, place in zip(keys, places.tolist(), strict=True)})
            self._stored_worst.update(zip((key.tobytes() for key in worst_keys), worst.tolist(), strict=True))

    def row_key(self, configuration: int) -> bytes:
        """Return what the row of a state is kept by, in every process."""
        with self._lock:
            return self._parser.key_of(self._mask_key(configuration))

    # ------------------------------------------------------------------ steps

    def next_configuration(self, configuration: int, token_id: int) -> int:
        """Return the state after a token that is not a stop id.

        Raises:
            TokenRejectedError: the token is illegal here.
        """
        known = self._edges.get((configuration, token_id))
        if known is not None:
            return known
        data = self.vocabulary.token_bytes(token_id) if 0 <= token_id < self.vocabulary.size else b""
        with self._lock:
            after = configuration if data else DEAD
            for byte in data:
                after = self._parser.step(after, byte)
                if after == DEAD:
                    break
            if after == DEAD or not self.can_end(after) or self._is_too_deep(configuration, token_id):
                raise TokenRejectedError(token_id, self._rejection(configuration, token_id, data))
            if len(self._edges) >= _MAX_EDGES:
                self._edges.clear()
            self._edges[configuration, token_id] = after
        return after

    @property
    def steps(self) -> dict[tuple[int, int], int]:
        """The steps that were taken so far: (state, token) -> state."""
        with self._lock:
            return dict(self._edges)

    def _is_too_deep(self, configuration: int, token_id: int) -> bool:
        """Return whether nesting forbids a token that could be read: near the limit the mask is asked."""
        if not self._builder.may_get_deep(configuration):
            return False
        return not int(self.mask(configuration)[token_id >> 5]) >> (token_id & 31) & 1

    def can_end(self, configuration: int) -> bool:
        """Return whether some sequence of tokens leads from here to an end, where that is in doubt at all."""
        cut = self._builder.spelling_cut
        return cut is None or cut.allows(configuration)

    def _rejection(self, configuration: int, token_id: int, data: bytes) -> str:
        what = repr(data) if data else "a special or unknown token, which never is text"
        return f"token {token_id} ({what}) is not legal in state {self._parser.describe(configuration)}; see mask()"

    def forced_bytes(self, configuration: int) -> bytes:
        """Return the bytes that every continuation starts with (at most 4,096 of them)."""
        forced = bytearray()
        with self._lock:
            while len(forced) < _MAX_FORCED_BYTES and not self._parser.configurations[configuration][1]:
                successors = self._parser.successors(configuration)
                if len(successors) != 1:
                    break
                ((configuration, choices),) = successors.items()
                if len(choices) != 1:
                    break
                forced.append(choices[0])
        return bytes(forced)


def with_stops(mask: Ints, stop_ids: Iterable[int]) -> Ints:
    """Return a mask with the stop ids set."""
    mask = mask.copy()
    for stop in stop_ids:
        mask[stop >> 5] |= np.uint32(1 << (stop & 31)).astype(np.int32)
    return mask


def packed_row(row: Ints) -> bytes:
    """Return a row as bytes that take little room: most are nearly empty, or nearly like many bytes in a line."""
    return zlib.compress(row.tobytes(), 1)


def unpacked_row(data: bytes, num_words: int) -> Ints:
    """Return the row that `packed_row` was given, read-only."""
    row = np.frombuffer(zlib.decompress(data), np.int32)
    if len(row) != num_words:
        raise ValueError(f"a row of {len(row)} words was kept where masks have {num_words}")
    return row


def rows_fit(arrays: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Return whether arrays of the types in ROW_ARRAYS are as long as those of export_rows are."""
    keys, places, start, data, worst_keys, worst = (arrays[name] for name in ROW_ARRAYS)
    fits = len(keys) == len(places) and len(worst_keys) == len(worst) and len(start) > 0
    return fits and int(start[-1]) == len(data)
