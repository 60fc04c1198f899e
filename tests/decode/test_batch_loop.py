"""The loop over a batch: which rows share a pass, how drafts are cut to one length, who waits; buffers that fit."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from structgen.decode.batch_loop import run_rows
from structgen.decode.causal_model import CausalModel
from structgen.decode.control import Offer
from structgen.decode.pass_groups import ON_A_CORE, PassPrice, grouped
from structgen.decode.rounds import PassTimes
from structgen.decode.target import Target, Tokens
from structgen.decode.transformers_target import TransformersBatch
from structgen.errors import BudgetError
from tiny_models import full_logits, tiny_model


def partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    """Yield every way to part some items."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for index, group in enumerate(rest):
            yield [*rest[:index], [items[0], *group], *rest[index + 1 :]]


def cost(groups: Sequence[Sequence[int]], widths: Sequence[int], price: PassPrice) -> float:
    """Count as grouped does, by its own words."""
    total = 0.0
    for group in groups:
        padded = len(group) * max(widths[index] for index in group)
        if len(group) > 1 and padded > price.most:
            return float("inf")
        total += price.first + padded
    return total


def test_rows_are_parted_as_cheaply_as_can_be() -> None:
    """Against every way to part up to six rows of single tokens, drafts and prompts."""
    source = random.Random(3)
    sizes = set()
    for _ in range(150):
        widths = [source.choice([1, 1, 2, 5, 9, 40, 70, 300, 600]) for _ in range(source.randint(1, 6))]
        price = source.choice([ON_A_CORE, PassPrice(first=3, most=80)])
        groups = grouped(widths, price)
        assert sorted(index for group in groups for index in group) == list(range(len(widths)))
        least = min(cost(other, widths, price) for other in partitions(range(len(widths))))
        assert cost(groups, widths, price) == least
        sizes.add(len(groups))
    assert sizes >= {1, 2, 3}
    assert grouped([]) == []


class Text:
    """A text of so many rounds, whose drafts are of a given length; it fails where it is told to."""

    def __init__(self, log: list[tuple[int, int]], number: int, plan: dict[str, Any]) -> None:
        self.log, self.number, self.plan = log, number, plan
        self.left: int = plan["rounds"]
        self.is_started = False

    @property
    def num_prompt_tokens(self) -> int:
        return self.plan["prompt"]

    def start(self, target: Target) -> Text:
        if self.plan.get("refuses"):
            raise BudgetError(1, 2)
        return self

    def result(self) -> int:
        return self.number * 10

    def begin_round(self, *, num_rows: int = 1) -> Tokens | None:
        if self.left == 0:
            return None
        self.left -= 1
        if not self.is_started:
            self.is_started = True
            return Tokens([1] * self.plan["prompt"], num_prompt_tokens=self.plan["prompt"])
        return Tokens([1] * (1 + len(self.plan.get("survivals", ()))))

    def offer(self) -> Offer | None:
        survivals = self.plan.get("survivals")
        return None if survivals is None else Offer(survivals, lambda number: 0.4 * (1 + number))

    def narrow(self, num_drafted: int) -> Tokens:
        return Tokens([1] * (1 + num_drafted))

    def asked(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden[-1:]

    def make_masks(self) -> None:
        pass

    def start_draws(self, hidden: torch.Tensor, logits: torch.Tensor) -> None:
        pass

    def prepare(self, is_done: Callable[[], bool]) -> None:
        pass

    def end_round(self, times: PassTimes) -> None:
        self.log.append((self.number, times.num_rows, times.width))  # type: ignore[arg-type]
        if self.left == self.plan.get("fails_at"):
            raise BudgetError(1, 2)


class Rows:
    """A batch without a model: it remembers how many positions it would hold."""

    alone_because = None

    def __init__(self) -> None:
        self.live: list[Any] = []
        self.most_padding = 0.0
        self.most_rows = 0

    def join(self) -> Any:
        target = type("Row", (), {"num_cached_tokens": 0})()
        self.live.append(target)
        return target

    def leave(self, row: Any) -> None:
        self.live.remove(row)

    def extend(self, parts: Sequence[tuple[Any, Tokens]]) -> list[torch.Tensor]:
        for row, tokens in parts:
            row.num_cached_tokens += len(tokens.token_ids)
        lengths = [row.num_cached_tokens for row in self.live]
        self.most_padding = max(self.most_padding, len(lengths) * max(lengths) / sum(lengths))
        self.most_rows = max(self.most_rows, len(lengths))
        return [torch.zeros(len(tokens.token_ids), 1) for _, tokens in parts]

    def heads(self, hidden: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return list(hidden)


def run(plans: Sequence[dict[str, Any]], max_rows: int) -> tuple[dict[int, Any], list[Any], Rows]:
    """Run a batch; return the results by row, what rows were told of their passes, and the batch."""
    log: list[Any] = []
    batch: Any = Rows()
    rows = {number: Text(log, number, {"prompt": 5} | plan) for number, plan in enumerate(plans)}
    kept = [weakref.ref(row) for row in rows.values()]
    results = {}
    for number, result in run_rows(batch, rows, max_rows=max_rows):
        results[number] = result
        assert number not in rows
    gc.collect()
    if all(isinstance(result, int) for result in results.values()):  # a traceback holds its row, and who stood beside
        assert not any(row() for row in kept)
    return results, log, batch


def test_rows_come_and_go() -> None:
    """Rows end at different times, fail before or on their way, never start at all; each is told once."""
    plans = [{"rounds": 9}, {"rounds": 2}, {"rounds": 5, "fails_at": 2}, {"rounds": 7, "refuses": True}]
    plans += [{"rounds": 0}, {"rounds": 1}, {"rounds": 12}]
    results, log, batch = run(plans, 3)
    kinds = [type(results[number]) for number in range(7)]
    assert kinds == [int, int, BudgetError, BudgetError, int, int, int]
    assert [results[number] for number in (0, 1, 4, 5, 6)] == [0, 10, 40, 50, 60]
    assert [sum(number == one for number, _, _ in log) for one in range(7)] == [9, 2, 3, 0, 0, 1, 12]
    assert batch.most_rows == 3
    assert batch.live == []


def test_a_long_row_is_no_padding_of_short_ones() -> None:
    """Beside a prompt of thousands of tokens few short ones are held; without one as many as may be."""
    plans = [{"rounds": 6, "prompt": length} for length in (9000, 50, 60, 40, 80, 50, 50)]
    results, _, batch = run(plans, 8)
    assert len(results) == 7
    assert batch.most_padding < 3
    assert batch.most_rows == 5  # all but the long one, and who shared its passes


def test_drafts_are_cut_to_one_length() -> None:
    """One row that would draft far makes no padding of the others; where all would, they do."""
    unlikely, likely = [0.3, 0.1, 0.05], [0.9, 0.8, 0.7]
    for survivals, width in (([likely, unlikely, unlikely], 2), ([likely, likely, likely], 4), ([unlikely] * 3, 1)):
        plans = [{"rounds": 4, "survivals": one} for one in survivals]
        _, log, _ = run(plans, 3)
        assert {width for _, num_rows, width in log[3:]} == {width}
        assert {num_rows for _, num_rows, _ in log} == {3}


def test_rows_that_are_no_neighbours_share_a_pass() -> None:
    """Logits are those of each row's own text, whichever rows take part."""
    model = tiny_model("llama")
    batch = TransformersBatch(CausalModel(model))
    texts = [[5, 17, 3], [60, 22, 41, 8, 8], [13], [29, 7, 55, 31]]
    rows = [batch.join() for _ in texts]
    for row, text in zip(rows, texts, strict=True):
        row.prefill(text)
    for chosen, new in (([0, 3], [9, 9]), ([1, 3], [4]), ([0, 2, 3], [1, 2, 3]), ([3, 0], [6])):
        hidden = batch.extend([(rows[index], Tokens(new)) for index in chosen])
        for index, logits in zip(chosen, batch.heads(hidden), strict=True):
            texts[index] += new
            truth = full_logits(model, texts[index])[-len(new) :]
            torch.testing.assert_close(logits, truth, rtol=0, atol=1e-9)


@pytest.mark.parametrize("keeps_both", [True, False])
def test_buffers_fit_their_rows_again(keeps_both: bool) -> None:
    """Once the longest row has left, memory is given back; what the others had is still there."""
    model = tiny_model("gpt2")
    batch = TransformersBatch(CausalModel(model))
    texts = [list(range(3, 60)), [5, 6, 7], [8, 9]]
    long, *short = rows = [batch.join() for _ in texts]
    for row, text in zip(rows, texts, strict=True):
        row.prefill(text)
    for _ in range(5):
        rows.append(batch.join())
        rows[-1].prefill([4] * 50)
    most = batch.cache.num_bytes
    for row in [*rows[3:], long]:
        batch.leave(row)
    if not keeps_both:
        batch.leave(short.pop())
    for row, text in zip(short, texts[1:], strict=False):
        torch.testing.assert_close(row.forward([11])[-1], full_logits(model, [*text, 11])[-1], rtol=0, atol=1e-9)
    assert batch.cache.num_bytes < most / 2
