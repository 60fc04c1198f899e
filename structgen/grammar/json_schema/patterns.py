"""The texts in which a pattern is found, by the rules of both dialects; patterns that were read are kept.

A schema names the same pattern many times, and so do the schemas of one service. Left out: what becomes of them
(`assertions`), and repeats too large to write out (`regex_grammar`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from structgen.errors import GrammarSyntaxError
from structgen.grammar import regex
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.memo import Memo

_MAX_KEPT = 256
# Where ECMA-262 may find what Python does not: its complements of smaller classes, white space, edges of words, and all
# that is taken back. What it finds elsewhere Python finds too.
_WIDER_IN_ECMA = re.compile(r"\\[DWSsbB]|\[\^(?:[^\\\]]|\\[^dwsp])*\\[dwsp]|\(\?<?!|\(\?[a-z]*i|\\P")


class Pattern(NamedTuple):
    """The texts in which a pattern is found.

    Attributes:
        sure: found by the rules of ECMA-262 and by those of Python (they differ on classes such as word characters).
        possible: found by either.
    """

    sure: CharDfa
    possible: CharDfa


_kept: Memo[str, Pattern] = Memo(_MAX_KEPT)


def read_pattern(pattern: str) -> Pattern:
    """Return the texts in which a pattern is found.

    Raises:
        GrammarSyntaxError: ECMA-262 cannot read it, or it is not regular.
        LimitError: it needs too many states.
    """
    return _kept.get(pattern, lambda: _read(pattern))


def _read(pattern: str) -> Pattern:
    node = regex.parse(pattern, "ecma")
    found = regex.to_chardfa(node, mode="search")
    try:
        python = regex.parse(pattern, "python")
    except GrammarSyntaxError:
        # Python cannot read it (a property class, say), so nothing that is read by its rules can differ.
        return Pattern(found, found)
    other = found if python == node else regex.to_chardfa(python, mode="search")
    sure = found if other == found else found.intersection(other)
    possible = found if other == found else found.union(other)
    if _WIDER_IN_ECMA.search(pattern):
        wider = regex.parse(pattern, "ecma", either=True)
        possible = possible if wider == node else possible.union(regex.to_chardfa(wider, mode="search"))
    return Pattern(sure, sure if possible == sure else possible)
