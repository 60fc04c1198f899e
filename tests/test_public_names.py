"""What the public contract shows without a real model, as written; each of its names is there, or said not to be.

"Load and generate" and "Output types" are run with SmolLM2 in tests/e2e/test_public_contract.py.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Ge
from typer.testing import CliRunner

import structgen as sg
from structgen.cli import app
from tiny_tokenizer import byte_tokenizer, tiny_llama

ROOT = Path(__file__).parents[1]
CONTRACT = ROOT.parent / "shared" / "API.md"

# What the contract names and the package does not have, with what README calls it.
NOT_THERE = {
    "sg.function": "prompts from function signatures",
    "model.function": "prompts from function signatures",
    "model.chat": "chat loops that run tools",
    "sg.Then": "free text followed by an object in one answer",
    "sg.Text": "free text followed by an object in one answer",
    "sg.Sql": "SQL",
    "sg.integrations": "adapters for other engines and servers",
    "report.fields": "figures per field",
    "beams": "beam search",
}


@pytest.fixture(scope="module")
def model() -> sg.Model:
    """A tiny model with random weights."""
    return sg.Model(tiny_llama(), byte_tokenizer())


def is_there(path: str) -> bool:
    """Say whether the package has what the contract writes so."""
    first, *rest = path.split(".")
    found: Any = {"sg": sg, "model": sg.Model, "automaton": sg.TokenAutomaton, "state": sg.ParserState}[first]
    for name in rest:
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


def names_of(contract: str) -> set[str]:
    """Return what the contract writes with a dot behind one of four objects."""
    found = re.findall(r"\b(?:sg|model|automaton|state)\.\w+(?:\.\w+)?", contract)
    return {"sg.integrations" if name.startswith("sg.integrations.") else name for name in found}


def test_the_contract_is_there_or_said_not_to_be() -> None:
    """Each dotted name resolves, or is in the list above; what has come is taken from the list."""
    if not CONTRACT.exists():
        pytest.skip("needs ../shared/API.md")
    named = names_of(CONTRACT.read_text(encoding="utf-8"))
    assert len(named) > 50
    assert {name for name in named if not is_there(name)} == {name for name in NOT_THERE if name in named}


def test_readme_says_what_is_not_there() -> None:
    """In the sentence for it, in the words above."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    (sentence,) = re.findall(r"Not there yet: ([^.]*)\.", text)
    assert [words for words in NOT_THERE.values() if words not in sentence] == []
    assert not hasattr(sg.Report, "fields")
    assert "beams" not in inspect.signature(sg.Sampling).parameters


# --- functions and tools ----------------------------------------------------------------------------------------------


@sg.tool
def get_weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """Tell the weather of a city."""
    return f"{city}: 7 {unit}"


@sg.tool(destructive=True)
def delete_rows(table: Literal["logs"], older_than_days: Annotated[int, Ge(1)]) -> int:
    """Delete rows."""
    return older_than_days


def test_calls_made_by_hand() -> None:
    """A call runs its function; a destructive one asks first."""
    assert sg.ToolCall("get_weather", {"city": "Oslo"}, tool=get_weather).invoke() == "Oslo: 7 C"
    call = sg.ToolCall("delete_rows", {"table": "logs", "older_than_days": 3}, tool=delete_rows)
    with pytest.raises(sg.ConfirmationRequired):
        call.invoke()
    assert call.invoke(confirm=True) == 3
    assert isinstance(sg.ToolSet([get_weather, delete_rows]).lint(), Iterable)


# --- options ----------------------------------------------------------------------------------------------------------


def test_options(model: sg.Model) -> None:
    """Each keyword by its name, with its default where the contract gives one."""
    plain: dict[str, Any] = {"temperature": 1.0, "repetition_penalty": 1.0}
    plain |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    nothing = dict.fromkeys(("top_k", "top_p", "min_p", "logit_bias"))
    assert sg.Sampling(**plain, **nothing) == sg.Sampling()
    assert sg.Sampling.greedy() == sg.Sampling(temperature=0)
    every = [sg.drafters.ForcedRun(), sg.drafters.StateTable(), sg.drafters.PromptLookup()]
    for mode in ("coupled", "exact_ratio"):
        drafters = [*every, sg.drafters.DraftModel(model)]
        speculation = sg.Speculation(drafters=drafters, max_draft_tokens=8, mode=mode, adaptive=True)
        options: Any = {"sampling": sg.Sampling(), "speculation": speculation, "scope": "mine", "deterministic": False}
        assert isinstance(model.generate(bool, "x", seed=1, max_tokens=40, route="r", **options), bool)
    assert sg.Speculation() == sg.Speculation(max_draft_tokens=8, mode="coupled", adaptive=True)
    assert sg.Speculation.off().drafters == ()
    with pytest.raises(sg.LimitError):
        sg.compile(
            sg.Regex("[ab]{200}c"),
            model.vocabulary,
            limits=sg.Limits(compile_seconds=9, states=9, memory_mb=9, depth=9),
        ).freeze()


# --- grammar layer ----------------------------------------------------------------------------------------------------


def test_the_grammar_layer() -> None:
    """Each line of it, on a type whose text is known."""
    vocabulary = sg.Vocabulary.from_tokenizer(byte_tokenizer())
    assert vocabulary.size == len(byte_tokenizer())
    assert vocabulary.token_bytes(vocabulary.size - 1) == b""
    assert vocabulary.digest == sg.Vocabulary.from_tokenizer(byte_tokenizer()).digest
    assert set(vocabulary.stop_ids) <= set(range(vocabulary.size))
    schema = {"type": "object", "properties": {"name": {"type": "boolean"}}, "required": ["name"]}
    schema["additionalProperties"] = False
    declared = sg.JsonSchema(schema, whitespace="compact")
    automaton = sg.compile(declared, vocabulary, limits=sg.Limits(), cache=None)
    state = automaton.start()
    assert isinstance(state, sg.ParserState)
    mask = state.mask()
    assert (mask.dtype, mask.shape, mask.flags.writeable) == (np.int32, (-(-vocabulary.size // 32),), False)
    assert state.forced_bytes() == b'{"name":'
    forced = state.forced_tokens()
    assert b"".join(map(vocabulary.token_bytes, forced)) == b'{"name":'
    assert state.allows(forced[0])
    wrong = next(token for token in range(vocabulary.size) if vocabulary.token_bytes(token) == b"x")
    with pytest.raises(sg.TokenRejectedError):
        state.advance(wrong)
    other = state.fork()
    for number, token in enumerate(forced, 1):
        bound = other.tokens_to_end_bound
        other.advance(token)
        assert other.tokens_to_end_bound == bound - 1 >= 0, number
    assert not other.is_accepting
    other.rollback(len(forced))
    assert np.array_equal(other.mask(), mask)
    assert state.token_ids == other.token_ids == ()
    automaton.freeze()
    assert automaton.is_frozen
    assert automaton.stats.states > 0
    for given in (schema, '{"type": "string", "pattern": "(a)\\\\1"}'):
        assert automaton.explain(given)
    assert sg.check(declared)
    with pytest.raises(sg.DeclareError):
        sg.check(complex)


# --- reports and tools around -----------------------------------------------------------------------------------------

REPORT = """law compile_cache num_prompt_tokens num_tokens num_target_passes tokens_per_target_pass ttft_s tpot_s
prefill_s draft_s verify_s mask_s drafted accepted acceptance_rate forced_tokens record truncated"""


def test_reports(model: sg.Model) -> None:
    """Each figure has its name and a value; routes sum them; a record replays."""
    result = model.run(bool, "x", seed=1, max_tokens=40, route="figures")
    assert isinstance(result, sg.Result)
    assert [name for name in REPORT.split() if getattr(result.report, name) is None] == []
    assert model.metrics["figures"].num_tokens == result.report.num_tokens
    assert sg.replay(result.report.record, model=model).token_ids == result.token_ids


def test_speedup() -> None:
    """The two examples of the contract."""
    assert sg.speedup(acceptance=0.8, draft_tokens=4, draft_cost=0.05, verify_cost=1.0) == pytest.approx(2.8, abs=0.01)
    assert sg.speedup(acceptance=0.2, draft_tokens=4, draft_cost=0.10, verify_cost=1.0) == pytest.approx(0.89, abs=0.01)


@pytest.mark.parametrize("command", ["demo", "generate", "check", "fetch-model", "bench", "speedup"])
def test_each_command_explains_itself(command: str) -> None:
    """With `--help`."""
    done = CliRunner().invoke(app, [command, "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.output
