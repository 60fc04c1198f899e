"""Speculation changes how many passes a text takes, and nothing else: not the text, the state or the cache."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import structgen as sg
from drafts import HOSTILE, Guess, Markov, oracle, setup
from explicit import A9, C3, NESTED, QUOTE, STAR, STOP, STRING, VOCABULARY, A, Automaton, B, State, random_logits
from explicit import Model as Explicit
from random_types import TOKENS, automaton_of, liking
from random_types import VOCABULARY as BYTES
from structgen.config import Sampling
from structgen.decode.drafters import ForcedRun, PromptLookup, StateTable
from structgen.decode.loop import Decoding, Request
from structgen.decode.node_draws import Places
from structgen.decode.sampler import Sampler
from structgen.drafter import DraftMemory
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.output_type import lower
from tiny_tokenizer import byte_tokenizer, tiny_llama

PLAIN = (ForcedRun(), StateTable(), PromptLookup())
SAMPLINGS = [
    Sampling(),
    Sampling.greedy(),
    Sampling(temperature=0.7, top_p=0.9),
    Sampling(top_k=3, repetition_penalty=1.3, frequency_penalty=0.3),
    Sampling(min_p=0.05, presence_penalty=0.6, penalty_scope="everywhere"),  # type: ignore[arg-type]
]


def explicit(automaton: Automaton, seed: int, speculation: Any, sampling: Sampling, max_tokens: int = 14) -> Decoding:
    """Decode to the end over a small automaton."""
    request = Request(prompt_token_ids=(A, B), max_tokens=max_tokens, seed=seed, sampling=sampling)
    target = Explicit(lambda tokens: random_logits(tokens).double())
    decoding = Decoding(target, State(automaton), VOCABULARY, request, speculation)
    decoding.run()
    return decoding


def figures(decoding: Decoding) -> tuple[Any, ...]:
    """Return everything of a run that drafts must not change."""
    trace = decoding.trace
    return (
        decoding.token_ids,
        decoding.text,
        trace.num_tokens,
        trace.num_draws,
        trace.truncated,
        trace.stopped_by,
        round(trace.legal_mass_lost, 9),
        round(trace.most_mass_lost, 9),
    )


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
def test_texts_and_figures_are_those_of_plain_decoding(sampling: Sampling) -> None:
    """An oracle that errs here and there is accepted and rejected, at every draft length, and nothing else changes."""
    drafted, accepted = Counter[str](), Counter[str]()
    for automaton in (STRING, NESTED, STAR):
        for seed in range(12):
            plain = explicit(automaton, seed, None, sampling)
            for length in (1, 2, 3, 5, 8):
                drafter = oracle(2, plain.token_ids, wrong_every=2 + length % 3, size=VOCABULARY.size)
                run = explicit(automaton, seed, setup([drafter], max_draft_tokens=length), sampling)
                assert figures(run) == figures(plain)
                drafted += run.trace.drafted
                accepted += run.trace.accepted
                assert run.trace.num_target_passes <= plain.trace.num_target_passes
    assert sum(accepted.values()) > 100
    assert sum(drafted.values()) - sum(accepted.values()) > 40


def run_schema(seed: int, speculation: Any, sampling: Sampling, prompt: tuple[int, ...]) -> Decoding:
    """Let a repetitive model write a text of a random schema."""
    state = automaton(seed).start()
    request = Request(prompt_token_ids=prompt, max_tokens=state.tokens_to_end_bound + 25, seed=seed, sampling=sampling)
    decoding = Decoding(Markov(seed, len(TOKENS), liking=liking()), state, BYTES, request, speculation)
    decoding.run()
    return decoding


_PARTS: list[dict[str, Any]] = [
    {"type": "boolean"},
    {"type": "null"},
    {"enum": ["true", "T1", "é", "name"]},
    {"enum": [0, "00", None]},
    {"type": "integer", "minimum": 0, "maximum": 99},
    {"type": "string", "maxLength": 5},
    {"type": "string", "pattern": "^[A-Z]{2}-\\d*$"},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    {"type": "array", "items": {"enum": ["a", "ab"]}, "minItems": 2},
]


def random_schema(seed: int) -> dict[str, Any]:
    """Return an object of a few small parts, one of which may be an object again."""
    rng = random.Random(seed)
    names = rng.sample(["a", "b", "cd", "true", "name", "null", "T1"], rng.randint(1, 4))
    parts = {name: rng.choice(_PARTS) for name in names}
    inner = {"type": "object", "properties": parts, "required": names[:2], "additionalProperties": False}
    if rng.random() < 0.3:
        return {"type": "object", "properties": {"in": inner}, "required": ["in"], "additionalProperties": False}
    return inner


@cache
def automaton(seed: int) -> TokenAutomaton:
    """Compile a random schema."""
    return automaton_of(lower(sg.JsonSchema(random_schema(seed)), whitespace="spaced").grammar)


def test_every_drafter_at_every_length_gives_the_plain_text() -> None:
    """Over 200 random schemas and prompts: forced runs, table and lookup, alone and together, draft lengths 1 to 8."""
    drafted, accepted = Counter[str](), Counter[str]()
    memory = DraftMemory()
    for seed in range(200):
        sampling = SAMPLINGS[seed % len(SAMPLINGS)]
        prompt = tuple(b'{"a": [true, false, null], "b": "T1-00"}'[seed % 30 :])
        plain = run_schema(seed, None, sampling, prompt)
        for drafters in (PLAIN, PLAIN[seed % 3 : seed % 3 + 1]):
            run = run_schema(seed, setup(drafters, max_draft_tokens=seed % 8 + 1, memory=memory), sampling, prompt)
            assert figures(run) == figures(plain), seed
            drafted += run.trace.drafted
            accepted += run.trace.accepted
    for name in ("ForcedRun", "StateTable", "PromptLookup"):
        assert accepted[name] > 100, accepted
        assert drafted[name] > accepted[name], drafted


@pytest.mark.parametrize("mode", ["coupled", "exact_ratio"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_drafters_change_nothing_but_the_time(name: str, mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Illegal ids, no ids, endless guesses, broken logits and exceptions: the text of coupled drafts stays the same.

    Logits in the mode of ratios are drawn from with other noise; there the text is another, and complete.
    """
    is_law_only = mode == "exact_ratio" and "logits" in name
    for seed in range(6):
        for automaton in (STRING, NESTED):
            plain = explicit(automaton, seed, None, Sampling())
            run = explicit(automaton, seed, setup([Guess(HOSTILE[name]), ForcedRun()], mode=mode), Sampling())
            if not is_law_only:
                assert figures(run) == figures(plain)
            assert run.text.count("{") == run.text.count("}")
    assert ("Guess failed" in caplog.text) == (name == "raises" or name.startswith("logits"))


def test_a_drafter_that_fails_is_not_asked_again() -> None:
    """Within a request; the next one asks it again."""
    calls = []

    def fails(view: Any) -> list[int]:
        calls.append(view.token_ids)
        raise ValueError

    for _ in range(2):
        explicit(STRING, 1, setup([Guess(fails)]), Sampling())
    assert calls == [[A, B], [A, B]]


def test_what_belongs_to_the_caller_is_not_swallowed() -> None:
    """A drafter that says at the start that it does not fit raises; whoever wrote the call has to know."""

    class Misfit(Guess):
        def start(self, request: Any) -> Any:
            raise sg.OptionError("another vocabulary")

    with pytest.raises(sg.OptionError, match="another vocabulary"):
        explicit(STRING, 1, setup([Misfit(lambda view: [])]), Sampling())


def test_a_round_that_ends_the_text_reads_no_token_too_many() -> None:
    """A stop token inside a draft ends it; where the text can only end after it, its last token is not read."""
    script = {2: QUOTE, 3: A, 4: B, 5: QUOTE}

    def logits(tokens: list[int]) -> torch.Tensor:
        row = torch.zeros(16, dtype=torch.float64)
        row[script.get(len(tokens), STOP)] = 50.0
        return row

    target = Explicit(logits)
    drafter = oracle(2, [QUOTE, A, B, QUOTE, STOP], wrong_every=99, size=VOCABULARY.size)
    request = Request(prompt_token_ids=(A, B), max_tokens=9, seed=0)
    decoding = Decoding(target, State(STRING), VOCABULARY, request, setup([drafter]))
    assert decoding.step() == '"ab"'
    assert decoding.step() is None
    assert target.calls == [2 + 3]
    assert decoding.trace.drafted == decoding.trace.accepted == {"Oracle99": 4}


def test_a_stop_string_inside_a_draft_ends_it() -> None:
    """The text ends at the same token, whatever was drafted beyond it."""
    free = sg.compile(str, BYTES)
    seen = set()
    for seed in range(8):
        runs = []
        for speculation in (None, setup(PLAIN)):
            state = free.start()
            request = Request(prompt_token_ids=tuple(b"abababababab"), max_tokens=40, seed=seed, stop=("ba", "zz"))
            decoding = Decoding(
                Markov(seed % 2, len(TOKENS), liking=_prefers(b"ab"), strength=1.0), state, BYTES, request, speculation
            )
            decoding.run()
            runs.append(figures(decoding))
        assert runs[0] == runs[1]
        seen.add(runs[0][5])
    assert "ba" in seen


def _prefers(letters: bytes) -> Any:
    liked = liking() * 0
    liked[list(letters)] = 6.0
    return liked


@given(
    st.lists(st.lists(st.sampled_from([QUOTE, A, B, C3, A9, STOP, 99]), max_size=5), max_size=12),
    st.integers(0, 10**6),
)
def test_state_and_cache_equal_a_fresh_replay(guesses: list[list[int]], seed: int) -> None:
    """After every round, whatever was drafted: the state is where its tokens lead, the cache has all but the last."""
    rounds = iter(guesses)
    target = Explicit(lambda tokens: random_logits(tokens).double())
    state = State(STRING)
    request = Request(prompt_token_ids=(A, B), max_tokens=16, seed=seed)
    drafter = Guess(lambda view: [] if view.drafted else next(rounds, []))
    decoding = Decoding(target, state, VOCABULARY, request, setup([drafter]))
    while decoding.step() is not None:
        fresh = State(STRING)
        for token_id in decoding.token_ids:
            fresh.advance(token_id)
        assert (state.state, state.history) == (fresh.state, fresh.history)
        whole = [A, B, *decoding.token_ids]
        assert target.tokens == whole[: len(target.tokens)]
        assert len(target.tokens) >= len(whole) - 1 or not state.automaton[state.state]


def test_a_transformers_model_writes_the_same() -> None:
    """With a real KV cache in float64: every draft length gives the text of plain decoding, with passes saved."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    schema = sg.JsonSchema(
        {
            "type": "object",
            "properties": {"name": {"enum": ["true", "name"]}, "me": {"type": "array", "items": {"type": "boolean"}}},
            "required": ["name", "me"],
            "additionalProperties": False,
        }
    )
    saved = rejected = 0
    for seed in range(6):
        plain = model.run(schema, "x", seed=seed, max_tokens=60, speculation=sg.Speculation.off())
        for length in range(1, 9):
            speculation = sg.Speculation(max_draft_tokens=length, adaptive=False)
            run = model.run(schema, "x", seed=seed, max_tokens=60, speculation=speculation)
            assert run.token_ids == plain.token_ids
            saved += plain.report.num_target_passes - run.report.num_target_passes
            rejected += sum(run.report.drafted.values()) - sum(run.report.accepted.values())
    assert saved > 100
    assert rejected > 100


def small_model(seed: int = 5, **config: Any) -> sg.Model:
    """Return a model with the vocabulary of `tiny_llama`, other weights and sharp logits."""
    model = tiny_llama(**config)
    model.lm_head.weight.data *= 10
    if seed != 5:
        noise = torch.Generator().manual_seed(seed)
        for weights in model.parameters():
            weights.data += 0.3 * weights.data.std() * torch.randn(weights.shape, generator=noise, dtype=weights.dtype)
    return sg.Model(model, byte_tokenizer())


LISTS = sg.JsonSchema(
    {"type": "array", "items": {"enum": ["true", "name", "na", "me"]}, "minItems": 2, "maxItems": 6},
    whitespace="spaced",
)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
def test_a_draft_model_changes_no_text(sampling: Sampling) -> None:
    """Coupled drafts of a model that is like the target, accepted and refused: the text hangs on the seed alone."""
    model = small_model()
    drafter = sg.drafters.DraftModel(small_model(6))
    drafted = accepted = 0
    for seed in range(3):
        options: dict[str, Any] = {"seed": seed, "max_tokens": 40, "sampling": sampling}
        plain = model.run(LISTS, "x", speculation=sg.Speculation.off(), **options)
        for drafters in ([drafter], [sg.drafters.ForcedRun(), drafter]):
            for length in (1, 3, 8):
                speculation = sg.Speculation(drafters=drafters, max_draft_tokens=length, adaptive=False)
                run = model.run(LISTS, "x", speculation=speculation, **options)
                assert run.token_ids == plain.token_ids
                drafted += run.report.drafted["DraftModel"]
                accepted += run.report.accepted["DraftModel"]
    assert drafted > accepted > 20


def test_a_draft_model_that_is_the_target_is_always_right() -> None:
    """In either mode: the laws are the same, so nothing is refused."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    for mode in ("coupled", "exact_ratio"):
        speculation = sg.Speculation(
            drafters=[sg.drafters.DraftModel(model)], mode=mode, max_draft_tokens=4, adaptive=False
        )
        report = model.run(LISTS, "x", seed=1, max_tokens=40, speculation=speculation).report
        assert report.acceptance_rate == 1.0
        assert report.num_target_passes <= -(-(report.num_tokens + 1) // 5) + 1


def test_ratios_give_the_law_of_plain_decoding() -> None:
    """Whole texts of many seeds, through rounds of drafts of a model: chi-square below its 99.9% point.

    That the rule is exact is enumerated in test_acceptance.py; this is about the noise of several rounds.
    """
    choices = sg.JsonSchema({"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2})
    model = small_model()
    drafter = sg.drafters.DraftModel(small_model(6))
    texts: dict[str, Counter[str]] = {"off": Counter(), "on": Counter()}
    for seed in range(80):
        for name, speculation in (
            ("off", sg.Speculation.off()),
            ("on", sg.Speculation(drafters=[drafter], mode="exact_ratio", max_draft_tokens=2, adaptive=False)),
        ):
            options: dict[str, Any] = {"max_tokens": 12, "whitespace": "compact", "speculation": speculation}
            texts[name][model.run(choices, "x", seed=seed + 1000 * (name == "on"), **options).text] += 1
    kinds = sorted(texts["off"] | texts["on"])
    assert len(kinds) == 4
    squares = sum((texts["on"][k] - texts["off"][k]) ** 2 / (texts["on"][k] + texts["off"][k]) for k in kinds)
    assert squares < 16.27  # 3 degrees of freedom


def test_a_draft_model_of_another_vocabulary_is_refused() -> None:
    """By the first token that means something else; what is no Model, too."""
    model = sg.Model(tiny_llama(), byte_tokenizer())
    swapped = json.loads(byte_tokenizer().backend_tokenizer.to_str())
    words = swapped["model"]["vocab"]
    words["a"], words["b"] = words["b"], words["a"]
    backend = Tokenizer.from_str(json.dumps(swapped))
    other = sg.Model(tiny_llama(), PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"))
    speculation = sg.Speculation(drafters=[sg.drafters.DraftModel(other)])
    with pytest.raises(sg.OptionError, match=r"another vocabulary: token \d+ is b'.*' there and b'.*' in the target"):
        model.run(bool, "x", speculation=speculation)
    with pytest.raises(sg.OptionError, match=r"takes a Model, not LlamaForCausalLM: write sg.drafters.DraftModel"):
        sg.drafters.DraftModel(tiny_llama())


def test_a_draft_model_tells_its_memory_and_respects_its_context() -> None:
    """Bytes of its weights; where its context ends it drafts no more, and the text is the same."""
    small = small_model(6, max_position_embeddings=8)
    drafter = sg.drafters.DraftModel(small)
    assert drafter.memory_bytes == sum(p.numel() * 8 for p in small.hf_model.parameters())
    assert "MB of weights" in repr(drafter)
    model = sg.Model(tiny_llama(), byte_tokenizer())
    runs = [
        model.run(LISTS, sg.Raw("x"), seed=3, max_tokens=40, speculation=speculation)
        for speculation in (sg.Speculation.off(), sg.Speculation(drafters=[drafter], adaptive=False))
    ]
    assert runs[0].token_ids == runs[1].token_ids
    assert 0 < sum(runs[1].report.drafted.values()) < 10


def _counts_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the penalties of a round see nothing of it."""
    waiting: list[Any] = []
    count, begin = Sampler.count, Decoding.begin_round

    def later(self: Sampler, *args: Any) -> None:
        waiting.append((self, args))

    def begun(self: Decoding) -> Any:
        for sampler, args in waiting:
            count(sampler, *args)
        waiting.clear()
        return begin(self)

    monkeypatch.setattr(Sampler, "count", later)
    monkeypatch.setattr(Decoding, "begin_round", begun)


def _keeps_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget nothing of a draft that was refused, but at the start."""
    monkeypatch.setattr(Explicit, "crop", lambda self, num_tokens: None)


def _moves_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw everywhere in a round with the noise of its first place."""
    step = Places.step
    monkeypatch.setattr(
        Places,
        "step",
        lambda self, node, *few: dataclasses.replace(step(self, node, *few), position=self.first_position),
    )


def _takes_what_was_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept the draft without asking the target, as if forced tokens had to come."""
    draw = Decoding._draw

    def lax(self: Decoding, node: int) -> int | None:
        for token_id in self._draft.nodes[node].children:
            self._take(token_id, node)
            return int(token_id)
        return draw(self, node)

    monkeypatch.setattr(Decoding, "_draw", lax)


@pytest.mark.parametrize("mutant", [_counts_late, _keeps_the_cache, _moves_the_noise, _takes_what_was_drafted])
def test_a_wrong_loop_is_caught(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slip changes a text: the comparison with plain decoding sees it."""
    penalised = Sampling(frequency_penalty=2.0, penalty_scope="everywhere")  # type: ignore[arg-type]
    plain = [explicit(STRING, seed, None, penalised) for seed in range(12)]

    def differs() -> bool:
        for seed, known in enumerate(plain):
            drafter = oracle(2, known.token_ids, wrong_every=3, size=VOCABULARY.size)
            if figures(explicit(STRING, seed, setup([drafter]), penalised)) != figures(known):
                return True
        return False

    assert not differs()
    mutant(monkeypatch)
    assert differs()
