"""Which bytes a vocabulary can spell, and what that leaves of a lexeme.

A byte is *plain* if some token is that byte alone. Tokens of plain bytes only add nothing to what can be
spelled; *needed* tokens are those with a byte that is not plain. Where a grammar meets no needed token,
cutting the bytes that occur in no token out of its lexemes makes everything that is left spellable, byte by
byte. Else costs.py follows the needed tokens through the lexemes and across their borders.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from structgen.grammar.dfa import Dfa
from structgen.grammar.memo import Memo
from structgen.vocabulary import Vocabulary

_MAX_RESTRICTED = 256
_MAX_KNOWN_WHOLE = 4096


class Spelling:
    """The bytes and the needed tokens of one vocabulary; shared by threads and by grammars."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Look at the trie once."""
        trie = vocabulary.trie
        self.trie = trie
        holds_token = np.diff(trie.token_start) > 0
        self.is_plain = np.zeros(256, np.bool_)
        self.is_plain[trie.node_byte[(trie.depth == 1) & holds_token]] = True
        occurring = np.zeros(256, np.bool_)
        occurring[trie.node_byte[1:]] = True
        self.is_rare = occurring & ~self.is_plain
        self._has_rare = bool(self.is_rare.any())
        self.occurring = occurring
        self._holds_token = holds_token
        self._missing = np.flatnonzero(~occurring)
        self._restricted: Memo[bytes, Dfa] = Memo(_MAX_RESTRICTED)
        self._is_whole: Memo[bytes, bool] = Memo(_MAX_KNOWN_WHOLE)

    def can_spell(self, used: frozenset[int]) -> bool:
        """Return whether some token is just that byte for each of some bytes, and no byte needs longer tokens."""
        return not self._has_rare and all(self.is_plain[byte] for byte in used)

    def restrict(self, dfa: Dfa) -> Dfa:
        """Return the DFA without the bytes that occur in no token (the same object if nothing changes)."""
        if self._is_whole.get(dfa.digest, lambda: not (dfa.delta[:, self._missing] >= 0).any()):
            return dfa
        return self._restricted.get(dfa.digest, lambda: self._cut(dfa))

    def _cut(self, dfa: Dfa) -> Dfa:
        lost = (dfa.delta >= 0) & ~self.occurring
        return Dfa.build(np.where(lost, -1, dfa.delta), dfa.accepting, dfa.tick_bytes & ~lost)

    def meets_needed_tokens(self, dfas: Iterable[Dfa]) -> bool:
        """Return whether some byte of the DFAs is only found inside longer tokens."""
        return self._has_rare and any(((dfa.delta >= 0).any(axis=0) & self.is_rare).any() for dfa in dfas)

    @cached_property
    def needed_nodes(self) -> dict[int, dict[int, int]]:
        """Return the trie of the needed tokens: node -> byte -> child, the root (0) included."""
        trie = self.trie
        rare_above = np.zeros(trie.num_nodes, np.bool_)
        for level in range(1, trie.max_depth + 1):
            nodes = np.flatnonzero(trie.depth == level)
            rare_above[nodes] = rare_above[trie.parent[nodes]] | self.is_rare[trie.node_byte[nodes]]
        children: dict[int, dict[int, int]] = {0: {}}
        for end in np.flatnonzero(rare_above & self._holds_token).tolist():
            node = end
            while node != 0:
                parent = int(trie.parent[node])
                children.setdefault(node, {})
                children.setdefault(parent, {})[int(trie.node_byte[node])] = node
                node = parent
        return children

    def ends_needed_token(self, node: int) -> bool:
        """Return whether a token ends at this trie node."""
        return bool(self._holds_token[node])

    def missing_bytes(self, dfa: Dfa) -> list[int]:
        """Return the bytes of a DFA that occur in no token, ascending."""
        used = (dfa.delta >= 0).any(axis=0)
        return [int(byte) for byte in np.flatnonzero(used & ~self.occurring)]
