"""The mask oracle: which tokens are legal after a text, by the plainest search there is.

A token is legal iff some sequence of tokens after it reaches the end of a text of the grammar. So: read the
text, the token, and then any tokens for ever, as one nondeterministic automaton; ask whether any text of the
grammar runs through it. Least fixed points over (expression, automaton place); no parser tables, no tries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence
from structgen.vocabulary import Vocabulary

Place = tuple[str, bytes]
"""("fixed", what is still to be read as given) or ("free", how far into a token)."""

ROOT: Place = ("free", b"")


class Reader:
    """Runs a grammar through: a fixed text, then any sequence of tokens."""

    def __init__(self, grammar: Grammar, tokens: Iterable[bytes]) -> None:
        self.grammar = grammar
        self.tokens = {token for token in tokens if token}
        self.alphabet = sorted({byte for token in self.tokens for byte in token})
        self.prefixes = {token[:n] for token in self.tokens for n in range(1, len(token))}

    def moves(self, place: Place) -> list[tuple[int, Place]]:
        """Return (byte, place after it) for all that may be read next."""
        kind, rest = place
        if kind == "fixed":
            return [(rest[0], ("fixed", rest[1:]) if len(rest) > 1 else ROOT)]
        found: list[tuple[int, Place]] = []
        for byte in self.alphabet:
            more = rest + bytes([byte])
            if more in self.tokens:
                found.append((byte, ROOT))
            if more in self.prefixes:
                found.append((byte, ("free", more)))
        return found

    def can_end(self, text: bytes) -> bool:
        """Return whether some sequence of tokens after the text completes a text of the grammar."""
        self.known: dict[tuple[str, Place], set[Place]] = {}
        self.visited: set[tuple[str, Place]] = set()
        self.cached_moves: dict[Place, list[tuple[int, Place]]] = {}
        start: Place = ("fixed", text) if text else ROOT
        while True:
            before = sum(map(len, self.known.values())) + len(self.known)
            self.visited.clear()
            reached = self.after(Reference(self.grammar.start), start)
            if sum(map(len, self.known.values())) + len(self.known) == before:
                return ROOT in reached

    def after(self, expr: Expr, place: Place) -> set[Place]:
        """Return where the automaton may stand after the expression, as far as is known in this round."""
        match expr:
            case Literal(text=text):
                return self.spelled(
                    place, lambda at, byte: at + 1 if text[at : at + 1] == bytes([byte]) else None, len(text)
                )
            case Lexeme():
                return self.lexeme(expr, place)
            case Choice(options=options):
                return set().union(*(self.after(option, place) for option in options))
            case Sequence(items=items):
                places = {place}
                for item in items:
                    places = set().union(*(self.after(item, one) for one in places))
                return places
            case Repeat():
                return self.repeat(expr, place)
            case Reference(name=name):
                key = (name, place)
                if key not in self.visited:
                    self.visited.add(key)
                    self.known.setdefault(key, set())
                    self.known[key].update(self.after(self.grammar.rules[name], place))
                return set(self.known[key])

    def spelled(self, place: Place, step: Callable[[int, int], int | None], final: int) -> set[Place]:
        seen, todo = {(place, 0)}, [(place, 0)]
        while todo:
            here, at = todo.pop()
            for byte, there in self.of(here):
                after = step(at, byte)
                if after is not None and (there, after) not in seen:
                    seen.add((there, after))
                    todo.append((there, after))
        return {here for here, at in seen if at == final}

    def of(self, place: Place) -> list[tuple[int, Place]]:
        if place not in self.cached_moves:
            self.cached_moves[place] = self.moves(place)
        return self.cached_moves[place]

    def lexeme(self, expr: Lexeme, place: Place) -> set[Place]:
        cap = expr.min_length if expr.max_length is None else expr.max_length + 1
        seen = {(place, 0, 0)}
        todo = [(place, 0, 0)]
        while todo:
            here, state, count = todo.pop()
            for byte, there in self.of(here):
                after = int(expr.dfa.delta[state, byte])
                if after < 0:
                    continue
                one = (there, after, min(cap, count + int(expr.dfa.tick_bytes[state, byte])))
                if one not in seen:
                    seen.add(one)
                    todo.append(one)
        return {
            here
            for here, state, count in seen
            if expr.dfa.accepting[state]
            and count >= expr.min_length
            and (expr.max_length is None or count <= expr.max_length)
        }

    def repeat(self, expr: Repeat, place: Place) -> set[Place]:
        cap = expr.minimum if expr.maximum is None else expr.maximum
        result = {place} if expr.minimum == 0 else set()
        seen = {(place, 0)}
        todo = [(place, 0)]
        while todo:
            here, count = todo.pop()
            if expr.maximum is not None and count >= expr.maximum:
                continue
            starts = {here} if count == 0 or expr.separator is None else self.after(expr.separator, here)
            for start in starts:
                for there in self.after(expr.item, start):
                    total = count + 1
                    if total >= expr.minimum:
                        result.add(there)
                    one = (there, min(total, max(cap, 1)))
                    if one not in seen:
                        seen.add(one)
                        todo.append(one)
        return result


def legal_tokens(grammar: Grammar, vocabulary: Vocabulary, text: bytes) -> set[int]:
    """Return the ids of the tokens that are legal after the text, stop ids left out."""
    spellings = [vocabulary.token_bytes(i) for i in range(vocabulary.size)]
    reader = Reader(grammar, spellings)
    verdict: dict[bytes, bool] = {b"": False}
    for spelling in spellings:
        if spelling not in verdict:
            verdict[spelling] = reader.can_end(text + spelling)
    return {i for i, spelling in enumerate(spellings) if verdict[spelling]}


def may_end(grammar: Grammar, text: bytes) -> bool:
    """Return whether the text itself is complete."""
    return Reader(grammar, ()).can_end(text)
