"""A digest of our own source: data on disk that a program worked out is only good for the program that did.

Leaves out whose data depends on which sources: each cache names its own.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

_PACKAGE = Path(__file__).parent


@functools.cache
def source_digest(*parts: str) -> str | None:
    """Return the digest of files and folders of this package, read once per process; see digest_of."""
    return digest_of(_PACKAGE, parts)


def digest_of(root: Path, parts: Iterable[str]) -> str | None:
    """Return a digest (hex) of names and contents, None where a part cannot be read (a zipped or frozen package).

    Args:
        root: where the parts are.
        parts: files, and folders whose Python files count at any depth, relative to the root.
    """
    digest = hashlib.sha256()
    for part in parts:
        path = root / part
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if not files:
            return None
        try:
            for file in files:
                content = file.read_bytes()
                digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
        except OSError:
            return None
    return digest.hexdigest()
