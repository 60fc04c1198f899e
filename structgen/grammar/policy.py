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
from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence, children

DIGITS = b"0123456789"
WHITESPACE = b" \t\n\r"
PUNCTUATION = b"{}[]:,"


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
        case Repeat(item=item, maximum=None, separator=None) if (run := _run_of(item, policy)) is not None:
            asked = Bounded(rule, item.name if isinstance(item, Lexeme) else "", *run)
            return _bounded_repeat(expr, _bounded(item, policy, rule, []), asked, cuts)
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


def _run_of(item: Expr, policy: Policy) -> tuple[str, int] | None:
    """Return (name, longest run) if all words of an expression consist of members of one run."""
    used = _bytes_of(item)
    return next(((run, maximum) for run, members, maximum in _runs(policy) if used and used <= set(members)), None)


def _bytes_of(expr: Expr) -> frozenset[int] | None:
    """Return the bytes that the words of an expression are made of, None where that is not looked into."""
    match expr:
        case Literal(text=text):
            return frozenset(text)
        case Lexeme(free_text=False, dfa=dfa):
            return _bytes_used(dfa)
        case Sequence() | Choice() | Repeat():
            parts = [_bytes_of(part) for part in children(expr)]
            found = [part for part in parts if part is not None]
            return frozenset().union(*found) if len(found) == len(parts) else None
        case _:
            return None


def _bytes_used(dfa: Dfa) -> frozenset[int]:
    return frozenset(np.flatnonzero((dfa.delta >= 0).any(axis=0)).tolist())


def _bounded_repeat(expr: Repeat, item: Expr, asked: Bounded, cuts: list[Bounded]) -> Expr:
    """Return a repeat of members of one run with only as many items as make no longer run; at least one, if any."""
    longest = _longest_word(item)
    if longest is None:
        return expr  # its items are left endless, and a row of them reads like one
    times = max(asked.maximum // max(longest, 1), expr.minimum, min(asked.maximum, 1))
    cuts.append(replace(asked, maximum=max(asked.maximum, times * longest)))
    return replace(expr, item=item, maximum=times) if times else Literal(b"")


def _longest_word(expr: Expr) -> int | None:
    """Return how many bytes the longest word of an expression without references has, None if there is none."""
    match expr:
        case Literal(text=text):
            return len(text)
        case Lexeme(max_length=maximum, dfa=dfa):
            return _longest_of(dfa) if maximum is None else maximum
        case Repeat(maximum=None) | Reference():
            return None
        case _:
            lengths = [_longest_word(part) for part in children(expr)]
            known = [length for length in lengths if length is not None]
            if len(known) < len(lengths):
                return None
            times = (expr.maximum or 0) if isinstance(expr, Repeat) else 1
            return times * (max(known, default=0) if isinstance(expr, Choice) else sum(known))


def _longest_of(dfa: Dfa) -> int | None:
    reached = np.arange(dfa.num_states) == 0
    for length in range(dfa.num_states):
        targets = dfa.delta[reached]
        reached = np.zeros_like(reached)
        reached[targets[targets >= 0]] = True
        if not reached.any():
            return length  # every state of a DFA leads to a word
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
    """Return the words whose runs are short enough; None if nothing is to be cut, or no word would be left."""
    # A gap is no longer than the policy says, even where its rule has a bound of its own.
    is_gap = members == WHITESPACE and members[0] in (used := _bytes_used(dfa)) and used <= set(members + PUNCTUATION)
    if not is_gap and not _has_endless_run(dfa, members):
        return None
    cut = intersection(dfa, _short_runs(members, maximum))
    return None if cut.is_empty or cut == dfa else cut


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
