"""What the tokenizer's model says each token id spells, as bytes.

Reads the serialised tokenizer (model, decoder, added tokens). Leaves out `decode`, which loses bytes,
and everything that is not a fact of the tokenizer: stop ids, the trie, the disk cache.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenTable:
    """What each id of a tokenizer spells.

    Attributes:
        tokens: bytes by id; b"" for an id that spells nothing (special, added, undecodable, a hole).
        special_ids: ids of special, added, control and unknown tokens.
        num_added: how many of these are added tokens that are not special.
        num_undecodable: how many entries have no bytes, because the tokenizer's decoder does not define any.
    """

    tokens: tuple[bytes, ...]
    special_ids: frozenset[int]
    num_added: int = 0
    num_undecodable: int = 0
