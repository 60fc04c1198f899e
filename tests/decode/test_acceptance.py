"""Acceptance rules by exact enumeration: every draft, every coin, total variation to the promised law below 1e-9.

Sampling would not do: a rule that was wrong by a total variation of 0.04 once passed a test of 60,000 samples.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from explicit import NESTED, OTHER_STOP, QUOTE, STAR, STOP, STRING, VOCABULARY, A, Automaton, B, State
from sampling_reference import Reference
from structgen.config import PenaltyScope, Sampling
from structgen.decode import ratio
from structgen.decode.acceptance import (
    BlockVerification,
    FloatArray,
    descend,
    draw_from,
    law_of,
    verify_block,
)
from structgen.decode.acceptance_estimates import Place
from structgen.decode.draft import Draft, Masks
from structgen.decode.sampler import Sampler, Step

SIZE = VOCABULARY.size
STOPS = (STOP, OTHER_STOP)
Text = tuple[int, ...]

# ---------------------------------------------------------------- named tokens: sample and compare


def test_named_drafts_give_the_path_of_the_plain_sampler() -> None:
    """For every noise table of a grid and every tree of guesses the draws are those without a draft, one by one."""
    logits = {prefix: [len(prefix), 2 * len(prefix) - 1, (sum(prefix) + 1) % 3] for prefix in _prefixes(2)}
    trees = [_tree(list(guesses)) for guesses in list(itertools.combinations(_prefixes(2, start=1), 3))[::4]]
    met = Counter[int]()
    for table in itertools.product((0.0, 0.9, 2.1), repeat=6):
        noise = np.array(table).reshape(2, 3)

        def plain(prefix: Text, noise: np.ndarray = noise) -> int:
            return int(np.argmax(np.array(logits[prefix]) + noise[len(prefix)]))

        first = plain(())
        whole = (first, plain((first,)))
        for children, prefixes in trees:
            drawn: list[int] = []

            def draw(node: int, prefixes: Any = prefixes, drawn: list[int] = drawn) -> int | None:
                if len(prefixes[node]) == 2:
                    return None
                drawn.append(plain(prefixes[node]))
                return drawn[-1]

            path = descend(lambda node, children=children: children[node], draw)  # type: ignore[misc]
            assert tuple(drawn) == whole[: len(drawn)]
            assert [prefixes[node] for node in path] == [whole[:depth] for depth in range(1, len(path) + 1)]
            # It stops only where the draft does.
            assert len(drawn) == 2 or (first,) not in prefixes
            met[len(path)] += 1
    assert min(met[0], met[1], met[2]) > 500


def _prefixes(most: int, start: int = 0) -> list[Text]:
    return [prefix for length in range(start, most + 1) for prefix in itertools.product(range(3), repeat=length)]


def _tree(guesses: list[Text]) -> tuple[list[dict[int, int]], list[Text]]:
    """Return the children of each node, and the tokens that lead to it."""
    prefixes: list[Text] = [()]
    children: list[dict[int, int]] = [{}]
    for guess in guesses:
        node = 0
        for depth, token_id in enumerate(guess, 1):
            if token_id not in children[node]:
                children[node][token_id] = len(prefixes)
                prefixes.append(guess[:depth])
                children.append({})
            node = children[node][token_id]
    return children, prefixes


# ---------------------------------------------------------------- drawn tokens: block verification

# Multiples of 1/2 stay what they are in float32, and so does what these penalties make of them.
SAMPLINGS = {
    "plain": Sampling(),
    "tempered": Sampling(temperature=0.7),
    "truncated": Sampling(temperature=1.5, top_k=3),
    "nucleus": Sampling(top_p=0.8),
    "penalised": Sampling(
        temperature=0.8, repetition_penalty=2.0, frequency_penalty=0.5, penalty_scope=PenaltyScope.EVERYWHERE
    ),
    "all of it": Sampling(temperature=0.9, top_p=0.85, min_p=0.05, presence_penalty=1.5, logit_bias={A: 0.5, B: -1.0}),
}
AUTOMATA = {"string": STRING, "nested": NESTED, "star": STAR}
BUDGET = 6


def model_logits(prefix: Text, who: int) -> torch.Tensor:
    """Return logits in steps of 1/2 that hang on every token so far, and on whose they are."""
    generator = np.random.default_rng([who, 7, *prefix])
    return torch.from_numpy(generator.integers(-5, 6, size=16) / 2.0)


@dataclasses.dataclass(frozen=True)
class World:
    """A grammar, options and two models, a few tokens into a text."""

    automaton: Automaton
    sampling: Sampling
    before: Text = ()

    def law(self, prefix: Text, who: int) -> list[float]:
        """Return the law after some tokens, by the reference."""
        state = self.state(prefix)
        left = BUDGET - len(prefix)
        legal = {t for t, target in state.automaton[state.state].items() if state.costs[target] <= left - 1}
        legal |= set(STOPS) if state.is_accepting else set()
        free = {t for t, to in state.automaton[state.state].items() if to in ("body", "half")}
        counted = [t for i, t in enumerate(prefix) if self._counts(prefix[:i], t)]
        logits = model_logits(prefix, who)[:SIZE].tolist()
        return Reference(self.sampling, counted).law(logits, legal, free if state.state in ("body", "half") else set())

    def _counts(self, prefix: Text, token_id: int) -> bool:
        if self.sampling.penalty_scope is PenaltyScope.EVERYWHERE:
            return True
        state = self.state(prefix)
        return state.state in ("body", "half") and state.automaton[state.state][token_id] in ("body", "half")

    def is_over(self, prefix: Text) -> bool:
        """Say whether nothing more is drawn: after a stop, and where the text can only end."""
        if prefix and prefix[-1] in STOPS:
            return True
        state = self.state(prefix)
        left = BUDGET - len(prefix)
        return not any(state.costs[target] <= left - 1 for target in state.automaton[state.state].values())

    def state(self, prefix: Text) -> State:
        state = State(self.automaton)
        for token_id in prefix:
            state.advance(token_id)
        return state

    def sampler(self) -> Sampler:
        """Return the text's sampler: it has counted what stands before the round."""
        sampler = Sampler(self.sampling, seed=1, vocabulary_size=SIZE)
        state = State(self.automaton)
        for token_id in self.before:
            sampler.count(token_id, state.free_text_mask())
            state.advance(token_id)
        return sampler


def continued(world: World, prefix: Text, num_tokens: int) -> Iterator[tuple[Text, float]]:
    """Return every text of so many tokens more, or fewer where it ends, with its probability by plain sampling."""
    if num_tokens == 0 or world.is_over(prefix):
        yield prefix, 1.0
        return
    for token_id, probability in enumerate(world.law(prefix, 0)):
        if probability > 0.0:
            for text, rest in continued(world, (*prefix, token_id), num_tokens - 1):
                yield text, probability * rest


def drafts(world: World, length: int, named: frozenset[int], stops_at: int | None) -> Iterator[tuple[Text, float]]:
    """Return every draft with its probability; at some depths a token is named, the likeliest for the drafter."""

    def grow(draft: Text) -> Iterator[tuple[Text, float]]:
        prefix = world.before + draft
        if len(draft) == length or world.is_over(prefix) or (draft and draft[-1] == stops_at):
            yield draft, 1.0
            return
        law = world.law(prefix, 1)
        if len(draft) in named:
            law = [float(token_id == _favourite(world, prefix)) for token_id in range(SIZE)]
        for token_id, probability in enumerate(law):
            if probability > 0.0:
                for longer, rest in grow((*draft, token_id)):
                    yield longer, probability * rest

    return grow(())


def _favourite(world: World, prefix: Text) -> int:
    law = world.law(prefix, 1)
    return max((t for t in range(SIZE) if t not in STOPS), key=lambda t: law[t])


Verify = Callable[[Draft, torch.Tensor, Sampler, Callable[[Draft, int], Step]], tuple[BlockVerification, Any]]


def total_variation(
    world: World, verify: Verify, *, length: int = 2, named: frozenset[int] = frozenset(), stops_at: int | None = None
) -> float:
    """Return how far the law of a round, continued plainly, is from the law of plain sampling.

    The draft outcomes are enumerated; the coins are integrated: each falls below its threshold or not, and what was
    decided is asked of the code, for every combination.
    """
    num_tokens = length + 1
    got: dict[Text, float] = {}
    for tokens, probability in drafts(world, length, named, stops_at):
        draft = made_draft(world, tokens, named)
        prefixes = [world.before + tokens[:number] for number in range(len(tokens) + 1)]
        rows = torch.stack([model_logits(prefix, 0) for prefix in prefixes[: 1 + len(draft.read_token_ids)]])
        verification, _ = verify(draft, rows, world.sampler(), step_at)
        for num_accepted, chance in integrated(verification).items():
            prefix = prefixes[num_accepted]
            followers = [(prefix, 1.0)]
            if not world.is_over(prefix):
                law = verification.laws[num_accepted]
                followers = [((*prefix, int(t)), float(law[t])) for t in np.flatnonzero(law)]
            for after, drawn in followers:
                for text, rest in _rest(world, after, len(world.before) + num_tokens):
                    got[text] = got.get(text, 0.0) + probability * chance * drawn * rest
    want = dict(continued(world, world.before, num_tokens))
    return sum(abs(got.get(text, 0.0) - want.get(text, 0.0)) for text in got.keys() | want.keys()) / 2


def _rest(world: World, prefix: Text, num_tokens: int) -> Iterator[tuple[Text, float]]:
    """Continue plainly; what is illegal (a mutant's doing) stays as it is."""
    try:
        yield from continued(world, prefix, num_tokens - len(prefix))
    except Exception:  # a rejected token: the text is none, which is what has to be seen
        yield prefix, 1.0


def made_draft(world: World, tokens: Text, named: frozenset[int]) -> Draft:
    """Return the draft as the loop would have it."""
    state = world.state(world.before)
    num_before = len(world.before)
    draft = Draft(state, Masks(VOCABULARY), num_before=num_before, budget=BUDGET - num_before, asks_free_text=True)
    for depth, token_id in enumerate(tokens):
        law = None if depth in named else np.array(world.law(world.before + tokens[:depth], 1))
        draft.take((token_id, law), Place("test"))
    return draft


def step_at(draft: Draft, node: int) -> Step:
    """Return where the draw at a node takes place."""
    here = draft.legal(node)
    return Step(mask=here.mask, free_text_mask=here.free_text_mask, position=node, describe=lambda: "test")


def integrated(verification: BlockVerification) -> dict[int, float]:
    """Return the probability of each number of accepted tokens: one coin on each side of every threshold."""
    chances: dict[int, float] = {}
    sides = [((t / 2, t), ((1 + t) / 2, 1 - t)) for t in verification.thresholds]
    for chosen in itertools.product(*sides):
        chance = float(np.prod([probability for _, probability in chosen]))
        if chance > 0.0:
            number = verification.num_accepted([coin for coin, _ in chosen])
            chances[number] = chances.get(number, 0.0) + chance
    return chances


CASES: list[tuple[str, dict[str, Any]]] = [
    ("drawn", {}),
    ("first named", {"named": frozenset({0})}),
    ("second named", {"named": frozenset({1})}),
    ("ends by what was drawn", {"stops_at": A}),
    ("one", {"length": 1}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_block_verification_gives_the_promised_law(name: str, case: tuple[str, dict[str, Any]]) -> None:
    """Masked, tempered, truncated, penalised, within the budget: total variation below 1e-9."""
    for automaton, before in ((STRING, (QUOTE, A)), (NESTED, (5,)), (STAR, (A,))):
        world = World(automaton, SAMPLINGS[name], before)
        assert total_variation(world, ratio.verify_chain, **case[1]) < 1e-9


def test_three_tokens_deep() -> None:
    """The same for drafts of three tokens, from the start of a text."""
    for name in ("all of it", "penalised"):
        assert total_variation(World(STRING, SAMPLINGS[name], (QUOTE,)), ratio.verify_chain, length=3) < 1e-9


def _unnormalised(target: FloatArray, draft: FloatArray, token_ids: Any) -> BlockVerification:
    made = verify_block(target, draft, token_ids)
    laws = made.laws.copy()
    laws[0] = np.maximum(target[0] - draft[0], 0.0)
    return dataclasses.replace(made, laws=laws)


def _plain_residual(target: FloatArray, draft: FloatArray, token_ids: Any) -> BlockVerification:
    """Forget the weight: max(P - Q, 0) at every place."""
    made = verify_block(target, draft, token_ids)
    laws = made.laws.copy()
    for number in range(1, len(token_ids)):
        residual = np.maximum(target[number] - draft[number], 0.0)
        laws[number] = residual / residual.sum() if residual.sum() else target[number]
    return dataclasses.replace(made, laws=laws)


def _target_instead_of_residual(target: FloatArray, draft: FloatArray, token_ids: Any) -> BlockVerification:
    return dataclasses.replace(verify_block(target, draft, token_ids), laws=target)


def _unweighted_thresholds(target: FloatArray, draft: FloatArray, token_ids: Any) -> BlockVerification:
    """Take the token's own ratio for the threshold of the block."""
    made = verify_block(target, draft, token_ids)
    ratios = [min(1.0, target[i, t] / draft[i, t]) for i, t in enumerate(token_ids)]
    return dataclasses.replace(made, thresholds=np.array(ratios))


class _FirstFailing(BlockVerification):
    """Accept up to the first coin that fails, as the rule for single tokens does."""

    def num_accepted(self, coins: Any) -> int:
        passed = [coin < threshold for coin, threshold in zip(coins, self.thresholds, strict=True)]
        return next((number for number, ok in enumerate(passed) if not ok), len(passed))


def _first_failing(target: FloatArray, draft: FloatArray, token_ids: Any) -> BlockVerification:
    made = verify_block(target, draft, token_ids)
    return _FirstFailing(made.thresholds, made.laws)


RULES = {
    "residual not normalised": _unnormalised,
    "residual without the weight": _plain_residual,
    "target instead of residual": _target_instead_of_residual,
    "thresholds of single tokens": _unweighted_thresholds,
    "first failing coin": _first_failing,
}


@pytest.mark.parametrize("mutant", RULES)
def test_a_wrong_rule_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slip in the rule moves the law by far more than the tolerance, by the same check."""
    monkeypatch.setattr(ratio, "verify_block", RULES[mutant])
    assert total_variation(World(STRING, SAMPLINGS["tempered"], (QUOTE,)), ratio.verify_chain) > 1e-4


def test_a_bonus_without_its_mask_is_caught() -> None:
    """The token after a whole draft comes from the masked law too."""

    def unmasked(draft: Draft, rows: torch.Tensor, sampler: Sampler, _: Any) -> Any:
        def lax(draft: Draft, node: int) -> Step:
            step = step_at(draft, node)
            if node == len(draft.nodes) - 1:
                return dataclasses.replace(step, mask=np.array([(1 << SIZE) - 1], dtype=np.int32))
            return step

        return ratio.verify_chain(draft, rows, sampler, lax)

    assert total_variation(World(STRING, SAMPLINGS["plain"], (QUOTE,)), unmasked) > 1e-4


def test_penalties_that_do_not_see_the_draft_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row counts the drafted tokens before it."""
    world = World(STRING, SAMPLINGS["penalised"], (QUOTE,))
    sampler = world.sampler()
    assert total_variation(world, ratio.verify_chain) < 1e-9
    monkeypatch.setattr(World, "sampler", lambda _: sampler)
    monkeypatch.setattr(Sampler, "count", lambda *_: None)
    assert total_variation(world, ratio.verify_chain) > 1e-4


def test_a_draft_law_that_was_not_drawn_from_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rule divides by is the law that the token came from: masked, tempered, truncated."""
    made = made_draft

    def other(world: World, tokens: Text, named: frozenset[int]) -> Draft:
        draft = made(world, tokens, named)
        for node in draft.nodes[1:]:
            flat = (node.draft_law > 0) / (node.draft_law > 0).sum()  # type: ignore[operator]
            node.draft_law = flat
        return draft

    monkeypatch.setitem(globals(), "made_draft", other)
    assert total_variation(World(STRING, SAMPLINGS["plain"], (QUOTE,)), ratio.verify_chain) > 1e-4


def test_blocks_accept_at_least_as_much_as_single_tokens() -> None:
    """In the mean over drafts and coins, against the rule of Leviathan et al. that is written out here."""
    world = World(STRING, SAMPLINGS["tempered"], (QUOTE,))
    block = single = 0.0
    for tokens, probability in drafts(world, 2, frozenset(), None):
        draft = made_draft(world, tokens, frozenset())
        prefixes = [world.before + tokens[:number] for number in range(len(tokens) + 1)]
        rows = torch.stack([model_logits(prefix, 0) for prefix in prefixes[: 1 + len(draft.read_token_ids)]])
        verification, _ = ratio.verify_chain(draft, rows, world.sampler(), step_at)
        block += probability * sum(number * chance for number, chance in integrated(verification).items())
        passed = 1.0
        for number, token_id in enumerate(tokens):
            prefix = prefixes[number]
            passed *= min(1.0, world.law(prefix, 0)[token_id] / world.law(prefix, 1)[token_id])
            single += probability * passed
    assert block > single + 1e-3


def test_equal_laws_accept_everything() -> None:
    """Where target and draft agree the residual is empty, and every draft is accepted."""
    laws = np.array([[0.25, 0.75, 0.0]] * 3)
    made = verify_block(laws, laws[:2], [0, 1])
    assert made.thresholds.tolist() == [1.0, 1.0]
    assert np.isfinite(made.laws).all()
    assert made.laws.sum(axis=1).tolist() == [1.0] * 3


def test_draws_from_a_law_fall_where_its_sum_passes_the_coin() -> None:
    """Over a grid of coins each token is drawn as often as its probability says, and what has none never."""
    law = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    drawn = Counter(draw_from(law, coin / 64) for coin in range(64))
    assert drawn == {1: 16, 3: 32, 4: 16}
    assert draw_from(law, np.nextafter(1.0, 0.0)) == 4
    assert draw_from(np.array([0.1] * 10 + [0.0]), np.nextafter(1.0, 0.0)) == 9


def test_the_law_of_a_row() -> None:
    """The softmax at the temperature; all on the lowest of the best at 0."""
    row = torch.tensor([0.0, 1.0, 1.0, -torch.inf])
    assert law_of(row, 0.0).tolist() == [0, 1, 0, 0]
    want = np.exp([-2.0, 0.0, 0.0, -np.inf])
    assert np.allclose(law_of(row, 0.5), want / want.sum(), rtol=1e-12)
