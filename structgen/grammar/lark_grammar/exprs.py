"""Parts of a rule put together, so that lexemes become as large as they can."""

from __future__ import annotations

from collections.abc import Iterable

from structgen.grammar.ir import Choice, Expr, Lexeme, Literal, Sequence
from structgen.grammar.lark_grammar.terminals import words_expr

IGNORED = "ignored"
"""Name of the lexeme of skipped text; no terminal of Lark is in lower case."""


def sequence(items: Iterable[Expr]) -> Expr:
    """Join parts in order; neighbouring literals become one."""
    flat: list[Expr] = []
    for item in items:
        for part in item.items if isinstance(item, Sequence) else (item,):
            if flat and isinstance(part, Literal) and isinstance(flat[-1], Literal):
                flat[-1] = Literal(flat[-1].text + part.text)
            else:
                flat.append(part)
    if not flat:
        return Literal(b"")
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(options: Iterable[Expr]) -> Expr:
    """Offer options; literals, alone or after the same skipped text, become one lexeme."""
    words: dict[Expr | None, list[bytes]] = {}
    flat: dict[Expr, None] = {}
    for option in options:
        for part in option.options if isinstance(option, Choice) else (option,):
            match part:
                case Literal(text=text):
                    words.setdefault(None, []).append(text)
                case Sequence(items=(Lexeme() as skipped, Literal(text=text))) if skipped.name == IGNORED:
                    words.setdefault(skipped, []).append(text)
                case _:
                    flat[part] = None
    merged: list[Expr] = []
    for before, texts in words.items():
        expr = words_expr(texts)
        merged.append(expr if before is None else Sequence((before, expr)))
    merged += flat
    return merged[0] if len(merged) == 1 else Choice(tuple(merged))
