"""Keywords that no draft read here has, but hardly meant as annotations: misspelt ones, ones of other standards.

By the standard they forbid nothing, so they change no grammar; whoever wrote them is told.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from structgen.errors import shown
from structgen.grammar.json_schema.document import JsonValue, held, subschemas
from structgen.grammar.json_schema.keywords import ADDRESSES, HOLDS, KEYWORDS

_NO_TYPO = ("x-", "X-", "_", "/", "#", "@", "$$")
"""What begins like this was chosen to be no keyword."""
_READ = frozenset(name for name, row in KEYWORDS.items() if row.status != "ignored")
_SHORT, _LONG = 5, 12
"""Up to so many letters, another word is as likely as a slip; from so many on, two slips are likely too."""


class Suspect(NamedTuple):
    """A keyword that is ignored.

    Attributes:
        pointer: JSON pointer of the subschema that it stands in.
        keyword: its name.
        reason: why it is ignored, and what to write instead.
    """

    pointer: str
    keyword: str
    reason: str

    def __str__(self) -> str:
        """Say where it stands, and why it is ignored."""
        return f"{self.pointer}: {shown(self.keyword)} {self.reason}"


def suspects(root: JsonValue) -> tuple[Suspect, ...]:
    """Return the keywords of a schema that are ignored though they were hardly meant to be, in document order."""
    found: list[Suspect] = []
    # Nearly always there are none, and then no pointer is needed.
    waiting = [("#", root)] if _has_suspect(root) else []
    while waiting:
        pointer, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        reasons = ((name, why_ignored(name, value)) for name, value in schema.items())
        found += [Suspect(pointer, name, reason) for name, reason in reasons if reason]
        inside = [part for name, value in schema.items() for part in held(pointer, name, value)]
        waiting += reversed(inside)
    return tuple(found)


def _has_suspect(root: JsonValue) -> bool:
    waiting = [root]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, dict):
            for name, value in schema.items():
                if name not in _READ and why_ignored(name, value):
                    return True
                if name in HOLDS:
                    waiting += subschemas(name, value)
    return False


def why_ignored(name: str, value: JsonValue) -> str:
    """Return why a keyword is ignored though it was hardly meant to be, "" where it was, or is none of these."""
    row = KEYWORDS.get(name)
    if row is None:
        meant = _meant(name)
        return (
            f"is no keyword, so it is ignored, as the standard says; {meant!r} was probably meant: correct it, or name "
            "it x-..."
            if meant
            else ""
        )
    # That something may not be null is what its type says already.
    if row.status != "ignored" or (name == "nullable" and value is False):
        return ""
    return f"is ignored, as the standard says; it is {row.note}"


@lru_cache(maxsize=4096)
def _meant(name: str) -> str:
    """Return the keyword that an unknown name is likely to be a misspelling of, "" if it is likely to be none.

    Only keywords that forbid something count: passing over another one does no harm.
    """
    if name.startswith(_NO_TYPO):
        return ""
    plain = _plain(name)
    for keyword, plain_keyword in _forbidding():
        if plain == plain_keyword:
            return keyword
        if _is_near(name, keyword, 2 if len(keyword) >= _LONG else 1) and (
            len(keyword) > _SHORT or _same_letters(name, keyword)
        ):
            return keyword
    return ""


@lru_cache(maxsize=1)
def _forbidding() -> tuple[tuple[str, str], ...]:
    """Return the keywords that forbid something, as they are and as _plain gives them."""
    found = (name for name, row in KEYWORDS.items() if row.status in ("exact", "partly") and name not in ADDRESSES)
    return tuple((name, _plain(name)) for name in found)


def _plain(name: str) -> str:
    """Return a name without what people vary: upper case, hyphens, a plural, minimum for min."""
    return re.sub("(min|max)imum(?=.)", r"\1", re.sub("[-_$ ]", "", name.lower())).removesuffix("s")


def _same_letters(name: str, other: str) -> bool:
    return sorted(name) == sorted(other)


def _is_near(name: str, other: str, num_slips: int) -> bool:
    """Tell whether a name is another but for some letters too many, missing, wrong, or swapped with the next one."""
    # A slip changes one letter for another at the most.
    if abs(len(name) - len(other)) > num_slips or len({*name} ^ {*other}) > 2 * num_slips:
        return False
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(name):
        above, row = row, [i + 1]
        for j, wanted in enumerate(other):
            slips = min(above[j] + (letter != wanted), above[j + 1] + 1, row[j] + 1)
            if i and j and letter == other[j - 1] and name[i - 1] == wanted:
                slips = min(slips, before[j - 1] + 1)
            row.append(slips)
        before = above
    return row[-1] <= num_slips
