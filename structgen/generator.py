"""Generator[T]: a model and an output type, bound and compiled once, called many times.

Left out: how a type becomes a grammar (output_type.py), a grammar an automaton (grammar/compile.py), and which
generators a model keeps (generator_pool.py).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from structgen.call_options import CallSettings, RunOptions, TypeSettings, settings_of, takes
from structgen.calls import Call, DeviceCallRow, HostCallRow
from structgen.config import Sampling, Speculation
from structgen.drafter import DraftMemories
from structgen.errors import OptionError
from structgen.partial import Partial
from structgen.replay_record import ReplayRecord, SpeculationRecord
from structgen.report import Result

if TYPE_CHECKING:
    from structgen.config import Limits
    from structgen.decode.batch_loop import Row
    from structgen.decode.device_loop import DeviceDecoding, DeviceRequest
    from structgen.decode.exact_choice import ExactChoice
    from structgen.decode.loop import Decoding, Request
    from structgen.decode.prompt import Prompt
    from structgen.decode.runtime import Runtime
    from structgen.decode.target import Target
    from structgen.findings import Explanation
    from structgen.grammar.token_automaton import TokenAutomaton
    from structgen.metrics import Metrics
    from structgen.output_type import Declaration

T = TypeVar("T")
RowT = TypeVar("RowT")

_log = logging.getLogger("structgen")

# Enough for most objects; a type whose shortest text is longer gets what it needs.
_DEFAULT_MAX_TOKENS = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled(Generic[T]):
    """An output type, compiled for a model's vocabulary.

    Attributes:
        output_type: what was declared.
        settings: what it was compiled with.
        declaration: its grammar within the generation policy, and how its texts are read.
        automaton: the grammar times the vocabulary.
        limits: what it was compiled under.
        compile_cache: "hit" or "miss".
    """

    output_type: object
    settings: TypeSettings
    declaration: Declaration[T]
    automaton: TokenAutomaton
    limits: Limits
    compile_cache: str


class Generator(Generic[T]):
    """Makes objects of one type with one model; safe to call from several threads."""

    def __init__(self, runtime: Runtime, compiled: Compiled[T], metrics: Metrics) -> None:
        """Bind what was compiled; use Model.generator to get one."""
        self._runtime = runtime
        self._compiled = compiled
        self._declaration = compiled.declaration
        self._automaton = compiled.automaton
        self._compile_cache = compiled.compile_cache
        self._metrics = metrics
        # Held for what one call leaves for the next, never while anything is computed.
        self._lock = threading.Lock()
        self._num_kept_rows = 0
        self._draft_memories = DraftMemories()

    def __repr__(self) -> str:
        """Show the output type and the model."""
        return f"Generator({self._declaration.name}, model={self._runtime.name!r})"

    @property
    def automaton(self) -> TokenAutomaton:
        """The compiled output type."""
        return self._automaton

    def explain(self) -> Explanation:
        """Return what became of each part of the output type, and what the generation policy leaves out."""
        from structgen.explanation import explain

        settings = self._compiled.settings
        return explain(self._compiled.output_type, property_order=settings.property_order, policy=settings.policy)

    @takes(CallSettings)
    def __call__(self, prompt: Prompt, **options: Unpack[RunOptions]) -> T:
        """Return the object; the options are those of `run`.

        Where the budget limited a text that says itself where it ends, the logger "structgen" has a warning: the object
        alone does not show it.
        """
        return self._value(self.run(prompt, **options))

    def _value(self, result: Result[T], row: int | None = None) -> T:
        """Return the value of a result, and tell the log what the value does not show."""
        if result.report.truncated and not self._declaration.takes_stop:
            where = "" if row is None else f"row {row}: "
            _log.warning("%s%s", where, self._cut(result.report.record))
        return result.value

    def _cut(self, record: ReplayRecord) -> str:
        """Return what to know of a text that the budget limited."""
        context = self._runtime.context_length
        is_full = context is not None and len(record.prompt_token_ids) + record.max_tokens >= context
        advice = f"shorten the prompt, the context has {context}" if is_full else "pass a larger max_tokens"
        return (
            f"{self._declaration.name}: the budget of {record.max_tokens} tokens limited this text, so a string or a "
            f"list in it may have broken off: {advice}; the method run tells it in report.truncated"
        )

    @takes(CallSettings)
    def run(self, prompt: Prompt, **options: Unpack[RunOptions]) -> Result[T]:
        """Return the object with its text, its tokens and a report.

        Args:
            prompt: a string (one user turn), a list of chat messages, or Raw.
            options: those of one call, see CallSettings.

        Raises:
            BudgetError: max_tokens is too few to promise a complete text.
            OptionError: the prompt or an option is not usable, or the context has no room for an answer.
            NoLegalTokenError: the model or a bias leaves no legal token a probability.
            OutputError: the text fits, but a validator of the type's own refused it.
            VocabularyError: an answer of Choice(exact=True) cannot be spelled, or the model has no stop token.
        """
        call = self._prepared(prompt, settings_of(CallSettings, options))
        self._start_alone(call).run()
        return self._result(call)

    def _value_row(self, number: int, prompt: Prompt, settings: CallSettings) -> Row[T]:
        """Return what `__call__` does as this row of a batch; raise what is wrong with the prompt."""
        return self._row(self._prepared(prompt, settings), lambda ended: self._value(self._result(ended), number))

    def _result_row(self, prompt: Prompt, settings: CallSettings) -> Row[Result[T]]:
        """Return what `run` does as a row of a batch; raise what is wrong with the prompt."""
        return self._row(self._prepared(prompt, settings), self._result)

    def _row(self, call: Call, result: Callable[[Call], RowT]) -> Row[RowT]:
        return HostCallRow(call, self._start, result) if call.asked is None else DeviceCallRow(call, call.asked, result)

    @takes(CallSettings)
    def stream(self, prompt: Prompt, **options: Unpack[RunOptions]) -> Iterator[Partial[T]]:
        """Return the text as it comes: a Partial whenever there is more of it, the last one complete.

        Options and prompt are checked at once, the model runs as the iterator is read; whoever leaves early has paid
        for no more than was read. The options and errors are those of `run`, whose tokens and text it gives.
        """
        call = self._prepared(prompt, settings_of(CallSettings, options))
        return self._partials(call, self._start_alone(call))

    def _partials(self, call: Call, decoding: Decoding | ExactChoice | DeviceDecoding) -> Iterator[Partial[T]]:
        from structgen.decode.device_loop import DeviceDecoding

        shown = ""
        try:
            while decoding.step() is not None:
                text = decoding.text
                if len(text) > len(shown):
                    partial: Partial[T] = Partial(text, text[len(shown) :], preview=self._declaration.preview)
                    shown = text
                    yield partial
        except GeneratorExit:  # nobody reads on
            if isinstance(decoding, DeviceDecoding):
                decoding.close()
            raise
        result = self._result(call)
        yield Partial(result.text, result.text[len(shown) :], preview=self._declaration.preview, result=result)

    def _check_stop(self, settings: CallSettings) -> None:
        """Refuse stop strings where the type says itself where a text ends."""
        if settings.stop and not self._declaration.takes_stop:
            raise OptionError(
                f"stop ends free text (str), and {self._declaration.name} says itself where a text ends: leave stop out"
            )

    def _prepared(self, prompt: Prompt, settings: CallSettings) -> Call:
        """Check everything that the prompt and the options say by themselves, and return the call before its start."""
        from structgen.decode.loop import Request
        from structgen.decode.sampler import resolve_seed

        self._check_stop(settings)
        prompt_token_ids = self._runtime.encode(prompt, tools=self._declaration.tools)
        with self._lock:
            # The compilation belongs to the first call; whoever calls again finds it done.
            compile_cache, self._compile_cache = self._compile_cache, "hit"
        request = Request(
            prompt_token_ids=prompt_token_ids,
            max_tokens=self._budget(settings.max_tokens, len(prompt_token_ids)),
            seed=resolve_seed(settings.seed),
            sampling=Sampling() if settings.sampling is None else settings.sampling,
            stop=tuple(settings.stop),
            diagnostics=settings.diagnostics,
        )
        speculation = Speculation() if settings.speculation is None else settings.speculation
        if self._answers is not None:
            speculation = Speculation.off()  # whole answers are compared, and nothing is drafted
        asked = self._asked(request, speculation, settings)
        return Call(
            request=request,
            route=self._declaration.name if settings.route is None else settings.route,
            compile_cache=compile_cache,
            deterministic=settings.deterministic,
            speculation=speculation,
            memory=self._draft_memories.of(settings.scope),
            asked=None if isinstance(asked, str) else asked,
            host_mode_because=asked if isinstance(asked, str) else None,
        )

    def _asked(self, request: Request, speculation: Speculation, settings: CallSettings) -> DeviceRequest | str:
        """Return what a call asks of the device, or why it runs in host mode."""
        from structgen.decode.device_loop import DeviceRequest
        from structgen.grammar.frozen_automaton import FrozenAutomaton

        if self._answers is not None:
            return "whole answers are compared, and no tokens drawn"
        walked, pool = self._automaton.start().automaton, self._runtime.device_pool
        frozen = walked if isinstance(walked, FrozenAutomaton) else self._automaton.frozen_part
        because = pool.host_mode_because(frozen, speculation, deterministic=settings.deterministic)
        if frozen is None or because is not None:
            return str(because)
        num_drafted = 0 if speculation.drafters == () else speculation.max_draft_tokens
        return DeviceRequest(automaton=frozen, request=request, max_draft_tokens=num_drafted)

    def _start_alone(self, call: Call) -> Decoding | ExactChoice | DeviceDecoding:
        """Begin with a call that shares no passes, in device mode where that can be."""
        if call.asked is None:
            return self._start(call, self._runtime.new_target(deterministic=call.deterministic))
        call.drafting = SpeculationRecord.of(call.speculation, ())
        call.decoding = decoding = self._runtime.device_pool.decoding(call.asked)
        return decoding

    def _start(self, call: Call, target: Target) -> Decoding | ExactChoice:
        """Begin with a call, token by token or among whole answers; return it before its first token."""
        from structgen.decode.exact_choice import ExactChoice
        from structgen.decode.loop import Decoding

        setup = self._runtime.route_controls.setup(
            call.speculation, route=call.route, memory=call.memory, deterministic=call.deterministic
        )
        call.drafting = SpeculationRecord.of(call.speculation, setup.drafters)
        vocabulary = self._runtime.vocabulary
        if self._answers is None:
            decoding: Decoding | ExactChoice = Decoding(
                target, self._automaton.start(), vocabulary, call.request, setup
            )
        else:
            decoding = ExactChoice(target, vocabulary, self._answers, call.request)
        decoding.trace.host_mode_because = call.host_mode_because
        call.decoding = decoding
        return decoding

    @functools.cached_property
    def _answers(self) -> Mapping[str, tuple[int, ...]] | None:
        """The canonical tokens of each whole answer, None where tokens are drawn one by one."""
        answers = self._declaration.answers
        return None if answers is None else {answer: self._runtime.canonical_tokens(answer) for answer in answers}

    @property
    def _needed(self) -> int:
        """Tokens that are enough for a text, whatever the model prefers."""
        if self._answers is not None:
            return max(map(len, self._answers.values()))
        return self._automaton.start().tokens_to_end_bound

    def _result(self, call: Call) -> Result[T]:
        """Read the value of a finished text, and write down what it took."""
        self._keep_rows()
        token_ids = tuple(call.decoding.token_ids)
        report = call.decoding.trace.report(compile_cache=call.compile_cache, record=self._record(call, token_ids))
        self._metrics.add(call.route, report)
        text = call.decoding.text
        return Result(value=self._declaration.parse(text), text=text, token_ids=token_ids, report=report)

    def _keep_rows(self) -> None:
        """Write mask rows to the disk cache, each time that there are twice as many as were written last."""
        from structgen.grammar.compile import shared_cache

        with self._lock:
            num_rows = self._automaton.num_rows
            if num_rows == self._num_kept_rows or num_rows < 2 * self._num_kept_rows:
                return
            self._num_kept_rows = num_rows
        shared_cache().store(self._declaration.source, self._automaton, self._compiled.limits)

    def _budget(self, max_tokens: int | None, num_prompt_tokens: int) -> int:
        """Return what the call may use: what was asked for, cut to what the context has left.

        Raises:
            OptionError: what the context has left is not enough, whatever was asked for.
        """
        needed = self._needed
        budget = max(_DEFAULT_MAX_TOKENS, needed) if max_tokens is None else max_tokens
        context = self._runtime.context_length
        if context is None:
            return budget
        left = context - num_prompt_tokens
        if left < needed <= budget:
            raise OptionError(
                f"the prompt leaves {left} of the model's {context} tokens, and this output needs at least {needed}: "
                "shorten the prompt"
            )
        return min(budget, left)

    @functools.cached_property
    def _grammar_text(self) -> str:
        from structgen.grammar.stored import grammar_to_text

        return grammar_to_text(self._declaration.grammar)

    @functools.cached_property
    def _grammar_digest(self) -> str:
        """Digest of what is compiled of the text of the grammar, as a replay does it."""
        from structgen.grammar.cache import digest_in_full

        return digest_in_full(self._declaration.grammar, self._runtime.vocabulary, self._compiled.limits)

    def _record(self, call: Call, token_ids: tuple[int, ...]) -> ReplayRecord:
        import torch

        from structgen.decode.runtime import versions

        request, runtime, answers = call.request, self._runtime, self._declaration.answers
        return ReplayRecord(
            versions=dict(versions()),
            model=runtime.name,
            dtype=runtime.dtype,
            device=str(runtime.device),
            backend=runtime.backend + (", device mode" if call.decoding.trace.mode == "device" else ""),
            threads=torch.get_num_threads(),
            model_digest=runtime.identity.model_digest,
            vocabulary_digest=runtime.vocabulary.digest,
            tokenizer_digest=runtime.identity.tokenizer_digest,
            chat_template_digest=runtime.identity.chat_template_digest,
            automaton_digest=self._grammar_digest,
            grammar=self._grammar_text,
            limits=self._compiled.limits,
            answers=None if answers is None else tuple(answers),
            seed=request.seed,
            sampling=request.sampling,
            speculation=call.drafting,
            drafts=tuple(call.decoding.trace.drafts),
            max_tokens=request.max_tokens,
            stop=request.stop,
            deterministic=call.deterministic,
            prompt_token_ids=request.prompt_token_ids,
            token_ids=token_ids,
        )
