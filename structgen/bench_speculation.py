"""Is speculation worth it on these prompts: measured with and without, beside what the model of `sg.speedup` predicts.

Every prompt is answered in each way, one after the other and in changing order, so that a machine that gets slower
while the benchmark runs does so for all of them. Left out: how prompts are read and figures are shown (cli_bench.py).
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from structgen.decode.speculation_model import speedup
from structgen.decode.target import Tokens
from structgen.errors import OptionError

if TYPE_CHECKING:
    from structgen.config import Speculation
    from structgen.decode.prompt import Prompt
    from structgen.decode.runtime import Runtime
    from structgen.generator import Generator
    from structgen.replay_record import ReplayRecord
    from structgen.report import Report

OFF, FIXED, ADAPTIVE = "off", "fixed", "adaptive"

_SIZES = (1, 2, 4, 8, 16)
_REPEATS = 5
# The pass costs are measured behind so many tokens of a prompt.
_CONTEXT = 256


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of the target: tokens that were drafted for it, and how many of them became text."""

    num_drafted: int
    num_accepted: int


@dataclass(slots=True)
class Figures:
    """What one way to decode took, over all prompts.

    Attributes:
        name: of the way.
        answers: reports, one for each prompt and repeat.
        num_other: answers whose tokens are not those of plain decoding.
        passes: every one after a prefill.
        num_with_prompt: drafted tokens that were accepted in the passes over the prompts.
    """

    name: str
    answers: list[Report] = field(default_factory=list)
    num_other: int = 0
    passes: list[Pass] = field(default_factory=list)
    num_with_prompt: int = 0

    @property
    def seconds_per_answer(self) -> float:
        """Mean over the prompts, drafting, masks and draws included."""
        return statistics.fmean(report.total_s for report in self.answers)

    @property
    def ttft_s(self) -> float:
        """Median of the seconds up to the first token."""
        return statistics.median(report.ttft_s for report in self.answers)

    @property
    def tpot_s(self) -> float:
        """Seconds per token after the first."""
        later = sum(max(report.num_tokens - 1, 0) for report in self.answers)
        return sum(report.total_s - report.ttft_s for report in self.answers) / later if later else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens per pass of the target model, prefills included."""
        passes = sum(report.num_target_passes for report in self.answers)
        return sum(report.num_tokens for report in self.answers) / passes if passes else 0.0

    @property
    def drafters(self) -> dict[str, tuple[int, int]]:
        """Tokens drafted and accepted, by drafter."""
        drafted, accepted = Counter[str](), Counter[str]()
        for report in self.answers:
            drafted.update(report.drafted)
            accepted.update(report.accepted)
        return {name: (drafted[name], accepted[name]) for name in drafted}

    @property
    def acceptance(self) -> float:
        """Share of the drafted tokens that became text, of those whose turn came: what `sg.speedup` asks for."""
        accepted = sum(one.num_accepted for one in self.passes)
        compared = accepted + sum(one.num_accepted < one.num_drafted for one in self.passes)
        return accepted / compared if compared else 0.0

    @property
    def draft_token_s(self) -> float:
        """Seconds of drafting per drafted token."""
        drafted = sum(one.num_drafted for one in self.passes)
        return sum(report.draft_s for report in self.answers) / drafted if drafted else 0.0


class StepTable:
    """Seconds of a pass by rows of a batch and tokens of each row, as measured here."""

    def __init__(self, seconds: Mapping[int, Mapping[int, float]]) -> None:
        """Take a table by rows, then by tokens per row."""
        from structgen.decode.pass_costs import PassCosts

        self.seconds = seconds
        self._costs = {rows: PassCosts(by_tokens) for rows, by_tokens in seconds.items()}

    def single(self, rows: int = 1) -> float:
        """Return the seconds of a pass over one token of each row."""
        return self.seconds[rows][1]

    def ratio(self, num_tokens: int, rows: int = 1) -> float:
        """Return the cost of a pass over so many tokens of each row, in passes over one."""
        return self._costs[rows].ratio(num_tokens)


def measure_steps(runtime: Runtime, prompt: Prompt, batch_sizes: Sequence[int]) -> StepTable:
    """Measure passes over 1 to 16 tokens behind the beginning of a prompt; the least of some repeats counts."""
    token_ids = runtime.encode(prompt)[:_CONTEXT]
    table: dict[int, dict[int, float]] = {}
    for rows in batch_sizes:
        batch = runtime.new_batch()
        targets = [batch.join() for _ in range(rows)]
        for target in targets:
            target.prefill(token_ids)
        seconds = {size: float("inf") for size in _SIZES}
        for _ in range(_REPEATS):
            for size in _SIZES:
                clock = time.perf_counter()
                hidden = batch.extend([(target, Tokens([token_ids[-1]] * size)) for target in targets])
                for target, states in zip(targets, hidden, strict=True):
                    float(target.head(states)[-1, 0])  # waits for a device that computes by itself
                seconds[size] = min(seconds[size], time.perf_counter() - clock)
                for target in targets:
                    target.crop(len(token_ids))
        table[rows] = seconds
    return StepTable(table)


def measure(
    generator: Generator[Any],
    prompts: Sequence[Prompt],
    ways: Mapping[str, Speculation],
    *,
    options: Mapping[str, Any],
    repeats: int = 1,
    each: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> dict[str, Figures]:
    """Answer every prompt in every way.

    Args:
        generator: of the output type.
        prompts: at least one.
        ways: name to options; one of them is OFF, whose tokens the others are compared with.
        options: those of `Generator.run` that all calls share; the seed is the number of the prompt.
        repeats: how often.
        each: iterates over the work, and may show how far it is.

    Raises:
        OptionError: there is no prompt.
    """
    if not prompts:
        raise OptionError("there is no prompt to measure: write one into the file")
    found = {name: Figures(name) for name in ways}
    for name, speculation in ways.items():
        # The first call compiles, makes masks and finds its memory; none of the ways should pay for the others.
        generator.run(prompts[0], speculation=speculation, seed=0, route=f"warm-up {name}", scope="warm-up", **options)
    names = list(ways)
    work = [(index, turn) for turn in range(repeats) for index in range(len(prompts))]
    for number, (index, _) in enumerate(each(work)):
        results = {}
        for name in names[number % len(names) :] + names[: number % len(names)]:
            result = generator.run(
                prompts[index],
                speculation=ways[name],
                seed=index,
                route=f"bench {name}",
                scope=f"bench {name}",
                **options,
            )
            results[name] = result.token_ids
            found[name].answers.append(result.report)
            first, *later = passes_of(result.report.record)
            found[name].passes += later
            found[name].num_with_prompt += first.num_accepted
        for name, token_ids in results.items():
            found[name].num_other += token_ids != results[OFF]
    return found


def passes_of(record: ReplayRecord) -> list[Pass]:
    """Return what came of each pass: the drafts of a record, compared with its tokens."""
    passes, at = [], 0
    for draft in record.drafts:
        come = record.token_ids[at : at + len(draft)]
        named = [token_id if token_id >= 0 else -1 - token_id for token_id in draft]
        num_accepted = next(
            (number for number, (was, came) in enumerate(zip(named, come, strict=False)) if was != came), len(come)
        )
        passes.append(Pass(len(draft), num_accepted))
        at += num_accepted + 1
    return passes


def predicted(figures: Figures, plain: Figures, steps: StepTable, *, rows: int = 1) -> float:
    """Return how many times faster than plain decoding the passes of a way should have been, by `sg.speedup`.

    The time of masks and draws per token is taken from plain decoding: drafts do not change it.
    """
    if not figures.passes:
        return 1.0
    passes = len(plain.passes) or 1
    other = sum(report.mask_s + report.sample_s for report in plain.answers) / passes / steps.single(rows)
    draft_cost = figures.draft_token_s / steps.single(rows)
    tokens, cost = float(figures.num_with_prompt), 0.0
    for num_drafted, count in Counter(one.num_drafted for one in figures.passes).items():
        verify_cost = steps.ratio(1 + num_drafted, rows)
        price = num_drafted * draft_cost + verify_cost
        faster = speedup(
            acceptance=figures.acceptance, draft_tokens=num_drafted, draft_cost=draft_cost, verify_cost=verify_cost
        )
        tokens += count * faster * price
        cost += count * price
    return (1.0 + other) / (cost / tokens + other)


def recommend(figures: Mapping[str, Figures], statuses: Mapping[str, Any]) -> list[str]:
    """Return in words what to do, from the measurement.

    Args:
        figures: by way, OFF and ADAPTIVE among them.
        statuses: what the control decided for each drafter, see DrafterStatus.
    """
    off, adaptive = figures[OFF].seconds_per_answer, figures[ADAPTIVE].seconds_per_answer
    lines = [_verdict(adaptive / off)]
    best = min(figures.values(), key=lambda one: one.seconds_per_answer)
    if best.name not in (OFF, ADAPTIVE) and best.seconds_per_answer < 0.97 * min(off, adaptive):
        lines.append(
            f"The fastest way here was {best.name!r}: {best.seconds_per_answer / off:.2f} of the time of plain."
        )
    lines += [f"{name}: {status.reason}." for name, status in statuses.items()]
    num_other = sum(one.num_other for one in figures.values())
    if num_other:
        lines.append(
            f"{num_other} answers have other tokens than plain decoding: two tokens were nearly equally likely, and "
            "wider passes round otherwise. deterministic=True takes that away."
        )
    return lines


def _verdict(share: float) -> str:
    if share <= 0.95:
        return f"Leave speculation on, as it is without an option: an answer takes {share:.2f} of the time without it."
    if share <= 1.03:
        return (
            f"It makes no difference on these prompts ({share:.2f} of the time without it): leave it as it is, it "
            "switches itself off where it does not pay."
        )
    return (
        f"Pass speculation=sg.Speculation.off() here: with it an answer takes {share:.2f} of the time. With more "
        "prompts the control has more to go by; measure again with those of a day."
    )
