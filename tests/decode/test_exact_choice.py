"""The law over whole answers against softmaxes multiplied out by plain code, and the draw against its reference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from structgen.config import Sampling
from structgen.declarations import Choice
from structgen.decode.causal_model import CausalModel
from structgen.decode.exact_choice import ExactChoice
from structgen.decode.loop import Request
from structgen.decode.models import wrap_model
from structgen.decode.runtime import Runtime
from structgen.decode.target import Tokens
from structgen.decode.trace import Trace
from structgen.decode.transformers_target import TransformersBatch
from structgen.decode.whole_answers import answer_log_probs, canonical_tokens
from structgen.errors import BudgetError, NoLegalTokenError, OptionError, VocabularyError
from structgen.kernels.gumbel import NoiseKey, gumbel_noise
from structgen.output_type import lower
from structgen.replay_record import ReplayRecord
from structgen.vocabulary import Vocabulary
from tiny_tokenizer import byte_tokenizer, tiny_llama

SETS: dict[str, list[str]] = {
    "one": ["true"],
    "prefix": ["a", "ab", "abc", "b"],
    "shared beginnings": ["name one", "name two", "name", "other", "otters", "one"],
    "non-ASCII": ["naïve", "née", "日本", "日", "🎈", "é"],
    "long": ["x" * 150, "x" * 150 + "y", "x" * 70 + "z"],
    "unsorted": ["b", "ab", "ba", "a", "bb", "aa"],
}


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    """The tiny float64 model."""
    return Runtime(wrap_model(tiny_llama(), byte_tokenizer()))


def plain_log_prob(runtime: Runtime, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Multiply the softmaxes of one full pass per token, without a cache and with Python's own sums."""
    total = 0.0
    for num_read in range(len(answer) + 1):
        with torch.no_grad():
            read = torch.tensor([[*prompt, *answer[:num_read]]])
            logits = runtime.loaded.model(input_ids=read, use_cache=False).logits[0, -1]
        row = logits[: runtime.vocabulary.size].tolist()  # what stands beyond is padding of the head
        wanted = [answer[num_read]] if num_read < len(answer) else sorted(set(runtime.vocabulary.stop_ids))
        largest = max(row)
        norm = math.fsum(math.exp(value - largest) for value in row)
        total += math.log(math.fsum(math.exp(row[token_id] - largest) for token_id in wanted) / norm)
    return total


def choose(
    runtime: Runtime, texts: Sequence[str], *, seed: int = 1, stream: int = 0, sampling: Sampling | None = None
) -> ExactChoice:
    """Draw an answer."""
    request = Request(
        prompt_token_ids=runtime.encode("which?"),
        max_tokens=500,
        seed=seed,
        stream=stream,
        sampling=sampling or Sampling(),
    )
    answers = {text: runtime.canonical_tokens(text) for text in texts}
    choice = ExactChoice(runtime.new_target(), runtime.vocabulary, answers, request)
    choice.run()
    return choice


@pytest.mark.parametrize("name", SETS)
def test_the_law_is_the_product_of_softmaxes(runtime: Runtime, name: str) -> None:
    """Each answer's probability, its end included, is what one pass per token says; the report has their sum."""
    assert len(runtime.vocabulary.stop_ids) == 2  # </s> and <|end|>
    choice = choose(runtime, SETS[name])
    prompt = runtime.encode("which?")
    truth = [plain_log_prob(runtime, prompt, runtime.canonical_tokens(text)) for text in SETS[name]]
    np.testing.assert_allclose(choice.log_probs, truth, rtol=0, atol=1e-10)
    assert choice.trace.legal_mass_lost == pytest.approx(-math.log(math.fsum(map(math.exp, truth))), abs=1e-9)


def test_whole_answers_make_a_law() -> None:
    """Over every text of up to three tokens, and all that is longer, the probabilities add up to one."""
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"", b""], stop_ids=[2, 3])
    torch.manual_seed(3)
    answers = [text for length in range(1, 4) for text in itertools.product((0, 1), repeat=length)]
    model = Scripted(lambda tokens: torch.randn(7, generator=torch.Generator().manual_seed(len(set(tokens)))))
    ended = answer_log_probs(model, vocabulary, (0,), answers, Trace(num_prompt_tokens=1))
    # The empty answer, and the beginnings of three tokens that go on: both from rows read one by one.
    rows = {text: torch.log_softmax(model.logits([0, *text])[:4].double(), 0) for text in [(), *answers]}
    empty = float(rows[()][2:].logsumexp(0))
    going_on = [
        math.fsum([float(rows[text[:n]][text[n]]) for n in range(3)]) + float(rows[text][:2].logsumexp(0))
        for text in answers
        if len(text) == 3
    ]
    assert math.fsum(map(math.exp, [*ended, empty, *going_on])) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
def test_the_draw_is_the_gumbel_max_of_the_law(runtime: Runtime, temperature: float) -> None:
    """For 60 seeds the answer is the argmax of log p / T plus the noise of (seed, prompt length, answer, stream)."""
    texts = SETS["unsorted"]
    prompt = runtime.encode("which?")
    law = [plain_log_prob(runtime, prompt, runtime.canonical_tokens(text)) for text in texts]
    drawn = set()
    for seed in range(60):
        choice = choose(runtime, texts, seed=seed, stream=seed % 3, sampling=Sampling(temperature=temperature))
        noise = gumbel_noise(np.arange(len(texts)), NoiseKey(seed, len(prompt), seed % 3))
        scores = [value / temperature + float(extra) for value, extra in zip(law, noise, strict=True)]
        assert choice.text == texts[scores.index(max(scores))]
        drawn.add(choice.text)
    assert len(drawn) >= (1 if temperature < 1 else 3)


def test_greedy_takes_the_most_probable_answer_as_a_whole(runtime: Runtime) -> None:
    """At temperature 0 it is the argmax of the law whatever the seed, and almost 0 comes to the same."""
    texts = SETS["unsorted"]
    prompt = runtime.encode("which?")
    best = max(texts, key=lambda text: plain_log_prob(runtime, prompt, runtime.canonical_tokens(text)))
    for temperature in (0.0, 1e-300):
        chosen = {choose(runtime, texts, seed=s, sampling=Sampling(temperature=temperature)).text for s in range(4)}
        assert chosen == {best}


def test_same_seed_same_answer(runtime: Runtime) -> None:
    """A seed repeats the answer; another stream of it may draw another one."""
    texts = SETS["unsorted"]
    assert all(choose(runtime, texts, seed=s).text == choose(runtime, texts, seed=s).text for s in range(5))
    assert len({choose(runtime, texts, seed=1, stream=stream).text for stream in range(12)}) > 1


def test_shared_beginnings_give_what_each_answer_gives_alone(runtime: Runtime) -> None:
    """One walk over all answers gives the numbers of a walk per answer, in whatever order they stand."""
    texts = [text for name in SETS for text in SETS[name]]
    answers = [runtime.canonical_tokens(text) for text in dict.fromkeys(texts)]
    prompt = runtime.encode("which?")

    def law(some: Sequence[tuple[int, ...]]) -> list[float]:
        trace = Trace(num_prompt_tokens=len(prompt))
        return list(answer_log_probs(runtime.new_target(), runtime.vocabulary, prompt, some, trace))

    alone = [law([answer])[0] for answer in answers]
    np.testing.assert_allclose(law(answers), alone, rtol=0, atol=1e-10)
    np.testing.assert_allclose(law(answers[::-1]), alone[::-1], rtol=0, atol=1e-10)


class Scripted:
    """A target whose logits are a function of the tokens so far; it counts the tokens of each pass."""

    device = torch.device("cpu")

    def __init__(self, logits: Callable[[list[int]], torch.Tensor]) -> None:
        self.logits = logits
        self.logits_width = len(logits([0]))
        self.tokens: list[int] = []
        self.passes: list[int] = []

    @property
    def num_cached_tokens(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Tokens) -> torch.Tensor:
        self.passes.append(len(tokens.token_ids))
        rows = []
        for token_id in tokens.token_ids:
            self.tokens.append(token_id)
            rows.append(self.logits(self.tokens))
        return torch.stack(rows)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def crop(self, num_tokens: int) -> None:
        assert num_tokens <= len(self.tokens)
        del self.tokens[num_tokens:]


LETTERS = Vocabulary.from_bytes([b"a", b"b", b"c", b"", b""], stop_ids=[3, 4])


def scripted(
    answers: dict[str, tuple[int, ...]], logits: Callable[[list[int]], torch.Tensor], **options: Any
) -> tuple[ExactChoice, Scripted]:
    """Draw among answers over LETTERS."""
    model = Scripted(logits)
    request = Request(prompt_token_ids=(0, 1), max_tokens=100, seed=1, **options)
    return ExactChoice(model, LETTERS, answers, request), model


def test_every_token_is_read_once() -> None:
    """The prompt and every beginning go through the model once, in one pass per answer that begins no other."""
    answers = {
        "abca": (0, 1, 2, 0),
        "abcb": (0, 1, 2, 1),
        "ab": (0, 1),
        "b": (1,),
        "bcc": (1, 2, 2),
        "abcbc": (0, 1, 2, 1, 2),
    }
    choice, model = scripted(answers, lambda _: torch.zeros(5))
    choice.run()
    beginnings = {answer[:n] for answer in answers.values() for n in range(1, len(answer) + 1)}
    assert model.passes[0] == 2
    assert sum(model.passes[1:]) == len(beginnings)
    assert len(model.passes) == 1 + 3
    assert choice.trace.num_target_passes == len(model.passes)
    # Uniform over five ids, two of which stop.
    for answer, log_prob in zip(answers.values(), choice.log_probs, strict=True):
        assert log_prob == pytest.approx(-len(answer) * math.log(5) + math.log(2 / 5), abs=1e-12)


def test_long_answers_are_read_in_parts() -> None:
    """A pass reads at most 64 tokens, so that its rows of logits stay small."""
    choice, model = scripted({"a": (0,) * 100, "b": (0,) * 80 + (1,)}, lambda _: torch.zeros(5))
    choice.run()
    assert model.passes == [2, 64, 36, 1]


def test_the_whole_counts_and_not_the_first_token() -> None:
    """Two likely texts that begin alike do not help a third: the answer is the most probable as a whole."""

    def logits(tokens: list[int]) -> torch.Tensor:
        after = tuple(tokens[2:])
        law = {(): [0.6, 0.4, 0, 0, 0], (0,): [0.55, 0.45, 0, 0, 0]}.get(after, [0, 0, 0, 0.5, 0.5])
        return torch.tensor(law, dtype=torch.float64).log()

    choice, _ = scripted({"aa": (0, 0), "ab": (0, 1), "b": (1,)}, logits, sampling=Sampling.greedy())
    choice.run()
    assert choice.text == "b"
    np.testing.assert_allclose(np.exp(choice.log_probs), [0.33, 0.27, 0.4], atol=1e-12)
    assert choice.trace.legal_mass_lost == pytest.approx(0.0, abs=1e-12)


def test_ties_go_to_the_first() -> None:
    """Of equally probable answers greedy takes the one that was declared first."""
    for answers in ({"b": (1,), "a": (0,), "c": (2,)}, {"c": (2,), "b": (1,)}):
        choice, _ = scripted(answers, lambda _: torch.zeros(5), sampling=Sampling.greedy())
        choice.run()
        assert choice.text == next(iter(answers))


def test_it_stands_where_a_decoding_would() -> None:
    """step() gives the answer, then None; tokens, text and report are those of the answer."""
    choice, model = scripted({"ab": (0, 1)}, lambda _: torch.zeros(8))
    assert (choice.text, choice.token_ids, model.passes) == ("", [], [])
    assert choice.step() == "ab"
    assert choice.step() is None
    assert (choice.text, choice.token_ids) == ("ab", [0, 1])
    report = choice.trace.report(compile_cache="miss", record=cast("ReplayRecord", None))
    assert report.law == "exact choice"
    assert (report.num_tokens, report.num_prompt_tokens, report.num_target_passes) == (2, 2, 2)
    assert report.num_measured_steps == 1
    assert report.min_legal_mass == pytest.approx(math.exp(-report.legal_mass_lost)) == pytest.approx(2 / 125)
    assert report.total_s >= report.prefill_s > 0
    assert not report.truncated


def test_budget_of_the_longest_answer() -> None:
    """A budget that the longest answer does not fit into is refused before the model is asked."""
    model = Scripted(lambda _: torch.zeros(5))
    request = Request(prompt_token_ids=(0,), max_tokens=2, seed=1)
    with pytest.raises(BudgetError) as caught:
        ExactChoice(model, LETTERS, {"abc": (0, 1, 2), "a": (0,)}, request)
    assert (caught.value.max_tokens, caught.value.needed) == (2, 3)
    assert model.passes == []


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=5),
        Sampling(top_p=0.9),
        Sampling(min_p=0.1),
        Sampling(repetition_penalty=1.1),
        Sampling(presence_penalty=0.5),
        Sampling(frequency_penalty=0.5),
        Sampling(logit_bias={1: 2.0}),
    ],
    ids=str,
)
def test_only_temperature_applies(sampling: Sampling) -> None:
    """Options that are about tokens are refused by name."""
    (name,) = [name for name in ("top_k", "top_p", "min_p", "logit_bias") if getattr(sampling, name) is not None] or [
        name
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")
        if getattr(sampling, name) != getattr(Sampling(), name)
    ]
    with pytest.raises(OptionError, match=f"^{name}: .*only temperature applies"):
        scripted({"a": (0,)}, lambda _: torch.zeros(5), sampling=sampling)


def test_answers_without_a_probability() -> None:
    """An impossible answer is never drawn; only impossible ones, or logits that are no numbers, are an error."""

    def without(token_ids: Sequence[int], value: float) -> Callable[[list[int]], torch.Tensor]:
        row = torch.zeros(5)
        row[list(token_ids)] = value
        return lambda _: row

    for seed in range(20):
        choice, _ = scripted({"a": (0,), "b": (1,)}, without([0], -math.inf), stream=seed)
        choice.run()
        assert choice.text == "b"
    for row, cause in (
        (without([0, 1], -math.inf), "every answer probability zero"),
        (without([2], math.nan), "not n"),
    ):
        for sampling in (Sampling(), Sampling.greedy()):
            choice, _ = scripted({"a": (0,), "b": (1,)}, row, sampling=sampling)
            with pytest.raises(NoLegalTokenError, match=cause):
                choice.run()


def test_ids_that_the_model_has_no_logits_for() -> None:
    """A head that is narrower than the vocabulary gives the ids past it no probability, and the others all of it."""
    choice, _ = scripted({"a": (0,), "c": (2,)}, lambda _: torch.zeros(4))
    choice.run()
    assert np.exp(choice.log_probs) == pytest.approx([1 / 16, 1 / 16])


def test_a_model_without_a_stop_token() -> None:
    """Without an end there is no law over whole answers."""
    vocabulary = Vocabulary.from_bytes([b"a", b"b"])
    with pytest.raises(VocabularyError, match="names a stop token"):
        ExactChoice(
            Scripted(lambda _: torch.zeros(2)),
            vocabulary,
            {"a": (0,)},
            Request(prompt_token_ids=(0,), max_tokens=5, seed=1),
        )


def test_canonical_tokens(runtime: Runtime) -> None:
    """They are the tokenizer's own, spell the text, and hold no special id even where the text looks like one."""
    for text in ("true", "naïve 🎈", "<|end|>", ' leading and trailing "\n', "name"):
        token_ids = runtime.canonical_tokens(text)
        assert runtime.vocabulary.decode(token_ids) == text.encode()
        assert runtime.vocabulary.special_ids.isdisjoint(token_ids)
    plain = runtime.loaded.tokenizer("name true", add_special_tokens=False)["input_ids"]
    assert list(runtime.canonical_tokens("name true")) == plain


def test_texts_without_canonical_tokens() -> None:
    """What the tokenizer cannot spell, and a vocabulary without a tokenizer, are refused by name."""
    letters = Tokenizer(BPE({"a": 0, "b": 1}, []))
    letters.decoder = ByteLevel()
    with pytest.raises(VocabularyError, match=r"'abc' spell b'ab'.*exact=True"):
        canonical_tokens(Vocabulary.from_tokenizer(letters, cache_dir=None), "abc")
    with pytest.raises(VocabularyError, match="no tokenizer"):
        canonical_tokens(LETTERS, "a")


def test_float32_walks_agree(runtime: Runtime) -> None:
    """In float32 a walk with a cache and one without agree to rounding: the softmax itself is in float64."""
    model = tiny_llama().float()
    prompt = runtime.encode("which?")
    answers = [runtime.canonical_tokens(text) for text in SETS["shared beginnings"]]
    trace = Trace(num_prompt_tokens=len(prompt))
    target = TransformersBatch(CausalModel(model)).join()
    found = answer_log_probs(target, runtime.vocabulary, prompt, answers, trace)
    truth = [plain_log_prob(runtime, prompt, answer) for answer in answers]
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-4)


def test_the_declaration_names_the_answers() -> None:
    """Choice(exact=True) declares its answers in the order they were written, and at most a thousand of them."""
    declared = lower(Choice(["yes", 2, 0.5], exact=True))
    assert declared.answers == ("yes", "2", "0.5")
    assert [declared.parse(text) for text in declared.answers] == ["yes", 2, 0.5]
    assert lower(Choice(["yes", "no"])).answers is None
    assert len(lower(Choice(range(1000), exact=True)).answers or ()) == 1000
    with pytest.raises(OptionError, match=r"at most 1000 of them, not 1001; leave exact=True out"):
        lower(Choice(range(1001), exact=True))
