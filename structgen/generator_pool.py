"""Which generators a model keeps: one per output type and settings, so that calling it again compiles nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args, get_origin

from structgen.config import Limits, Whitespace
from structgen.declarations import Choice, Lark, OutputDeclaration, Regex
from structgen.generator import Compiled, Generator

if TYPE_CHECKING:
    from structgen.call_options import TypeSettings
    from structgen.decode.runtime import Runtime
    from structgen.metrics import Metrics
    from structgen.output_type import Declaration

# Generators that a model keeps for the types it was called with last; each holds a compiled automaton.
_MAX_GENERATORS = 64
# Two of them are one if class and value are; of a float the text, in which nan is itself and -0.0 is not 0.0. As types
# they are written in one piece, without white space, and so no model need be asked how it writes them.
_PLAIN = (str, int, float, bool, type(None))
# Nor has white space a style in these.
_TEXTS = (Regex, Choice, Lark)


class GeneratorPool:
    """The generators of one model by what they were made from; safe to use from several threads."""

    def __init__(self, runtime: Runtime, metrics: Metrics) -> None:
        """Start empty."""
        self._runtime = runtime
        self._metrics = metrics
        self._lock = threading.Lock()
        # The type is kept beside its generator: a key may hold ids, which are only good while the objects live.
        self._kept: OrderedDict[Hashable, tuple[object, Generator[Any]]] = OrderedDict()
        self._gates: dict[Hashable, threading.Lock] = {}

    def get(self, output_type: object, settings: TypeSettings) -> Generator[Any]:
        """Return the generator of a type and its settings, made now if it is not there."""
        key = (identity(output_type), settings)
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
                generator = self._make(output_type, settings)
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

    def _make(self, output_type: object, settings: TypeSettings) -> Generator[Any]:
        from structgen.grammar.cache import CacheOutcome
        from structgen.grammar.compile import shared_cache
        from structgen.grammar.ir import Source
        from structgen.grammar.policy import apply_policy
        from structgen.grammar.time_limit import time_limit
        from structgen.output_type import lower

        whitespace = self._whitespace(output_type, Whitespace(settings.whitespace))
        with time_limit(Limits().compile_seconds):
            declaration = lower(output_type, whitespace=whitespace, property_order=settings.property_order)
            if settings.policy is not None:
                bounded, _ = apply_policy(declaration.grammar, settings.policy)
                declaration = replace(declaration, source=Source.of(bounded))
            limits = limits_of(declaration)
            automaton, outcome = shared_cache().compile(declaration.source, self._runtime.vocabulary, limits)
        compiled = Compiled(
            output_type=output_type,
            settings=settings,
            declaration=declaration,
            automaton=automaton,
            limits=limits,
            compile_cache="miss" if outcome is CacheOutcome.MISS else "hit",
        )
        return Generator(self._runtime, compiled, self._metrics)

    def _whitespace(self, output_type: object, asked: Whitespace) -> Whitespace:
        """Return the style for a type: what the model writes by itself, where that is asked for and it writes JSON."""
        is_plain = isinstance(output_type, _TEXTS) or any(output_type is plain for plain in _PLAIN)
        if asked is not Whitespace.AUTO or is_plain:
            return asked
        return self._runtime.whitespace


def limits_of(declaration: Declaration[Any]) -> Limits:
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
    if isinstance(output_type, Choice):
        return (Choice, output_type.exact, *map(identity, output_type.items))
    if isinstance(output_type, OutputDeclaration):
        return output_type
    if type(output_type) in _PLAIN:
        return (type(output_type), str(output_type) if isinstance(output_type, float) else output_type)
    origin = get_origin(output_type)
    if origin is None:
        return id(output_type)
    return (identity(origin), *map(identity, get_args(output_type)))
