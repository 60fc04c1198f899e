"""The working part of a token automaton: configurations, rows and costs, lazily made under one lock.

A state is a number: the configuration of the parser. Rows are keyed by the saturated configuration
(counters far from their bounds count as one), and equal rows are one array. Nothing here forgets a state
while a walk may hold it; token_automaton.py changes the whole core instead when it has grown.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np

from structgen.errors import TokenRejectedError
from structgen.grammar.costs import FinishingCosts
from structgen.grammar.parser import DEAD, Parser
from structgen.grammar.rows import Cut, Row, RowBuilder
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.kernels.trie_walk import Ints
from structgen.vocabulary import Vocabulary

_MAX_CUT_ROWS = 64
_MAX_EDGES = 1 << 20
_MAX_MASKS = 1 << 16
_MAX_FORCED_BYTES = 4096


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
        crosses = any(spelling.meets_needed_tokens(terminal.dfa) for terminal in parser.terminals)
        if crosses:
            self._costs = FinishingCosts(parser, scans, spelling)
        self._builder = RowBuilder(parser, scans, None if self._costs is None else Cut(self._costs))
        # A row is held once by what was built and once with the stop ids.
        self._max_rows = max(16, int(memory_mb * 2**20) // (self._scans.num_words * 8))
        self._stop_ids = tuple(i for i in self._vocabulary.stop_ids if i < self._vocabulary.size)
        self._rows: OrderedDict[int, Row] = OrderedDict()
        self._stored: dict[bytes, Ints] = {}
        self._distinct: dict[bytes, Ints] = {}
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
                saturated = self._parser.saturated(configuration)
                known = self._finished_mask(saturated, self._stored_mask(saturated))
                if len(self._masks) >= _MAX_MASKS:
                    self._masks.clear()
                self._masks[configuration] = known
        return known

    def mask_within(self, configuration: int, budget: int) -> Ints:
        """Return the mask of the tokens after which budget - 1 more tokens are enough to end.

        It is the mask itself unless the budget is near the finishing cost. Stop ids stay legal where the text may end.
        """
        with self._lock:
            saturated = self._parser.saturated(configuration)
            worst = self._worst.get(saturated)
            if worst is None:
                worst = self._worst[saturated] = self._builder.worst_cost(self._row(saturated), self.costs)
            if budget > worst:
                return self.mask(configuration)
            key = (saturated, budget)
            cut = self._cut_rows.get(key)
            if cut is None:
                row = self._builder.build(saturated, Cut(self.costs, budget - 1))
                cut = self._cut_rows[key] = self._finished_mask(saturated, row.mask)
                if len(self._cut_rows) > _MAX_CUT_ROWS:
                    self._cut_rows.popitem(last=False)
            return cut

    def free_text_mask(self, configuration: int) -> Ints | None:
        """Return the mask of the tokens that stay inside a free-text lexeme, None if none is live."""
        with self._lock:
            saturated = self._parser.saturated(configuration)
            if saturated not in self._free_text:
                mask = self._builder.free_text(saturated)
                self._free_text[saturated] = None if mask is None else self._shared(mask)
            return self._free_text[saturated]

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

    def _stored_mask(self, saturated: int) -> Ints:
        """Return the mask from disk where there is one; the row itself is only needed near the end of a budget."""
        if self._stored and saturated not in self._rows:
            stored = self._stored.get(self._parser.key_of(saturated))
            if stored is not None:
                return stored
        return self._row(saturated).mask

    def _row(self, saturated: int) -> Row:
        known = self._rows.get(saturated)
        if known is None:
            known = self._rows[saturated] = self._builder.build(saturated)
            if len(self._rows) > self._max_rows:
                self._rows.popitem(last=False)
        return known

    def _finished_mask(self, saturated: int, mask: Ints) -> Ints:
        if self._parser.configurations[saturated][1] and self._stop_ids:
            mask = mask.copy()
            for stop in self._stop_ids:
                mask[stop >> 5] |= np.uint32(1 << (stop & 31)).astype(np.int32)
        return self._shared(mask)

    def _shared(self, mask: Ints) -> Ints:
        if len(self._distinct) > self._max_rows:
            self._distinct.clear()
            self._masks.clear()
        mask = self._distinct.setdefault(mask.tobytes(), mask)
        mask.setflags(write=False)
        return mask

    # ------------------------------------------------------------------ rows on disk

    @property
    def num_rows(self) -> int:
        """Number of mask rows at hand, those from disk included."""
        return len(self._rows) + len(self._stored)

    def export_rows(self) -> tuple[Ints, Ints, Ints]:
        """Return (keys (n, 8), place of each row's mask (n,), distinct masks (m, words)), all int32."""
        with self._lock:
            by_key = dict(self._stored)
            by_key |= {self._parser.key_of(saturated): row.mask for saturated, row in self._rows.items()}
            masks = {mask.tobytes(): mask for mask in by_key.values()}
        number = {data: index for index, data in enumerate(masks)}
        keys = np.frombuffer(b"".join(by_key), np.int32).reshape(-1, 8)
        place = np.array([number[mask.tobytes()] for mask in by_key.values()], np.int32)
        table = np.array(list(masks.values()), np.int32).reshape(-1, self._scans.num_words)
        return keys, place, table

    def import_rows(self, keys: Ints, place: Ints, masks: Ints) -> bool:
        """Take rows that export_rows gave in another process; return False if their shapes do not fit."""
        fits = keys.ndim == 2 and keys.shape[1] == 8 and place.shape == keys.shape[:1]
        if not fits or masks.ndim != 2 or masks.shape[1] != self._scans.num_words or not len(masks):
            return False
        if place.min(initial=0) < 0 or place.max(initial=0) >= len(masks):
            return False
        masks.setflags(write=False)
        with self._lock:
            self._stored.update({key.tobytes(): masks[index] for key, index in zip(keys, place, strict=True)})
        return True

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
            if after == DEAD or not self._can_end(after):
                raise TokenRejectedError(token_id, self._rejection(configuration, token_id, data))
            if len(self._edges) >= _MAX_EDGES:
                self._edges.clear()
            self._edges[configuration, token_id] = after
        return after

    def _can_end(self, configuration: int) -> bool:
        cut = self._builder.spelling_cut
        return cut is None or cut.allows(configuration)

    def _rejection(self, configuration: int, token_id: int, data: bytes) -> str:
        what = repr(data) if data else "a special or unknown token, which never is text"
        return f"token {token_id} ({what}) is not legal in state {self._parser.describe(configuration)}"

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
