"""The style that a model writes by itself: scores against plain code, who wins, and what is kept for later."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic import BaseModel

from oracle.recognise import accepts
from structgen import array_store
from structgen.array_file import read_arrays
from structgen.config import Whitespace
from structgen.decode import style
from structgen.decode.models import wrap_model
from structgen.decode.runtime import Runtime
from structgen.decode.style import PROMPT, RENDERINGS, fingerprint, preferred_whitespace, style_scores
from structgen.decode.target import Target, Tokens
from structgen.output_type import lower
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Home(BaseModel):
    city: str


class Person(BaseModel):
    name: str
    age: int
    tags: list[Literal["red", "blue"]]
    home: Home


class Writer:
    """A target that writes one text after its prompt, and anything else with the same small probability."""

    device = torch.device("cpu")
    logits_width = 272

    def __init__(self, token_ids: Sequence[int], stop_id: int) -> None:
        self.wanted = [*token_ids, stop_id]
        self.num_prompt_tokens = 0
        self.num_cached_tokens = 0

    def extend(self, tokens: Tokens) -> torch.Tensor:
        self.num_prompt_tokens += tokens.num_prompt_tokens
        rows = torch.zeros(len(tokens.token_ids), self.logits_width)
        for row in rows:
            self.num_cached_tokens += 1
            place = self.num_cached_tokens - self.num_prompt_tokens
            if 0 <= place < len(self.wanted):
                row[self.wanted[place]] = 10.0
        return rows

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def crop(self, num_tokens: int) -> None:
        self.num_cached_tokens = num_tokens


class Counting(Runtime):
    """A runtime over the tiny model, or over a target of its own, that counts the sequences it hands out."""

    def __init__(self, model: Any = None, tokenizer: Any = None, writes: str | None = None) -> None:
        super().__init__(wrap_model(model or tiny_llama(), tokenizer or byte_tokenizer()))
        self.writes = writes
        self.num_targets = 0

    def new_target(self) -> Target:
        self.num_targets += 1
        if self.writes is None:
            return super().new_target()
        return Writer(self.canonical_tokens(self.writes), self.vocabulary.stop_ids[0])


def test_the_example_is_in_exactly_our_styles() -> None:
    """Each rendering is a text of its own style's grammar, and of no other style's."""
    for asked in RENDERINGS:
        grammar = lower(Person, whitespace=asked).grammar
        for written, text in RENDERINGS.items():
            assert accepts(grammar, text.encode()) == (written is asked)
    assert len({json.dumps(json.loads(text)) for text in RENDERINGS.values()}) == 1


def test_scores_are_the_law_of_the_renderings() -> None:
    """Each score is the log-probability of the rendering and its end after the prompt, as one full pass gives it."""
    runtime = Counting()
    prompt = list(runtime.encode(PROMPT))
    truth = []
    for text in RENDERINGS.values():
        tokens = list(runtime.canonical_tokens(text))
        with torch.no_grad():
            logits = runtime.loaded.model(input_ids=torch.tensor([prompt + tokens]), use_cache=False).logits[0]
        rows = torch.log_softmax(logits[len(prompt) - 1 :, : runtime.vocabulary.size], 1)
        total = math.fsum(float(rows[i, token_id]) for i, token_id in enumerate(tokens))
        truth.append(total + float(rows[-1, list(runtime.vocabulary.stop_ids)].logsumexp(0)))
    scores = style_scores(runtime)
    np.testing.assert_allclose(scores, truth, rtol=0, atol=1e-10)
    assert preferred_whitespace(runtime, folder=None) is list(RENDERINGS)[truth.index(max(truth))]


@pytest.mark.parametrize("favourite", RENDERINGS)
def test_what_the_model_writes_wins(favourite: Whitespace) -> None:
    """A model that writes the example in a style, if it writes by itself, has that style."""
    assert preferred_whitespace(Counting(writes=RENDERINGS[favourite]), folder=None) is favourite


@pytest.mark.parametrize(
    ("scores", "winner"),
    [
        ([-5.0, -5.0, -5.0], Whitespace.SPACED),
        ([-5.0, -4.0, -4.0], Whitespace.COMPACT),
        ([-math.inf] * 3, Whitespace.SPACED),
        ([math.nan] * 3, Whitespace.SPACED),
        ([math.nan, -math.inf, -900.0], Whitespace.PRETTY),
    ],
)
def test_ties_and_what_is_no_number(monkeypatch: pytest.MonkeyPatch, scores: list[float], winner: Whitespace) -> None:
    """Of equals the first wins, SPACED before all; a score that is no number wins nothing."""
    monkeypatch.setattr(style, "style_scores", lambda model: np.array(scores))
    assert preferred_whitespace(Counting(), folder=None) is winner


def without_newline() -> Any:
    """Return a tokenizer that cannot write one line break."""
    tokenizer = byte_tokenizer()
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["model"]["vocab"]["ĊĊ"] = state["model"]["vocab"].pop("Ċ")  # every id stays where it is
    tokenizer._tokenizer = type(tokenizer.backend_tokenizer).from_str(json.dumps(state))
    return tokenizer


def test_a_style_that_cannot_be_written_is_none() -> None:
    """Without a token for the line break the other two styles are compared."""
    scores = dict(zip(RENDERINGS, style_scores(Counting(tokenizer=without_newline())), strict=True))
    assert [found for found, score in scores.items() if score == -math.inf] == [Whitespace.PRETTY]


@pytest.mark.parametrize("context", [8, 200])
def test_a_context_without_room(context: int) -> None:
    """Where prompt, or prompt and example, do not fit, no pass is made and the style is the one without a model."""
    runtime = Counting(tiny_llama(max_position_embeddings=context), writes=RENDERINGS[Whitespace.PRETTY])
    assert preferred_whitespace(runtime, folder=None) is Whitespace.SPACED
    assert runtime.num_targets == 0


def test_a_template_that_refuses_one_turn() -> None:
    """Where the chat template does not take the prompt, it is sent as text."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('system first') }}"
    plain = byte_tokenizer()
    plain.chat_template = None
    np.testing.assert_array_equal(style_scores(Counting(tokenizer=tokenizer)), style_scores(Counting(tokenizer=plain)))


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_later_process_only_reads(tmp_path: Path) -> None:
    """The second runtime of a model finds the style without a pass."""
    pretty = RENDERINGS[Whitespace.PRETTY]
    first, second = Counting(writes=pretty), Counting(writes=pretty)
    assert preferred_whitespace(first, folder=tmp_path) is preferred_whitespace(second, folder=tmp_path)
    assert (first.num_targets, second.num_targets) == (1, 0)


def changed(model: Any, change: Callable[[Any], None]) -> Any:
    """Return the model after a change."""
    with torch.no_grad():
        change(model)
    return model


def with_template() -> Any:
    """Return a tokenizer with another chat template."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = tokenizer.chat_template.replace("assistant: ", "bot: ")
    return tokenizer


OTHERS: dict[str, Callable[[], Runtime]] = {
    "weights of one layer": lambda: Counting(
        changed(tiny_llama(), lambda model: model.model.layers[0].mlp.up_proj.weight.mul_(1.001))
    ),
    "width": lambda: Counting(tiny_llama(vocab_size=280)),
    "context": lambda: Counting(tiny_llama(max_position_embeddings=1024)),
    "dtype": lambda: Counting(tiny_llama().float()),
    "configuration": lambda: Counting(changed(tiny_llama(), lambda model: setattr(model.config, "rms_norm_eps", 1e-3))),
    "template": lambda: Counting(tokenizer=with_template()),
    "vocabulary": lambda: Counting(tokenizer=without_newline()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_model_is_another_entry(name: str) -> None:
    """Whatever the scores depend on is in the fingerprint; the same model made again has the same one."""
    assert fingerprint(OTHERS[name]()) == fingerprint(OTHERS[name]()) != fingerprint(Counting())


def test_the_fingerprint_takes_any_dtype() -> None:
    """Weights in bfloat16, which numpy does not have, and weights that are not in memory, are no obstacle."""
    assert fingerprint(Counting(tiny_llama().bfloat16())) != fingerprint(Counting(tiny_llama().to(torch.float16)))
    assert fingerprint(Counting(tiny_llama().to("meta"))) != fingerprint(Counting())


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "another name inside": lambda path: path.write_bytes(path.read_bytes().replace(b"scores", b"scorex")),
    "flipped bits": lambda path: path.write_bytes(
        path.read_bytes().replace(read_arrays(path)["scores"].tobytes(), b"\xff" * 24)
    ),
    "empty": lambda path: path.write_bytes(b""),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_made_again(tmp_path: Path, name: str) -> None:
    """What cannot be read is worked out anew, and replaced where that is possible."""
    compact = RENDERINGS[Whitespace.COMPACT]
    preferred_whitespace(Counting(writes=compact), folder=tmp_path)
    (path,) = tmp_path.iterdir()
    DAMAGE[name](path)
    again = Counting(writes=compact)
    assert preferred_whitespace(again, folder=tmp_path) is Whitespace.COMPACT
    assert again.num_targets == 1
    later = Counting(writes=compact)
    assert preferred_whitespace(later, folder=tmp_path) is Whitespace.COMPACT
    assert later.num_targets == (1 if name == "folder" else 0)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """It costs the passes each time, and is no error."""
    (tmp_path / "file").write_text("in the way")
    runtime = Counting(writes=RENDERINGS[Whitespace.COMPACT])
    for _ in range(2):
        assert preferred_whitespace(runtime, folder=tmp_path / "file") is Whitespace.COMPACT
    assert runtime.num_targets == 2


def test_scores_of_other_code_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the example or of the scoring the model is scored again."""
    preferred_whitespace(Counting(), folder=tmp_path)
    monkeypatch.setattr(array_store, "source_digest", lambda *parts: "of a later version")
    later = Counting()
    preferred_whitespace(later, folder=tmp_path)
    assert later.num_targets == 1


def test_threads_find_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads that ask one runtime share the work; its entry is in the user's cache directory."""
    monkeypatch.setattr(style.platformdirs, "user_cache_path", lambda name: tmp_path / name)
    runtime = Counting(writes=RENDERINGS[Whitespace.PRETTY])
    barrier = threading.Barrier(4)
    found: list[Whitespace] = []

    def ask() -> None:
        barrier.wait()
        found.append(runtime.whitespace)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Whitespace.PRETTY] * 4
    assert runtime.num_targets == 1
    assert len(list((tmp_path / "structgen" / "styles").iterdir())) == 1
