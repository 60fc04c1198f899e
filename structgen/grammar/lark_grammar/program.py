"""Turn a regular expression into a program of prioritised threads, as a backtracking matcher would try them.

Each look-around becomes an automaton of its own: over the text so far (look-behind), or over the rest of the text
(look-ahead). Left out: running the program, which `first_match` does for all texts at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from structgen.errors import LimitError
from structgen.grammar import regex
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.charset import CharSet
from structgen.grammar.lark_grammar.looks import settle
from structgen.grammar.regex import syntax

MAX_INSTRUCTIONS = 20_000


@dataclass(frozen=True, slots=True)
class Take:
    """Consume a character of the set and go on at another place, the next one unless a loop says otherwise."""

    charset: CharSet
    then: int


@dataclass(frozen=True, slots=True)
class Split:
    """Go on at the first place, and at the second where that fails."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Behind:
    """Go on where automaton `index` of `behind` accepts the text so far."""

    index: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """Go on where automaton `index` of `ahead` accepts the rest of the text."""

    index: int


@dataclass(frozen=True, slots=True)
class Done:
    """The expression has matched."""


Instruction = Take | Split | Behind | Ahead | Done


@dataclass
class Program:
    """Instructions, run from 0, and the automata that they ask."""

    code: list[Instruction] = field(default_factory=list)
    behind: list[CharDfa] = field(default_factory=list)
    ahead: list[CharDfa] = field(default_factory=list)


def build_program(node: syntax.Node) -> Program:
    """Return the program of an expression.

    Raises:
        GrammarSyntaxError: a look-around reaches past its place from inside another one.
        LimitError: more instructions than MAX_INSTRUCTIONS.
    """
    program = Program()
    add_expression(program, node)
    return program


def add_expression(program: Program, node: syntax.Node) -> tuple[int, int]:
    """Append an expression to a program; return where it starts, and its Done.

    Raises:
        GrammarSyntaxError: a look-around reaches past its place from inside another one.
        LimitError: more instructions than MAX_INSTRUCTIONS.
    """
    start = len(program.code)
    _emit(program, node)
    return start, _append(program, Done())


def _emit(program: Program, node: syntax.Node) -> None:
    match node:
        case syntax.Chars(charset=charset):
            _append(program, Take(charset, len(program.code) + 1))
        case syntax.Concat(items=items):
            for item in items:
                _emit(program, item)
        case syntax.Alternate(options=options):
            _emit_alternate(program, options)
        case syntax.Repeat():
            _emit_repeat(program, node)
        case syntax.Look():
            settled = settle(node)
            if settled is node:
                _emit_look(program, node)
            else:
                _emit(program, settled)
        case syntax.Begin():
            _append(program, Behind(_index(program.behind, CharDfa.epsilon())))
        case syntax.End():
            _append(program, Ahead(_index(program.ahead, CharDfa.epsilon())))


def _append(program: Program, instruction: Instruction) -> int:
    if len(program.code) >= MAX_INSTRUCTIONS:
        raise LimitError("a terminal is too large; use smaller bounds in its repeats", "states", len(program.code))
    program.code.append(instruction)
    return len(program.code) - 1


def _emit_alternate(program: Program, options: tuple[syntax.Node, ...]) -> None:
    ends = []
    for option in options[:-1]:
        fork = _append(program, Split(0, 0))
        _emit(program, option)
        ends.append(_append(program, Split(0, 0)))
        program.code[fork] = Split(fork + 1, len(program.code))
    _emit(program, options[-1])
    for end in ends:
        program.code[end] = Split(len(program.code), len(program.code))


def _emit_repeat(program: Program, node: syntax.Repeat) -> None:
    if node.maximum is None and syntax.widths(node.item)[0] == 0:
        for _ in range(node.minimum):
            _emit(program, node.item)
        _emit_loop_of_nullable(program, node)
        return
    for _ in range(node.minimum - 1 if node.maximum is None else node.minimum):
        _emit(program, node.item)
    if node.maximum is None:
        skip = _append(program, Split(0, 0)) if node.minimum == 0 else None
        body = len(program.code)
        _emit(program, node.item)
        again = _append(program, Split(0, 0))
        program.code[again] = _fork(body, again + 1, node)
        forks = [] if skip is None else [skip]
    else:
        forks = []
        for _ in range(node.maximum - node.minimum):
            forks.append(_append(program, Split(0, 0)))
            _emit(program, node.item)
    for fork in forks:
        program.code[fork] = _fork(fork + 1, len(program.code), node)


def _emit_loop_of_nullable(program: Program, node: syntax.Repeat) -> None:
    """Append x* where x can match nothing: in `re` a copy that matches nothing leaves the loop.

    So x stands there twice. In the first nothing has been taken yet, and its end is the way out; what it takes leads to
    the same place in the second, from whose end the loop goes on.
    """
    again = _append(program, Split(0, 0))
    _emit(program, node.item)
    out = _append(program, Split(0, 0))
    distance = out - again
    _emit(program, node.item)
    _append(program, Split(again, again))
    end = len(program.code)
    for place in range(again + 1, out):
        instruction = program.code[place]
        if isinstance(instruction, Take):
            program.code[place] = Take(instruction.charset, instruction.then + distance)
    program.code[again] = _fork(again + 1, end, node)
    program.code[out] = Split(end, end)


def _fork(body: int, out: int, node: syntax.Repeat) -> Split:
    return Split(body, out) if node.is_greedy else Split(out, body)


def _emit_look(program: Program, node: syntax.Look) -> None:
    rest = syntax.Repeat(syntax.Chars(CharSet.any()), 0, None)
    parts = (rest, node.item) if node.is_behind else (node.item, rest)
    language = regex.to_chardfa(syntax.concat(parts), mode="fullmatch")
    if node.is_negative:
        language = language.complement()
    if node.is_behind:
        _append(program, Behind(_index(program.behind, language)))
    else:
        _append(program, Ahead(_index(program.ahead, language)))


def _index(known: list[CharDfa], language: CharDfa) -> int:
    if language not in known:
        known.append(language)
    return known.index(language)
