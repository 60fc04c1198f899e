"""Automata of formats, worked out ahead and shipped: a file of tables beside this module, keyed by pattern.

`scripts/build_formats.py` writes the file, and a test holds it to the patterns. Left out: what the patterns are.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files

import numpy as np

from structgen.grammar import regex
from structgen.grammar.chardfa import CharDfa

FILE = "format_tables.npz"


def compiled(pattern: str) -> CharDfa:
    """Return the texts that an ECMA-262 pattern matches as a whole, by the regular expression engine."""
    return regex.to_chardfa(regex.parse(pattern, "ecma"))


@lru_cache(maxsize=128)
def language(pattern: str) -> CharDfa:
    """Return the same, from the file where it holds the pattern."""
    name = name_of(pattern)
    with np.load(io.BytesIO(_content())) as tables:
        return _unpacked(tables[name]) if name in tables else compiled(pattern)


def packed_file(patterns: Iterable[str]) -> bytes:
    """Return the content of the file for these patterns; the same bytes for the same patterns."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for pattern in dict.fromkeys(patterns):
            member = io.BytesIO()
            np.save(member, _packed(compiled(pattern)))
            archive.writestr(zipfile.ZipInfo(f"{name_of(pattern)}.npy"), member.getvalue(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _packed(dfa: CharDfa) -> np.ndarray:
    """Lay out an automaton as one vector: number of intervals and of states, then its arrays."""
    parts = [[len(dfa.boundaries), dfa.num_states], dfa.boundaries, dfa.interval_class, dfa.accepts, dfa.table.ravel()]
    return np.concatenate([np.asarray(part, np.int32) for part in parts])


def _unpacked(vector: np.ndarray) -> CharDfa:
    num_intervals, num_states = vector[:2].tolist()
    boundaries, columns, accepts, table = np.split(vector[2:], np.cumsum([num_intervals, num_intervals, num_states]))
    return CharDfa.build(boundaries.tolist(), table.reshape(num_states, -1)[:, columns], accepts.astype(np.bool_))


def name_of(pattern: str) -> str:
    """Return what the file calls the automaton of a pattern."""
    return sha256(pattern.encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _content() -> bytes:
    return (files(__package__) / FILE).read_bytes()
