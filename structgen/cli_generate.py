"""The command `structgen generate`: what it takes, what it refuses before a model is loaded, what it prints.

Left out: how options and files become a declared type (cli_types), and what all commands share (cli).
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structgen.cli_types import (
    ChoiceOption,
    LarkOption,
    ModelOption,
    RegexOption,
    SchemaOption,
    TypeOption,
    declared,
    read_stdin,
    usable_type,
)
from structgen.errors import OptionError, StructgenError

if TYPE_CHECKING:
    from structgen.call_options import CallOptions
    from structgen.decode.prompt import Prompt
    from structgen.report import Report, Result


def generate(  # noqa: PLR0913 - the options of a command line
    prompt: Annotated[str, typer.Argument(help="What the model is asked; - reads it from stdin.")],
    schema: SchemaOption = None,
    type_name: TypeOption = None,
    regex: RegexOption = None,
    choice: ChoiceOption = None,
    lark: LarkOption = None,
    model: ModelOption = None,
    system: Annotated[str | None, typer.Option(help="What the model is told before the prompt.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="The text is complete within this many tokens.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Divides the logits; 1 without it, as in Python. Lower is less varied.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Makes the run repeatable.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Ends free text before this string; repeat it.", metavar="TEXT")
    ] = None,
    whitespace: Annotated[
        str, typer.Option(help="Style of JSON: auto (what the model writes by itself), compact, spaced, pretty, any.")
    ] = "auto",
    *,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most probable token each time.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text as it comes.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Send the prompt as it is, without the chat template.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Write counts and times to stderr, as JSON.")] = False,
) -> None:
    """Generate one text of a declared type and print it.

    structgen generate "Anna is 31." --schema person.json --greedy

    structgen generate "Is this mail angry? ..." --choice yes --choice no

    structgen generate "A number plate." --regex "[A-Z]{2}-[0-9]{4}" --seed 7

    structgen generate - --type mypackage.models:Invoice < mail.txt

    structgen generate "Tell a story." --stream --stop "The end"

    Without a type the answer is free text.

    A mistake in the options or the type is told before the model is loaded; what needs its vocabulary, such as whether
    --max-tokens is enough for the type, afterwards.

    Exit codes: 0 done; 1 failed, and one line on stderr says why; 2 wrong usage.
    """
    _refuse_file(prompt)
    wanted = declared(schema=schema, type_name=type_name, regex=regex, choice=choice, lark=lark)
    options = _call_options(
        temperature=temperature,
        greedy=greedy,
        max_tokens=max_tokens,
        seed=seed,
        stop=stop or [],
        whitespace=whitespace,
    )
    output_type = usable_type(wanted, has_stop=bool(stop))
    if raw and system is not None:
        raise typer.BadParameter("--system is part of the chat template, which --raw leaves out")
    text = read_stdin("the prompt") if prompt == "-" else prompt
    if not text.strip():
        instead = "stdin held nothing" if prompt == "-" else "write what the model is asked, or - to read it from stdin"
        raise typer.BadParameter(f"the prompt is empty: {instead}")
    result = _run(model, output_type, _prompt(text, system, is_raw=raw), options, stream=stream)
    if wanted is not None and result.report.truncated:
        typer.echo(
            f"structgen: the budget of {result.report.record.max_tokens} tokens limited this text, so a string or a "
            "list in it may have broken off: pass a larger --max-tokens, or a shorter prompt if the context is full",
            err=True,
        )
    if report:
        typer.echo(json.dumps(_figures(result.report)), err=True)


def _call_options(
    *,
    temperature: float | None,
    greedy: bool,
    max_tokens: int | None,
    seed: int | None,
    stop: list[str],
    whitespace: str,
) -> CallOptions:
    """Return the options of the call, checked; a bad one is wrong usage."""
    from structgen.call_options import TypeSettings, settings_of, split_options
    from structgen.config import Sampling

    if greedy and temperature is not None:
        raise typer.BadParameter("--greedy is temperature 0; leave out one of them")
    try:
        sampling = Sampling.greedy() if greedy else Sampling(temperature=1.0 if temperature is None else temperature)
        options: CallOptions = {
            "sampling": sampling,
            "max_tokens": max_tokens,
            "seed": seed,
            "stop": stop,
            "whitespace": whitespace,
        }
        settings_of(TypeSettings, split_options(options)[0])
    except OptionError as error:
        raise typer.BadParameter(str(error)) from error
    return options


def _refuse_file(prompt: str) -> None:
    """Refuse the name of a file where the prompt is asked for."""
    if not os.path.splitext(prompt)[1] or not os.path.isfile(prompt):
        return
    suffix = os.path.splitext(prompt)[1].lower()
    if suffix in (".json", ".lark"):
        option = "--schema" if suffix == ".json" else "--lark"
        raise typer.BadParameter(
            f'{prompt!r} is a file, and the prompt is a text: write structgen generate "what the model is asked" '
            f"{option} {prompt}"
        )
    raise typer.BadParameter(f"{prompt!r} is a file, and the prompt is a text: write structgen generate - < {prompt}")


def _prompt(text: str, system: str | None, *, is_raw: bool) -> Prompt:
    from structgen.decode.prompt import Raw

    if is_raw:
        return Raw(text)
    return text if system is None else [{"role": "system", "content": system}, {"role": "user", "content": text}]


def _run(model: str | None, output_type: Any, prompt: Prompt, options: CallOptions, *, stream: bool) -> Result[Any]:
    """Print the text, at once or as it comes, and return the result."""
    import structgen as sg

    if sys.stderr.isatty():
        typer.echo(f"loading {model or 'SmolLM2-135M-Instruct'} ...", err=True)
    loaded = sg.load(model)
    if not stream:
        result: Result[Any] = loaded.run(output_type, prompt, **options)
        typer.echo(result.text)
        return result
    last = None
    for last in loaded.stream(output_type, prompt, **options):
        typer.echo(last.new_text, nl=False)
        sys.stdout.flush()
    typer.echo()
    if last is None or last.result is None:
        raise StructgenError("the stream ended before the text was complete")
    return last.result


def _figures(report: Report) -> dict[str, object]:
    """Return the figures of a report, without the record of tokens; what is no number is null."""
    figures = {name: getattr(report, name) for name in report.__dataclass_fields__ if name != "record"}
    figures |= {"seed": report.record.seed, "tokens_per_target_pass": report.tokens_per_target_pass}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}
