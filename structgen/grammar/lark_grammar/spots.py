"""Nonterminals in LR states, told apart only where it matters to the text.

The LR state in which a nonterminal is read decides which lexers are asked inside it, and how conflicts are settled.
Most states decide the same; then one of them stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from lark.grammar import Rule

from structgen.grammar.lark_grammar.lalr import Spot, Tables

# Per rule: the states that it is read through, and the last one.
Paths = dict[Rule, list[int]]


def representatives(
    tables: Tables, kind: Callable[[str, int], Hashable], closed: Mapping[tuple[int, Rule], frozenset[int]]
) -> dict[Spot, int]:
    """Return for each spot the state that stands for its own.

    Args:
        tables: the parser.
        kind: tells apart what a token leads to, of the token and the state after it.
        closed: per final state and rule, what may not come next.
    """
    paths = _paths(tables)
    colour: dict[Spot, int] = dict.fromkeys(paths, 0)
    num_colours = 1
    while True:
        numbers: dict[object, int] = {}
        after = {}
        for spot, by_rule in paths.items():
            shape = tuple(
                (
                    tuple(
                        kind(symbol.name, ahead) if symbol.is_term else colour[at, str(symbol.name)]
                        for symbol, at, ahead in zip(rule.expansion, states, states[1:], strict=False)
                    ),
                    closed.get((states[-1], rule)),
                )
                for rule, states in by_rule.items()
            )
            after[spot] = numbers.setdefault((spot[1], colour[spot], shape), len(numbers))
        if len(numbers) == num_colours:
            break
        colour, num_colours = after, len(numbers)
    chosen: dict[int, int] = {}
    return {spot: chosen.setdefault(colour[spot], spot[0]) for spot in paths}


def _paths(tables: Tables) -> dict[Spot, Paths]:
    """Return the ways through each spot that the start can come to."""
    root = (tables.first, tables.start)
    found: dict[Spot, Paths] = {}
    pending = [root]
    while pending:
        spot = pending.pop()
        if spot in found:
            continue
        found[spot] = {rule: tables.path(spot[0], rule) for rule in tables.rules[spot[1]]}
        for rule, states in found[spot].items():
            inner = zip(rule.expansion, states, strict=False)
            pending += [(at, str(symbol.name)) for symbol, at in inner if not symbol.is_term]
    return found
