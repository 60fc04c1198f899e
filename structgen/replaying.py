"""sg.replay: run a record again, and say whether the same tokens came.

Left out: whether the value is the same, which depends on the type's own code and not on the model.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from structgen.api import Model, load
from structgen.config import check_kind
from structgen.decode.drafters import DraftModel
from structgen.decode.drafting import SpeculationSetup
from structgen.decode.exact_choice import ExactChoice
from structgen.decode.loop import Decoding, Request
from structgen.decode.runtime import Runtime, versions
from structgen.decode.script import Script
from structgen.drafter import Drafter, DraftMemory
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


def replay(record: ReplayRecord, *, model: Model | None = None, draft_model: Model | None = None) -> Replay:
    """Run a record again: the same prompt, grammar, options and noise, in passes over the same drafts.

    Args:
        record: of a report, or read by `ReplayRecord.from_json`.
        model: the model that it was made with; None loads it by the name, device and dtype in the record.
        draft_model: that which drafted; needed only where a draft model had noise of its own (mode "exact_ratio").

    Raises:
        OptionError: a model or its tokenizer is another one than that of the record, which names what differs; or it
            cannot be loaded by its name; or the draft model is needed.

    Warns:
        UserWarning: versions, dtype, device, packed layers or threads differ, which can change tokens where two are
            almost equally likely.
    """
    if not isinstance(record, ReplayRecord):
        raise OptionError(
            f"replay takes a ReplayRecord, not {type(record).__name__}: write result.report.record, or "
            "sg.ReplayRecord.from_json(text)"
        )
    check_kind("model", model, Model, write="sg.load(...)")
    check_kind("draft_model", draft_model, Model, write="sg.load(...)")
    runtime = (_load(record) if model is None else model)._runtime
    _refuse_another(record, runtime)
    differences = _differences(record, runtime)
    if differences:
        warnings.warn(f"this replay is not under the same conditions: {'; '.join(differences)}", stacklevel=2)
    decoding = _decoding(record, runtime, draft_model)
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
        "backend": (record.backend, runtime.backend),
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


def _drafters(record: ReplayRecord, draft_model: Model | None) -> tuple[Script, tuple[Drafter, ...]]:
    """Return the drafts of a record, and who drafts them again."""
    script = Script(record.drafts)
    if all(token_id >= 0 for draft in record.drafts for token_id in draft):
        return script, (script,)
    if draft_model is None:
        raise OptionError(
            "in this run a draft model drafted with noise of its own (mode 'exact_ratio'), so its drafts have to be "
            f"drawn again: pass it as draft_model= ({' '.join(record.speculation.drafters)})"
        )
    drafter = DraftModel(draft_model)
    if drafter.digest not in record.speculation.model_digests:
        raise OptionError(
            "the draft model is another one than that of the record: load the one that the record was made with "
            f"({' '.join(record.speculation.drafters)})"
        )
    return script, (script, drafter)


def _decoding(record: ReplayRecord, runtime: Runtime, draft_model: Model | None) -> Decoding | ExactChoice:
    """Return the run before its first token."""
    request = Request(
        prompt_token_ids=record.prompt_token_ids,
        max_tokens=record.max_tokens,
        seed=record.seed,
        sampling=record.sampling,
        stop=record.stop,
    )
    target = runtime.new_target(deterministic=record.deterministic)
    if record.answers is not None:
        answers = {answer: runtime.canonical_tokens(answer) for answer in record.answers}
        return ExactChoice(target, runtime.vocabulary, answers, request)
    automaton = compile_grammar(grammar_from_text(record.grammar), runtime.vocabulary, limits=record.limits)
    if automaton.digest != record.automaton_digest:
        raise OptionError(
            "the grammar of this record is not the one that its tokens were drawn under: the record was changed, or "
            "another version of structgen writes grammars in another form"
        )
    script, drafters = _drafters(record, draft_model)
    setup = SpeculationSetup(drafters=drafters, control=script, memory=DraftMemory(), mode=record.speculation.mode)
    return Decoding(target, automaton.start(), runtime.vocabulary, request, setup)


def _first_difference(recorded: tuple[int, ...], here: list[int]) -> int | None:
    for index, (was, now) in enumerate(zip(recorded, here, strict=False)):
        if was != now:
            return index
    return None if len(recorded) == len(here) else min(len(recorded), len(here))
