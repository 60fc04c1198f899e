"""The vocabulary: token id <-> bytes, special and stop ids, byte trie, digest.

Leaves out grammars and models: stop ids that only a model's configuration knows come in through `stop_ids`.
"""

from __future__ import annotations

import enum
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from structgen import vocabulary_cache
from structgen.config import check_folder
from structgen.errors import VocabularyError, shown
from structgen.token_bytes import TokenTable, read_token_table, text_encoder
from structgen.trie import ByteTrie

_DIGEST_FORMAT = 1

# End-of-turn markers, for chat templates that cannot be rendered with one user and one assistant turn.
_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|eot|>", "<end_of_turn>", "<|end|>", "<|end_of_turn|>")


class CacheFolder(enum.Enum):
    """Stands for a folder whose place depends on the user and the system."""

    USER = "structgen/vocabulary in the user's cache directory"


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """What each token id spells; immutable, and safe to share between threads.

    Two vocabularies are equal iff their digests are: the same bytes per id, special ids, stop ids and size.

    Attributes:
        table: bytes and special ids as read from the tokenizer; stop ids are special in it.
        stop_ids: ids that end the text, ascending.
        trie: the byte trie of every id that spells something.
        text_encoder: canonical token ids of a text, None if there is no tokenizer.
        digest: SHA-256 (hex) of everything that a mask depends on.
    """

    table: TokenTable
    stop_ids: tuple[int, ...]
    trie: ByteTrie
    text_encoder: Callable[[str], Sequence[int]] | None
    digest: str

    @classmethod
    def from_bytes(
        cls, tokens: Sequence[bytes], *, stop_ids: Iterable[int] = (), special_ids: Iterable[int] = ()
    ) -> Vocabulary:
        """Make a vocabulary from the bytes of each id.

        Args:
            tokens: bytes by id; b"" for an id that spells nothing.
            stop_ids: ids that end the text; they spell nothing, whatever their bytes.
            special_ids: further ids that spell nothing.

        Raises:
            VocabularyError: a token is not bytes, or an id is outside the vocabulary.
        """
        table = TokenTable(_checked_tokens(tokens), frozenset(_checked_ids("special", special_ids)))
        return cls._assemble(table, stop_ids)

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Any,
        *,
        stop_ids: Iterable[int] = (),
        cache_dir: str | os.PathLike[str] | CacheFolder | None = CacheFolder.USER,
    ) -> Vocabulary:
        """Read the vocabulary of a tokenizer from its model.

        The stop ids are the tokenizer's end of text, the special token that its chat template writes right after
        an assistant's answer, and `stop_ids`. Added tokens spell nothing, even those that are not special.

        Args:
            tokenizer: a fast transformers tokenizer, or a `tokenizers.Tokenizer`.
            stop_ids: further stop ids, such as those of the model's generation configuration.
            cache_dir: folder where what is read is kept for the next process; None keeps nothing.

        Raises:
            VocabularyError: the tokenizer is of a kind that does not say what bytes its tokens are, or a stop id is
                outside the vocabulary.
            OptionError: cache_dir is no folder's name.
        """
        if isinstance(cache_dir, CacheFolder):
            folder: Path | None = vocabulary_cache.user_folder()
        else:
            folder = check_folder("cache_dir", cache_dir)
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            raise VocabularyError(
                f"{type(tokenizer).__name__} is not backed by the tokenizers library: load a tokenizer that has a "
                "tokenizer.json (AutoTokenizer.from_pretrained does), or use Vocabulary.from_bytes"
            )
        try:
            serialised: str = backend.to_str()
        except Exception as error:  # the library raises plain Exception, for stages written in Python
            raise VocabularyError(f"{type(tokenizer).__name__} cannot be serialised ({error})") from error
        table, trie = vocabulary_cache.load_or_build(
            folder,
            vocabulary_cache.cache_key(serialised),
            lambda: read_token_table(serialised),
        )
        special_ids = frozenset(getattr(tokenizer, "all_special_ids", ()))
        stops = {*_checked_ids("stop", stop_ids), *_end_of_text_ids(tokenizer), *_end_of_turn_ids(tokenizer, backend)}
        table = replace(table, special_ids=table.special_ids | special_ids)
        return cls._assemble(table, stops, trie, text_encoder(backend))

    @classmethod
    def _assemble(
        cls,
        table: TokenTable,
        stop_ids: Iterable[int],
        trie: ByteTrie | None = None,
        text_encoder: Callable[[str], Sequence[int]] | None = None,
    ) -> Vocabulary:
        """Take special and stop ids out of the spellings and put the parts together.

        `trie`, if given, is that of the table as it is.
        """
        stops = tuple(sorted(set(_checked_ids("stop", stop_ids))))
        _check_ids("stop", stops, len(table.tokens))
        _check_ids("special", table.special_ids, len(table.tokens))
        masked = table.special_ids | frozenset(stops)
        if any(table.tokens[i] for i in masked):
            trie = None
        tokens = tuple([b"" if i in masked else token for i, token in enumerate(table.tokens)])
        table = replace(table, tokens=tokens, special_ids=masked)
        return cls(table, stops, trie or ByteTrie.build(table.tokens), text_encoder, _digest(table, stops))

    def __eq__(self, other: object) -> bool:
        """Compare digests."""
        return isinstance(other, Vocabulary) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash the digest."""
        return hash(self.digest)

    def __repr__(self) -> str:
        """Show the counts, not 100,000 tokens."""
        return (
            f"Vocabulary(size={self.size}, special={len(self.special_ids)}, added={self.num_added}, "
            f"undecodable={self.num_undecodable}, stop_ids={self.stop_ids}, digest={self.digest[:12]!r})"
        )

    @property
    def size(self) -> int:
        """Highest id + 1; the logits of a model may be wider."""
        return len(self.table.tokens)

    @cached_property
    def highest_spelling(self) -> int:
        """Highest id that spells something, -1 if none does."""
        return max((i for i, token in enumerate(self.table.tokens) if token), default=-1)

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are never spellings: special, added, control, unknown and stop tokens."""
        return self.table.special_ids

    @property
    def num_added(self) -> int:
        """How many added tokens are masked although the tokenizer does not call them special."""
        return self.table.num_added

    @property
    def num_undecodable(self) -> int:
        """How many entries are masked because the tokenizer does not say what bytes they are."""
        return self.table.num_undecodable

    def token_bytes(self, token_id: int) -> bytes:
        """Return what an id spells, b"" if nothing.

        Raises:
            VocabularyError: the id is outside the vocabulary.
        """
        if type(token_id) is not int or not 0 <= token_id < self.size:
            _check_ids("token", _checked_ids("token", (token_id,)), self.size)
        return self.table.tokens[token_id]

    def decode(self, token_ids: Iterable[int]) -> bytes:
        """Join the bytes of the ids; special and stop ids add nothing."""
        if not isinstance(token_ids, Iterable):
            raise VocabularyError(f"decode takes a list of token ids, not {shown(token_ids)}")
        return b"".join([self.token_bytes(i) for i in token_ids])

    def encode(self, data: bytes) -> list[int]:
        """Return the canonical token ids of bytes in mid-text: no special or added id, no added leading space.

        Where the tokenizer would change the text, and for bytes that are not UTF-8, each token is the longest
        from which the rest can still be spelled.

        Raises:
            VocabularyError: no sequence of tokens spells the bytes.
        """
        if not isinstance(data, bytes):
            raise VocabularyError(f"encode takes bytes, not {type(data).__name__}: text.encode() makes them of a text")
        if self.text_encoder is None:
            return self._longest_match(data)
        try:
            text, valid = data.decode(), len(data)
        except UnicodeDecodeError as error:
            text, valid = data[: error.start].decode(), error.start
        ids = list(self.text_encoder(text))
        if self.decode(ids) != data[:valid]:
            ids = self._longest_match(data[:valid])
        return ids + self._longest_match(data[valid:])

    @cached_property
    def _spellings(self) -> tuple[dict[bytes, int], tuple[int, ...]]:
        """The id of each spelling, and the lengths that occur, longest first.

        Of several ids the highest: SentencePiece numbers its byte pieces before the ordinary ones.
        """
        ids = {token: i for i, token in enumerate(self.table.tokens) if token}
        return ids, tuple(sorted({len(token) for token in ids}, reverse=True))

    def _longest_match(self, data: bytes) -> list[int]:
        """Spell bytes greedily, longest token first, stepping back out of dead ends."""
        ids, lengths = self._spellings
        path: list[int] = []
        starts: list[int] = []
        dead: set[int] = set()
        position = 0
        while position < len(data):
            for length in lengths:
                end = position + length
                if end <= len(data) and end not in dead and (token_id := ids.get(data[position:end])) is not None:
                    path.append(token_id)
                    starts.append(position)
                    position = end
                    break
            else:
                dead.add(position)
                if not starts:
                    stuck = max(dead)
                    raise VocabularyError(
                        f"no sequence of tokens spells {shown(data)}: stuck at byte {data[stuck]:#04x}, offset {stuck}"
                        "; use another tokenizer or a text that this one can write"
                    )
                path.pop()
                position = starts.pop()
        return path


def _end_of_text_ids(tokenizer: Any) -> Iterable[int]:
    """Return the ids that a transformers tokenizer names as the end of a text."""
    ids = getattr(tokenizer, "eos_token_id", None)
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else ids


def _end_of_turn_ids(tokenizer: Any, backend: Any) -> Iterable[int]:
    """Return the added token that the chat template writes right after an assistant's answer.

    The template is rendered for one question and one answer; the token that follows the answer, blanks apart, ends
    a turn. For a template that refuses this conversation: the well-known markers that occur in it.
    """
    if not getattr(tokenizer, "chat_template", None):
        return ()
    added = {token.content: token_id for token_id, token in backend.get_added_tokens_decoder().items()}
    answer = "structgen-answer"
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": answer}]
    try:
        rendered = str(tokenizer.apply_chat_template(turns, tokenize=False))
    except Exception:  # a template is a program of its own and may fail in any way
        rendered = ""
    if answer not in rendered:
        template = str(tokenizer.chat_template)
        return [added[marker] for marker in _END_OF_TURN if marker in added and marker in template]
    after = rendered.rpartition(answer)[2].lstrip()
    following = [content for content in added if content and after.startswith(content)]
    return [added[max(following, key=len)]] if following else []


def _checked_tokens(tokens: object) -> tuple[bytes, ...]:
    """Return the bytes by id, or say what is none."""
    if not isinstance(tokens, Iterable) or isinstance(tokens, str | bytes | bytearray):
        raise VocabularyError(f"from_bytes takes a list with the bytes of each token, not {shown(tokens)}")
    kept = tuple(tokens)
    for i, token in enumerate(kept):
        if not isinstance(token, bytes | bytearray):
            raise VocabularyError(f"token {i} must be bytes, not {shown(token)}: text.encode() makes them of a text")
    return tuple(map(bytes, kept))


def _checked_ids(kind: str, ids: object) -> tuple[int, ...]:
    """Return ids as ints (numpy has its own), or say what is none."""
    if not isinstance(ids, Iterable) or isinstance(ids, str | bytes):
        raise VocabularyError(f"the {kind} ids must be a list of ints, not {shown(ids)}")
    kept = tuple(ids)
    for i in kept:
        if isinstance(i, bool) or not isinstance(i, Integral):
            raise VocabularyError(f"a {kind} id must be an int, not {shown(i)}")
    return tuple(map(int, kept))


def _check_ids(kind: str, ids: Iterable[int], size: int) -> None:
    """Raise VocabularyError for an id that is not in the vocabulary."""
    for i in ids:
        if not 0 <= i < size:
            allowed = f"pass an id from 0 to {size - 1}" if size else "it has no tokens at all"
            raise VocabularyError(f"{kind} id {shown(i)} is outside the vocabulary: {allowed}")


def _digest(table: TokenTable, stop_ids: tuple[int, ...]) -> str:
    """Hash what a mask depends on: bytes and length per id, special ids, stop ids."""
    lengths = np.fromiter(map(len, table.tokens), dtype="<i8", count=len(table.tokens))
    special, stops = np.array(sorted(table.special_ids), dtype="<i8"), np.array(stop_ids, dtype="<i8")
    sha = hashlib.sha256(
        f"vocabulary {_DIGEST_FORMAT}: {len(lengths)} ids, {len(special)} special, {len(stops)} stop\n".encode()
    )
    for part in (lengths.tobytes(), b"".join(table.tokens), special.tobytes(), stops.tobytes()):
        sha.update(part)
    return sha.hexdigest()
