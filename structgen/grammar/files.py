"""Arrays in files: written atomically, checked when read, a damaged file is as good as none."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> bool:
    """Write arrays to a file that appears whole or not at all; return False where the directory cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub wants a bool for unknown keywords
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        return False
    return True


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, npt.NDArray[np.int32]] | None:
    """Return the named int32 arrays of a file, None if it is not there, damaged (zip checksums) or lacks one."""
    try:
        # Opened here, because numpy leaves the file open where it is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: np.ascontiguousarray(stored[name], dtype=np.int32) for name in names}
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def prune(folder: Path, max_bytes: int) -> None:
    """Delete the files of a folder that were written longest ago until the rest is within the bound."""
    entries = []
    for path in folder.glob("*.npz"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # another process pruned it
        entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= max_bytes:
            return
        path.unlink(missing_ok=True)
        total -= size
