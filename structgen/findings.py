"""What became of a declaration, part by part, as plain values: for people as text, for machines as fields.

How the parts are found out is elsewhere: `grammar/json_schema/findings.py`, `grammar/policy.py`, `explanation.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from structgen.errors import StructgenError

COLUMNS = ("pointer", "keyword", "becomes", "what to know or do")
POLICY_LINE = "the generation policy bounds (policy=None lifts it):"

FindingStatus = Literal["exact", "narrower", "annotation", "ignored", "unreached", "empty", "refused", "unsatisfiable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one keyword of one subschema.

    Attributes:
        pointer: JSON pointer of the subschema, such as "#/properties/age".
        keyword: the keyword; "" where the finding is about the subschema as a whole.
        status: "exact": the texts are those that the keyword allows; "narrower": each text is allowed, but some that
            are allowed are never written; "annotation": it has no say in what is valid; "ignored": likewise,
            though it was hardly meant so, such as a misspelt keyword; "unreached": nothing leads to this place;
            "empty": no value fits here, so it is never written; "refused": it cannot be honoured exactly;
            "unsatisfiable": no value fits here, and one is needed.
        advice: what to do, or what to know; "" where there is nothing to say.
    """

    pointer: str
    keyword: str
    status: FindingStatus
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Bounded:
    """Something endless that the generation policy has cut.

    Attributes:
        rule: the rule that holds it; for a JSON Schema its name begins with a JSON pointer.
        lexeme: name of what was cut, "" if it has none.
        run: "digits" or "white space".
        maximum: longest run that is left.
    """

    rule: str
    lexeme: str
    run: str
    maximum: int

    @property
    def place(self) -> str:
        """JSON pointer or name of the rule; "any" stands for every value that may be any JSON."""
        return self.rule.partition(" ")[0]

    @property
    def words(self) -> str:
        """What is left, in words."""
        of = "digits" if self.run == "digits" else f"characters of {self.run}"
        return f"{self.lexeme or 'text'}: at most {self.maximum} {of} in a row"


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What became of each part of a declaration, and whether it can be used.

    `print` shows it as a table.

    Attributes:
        name: what was declared, as messages call it.
        findings: one per keyword of a JSON Schema, or of the schema that a Python type has; else none.
        notes: what there is to know of a declaration without keywords, a line each.
        policy: what the generation policy cuts.
        error: why the declaration cannot be used, None where it can.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    policy: tuple[Bounded, ...] = ()
    error: StructgenError | None = None

    @property
    def is_exact(self) -> bool:
        """Whether it can be used, and without the policy each text that the declaration allows may be written."""
        return self.error is None and not self._with("narrower")

    @property
    def verdict(self) -> str:
        """The whole in one line."""
        if self.error is not None:
            refused = self._with("refused")
            return "cannot be used: " + (f"{_counted(refused)} refused" if refused else str(self.error))
        ignored = f"; {_counted(count)} ignored" if (count := self._with("ignored")) else ""
        if count := self._with("narrower"):
            return f"sound: every text that is generated fits; {_counted(count)} narrower than the standard{ignored}"
        return f"exact: every text that is generated fits the declaration{ignored}"

    @property
    def bounds(self) -> tuple[tuple[str, str], ...]:
        """What the policy cuts as (place, words), each once."""
        return tuple(dict.fromkeys((cut.place, cut.words) for cut in self.policy))

    def _with(self, status: FindingStatus) -> int:
        return sum(finding.status == status for finding in self.findings)

    def __str__(self) -> str:
        """Return a table, what the policy bounds, and the verdict as the last line."""
        lines = _table([COLUMNS, *map(cells_of, self.findings)]) if self.findings else []
        lines += self.notes
        if self.bounds:
            lines += ["", POLICY_LINE]
            lines += [f"  {line}" for line in _table(self.bounds)]
        return "\n".join([*lines, *([""] if lines else []), f"{self.name}: {self.verdict}"])

    def __repr__(self) -> str:
        """Show the name, the verdict and how many findings there are."""
        return f"Explanation({self.name!r}, {self.verdict!r}, {len(self.findings)} findings)"


def cells_of(finding: Finding) -> tuple[str, str, str, str]:
    """Return a finding as a row of a table under COLUMNS."""
    return finding.pointer, finding.keyword or "(whole)", finding.status, finding.advice


def _counted(number: int) -> str:
    return "1 keyword is" if number == 1 else f"{number} keywords are"


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return rows as lines with aligned columns."""
    cells = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
