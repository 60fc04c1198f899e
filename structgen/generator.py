"""Generator[T]: a model and an output type, bound and compiled once, called many times.

Left out: how a type becomes a grammar (output_type.py) and a grammar an automaton (grammar/compile.py).
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

from structgen.config import Limits, Policy, Sampling, Speculation
from structgen.declarations import Choice, JsonSchema, Lark, Regex
from structgen.errors import BatchError, OptionError, StructgenError
from structgen.report import ReplayRecord, Result

if TYPE_CHECKING:
    from structgen.config import Whitespace
    from structgen.decode.loop import Request
    from structgen.decode.prompt import Prompt
    from structgen.decode.runtime import Runtime
    from structgen.grammar.json_schema import PropertyOrder
    from structgen.grammar.token_automaton import TokenAutomaton
    from structgen.output_type import Declaration

T = TypeVar("T")

# Enough for most objects; a type whose shortest text is longer gets what it needs.
_DEFAULT_MAX_TOKENS = 512

DEFAULT_POLICY = Policy()

# Generators that a model keeps for the types it was called with last; each holds a compiled automaton.
_MAX_GENERATORS = 64
# Their text and their class say all of them.
_PLAIN = (str, int, float, bool, type(None))
# Rows from which on a batch shows a progress bar on a terminal.
_LONG_BATCH = 8


class Generator(Generic[T]):
    """Makes objects of one type with one model; safe to call from several threads."""

    def __init__(
        self, runtime: Runtime, declaration: Declaration[T], automaton: TokenAutomaton, compile_cache: str = "miss"
    ) -> None:
        """Bind what was compiled; use Model.generator to get one."""
        self._runtime = runtime
        self._declaration = declaration
        self._automaton = automaton
        self._compile_cache = compile_cache
        self._num_kept_rows = 0

    @property
    def automaton(self) -> TokenAutomaton:
        """The compiled output type."""
        return self._automaton

    def __call__(
        self,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        speculation: Speculation | None = None,
    ) -> T:
        """Return the object; the options are those of `run`."""
        return self.run(prompt, sampling=sampling, max_tokens=max_tokens, seed=seed, speculation=speculation).value

    def run(
        self,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        speculation: Speculation | None = None,
    ) -> Result[T]:
        """Return the object with its text, its tokens and a report.

        Args:
            prompt: a string (one user turn), a list of chat messages, or Raw.
            sampling: how tokens are drawn; None is Sampling().
            max_tokens: the text is complete within this many tokens; None is 512, or more where the type needs more.
                What the context leaves after the prompt bounds it further.
            seed: makes the call repeatable; None draws one, which the report records.
            speculation: None or Speculation.off(): there are no drafters yet.

        Raises:
            BudgetError: no text of the type fits into max_tokens or the context.
            OptionError: the prompt or an option is not usable.
            NoLegalTokenError: the model or a bias leaves no legal token a probability.
            OutputError: the text fits, but a validator of the type's own refused it.
        """
        from structgen.decode.loop import Decoding, Request
        from structgen.decode.sampler import resolve_seed

        if speculation is not None and not isinstance(speculation, Speculation):
            raise OptionError(f"speculation must be a Speculation, not {type(speculation).__name__}")
        if sampling is not None and not isinstance(sampling, Sampling):
            raise OptionError(f"sampling must be a Sampling, not {type(sampling).__name__}")
        state = self._automaton.start()
        prompt_token_ids = self._runtime.encode(prompt)
        # The compilation belongs to the first call; whoever calls again finds it done.
        compile_cache, self._compile_cache = self._compile_cache, "hit"
        request = Request(
            prompt_token_ids=prompt_token_ids,
            max_tokens=self._budget(max_tokens, len(prompt_token_ids), state.tokens_to_end_bound),
            seed=resolve_seed(seed),
            sampling=Sampling() if sampling is None else sampling,
        )
        decoding = Decoding(self._runtime.new_target(), state, self._runtime.vocabulary, request)
        decoding.run()
        self._keep_rows()
        return Result(
            value=self._declaration.parse(decoding.text),
            text=decoding.text,
            token_ids=tuple(decoding.token_ids),
            report=decoding.trace.report(
                compile_cache=compile_cache, record=self._record(request, tuple(decoding.token_ids))
            ),
        )

    def _keep_rows(self) -> None:
        """Write mask rows to the disk cache, each time that there are twice as many as were written last."""
        num_rows = self._automaton.num_rows
        if num_rows >= 2 * self._num_kept_rows and self._num_kept_rows != num_rows:
            from structgen.grammar.compile import shared_cache

            self._num_kept_rows = num_rows
            shared_cache().store(self._declaration.grammar, self._automaton, _limits_of(self._declaration))

    def _budget(self, max_tokens: int | None, num_prompt_tokens: int, needed: int) -> int:
        """Return what the call may use: what was asked for, cut to what the context has left.

        Raises:
            OptionError: what the context has left is not enough, whatever was asked for.
        """
        budget = max(_DEFAULT_MAX_TOKENS, needed) if max_tokens is None else max_tokens
        context = self._runtime.context_length
        if context is None or not isinstance(budget, int):
            return budget  # Request refuses what is no int
        left = context - num_prompt_tokens
        if left < needed <= budget:
            raise OptionError(
                f"the prompt leaves {left} of the model's {context} tokens, and this output needs at least {needed}: "
                "shorten the prompt"
            )
        return min(budget, left)

    def _record(self, request: Request, token_ids: tuple[int, ...]) -> ReplayRecord:
        from structgen.decode.runtime import versions

        return ReplayRecord(
            versions=dict(versions()),
            model=self._runtime.name,
            dtype=self._runtime.dtype,
            device=str(self._runtime.device),
            vocabulary_digest=self._runtime.vocabulary.digest,
            automaton_digest=self._automaton.digest,
            seed=request.seed,
            sampling=request.sampling,
            max_tokens=request.max_tokens,
            prompt_token_ids=request.prompt_token_ids,
            token_ids=token_ids,
        )


class GeneratorPool:
    """The generators of one model by what they were made from, so that calling a model again compiles nothing."""

    def __init__(self, runtime: Runtime) -> None:
        """Start empty."""
        self._runtime = runtime
        self._lock = threading.Lock()
        # The type is kept beside its generator: a key may hold ids, which are only good while the objects live.
        self._kept: OrderedDict[Hashable, tuple[object, Generator[Any]]] = OrderedDict()
        self._gates: dict[Hashable, threading.Lock] = {}

    def get(
        self, output_type: object, whitespace: Whitespace, property_order: PropertyOrder, policy: Policy | None
    ) -> Generator[Any]:
        """Return the generator of a type and its options, made now if it is not there."""
        if policy is not None and not isinstance(policy, Policy):
            raise OptionError(f"policy must be a Policy or None, not {type(policy).__name__}")
        # As text, so that a value of any type gets as far as `lower`, which says what it may be.
        key = (identity(output_type), whitespace, str(property_order), policy)
        with self._lock:
            generator = self._known(key)
            if generator is not None:
                return generator
            gate = self._gates.setdefault(key, threading.Lock())
        # Whoever wants the same type waits for the one that makes it; other types are not held up.
        with gate:
            with self._lock:
                generator = self._known(key)
            if generator is not None:
                return generator
            try:
                generator = self._make(output_type, whitespace, property_order, policy)
                with self._lock:
                    self._kept[key] = (output_type, generator)
                    if len(self._kept) > _MAX_GENERATORS:
                        self._kept.popitem(last=False)
            finally:
                with self._lock:
                    self._gates.pop(key, None)
            return generator

    def _known(self, key: Hashable) -> Generator[Any] | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][1]

    def _make(
        self, output_type: object, whitespace: Whitespace, property_order: PropertyOrder, policy: Policy | None
    ) -> Generator[Any]:
        from structgen.grammar.cache import CacheOutcome
        from structgen.grammar.compile import shared_cache
        from structgen.grammar.policy import apply_policy
        from structgen.output_type import lower

        declaration = lower(output_type, whitespace=whitespace, property_order=property_order)
        if policy is not None:
            declaration = replace(declaration, grammar=apply_policy(declaration.grammar, policy)[0])
        limits = _limits_of(declaration)
        automaton, outcome = shared_cache().compile(declaration.grammar, self._runtime.vocabulary, limits)
        return Generator(self._runtime, declaration, automaton, "miss" if outcome is CacheOutcome.MISS else "hit")


def _limits_of(declaration: Declaration[Any]) -> Limits:
    """Return the limits under which whatever is written can also be read."""
    from structgen.grammar.normalise import depth_within

    if declaration.max_nesting is None:
        return Limits()
    return Limits(depth=min(Limits().depth, depth_within(declaration.grammar, declaration.max_nesting)))


def identity(output_type: object) -> Hashable:
    """Return a key that two output types share only if they mean the same, for as long as both live.

    Declared values and typing aliases are new objects each time that they are written, so they go by what they are made
    of; classes, and what else an alias or a Choice may hold, by which object they are. Equality alone would confuse
    Choice([1]) with Choice([True]), and int | bool with bool | int.
    """
    if isinstance(output_type, (Regex, JsonSchema, Lark)):
        return output_type
    if isinstance(output_type, Choice):
        return (Choice, output_type.exact, *map(identity, output_type.items))
    if type(output_type) in _PLAIN:
        return (type(output_type), str(output_type))
    origin = get_origin(output_type)
    if origin is None:
        return id(output_type)
    return (identity(origin), *map(identity, get_args(output_type)))


def run_rows(rows: Sequence[Callable[[], T]]) -> list[T]:
    """Call each in turn, with a bar on a terminal if there are many, and return what they give.

    Raises:
        BatchError: some failed; it has the results of the others.
    """
    results: list[T | StructgenError] = []
    for row in progress(rows):
        try:
            results.append(row())
        except StructgenError as error:
            results.append(error)
    done = [result for result in results if not isinstance(result, StructgenError)]
    if len(done) < len(results):
        first = next(result for result in results if isinstance(result, StructgenError))
        raise BatchError(tuple(results)) from first
    return done


def progress(rows: Sequence[T]) -> Iterable[T]:
    """Iterate over the rows of a batch, with a bar on a terminal if there are many."""
    if len(rows) < _LONG_BATCH or not sys.stderr.isatty():
        return rows
    from rich.console import Console
    from rich.progress import track

    return track(rows, description="generating", console=Console(file=sys.stderr), transient=True)
