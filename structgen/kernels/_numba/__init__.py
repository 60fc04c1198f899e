"""CPU kernel text for numba, and the decorator that compiles it.

Compiled code is kept in the user's cache directory, never beside the source, so that a read-only install is as quick as
a writable one and an uninstall leaves nothing in site-packages. Numba reads its cache directory from a global setting
(`numba.config.CACHE_DIR`) at the one moment when caching is switched on for a function; `jit` sets it for that moment
and puts it back, so the host application's own numba functions keep the place they had. A directory that the host chose
itself (NUMBA_CACHE_DIR) is honoured. Where no directory can be written the functions are compiled anew in each process.

Numba only notices changes in the file that defines the cached function, not in helpers which it inlined from another
file. So the directory's name holds a digest of every source in this folder: an upgrade can never run stale code.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import numba
from platformdirs import user_cache_path

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_cache_dir_lock = threading.Lock()


def source_digest() -> str:
    """Return a digest of every source file in this folder, "unknown" where they cannot be read (a zipped package)."""
    digest = hashlib.sha256()
    try:
        for source in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    except OSError:
        return "unknown"
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Return where compiled kernels are kept: one folder per state of the sources."""
    return user_cache_path("structgen") / "numba" / source_digest()


def array(dtype: Any, ndim: int = 1, layout: Literal["C", "A"] = "C") -> Any:
    """Return the signature type of an array that is only read: it takes writable and read-only arrays alike."""
    return numba.types.Array(dtype, ndim, layout, readonly=True)


def jit(*signatures: Any) -> Callable[[FunctionT], FunctionT]:
    """Compile a function without the interpreter lock, and keep the machine code in the user's cache directory.

    Args:
        signatures: the only signatures it may be called with, compiled (or loaded) at once; none: any, compiled at the
            first call.
    """

    def decorate(function: FunctionT) -> FunctionT:
        dispatcher: Any = numba.njit(nogil=True)(function)
        _enable_cache(dispatcher)
        for signature in signatures:
            dispatcher.compile(signature)
        if signatures:
            dispatcher.disable_compile()
        result: FunctionT = dispatcher
        return result

    return decorate


def _enable_cache(dispatcher: Any) -> None:
    """Switch caching on for one function, in our directory unless the host named one, if that can be written."""
    config: Any = numba.config
    with _cache_dir_lock:
        before = config.CACHE_DIR
        directory = Path(before) if before else cache_directory()
        # Asked here, because numba would go on to write beside the source.
        if not _is_writable(directory):
            return
        try:
            config.CACHE_DIR = str(directory)
            dispatcher.enable_caching()
        finally:
            config.CACHE_DIR = before


def _is_writable(directory: Path) -> bool:
    """Make the directory if need be, and say whether files can be made in it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return True
