"""What lexemes mean for a vocabulary: worked out once per DFA state, shared by every grammar, the dear ones on disk.

The rows of string interiors touch nearly every trie node; they are the same in every schema, so a machine walks them
once. What a state means depends only on the words that it still accepts, so states of different lexemes share a scan;
and a state that goes on nearly as another one does (a key that may be any but a few names) differs from it in a few
places of the trie. Leaves out what comes after a lexeme (rows.py).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256

import numpy as np

from structgen.array_store import ArrayLayout, ArrayStore
from structgen.grammar.dfa import Dfa
from structgen.grammar.memo import Memo
from structgen.kernels import trie_walk
from structgen.kernels.lane_walk import LaneTrie
from structgen.kernels.state_rows import StateRows
from structgen.kernels.trie_walk import Bools, CountedDfa, Ints, TrieWalker
from structgen.trie import ByteTrie
from structgen.vocabulary import Vocabulary

INFINITE = 1 << 28

_DEAR_NUM_NODES = 20_000
"""Walks that find at least this many tokens are kept on disk: they take over 0.2 ms."""

_MAX_RELATIVES = 8
"""How many states of a lexeme, scanned last, a further one of it may be made from."""

_SMALL_PART = 64
_MIN_DIFFERING_NODES = 1024
"""A state is made from another one if the two part at this many nodes, or in this part of the trie, at the most."""

_MAX_SHARED_STATES = 64
"""States that reach more states than this are not compared with those of other lexemes."""

_LAYOUTS = {
    "scan": {"exits": ArrayLayout(np.int32, (None, 2))},
    "groups": {
        "ends": ArrayLayout(np.int32, (None, 2)),
        "nodes": ArrayLayout(np.int32, (None,)),
        "start": ArrayLayout(np.int32, (None,)),
    },
}


@dataclass(frozen=True, eq=False, slots=True)
class DfaScan:
    """What one DFA state means for the vocabulary.

    Attributes:
        row: (ceil(V / 32),) int32, mask of the tokens that the DFA survives.
        exits: (m, 2) int32, rows (node, ticks) of the nodes at which words end and below which the trie goes on.
    """

    row: Ints
    exits: Ints


@dataclass(frozen=True, eq=False, slots=True)
class ScanGroups:
    """The tokens that a DFA state survives, by where they end.

    Attributes:
        ends: (k, 2) int32, the distinct (state, ticks) in which those tokens end.
        nodes: their trie nodes, grouped by where they end.
        start: (k + 1,) int32, where each group begins in nodes.
    """

    ends: Ints
    nodes: Ints
    start: Ints

    def add_to(self, mask: Ints, row: Ints, keep: Bools, trie: ByteTrie) -> None:
        """Add, in place, the tokens of the groups to keep, by way of the smaller side; row has those of all groups."""
        if keep.all():
            mask |= row
        elif 2 * int(np.diff(self.start)[keep].sum()) < len(self.nodes):
            trie_walk.set_groups_(mask, self.nodes, self.start, keep, trie)
        else:
            dropped = np.zeros_like(mask)
            trie_walk.set_groups_(dropped, self.nodes, self.start, ~keep, trie)
            mask |= row & ~dropped


@dataclass(frozen=True, eq=False, slots=True)
class _Residue:
    """What a DFA state still accepts, whichever DFA it belongs to.

    Attributes:
        digest: equal for states that accept the same words, and count the same steps, if they reach few states.
        order: the states of this DFA, in the order in which what is kept under the digest numbers them.
    """

    digest: bytes
    order: Ints


_Relative = tuple[int, int, DfaScan]
"""A state of some DFA, the bytes that it goes on with as bits, and its scan."""


class VocabularyScans:
    """The scans of one vocabulary; shared by threads and by grammars, bounded in memory (least recently used go)."""

    def __init__(self, vocabulary: Vocabulary, *, store: ArrayStore | None = None, max_scans: int = 1024) -> None:
        """Prepare, walk nothing yet.

        Args:
            vocabulary: whose trie is walked.
            store: where dear scans are kept, None for memory only.
            max_scans: how many scans, and how many arrays of each other kind, stay in memory.
        """
        self.vocabulary = vocabulary
        self.trie = vocabulary.trie
        self._walker = TrieWalker(self.trie)
        self._state_rows = StateRows(self.trie)
        self.deepest = self._walker.deepest
        self.num_words = (vocabulary.size + 31) // 32
        self._store = store
        self._walker_lock = threading.Lock()
        self._states: Memo[tuple[bytes, int], DfaScan] = Memo(max_scans)
        self._scans: Memo[bytes, DfaScan] = Memo(max_scans)
        self._groups: Memo[bytes, ScanGroups] = Memo(max(1, max_scans // 16))  # these are large
        self._residues: Memo[tuple[bytes, int], _Residue] = Memo(max_scans)
        self._token_costs: Memo[bytes, Ints] = Memo(max_scans)
        self._relatives: Memo[bytes, list[_Relative]] = Memo(max(1, max_scans // 16))

    @cached_property
    def lane_trie(self) -> LaneTrie:
        """The trie as walks of several lexemes read it."""
        return LaneTrie(self.trie)

    def scan(self, dfa: Dfa, state: int) -> DfaScan:
        """Return the scan of a DFA state."""
        return self._states.get((dfa.digest, state), lambda: self._scan(dfa, state))

    def groups(self, dfa: Dfa, state: int) -> ScanGroups:
        """Return the tokens that a DFA state survives, by where they end."""
        residue = self._residue(dfa, state)
        groups = self._groups.get(
            residue.digest, lambda: self._loaded_groups(residue) or self._computed_groups(residue, dfa, state)
        )
        ends = np.column_stack([residue.order[groups.ends[:, 0]], groups.ends[:, 1]])
        return ScanGroups(ends, groups.nodes, groups.start)

    def token_costs(self, dfa: Dfa) -> Ints:
        """Return (num_states,): fewest tokens, each wholly inside the DFA, from a state to acceptance."""
        return self._token_costs.get(dfa.digest, lambda: self._walker.token_costs(_uncounted(dfa), INFINITE))

    def new_row(self) -> Ints:
        """Return a mask without any token."""
        return np.zeros(self.num_words, np.int32)

    def _scan(self, dfa: Dfa, state: int) -> DfaScan:
        near = _near(dfa, state)
        if near is not None:
            scan = self._derived(dfa, state, near, self.scan(dfa, near))
            if scan is not None:
                return scan
        relatives = self._relatives.get(dfa.digest, list)
        live = _live_bytes(dfa, state)
        scan = self._related(dfa, state, live, tuple(relatives))
        if scan is None:
            residue = self._residue(dfa, state)
            scan = self._scans.get(residue.digest, lambda: self._loaded(residue) or self._computed(residue, dfa, state))
        relatives.append((state, live, scan))
        del relatives[:-_MAX_RELATIVES]
        return scan

    def _related(self, dfa: Dfa, state: int, live: int, relatives: Sequence[_Relative]) -> DfaScan | None:
        """Return the scan of a state by way of one that was scanned before and goes on alike, None if none does."""
        if not relatives:
            return None
        other, _, known = min(relatives, key=lambda one: (live ^ one[1]).bit_count())
        most_nodes = max(_MIN_DIFFERING_NODES, self.trie.num_nodes // _SMALL_PART)
        return self._derived(dfa, state, other, known, most_nodes=most_nodes)

    def _residue(self, dfa: Dfa, state: int) -> _Residue:
        return self._residues.get((dfa.digest, state), lambda: _residue_of(dfa, state))

    def _derived(
        self, dfa: Dfa, state: int, other: int, known: DfaScan, *, most_nodes: int | None = None
    ) -> DfaScan | None:
        """Return the scan of a state, made from that of another one; None if that takes a look at too many nodes."""
        row = known.row.copy()
        changed = self._state_rows.differ(_uncounted(dfa), state, other, row, most_nodes=most_nodes)
        if changed is None:
            return None
        row.setflags(write=False)
        nodes, after = changed[:, 0], changed[:, 1]
        is_exit = (after >= 0) & dfa.accepting[after] & (self.trie.subtree_end[nodes] > nodes + 1)
        exits = np.concatenate([known.exits[~_is_among(known.exits[:, 0], nodes)], changed[is_exit][:, [0, 2]]])
        # Chosen columns lie one after the other, and so does what is joined from nothing and them.
        return DfaScan(row, np.ascontiguousarray(exits))

    # ------------------------------------------------------------------ whole walks, kept on disk

    def _walk(self, dfa: Dfa, state: int) -> trie_walk.Walk:
        with self._walker_lock:  # it has one scratch memory; all the rest runs side by side
            return self._walker.walk(_uncounted(dfa), state, 0, self._walker.whole)

    def _computed(self, residue: _Residue, dfa: Dfa, state: int) -> DfaScan:
        row = self.new_row()
        exits, num_tokens = self._state_rows.survivors(_uncounted(dfa), state, row)
        row.setflags(write=False)
        scan = DfaScan(row, exits)
        if self._store is not None and num_tokens >= _DEAR_NUM_NODES:
            self._store.write(self._key_text("scan", residue), {"row": scan.row, "exits": scan.exits})
        return scan

    def _loaded(self, residue: _Residue) -> DfaScan | None:
        if self._store is None:
            return None
        layout = _LAYOUTS["scan"] | {"row": ArrayLayout(np.int32, (self.num_words,))}
        arrays = self._store.read(self._key_text("scan", residue), layout)
        return None if arrays is None else DfaScan(**arrays)

    def _computed_groups(self, residue: _Residue, dfa: Dfa, state: int) -> ScanGroups:
        stay = self._walk(dfa, state).stay
        # Ends as one small number each, so that sorting them is a radix sort.
        number = np.empty(dfa.num_states, np.int32)
        number[residue.order] = np.arange(len(residue.order))
        width = self.deepest + 1
        key = number[stay[:, 1]] * width + stay[:, 2]
        distinct = np.flatnonzero(np.bincount(key, minlength=1))
        group = np.zeros(int(key.max(initial=0)) + 1, np.uint16 if len(distinct) < 1 << 16 else np.int64)
        group[distinct] = np.arange(len(distinct))
        order = np.argsort(group[key], kind="stable")
        start = np.searchsorted(group[key[order]], np.arange(len(distinct) + 1)).astype(np.int32)
        ends = np.column_stack(np.divmod(distinct, width)).astype(np.int32)
        groups = ScanGroups(ends, stay[order, 0], start)
        if self._store is not None and len(stay) >= _DEAR_NUM_NODES:
            arrays = {field.name: getattr(groups, field.name) for field in fields(groups)}
            self._store.write(self._key_text("groups", residue), arrays)
        return groups

    def _loaded_groups(self, residue: _Residue) -> ScanGroups | None:
        if self._store is None:
            return None
        arrays = self._store.read(self._key_text("groups", residue), _LAYOUTS["groups"])
        if arrays is None:
            return None
        groups = ScanGroups(**arrays)
        fits = len(groups.start) == len(groups.ends) + 1 and groups.start[-1] == len(groups.nodes)
        return groups if fits else None

    def _key_text(self, kind: str, residue: _Residue) -> str:
        return f"{kind}\nvocabulary {self.vocabulary.digest}\nlexeme {residue.digest.hex()}"


def _is_among(some: Ints, others: Ints) -> Bools:
    """Return which of some numbers are among others."""
    if not len(others):
        return np.zeros(len(some), np.bool_)
    others = np.sort(others)
    result: Bools = others[np.minimum(np.searchsorted(others, some), len(others) - 1)] == some
    return result


def _live_bytes(dfa: Dfa, state: int) -> int:
    """Return the bytes that a state goes on with, as bits."""
    return int.from_bytes(np.packbits(dfa.delta[state] >= 0).tobytes(), "little")


def _near(dfa: Dfa, state: int) -> int | None:
    """Return the state that a state mostly leads to, if that one mostly leads to itself: a place to start from."""
    hub = _most_common(dfa, state)
    return hub if hub is not None and hub != state and _most_common(dfa, hub) == hub else None


def _most_common(dfa: Dfa, state: int) -> int | None:
    """Return the state that more than half of the live bytes of a state lead to."""
    live = dfa.delta[state]
    live = live[live >= 0]
    counts = np.bincount(live, minlength=1)
    best = int(counts.argmax())
    return best if 2 * int(counts[best]) > len(live) else None


def _residue_of(dfa: Dfa, state: int) -> _Residue:
    order, number = trie_walk.reach(dfa.delta, state, _MAX_SHARED_STATES + 1)
    if len(order) > _MAX_SHARED_STATES:
        return _Residue(
            sha256(dfa.digest + state.to_bytes(8, "little")).digest(), np.arange(dfa.num_states, dtype=np.int32)
        )
    delta = dfa.delta[order]
    renumbered = np.where(delta >= 0, number[delta], -1)
    # The DFA is minimal, so what is reached in canonical order is the canonical form of the rest.
    parts = [renumbered.tobytes(), dfa.tick_bytes[order].tobytes(), dfa.accepting[order].tobytes()]
    return _Residue(sha256(b"".join(parts)).digest(), order)


def _uncounted(dfa: Dfa) -> CountedDfa:
    no_bound = np.zeros(dfa.num_states, np.int32)
    return CountedDfa(dfa.delta, dfa.tick_bytes, dfa.accepting, no_bound, no_bound)
