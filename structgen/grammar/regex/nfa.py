"""Compile a syntax tree to one pool of NFA states, from which look-arounds branch off as sub-automata.

A state either reads one character of a set, or jumps without reading; a jump may carry a guard. Look-arounds
of one character become guards on the neighbouring characters; all others a sub-automaton of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from structgen.errors import LimitError
from structgen.grammar.charset import CharSet
from structgen.grammar.regex.syntax import (
    EMPTY,
    Alternate,
    Begin,
    Chars,
    Concat,
    End,
    Look,
    Node,
    Repeat,
    children,
    walk,
)


@dataclass(frozen=True, slots=True)
class EdgeGuard:
    """The place is the start, or the end, of the text."""

    is_start: bool


@dataclass(frozen=True, slots=True)
class CharGuard:
    """The character before, or after, the place is in a set; with is_negative there is none, or it is not.

    Attributes:
        mask: one bit, that of the set among the sets looked for on this side.
        is_behind: whether the character before is meant.
        is_negative: whether the guard is turned round.
    """

    mask: int
    is_behind: bool
    is_negative: bool


@dataclass(frozen=True, slots=True)
class LookGuard:
    """The sub-automaton of this number matches beside the place; with is_negative it does not."""

    part: int
    is_negative: bool


Guard = EdgeGuard | CharGuard | LookGuard


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-automaton.

    Attributes:
        start: its first state.
        final: the state that it has matched in.
        is_tail_free: whether any text may follow; final then reads every character and stays.
        tracker: its index among the look-behinds, -1 if it is none.
    """

    start: int
    final: int
    is_tail_free: bool
    tracker: int = -1


@dataclass(slots=True)
class Nfa:
    """The pool of states.

    Attributes:
        sets: every set of characters that a state reads or a guard looks for; the first holds all.
        reads: per state, the index of the set that it reads, -1 if it reads nothing.
        targets: per state, the state after reading.
        jumps: per state, the (guard or None, state) pairs that it can jump by.
        parts: the sub-automata; the first is the whole expression.
        behind: indices of the sets that guards look for before a place; guard masks count by it.
        ahead: the same after a place.
        uses_start: whether a guard asks for the start of the text.
    """

    sets: list[CharSet] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    jumps: list[list[tuple[Guard | None, int]]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    ahead: list[int] = field(default_factory=list)
    uses_start: bool = False


def build_nfa(node: Node, *, is_search: bool, max_states: int) -> Nfa:
    """Compile a tree.

    Args:
        node: the tree.
        is_search: whether the expression may match anywhere in the text, else it matches the whole.
        max_states: greatest number of states.

    Raises:
        LimitError: more states are needed; names the construct.
    """
    _check_size(node, node, max_states)
    builder = _Builder()
    builder.add_part(node, is_head_free=is_search, is_tail_free=is_search)
    return builder.nfa


def culprit(node: Node) -> str:
    """Name the construct that most likely makes an automaton large."""
    repeats = [part for part in walk(node) if isinstance(part, Repeat)]
    largest = max(repeats, key=lambda part: (_copies(part), -part.column), default=None)
    if largest is not None and _copies(largest) > 1:
        return largest.label
    looks = [part for part in walk(node) if isinstance(part, Look)]
    return looks[0].label if looks else "its alternatives"


def _copies(node: Repeat) -> int:
    return max(node.minimum, node.maximum or 1)


def _check_size(node: Node, root: Node, max_states: int) -> int:
    """Return a bound on the states that a tree takes; refuse it before they are made."""
    size = 1
    for part in children(node):
        size += _check_size(part, root, max_states)
    if isinstance(node, Repeat):
        size *= _copies(node) + (node.maximum is None)
    if size > max_states:
        raise LimitError(
            f"the regular expression is too large to unroll: {culprit(node)} needs more than {max_states} states; "
            "make its bounds smaller",
            limit="states",
            size=size,
        )
    return size


class _Builder:
    """Emit states from the end of the expression to its start, so that each knows what follows it."""

    def __init__(self) -> None:
        self.nfa = Nfa()
        self._set_index: dict[CharSet, int] = {}
        self._look_parts: dict[tuple[Node, bool], int] = {}
        self._any = self._set(CharSet.any())

    def add_part(self, node: Node, *, is_head_free: bool, is_tail_free: bool, is_tracker: bool = False) -> int:
        """Add a sub-automaton and return its number."""
        nfa = self.nfa
        number = len(nfa.parts)
        tracker = sum(part.tracker >= 0 for part in nfa.parts) if is_tracker else -1
        final = self._read(self._any, -1)
        if is_tail_free:
            nfa.targets[final] = final
        else:
            nfa.reads[final] = -1
        # The place is taken first: the parts of look-arounds inside come after it.
        nfa.parts.append(Part(-1, final, is_tail_free, tracker))
        start = self._emit(node, final)
        if is_head_free:
            loop = self._read(self._any, -1)
            nfa.targets[loop] = self._jump((None, loop), (None, start))
            start = nfa.targets[loop]
        nfa.parts[number] = Part(start, final, is_tail_free, tracker)
        return number

    def _emit(self, node: Node, out: int) -> int:
        """Add the states of a node before a state; return the first."""
        match node:
            case Chars(charset=charset):
                return self._read(self._set(charset), out)
            case Concat(items=items):
                for item in reversed(items):
                    out = self._emit(item, out)
                return out
            case Alternate(options=options):
                return self._jump(*[(None, self._emit(option, out)) for option in options])
            case Repeat():
                return self._emit_repeat(node, out)
            case Look():
                return self._emit_look(node, out)
            case Begin():
                self.nfa.uses_start = True
                return self._jump((EdgeGuard(is_start=True), out))
            case End():
                return self._jump((EdgeGuard(is_start=False), out))

    def _emit_repeat(self, node: Repeat, out: int) -> int:
        if node.maximum is None:
            loop = self._jump((None, out))
            self.nfa.jumps[loop].append((None, self._emit(node.item, loop)))
            first = loop
        else:
            first = out
            for _ in range(node.maximum - node.minimum):
                first = self._jump((None, self._emit(node.item, first)), (None, out))
        for _ in range(node.minimum):
            first = self._emit(node.item, first)
        return first

    def _emit_look(self, node: Look, out: int) -> int:
        """Add a look-around; one over a choice of single characters and edges becomes guards."""
        options = node.item.options if isinstance(node.item, Alternate) else (node.item,)
        if not all(isinstance(option, Chars | Begin | End) or option == EMPTY for option in options):
            return self._jump((self._look_guard(node), out))
        if not node.is_negative:
            return self._jump(*[self._option_jump(node, option, out) for option in options])
        for option in options:
            out = self._jump(self._option_jump(node, option, out))
        return out

    def _option_jump(self, node: Look, option: Node, out: int) -> tuple[Guard | None, int]:
        nfa = self.nfa
        dead = self._jump()
        match option:
            case Chars(charset=charset):
                return self._char_guard(charset, is_behind=node.is_behind, is_negative=node.is_negative), out
            case Begin() | End() if node.is_negative:
                # Not at an edge: some character stands on that side.
                is_start = isinstance(option, Begin)
                return self._char_guard(CharSet.any(), is_behind=is_start, is_negative=False), out
            case Begin() | End():
                nfa.uses_start |= isinstance(option, Begin)
                return EdgeGuard(isinstance(option, Begin)), out
            case _:
                return None, dead if node.is_negative else out

    def _char_guard(self, charset: CharSet, *, is_behind: bool, is_negative: bool) -> CharGuard:
        index = self._set(charset)
        side = self.nfa.behind if is_behind else self.nfa.ahead
        if index not in side:
            side.append(index)
        return CharGuard(1 << side.index(index), is_behind, is_negative)

    def _look_guard(self, node: Look) -> LookGuard:
        key = (node.item, node.is_behind)
        if key not in self._look_parts:
            self._look_parts[key] = self.add_part(
                node.item, is_head_free=node.is_behind, is_tail_free=not node.is_behind, is_tracker=node.is_behind
            )
        return LookGuard(self._look_parts[key], node.is_negative)

    def _set(self, charset: CharSet) -> int:
        if charset not in self._set_index:
            self._set_index[charset] = len(self.nfa.sets)
            self.nfa.sets.append(charset)
        return self._set_index[charset]

    def _read(self, index: int, target: int) -> int:
        self.nfa.reads.append(index)
        self.nfa.targets.append(target)
        self.nfa.jumps.append([])
        return len(self.nfa.reads) - 1

    def _jump(self, *jumps: tuple[Guard | None, int]) -> int:
        state = self._read(-1, -1)
        self.nfa.jumps[state].extend(jumps)
        return state
