"""Options: small frozen values, keyword-only, checked when they are made.

Each field is something that a user can have an opinion on. Only what works is here: an option that does nothing yet is
not accepted. Options that belong to one call (seed, max_tokens, stop) are arguments of that call.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import EnumType, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

from structgen.drafter import Drafter
from structgen.errors import OptionError, shown

OptionsT = TypeVar("OptionsT")

DraftMode: TypeAlias = Literal["coupled", "exact_ratio"]

# The options of a call that hold options of their own, and what each of these is written as in the call.
_HELD: dict[str, str] = {}
_INSTEAD = MappingProxyType({"greedy": "write sg.Sampling.greedy()", "do_sample": "write sg.Sampling.greedy()"})


def unknown_option(
    what: str, name: str, known: Iterable[str], *, instead: Mapping[str, str] = MappingProxyType({})
) -> OptionError:
    """Return the error for an option that there is not, with the one that was probably meant.

    Args:
        what: who was given it, such as "Model.generate".
        name: what was written.
        known: the options that there are; what belongs into one of them, such as temperature into sampling, is told.
        instead: what is written for a name that other libraries have.
    """
    names = list(known)
    if name in instead:
        return OptionError(f"{what} has no option {shown(name)}: {instead[name]}. It has {', '.join(names)}")
    written = {name: f"{name}=..." for name in names}
    for held, form in _HELD.items():
        if form.partition("=")[0] in names:
            written.setdefault(held, form)
    # Shortened ("temp") or misspelt ("temprature").
    alike = [known for known in written if known.startswith(name)] or difflib.get_close_matches(name, written, n=1)
    hint = f": did you mean {written[alike[0]]}?" if alike else "."
    return OptionError(f"{what} has no option {shown(name)}{hint} It has {', '.join(names)}")


def _options(keyword: str) -> Callable[[type[OptionsT]], type[OptionsT]]:
    """Make a dataclass of options refuse a misspelt name with our own error.

    Args:
        keyword: the option of a call that takes such a value.
    """

    def decorate(cls: type[OptionsT]) -> type[OptionsT]:
        names = tuple(cast("Any", cls).__dataclass_fields__)
        _HELD.update({name: f"{keyword}={cls.__name__}({name}=...)" for name in names})
        make = cls.__init__

        @functools.wraps(make)
        def __init__(self: OptionsT, *args: Any, **values: Any) -> None:  # noqa: N807 - it stands in for that method
            for name in values:
                if name not in names:
                    raise unknown_option(cls.__name__, name, names, instead=_INSTEAD)
            make(self, *args, **values)

        cast("Any", cls).__init__ = __init__
        return cls

    return decorate


class _Names(EnumType):
    """Looks up text only: Enum itself compares and writes down whatever it is given."""

    def __call__(cls, value: Any, *args: Any, **options: Any) -> Any:
        """Return the member of a name, and say what the names are where it is another."""
        if not isinstance(value, str) or value not in cls.__members__.values():
            names = ", ".join(map(repr, map(str, cls.__members__.values())))
            raise OptionError(f"{shown(value)} is no {cls.__name__}: use one of {names}")
        return super().__call__(value, *args, **options)


class _Option(StrEnum, metaclass=_Names):
    """A choice between names."""


class Whitespace(_Option):
    """Where JSON has white space.

    COMPACT: nowhere. SPACED: one space after ":" and ",". PRETTY: indented by two. ANY: any JSON white space, bounded
    per gap. AUTO: what the model writes by itself; without a model, SPACED.
    """

    COMPACT = "compact"
    SPACED = "spaced"
    PRETTY = "pretty"
    ANY = "any"
    AUTO = "auto"


class PenaltyScope(_Option):
    """Which tokens the penalties touch, and count.

    FREE_TEXT: only tokens that stay inside free text (string bodies), so that keys and brackets may repeat.
    EVERYWHERE: every token.
    """

    FREE_TEXT = "free_text"
    EVERYWHERE = "everywhere"


@_options("sampling")
@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How the next token is drawn from the logits.

    The order is: bias, mask, penalties, temperature, truncation, draw. Truncations are taken on the masked distribution
    after the temperature; each keeps the first tokens of one order (more probable first, then lower id), so of several
    the strictest wins.

    Attributes:
        temperature: divides the logits; 0 takes the most probable token (the lowest id of equals).
        top_k: keep this many tokens, exactly: equals at the border are kept by lower id.
        top_p: keep the fewest tokens whose probabilities add up to at least this.
        min_p: keep tokens with at least this share of the best token's probability.
        repetition_penalty: the logit of a token already generated is divided by this if positive, else multiplied; 1 is
            off.
        presence_penalty: subtracted from the logit of each token already generated; 0 is off.
        frequency_penalty: subtracted once per time that the token was generated; 0 is off.
        penalty_scope: which tokens the three penalties touch and count. The prompt is never counted.
        logit_bias: added to the logit of a token id before everything else; -inf bans it.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_scope: PenaltyScope = PenaltyScope.FREE_TEXT
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Check each field, freeze the bias, and warn where two truncations are asked for."""
        check_number("temperature", self.temperature, minimum=0.0)
        if self.top_k is not None:
            check_count("top_k", self.top_k)
        if self.top_p is not None:
            check_number("top_p", self.top_p, above=0.0, maximum=1.0)
        if self.min_p is not None:
            check_number("min_p", self.min_p, minimum=0.0, maximum=1.0)
        check_number("repetition_penalty", self.repetition_penalty, above=0.0)
        check_number("presence_penalty", self.presence_penalty)
        check_number("frequency_penalty", self.frequency_penalty)
        object.__setattr__(self, "penalty_scope", PenaltyScope(self.penalty_scope))
        if self.logit_bias is not None:
            object.__setattr__(self, "logit_bias", _checked_bias(self.logit_bias))
        if self.top_k is not None and self.top_p is not None:
            # 1 is this line, 2 the generated __init__, 3 what `_options` puts before it, 4 the caller.
            warnings.warn("top_k and top_p are both set: they compose, the stricter wins", UserWarning, stacklevel=4)

    @classmethod
    def greedy(cls) -> Sampling:
        """Return the options that take the most probable legal token every time."""
        return cls(temperature=0.0)

    @property
    def has_penalties(self) -> bool:
        """Whether any penalty does something."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@_options("speculation")
@dataclass(frozen=True, kw_only=True, slots=True)
class Speculation:
    """How tokens are drafted ahead of the target model, which then verifies several in one pass.

    The texts are those of plain decoding, whoever drafts and however far: with mode "exact_ratio" the same in law, else
    the same for the same seed.

    Attributes:
        drafters: who drafts, in the order in which they are asked (see `structgen.drafters`); None is ForcedRun,
            StateTable and PromptLookup, which need no model.
        max_draft_tokens: most tokens of one draft; 0 is plain decoding.
        mode: how drafts of a model are drawn and accepted. "coupled": with the noise of the text, so that the text
            hangs on the seed alone; "exact_ratio": with noise of their own and block verification, which accepts
            somewhat more.
        adaptive: whether who drafts, how far, and how much of it the target reads is decided from what is measured;
            False asks everybody in every round and reads whatever was drafted.
        branches: most other tokens that a pass reads beside those of a draft, where drafters know of several that may
            follow; 0 drafts chains. Where rows share passes, with `deterministic=True`, and where drafts are drawn with
            noise of their own, drafts are always chains. Device mode has none, so this asks for host mode.
    """

    drafters: Sequence[Drafter] | None = None
    max_draft_tokens: int = 8
    mode: DraftMode = "coupled"
    adaptive: bool = True
    branches: int = 0

    def __post_init__(self) -> None:
        """Check each field, and freeze the drafters."""
        check_count("branches", self.branches, minimum=0)
        check_count("max_draft_tokens", self.max_draft_tokens, minimum=0)
        check_name("mode", self.mode, get_args(DraftMode))
        check_flag("adaptive", self.adaptive)
        if self.drafters is not None:
            object.__setattr__(self, "drafters", _checked_drafters(self.drafters))

    @classmethod
    def off(cls) -> Speculation:
        """Return plain decoding: one pass of the target model per token."""
        return cls(drafters=(), max_draft_tokens=0)


@_options("limits")
@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a compilation may cost; over a limit it fails with LimitError, which names the limit and the construct.

    Attributes:
        compile_seconds: time for one compilation.
        states: states of any one automaton that is built on the way.
        memory_mb: size in MiB of what one compiled grammar keeps.
        depth: nesting of a recursive grammar in one text.
    """

    compile_seconds: float = 60.0
    states: int = 200_000
    memory_mb: float = 1024.0
    depth: int = 1000

    def __post_init__(self) -> None:
        """Check that each limit is a positive number."""
        check_number("compile_seconds", self.compile_seconds, above=0.0)
        check_count("states", self.states)
        check_number("memory_mb", self.memory_mb, above=0.0)
        check_count("depth", self.depth)


@_options("policy")
@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Bounds that a generation puts on what the declaration leaves open, so that no model can fill them for ever.

    The text stays valid; only endless spellings of it are left out. Pass policy=None for the exact language.

    Attributes:
        max_whitespace: characters of optional white space in one gap.
        max_digits: digits in one run: an integer part, a fraction, an exponent.
    """

    max_whitespace: int = 16
    max_digits: int = 32

    def __post_init__(self) -> None:
        """Check that the bounds leave something to write."""
        check_count("max_whitespace", self.max_whitespace, minimum=0)
        check_count("max_digits", self.max_digits)


def _checked_drafters(drafters: Sequence[Drafter]) -> tuple[Drafter, ...]:
    """Return the drafters as a tuple, each under a name of its own."""
    write = "write drafters=[sg.drafters.ForcedRun(), sg.drafters.StateTable()]"
    if not isinstance(drafters, list | tuple):
        raise OptionError(f"drafters must be a list, not {shown_kind(drafters)}: {write}")
    for drafter in drafters:
        if isinstance(drafter, type) or not isinstance(drafter, Drafter):
            raise OptionError(f"drafters holds {shown_kind(drafter)}, which is no drafter: {write}")
        if not isinstance(drafter.name, str):
            raise OptionError(f"the name of a drafter must be a string, not {shown(drafter.name)}")
        if type(drafter).__hash__ is None:
            raise OptionError(f"the drafter {shown_kind(drafter)} has no hash; make it a frozen dataclass")
    names = [drafter.name for drafter in drafters]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise OptionError(f"two drafters are called {shown(repeated)}; leave one of them out")
    return tuple(drafters)


def _checked_bias(bias: Mapping[int, float]) -> Mapping[int, float]:
    """Return a read-only copy of the bias, by ascending token id."""
    if not isinstance(bias, Mapping):
        raise OptionError(f"logit_bias must map token ids to numbers, not {type(bias).__name__}")
    for token_id, value in bias.items():
        check_count("a token id in logit_bias", token_id, minimum=0)
        if value != -math.inf:
            check_number(f"logit_bias[{token_id}]", value)
    return MappingProxyType({token_id: float(bias[token_id]) for token_id in sorted(bias)})


def check_number(
    name: str,
    value: float,
    *,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = math.inf,
) -> None:
    """Raise OptionError unless the value is a finite number within the bounds."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:  # also false for nan
        raise OptionError(f"{name} must be a finite number, not {shown(value)}")
    if not (minimum <= value <= maximum and value > above):
        bounds = [
            f"at least {minimum:g}" if minimum > -math.inf else "",
            f"more than {above:g}" if above > -math.inf else "",
            f"at most {maximum:g}" if maximum < math.inf else "",
        ]
        raise OptionError(f"{name} must be {' and '.join(filter(None, bounds))}, not {shown(value)}")


def check_folder(option: str, value: object) -> Path | None:
    """Return the path of a folder, None for None; raise OptionError for what can be none."""
    if value is None:
        return None
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else b""
    try:
        if isinstance(path, str) and b"\0" not in os.fsencode(path):
            return Path(path)
    except UnicodeEncodeError as error:
        raise OptionError(f"{option} holds a lone surrogate, which is no text: {shown(value)}") from error
    raise OptionError(f"{option} must be the path of a folder or None, not {shown(value)}")


def check_name(option: str, value: object, names: tuple[str, ...]) -> None:
    """Raise OptionError unless the value is one of the names."""
    if not isinstance(value, str) or value not in names:
        raise OptionError(f"{shown(value)} is no {option}: use {' or '.join(map(repr, names))}")


def check_property_order(value: object) -> None:
    """Raise OptionError unless the value is an order of keys."""
    check_name("property_order", value, ("declared", "any"))


def check_flag(name: str, value: object) -> None:
    """Raise OptionError unless the value is True or False: "no" is true in Python."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be True or False, not {shown(value)}")


def check_kind(name: str, value: object, kind: type, *, write: str = "") -> None:
    """Raise OptionError unless the value is None or of a class; what to write is said where the class is no word."""
    if value is not None and not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        advice = f": write {write}" if write else ""
        raise OptionError(f"{name} must be {article} {kind.__name__} or None, not {shown_kind(value)}{advice}")


def shown_kind(value: object) -> str:
    """Return how a message names what a value is: a class and a method by their own names."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = getattr(value, "__qualname__", None) if callable(value) else None
    return f"the function {name}" if isinstance(name, str) else type(value).__name__


def check_seed(seed: object) -> None:
    """Raise OptionError unless the value is None or fits into 64 bits."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise OptionError(f"seed must be None or an int in 0 .. 2**64 - 1, not {shown(seed)}")


def check_count(name: str, value: int, minimum: int = 1) -> None:
    """Raise OptionError unless the value is an int of at least the minimum."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} must be an int, not {shown(value)}")
    if value < minimum:
        raise OptionError(f"{name} must be at least {minimum}, not {shown(value)}")


DEFAULT_POLICY = Policy()
MAX_ROWS = 8
"""Rows of a batch that share passes of the model, where the caller names no other number."""
