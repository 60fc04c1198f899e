"""CPU kernel text for numba, and the decorator that compiles it.

Compiled code is kept in the user's cache directory, never beside the source, so that a read-only install is as quick as
a writable one and an uninstall leaves nothing in site-packages. Numba reads its cache directory from a global setting
(`numba.config.CACHE_DIR`) at the one moment when caching is switched on for a function; `jit` sets it for that moment
and puts it back, so the host application's own numba functions keep the place they had. A directory that the host chose
itself (NUMBA_CACHE_DIR) is honoured. Where no directory can be written the functions are compiled anew in each process.

Numba only notices changes in the file that defines the cached function, not in helpers which it inlined from another
file. So the directory's name holds a digest of every source in this folder: an upgrade can never run stale code. The
directories of other versions go once nobody has used them for a month.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, Literal, TypeVar

import numba
from numba.extending import intrinsic

from structgen.source_digest import source_digest

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_SOURCES = "kernels/_numba"
_MONTH_SECONDS = 30 * 24 * 3600.0
_OUR_DIRECTORY = re.compile(r"[0-9a-f]{16}")
_LOGGER = logging.getLogger(__name__)
_cache_dir_lock = threading.Lock()


@functools.cache
def cache_directory() -> Path | None:
    """Return where compiled kernels are kept: one directory per state of the sources.

    None if these cannot be read, or if nobody says where the user's directory is (on a machine with a GPU that has this
    repository and little else): functions are compiled anew in each process then.
    """
    digest = source_digest(_SOURCES)
    if digest is None or importlib.util.find_spec("platformdirs") is None:
        return None
    from platformdirs import user_cache_path

    current = user_cache_path("structgen") / "numba" / digest[:16]
    with contextlib.suppress(OSError):  # it is not there yet, or cannot be written
        os.utime(current)  # numba's own reading leaves no mark
    _delete_unused(current)
    return current


def _delete_unused(current: Path) -> None:
    """Delete the directories of other versions that no process has asked for since a month."""
    try:
        for directory in current.parent.iterdir():
            is_ours = directory != current and _OUR_DIRECTORY.fullmatch(directory.name) is not None
            if is_ours and directory.stat().st_mtime < time.time() - _MONTH_SECONDS:
                shutil.rmtree(directory)
    except (FileNotFoundError, NotADirectoryError):
        return  # nothing there yet, or another process deletes too
    except OSError as error:
        _LOGGER.warning("compiled kernels of other versions stay in %s: %s", current.parent, error)


def array(dtype: Any, ndim: int = 1, layout: Literal["C", "A"] = "C") -> Any:
    """Return the signature type of an array that is only read: it takes writable and read-only arrays alike."""
    return numba.types.Array(dtype, ndim, layout, readonly=True)


def pointer_to(item: Any) -> Any:
    """Return a compiled function that turns an address into a pointer to items of a type."""

    @intrinsic
    def pointer(_context: Any, _address: Any) -> Any:
        signature = numba.types.CPointer(item)(numba.types.int64)  # type: ignore[no-untyped-call]  # numba has no stubs

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, generate

    return pointer


def jit(*signatures: Any, fastmath: Set[str] | None = None) -> Callable[[FunctionT], FunctionT]:
    """Compile a function without the interpreter lock, and keep the machine code in the user's cache directory.

    Args:
        signatures: the only signatures it may be called with, compiled (or loaded) at once; none: any, where compiled
            code calls it, and never from Python.
        fastmath: what the compiler may do with floating-point operations, by LLVM's names; None is as written.
    """

    def decorate(function: FunctionT) -> FunctionT:
        # What Python never calls needs no entry from there, which takes longer to compile than many a loop.
        options: dict[str, Any] = {} if signatures else {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        dispatcher: Any = numba.njit(nogil=True, fastmath=set(fastmath or ()), **options)(function)
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
        if directory is None or not _is_writable(directory):
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
