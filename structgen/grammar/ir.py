"""The grammar IR: frozen values that every front end lowers to, and the spec that each pass is held to.

A grammar is a set of named rules over lexemes. The language is the pure context-free language over
bytes: every way to split the text into lexemes counts. Nothing here knows a vocabulary.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from structgen.errors import UnsatisfiableError
from structgen.grammar.dfa import Dfa


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly these bytes (may be empty)."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word of a byte DFA, optionally bounded in length.

    Attributes:
        dfa: minimal byte DFA; may accept the empty word.
        min_length: least number of ticks (see Dfa.tick_bytes: code points as decoded).
        max_length: greatest number of ticks, None for no bound.
        free_text: True for string bodies, where penalties apply.
        name: for messages only; not part of equality.
    """

    dfa: Dfa
    min_length: int = 0
    max_length: int | None = None
    free_text: bool = False
    name: str = field(default="", compare=False)

    def __hash__(self) -> int:
        """Hash by the DFA, which few lexemes of a grammar share."""
        return hash(self.dfa.digest)


@dataclass(frozen=True, slots=True)
class Sequence:
    """Each item in order."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any one of the options; no options is the empty language."""

    options: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The item, minimum to maximum times (None: no bound), with the separator between neighbours."""

    item: Expr
    minimum: int = 0
    maximum: int | None = None
    separator: Expr | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """The rule of this name."""

    name: str


Expr = Literal | Lexeme | Sequence | Choice | Repeat | Reference

NOTHING = Choice(())
"""The empty language."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of rules before they are made.

    Attributes:
        lexemes: the lexemes of which it has to be looked whether a word is left within their lengths, or within what a
            vocabulary can spell.
        spelled: the bytes of literals, and of the shortest words of all other lexemes.
    """

    lexemes: tuple[Lexeme, ...]
    spelled: frozenset[int]


class LazyRules(Mapping[str, Expr]):
    """Rules that are made when they are first asked for; thread-safe.

    Who makes them knows before that some text belongs to each rule, and that the empty text belongs to none.
    To go through all of them is to make all that can be reached.
    """

    def __init__(self, start: str, make: Callable[[str], Mapping[str, Expr]], facts: Facts, made_of: str) -> None:
        """Make nothing yet.

        Args:
            start: the rule from which all others are reached.
            make: makes a rule, with those that only it leads to.
            facts: what is known of all rules.
            made_of: all that the rules follow from; it tells them apart from others without making them.
        """
        self.made_of = made_of
        self.start = start
        self.facts = facts
        self._make = make
        self._made: dict[str, Expr] = {}
        self._lock = threading.RLock()
        self._is_complete = False

    def __getitem__(self, name: str) -> Expr:
        """Return a rule, made now if it was not asked for before."""
        known = self._made.get(name)
        if known is None:
            with self._lock:
                for made, body in self._make(name).items():
                    self._made.setdefault(made, body)
            known = self._made[name]
        return known

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all rules that can be reached."""
        self._complete()
        return iter(self._made)

    def __len__(self) -> int:
        """Count the rules that can be reached."""
        self._complete()
        return len(self._made)

    def _complete(self) -> None:
        with self._lock:
            if not self._is_complete:
                found, order = {self.start}, [self.start]
                for name in order:
                    fresh = [target for target in references(self[name]) if target not in found]
                    order += fresh
                    found.update(fresh)
                self._made = {name: self._made[name] for name in order}
                self._is_complete = True


@dataclass(frozen=True, slots=True)
class Grammar:
    """Named rules and the one to start from."""

    rules: Mapping[str, Expr]
    start: str

    def __post_init__(self) -> None:
        """Freeze the rules and hold the value to the spec; rules that are made later are held to it by their maker."""
        if not isinstance(self.rules, LazyRules):
            object.__setattr__(self, "rules", MappingProxyType(dict(self.rules)))
            check(self)


class Source:
    """A grammar that is made when it is asked for, and what it follows from; thread-safe."""

    def __init__(self, make: Callable[[], Grammar], made_of: str | None = None) -> None:
        """Make nothing yet.

        Args:
            make: makes the grammar.
            made_of: all that the grammar follows from, which tells it from others without making it; None where only
                its rules do.
        """
        self.made_of = made_of
        self._make = make
        self._lock = threading.Lock()
        self._grammar: Grammar | None = None

    @classmethod
    def of(cls, grammar: Grammar | Source) -> Source:
        """Return the source of a grammar that is there; of a source, itself."""
        if isinstance(grammar, Source):
            return grammar
        return cls(lambda: grammar, grammar.rules.made_of if isinstance(grammar.rules, LazyRules) else None)

    @property
    def grammar(self) -> Grammar:
        """The grammar, made when first asked for; what making it raises is raised each time."""
        with self._lock:
            if self._grammar is None:
                self._grammar = self._make()
            return self._grammar


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct parts of an expression."""
    match expr:
        case Sequence(items=items):
            return items
        case Choice(options=options):
            return options
        case Repeat(item=item, separator=separator):
            return (item,) if separator is None else (item, separator)
        case _:
            return ()


def references(expr: Expr) -> dict[str, None]:
    """Return the names that an expression refers to, in order."""
    return {part.name: None for part in walk(expr) if isinstance(part, Reference)}


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and all its parts, outermost first."""
    stack = [expr]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def check(grammar: Grammar) -> None:
    """Hold a grammar to the spec; raise ValueError (a bug in a front end) or UnsatisfiableError.

    Spec: the start rule exists; each reference has its rule; 0 <= minimum <= maximum wherever both are
    given; lengths likewise.
    """
    if grammar.start not in grammar.rules:
        raise ValueError(f"start rule {grammar.start!r} is not among the rules")
    for name, body in grammar.rules.items():
        for expr in walk(body):
            _check_expr(grammar, name, expr)


def _check_expr(grammar: Grammar, name: str, expr: Expr) -> None:
    match expr:
        case Reference(name=target) if target not in grammar.rules:
            raise ValueError(f"rule {name!r} refers to {target!r}, which is not defined")
        case Repeat(minimum=low, maximum=high) | Lexeme(min_length=low, max_length=high):
            if low < 0:
                raise ValueError(f"rule {name!r}: a bound of {low} is negative")
            if high is not None and high < low:
                raise UnsatisfiableError(f"rule {name!r}: at least {low} and at most {high} cannot both hold")
        case _:
            pass
