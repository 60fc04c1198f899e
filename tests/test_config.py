"""Options: what is accepted, what is refused and how it says so."""

from __future__ import annotations

import dataclasses
import math

import pytest

import structgen as sg
from structgen.config import Limits, PenaltyScope, Policy, Sampling, Speculation, Whitespace, unknown_option
from structgen.errors import OptionError


def test_defaults_change_nothing() -> None:
    """The default is a plain draw at temperature 1, and greedy() only differs in the temperature."""
    sampling = Sampling()
    assert sampling.temperature == 1.0
    assert (sampling.top_k, sampling.top_p, sampling.min_p, sampling.logit_bias) == (None, None, None, None)
    assert not sampling.has_penalties
    assert Sampling.greedy() == Sampling(temperature=0)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature", -0.1, "temperature must be at least 0"),
        ("temperature", math.nan, "finite number"),
        ("temperature", math.inf, "finite number"),
        ("temperature", 10**400, "finite number"),
        ("temperature", True, "finite number"),
        ("temperature", "hot", "finite number"),
        ("top_k", 0, "top_k must be at least 1"),
        ("top_k", 1.5, "top_k must be an int"),
        ("top_k", True, "top_k must be an int"),
        ("top_p", 0.0, "top_p must be more than 0 and at most 1"),
        ("top_p", 1.1, "at most 1"),
        ("min_p", -0.1, "min_p must be at least 0 and at most 1"),
        ("min_p", 2, "at most 1"),
        ("repetition_penalty", 0, "repetition_penalty must be more than 0"),
        ("presence_penalty", math.nan, "finite number"),
        ("frequency_penalty", math.inf, "finite number"),
        ("penalty_scope", "nowhere", "'free_text', 'everywhere'"),
        ("logit_bias", [(1, 2.0)], "must map token ids"),
        ("logit_bias", {-1: 1.0}, "token id in logit_bias must be at least 0"),
        ("logit_bias", {"a": 1.0}, "token id in logit_bias must be an int"),
        ("logit_bias", {1: math.inf}, r"logit_bias\[1\] must be a finite number"),
        ("logit_bias", {1: math.nan}, r"logit_bias\[1\] must be a finite number"),
    ],
)
def test_sampling_refuses(field: str, value: object, message: str) -> None:
    """Each field out of range is refused when the options are made, by name."""
    options: dict[str, object] = {field: value}
    with pytest.raises(OptionError, match=message):
        Sampling(**options)  # type: ignore[arg-type]


def test_options_are_frozen_keyword_only_and_hashable() -> None:
    """No field can be changed, none is positional, and equal options have equal hashes."""
    sampling = Sampling(logit_bias={3: 1, 1: -math.inf})
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampling.temperature = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sampling(0.5)  # type: ignore[misc]
    same = Sampling(logit_bias={1: -math.inf, 3: 1.0})
    assert sampling == same
    assert hash(sampling) == hash(same)


def test_bias_is_copied_sorted_and_read_only() -> None:
    """Changing the mapping afterwards changes nothing."""
    given = {3: 1, 1: -math.inf}
    bias = Sampling(logit_bias=given).logit_bias
    given[3] = 100
    assert bias is not None
    assert list(bias.items()) == [(1, -math.inf), (3, 1.0)]
    with pytest.raises(TypeError):
        bias[1] = 0.0  # type: ignore[index]


def test_top_k_with_top_p_warns_where_it_is_written() -> None:
    """Both together warn at the caller's line; each alone does not."""
    with pytest.warns(UserWarning, match="the stricter wins") as caught:
        Sampling(top_k=5, top_p=0.9)
    assert caught[0].filename == __file__
    Sampling(top_k=5)
    Sampling(top_p=0.9, min_p=0.1)


def test_names_are_read_as_text_or_member() -> None:
    """An option that is a name takes its text or its member, and an unknown name is told what there is."""
    assert Whitespace("spaced") is Whitespace.SPACED
    assert Sampling(penalty_scope="everywhere").penalty_scope is PenaltyScope.EVERYWHERE  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'tight' is no Whitespace: use one of 'compact', 'spaced', 'pretty'"):
        Whitespace("tight")


def test_has_penalties() -> None:
    """Any one of the three penalties counts."""
    assert Sampling(repetition_penalty=1.1).has_penalties
    assert Sampling(presence_penalty=-0.5).has_penalties
    assert Sampling(frequency_penalty=0.5).has_penalties


def test_speculation_takes_other_values() -> None:
    """Each field can be set, and what is made is hashable; off() drafts nothing."""
    drafters = [sg.drafters.ForcedRun(), sg.drafters.StateTable(max_states=9), sg.drafters.PromptLookup(min_match=3)]
    made = Speculation(drafters=drafters, max_draft_tokens=3, mode="exact_ratio")
    assert made.drafters == tuple(drafters)
    assert hash(made) == hash(Speculation(drafters=tuple(drafters), max_draft_tokens=3, mode="exact_ratio"))
    assert (Speculation.off().drafters, Speculation.off().max_draft_tokens) == ((), 0)


class Unhashable:
    """A drafter of a user that is a plain dataclass, so to speak."""

    __hash__ = None  # type: ignore[assignment]
    name = "mine"

    def start(self, request: object) -> object:
        return request


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Speculation(max_draft_tokens=-1), "max_draft_tokens must be at least 0"),
        (lambda: Speculation(mode="ratio"), r"'ratio' is no mode: use 'coupled' or 'exact_ratio'"),
        (
            lambda: Speculation(drafters=sg.drafters.ForcedRun()),
            "drafters must be a list, not ForcedRun",
        ),
        (lambda: Speculation(drafters=[sg.drafters.ForcedRun]), "holds the class ForcedRun, which is no drafter"),
        (lambda: Speculation(drafters=["forced"]), "holds str, which is no drafter: write drafters="),
        (
            lambda: Speculation(drafters=[Unhashable()]),
            "Unhashable has no hash; make it a frozen dataclass",
        ),
        (lambda: Speculation(drafters=[sg.drafters.ForcedRun()] * 2), "two drafters are called 'ForcedRun'"),
        (lambda: sg.drafters.StateTable(max_states=0), "max_states must be at least 1"),
        (lambda: sg.drafters.PromptLookup(min_match=0), "min_match must be at least 1"),
        (lambda: sg.drafters.PromptLookup(max_outputs=-1), "max_outputs must be at least 0"),
    ],
)
def test_speculation_refuses(make: object, message: str) -> None:
    """What is no drafter, and sizes that allow nothing, are told with what to write."""
    assert callable(make)
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Limits(compile_seconds=0), "compile_seconds must be more than 0"),
        (lambda: Limits(states=0), "states must be at least 1"),
        (lambda: Limits(memory_mb=-1), "memory_mb must be more than 0"),
        (lambda: Limits(depth=0), "depth must be at least 1"),
        (lambda: Policy(max_whitespace=-1), "max_whitespace must be at least 0"),
        (lambda: Policy(max_digits=0), "max_digits must be at least 1"),
    ],
)
def test_limits_and_policy_refuse(make: object, message: str) -> None:
    """A limit that allows nothing is refused."""
    assert callable(make)
    with pytest.raises(OptionError, match=message):
        make()


def test_limits_and_policy_take_other_values() -> None:
    """Each field can be set."""
    assert Limits(compile_seconds=1, states=2, memory_mb=3, depth=4).depth == 4
    assert Policy(max_whitespace=0, max_digits=1).max_whitespace == 0


@pytest.mark.parametrize(
    ("options", "written", "meant"),
    [
        (Sampling, "temp", r"did you mean temperature=\.\.\.\? It has temperature, top_k"),
        (Sampling, "topk", r"did you mean top_k="),
        (Limits, "seconds", r"did you mean compile_seconds="),
        (Policy, "max_digit", r"did you mean max_digits="),
        (Speculation, "max_drafted_tokens", r"did you mean max_draft_tokens="),
        (Policy, "zzz", r"zzz'\. It has max_whitespace, max_digits"),
        (Limits, "x" * 1000, r"x+ \.\.\. \(1002 characters\)\. It has"),
    ],
)
def test_a_misspelt_option_is_told_what_was_meant(options: type[object], written: str, meant: str) -> None:
    """A name that there is not is our error, with the closest name that there is."""
    with pytest.raises(OptionError, match=rf"{options.__name__} has no option '.*{meant}"):
        options(**{written: 1})


def test_replace_refuses_a_misspelt_option() -> None:
    """dataclasses.replace goes the same way, and still works."""
    assert dataclasses.replace(Sampling(), top_k=3) == Sampling(top_k=3)
    with pytest.raises(OptionError, match="did you mean top_k="):
        dataclasses.replace(Sampling(), topk=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("temperature", r"did you mean sampling=Sampling\(temperature=\.\.\.\)\?"),
        ("temp", r"did you mean sampling=Sampling\(temperature=\.\.\.\)\?"),
        ("max_token", r"did you mean max_tokens=\.\.\.\?"),
        ("max_whitespace", r"max_whitespace'\. It has sampling, max_tokens$"),
    ],
)
def test_an_option_of_a_call_is_told_where_it_belongs(written: str, meant: str) -> None:
    """What belongs in an option that the call has is told in its written form; this call has no policy."""
    error = unknown_option("Model.generate", written, ["sampling", "max_tokens"])
    with pytest.raises(OptionError, match=f"Model.generate has no option '.*{meant}"):
        raise error
