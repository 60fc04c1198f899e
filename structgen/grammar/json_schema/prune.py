"""Drops what no text can reach an end through."""

from __future__ import annotations

from collections.abc import Container, Mapping

from structgen.grammar import ir


def pruned(rules: Mapping[str, ir.Expr], start: str, productive: set[str]) -> dict[str, ir.Expr]:
    """Return the rules that are reached from the start, without their unproductive options.

    Args:
        rules: which refer to each other and to others.
        start: to this one some text belongs.
        productive: the other rules to which some text belongs.
    """
    known = _Either(productive, productive_rules(rules, productive))
    found: dict[str, ir.Expr] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in found:
            body = _rewrite(rules[name], known)
            found[name] = ir.NOTHING if body is None else body
            waiting += [target for target in ir.references(found[name]) if target in rules]
    return found


def is_whole(rules: Mapping[str, ir.Expr], productive: set[str]) -> bool:
    """Tell whether rules hold nothing without a text, besides what they need each other for.

    Args:
        rules: which refer to each other and to others.
        productive: the other rules to which some text belongs.
    """
    for body in rules.values():
        for part in ir.walk(body):
            if isinstance(part, ir.Reference):
                if part.name not in productive and part.name not in rules:
                    return False
            elif isinstance(part, ir.Choice):
                if not part.options:
                    return False
            elif isinstance(part, ir.Lexeme) and part.dfa.is_empty:
                return False
    return True


def productive_rules(rules: Mapping[str, ir.Expr], others: set[str]) -> set[str]:
    """Return the rules from which some text comes, by propagation from what is known to the rules that use it.

    Args:
        rules: which refer to each other and to others.
        others: the other rules from which some text comes.
    """
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, body in rules.items():
        for target in ir.references(body):
            if target in rules:
                users[target].append(name)
    found: set[str] = set()
    known = _Either(others, found)
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in found and _rewrite(rules[name], known) is not None:
            found.add(name)
            waiting += users[name]
    return found


class _Either:
    """What is in one of two containers."""

    def __init__(self, first: Container[str], second: Container[str]) -> None:
        self._first = first
        self._second = second

    def __contains__(self, name: object) -> bool:
        return name in self._first or name in self._second


def _rewrite(expr: ir.Expr, productive: Container[str]) -> ir.Expr | None:
    """Return the expression without its unproductive options; None if nothing is left."""
    match expr:
        case ir.Reference(name=name):
            return expr if name in productive else None
        case ir.Lexeme(dfa=dfa):
            return None if dfa.is_empty else expr
        case ir.Literal():
            return expr
        case ir.Sequence(items=items):
            kept = [_rewrite(item, productive) for item in items]
            parts = tuple(item for item in kept if item is not None)
            return ir.Sequence(parts) if len(parts) == len(items) else None
        case ir.Choice(options=options):
            kept = [_rewrite(option, productive) for option in options]
            return _one_of(tuple(option for option in kept if option is not None))
        case ir.Repeat():
            return _repeat(expr, productive)


def _one_of(options: tuple[ir.Expr, ...]) -> ir.Expr | None:
    if not options:
        return None
    return options[0] if len(options) == 1 else ir.Choice(options)


def _repeat(expr: ir.Repeat, productive: Container[str]) -> ir.Expr | None:
    item = _rewrite(expr.item, productive)
    if item is None:
        return ir.Literal(b"") if expr.minimum == 0 else None
    separator = None if expr.separator is None else _rewrite(expr.separator, productive)
    if expr.separator is not None and separator is None:
        return None
    return ir.Repeat(item, expr.minimum, expr.maximum, separator)
