"""Hypothesis strategies for walks: small tries, and DFAs with length bounds."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from structgen.kernels.trie_walk import CountedDfa
from structgen.trie import ByteTrie

tries = st.lists(st.text("abc", max_size=4).map(str.encode), max_size=12).map(ByteTrie.build)


@st.composite
def dfas(draw: st.DrawFn) -> CountedDfa:
    """Draw a DFA over three letters with consistent distances; not trimmed, which no walk relies on."""
    size = draw(st.integers(1, 4))
    delta = np.full((size, 256), -1, np.int32)
    ticks = np.zeros((size, 256), np.bool_)
    for state in range(size):
        for byte in b"abc":
            delta[state, byte] = draw(st.integers(-1, size - 1))
            ticks[state, byte] = delta[state, byte] >= 0 and draw(st.booleans())
    accepting = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), np.bool_)
    distances = st.lists(st.integers(0, 3), min_size=size, max_size=size).map(lambda one: np.array(one, np.int32))
    low = draw(st.integers(0, 3))
    high = draw(st.just(-1) | st.integers(low, 5))
    return CountedDfa(delta, ticks, accepting, draw(distances), draw(distances) + 2, low, high)
