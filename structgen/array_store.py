"""Named arrays in files of a bounded folder: what one process worked out, the next one reads.

Nothing here raises for the state of a disk: a store that cannot be read or written costs time only, and the log says
why. A file appears whole or not at all, so several processes may share a folder: the last writer wins, and every
version is right. Every file holds the text of its key, a digest of the sources that its data depends on included, and
every byte is under a checksum: data of other code, of another key, or damaged, is as good as none.

Leaves out what the arrays mean, and who works them out when two want the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from structgen.array_file import read_arrays, write_arrays
from structgen.source_digest import source_digest

_LOGGER = logging.getLogger(__name__)
_LEFTOVER_SECONDS = 3600.0
_WRITES_PER_LOOK = 32
"""Other processes write too: a store looks at the whole folder at least this often."""

# Only names that we give, now or in an earlier version: a folder that the user named may hold other things.
_OUR_FILE = re.compile(r"[0-9a-f]{32,40}(-\d+)?\.(arrays|npz)")
_OUR_LEFTOVER = re.compile(r"([0-9a-f]{40}\.|tmp)[a-z0-9_]{8}\.(part|tmp)")


class ArrayLayout(NamedTuple):
    """What an array must be.

    Attributes:
        dtype: its type.
        shape: its shape, None for a length that may vary; None as a whole where the reader checks it.
    """

    dtype: npt.DTypeLike
    shape: tuple[int | None, ...] | None = None

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        """Return whether an array of a type and a shape is so."""
        if dtype != self.dtype:
            return False
        if self.shape is None:
            return True
        if len(self.shape) != len(shape):
            return False
        for length, found in zip(self.shape, shape, strict=True):  # a plain loop: each cache hit waits for it
            if length is not None and length != found:
                return False
        return True


class ArrayStore:
    """A folder of files by key, bounded in bytes: those used longest ago go. Safe for threads and processes."""

    def __init__(self, folder: Path | None, *, sources: Sequence[str], max_bytes: int) -> None:
        """Touch nothing yet.

        Args:
            folder: where the files are, made when first needed; None keeps nothing.
            sources: files and folders of this package that the data depends on.
            max_bytes: bound on our files in the folder, sub-folders included.
        """
        self.folder = folder
        self.max_bytes = max_bytes
        self._sources = ("array_store.py", "array_file.py", *sources)
        self._lock = threading.Lock()
        self._has_complained = False
        self._num_writes = 0
        self._num_bytes = 0

    def read(self, key: str, layout: Mapping[str, ArrayLayout]) -> Mapping[str, npt.NDArray[Any]] | None:
        """Return the arrays that were written for a key, read-only, None if there are none that can be used.

        Args:
            key: what they are for.
            layout: the arrays to read.
        """
        text, path = self._place(key)
        if path is None:
            return None
        try:
            held = read_arrays(path)
            stored_text, found = held["key"].tobytes(), held.only(layout)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # damage shows itself in any way: as numpy, key or value errors
            _LOGGER.warning("%s cannot be used, what it held is worked out anew: %s", path, error)
            return None
        if stored_text != text or not all(one.fits(*found.kind_of(name)) for name, one in layout.items()):
            _LOGGER.warning("%s holds something else than its name says, it is worked out anew", path)
            return None
        with contextlib.suppress(OSError):  # a read-only folder: then nothing is ever deleted either
            os.utime(path)
        return found

    def write(self, key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> bool:
        """Keep arrays for a key, then bound the folder; return whether they were written."""
        text, path = self._place(key)
        if path is None:
            return False
        try:
            size = write_arrays(path, {"key": np.frombuffer(text, np.uint8), **arrays})
        except OSError as error:
            self._complain(error)
            return False
        with self._lock:
            self._num_writes += 1
            self._num_bytes += size
            must_look = self._num_writes % _WRITES_PER_LOOK == 1 or self._num_bytes > self.max_bytes
        if must_look:
            self.prune()
        return True

    def prune(self) -> None:
        """Delete what killed writers left and, over the bound, the files used longest ago.

        Enough is deleted to leave room for a while: looking at every file is dear, and must not happen at each write.
        """
        if self.folder is None:
            return
        kept = []
        for path, status in _our_files(self.folder):
            if path.suffix in (".arrays", ".npz"):
                kept.append((status.st_mtime, status.st_size, path))
            elif status.st_mtime < time.time() - _LEFTOVER_SECONDS:
                self._delete(path)
        total = sum(size for _, size, _ in kept)
        goal = self.max_bytes if total <= self.max_bytes else self.max_bytes * 7 // 8
        for _, size, path in sorted(kept):
            if total <= goal:
                break
            if self._delete(path):
                total -= size
        with self._lock:
            self._num_bytes = total

    def _place(self, key: str) -> tuple[bytes, Path | None]:
        """Return the text of a key with the sources, and its file; None where nothing is kept."""
        digest = source_digest(*self._sources)
        if self.folder is None or digest is None:
            return b"", None
        text = f"sources {digest}\n{key}".encode()
        return text, self.folder / f"{hashlib.sha256(text).hexdigest()[:40]}.arrays"

    def _delete(self, path: Path) -> bool:
        """Delete a file and return whether it is gone."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # another system may refuse while somebody reads it
            self._complain(error)
            return False
        return True

    def _complain(self, error: OSError) -> None:
        """Say that the disk does not do what it should: once as a warning, as it will be so each time."""
        with self._lock:
            level = logging.DEBUG if self._has_complained else logging.WARNING
            self._has_complained = True
        _LOGGER.log(level, "data is not kept as it should in %s: %s", self.folder, error)


def _our_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Find our files below a folder, whatever other processes do to it meanwhile."""
    for parent, _, names in os.walk(folder):
        for name in names:
            if _OUR_FILE.fullmatch(name) or _OUR_LEFTOVER.fullmatch(name):
                path = Path(parent, name)
                try:
                    status = path.lstat()
                except OSError:
                    continue  # deleted by another process
                yield path, status
