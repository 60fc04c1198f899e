"""The language that Lark's dynamic lexer sees in a terminal: the texts that Python's `re.match` takes whole.

`re.match` takes the first way to match, not the longest: `a|ab` never takes "ab", and `".*?"` stops at the first
quote. Lark's Earley parser with the lexer `dynamic_complete` offers a terminal at a place the match there and the
matches of all that is shorter, cut off. For an expression without look-around these are exactly the texts w
that `re.match(expression, w)` takes whole, whatever stands around them. This module computes that language: it runs
all prioritised threads at once, as an ordered list, and drops what stands below a match.

Left out: the text around the terminal. A look-around, an anchor or a word boundary at the edge of a terminal sees
the terminal's edge as the end of the text, as Lark's cut texts do; Lark's longest match sees the real neighbours.
"""

from __future__ import annotations

from structgen.errors import LimitError
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.lark_grammar.program import build_program
from structgen.grammar.lark_grammar.threads import SETTLED, Looks, Thread, Threads
from structgen.grammar.regex import syntax
from structgen.grammar.time_limit import check_time

MAX_STATES = 20_000

# Threads by priority, and the state of each look-behind.
State = tuple[tuple[Thread, ...], Looks]


def first_match_language(node: syntax.Node) -> CharDfa:
    """Return the texts that `re.match` takes whole.

    Raises:
        GrammarSyntaxError: a look-around reaches past its place from inside another one.
        LimitError: more than MAX_STATES states.
    """
    threads = Threads(build_program(node))
    start: State = (tuple(threads.close([(0, SETTLED)], threads.no_text)), threads.no_text)
    index = {start: 0}
    states, delta = [start], []
    for waiting, behind in states:  # grows while it is read
        check_time("the first match of a terminal")
        row = [-1] * threads.num_columns
        for column in threads.columns:
            seen = threads.see(behind, column)
            after = tuple(threads.close(threads.move(waiting, column), seen)), seen
            if not after[0]:
                continue
            if after not in index:
                if len(states) >= MAX_STATES:
                    raise LimitError("a terminal is too large", "states", len(states))
                index[after] = len(states)
                states.append(after)
            row[column] = index[after]
        delta.append([row[column] for column in threads.class_of])
    return CharDfa.build(threads.starts, delta, [_is_taken_whole(threads, waiting) for waiting, _ in states])


def _is_taken_whole(threads: Threads, waiting: tuple[Thread, ...]) -> bool:
    """Tell whether, with the text ending here, the first match is the one that ends here."""
    for thread in waiting:
        if threads.has_matched(thread) and threads.may_end(thread[1]):
            return thread[0] >= 0
    return False
