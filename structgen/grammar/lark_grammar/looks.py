r"""Rewrite look-arounds so that each can be told from one side of its place alone.

`(?!if\b)` looks ahead, and its `\b` looks behind; that is well inside what is looked at. `(?!\bif)` looks behind
its own place: it becomes two conditions, of which one must hold. Left out: a look-around that reaches past its
place from the middle of another one; it is refused by name.
"""

from __future__ import annotations

from structgen.errors import GrammarSyntaxError
from structgen.grammar.charset import CharSet
from structgen.grammar.regex import syntax
from structgen.grammar.regex.syntax import Alternate, Begin, Chars, Concat, End, Look, Node, Repeat

_NEVER = Chars(CharSet.empty())


def settle(look: Look) -> Node:
    """Return the look-around itself where it sees one side of its place, else an equal one of simpler conditions.

    Raises:
        GrammarSyntaxError: it cannot be told from one side, and not be taken apart.
    """
    if not any(_sees_across(part, look) for part in syntax.walk(look.item)):
        return look
    apart = _take_apart(look)
    if apart is None:
        _check_room(look.item, 0, look)
        return look
    return apart


def _take_apart(look: Look) -> Node | None:
    match look.item:
        case Alternate(options=options):
            parts = [Look(option, look.is_behind, look.is_negative, look.label) for option in options]
            return syntax.concat(parts) if look.is_negative else syntax.alternate(parts)
        case Look() | Begin() | End():
            return negation(look.item) if look.is_negative else look.item
        case Concat(items=items) if items and syntax.is_zero_width(items[-1 if look.is_behind else 0]):
            edge = items[-1 if look.is_behind else 0]
            rest = syntax.concat(items[:-1] if look.is_behind else items[1:])
            others = Look(rest, look.is_behind, look.is_negative, look.label)
            return syntax.alternate((negation(edge), others)) if look.is_negative else syntax.concat((edge, others))
        case _:
            return None


def negation(node: Node) -> Node:
    """Return the condition that holds where one of zero width does not."""
    match node:
        case Look():
            return Look(node.item, node.is_behind, not node.is_negative, node.label)
        case Begin():
            return Look(Chars(CharSet.any()), is_behind=True, is_negative=False)
        case End():
            return Look(Chars(CharSet.any()), is_behind=False, is_negative=False)
        case Concat(items=items) if items:
            return syntax.alternate(map(negation, items))
        case Alternate(options=options):
            return syntax.concat(map(negation, options))
        case Repeat(item=item, minimum=minimum) if minimum:
            return negation(item)
        case _:
            return _NEVER  # an empty text is always there


def _sees_across(part: Node, look: Look) -> bool:
    """Tell whether a part looks the other way than the look-around that it stands in."""
    across = End if look.is_behind else Begin
    return isinstance(part, across) or (isinstance(part, Look) and part.is_behind != look.is_behind)


def _check_room(node: Node, room: int, look: Look) -> None:
    """Hold what looks the other way to the characters that surely stand between it and the place."""
    match node:
        case Concat(items=items):
            for item in reversed(items) if look.is_behind else items:
                _check_room(item, room, look)
                room += syntax.widths(item)[0]
        case Alternate() | Repeat():
            for part in syntax.children(node):
                _check_room(part, room, look)
        case Look(is_behind=is_behind) if is_behind == look.is_behind:
            _check_room(node.item, room, look)
        case Look() | Begin() | End() if _sees_across(node, look):
            most = syntax.widths(node.item)[1] if isinstance(node, Look) else 1
            if most is None or most > room or (isinstance(node, Look) and syntax.looks_around(node.item)):
                raise GrammarSyntaxError(
                    f"{look.label} holds a look-around that reaches past its own place, which is not supported; "
                    f"put the two beside each other"
                )
        case _:
            pass
