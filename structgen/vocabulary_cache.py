"""The arrays of a tokenizer's vocabulary on disk: token bytes and trie, one file per tokenizer.

A file is written whole or not at all, by one process at a time, and rebuilt if it cannot be read.
Leaves out stop ids: they belong to a request or a model, not to a tokenizer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import platformdirs

from structgen.token_bytes import TokenTable
from structgen.trie import ByteTrie

_FORMAT = 1
_MAX_FILES = 32
_LOCK_SECONDS = 60.0
_LOGGER = logging.getLogger(__name__)


def user_folder() -> Path:
    """Return the folder in the user's cache directory."""
    return platformdirs.user_cache_path("structgen") / "vocabulary"


def cache_key(serialised: str) -> str:
    """Return the text that stands for a serialised tokenizer: format, length and SHA-256 of what matters in it."""
    # Truncation and padding change with every call of a tokenizer and stand before all that matters.
    head, mark, rest = serialised.partition(',"added_tokens":')
    try:
        volatile = set(json.loads(head + "}")) <= {"version", "truncation", "padding"}
    except ValueError:
        volatile = False
    data = (mark + rest if volatile else serialised).encode()
    return f"structgen vocabulary {_FORMAT}, tokenizer of {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


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
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
    found = _read(path, key)
    if found is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=_LOCK_SECONDS):
            found = _read(path, key)  # another process may have written it meanwhile
            if found is None:
                found = _build(build)
                _write(path, key, *found)
                _prune(folder)
    except OSError as error:  # a read-only or full disk, or a lock that is never released
        _LOGGER.warning("the vocabulary is not kept in %s: %s", folder, error)
    return found or _build(build)


def _build(build: Callable[[], TokenTable]) -> tuple[TokenTable, ByteTrie]:
    """Make the table and its trie."""
    table = build()
    return table, ByteTrie.build(table.tokens)


def _write(path: Path, key: str, table: TokenTable, trie: ByteTrie) -> None:
    """Write the file under another name and move it into place."""
    arrays: dict[str, Any] = {
        "key": np.array(key),
        "text": np.frombuffer(b"".join(table.tokens), np.uint8),
        "length": np.fromiter(map(len, table.tokens), np.int64, count=len(table.tokens)),
        "special_ids": np.array(sorted(table.special_ids), np.int64),
        "counts": np.array([table.num_added, table.num_undecodable], np.int64),
    }
    arrays |= {item.name: getattr(trie, item.name) for item in fields(trie)}
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        try:
            np.savez(file, **arrays)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _read(path: Path, key: str) -> tuple[TokenTable, ByteTrie] | None:
    """Read the file, None if it is missing, damaged, or made for another key."""
    try:
        # numpy checks a CRC of each array; left to open the file itself, it leaks it where the file is damaged.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if str(arrays["key"]) != key:
            return None
        text, ends = arrays["text"].tobytes(), np.cumsum(arrays["length"]).tolist()
        tokens = tuple([text[start:end] for start, end in zip([0, *ends], ends, strict=False)])
        table = TokenTable(tokens, frozenset(arrays["special_ids"].tolist()), *arrays["counts"].tolist())
        trie = ByteTrie(**{item.name: arrays[item.name] for item in fields(ByteTrie)})
    except FileNotFoundError:
        return None
    except Exception as error:  # damage shows itself in any way: as zip, numpy, key or value errors
        _LOGGER.warning("%s is damaged and will be rebuilt: %s", path, error)
        return None
    with contextlib.suppress(OSError):  # a read-only folder: then nothing is ever deleted either
        os.utime(path)
    return table, trie


def _prune(folder: Path) -> None:
    """Delete what a killed writer left, and the files used longest ago beyond a fixed number; call under the lock."""
    for path in folder.glob("*.tmp"):
        path.unlink(missing_ok=True)
    newest = sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest[_MAX_FILES:]:
        path.unlink(missing_ok=True)
