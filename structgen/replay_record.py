"""ReplayRecord: what a run depended on, as a value that can be stored as JSON and run again (replaying.py)."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints, runtime_checkable

from structgen.config import DraftMode, Limits, Sampling, Speculation
from structgen.drafter import Drafter
from structgen.errors import OptionError, StructgenError, shown

_FORMAT = "structgen.ReplayRecord.1"
# How a number that JSON does not have is written: logit_bias may hold it.
_INFINITE = {"inf": float("inf"), "-inf": float("-inf")}


@runtime_checkable
class _OfModel(Protocol):
    """A drafter that is a model."""

    @property
    def digest(self) -> str:
        """The fingerprint of the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeculationRecord:
    """The options of speculation as they can be stored; the names are those of Speculation.

    Attributes:
        drafters: each as it is written in Python.
        model_digests: of the drafters that are models: fingerprints like that of the target, but of the weights that
            they draft with, rounded ones included.
    """

    drafters: tuple[str, ...]
    max_draft_tokens: int
    mode: DraftMode
    adaptive: bool
    model_digests: tuple[str, ...]

    @classmethod
    def of(cls, speculation: Speculation, drafters: Sequence[Drafter]) -> SpeculationRecord:
        """Return what is stored of some options, and of the drafters that they came to."""
        return cls(
            drafters=tuple(repr(drafter) for drafter in drafters),
            max_draft_tokens=speculation.max_draft_tokens,
            mode=speculation.mode,
            adaptive=speculation.adaptive,
            model_digests=tuple(drafter.digest for drafter in drafters if isinstance(drafter, _OfModel)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRecord:
    """What a run depended on: the same record with the same model gives the same tokens, see `structgen.replay`.

    Attributes:
        versions: package name to version of what took part (structgen, torch, transformers).
        model: name or path of the model.
        dtype: element type of the model's weights, such as "float32".
        device: device that the model ran on.
        backend: what computed there, such as the instruction set of the processor, and whether layers were packed.
        threads: threads that torch used.
        model_digest: fingerprint of the model's configuration and of a part of each weight tensor.
        vocabulary_digest: digest of the vocabulary.
        tokenizer_digest: fingerprint of how texts become tokens.
        chat_template_digest: fingerprint of the chat template.
        automaton_digest: digest of the compiled output type.
        grammar: the compiled grammar itself, the generation policy applied, as printable text.
        limits: what it was compiled under.
        answers: the answers of Choice(exact=True) in their order, None for every other type.
        seed: seed of the noise, drawn if none was given.
        sampling: sampling options.
        speculation: how tokens were drafted ahead.
        drafts: tokens that were drafted for each pass, that over the prompt included: token ids, and -1 - id for a
            token that was drawn with noise of its own (mode "exact_ratio").
        max_tokens: token budget.
        stop: strings that end the text.
        deterministic: whether the call asked for nothing but prompt, options and seed to have a say.
        prompt_token_ids: the prompt as the model read it.
        token_ids: what was generated.
    """

    versions: dict[str, str]
    model: str
    dtype: str
    device: str
    backend: str
    threads: int
    model_digest: str
    vocabulary_digest: str
    tokenizer_digest: str
    chat_template_digest: str
    automaton_digest: str
    grammar: str
    limits: Limits
    answers: tuple[str, ...] | None
    seed: int
    sampling: Sampling
    speculation: SpeculationRecord
    drafts: tuple[tuple[int, ...], ...]
    max_tokens: int
    stop: tuple[str, ...]
    deterministic: bool
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]

    def __repr__(self) -> str:
        """Show what was asked for, and counts in the place of token ids and digests."""
        return (
            f"ReplayRecord(model={self.model!r}, dtype={self.dtype!r}, device={self.device!r}, seed={self.seed}, "
            f"{self.sampling!r}, max_tokens={self.max_tokens}, {len(self.prompt_token_ids)} prompt tokens, "
            f"{len(self.token_ids)} tokens)"
        )

    def to_json(self) -> str:
        """Return the record as one line of JSON, which `from_json` reads."""
        values = {one.name: _plain(getattr(self, one.name)) for one in fields(self)}
        return json.dumps({"format": _FORMAT, **values}, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> ReplayRecord:
        """Return the record of a JSON text.

        Raises:
            OptionError: it is no record, or one of another version.
        """
        if not isinstance(text, str | bytes):
            raise OptionError(f"from_json reads a text, as to_json gave it, not {type(text).__name__}")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OptionError(f"this is no JSON, so no record of a run: {shown(text)}") from error
        if not isinstance(data, dict) or data.pop("format", None) != _FORMAT:
            raise OptionError(f"this is no record of a run that this version reads: its format is not {_FORMAT!r}")
        record: ReplayRecord = _read(cls, data, "record")
        return record


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; types are told again by the fields that they are of."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value in _INFINITE.values():
        return str(value)
    if hasattr(value, "__dataclass_fields__"):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return value


def _read(kind: Any, data: Any, place: str) -> Any:
    """Return a dataclass from its JSON, each field held to its type."""
    if not isinstance(data, dict):
        raise OptionError(f"{place} must be an object, not {shown(data)}")
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    if set(data) != set(names):
        wrong = sorted(set(data) ^ set(names))[0]
        raise OptionError(f"{place} has {'no' if wrong in names else 'an unknown'} field {shown(wrong)}")
    values = {name: _value(hints[name], data[name], f"{place}.{name}") for name in names}
    try:
        return kind(**values)
    except StructgenError as error:
        raise OptionError(f"{place}: {error}") from error


def _value(hint: Any, data: Any, place: str) -> Any:
    """Return a value of a type from its JSON."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (kind,) = [part for part in parts if part is not type(None)]
        return None if data is None else _value(kind, data, place)
    if origin is tuple:
        _require(isinstance(data, list), place, "a list", data)
        return tuple(_value(parts[0], item, f"{place}[{index}]") for index, item in enumerate(data))
    if origin in (dict, Mapping):
        _require(isinstance(data, dict), place, "an object", data)
        return {_key(parts[0], key, place): _value(parts[1], item, f"{place}[{key}]") for key, item in data.items()}
    if origin is Literal:
        _require(isinstance(data, str) and data in parts, place, " or ".join(map(repr, parts)), data)
        return data
    if hasattr(hint, "__dataclass_fields__"):
        return _read(hint, data, place)
    if hint is float:
        number = _INFINITE.get(data, data) if isinstance(data, str) else data
        _require(isinstance(number, int | float) and not isinstance(number, bool), place, "a number", data)
        return number
    if hint is int or hint is bool:
        _require(type(data) is hint, place, f"of type {hint.__name__}", data)
        return data
    _require(isinstance(data, str), place, "a text", data)
    return hint(data)


def _key(hint: Any, key: str, place: str) -> Any:
    if hint is not int:
        return key
    _require(key.isascii() and key.isdigit() and len(key) < 20, place, "an object whose keys are token ids", key)
    return int(key)


def _require(holds: bool, place: str, what: str, data: object) -> None:  # noqa: FBT001 - a condition
    if not holds:
        raise OptionError(f"{place} must be {what}, not {shown(data)}")
