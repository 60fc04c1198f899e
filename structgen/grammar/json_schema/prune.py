"""Drops what no text can reach an end through, and says so when that is everything."""

from __future__ import annotations

from structgen.errors import UnsatisfiableError
from structgen.grammar import ir


def prune(grammar: ir.Grammar, empty_at: list[str]) -> ir.Grammar:
    """Return the grammar without unproductive and unreachable rules.

    Args:
        grammar: any grammar.
        empty_at: JSON pointers of the values for which nothing was found, for the message.

    Raises:
        UnsatisfiableError: no text fits.
    """
    productive = _productive(grammar)
    if grammar.start not in productive:
        where = empty_at[0] if empty_at else "#"
        raise UnsatisfiableError("no value fits this schema; its keywords contradict each other here", where)
    rules: dict[str, ir.Expr] = {}
    queue = [grammar.start]
    while queue:
        name = queue.pop()
        if name not in rules:
            body = _rewrite(grammar.rules[name], productive)
            rules[name] = ir.Choice(()) if body is None else body
            queue += [part.name for part in ir.walk(rules[name]) if isinstance(part, ir.Reference)]
    return ir.Grammar(rules, grammar.start)


def _productive(grammar: ir.Grammar) -> frozenset[str]:
    """Return the rules from which some text comes, by propagation from what is known to the rules that use it."""
    users: dict[str, list[str]] = {name: [] for name in grammar.rules}
    for name, body in grammar.rules.items():
        for part in ir.walk(body):
            if isinstance(part, ir.Reference):
                users[part.name].append(name)
    found: set[str] = set()
    queue = list(grammar.rules)
    while queue:
        name = queue.pop()
        if name not in found and _rewrite(grammar.rules[name], found) is not None:
            found.add(name)
            queue += users[name]
    return frozenset(found)


def _rewrite(expr: ir.Expr, productive: frozenset[str] | set[str]) -> ir.Expr | None:
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


def _repeat(expr: ir.Repeat, productive: frozenset[str] | set[str]) -> ir.Expr | None:
    item = _rewrite(expr.item, productive)
    if item is None:
        return ir.Literal(b"") if expr.minimum == 0 else None
    separator = None if expr.separator is None else _rewrite(expr.separator, productive)
    if expr.separator is not None and separator is None:
        return None
    return ir.Repeat(item, expr.minimum, expr.maximum, separator)
