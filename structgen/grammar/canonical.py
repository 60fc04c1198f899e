"""The canonical text of a grammar: what caches are keyed by, and compared with on a hit."""

from __future__ import annotations

from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence


def canonical_text(grammar: Grammar) -> str:
    """Return a text that two grammars share only if their rules are the same, up to the order of the rules."""
    lines = [f"start {grammar.start!r}"]
    lines += [f"{name!r} = {_text(body)}" for name, body in sorted(grammar.rules.items())]
    return "\n".join(lines)


def _text(expr: Expr) -> str:
    match expr:
        case Literal(text=text):
            return f"={text.hex()}="  # no rule name is written like this: repr() begins with a quote
        case Lexeme(dfa=dfa, min_length=low, max_length=high, free_text=free_text):
            return f"<{dfa.digest.hex()} {low}..{'' if high is None else high}{' text' if free_text else ''}>"
        case Sequence(items=items):
            return "(" + " ".join(map(_text, items)) + ")"
        case Choice(options=options):
            return "[" + " | ".join(map(_text, options)) + "]"
        case Repeat(item=item, minimum=low, maximum=high, separator=separator):
            between = "" if separator is None else f" by {_text(separator)}"
            return f"{{{_text(item)} {low}..{'' if high is None else high}{between}}}"
        case Reference(name=name):
            return repr(name)
