"""Every public callable, with each of its arguments replaced by values of every kind: only errors of ours come out."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import structgen as sg
from tiny_tokenizer import byte_tokenizer, tiny_llama


class Silent:
    """What cannot be written down, compared or hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")


def deep_list(depth: int) -> list[Any]:
    """Return lists in lists, deeper than Python follows."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


HOSTILE: dict[str, Any] = {
    "None": None,
    "True": True,
    "zero": 0,
    "minus one": -1,
    "huge int": 10**30,
    "unwritable int": 10**5000,
    "fraction": 0.5,
    "nan": math.nan,
    "minus inf": -math.inf,
    "empty text": "",
    "text": "x",
    "huge text": "x" * 100_000,
    "half a character": "\ud800",
    "zero byte": "\0",
    "bytes": b"x",
    "empty list": [],
    "deep list": deep_list(100_000),
    "list of anything": [None, "x", 3, Silent()],
    "pairs": [(1, 2, 3)],
    "empty dict": {},
    "dict": {"x": Silent(), 1: 2},
    "set": {1},
    "array": np.array([1.5, 2.5]),
    "class": int,
    "function": len,
    "lambda": lambda *_, **__: Silent(),
    "object": object(),
    "silent object": Silent(),
    "class of silent objects": Silent,
}


class Call(NamedTuple):
    """One public callable.

    Attributes:
        of: the callable.
        made: gives it ready to be called, as often as wanted.
        valid: arguments that it takes, by name.
    """

    of: Callable[..., Any]
    made: Callable[[], Callable[..., Any]]
    valid: Mapping[str, Any]


@sg.tool(destructive=True)
def delete(days: int) -> None:
    """Delete what is older."""


@functools.cache
def model() -> sg.Model:
    """Return a tiny model, wrapped."""
    return sg.Model(tiny_llama(max_position_embeddings=128), byte_tokenizer())


VOCABULARY = sg.Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), b""], stop_ids=[256])
TYPE_OPTIONS = {"whitespace": "compact", "property_order": "declared", "policy": sg.Policy()}
RUN_OPTIONS: dict[str, Any] = {
    "sampling": sg.Sampling(),
    "max_tokens": 8,
    "stop": [],
    "seed": 1,
    "speculation": None,
    "route": None,
    "deterministic": False,
    "scope": None,
    "diagnostics": False,
}
CALL_OPTIONS = RUN_OPTIONS | TYPE_OPTIONS
STATE = sg.compile(bool, VOCABULARY).start

RECORD = model().run(bool, "x", seed=1).report.record


def call(of: Callable[..., Any], /, **valid: Any) -> Call:
    """Return a call of something that stands by itself."""
    return Call(of, lambda: of, valid)


def method(of: Callable[..., Any], owner: Callable[[], Any], /, **valid: Any) -> Call:
    """Return a call of a method, of an owner that is made for each call."""
    return Call(of, lambda: functools.partial(of, owner()), valid)


CALLS = (
    call(sg.load, name="./missing", device="cpu", dtype="float32", packed="auto"),
    call(sg.Model, model=model().hf_model, tokenizer=model().hf_tokenizer),
    call(sg.check, output_type=bool, property_order="any", policy=sg.Policy()),
    call(
        sg.compile,
        output_type=bool,
        vocabulary=VOCABULARY,
        limits=sg.Limits(),
        cache=None,
        whitespace="any",
        property_order="any",
    ),
    call(sg.fill_masks, states=[sg.compile(bool, VOCABULARY).start()], out=None),
    call(sg.speedup, acceptance=0.5, draft_tokens=4, draft_cost=0.1, verify_cost=1.0),
    call(sg.Raw, text="x"),
    call(sg.JsonSchema, schema={}, whitespace="any"),
    call(sg.Regex, pattern="a"),
    call(sg.Choice, items=["a"], exact=False),
    call(sg.Lark, grammar='start: "a"', start="start", lexer="dynamic", parse=False),
    call(sg.Limits, compile_seconds=1, states=1, memory_mb=1, depth=1),
    call(sg.Policy, max_whitespace=1, max_digits=1),
    call(
        sg.Sampling,
        temperature=1,
        top_k=None,
        top_p=None,
        min_p=None,
        repetition_penalty=1,
        presence_penalty=0,
        frequency_penalty=0,
        penalty_scope="everywhere",
        logit_bias={1: 1},
    ),
    call(
        sg.Speculation,
        drafters=[sg.drafters.ForcedRun()],
        max_draft_tokens=0,
        mode="coupled",
        adaptive=True,
        branches=0,
    ),
    call(sg.drafters.StateTable, max_states=1),
    call(sg.drafters.PromptLookup, min_match=1, max_outputs=0),
    call(sg.drafters.DraftModel, model=model()),
    call(sg.Whitespace, value="any"),
    call(sg.PenaltyScope, value="everywhere"),
    call(sg.CompileCache, directory=None, max_automata=1, max_disk_mb=1),
    call(sg.Vocabulary.from_bytes, tokens=[b"a"], stop_ids=[], special_ids=[]),
    call(sg.Vocabulary.from_tokenizer, tokenizer=byte_tokenizer(), stop_ids=[], cache_dir=None),
    call(sg.tool, function=delete, destructive=True),
    call(sg.Tool, function=delete, destructive=True),
    call(sg.ToolSet, tools=[delete], min_calls=0, max_calls=1),
    call(sg.ToolCall, name="delete", arguments={"days": 1}, tool=delete),
    call(sg.ReplayRecord.from_json, text=RECORD.to_json()),
    call(sg.replay, record=RECORD, model=model(), draft_model=None),
    method(sg.ToolCall.invoke, lambda: sg.ToolCall("delete", {"days": 1}, tool=delete), confirm=True),
    method(sg.Vocabulary.token_bytes, lambda: VOCABULARY, token_id=1),
    method(sg.Vocabulary.decode, lambda: VOCABULARY, token_ids=[1]),
    method(sg.Vocabulary.encode, lambda: VOCABULARY, data=b"a"),
    method(sg.ParserState.advance, STATE, token_id=116),
    method(sg.ParserState.allows, STATE, token_id=116),
    method(sg.ParserState.rollback, STATE, num_tokens=0),
    method(sg.ParserState.mask_within, STATE, budget=9),
    method(sg.TokenAutomaton.explain, lambda: sg.compile(bool, VOCABULARY), schema={}, property_order="any"),
    method(sg.TokenAutomaton.freeze_part, lambda: sg.compile(bool, VOCABULARY), num_states=100),
    method(sg.Model.generator, model, output_type=bool, **TYPE_OPTIONS),
    method(sg.Model.run, model, output_type=bool, prompt="x", **CALL_OPTIONS),
    method(sg.Model.generate, model, output_type=bool, prompt="x", **CALL_OPTIONS),
    method(sg.Model.stream, model, output_type=bool, prompt="x", **CALL_OPTIONS),
    method(sg.Model.generate_batch, model, output_type=bool, prompts=["x"], max_rows=2, **CALL_OPTIONS),
    method(sg.Model.run_batch, model, requests=[(bool, "x")], max_rows=2, **CALL_OPTIONS),
    method(sg.Generator.run, lambda: model().generator(bool), prompt="x", **RUN_OPTIONS),
    method(sg.Generator.__call__, lambda: model().generator(bool), prompt="x", **RUN_OPTIONS),
    method(sg.Generator.stream, lambda: model().generator(bool), prompt="x", **RUN_OPTIONS),
)

# What we make and hand out: nobody else calls these.
OURS = {
    *(
        "Bounded",
        "Objection",
        "Explanation",
        "Finding",
        "Generator",
        "ParserState",
        "Partial",
        "Replay",
        "ReplayRecord",
        "Report",
        "Result",
        "DrafterStatus",
    ),
    *("RouteMetrics", "TokenAutomaton", "Vocabulary"),
    *("CompileCache.compile", "CompileCache.scans_of", "CompileCache.store", "ToolCall.of_valid"),
    "TokenAutomaton.export",
}


def outcome(found: Call, **arguments: Any) -> str:
    """Call it and say what came of it: "" for a value, else the message of an error of ours."""
    made = found.made()
    signature = parameters(found.of)
    by_place = [name for name in arguments if signature[name].kind is inspect.Parameter.POSITIONAL_ONLY]
    placed = [arguments.pop(name) for name in by_place]
    try:
        given = made(*placed, **arguments)
        if isinstance(given, Iterator):
            list(given)
    except sg.StructgenError as error:
        return str(error)
    return ""


def parameters(of: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters that a caller gives."""
    found = dict(inspect.signature(of).parameters)
    found.pop("self", None)
    return found


def public_callables() -> dict[str, Callable[..., Any]]:
    """Return what an application can call, with at least one argument, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for name in sg.__all__:
        value = getattr(sg, name)
        if inspect.isclass(value) and issubclass(value, Exception):
            continue
        if callable(value):
            found[name] = value
        for own, member in vars(value).items() if inspect.isclass(value) else ():
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member) and (not own.startswith("_") or own == "__call__"):
                found[f"{name}.{own}"] = member
    return {name: value for name, value in found.items() if parameters(value).keys() - {"cls", "args", "kwargs"}}


def test_every_public_callable_is_here() -> None:
    """A new function, method or option cannot be forgotten."""
    known = {getattr(found.of, "__func__", found.of): found for found in CALLS}
    for name, value in public_callables().items():
        if name not in OURS:
            assert value in known, name
            names = {"value"} if issubclass(type(value), type(sg.Whitespace)) else parameters(value).keys() - {"cls"}
            assert known[value].valid.keys() == names, name


@pytest.mark.parametrize("found", CALLS, ids=lambda found: found.of.__qualname__)
def test_the_arguments_that_are_changed_one_by_one_are_valid(found: Call) -> None:
    """What is refused below is refused for the one argument that is not."""
    assert outcome(found, **found.valid) in {"", outcome(CALLS[0], **CALLS[0].valid)}


def is_meant(name: str, value: object) -> bool:
    """Say whether a value is no mistake: None loads the embedded model, a confirmation runs code of the caller."""
    return (name == "name" and value is None) or (name == "confirm" and callable(value))


@pytest.mark.parametrize("found", CALLS, ids=lambda found: found.of.__qualname__)
def test_only_errors_of_ours_come_out(found: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any value for any argument is taken, or refused with a message that can be written, and read at one glance."""
    monkeypatch.chdir(tmp_path)  # some of the values are names of folders
    for name in found.valid:
        for kind, value in HOSTILE.items():
            if is_meant(name, value):
                continue
            try:
                size = len(outcome(found, **{**found.valid, name: value}).encode())
            except Exception as error:
                raise AssertionError(f"{found.of.__qualname__}({name}=<{kind}>) lets out {type(error)}") from error
            assert size < 1000, (name, kind)


def test_the_net_holds_and_can_tear() -> None:
    """A foreign error is seen, and so is a message without an end."""
    with pytest.raises(RuntimeError, match="no comparison"):
        outcome(call(lambda value: value == 1, value=1), value=Silent())
    assert len(outcome(call(lambda value: sg.Regex(value), value="a"), value=5)) > 10
