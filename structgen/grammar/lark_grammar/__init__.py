"""Lark grammars to the IR; `lower.lower_lark` is the way in, and `collisions.collisions` tells what to look after."""

from structgen.grammar.lark_grammar.collisions import collisions
from structgen.grammar.lark_grammar.lower import lower_lark

__all__ = ["collisions", "lower_lark"]
