"""Host mode with draws on the device: the texts of draws on the host, and nothing asked of the device meanwhile."""

from __future__ import annotations

import itertools
import math
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch

import structgen as sg
from device_rows import SAMPLINGS, model, random_schema, vocabulary
from drafts import Guess, oracle, setup
from on_device import OnDevice, WaitError, by_the_device
from structgen.config import Sampling
from structgen.decode import device_draws, rounds, runtime
from structgen.decode.causal_model import CausalModel
from structgen.decode.drafters import ForcedRun
from structgen.decode.loop import Decoding, Request
from structgen.decode.mask_table import MaskTable
from structgen.decode.pass_watch import CudaPass, DonePass
from structgen.decode.transformers_target import TransformersBatch
from structgen.errors import NoLegalTokenError
from tiny_models import tiny_model
from tiny_tokenizer import byte_tokenizer, tiny_llama

SIZE = vocabulary().size


@cache
def on_device() -> CausalModel:
    """Return the tiny model with draws on its device, which is the CPU."""
    return CausalModel(tiny_llama(), device_types=("cpu",))


def decode(causal: CausalModel, schema: Any, request: Request, speculation: Any = None, **options: Any) -> Decoding:
    """Decode to the end."""
    state = sg.compile(schema, vocabulary()).start()
    decoding = Decoding(TransformersBatch(causal, **options).join(), state, vocabulary(), request, speculation)
    decoding.run()
    return decoding


def request_of(seed: int, **options: Any) -> Request:
    """Return a request near the end of its budget."""
    return Request(**{"prompt_token_ids": (5, 6, 7), "max_tokens": 40, "seed": seed, **options})


@pytest.mark.parametrize("seed", range(24))
def test_texts_are_those_of_draws_on_the_host(seed: int) -> None:
    """With every option, near the end of budgets, drafted or not: the tokens, the legal mass and the passes."""
    schema = random_schema(seed)
    needed = sg.compile(schema, vocabulary()).start().tokens_to_end_bound
    options = {"sampling": SAMPLINGS[seed % len(SAMPLINGS)], "diagnostics": seed % 3 == 0, "stream": seed % 2}
    request = request_of(seed, max_tokens=needed + 10, **options)
    plain = decode(model(), schema, request)
    drafters = [ForcedRun(), oracle(3, plain.token_ids, wrong_every=4, size=SIZE)]
    for speculation in (None, setup(drafters, branches=2)):
        here = decode(model(), schema, request, speculation).trace
        there = decode(on_device(), schema, request, speculation)
        assert there.token_ids == plain.token_ids
        assert there.trace.legal_mass_lost == pytest.approx(plain.trace.legal_mass_lost, abs=1e-4)
        figures = ("num_target_passes", "num_draws", "num_measured", "truncated", "drafted", "accepted", "drafts")
        assert [getattr(there.trace, name) for name in figures] == [getattr(here, name) for name in figures]


def test_chains_drawn_with_other_noise_are_decided_on_the_host() -> None:
    """A drafter of logits in the mode exact_ratio: the same coins, the same text."""
    drafter = Guess(lambda _: iter(lambda: torch.zeros(SIZE), None))
    for seed in range(3):
        runs = [
            decode(causal, random_schema(4), request_of(seed), setup([drafter], mode="exact_ratio", max_draft_tokens=3))
            for causal in (model(), on_device())
        ]
        assert runs[0].token_ids == runs[1].token_ids
        assert runs[0].trace.drafts == runs[1].trace.drafts


@pytest.mark.parametrize("family", ["phi, head with a bias", "gemma2, soft caps", "granite, scaled logits"])
def test_heads_of_few_rows_are_gathered_where_that_is_the_model(family: str) -> None:
    """Bias and soft cap are part of it; what else a model does to its logits leaves it the whole head."""
    causal = CausalModel(tiny_model(family), device_types=("cpu",))
    is_scaled = family.startswith("granite")
    assert (causal.head.gathered is None) == is_scaled
    assert (causal.head.most_legal_rows == 0) == is_scaled
    hidden = torch.randn((2, 32), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = causal.head.logits(hidden)
    assert torch.equal(causal.head.logits(hidden, [3, 60]), whole[:, [3, 60]])


def test_errors_say_what_they_say_on_the_host() -> None:
    """A bias that bans what is legal, where many tokens are legal and where few are, and logits that are no numbers."""
    banned = Sampling(logit_bias=dict.fromkeys(range(SIZE), -math.inf))
    broken = tiny_llama()
    models = [CausalModel(broken), CausalModel(broken, device_types=("cpu",))]
    torch.nn.init.constant_(broken.lm_head.weight, math.nan)
    for schema in (sg.JsonSchema({"type": "string"}), sg.JsonSchema({"type": "boolean"})):
        for both, sampling in (([model(), on_device()], banned), (models, Sampling())):
            told = []
            for causal in both:
                with pytest.raises(NoLegalTokenError) as caught:
                    decode(causal, schema, request_of(1, sampling=sampling))
                told.append(str(caught.value))
            assert told[0] == told[1]
    assert CausalModel(broken).head.full_only_because == "its logits are not numbers"


def test_rows_of_a_batch_draw_on_the_device_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the public calls: alone, deterministic, and in shared passes; exact choices among them."""

    def texts() -> list[Any]:
        made = sg.Model(tiny_llama(), byte_tokenizer())
        types = [bool, list[int], sg.Choice(["yes", "no", "maybe"], exact=True), dict[str, bool], int]
        alone = [made.run(kind, "x", seed=3, max_tokens=60, deterministic=True).text for kind in types[:2]]
        rows = made.run_batch([(kind, "x") for kind in types], max_rows=4, max_tokens=60, seed=5)
        return [*alone, *(row.text for row in rows)]

    host = texts()
    monkeypatch.setattr(runtime, "CausalModel", partial(CausalModel, device_types=("cpu",)))
    assert texts() == host


# --- the table --------------------------------------------------------------------------------------------------------


def test_a_table_that_was_made_in_inference_mode_is_used_outside() -> None:
    """A tensor that is made in it could not be written to there."""
    masks = [np.array([number], np.int32) for number in range(100)]
    with torch.inference_mode():
        table = MaskTable(1, list_length=0, device=torch.device("cpu"))
        table.send([(masks[0], None)])
    for mask in masks:
        table.send([(mask, None)])
    with table.using([(mask, None) for mask in masks]) as slots:
        assert table.words[slots, 0].tolist() == list(range(100))


def test_the_table_has_every_row_that_is_used() -> None:
    """Of random use in a table that is too small: words and lists are right each time, and known rows are not sent."""
    rng = np.random.default_rng(0)
    masks = [np.array([number, -number, 7], np.int32) for number in range(200)]
    listed = [np.arange(1 + number % 4, dtype=np.int64) for number in range(200)]
    table = MaskTable(3, list_length=5, device=torch.device("cpu"), max_bytes=0)
    for _ in range(300):
        wanted = [int(one) for one in rng.zipf(1.3, 6) if one < 200]
        rows = [(masks[one], listed[one] if one % 2 else None) for one in wanted]
        with table.using(rows) as slots:
            for one, slot in zip(wanted, slots, strict=True):
                assert table.words[slot].tolist() == masks[one].tolist()
                if one % 2 and table.lists is not None:
                    ids = table.lists[1][int(table.lists[0][slot]) : int(table.lists[0][slot + 1])]
                    assert ids[ids < 200].tolist() == listed[one].tolist()
        sent = table.num_sent
        table.send(rows)
        assert table.num_sent == sent
    assert len(table.words) == 64
    with table.using([(mask, None) for mask in masks]) as slots:  # more than there are: it grows
        assert torch.equal(table.words[slots], torch.from_numpy(np.stack(masks)))


@pytest.mark.parametrize("num_before", [0, 1, 2])
def test_an_interrupted_table_gives_no_wrong_rows(num_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while rows are sent: a full table has given the number of an old row away by then."""
    masks = [np.array([number], np.int32) for number in range(67)]
    table = MaskTable(1, list_length=0, device=torch.device("cpu"), max_bytes=0)
    table.send([(mask, None) for mask in masks[:64]])
    send, num_sent = MaskTable._send, itertools.count()

    def interrupted(*args: Any) -> None:
        if next(num_sent) == num_before:
            raise KeyboardInterrupt
        send(*args)

    with monkeypatch.context() as patched:
        patched.setattr(MaskTable, "_send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            table.send([(mask, None) for mask in masks[64:]])
    for wanted in ([64, 65, 66], [0, 1, 2, 3], list(range(64))):
        with table.using([(masks[one], None) for one in wanted]) as slots:
            assert table.words[slots, 0].tolist() == wanted


def test_an_interrupted_growth_leaves_words_and_lists_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the tensors was made last: each number of a row has a list as well."""
    masks, listed = [np.array([number], np.int32) for number in range(100)], np.arange(3, dtype=np.int64)
    table = MaskTable(1, list_length=5, device=torch.device("cpu"))
    table.send([(mask, listed) for mask in masks[:64]])

    def interrupted(*_: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(torch, "arange", interrupted)
        with pytest.raises(KeyboardInterrupt):
            table.send([(mask, listed) for mask in masks])
    with table.using([(mask, listed) for mask in masks]) as slots:
        assert table.words[slots, 0].tolist() == list(range(100))
        assert table.lists is not None
        starts, ids = table.lists
        assert all(ids[starts[slot] : starts[slot + 1]].tolist()[:3] == [0, 1, 2] for slot in slots)


def test_known_rows_are_not_sent_again() -> None:
    """A second text of the same type sends next to none: they are those that the budget cut."""
    causal = CausalModel(tiny_llama(), device_types=("cpu",))
    state = sg.compile(list[bool], vocabulary())
    sent = []
    for seed in (1, 1):
        target = TransformersBatch(causal).join()
        Decoding(target, state.start(), vocabulary(), request_of(seed)).run()
        [table] = causal.device_side.tables._tables.values()  # type: ignore[union-attr]
        sent.append(table.num_sent)
    assert 0 < sent[0] == sent[1]


# --- waits ------------------------------------------------------------------------------------------------------------


class Watched(DonePass):
    """A pass whose steps are written down."""

    log: list[str] = []  # noqa: RUF012  # one for the test that is running

    def __init__(self) -> None:
        super().__init__()
        self.log.append("pass")

    def masks_are_ready(self) -> None:
        self.log.append("ready")

    def draws_are_started(self) -> None:
        self.log.append("started")

    def wait(self) -> float:
        self.log.append("waited")
        return 0.25


class Logged:
    """A state that writes down when a mask is made."""

    def __init__(self, state: Any, log: list[str]) -> None:
        self._state = state
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def mask(self) -> Any:
        self._log.append("mask")
        return self._state.mask()


def test_masks_are_made_beside_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each pass: started, masks of its places, head and draws, and only then somebody waits; so says the trace."""
    monkeypatch.setattr(rounds, "watch", lambda _: Watched())
    Watched.log = []
    state: Any = Logged(sg.compile(random_schema(5), vocabulary()).start(), Watched.log)
    target = TransformersBatch(on_device()).join()
    decoding = Decoding(target, state, vocabulary(), request_of(2), setup([ForcedRun()]))
    decoding.run()
    told = "".join({"pass": "P", "mask": "m", "ready": "r", "started": "s", "waited": "w"}[one] for one in Watched.log)
    assert told.count("P") == decoding.trace.num_target_passes > 3
    between = told.split("P")[1:]
    assert all(part.lstrip("m").startswith("rsw") for part in between)
    assert sum(part.startswith("m") for part in between) >= len(between) - 1
    # Before a pass a mask is made only where the text may end.
    assert sum(part.endswith("m") for part in told.split("P")[:-1]) <= 1
    assert decoding.trace.mask_wait_s >= 0.25 * decoding.trace.num_target_passes


class Event:
    """An event of CUDA whose stream gets to it at a time of its own, in milliseconds."""

    times: list[float] = []  # noqa: RUF012  # one for the test that is running

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at: float | None = None

    def record(self, stream: str) -> None:
        assert stream == "stream of cuda:1"
        self.at = self.times.pop(0)

    def elapsed_time(self, other: Event) -> float:
        assert self.at is not None
        assert other.at is not None
        return other.at - self.at

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        pass


def test_waits_are_those_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the end of the pass to the masks, and from the end of the draws to the end of what was prepared."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    Event.times = [10.0, 13.5, 20.0, 20.25]
    followed = CudaPass(torch.device("cuda:1"))
    followed.masks_are_ready()
    followed.draws_are_started()
    assert not followed.is_done()
    assert followed.wait() == pytest.approx(0.00375)
    assert Event.times == []


def test_nothing_asks_the_device_before_the_draws_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden states and logits refuse to tell anything; a planted question is found."""
    monkeypatch.setattr(device_draws, "sample", by_the_device(device_draws.sample))
    monkeypatch.setattr(device_draws, "gather_head_", by_the_device(device_draws.gather_head_))
    extend = TransformersBatch.extend
    monkeypatch.setattr(
        TransformersBatch,
        "extend",
        lambda self, parts: [hidden.as_subclass(OnDevice) for hidden in extend(self, parts)],
    )
    schema, drafters = random_schema(3), setup([ForcedRun()])
    request = request_of(3, sampling=Sampling(top_p=0.9, frequency_penalty=0.3))
    assert decode(on_device(), schema, request, drafters).text
    with pytest.raises(WaitError):
        decode(model(), schema, request, drafters)
