r"""Lower a Lark grammar to the IR, for `Lark(text, parser="lalr", lexer="contextual")`.

The language is exactly that of Lark's parser: its own tables say which lexer is asked where, in which order that
tries its terminals, and how conflicts are settled. A token ends where Python's `re` ends it, whatever follows:

* `scanner` runs the terminals of a lexer at once, and says of each possible end what it promises of the rest;
* `seams` and `groups` find the places between tokens that differ at all, promises and skipped text included;
* `weave` makes a context-free grammar of the tables and of these places.

Look-arounds, `^`, `$` and `\b` see the real neighbours of a token, as in Lark. Left out: what no automaton has
(back-references, atomic groups), refused by name.
"""

from __future__ import annotations

from functools import lru_cache

from structgen.errors import UnsatisfiableError
from structgen.grammar import regex
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.dfa import Dfa
from structgen.grammar.encode import encode_utf8
from structgen.grammar.ir import Expr, Grammar, Lexeme
from structgen.grammar.lark_grammar.exprs import IGNORED, choice, sequence
from structgen.grammar.lark_grammar.groups import Groups, Ways
from structgen.grammar.lark_grammar.lalr import read_tables
from structgen.grammar.lark_grammar.merge import merge_rules
from structgen.grammar.lark_grammar.program import Program, add_expression
from structgen.grammar.lark_grammar.scanner import Scanner
from structgen.grammar.lark_grammar.seams import Seams
from structgen.grammar.lark_grammar.terminals import blamed, terminal_expr
from structgen.grammar.lark_grammar.weave import Weaver

_TEXT = "__text"  # no rule of Lark begins with two underscores


def lower_contextual(text: str, start: str) -> Grammar:
    """Lower a grammar as Lark's LALR parser with its contextual lexer reads texts.

    Raises:
        GrammarSyntaxError: Lark refuses the grammar, or a terminal holds what is not regular.
        LimitError: the terminals, or the ways they hang together, are too many.
    """
    tables, nodes = read_tables(text, start)
    tried = dict.fromkeys(name for lexer in tables.lexers for name in lexer.order)
    wanted = {word for lexer in tables.lexers for _, words in lexer.words for word in words}
    program = Program()
    places = {}
    for name in tried:
        with blamed(name, tables.patterns[name], text):
            places[name] = add_expression(program, nodes[name])
    words = {name: regex.to_chardfa(nodes[name], mode="fullmatch") for name in wanted}
    groups = Groups(Seams(tables, Scanner(program, places), words))
    weaver = Weaver(tables, groups, _express)
    options = [
        sequence([whole, *([] if (rest := groups.trailing(group)) == CharDfa.epsilon() else [_skipped(rest)])])
        for whole, group in weaver.whole()
    ]
    if not options:
        raise UnsatisfiableError(
            f"no text at all is a {start!r} to Lark's contextual lexer: a terminal takes what the rules need after it, "
            f"or hides another one; let it end at the first chance (such as '*?' for '*'), or use lexer='dynamic'"
        )
    return merge_rules({_TEXT: choice(options), **weaver.rules}, _TEXT)


def _express(name: str, ways: Ways) -> Expr:
    options = []
    for skipped, language in sorted(ways, key=lambda way: (way[0].digest, way[1].digest)):
        before = [] if skipped == CharDfa.epsilon() else [_skipped(skipped)]
        options.append(sequence([*before, terminal_expr(_encoded(language), name)]))
    return choice(options)


def _skipped(texts: CharDfa) -> Expr:
    return Lexeme(_encoded(texts), name=IGNORED)


@lru_cache(maxsize=1024)
def _encoded(language: CharDfa) -> Dfa:
    encoded = encode_utf8(language)
    return Dfa.build(encoded.delta, encoded.accepting)
