"""Named arrays as the bytes of one file, quick to read: one checksum over all of them, and no array is copied.

Leaves out where files lie and when they go (array_store.py), and the files that users keep (frozen_machine.py).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

_Listed: TypeAlias = tuple["np.dtype[Any]", tuple[int, ...], int]
"""Type and shape of an array, and where it begins."""

_MAGIC = b"sgarrays"
_HEAD = struct.Struct("<8sII")
"""The magic, the checksum of all that follows it, and how long the list of arrays is."""
_CHECKED_FROM = 12
_ALIGNMENT = 16
"""Of the places where arrays begin; those of Python's bytes in memory have it."""


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Write a file that `read_arrays` reads; return its size.

    Raises:
        OSError: it cannot be written.
    """
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    listed = json.dumps([[name, array.dtype.str, array.shape] for name, array in kept.items()]).encode()
    listed += b" " * (-(_HEAD.size + len(listed)) % _ALIGNMENT)
    parts = [listed]
    for array in kept.values():
        parts += [array.tobytes(), b"\0" * (-array.nbytes % _ALIGNMENT)]
    checksum = zlib.crc32(_HEAD.pack(_MAGIC, 0, len(listed))[_CHECKED_FROM:])
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return write_whole(path, lambda file: file.writelines([_HEAD.pack(_MAGIC, checksum, len(listed)), *parts]))


class HeldArrays(Mapping[str, npt.NDArray[Any]]):
    """The arrays of a file that was read, read-only; each is put together when it is first asked for."""

    def __init__(self, data: bytes, listed: dict[str, _Listed]) -> None:
        """Keep what the file holds.

        Args:
            data: the bytes.
            listed: what of them is an array, by name.
        """
        self._data = data
        self._listed = listed
        self._made: Arrays = {}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return an array."""
        known = self._made.get(name)
        if known is None:
            kind, shape, place = self._listed[name]
            known = self._made[name] = np.ndarray(shape, kind, self._data, place)
        return known

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._listed)

    def __len__(self) -> int:
        """Count the arrays."""
        return len(self._listed)

    def kind_of(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return the type and the shape of an array."""
        return self._listed[name][:2]

    def only(self, names: Iterable[str]) -> HeldArrays:
        """Return some of the arrays."""
        return HeldArrays(self._data, {name: self._listed[name] for name in names})


def read_arrays(path: Path) -> HeldArrays:
    """Return the arrays of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or is something else.
    """
    with path.open("rb", buffering=0) as file:
        data = file.readall()
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise ValueError("it is no file of arrays")
    _, checksum, num_listed = _HEAD.unpack_from(data)
    if zlib.crc32(memoryview(data)[_CHECKED_FROM:]) != checksum:
        raise ValueError("its checksum is not that of what it holds")
    place = _HEAD.size + num_listed
    listed: dict[str, _Listed] = {}
    for name, written, shape in json.loads(data[_HEAD.size : place]):
        kind = np.dtype(written)
        listed[name] = kind, tuple(shape), place
        num_bytes = math.prod(shape) * kind.itemsize
        place += num_bytes + -num_bytes % _ALIGNMENT
    return HeldArrays(data, listed)


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> int:
    """Write a file under another name and move it into place, so that it appears whole; return its size.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            size = file.tell()
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    return size
