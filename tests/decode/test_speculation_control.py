"""Speculation control in a simulated world: drafters of known acceptance, passes of known cost, no model.

The text is 0, 1, 2, ...; a drafter that is right says what comes. Time is what the table of SmolLM2 on one core says.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from structgen.decode.acceptance_estimates import AcceptanceEstimates, Place
from structgen.decode.control import Round
from structgen.decode.pass_costs import PassCosts
from structgen.decode.request_control import RequestControl
from structgen.decode.speculation_control import RouteControl
from structgen.decode.speculation_model import best_length, break_even_acceptance, speedup
from structgen.errors import OptionError

SMOLLM2 = {1: 0.051, 2: 0.083, 4: 0.093, 8: 0.092, 16: 0.097}
FLAT = {1: 0.005, 16: 0.0052}


@dataclass
class Simulated:
    """A drafter: how likely a token is right, what it costs, how many it knows at a time."""

    acceptance: Callable[[int], float]
    token_s: float = 0.0001
    num_tokens: int = 8
    kind: Callable[[int], object] = lambda _: None


@dataclass
class World:
    """A machine, drafters, and a text on its way."""

    table: Mapping[int, float]
    drafters: Mapping[str, Simulated]
    seed: int = 0
    noise: float = 0.05
    max_draft_tokens: int = 8
    draws_by_itself: bool = False
    seconds: float = 0.0
    num_tokens: int = 0
    num_rounds: int = 0
    read: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.truth = PassCosts(self.table)
        costs = PassCosts(self.table)
        self.route = RouteControl("simulated", list(self.drafters), costs, max_draft_tokens=self.max_draft_tokens)
        self.request = RequestControl(self.route, draws_by_itself=self.draws_by_itself)

    def run(self, num_rounds: int) -> None:
        """Decode for some rounds."""
        for _ in range(num_rounds):
            self.round()

    def draft(self) -> tuple[list[Place], list[int], dict[str, float]]:
        """Ask the drafters."""
        places: list[Place] = []
        token_ids: list[int] = []
        draft_s: dict[str, float] = {}
        for name, drafter in self.drafters.items():
            for number in range(drafter.num_tokens):
                if not self.request.wants(places, name):
                    break
                at = self.num_tokens + len(token_ids)
                is_right = self.random.random() < drafter.acceptance(self.num_rounds)
                places.append(Place(name, drafter.kind(number)))
                token_ids.append(at if is_right else -1)
                draft_s[name] = draft_s.get(name, 0.0) + drafter.token_s
        return places, token_ids, draft_s

    def round(self) -> None:
        """Draft, read, accept."""
        self.request.start_round(1)
        places, token_ids, draft_s = self.draft()
        num_read = self.request.keep(places, token_ids, is_drawn=self.draws_by_itself and bool(places))
        read = token_ids[:num_read]
        here = self.num_tokens
        num_accepted = sum(
            1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(read, itertools.count(here)))
        )
        text = list(range(here, here + num_accepted + 1))
        verify_s = self.truth.seconds(1 + num_read) * math.exp(self.random.gauss(0, self.noise))
        self.request.record(
            Round(
                num_accepted=num_accepted,
                num_draws=num_accepted + 1,
                token_ids=text,
                draft_s=draft_s,
                width=1 + num_read,
                verify_s=verify_s,
            )
        )
        self.read.append(num_read)
        self.num_tokens += len(text)
        self.num_rounds += 1
        self.seconds += sum(draft_s.values()) + verify_s


def off_seconds(table: Mapping[int, float], num_tokens: int) -> float:
    """Return what plain decoding takes."""
    return num_tokens * table[1]


def best_fixed(table: Mapping[int, float], acceptance: float, token_s: float) -> float:
    """Return the seconds per token of the best fixed draft length."""
    costs = PassCosts(table)
    return min(
        costs.seconds(1)
        / speedup(
            acceptance=acceptance, draft_tokens=k, draft_cost=token_s / costs.seconds(1), verify_cost=costs.ratio(1 + k)
        )
        for k in range(9)
    )


@pytest.mark.parametrize("token_s", [0.0001, 0.005], ids=["free", "a tenth of a pass"])
@pytest.mark.parametrize("by_itself", [False, True], ids=["coupled", "exact_ratio"])
@pytest.mark.parametrize("acceptance", [0.0, 0.2, 0.35])
def test_a_bad_drafter_costs_three_percent_at_most(acceptance: float, token_s: float, by_itself: bool) -> None:
    """After a warm-up of 20 rounds the time is within 1.03 of plain decoding, whatever the drafter costs."""
    for seed in range(8):
        drafters = {"Bad": Simulated(lambda _: acceptance, token_s)}
        world = World(SMOLLM2, drafters, seed, noise=0.0, draws_by_itself=by_itself)
        world.run(20)
        before_s, before = world.seconds, world.num_tokens
        world.run(400)
        ratio = (world.seconds - before_s) / off_seconds(SMOLLM2, world.num_tokens - before)
        assert ratio <= 1.03, (seed, ratio)


@pytest.mark.parametrize("acceptance", [0.6, 0.8, 0.95])
def test_a_good_drafter_is_used_nearly_as_well_as_by_who_knows_it(acceptance: float) -> None:
    """Seconds per token are within 5% of the best fixed draft length, and well under plain decoding."""
    world = World(SMOLLM2, {"Good": Simulated(lambda _: acceptance)}, noise=0.0)
    world.run(1000)
    per_token = world.seconds / world.num_tokens
    assert per_token <= 1.05 * best_fixed(SMOLLM2, acceptance, 0.0001)
    assert per_token < 0.9 * SMOLLM2[1]


def test_what_no_length_makes_pay_is_not_read_and_what_one_does_is_read_at_that_length() -> None:
    """On the table of SmolLM2 an acceptance of 0.5 pays with 8 tokens and not with one."""
    one = World(SMOLLM2, {"Half": Simulated(lambda _: 0.5)}, max_draft_tokens=1)
    one.run(300)
    assert sum(one.read[50:]) == 0
    many = World(SMOLLM2, {"Half": Simulated(lambda _: 0.55)}, max_draft_tokens=8)
    many.run(300)
    assert sum(many.read[50:]) / 250 > 4


@pytest.mark.parametrize("by_itself", [False, True], ids=["coupled", "exact_ratio"])
def test_what_was_switched_off_comes_on_again(by_itself: bool) -> None:
    """A drafter that is useless for 300 rounds and good afterwards is read within 300 rounds (ratio: 1,500) of that."""
    world = World(SMOLLM2, {"Late": Simulated(lambda n: 0.1 if n < 300 else 0.9)}, draws_by_itself=by_itself)
    world.run(300)
    assert sum(world.read[100:]) < 20
    assert not world.route.status()["Late"].is_on
    patience = 1500 if by_itself else 300
    world.run(patience)
    world.run(100)
    assert sum(world.read[-100:]) > 300
    assert world.route.status()["Late"].is_on


def test_one_of_two_drafters_is_switched_off() -> None:
    """Who is good is read though another is bad, and the status says which is which."""
    drafters = {"Good": Simulated(lambda _: 0.95, num_tokens=3), "Bad": Simulated(lambda _: 0.1, token_s=0.004)}
    # In the table of SmolLM2 eight tokens cost less than four, so that bad drafts behind good ones are free.
    world = World({1: 0.051, 2: 0.083, 4: 0.090, 8: 0.096, 16: 0.108}, drafters, max_draft_tokens=16)
    world.run(400)
    status = world.route.status()
    assert status["Good"].is_on
    assert status["Good"].reason.startswith("on: 3.0 tokens a draft, 9")
    assert status["Bad"].read_share < 0.1
    assert world.seconds / world.num_tokens < 0.6 * SMOLLM2[1]


def test_kinds_are_told_apart() -> None:
    """Inside of a run nearly all is right and at its end little: the end is cut where it costs, the inside read."""
    table = {1: 0.05, 2: 0.055, 3: 0.06, 4: 0.065, 5: 0.10, 16: 0.6}
    world = World(table, {"Runs": Simulated(lambda _: 1.0, num_tokens=4)})
    kinds = ["inside", "inside", "inside", "last"]
    world.drafters["Runs"].kind = lambda number: kinds[number]

    def right(places: int) -> float:
        return 0.2 if places % 4 == 3 else 0.99

    for _ in range(200):
        world.request.start_round(1)
        places = [Place("Runs", kind) for kind in kinds]
        here = world.num_tokens
        token_ids = [here + i if world.random.random() < right(i) else -1 for i in range(4)]
        num_read = world.request.keep(places, token_ids, is_drawn=False)
        wrong = next((i for i, one in enumerate(token_ids[:num_read]) if one < 0), num_read)
        text = list(range(here, here + wrong + 1))
        world.request.record(
            Round(
                num_accepted=wrong,
                num_draws=wrong + 1,
                token_ids=text,
                draft_s={},
                width=1 + num_read,
                verify_s=world.truth.seconds(1 + num_read),
            )
        )
        world.num_tokens += len(text)
        world.read.append(num_read)
    assert set(world.read[50:]) == {3}


def batch_world(table: Mapping[int, float], acceptance: float, num_rows: int) -> tuple[RouteControl, float]:
    """Decode rows of a route in common passes; return its control, and the tokens read of a draft lately."""
    source, truth = random.Random(1), PassCosts(table)
    route = RouteControl("simulated", ["Guess"], PassCosts(table), max_draft_tokens=8)
    requests = [RequestControl(route, draws_by_itself=False) for _ in range(num_rows)]
    read: list[int] = []
    for _ in range(60):
        drafts, proposed = [], []
        for request in requests:
            request.start_round(num_rows)
            places: list[Place] = []
            while request.wants(places, "Guess"):
                places.append(Place("Guess"))
            proposed.append(len(places))
            drafts.append(request.keep(places, list(range(len(places))), is_drawn=False))
        read += drafts
        width = 1 + max(drafts)
        for request, kept, count in zip(requests, drafts, proposed, strict=True):
            good = next((number for number in range(count) if source.random() > acceptance), count)
            right = min(good, kept)
            request.record(
                Round(
                    num_accepted=right,
                    num_draws=right + 1,
                    token_ids=[*range(right), right if kept < good else -1],
                    draft_s={"Guess": 1e-6},
                    width=width,
                    verify_s=truth.seconds(num_rows * width) / num_rows,
                    num_rows=num_rows,
                )
            )
    return route, sum(read[len(read) // 2 :]) / (len(read) / 2)


def test_the_wider_the_batch_the_shorter_the_drafts() -> None:
    """A machine that reads 16 tokens in the time of one has room for drafts of few rows; the status says so."""
    table = {1: 0.010, 16: 0.0105, 32: 0.020, 64: 0.040}
    found = {num_rows: batch_world(table, 0.8, num_rows) for num_rows in (1, 4, 16)}
    lengths = {num_rows: length for num_rows, (_, length) in found.items()}
    assert lengths[1] > 6
    assert 2 <= lengths[4] <= 4
    assert lengths[16] < 0.2
    for num_rows, (route, _) in found.items():
        status = route.status()["Guess"]
        assert status.is_on == (num_rows < 16)
        assert status.num_rows == num_rows
        assert (f"in passes of {num_rows} rows" in status.reason) == (num_rows > 1 and status.needed <= 1)


def test_a_route_knows_batches_and_single_texts_apart() -> None:
    """What a wide batch decided does not hold for the next text alone."""
    route, _ = batch_world({1: 0.010, 16: 0.0105, 32: 0.020, 64: 0.040}, 0.8, 16)
    places = [Place("Guess")] * 8
    assert route.keep(places, 16) == 0
    assert route.keep(places, 1) > 5


def test_the_common_length_is_the_best() -> None:
    """Against every length, on a table with a step: a pass is as wide as its widest row."""
    costs = PassCosts(SMOLLM2)
    source = random.Random(7)
    for _ in range(200):
        survivals = []
        for _ in range(source.randint(1, 3)):
            value, row = 1.0, []
            for _ in range(source.randint(0, 4)):
                value *= source.random()
                row.append(value)
            survivals.append(row)
        rate, rows = source.uniform(5, 40), len(survivals)

        def price(number: int, rate: float = rate, rows: int = rows) -> float:
            return rate * costs.seconds(rows * (1 + number))

        gains = [
            sum(sum(row[:number]) for row in survivals) - price(number)
            for number in range(max(map(len, survivals)) + 1)
        ]
        assert gains[best_length(survivals, price)] == pytest.approx(max(gains), abs=1e-9)


def test_costs_beyond_the_table_are_learnt() -> None:
    """A pass over more tokens than the table has never looks free, and soon looks like what it took."""
    costs = PassCosts({1: 0.010, 2: 0.010, 4: 0.010, 8: 0.012, 16: 0.011})
    assert 1.1 < costs.ratio(16) + 0.1 < costs.ratio(64) < 3
    for _ in range(60):
        for _ in range(8):
            costs.record(64, 0.060, weight=1 / 8)
        costs.record(1, 0.010)
    assert 4 < costs.ratio(64) < 7
    assert costs.ratio(8) == pytest.approx(1.2, rel=0.05)


def test_a_fall_of_the_acceptance_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A drafter that was right nine times of ten and no longer is gets one warning, which names route and figures."""
    world = World(FLAT, {"Tired": Simulated(lambda n: 0.9 if n < 200 else 0.3)})
    with caplog.at_level(logging.WARNING, logger="structgen"):
        world.run(200)
        assert caplog.records == []
        world.run(400)
    (record,) = caplog.records
    assert "route simulated" in record.getMessage()
    assert "Tired" in record.getMessage()


def test_a_steady_drafter_is_never_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Chance alone is no fall: ten thousand rounds at 0.6."""
    world = World(FLAT, {"Steady": Simulated(lambda _: 0.6)})
    world.run(3000)
    assert caplog.records == []


def test_the_costs_of_a_machine_nobody_measured_are_learnt() -> None:
    """Told of the wrong table, the control ends with the ratio of the machine it runs on, and drafts accordingly."""
    steep = {1: 0.02, 2: 0.04, 4: 0.08, 8: 0.16, 16: 0.32}
    costs = PassCosts()
    truth = PassCosts(steep)
    source = random.Random(3)
    for _ in range(600):
        size = source.choice([1, 5, 9])
        costs.record(size, truth.seconds(size) * math.exp(source.gauss(0, 0.1)))
    assert costs.ratio(9) == pytest.approx(truth.ratio(9), rel=0.25)
    assert costs.seconds(1) == pytest.approx(0.02, rel=0.25)


def test_a_loaded_machine_makes_all_passes_dearer_alike() -> None:
    """What is measured of passes over one token is believed of wider ones, so a load does not look like a gain."""
    costs = PassCosts(SMOLLM2)
    for _ in range(100):
        costs.record(1, 2 * SMOLLM2[1])
    assert costs.seconds(9) == pytest.approx(2 * PassCosts(SMOLLM2).seconds(9), rel=0.01)
    assert costs.ratio(9) == pytest.approx(PassCosts(SMOLLM2).ratio(9), rel=0.01)


@pytest.mark.parametrize("table", [{}, {2: 0.1}, {1: 0.0}, {1: math.nan}, {1: 0.1, 0: 0.1}])
def test_a_table_that_says_nothing_is_refused(table: dict[int, float]) -> None:
    """A pass over one token has to be there, and every entry has to be a time."""
    with pytest.raises(OptionError):
        PassCosts(table)


def test_the_break_even_is_that_of_the_speed_up() -> None:
    """At the acceptance that is needed the best length is as fast as plain decoding, to a thousandth."""
    costs = PassCosts(SMOLLM2)
    needed = break_even_acceptance(costs.seconds, token_s=0.003, tokens_per_second=1 / 0.051, draft_tokens=8)
    times = [
        speedup(acceptance=needed, draft_tokens=k, draft_cost=0.003 / 0.051, verify_cost=costs.ratio(1 + k))
        for k in range(1, 9)
    ]
    assert max(times) == pytest.approx(1.0, abs=1e-3)
    assert break_even_acceptance(costs.seconds, token_s=1.0, tokens_per_second=1 / 0.051, draft_tokens=8) == math.inf


def test_a_kind_that_was_not_seen_is_judged_by_its_drafter() -> None:
    """A hundred failures of short matches make long ones doubtful, and their own successes mend that."""
    estimates = AcceptanceEstimates()
    fresh = estimates.of(Place("PromptLookup", "long"))
    for _ in range(100):
        estimates.record(Place("PromptLookup", "short"), accepted=False)
    doubtful = estimates.of(Place("PromptLookup", "long"))
    assert doubtful < fresh / 4
    for _ in range(50):
        estimates.record(Place("PromptLookup", "long"), accepted=True)
    assert estimates.of(Place("PromptLookup", "long")) > 0.85


def test_memory_is_bounded() -> None:
    """Kinds without end leave no more behind than a few dozen."""
    estimates = AcceptanceEstimates()
    for number in range(10_000):
        estimates.record(Place("Own", number), accepted=True)
    assert len(estimates._counts("Own").kinds) <= 64


def test_requests_of_several_threads_share_a_route() -> None:
    """Four threads at once, whose counts all arrive."""
    world = World(FLAT, {"Shared": Simulated(lambda _: 0.8)})

    def work(seed: int) -> None:
        mine = World(FLAT, world.drafters, seed)
        mine.route = world.route
        mine.request = RequestControl(world.route, draws_by_itself=False)
        mine.run(50)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = world.route.status()["Shared"]
    assert status.is_on
    assert status.acceptance == pytest.approx(0.8, abs=0.1)


def test_reading_the_prompt_first_does_not_make_a_drafter_look_dear() -> None:
    """A draft model takes long for its first token, and when it was not asked for a while; it is used all the same."""
    world = World(SMOLLM2, {"Small": Simulated(lambda _: 0.8, token_s=0.003)})
    real = world.draft
    slow_rounds = {0, 150, 151}

    def draft() -> tuple[list[Place], list[int], dict[str, float]]:
        places, token_ids, draft_s = real()
        if world.num_rounds in slow_rounds and draft_s:
            draft_s["Small"] += 2.0
        return places, token_ids, draft_s

    world.draft = draft  # type: ignore[method-assign]
    world.run(400)
    assert sum(world.read[200:]) / 200 > 4
    assert world.route.status()["Small"].token_cost == pytest.approx(0.003 / 0.051, rel=0.5)


def test_a_drafter_that_became_cheap_is_found_out() -> None:
    """Whoever was too dear to be tried for nothing is tried again, seldom, whatever it took last."""
    drafter = Simulated(lambda _: 0.9, token_s=0.4)
    world = World(SMOLLM2, {"Dear": drafter})
    world.run(200)
    assert sum(world.read[100:]) < 20
    drafter.token_s = 0.001
    world.run(9000)
    assert sum(world.read[-100:]) > 300
