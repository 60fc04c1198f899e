"""The arrays of a tokenizer's vocabulary on disk: token bytes and trie, one file per tokenizer.

One process or thread builds, the others wait and read. Leaves out stop ids, which belong to a request or a model and
not to a tokenizer, and how files are kept (array_store.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import filelock
import numpy as np

from structgen.array_file import Arrays
from structgen.array_store import ArrayLayout, ArrayStore
from structgen.token_bytes import TokenTable
from structgen.trie import ByteTrie

_SOURCES = ("vocabulary_cache.py", "token_bytes.py", "trie.py")
_MAX_BYTES = 256 << 20
_LOCK_SECONDS = 60.0
_LOGGER = logging.getLogger(__name__)
_LAYOUT = {
    "text": ArrayLayout(np.uint8, (None,)),
    "length": ArrayLayout(np.int64, (None,)),
    "special_ids": ArrayLayout(np.int64, (None,)),
    "counts": ArrayLayout(np.int64, (2,)),
    **{
        item.name: ArrayLayout(np.uint8 if item.name == "node_byte" else np.int32, (None,)) for item in fields(ByteTrie)
    },
}


def user_folder() -> Path:
    """Return the folder in the user's cache directory."""
    import platformdirs

    return platformdirs.user_cache_path("structgen") / "vocabulary"


def cache_key(serialised: str) -> str:
    """Return the text that stands for a serialised tokenizer: length and SHA-256 of what matters in it."""
    # Truncation and padding change with every call of a tokenizer and stand before all that matters.
    head, mark, rest = serialised.partition(',"added_tokens":')
    try:
        volatile = set(json.loads(head + "}")) <= {"version", "truncation", "padding"}
    except ValueError:
        volatile = False
    data = (mark + rest if volatile else serialised).encode()
    return f"structgen vocabulary, tokenizer of {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


def load_or_build(folder: Path | None, key: str, build: Callable[[], TokenTable]) -> tuple[TokenTable, ByteTrie]:
    """Return a tokenizer's table and trie from the folder, or build them and keep them there.

    A folder that cannot be written only costs the time to build.

    Args:
        folder: where the files are; None builds without a look at the disk.
        key: text that stands for the tokenizer; it is stored, and compared on a hit.
        build: makes the table.
    """
    if folder is None:
        return _build(build)
    store = ArrayStore(folder, sources=_SOURCES, max_bytes=_MAX_BYTES)
    found = _read(store, key)
    if found is None:
        with _only_builder(folder):
            found = _read(store, key)  # another process may have written it meanwhile
            if found is None:
                found = _build(build)
                _write(store, key, *found)
    return found


def _build(build: Callable[[], TokenTable]) -> tuple[TokenTable, ByteTrie]:
    """Make the table and its trie."""
    table = build()
    return table, ByteTrie.build(table.tokens)


@contextlib.contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or go on without it where there can be none: then some work is done twice."""
    lock = filelock.FileLock(folder / ".lock", timeout=_LOCK_SECONDS)
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock)
        except OSError as error:  # a read-only or full disk, or a lock that is never released
            _LOGGER.warning("%s cannot be locked: %s", folder, error)
        yield


def _write(store: ArrayStore, key: str, table: TokenTable, trie: ByteTrie) -> None:
    """Keep a table and its trie."""
    arrays: Arrays = {
        "text": np.frombuffer(b"".join(table.tokens), np.uint8),
        "length": np.fromiter(map(len, table.tokens), np.int64, count=len(table.tokens)),
        "special_ids": np.array(sorted(table.special_ids), np.int64),
        "counts": np.array([table.num_added, table.num_undecodable], np.int64),
    }
    store.write(key, arrays | {item.name: getattr(trie, item.name) for item in fields(trie)})


def _read(store: ArrayStore, key: str) -> tuple[TokenTable, ByteTrie] | None:
    """Return a table and its trie, None if they are not kept."""
    arrays = store.read(key, _LAYOUT)
    if arrays is None:
        return None
    text, ends = arrays["text"].tobytes(), np.cumsum(arrays["length"]).tolist()
    if int(arrays["length"].sum()) != len(text):
        return None
    tokens = tuple([text[start:end] for start, end in zip([0, *ends], ends, strict=False)])
    table = TokenTable(tokens, frozenset(arrays["special_ids"].tolist()), *arrays["counts"].tolist())
    return table, ByteTrie(**{item.name: arrays[item.name] for item in fields(ByteTrie)})
