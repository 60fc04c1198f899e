"""Keep transformers from drawing over our own output, for the length of a block."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# The legacy GGUF reader takes tqdm from the library itself, so the switch of transformers does not reach it.
_GGUF_READER = "transformers.modeling_gguf_pytorch_utils"


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Switch progress bars and advice of transformers off inside the block, and back to what they were after it."""
    # Any: these functions of transformers have no annotations.
    logging: Any = importlib.import_module("transformers.utils.logging")
    showed_bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if showed_bars:
            logging.enable_progress_bar()


@contextmanager
def quiet_gguf_reader() -> Iterator[None]:
    """The same, with the progress bar of the GGUF reader too."""
    with quiet_transformers():
        try:
            reader: Any = importlib.import_module(_GGUF_READER)
        except ImportError:
            reader = None
        bar = getattr(reader, "tqdm", None)
        if bar is None:
            yield
            return
        reader.tqdm = lambda items, **_: items
        try:
            yield
        finally:
            reader.tqdm = bar
