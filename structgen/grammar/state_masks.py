"""The masks of several states in one array, as a loop over a batch takes them.

States are asked one after the other. A mask that was seen before is a look-up, and while most of the time of one that
was not holds Python's lock, a second thread has nearly nothing to do (benchmarks/batches.py measures it).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from structgen.errors import OptionError, shown
from structgen.grammar.parser_state import ParserState
from structgen.kernels.trie_walk import Ints


def fill_masks(states: Iterable[ParserState], *, out: Ints | None = None) -> Ints:
    """Return the masks of several states, one a row: (len(states), ceil(V / 32)) int32, bit 1 = legal.

    Args:
        states: of any automata over one vocabulary.
        out: an array of that shape to write to and return, such as `tensor.numpy()`; None makes one.

    Raises:
        OptionError: the states are none, or of several vocabularies; out is no such array.
    """
    try:
        found = list(states)
    except Exception as error:  # what cannot be gone through, or fails on the way
        raise OptionError(f"states must be a list of ParserState, not {shown(states)}") from error
    if not found or not all(isinstance(state, ParserState) for state in found):
        raise OptionError(
            f"states must be one ParserState or more, as automaton.start() gives them, not {shown(states)}"
        )
    vocabulary = found[0].automaton.vocabulary
    if any(state.automaton.vocabulary != vocabulary for state in found):
        raise OptionError("the states are of several vocabularies, so their masks have no common width")
    shape = (len(found), (vocabulary.size + 31) // 32)
    if out is None:
        out = np.empty(shape, np.int32)
    elif not isinstance(out, np.ndarray) or out.dtype != np.int32 or out.shape != shape or not out.flags.writeable:
        raise OptionError(f"out must be a writable numpy array of int32 and shape {shape}, not {shown(out)}")
    for row, state in zip(out, found, strict=True):
        row[:] = state.mask()
    return out
