"""The command `structgen bench speculation`: a user's own prompts with and without drafts, and what to do about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
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
    usable_type,
)
from structgen.errors import OptionError, shown

if TYPE_CHECKING:
    from structgen.bench_speculation import Figures, StepTable
    from structgen.config import Speculation
    from structgen.decode.draft_model_size import DraftModelSize

bench = typer.Typer(
    name="bench", no_args_is_help=True, help="Measure on your own prompts what is worth it.", rich_markup_mode="rich"
)


@bench.callback()
def _bench() -> None:
    """Measure on your own prompts what is worth it."""


@bench.command()
def speculation(  # noqa: PLR0913 - the options of a command line
    prompts: Annotated[
        Path, typer.Option(help="One prompt a line, or .jsonl: texts, chats, or objects with a prompt.", metavar="FILE")
    ],
    schema: SchemaOption = None,
    type_name: TypeOption = None,
    regex: RegexOption = None,
    choice: ChoiceOption = None,
    lark: LarkOption = None,
    model: ModelOption = None,
    draft_model: Annotated[
        str | None, typer.Option(help="A smaller model with the same vocabulary, to draft with as well.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The text is complete within this many tokens.")] = 200,
    max_draft_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one draft.")] = 8,
    repeats: Annotated[int, typer.Option(min=1, help="How often each prompt is answered in each way.")] = 1,
    batch_sizes: Annotated[
        str, typer.Option(help="Rows of a batch to say something of, by the costs of its passes.")
    ] = "1,4,16",
    *,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most probable token each time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, for other programs.")] = False,
) -> None:
    """Answer your prompts with and without drafts, and say what to do.

    structgen bench speculation --prompts prompts.txt --schema person.json

    structgen bench speculation --prompts day.jsonl --type mypackage.models:Invoice --greedy --json

    structgen bench speculation --model big --draft-model small --prompts prompts.txt

    Ways: off is plain decoding; fixed drafts in every round; adaptive, what is used without an option, decides by what
    it measures. Predicted is what sg.speedup says of the acceptance, draft lengths and pass costs that were measured.

    Take the prompts of a day rather than three: what drafters and control learn from one they use for the next.
    """
    import structgen as sg
    from structgen import bench_speculation as measuring

    rows = _batch_sizes(batch_sizes)
    output_type = usable_type(declared(schema=schema, type_name=type_name, regex=regex, choice=choice, lark=lark))
    asked = read_prompts(prompts)
    typer.echo(f"loading {model or 'SmolLM2-135M-Instruct'} ...", err=True)
    target = sg.load(model)
    generator = target.generator(output_type)
    ways: dict[str, Speculation] = {
        measuring.OFF: sg.Speculation.off(),
        measuring.FIXED: sg.Speculation(adaptive=False, max_draft_tokens=max_draft_tokens),
        measuring.ADAPTIVE: sg.Speculation(max_draft_tokens=max_draft_tokens),
    }
    size = None
    if draft_model is not None:
        size, ways["draft model"] = _with_draft_model(target, draft_model, max_draft_tokens)
    options: dict[str, Any] = {
        "sampling": sg.Sampling.greedy() if greedy else sg.Sampling(),
        "max_tokens": max_tokens,
    }
    steps = measuring.measure_steps(target._runtime, asked[0], rows)
    figures = measuring.measure(generator, asked, ways, options=options, repeats=repeats, each=_progress)
    status = target.metrics[f"bench {measuring.ADAPTIVE}"].drafters
    advice = measuring.recommend(figures, status)
    table = [_row(one, figures[measuring.OFF], steps) for one in figures.values()]
    wide = [_batch_row(figures[measuring.FIXED], steps, number, max_draft_tokens) for number in rows]
    if as_json:
        typer.echo(_as_json(table, figures, steps, wide, size, advice))
    else:
        _show(table, figures, wide, size, advice)


def _with_draft_model(target: Any, name: str, max_draft_tokens: int) -> tuple[DraftModelSize, Speculation]:
    import structgen as sg
    from structgen.decode.draft_model_size import draft_model_size

    draft = sg.load(name)
    size = draft_model_size(draft.hf_model, target.hf_model)
    if size.doubt is not None:
        typer.echo(f"structgen: {size.doubt}", err=True)
    drafters: list[Any] = [
        sg.drafters.ForcedRun(),
        sg.drafters.StateTable(),
        sg.drafters.PromptLookup(),
        sg.drafters.DraftModel(draft),
    ]
    return size, sg.Speculation(drafters=drafters, max_draft_tokens=max_draft_tokens)


def read_prompts(path: Path) -> list[Any]:
    """Return the prompts of a file.

    Raises:
        OptionError: it cannot be read, is empty, or a line of it is no prompt.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read as text ({error})") from error
    if not lines:
        raise OptionError(f"{path} has no prompt: write one a line")
    if path.suffix.lower() != ".jsonl":
        return lines
    return [_prompt(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _prompt(line: str, place: str) -> Any:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise OptionError(f"{place} is no JSON ({error}); name the file .txt if each line is a prompt") from error
    if isinstance(value, dict):
        value = value.get("prompt", value.get("messages"))
    if isinstance(value, str | list) and value:
        return value
    raise OptionError(f'{place} has no prompt: write a text, a list of chat messages, or {{"prompt": ...}}')


def _batch_sizes(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and 0 < int(part) <= 1024 for part in parts):
        raise typer.BadParameter(f"--batch-sizes takes numbers such as 1,4,16, not {shown(text)}")
    return sorted({1, *map(int, parts)})


def _progress(work: Sequence[Any]) -> Iterable[Any]:
    if not sys.stderr.isatty():
        return work
    from rich.console import Console
    from rich.progress import track

    return track(work, description="answering", console=Console(file=sys.stderr), transient=True)


def _row(figures: Figures, plain: Figures, steps: StepTable) -> dict[str, Any]:
    from structgen.bench_speculation import predicted

    return {
        "way": figures.name,
        "seconds_per_answer": figures.seconds_per_answer,
        "ttft_s": figures.ttft_s,
        "tpot_s": figures.tpot_s,
        "tokens_per_pass": figures.tokens_per_pass,
        "acceptance": figures.acceptance,
        "times_faster": plain.tpot_s / figures.tpot_s if figures.tpot_s else 1.0,
        "predicted": predicted(figures, plain, steps),
    }


def _batch_row(figures: Figures, steps: StepTable, rows: int, max_draft_tokens: int) -> dict[str, Any]:
    """Return what the measured acceptance is worth in a batch, at its best draft length."""
    from structgen.decode.speculation_model import speedup

    cost = figures.draft_token_s * rows / steps.single(rows)
    faster = {
        length: speedup(
            acceptance=figures.acceptance,
            draft_tokens=length,
            draft_cost=cost,
            verify_cost=steps.ratio(1 + length, rows),
        )
        for length in range(max_draft_tokens + 1)
    }
    best = max(faster, key=faster.__getitem__)
    return {"rows": rows, "pass_ms": 1e3 * steps.single(rows), "draft_tokens": best, "predicted": faster[best]}


def _as_json(
    table: list[dict[str, Any]],
    figures: Mapping[str, Figures],
    steps: StepTable,
    wide: list[dict[str, Any]],
    size: DraftModelSize | None,
    advice: list[str],
) -> str:
    drafters = {
        name: {
            drafter: {"drafted": drafted, "accepted": accepted} for drafter, (drafted, accepted) in one.drafters.items()
        }
        for name, one in figures.items()
    }
    found = {
        "ways": table,
        "drafters": drafters,
        "pass_seconds": {str(rows): by_tokens for rows, by_tokens in steps.seconds.items()},
        "batches": wide,
        "draft_model": None if size is None else size.in_words,
        "advice": advice,
    }
    return json.dumps(found, ensure_ascii=False, indent=2)


def _show(
    table: list[dict[str, Any]],
    figures: Mapping[str, Figures],
    wide: list[dict[str, Any]],
    size: DraftModelSize | None,
    advice: list[str],
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    ways = Table("way", "s an answer", "first token s", "ms a token", "tokens a pass", "faster", "predicted", box=None)
    for row in table:
        ways.add_row(
            row["way"],
            f"{row['seconds_per_answer']:.2f}",
            f"{row['ttft_s']:.2f}",
            f"{1e3 * row['tpot_s']:.1f}",
            f"{row['tokens_per_pass']:.2f}",
            f"{row['times_faster']:.2f} x",
            f"{row['predicted']:.2f} x",
        )
    console.print(ways)
    drafters = Table("way", "drafter", "drafted", "accepted", "share", box=None)
    for name, one in figures.items():
        for drafter, (drafted, accepted) in one.drafters.items():
            drafters.add_row(name, drafter, str(drafted), str(accepted), f"{accepted / max(drafted, 1):.0%}")
    console.print()
    console.print(drafters)
    batches = Table("rows of a batch", "ms a pass", "best draft length", "predicted", box=None)
    for row in wide:
        batches.add_row(
            str(row["rows"]), f"{row['pass_ms']:.1f}", str(row["draft_tokens"]), f"{row['predicted']:.2f} x"
        )
    console.print()
    console.print(batches)
    for line in [*([] if size is None else [size.in_words]), *advice]:
        console.print(f"\n{line}", highlight=False, markup=False)
