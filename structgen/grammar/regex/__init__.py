"""Regular expressions: text to syntax tree, syntax tree to a minimal DFA over code points.

Exact for every regular construct, look-arounds at any place included. Left out: matching as such (which match a
backtracking matcher would find first), groups' contents, and bytes.
"""

from __future__ import annotations

from structgen.grammar.regex.build import MAX_STATES, Mode, to_chardfa
from structgen.grammar.regex.parser import Dialect, parse
from structgen.grammar.regex.syntax import (
    EMPTY,
    Alternate,
    Begin,
    Chars,
    Concat,
    End,
    Look,
    Node,
    Repeat,
    alternate,
    children,
    concat,
    looks_around,
    walk,
    widths,
)

__all__ = [
    "EMPTY",
    "MAX_STATES",
    "Alternate",
    "Begin",
    "Chars",
    "Concat",
    "Dialect",
    "End",
    "Look",
    "Mode",
    "Node",
    "Repeat",
    "alternate",
    "children",
    "concat",
    "looks_around",
    "parse",
    "to_chardfa",
    "walk",
    "widths",
]
