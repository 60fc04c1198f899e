"""Turn a syntax tree into a DFA over code points: build the NFA, determinise it once."""

from __future__ import annotations

from typing import Literal

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.regex.machine import Machine
from structgen.grammar.regex.nfa import build_nfa, culprit
from structgen.grammar.regex.syntax import Node

Mode = Literal["fullmatch", "search"]

MAX_STATES = 5_000
"""Most states of a DFA before it is minimised."""

_NFA_STATES_PER_STATE = 4


def to_chardfa(node: Node, *, mode: Mode = "fullmatch", max_states: int = MAX_STATES) -> CharDfa:
    """Return the texts that an expression matches.

    Args:
        node: the expression.
        mode: "fullmatch" matches the whole text, "search" some place in it.
        max_states: limit on the states of the DFA; the NFA may have four times as many.

    Raises:
        LimitError: a limit was passed; the message names the construct.
    """
    nfa = build_nfa(node, is_search=mode == "search", max_states=max_states * _NFA_STATES_PER_STATE)
    return Machine(nfa, culprit(node)).to_chardfa(max_states)
