"""What the tokenizer's model says each token id spells, as bytes.

Reads the serialised tokenizer (model, decoder, added tokens). Leaves out `decode`, which loses bytes,
and everything that is not a fact of the tokenizer: stop ids, the trie, the disk cache.

Read are BPE, Unigram and WordLevel models whose decoder works token by token: byte-level, or SentencePiece
style, where U+2581 is a space and <0xNN> a byte. SentencePiece drops the space before the first word of a text;
no token stands there, as generated text follows a prompt, so the space is part of what a token spells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from structgen.errors import VocabularyError

if TYPE_CHECKING:
    import tokenizers

# One stage of a tokenizer as it is serialised: its "type" and its options.
Stage: TypeAlias = Mapping[str, Any]

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_NORMALISING = frozenset(
    [
        "BertNormalizer",
        "Lowercase",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Nmt",
        "Precompiled",
        "Prepend",
        "Strip",
        "StripAccents",
    ]
)
_ADVICE = "use a model whose tokenizer is byte-level or SentencePiece-style"


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


def read_token_table(serialised: str) -> TokenTable:
    """Read what each id spells from a tokenizer's own JSON.

    Args:
        serialised: what `tokenizers.Tokenizer.to_str()` gives (the text of a tokenizer.json).

    Raises:
        VocabularyError: the tokenizer is of a kind whose tokens do not each have bytes of their own.
    """
    spec = json.loads(serialised)
    entries, unknown = _entries(spec["model"])
    spell = _speller(spec["decoder"], spec["pre_tokenizer"])
    added = {token["id"]: bool(token["special"]) for token in spec["added_tokens"]}
    masked = frozenset(added) | unknown
    size = max([*added, *(token_id for _, token_id in entries)], default=-1) + 1
    tokens = [b""] * size
    num_undecodable = 0
    for piece, token_id in entries:
        if token_id in masked:
            continue
        spelled = spell(piece)
        if spelled is None:
            num_undecodable += 1
        else:
            tokens[token_id] = spelled
    num_added = sum(not special for special in added.values())
    return TokenTable(tuple(tokens), masked, num_added, num_undecodable)


def text_encoder(tokenizer: tokenizers.Tokenizer) -> Callable[[str], Sequence[int]]:
    """Return a function from text to the ids that the tokenizer's model gives it in mid-text.

    It shares the model (no copy), knows no added token, so that text that looks like one stays text, adds no
    leading space and normalises nothing. Where a model has no piece for a character, the ids do not spell the text.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    stages = {
        "normalizer": _exact(_state(tokenizer.normalizer)),
        "pre_tokenizer": _exact(_state(tokenizer.pre_tokenizer)),
    }
    empty = json.loads(Tokenizer(BPE()).to_str())
    parts = Tokenizer.from_str(json.dumps(empty | stages))
    plain = Tokenizer(tokenizer.model)
    if parts.normalizer is not None:
        plain.normalizer = parts.normalizer
    if parts.pre_tokenizer is not None:
        plain.pre_tokenizer = parts.pre_tokenizer

    def encode(text: str) -> Sequence[int]:
        return plain.encode(text, add_special_tokens=False).ids

    return encode


def _entries(model: Stage) -> tuple[list[tuple[str, int]], frozenset[int]]:
    """Return the (piece, id) pairs of a model and the id of its unknown token, if it has one."""
    kind = model["type"]
    if kind == "Unigram":
        unknown_id = model["unk_id"]
        pieces = [(piece, i) for i, (piece, _) in enumerate(model["vocab"])]
        return pieces, frozenset() if unknown_id is None else frozenset([unknown_id])
    if kind not in ("BPE", "WordLevel"):
        raise VocabularyError(f"a {kind} tokenizer does not say which spaces its tokens stand for; {_ADVICE}")
    for option in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise VocabularyError(f"a {kind} tokenizer with {option}={model[option]!r} is not supported; {_ADVICE}")
    vocab: dict[str, int] = model["vocab"]
    unknown = model["unk_token"]
    return list(vocab.items()), frozenset([vocab[unknown]] if unknown in vocab else [])


def _speller(decoder: Stage | None, pre_tokenizer: Stage | None) -> Callable[[str], bytes | None]:
    """Return the function from a piece to its bytes (None: it has none) that the decoder amounts to."""
    stages = list(_flat(decoder))
    if decoder is None:
        # A tokenizer without a decoder is read as the inverse of its pre-tokenizer, where that one has an inverse.
        stages = [stage for stage in _flat(pre_tokenizer) if stage["type"] in ("ByteLevel", "Metaspace")]
    kinds = [stage["type"] for stage in stages]
    if kinds == ["ByteLevel"]:
        return _spell_byte_level
    substitutions: list[tuple[str, str]] = []
    for position, stage in enumerate(stages):
        if stage["type"] in ("Replace", "Metaspace") and "Fuse" not in kinds[:position]:
            substitutions.append(_substitution(stage))
        elif stage["type"] == "Strip" and "Fuse" in kinds[:position]:
            continue  # it cuts the edges of the whole text only
        elif stage["type"] not in ("ByteFallback", "Fuse"):
            raise VocabularyError(f"a tokenizer with the decoder {' > '.join(kinds)} is not supported; {_ADVICE}")
    if not substitutions and "ByteFallback" not in kinds:
        raise VocabularyError(f"the tokenizer does not say how its tokens join (no decoder); {_ADVICE}")
    return _sentencepiece_speller(substitutions, byte_fallback="ByteFallback" in kinds)


def _substitution(stage: Stage) -> tuple[str, str]:
    """Return (old, new) of a decoder stage that replaces a fixed string."""
    if stage["type"] == "Metaspace":
        return stage["replacement"], " "
    pattern = stage["pattern"]
    if "String" not in pattern:
        raise VocabularyError(f"a tokenizer whose decoder replaces the pattern {pattern!r} is not supported; {_ADVICE}")
    return pattern["String"], stage["content"]


def _sentencepiece_speller(
    substitutions: Sequence[tuple[str, str]], *, byte_fallback: bool
) -> Callable[[str], bytes | None]:
    """Return the speller that replaces strings and, if told so, reads <0xNN> as a byte."""

    def spell(piece: str) -> bytes | None:
        if byte_fallback and (byte := _BYTE_PIECE.fullmatch(piece)):
            return bytes([int(byte[1], 16)])
        for old, new in substitutions:
            piece = piece.replace(old, new)
        return piece.encode()

    return spell


def _byte_alphabet() -> dict[int, int]:
    """Return the translation from the character that byte-level tokenizers write for a byte to that byte.

    Visible Latin-1 characters stand for themselves, all other bytes for the characters from U+0100 on, in order.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    # A hidden byte itself is no character of the alphabet: it becomes one that Latin-1 cannot encode.
    return dict.fromkeys(hidden, 0xFFFF) | {0x100 + i: byte for i, byte in enumerate(hidden)}


_BYTE_ALPHABET = _byte_alphabet()


def _spell_byte_level(piece: str) -> bytes | None:
    """Return the bytes of a byte-level piece, None if a character of it stands for no byte."""
    try:
        return piece.translate(_BYTE_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:
        return None


def _flat(stage: Stage | None) -> Iterator[Stage]:
    """Yield the stages of a serialised decoder, normaliser or pre-tokenizer, with sequences taken apart."""
    if stage is None:
        return
    if stage["type"] != "Sequence":
        yield stage
        return
    for part in stage.get("decoders") or stage.get("pretokenizers") or stage.get("normalizers") or ():
        yield from _flat(part)


def _state(stage: Any) -> Stage | None:
    """Return the serialised form of one stage object of a tokenizer."""
    if stage is None:
        return None
    parsed: Stage = json.loads(stage.__getstate__())
    return parsed


def _exact(stage: Stage | None) -> Stage | None:
    """Return a normaliser or pre-tokenizer that adds no space in front and changes no text.

    Of the normalisers only those stay that put a text into the model's alphabet. The others (Unicode forms, case)
    change nothing in a text that they have been applied to, and make any other text one that was not asked for.
    """
    if stage is None:
        return None
    kind = stage["type"]
    if kind == "Sequence":
        name = "normalizers" if "normalizers" in stage else "pretokenizers"
        parts = [part for part in map(_exact, stage[name]) if part is not None]
        return {"type": "Sequence", name: parts} if parts else None
    if kind in _NORMALISING or (kind == "Replace" and "String" not in stage["pattern"]):
        return None
    options: dict[str, dict[str, Any]] = {
        "Metaspace": {"prepend_scheme": "never"},
        "ByteLevel": {"add_prefix_space": False},
    }
    return {**stage, **options.get(kind, {})}
