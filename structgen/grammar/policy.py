"""The generation policy: an intersection that bounds what a declaration leaves open.

A number may have a million digits and white space may go on for ever; models in trouble write just that. The policy
takes the lexemes that can hold endless runs of digits or white space, and keeps of each the words whose runs are
within the bounds; a repeat of nothing but such characters is bounded likewise. Nothing is added, so every text still
fits the declaration. Left alone: free text (string bodies), which max_tokens bounds; lexemes with bounds on their
length, which asked for as much; lexemes that would lose all their words; runs across the border of two rules.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from structgen.config import Policy
from structgen.findings import Bounded
from structgen.grammar.dfa import Dfa, intersection
from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Repeat, Sequence

DIGITS = b"0123456789"
WHITESPACE = b" \t\n\r"


def apply_policy(grammar: Grammar, policy: Policy) -> tuple[Grammar, tuple[Bounded, ...]]:
    """Return the grammar within the policy, and what was cut."""
    cuts: list[Bounded] = []
    rules = {name: _bounded(body, policy, name, cuts) for name, body in grammar.rules.items()}
    return Grammar(rules, grammar.start), tuple(dict.fromkeys(cuts))


def _bounded(expr: Expr, policy: Policy, rule: str, cuts: list[Bounded]) -> Expr:
    match expr:
        case Sequence(items=items):
            return Sequence(tuple(_bounded(item, policy, rule, cuts) for item in items))
        case Choice(options=options):
            return Choice(tuple(_bounded(option, policy, rule, cuts) for option in options))
        case Repeat(item=Lexeme() as item, maximum=None, separator=None) if (cut := _run_of(item, policy)) is not None:
            run, maximum = cut
            cuts.append(Bounded(rule, item.name, run, max(maximum, expr.minimum)))
            return replace(expr, maximum=max(maximum, expr.minimum))
        case Repeat(item=item, separator=separator):
            between = None if separator is None else _bounded(separator, policy, rule, cuts)
            return replace(expr, item=_bounded(item, policy, rule, cuts), separator=between)
        case Lexeme(free_text=False, min_length=0, max_length=None):
            return _bounded_lexeme(expr, policy, rule, cuts)
        case _:
            return expr


def _runs(policy: Policy) -> tuple[tuple[str, bytes, int], ...]:
    """Return (name, members, longest run) of what is bounded."""
    return ("digits", DIGITS, policy.max_digits), ("white space", WHITESPACE, policy.max_whitespace)


def _run_of(item: Lexeme, policy: Policy) -> tuple[str, int] | None:
    """Return (name, longest run) if all words of a lexeme consist of members of one run."""
    used = {int(byte) for byte in np.flatnonzero((item.dfa.delta >= 0).any(axis=0))}
    for run, members, maximum in _runs(policy):
        if used and used <= set(members) and not item.free_text:
            return run, max(maximum, 1)
    return None


def _bounded_lexeme(lexeme: Lexeme, policy: Policy, rule: str, cuts: list[Bounded]) -> Lexeme:
    for run, members, maximum in _runs(policy):
        cut = _within(lexeme.dfa, members, maximum)
        if cut is not None:
            lexeme = replace(lexeme, dfa=cut)
            cuts.append(Bounded(rule, lexeme.name, run, maximum))
    return lexeme


@lru_cache(maxsize=1024)
def _within(dfa: Dfa, members: bytes, maximum: int) -> Dfa | None:
    """Return the words whose runs are short enough; None if no run is endless, or no word is left."""
    if not _has_endless_run(dfa, members):
        return None
    cut = intersection(dfa, _short_runs(members, maximum))
    return None if cut.is_empty else cut


def _has_endless_run(dfa: Dfa, members: bytes) -> bool:
    """Return whether a cycle of member bytes exists: peel off states until only cycles are left."""
    table = dfa.delta[:, list(members)]
    alive = np.ones(dfa.num_states, np.bool_)
    while True:
        goes_on = ((table >= 0) & alive[np.maximum(table, 0)]).any(axis=1) & alive
        if (goes_on == alive).all():
            return bool(alive.any())
        alive = goes_on


@lru_cache(maxsize=64)
def _short_runs(members: bytes, maximum: int) -> Dfa:
    delta = np.zeros((maximum + 1, 256), np.int32)
    delta[:, list(members)] = np.append(np.arange(1, maximum + 1), -1)[:, None]
    return Dfa.build(delta, np.ones(maximum + 1, np.bool_))
