"""How the command line shows an explanation: a table in colour on a terminal, plain text in a pipe, or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from structgen.findings import COLUMNS, POLICY_LINE, Explanation, cells_of

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {
    "exact": "green",
    "narrower": "yellow",
    "annotation": "dim",
    "ignored": "yellow",
    "unreached": "dim",
    "empty": "yellow",
    "refused": "bold red",
    "unsatisfiable": "bold red",
}


def show(explanation: Explanation) -> None:
    """Write an explanation to stdout."""
    console = Console()
    if not console.is_terminal:
        typer.echo(str(explanation))  # rich would fold it to 80 columns, which no other program reads
        return
    if explanation.findings:
        console.print(_table(explanation))
    for note in explanation.notes:
        console.print(note, markup=False, highlight=False)
    if explanation.bounds:
        console.print(f"\n{POLICY_LINE}", highlight=False)
        for place, words in explanation.bounds:
            console.print(f"  {place}  {words}", markup=False, highlight=False)
    style = "bold red" if explanation.error is not None else "green" if explanation.is_exact else "yellow"
    console.print(f"\n{explanation.name}: {explanation.verdict}", style=style, markup=False, highlight=False)


def _table(explanation: Explanation) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in COLUMNS:
        table.add_column(title, overflow="fold")
    for found in explanation.findings:
        style = _STYLES[found.status]
        table.add_row(*(Text(cell, style=style if cell == found.status else "") for cell in cells_of(found)))
    return table


def as_json(explanation: Explanation) -> str:
    """Return an explanation for other programs."""
    error = explanation.error
    fields = {
        "name": explanation.name,
        "usable": error is None,
        "exact": explanation.is_exact,
        "verdict": explanation.verdict,
        "error": None if error is None else {"type": type(error).__name__, "message": str(error)},
        "findings": [asdict(finding) for finding in explanation.findings],
        "notes": list(explanation.notes),
        "policy": [{"place": place, "bound": words} for place, words in explanation.bounds],
    }
    return json.dumps(fields, ensure_ascii=False, indent=2)
