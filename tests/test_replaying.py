"""A record of a run can be stored, read back, and run again; what is not the same is refused or told by name."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch
from pydantic import BaseModel, Field

import structgen as sg
from records import make_record
from structgen.grammar.canonical import canonical_text
from structgen.grammar.stored import grammar_from_text, grammar_to_text
from structgen.output_type import lower
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Person(BaseModel):
    """A type with a counter, a choice and recursion."""

    name: Annotated[str, Field(max_length=8)]
    age: Annotated[int, Field(ge=0, le=120)]
    kind: Literal["a", "b"]
    friend: Person | None = None


TYPES: dict[str, Any] = {
    "text": str,
    "object": Person,
    "pattern": sg.Regex(r"[a-z]{3,10}-\d+"),
    "schema": sg.JsonSchema({"type": "object", "maxProperties": 2}),
    "grammar": sg.Lark('start: "(" start? ")" | /x+/'),
    "choice": sg.Choice(["red", "green"]),
}


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """A tiny model with random weights."""
    return sg.Model(tiny_llama(max_position_embeddings=256), byte_tokenizer())


def record_of(model: sg.Model, output_type: Any, **options: Any) -> sg.ReplayRecord:
    """Run once and return the record, as it is after it was stored."""
    report = model.run(output_type, "x", **options).report
    return sg.ReplayRecord.from_json(report.record.to_json())


@pytest.mark.parametrize("name", TYPES)
def test_a_stored_record_gives_the_same_tokens_without_the_type(model: sg.Model, name: str) -> None:
    """Only the text of the record and the model are needed; the seed of another run gives other tokens."""
    options: dict[str, Any] = {"sampling": sg.Sampling(temperature=2.0), "max_tokens": 60, "whitespace": "spaced"}
    record = record_of(model, TYPES[name], seed=5, **options)
    again = sg.replay(record, model=model)
    assert again.is_same
    assert again.token_ids == record.token_ids
    assert again.differences == ()
    other = sg.replay(dataclasses.replace(record, seed=6), model=model)
    assert name == "choice" or not other.is_same


@pytest.mark.parametrize("name", TYPES)
def test_a_record_of_the_exact_language_is_replayed(model: sg.Model, name: str) -> None:
    """Without a policy the grammar is compiled as it was declared; the record has all of it nevertheless."""
    record = record_of(model, TYPES[name], seed=5, max_tokens=60, whitespace="spaced", policy=None)
    assert sg.replay(record, model=model).is_same


def test_an_exact_choice_is_drawn_again(model: sg.Model) -> None:
    """The law over whole answers is not that of tokens under a mask, and a replay draws by the same."""
    texts = set()
    for seed in range(12):
        record = record_of(model, sg.Choice(["red", "green", "blue"], exact=True), seed=seed)
        again = sg.replay(record, model=model)
        assert again.is_same
        texts.add(again.text)
    assert len(texts) > 1


def test_every_option_has_a_say(model: sg.Model) -> None:
    """Stop strings, penalties, truncation, bias and the budget come back with the record."""
    sampling = sg.Sampling(
        temperature=0.9, top_k=40, min_p=0.001, repetition_penalty=1.3, logit_bias={101: -math.inf, 102: 1.5}
    )
    record = record_of(model, str, seed=1, sampling=sampling, stop=["q"], max_tokens=40)
    assert record.sampling == sampling
    assert record.stop == ("q",)
    assert sg.replay(record, model=model).is_same


def test_what_came_is_told_where_it_differs(model: sg.Model) -> None:
    """A record whose tokens were changed is not the same: the first place, and a text that ends elsewhere."""
    record = record_of(model, sg.Regex("[a-z]{24}"), seed=2)
    changed = (*record.token_ids[:3], record.token_ids[3] + 1, *record.token_ids[4:])
    assert sg.replay(dataclasses.replace(record, token_ids=changed), model=model).first_difference == 3
    assert sg.replay(dataclasses.replace(record, token_ids=record.token_ids[:4]), model=model).first_difference == 4


def test_another_model_or_tokenizer_is_refused_by_name(model: sg.Model) -> None:
    """Weights that were trained on, one tensor of them, and a digest of a tokenizer that is not ours."""
    record = record_of(model, bool, seed=0)
    trained = tiny_llama(max_position_embeddings=256)
    with torch.no_grad():
        trained.lm_head.weight.add_(1e-3)
    with pytest.raises(sg.OptionError, match="the model is another one"):
        sg.replay(record, model=sg.Model(trained, byte_tokenizer()))
    with pytest.raises(sg.OptionError, match="the vocabulary is another one"):
        sg.replay(dataclasses.replace(record, vocabulary_digest="f" * 64), model=model)
    with pytest.raises(sg.OptionError, match="the tokenizer is another one"):
        sg.replay(dataclasses.replace(record, tokenizer_digest="f" * 64), model=model)


def test_a_grammar_that_was_changed_is_refused(model: sg.Model) -> None:
    """The tokens were not drawn under it."""
    record = record_of(model, bool, seed=0)
    other = grammar_to_text(lower(int).grammar)
    with pytest.raises(sg.OptionError, match="not the one that its tokens were drawn under"):
        sg.replay(dataclasses.replace(record, grammar=other), model=model)


@pytest.mark.parametrize("text", ["", "x", "{" * 9, "é", grammar_to_text(lower(bool).grammar)[:-9]])
def test_a_grammar_that_is_damaged_is_refused(model: sg.Model, text: str) -> None:
    """Whatever stands in its place."""
    with pytest.raises(sg.OptionError, match="grammar of this record is damaged"):
        sg.replay(dataclasses.replace(record_of(model, bool, seed=0), grammar=text), model=model)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("versions", {"torch": "0.1"}, "torch .*, was 0.1"),
        ("threads", 99, "threads .*, was 99"),
        ("dtype", "bfloat16", "dtype float64, was bfloat16"),
        ("device", "cuda:7", "device cpu, was cuda:7"),
        ("backend", "abacus", "backend .*, was abacus"),
        ("chat_template_digest", "0", "chat template is another one"),
    ],
)
def test_other_conditions_are_a_warning_by_name(model: sg.Model, field: str, value: Any, words: str) -> None:
    """What may move the last bits is told, and the replay is made."""
    record = dataclasses.replace(record_of(model, bool, seed=0), **{field: value})
    with pytest.warns(UserWarning, match=words):
        again = sg.replay(record, model=model)
    assert again.is_same
    assert len(again.differences) == 1


def test_a_model_that_cannot_be_loaded_by_its_name_is_asked_for(model: sg.Model) -> None:
    """A wrapped model has no name that leads back to it."""
    record = dataclasses.replace(record_of(model, bool, seed=0), model="./no/such/folder")
    with pytest.raises(sg.OptionError, match="pass it as model="):
        sg.replay(record)


def test_the_digest_knows_weights_and_not_their_dtype() -> None:
    """The same weights in float64 are the same model; that of the tokenizer is not moved by its use."""
    plain = tiny_llama(max_position_embeddings=256).to(torch.float32)
    tokenizer = byte_tokenizer()
    first = sg.Model(plain, tokenizer)
    digest = record_of(first, bool, seed=0)
    tokenizer("some text", truncation=True, max_length=3)
    wide = sg.Model(plain.to(torch.float64), tokenizer)
    with pytest.warns(UserWarning, match="dtype float64, was float32"):
        sg.replay(digest, model=wide)


def test_packed_layers_are_told(tmp_path: Path) -> None:
    """They take their sums in another order than plain ones, so a replay says where they were not packed alike."""
    plain = tiny_llama(max_position_embeddings=256).to(torch.float32)
    plain.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    packed, unpacked = (sg.load(tmp_path, device="cpu", packed=how) for how in ("auto", False))
    if "packed" not in repr(packed):
        pytest.skip("this processor packs no layers")
    record = record_of(unpacked, bool, seed=0)
    with pytest.warns(UserWarning, match="backend cpu .*, packed layers, was cpu"):
        sg.replay(record, model=packed)
    assert sg.replay(record, model=unpacked).differences == ()
    assert sg.replay(record_of(packed, bool, seed=0), model=packed).differences == ()


def test_a_record_survives_json_whole(model: sg.Model) -> None:
    """What is read is equal to what was written, and written again it is the same text."""
    record = model.run(Person, "x", seed=3, sampling=sg.Sampling(logit_bias={3: -math.inf}), whitespace="spaced")
    text = record.report.record.to_json()
    read = sg.ReplayRecord.from_json(text)
    assert read == record.report.record
    assert read.to_json() == text
    assert sg.ReplayRecord.from_json(text.encode()) == read


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": "3"}, "record.seed must be of type int"),
        ({"seed": True}, "record.seed must be of type int"),
        ({"token_ids": [1, None]}, r"record.token_ids\[1\] must be of type int"),
        ({"token_ids": 5}, "record.token_ids must be a list"),
        ({"versions": ["x"]}, "record.versions must be an object"),
        ({"sampling": {}}, "record.sampling has no field"),
        ({"extra": 1}, "record has an unknown field 'extra'"),
        ({"format": "other"}, "no record of a run that this version reads"),
        ({"model": None}, "record.model must be a text"),
        ({"deterministic": 1}, "record.deterministic must be of type bool"),
    ],
)
def test_what_is_no_record_is_refused_by_its_place(change: dict[str, Any], words: str) -> None:
    """Each field is held to its type."""
    data = json.loads(make_record().to_json()) | change
    with pytest.raises(sg.OptionError, match=words):
        sg.ReplayRecord.from_json(json.dumps(data))


def test_options_out_of_range_are_refused_in_a_record_too() -> None:
    """Sampling and limits check themselves; a bias must be by token id."""
    data = json.loads(make_record().to_json())
    for change, words in (
        ({"temperature": -1}, "record.sampling: temperature must be at least 0"),
        ({"logit_bias": {"x": 1}}, "keys are token ids"),
        ({"top_k": 1.5}, "record.sampling.top_k must be of type int"),
    ):
        changed = data | {"sampling": data["sampling"] | change}
        with pytest.raises(sg.OptionError, match=words):
            sg.ReplayRecord.from_json(json.dumps(changed))


@pytest.mark.parametrize("name", TYPES)
def test_a_grammar_as_text_is_the_grammar(name: str) -> None:
    """Its canonical text is the same, names for messages too, and equal grammars give equal texts."""
    grammar = lower(TYPES[name], whitespace="spaced").grammar
    text = grammar_to_text(grammar)
    again = grammar_from_text(text)
    assert canonical_text(again) == canonical_text(grammar)
    assert dict(again.rules) == dict(grammar.rules)
    assert grammar_to_text(again) == text
    assert len(text) < 20_000


def test_replays_do_not_warn_by_themselves(model: sg.Model) -> None:
    """In the process that made the record nothing differs."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sg.replay(model.run(bool, "x", seed=0).report.record, model=model).is_same


def smaller() -> sg.Model:
    """A model that writes nearly what the other one does."""
    near = tiny_llama(max_position_embeddings=256)
    with torch.no_grad():
        for parameter in near.parameters():
            parameter.mul_(1 + 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return sg.Model(near, byte_tokenizer())


@pytest.mark.parametrize("mode", ["coupled", "exact_ratio"])
def test_drafts_of_a_model_are_drafted_again(model: sg.Model, mode: Any) -> None:
    """With the noise of the text the drafts of the record are enough; with noise of their own the model is needed."""
    draft_model = smaller()
    speculation = sg.Speculation(
        drafters=[sg.drafters.ForcedRun(), sg.drafters.DraftModel(draft_model)],
        mode=mode,
        max_draft_tokens=4,
        adaptive=False,
    )
    accepted = drafted = 0
    for seed in range(5):
        report = model.run(
            Person, "x", seed=seed, speculation=speculation, whitespace="spaced", sampling=sg.Sampling(temperature=0.7)
        ).report
        record = sg.ReplayRecord.from_json(report.record.to_json())
        accepted += report.accepted.get("DraftModel", 0)
        drafted += report.drafted.get("DraftModel", 0)
        if mode == "coupled":
            assert sg.replay(record, model=model).is_same
            continue
        assert any(token_id < 0 for draft in record.drafts for token_id in draft)
        assert sg.replay(record, model=model, draft_model=draft_model).is_same
        with pytest.raises(sg.OptionError, match="pass it as draft_model="):
            sg.replay(record, model=model)
        with pytest.raises(sg.OptionError, match="the draft model is another one"):
            sg.replay(record, model=model, draft_model=model)
    assert 0 < accepted < drafted
