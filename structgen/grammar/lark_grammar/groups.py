"""Seams that no text tells apart, taken together.

Two seams are alike if every token that both may be asked for has the same texts at both, and leads to seams that are
alike. What only one of them may be asked for does not matter: the parser never asks the other. Most grammars
have one group in the end, and then the contextual lexer costs the parser nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from structgen.grammar.chardfa import CharDfa
from structgen.grammar.lark_grammar.lalr import END
from structgen.grammar.lark_grammar.scanner import Rest
from structgen.grammar.lark_grammar.seams import Seam, Seams

Key = TypeVar("Key", bound=Hashable)

# The ways to have a token: (skipped text, token) pairs.
Ways = frozenset[tuple[CharDfa, CharDfa]]
# Per token, its ways by where they lead.
Offer = dict[str, object]


@dataclass
class _Group:
    members: list[Seam]
    offer: Offer

    def fits(self, offer: Offer) -> bool:
        return all(self.offer[name] == ways for name, ways in offer.items() if name in self.offer)


class Groups:
    """The seams of a grammar, in groups."""

    def __init__(self, seams: Seams) -> None:
        """Split the seams until those of a group are alike."""
        self._seams = seams
        self._unions: dict[frozenset[CharDfa], CharDfa] = {}
        self._group_of = dict.fromkeys(seams.all(), 0)
        groups = [_Group([*self._group_of], {})]
        while len(split := self._split(groups)) > len(groups):
            groups = self._number(split)
        # The first guess that all seams are alike has split too much: groups that fit by now are joined again.
        while len(joined := self._fitting(group.members for group in groups)) < len(groups):
            groups = self._number(joined)
        self.first = self._group_of[seams.first()]
        self._asked = [
            {name: seam for seam in group.members for name in seams.tables.lexers[seam.lexer].accepts}
            for group in groups
        ]
        self._exits: dict[tuple[int, str, int], dict[int, Ways]] = {}

    def __len__(self) -> int:
        """Return how many groups there are."""
        return len(self._asked)

    def exits(self, group: int, token: str, lexer: int) -> dict[int, Ways]:
        """Return the ways to have a token at a group, by the group behind it, where this lexer is asked then."""
        key = group, token, lexer
        if key not in self._exits:
            seam = self._asked[group].get(token)
            found = {} if seam is None else self._ways(seam, token, partial(self._behind, lexer))
            self._exits[key] = found
        return self._exits[key]

    def kind(self, token: str, lexer: int) -> tuple[frozenset[tuple[int, Ways]], ...]:
        """Return what tells lexers apart that may be asked behind a token: where it leads from each group, and how."""
        return tuple(frozenset(self.exits(group, token, lexer).items()) for group in range(len(self)))

    def trailing(self, group: int) -> CharDfa:
        """Return what can be skipped at a group before the end of the text."""
        seam = self._asked[group].get(END)
        return CharDfa.empty() if seam is None else self._seams.trailing(seam)

    def _behind(self, lexer: int, rest: Rest) -> int:
        return self._group_of[self._seams.seam(lexer, rest)]

    def _number(self, groups: list[_Group]) -> list[_Group]:
        self._group_of = {seam: number for number, group in enumerate(groups) for seam in group.members}
        return groups

    def _behind_all(self, lexers: list[int], rest: Rest) -> tuple[int, ...]:
        return tuple(self._behind(lexer, rest) for lexer in lexers)

    def _split(self, groups: list[_Group]) -> list[_Group]:
        return [part for group in groups for part in self._fitting([seam] for seam in group.members)]

    def _fitting(self, parts: Iterable[list[Seam]]) -> list[_Group]:
        """Put parts together as they fit, first come, first served; the seams of a part are alike."""
        groups: list[_Group] = []
        for part in parts:
            offer: Offer = {}
            for seam in part:
                offer.update(self._offer(seam))
            group = next((group for group in groups if group.fits(offer)), None)
            if group is None:
                group = _Group([], {})
                groups.append(group)
            group.members += part
            group.offer.update(offer)
        return groups

    def _offer(self, seam: Seam) -> Offer:
        tables = self._seams.tables
        offer: Offer = {}
        for token in tables.lexers[seam.lexer].accepts:
            if token == END:
                offer[token] = self._seams.trailing(seam)
                continue
            lexers = sorted(tables.lexers_after[token])
            offer[token] = self._ways(seam, token, partial(self._behind_all, lexers))
        return offer

    def _ways(self, seam: Seam, token: str, behind: Callable[[Rest], Key]) -> dict[Key, Ways]:
        """Return the ways to have a token at a seam, by what is behind it."""
        parts: dict[Key, dict[Rest, set[CharDfa]]] = {}
        for middle in self._seams.middles(seam):
            for rest, language in self._seams.tokens(Seam(seam.lexer, middle)).get(token, {}).items():
                parts.setdefault(behind(rest), {}).setdefault(middle, set()).add(language)
        found: dict[Key, Ways] = {}
        for key, by_middle in parts.items():
            middles: dict[CharDfa, set[Rest]] = {}
            for middle, languages in by_middle.items():
                middles.setdefault(self._union(frozenset(languages)), set()).add(middle)
            found[key] = frozenset(
                (self._seams.skipped(seam, frozenset(there)), language) for language, there in middles.items()
            )
        return found

    def _union(self, languages: frozenset[CharDfa]) -> CharDfa:
        if languages not in self._unions:
            union = CharDfa.empty()
            for language in languages:
                union = union.union(language)
            self._unions[languages] = union
        return self._unions[languages]
