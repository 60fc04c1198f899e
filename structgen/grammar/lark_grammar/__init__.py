"""Lark grammars to the IR; `lower.lower_lark` is the way in."""

from structgen.grammar.lark_grammar.lower import lower_lark

__all__ = ["lower_lark"]
