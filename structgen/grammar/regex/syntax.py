"""The syntax tree of a regular expression: frozen nodes and the constructors that keep them flat.

Groups leave no node (nothing refers back to them), and a class is already the set of code points that it
stands for. Dialects and flags are settled by the parser and are not seen here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from structgen.grammar.charset import CharSet


@dataclass(frozen=True, slots=True)
class Chars:
    """One code point of the set (none, if the set is empty)."""

    charset: CharSet


@dataclass(frozen=True, slots=True)
class Concat:
    """Each item in order; without items the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternate:
    """Any one of at least two options, in the order in which a backtracking matcher tries them."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The item, minimum to maximum times (None: no bound).

    Attributes:
        item: what is repeated.
        minimum: least number of copies.
        maximum: greatest number of copies, None for no bound.
        is_greedy: whether a backtracking matcher tries more copies first; the language is the same.
        column: 1-based column of the quantifier, for messages.
    """

    item: Node
    minimum: int
    maximum: int | None
    is_greedy: bool = True
    column: int = field(default=0, compare=False)

    @property
    def label(self) -> str:
        """The quantifier as messages write it."""
        return f"the repeat {{{self.minimum},{'' if self.maximum is None else self.maximum}}} at column {self.column}"


@dataclass(frozen=True, slots=True)
class Look:
    """Hold the text beside this place to the item, and consume nothing.

    Attributes:
        item: what must, or must not, match.
        is_behind: whether the text before this place is looked at, else the text after it.
        is_negative: whether the item must not match.
        label: how messages call the construct.
    """

    item: Node
    is_behind: bool
    is_negative: bool
    label: str = field(default="look-around", compare=False)


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of the text."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the text."""


Node = Chars | Concat | Alternate | Repeat | Look | Begin | End

EMPTY = Concat(())
"""Matches the empty text."""


def concat(items: Iterable[Node]) -> Node:
    """Join the items in order, without nesting one concatenation in another."""
    flat: list[Node] = []
    for item in items:
        if isinstance(item, Concat):
            flat.extend(item.items)
        else:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def alternate(options: Iterable[Node]) -> Node:
    """Offer the options in order, without nesting one choice in another; neighbouring sets become one set."""
    flat: list[Node] = []
    for option in options:
        for part in option.options if isinstance(option, Alternate) else (option,):
            if flat and isinstance(part, Chars) and isinstance(flat[-1], Chars):
                flat[-1] = Chars(flat[-1].charset.union(part.charset))
            elif not (flat and flat[-1] == part):
                flat.append(part)
    return flat[0] if len(flat) == 1 else Alternate(tuple(flat))


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct parts of a node."""
    match node:
        case Concat(items=parts) | Alternate(options=parts):
            return parts
        case Repeat(item=item) | Look(item=item):
            return (item,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all its parts, outermost first."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def is_zero_width(node: Node) -> bool:
    """Whether the node consumes nothing, whatever the text."""
    return widths(node) == (0, 0)


def looks_around(node: Node) -> bool:
    """Whether what the node matches can depend on the text beside it."""
    return any(isinstance(part, Look | Begin | End) for part in walk(node))


def widths(node: Node) -> tuple[int, int | None]:
    """Bound how many code points the node consumes: the least and the most, None if there is no most."""
    match node:
        case Chars():
            return 1, 1
        case Concat(items=parts):
            spans = [widths(part) for part in parts]
            return sum(low for low, _ in spans), _sum([high for _, high in spans])
        case Alternate(options=parts):
            spans = [widths(part) for part in parts]
            highs = [high for _, high in spans]
            bounded = [high for high in highs if high is not None]
            return min(low for low, _ in spans), max(bounded) if len(bounded) == len(highs) else None
        case Repeat(item=item, minimum=minimum, maximum=maximum):
            low, high = widths(item)
            if high == 0 or maximum == 0:
                return 0, 0
            return low * minimum, None if high is None or maximum is None else high * maximum
        case _:
            return 0, 0


def _sum(highs: list[int | None]) -> int | None:
    bounded = [high for high in highs if high is not None]
    return sum(bounded) if len(bounded) == len(highs) else None
