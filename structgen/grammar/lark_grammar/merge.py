"""Rules that are alike made one: the coarsest partition in which alike rules have alike bodies."""

from __future__ import annotations

from collections.abc import Mapping

from structgen.grammar.ir import Choice, Expr, Grammar, Reference, Repeat, Sequence
from structgen.grammar.time_limit import check_time

# A rule's name, a leaf's number, a sequence, or a choice.
Shape = str | int | tuple["Shape", ...] | list["Shape"]


def merge_rules(rules: Mapping[str, Expr], start: str) -> Grammar:
    """Return the grammar with one rule for all that have the same body, references taken up to that.

    A rule is named after the first word of its name; where that is taken, a number follows.
    """
    leaves: dict[Expr, int] = {}
    shapes = {name: _shape(body, leaves) for name, body in rules.items()}
    colour = dict.fromkeys(rules, 0)
    num_colours = 1
    while True:
        check_time("joining rules that are alike")
        numbers: dict[object, int] = {}
        after = {
            name: numbers.setdefault((colour[name], _coloured(shape, colour)), len(numbers))
            for name, shape in shapes.items()
        }
        if len(numbers) == num_colours:
            break
        colour, num_colours = after, len(numbers)
    chosen: dict[int, str] = {}
    names: dict[int, str] = {}
    taken = {start}
    for name in rules:
        if colour[name] not in chosen:
            chosen[colour[name]] = name
            names[colour[name]] = start if name == start else _free(name.split(" ")[0], taken)
    merged = {
        names[number]: _renamed(rules[name], {inner: names[colour[inner]] for inner in _names(rules[name])})
        for number, name in chosen.items()
    }
    return Grammar(merged, names[colour[start]])


def _free(name: str, taken: set[str]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name} {number}", number + 1
    taken.add(free)
    return free


def _shape(expr: Expr, leaves: dict[Expr, int]) -> Shape:
    """Return an expression with its leaves as numbers."""
    match expr:
        case Reference(name=name):
            return name
        case Sequence(items=items):
            return tuple(_shape(item, leaves) for item in items)
        case Choice(options=options):
            return [_shape(option, leaves) for option in options]
        case _:
            return leaves.setdefault(expr, len(leaves))


def _coloured(shape: Shape, colour: Mapping[str, int]) -> object:
    """Return what an expression is, up to the colours of the rules that it refers to, a sequence being a tuple."""
    if isinstance(shape, str):
        return ~colour[shape]
    if isinstance(shape, tuple):
        return tuple([_coloured(item, colour) for item in shape])
    if isinstance(shape, list):
        return frozenset([_coloured(option, colour) for option in shape])
    return shape


def _names(expr: Expr) -> set[str]:
    match expr:
        case Reference(name=name):
            return {name}
        case Sequence(items=parts) | Choice(options=parts):
            return set().union(*map(_names, parts))
        case _:
            return set()


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    match expr:
        case Reference(name=name):
            return Reference(names[name])
        case Sequence(items=items):
            return Sequence(tuple(_renamed(item, names) for item in items))
        case Choice(options=options):
            distinct = dict.fromkeys(_renamed(option, names) for option in options)
            return Choice(tuple(distinct)) if len(distinct) != 1 else next(iter(distinct))
        case Repeat():
            raise TypeError("woven rules have no repeats: Lark has written them out")
        case _:
            return expr
