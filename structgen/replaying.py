"""sg.replay: run a record again, and say whether the same tokens came.

Left out: whether the value is the same, which depends on the type's own code and not on the model.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from structgen.api import Model, load
from structgen.decode.digests import backend_of
from structgen.decode.drafting import SpeculationSetup
from structgen.decode.exact_choice import ExactChoice
from structgen.decode.loop import Decoding, Request
from structgen.decode.runtime import Runtime, versions
from structgen.decode.script import Script
from structgen.drafter import DraftMemory
from structgen.errors import OptionError, StructgenError
from structgen.grammar.compile import compile_grammar
from structgen.grammar.stored import grammar_from_text
from structgen.replay_record import ReplayRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What came of running a record again.

    Attributes:
        text: the text of this run.
        token_ids: its tokens.
        first_difference: index of the first token that is another one, or is missing on one side; None if none is.
        differences: what is not as it was when the record was made, in words; each may move the last bits of logits.
    """

    text: str
    token_ids: tuple[int, ...]
    first_difference: int | None
    differences: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether the same tokens came."""
        return self.first_difference is None


def replay(record: ReplayRecord, *, model: Model | None = None) -> Replay:
    """Run a record again: the same prompt, grammar, options and noise.

    Args:
        record: of a report, or read by `ReplayRecord.from_json`.
        model: the model that it was made with; None loads it by the name, device and dtype in the record.

    Raises:
        OptionError: the model or its tokenizer is another one than that of the record, which names what differs; or it
            cannot be loaded by its name.

    Warns:
        UserWarning: versions, dtype, device or threads differ, which can change tokens where two are almost equally
            likely.
    """
    if not isinstance(record, ReplayRecord):
        raise OptionError(
            f"replay takes a ReplayRecord, not {type(record).__name__}: write result.report.record, or "
            "sg.ReplayRecord.from_json(text)"
        )
    if model is not None and not isinstance(model, Model):
        raise OptionError(f"model must be a Model or None, not {type(model).__name__}: write sg.load(...)")
    runtime = (_load(record) if model is None else model)._runtime
    _refuse_another(record, runtime)
    differences = _differences(record, runtime)
    if differences:
        warnings.warn(f"this replay is not under the same conditions: {'; '.join(differences)}", stacklevel=2)
    decoding = _decoding(record, runtime)
    decoding.run()
    return Replay(
        text=decoding.text,
        token_ids=tuple(decoding.token_ids),
        first_difference=_first_difference(record.token_ids, decoding.token_ids),
        differences=differences,
    )


def _load(record: ReplayRecord) -> Model:
    try:
        return load(record.model, device=record.device, dtype=record.dtype)
    except StructgenError as error:
        raise OptionError(
            f"the record names the model {record.model!r}, which cannot be loaded here ({error}); pass it as model="
        ) from error


def _refuse_another(record: ReplayRecord, runtime: Runtime) -> None:
    """Raise OptionError if what decides the tokens is not what the record was made with."""
    compared = {
        "model": (record.model_digest, runtime.identity.model_digest),
        "vocabulary": (record.vocabulary_digest, runtime.vocabulary.digest),
        "tokenizer": (record.tokenizer_digest, runtime.identity.tokenizer_digest),
    }
    for what, (recorded, here) in compared.items():
        if recorded != here:
            raise OptionError(
                f"the {what} is another one than that of the record ({here[:12]}, and the record has {recorded[:12]}): "
                f"load the model that the record was made with, {record.model!r}"
            )


def _differences(record: ReplayRecord, runtime: Runtime) -> tuple[str, ...]:
    """Return in words what differs and may have a say in the last bits, or in how a prompt would be read now."""
    import torch

    compared = {
        "dtype": (record.dtype, runtime.dtype),
        "device": (record.device, str(runtime.device)),
        "backend": (record.backend, backend_of(runtime.device)),
        "threads": (str(record.threads), str(torch.get_num_threads())),
    }
    here = versions()
    for package, version in record.versions.items():
        compared[package] = (version, here.get(package, "not installed"))
    differences = [f"{what} {now}, was {was}" for what, (was, now) in compared.items() if was != now]
    if record.chat_template_digest != runtime.identity.chat_template_digest:
        # The prompt is in the record as token ids, so this replay is the same; a new call is not.
        differences.append("the chat template is another one, so the same messages are another prompt now")
    return tuple(differences)


def _decoding(record: ReplayRecord, runtime: Runtime) -> Decoding | ExactChoice:
    """Return the run before its first token."""
    request = Request(
        prompt_token_ids=record.prompt_token_ids,
        max_tokens=record.max_tokens,
        seed=record.seed,
        sampling=record.sampling,
        stop=record.stop,
    )
    if record.answers is not None:
        answers = {answer: runtime.canonical_tokens(answer) for answer in record.answers}
        return ExactChoice(runtime.new_target(), runtime.vocabulary, answers, request)
    automaton = compile_grammar(grammar_from_text(record.grammar), runtime.vocabulary, limits=record.limits)
    if automaton.digest != record.automaton_digest:
        raise OptionError(
            "the grammar of this record is not the one that its tokens were drawn under: the record was changed, or "
            "another version of structgen writes grammars in another form"
        )
    script = Script(record.drafts)
    setup = SpeculationSetup(drafters=(script,), control=script, memory=DraftMemory(), mode=record.speculation.mode)
    return Decoding(runtime.new_target(), automaton.start(), runtime.vocabulary, request, setup)


def _first_difference(recorded: tuple[int, ...], here: list[int]) -> int | None:
    for index, (was, now) in enumerate(zip(recorded, here, strict=False)):
        if was != now:
            return index
    return None if len(recorded) == len(here) else min(len(recorded), len(here))
