"""States that texts met before: walks over them lower nothing, and say what a fresh automaton says, on and off them."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import structgen as sg
from schema_refusals import REFUSALS
from structgen.grammar import build, json_schema, met_states
from structgen.grammar.cache import CacheOutcome, CompileCache
from structgen.grammar.ir import Choice, Grammar, Literal, Source
from structgen.grammar.met_states import MetStates
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.output_type import declare
from structgen.vocabulary import Vocabulary

SHARED = Path(__file__).resolve().parents[3] / "shared" / "bench" / "maskbench_a"
PIECES = [b'":', b'": ', b'", "', b'{"', b"}, {", b": [", b"null", b"true", b" 1", b"20", b"an", b'e"', b"\xc3", b"ab"]
TOKENS = [*(bytes([byte]) for byte in range(256)), *PIECES, b"<stop>"]
STOP = len(TOKENS) - 1
VOCABULARY = Vocabulary.from_bytes(TOKENS, stop_ids=[STOP])
MEMBERS = {"name": {"type": "string"}, "size": {"type": "integer"}}
PERSON = {"type": "object", "properties": MEMBERS, "required": ["name"]}
TABLES = ("algebra", "arrays", "combine", "formats", "numbers", "objects", "scalars", "strings", "unevaluated")


def cases() -> Iterator[Any]:
    """Yield schemas with texts, those of the tables of the tests of JSON Schema."""
    for table in TABLES:
        for test in vars(importlib.import_module(f"grammar.json_schema.test_{table}")).values():
            for mark in getattr(test, "pytestmark", []):
                if mark.name == "parametrize" and mark.args[0] == ("schema", "words", "others"):
                    for name, (schema, words, others) in zip(mark.kwargs["ids"], mark.args[1], strict=True):
                        texts = [text.removeprefix("~") for text in (*words, *others) if len(text) < 1000]
                        if words:
                            yield pytest.param(schema, texts, id=f"{table}: {name}")


def source_of(schema: Any) -> Source:
    """Return the grammar of a schema, not made yet."""
    return declare(sg.JsonSchema(schema)).source


def said_along(automaton: TokenAutomaton, text: str) -> list[Any]:
    """Return what an automaton says of a text, token by token up to the first that is illegal, and of its end."""
    state, found = automaton.start(), []
    for token in VOCABULARY.encode(text.encode()):
        found += [state.mask().tobytes(), state.is_accepting]
        if not state.allows(token):
            return found
        state.advance(token)
    return [*found, state.mask().tobytes(), state.is_accepting, state.allows(STOP)]


def remember(folder: Path, source: Source, texts: list[str]) -> None:
    """Compile a grammar, walk some texts, and keep what that took, as a process does that ends then."""
    cache = CompileCache(folder)
    automaton, _ = cache.compile(source, VOCABULARY, sg.Limits())
    for text in texts:
        said_along(automaton, text)
    assert cache.store(source, automaton, sg.Limits())


def reopened(folder: Path, source: Source) -> TokenAutomaton:
    """Return the automaton that a later process finds."""
    automaton, outcome = CompileCache(folder).compile(source, VOCABULARY, sg.Limits())
    assert outcome is CacheOutcome.DISK
    return automaton


PARTS = CompileCache().scans_of(VOCABULARY)


def fresh(source: Source) -> TokenAutomaton:
    """Return an automaton that owes nothing to a cache."""
    return build.build_automaton(source.grammar, *PARTS, limits=sg.Limits(), digest="")


@pytest.fixture
def forbid_lowering(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes lowering, and parsing tables of any kind, raise from then on."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("this makes something of the grammar")

    def forbid() -> None:
        for module, name in ((json_schema, "lower_schema"), (json_schema, "Solver"), (json_schema, "Document")):
            monkeypatch.setattr(module, name, refuse)
        for name in ("spellable_productions", "core_of", "Parser", "AutomatonCore", "normalise", "grow"):
            monkeypatch.setattr(build, name, refuse)

    return forbid


@pytest.mark.parametrize(("schema", "texts"), list(cases()))
def test_a_hit_says_what_a_fresh_automaton_says(
    schema: Any, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that were walked before are walked with nothing lowered; then others lead out of what was met."""
    known, others = texts[::2], texts[1::2]
    remember(tmp_path, source_of(schema), known)
    expected = fresh(source_of(schema))
    automaton = reopened(tmp_path, source_of(schema))
    with monkeypatch.context() as forbidden:
        forbidden.setattr(MetStates, "core", property(lambda _: pytest.fail("something is lowered")))
        for text in known:
            assert said_along(automaton, text) == said_along(expected, text)
    for text in (*others, *known):
        assert said_along(automaton, text) == said_along(expected, text)


def test_a_first_mask_lowers_nothing(tmp_path: Path, forbid_lowering: Callable[[], None]) -> None:
    """On a hit no rule is made, no schema is looked into, and sizes and names are told all the same."""

    class Person(BaseModel):
        name: str
        size: int

    declared = [sg.JsonSchema(PERSON), Person, sg.Regex("a|b+")]
    first = CompileCache(tmp_path)
    masks = []
    for one in declared:
        automaton = sg.compile(one, VOCABULARY, cache=first)
        masks.append(automaton.start().mask().tobytes())
        assert first.store(declare(one).source, automaton, sg.Limits())
    forbid_lowering()

    later = CompileCache(tmp_path)
    for one, mask in zip(declared, masks, strict=True):
        automaton = sg.compile(one, VOCABULARY, cache=later)
        assert automaton.start().mask().tobytes() == mask
        assert automaton.vocabulary is VOCABULARY
        assert (automaton.stats.states, automaton.stats.rows, automaton.num_rows) == (1, 1, 1)
        assert f"terminals={automaton.stats.terminals}" in repr(automaton)
        with pytest.raises(AssertionError, match="makes something"):
            automaton.start().advance(ord("{"))


@pytest.mark.parametrize("row", REFUSALS[::4], ids=lambda row: row.name if hasattr(row, "name") else None)
def test_a_refused_schema_is_refused_again(row: Any, tmp_path: Path) -> None:
    """No file is written for what is refused, and the second refusal is the first, word for word."""
    errors = []
    for _ in range(2):
        with pytest.raises(sg.StructgenError) as error:
            sg.compile(sg.JsonSchema(row.schema), VOCABULARY, cache=CompileCache(tmp_path))
        errors.append((type(error.value), str(error.value)))
    assert errors[0] == errors[1]
    assert not list(tmp_path.rglob("*.arrays"))


def test_schemas_that_differ_in_order_only_are_two(tmp_path: Path) -> None:
    """Objects whose keys come in another order share no file, and the file of one is none for the other."""
    one = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    other = {"type": "object", "properties": {"b": {}, "a": {}}, "required": ["a", "b"]}
    remember(tmp_path, source_of(one), ['{"a": 1, "b": 2}'])
    (file,) = tmp_path.glob("*.arrays")
    assert CompileCache(tmp_path).compile(source_of(other), VOCABULARY, sg.Limits())[1] is CacheOutcome.MISS
    remember(tmp_path, source_of(other), ['{"b": 1, "a": 2}'])
    (other_file,) = set(tmp_path.glob("*.arrays")) - {file}
    file.replace(other_file)
    automaton, outcome = CompileCache(tmp_path).compile(source_of(other), VOCABULARY, sg.Limits())
    assert outcome is CacheOutcome.MISS
    assert said_along(automaton, '{"b": 1, "a": 2}') == said_along(fresh(source_of(other)), '{"b": 1, "a": 2}')


TEXTS = ['{"name": "ab"}', '{"name": "an", "size": 20}', '{"name": "x", "size": -1}']


def test_what_several_processes_met_is_all_kept(tmp_path: Path, forbid_lowering: Callable[[], None]) -> None:
    """A process that leaves the met states adds to them: the next one walks old and new texts with nothing lowered."""
    remember(tmp_path, source_of(PERSON), TEXTS[:1])
    second = CompileCache(tmp_path)
    automaton, outcome = second.compile(source_of(PERSON), VOCABULARY, sg.Limits())
    assert outcome is CacheOutcome.DISK
    assert not second.store(source_of(PERSON), automaton, sg.Limits())
    said_along(automaton, TEXTS[2])
    assert second.store(source_of(PERSON), automaton, sg.Limits())
    remember(tmp_path / "other", source_of(PERSON), [TEXTS[0], TEXTS[2]])
    expected = fresh(source_of(PERSON))
    said = [said_along(expected, TEXTS[0]), said_along(expected, TEXTS[2])]
    third = source_of(PERSON)
    forbid_lowering()

    assert [said_along(reopened(tmp_path, third), text) for text in (TEXTS[0], TEXTS[2])] == said


BOUNDS = [("_MAX_STATES", 1), ("_MAX_STATES", 5), ("_MAX_STEPS", 0), ("_MAX_STEPS", 7)]


@pytest.mark.parametrize(("name", "bound"), BOUNDS)
def test_bounds_on_what_is_kept_lose_nothing_else(
    name: str, bound: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only some of the states fit, walks leave them sooner and say the same."""
    monkeypatch.setattr(met_states, name, bound)
    remember(tmp_path, source_of(PERSON), TEXTS)
    automaton, expected = reopened(tmp_path, source_of(PERSON)), fresh(source_of(PERSON))
    assert automaton.stats.states <= 20 if name == "_MAX_STEPS" else automaton.stats.states == bound
    for text in TEXTS:
        assert said_along(automaton, text) == said_along(expected, text)


def test_words_never_met_stay_in_a_string(tmp_path: Path, forbid_lowering: Callable[[], None]) -> None:
    """Inside free text other words lead nowhere else, so they lower nothing; outside it they are looked at."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}, "required": ["a"]}
    remember(tmp_path, source_of(schema), ['{"a": "xyz"}'])
    texts = ['{"a": "xyabanother 20 null"}', '{"a": "xyz}, {true"}', '{"a": "xyz"x']
    said = [said_along(fresh(source_of(schema)), text) for text in texts]
    again = source_of(schema)
    assert said_along(reopened(tmp_path, again), '{"a": "é"}') == said_along(fresh(source_of(schema)), '{"a": "é"}')
    forbid_lowering()
    assert [said_along(reopened(tmp_path, source_of(schema)), text) for text in texts] == said
    with pytest.raises(AssertionError, match="makes something"):
        said_along(reopened(tmp_path, source_of(schema)), '{"a": "é"}')


BODIES = [
    {"type": "string"},
    {"type": "string", "minLength": 3},
    {"type": "string", "maxLength": 9},
    {"type": "string", "pattern": "^[ab1]*$"},
    {"type": "string", "pattern": "^(a|ab)+$"},
    {"type": ["string", "number"]},
    {"anyOf": [{"type": "string", "minLength": 2}, {"type": "string", "pattern": "b$"}]},
    {"type": "object", "additionalProperties": {"type": "integer"}},
]


@pytest.mark.parametrize("schema", BODIES, ids=str)
def test_tokens_that_change_nothing_are_just_those(schema: Any) -> None:
    """Every token that is said to stay leads back to its state, and in a plain string these are nearly all."""
    automaton = fresh(source_of(schema))
    for text in ('"abab"', '"b1', '{"a": 20}', "20"):
        said_along(automaton, text)
    arrays, core = automaton.export(), automaton._core
    num_staying = []
    opened = MetStates(arrays, VOCABULARY, lambda: pytest.fail("something is lowered"))
    for configuration in opened.configurations:
        place = opened._states[configuration - opened.start_configuration, met_states._STAYING]
        if place < 0:
            continue
        row = np.unpackbits(opened._row(int(place)).view(np.uint8), bitorder="little")
        tokens = np.flatnonzero(row).tolist()
        num_staying.append(len(tokens))
        way, state = [], configuration - opened.start_configuration
        while state:
            way.append(int(opened._states[state, met_states._TOKEN]))
            state = int(opened._states[state, met_states._BEFORE])
        here = core.start_configuration
        for token in reversed(way):
            here = core.next_configuration(here, token)
        legal = np.flatnonzero(np.unpackbits(core.mask(here).view(np.uint8), bitorder="little")).tolist()
        same = [token for token in legal if token != STOP and core.next_configuration(here, token) == here]
        assert tokens == same
    if schema == {"type": "string"}:
        assert min(num_staying) > 100


def test_where_the_text_may_end_no_token_stays(tmp_path: Path) -> None:
    """What another lexeme has ended is over one token on, though the same word is read as before."""
    source = declare(sg.Lark('start: A | A REST\nA: "ab"\nREST: /[^c]*c/')).source
    remember(tmp_path, source, ["ab"])
    for text in ("ab", "abx", "ab null", "abxc"):
        assert said_along(reopened(tmp_path, source), text) == said_along(fresh(source), text)


def test_all_questions_are_answered_at_a_met_state(tmp_path: Path) -> None:
    """Costs, budgets, free text, forced bytes, drafts, rollback and forks: as the fresh automaton has them."""
    remember(tmp_path, source_of(PERSON), TEXTS)
    expected = fresh(source_of(PERSON))
    tokens = VOCABULARY.encode(TEXTS[1].encode())
    for taken in range(len(tokens) + 1):
        pair = [reopened(tmp_path, source_of(PERSON)).start(), expected.start()]
        for state in pair:
            for token in tokens[:taken]:
                state.advance(token)
        one, other = pair
        bound = other.tokens_to_end_bound
        for budget in (bound, bound + 1, bound + 40):
            assert np.array_equal(one.mask_within(max(1, budget)), other.mask_within(max(1, budget)))
        assert one.tokens_to_end_bound == bound
        assert one.forced_tokens() == other.forced_tokens()
        free = [state.free_text_mask() for state in pair]
        assert np.array_equal(free[0], free[1]) if free[1] is not None else free[0] is None
        assert one.fork().key == one.key
        assert one.description.partition("(")[2] == other.description.partition("(")[2]
        with pytest.raises(sg.TokenRejectedError, match="not legal in state"):
            one.advance(0)
        one.rollback(taken)
        assert np.array_equal(one.mask(), expected.start().mask())


def test_a_key_means_one_set_of_tokens(tmp_path: Path) -> None:
    """Wherever two met states have the same key, the same tokens are legal."""
    remember(tmp_path, source_of(PERSON), TEXTS)
    automaton = reopened(tmp_path, source_of(PERSON))
    by_key: dict[Any, set[bytes]] = {}
    for text in [*TEXTS, '{"name": "never met"}']:
        state = automaton.start()
        for token in VOCABULARY.encode(text.encode()):
            by_key.setdefault(state.key, set()).add(state.mask().tobytes())
            state.advance(token)
    assert len(by_key) > 5
    assert all(len(masks) == 1 for masks in by_key.values())


def test_threads_that_leave_together_make_one_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grammar is lowered once, whoever needs it first; walks that go on over met states agree with the others."""
    remember(tmp_path, source_of(PERSON), TEXTS[:1])
    automaton = reopened(tmp_path, source_of(PERSON))
    made, core_of = [], build.core_of
    monkeypatch.setattr(build, "core_of", lambda *parts: made.append(parts) or core_of(*parts))
    said: dict[int, list[Any]] = {}
    begin = threading.Barrier(6)

    def work(number: int) -> None:
        begin.wait()
        said[number] = [said_along(automaton, text) for text in (TEXTS if number % 2 else TEXTS[::-1])]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = fresh(source_of(PERSON))
    for number, found in said.items():
        assert found == [said_along(expected, text) for text in (TEXTS if number % 2 else TEXTS[::-1])]
    assert len(said) == 6
    assert len(made) == 2  # of the hit, and of the fresh one


def test_an_automaton_that_was_opened_grows_freezes_and_explains(tmp_path: Path) -> None:
    """Whatever needs the whole grammar lowers it then."""
    schema = {"enum": ["a", "ab"]}
    remember(tmp_path, source_of(schema), ['"a"'])
    automaton = reopened(tmp_path, source_of(schema))
    expected = fresh(source_of(schema))
    before = automaton.start()
    automaton.freeze()
    for state in (before, automaton.start()):
        for token in VOCABULARY.encode(b'"ab'):
            state.advance(token)
        assert state.mask().tobytes() == said_along(expected, '"ab')[-3]
    assert automaton.is_frozen
    assert automaton.explain(schema).findings
    assert reopened(tmp_path, source_of(schema)).freeze_part(num_states=5).machine.num_states > 1


def test_a_walk_keeps_its_states_when_the_core_is_changed(tmp_path: Path) -> None:
    """Once a core has grown, new walks get another; one that began over met states goes on in the old."""
    limits = sg.Limits(states=60)
    cache = CompileCache(tmp_path)
    automaton, _ = cache.compile(source_of({"type": "string", "maxLength": 500}), VOCABULARY, limits)
    said_along(automaton, '"ab')
    assert cache.store(source_of({"type": "string", "maxLength": 500}), automaton, limits)
    opened, _ = CompileCache(tmp_path).compile(source_of({"type": "string", "maxLength": 500}), VOCABULARY, limits)
    old = opened.start()
    for token in VOCABULARY.encode(b'"ab'):
        old.advance(token)
    long = opened.start()
    for token in b'"' + b"x" * 40:
        long.advance(token)
    fresh_walks = [opened.start() for _ in range(2)]
    assert fresh_walks[0].automaton is not long.automaton
    old.advance(ord("c"))
    old.advance(ord('"'))
    assert old.is_accepting
    assert opened.export()["met_states"].shape[1] == 6


def test_other_grammars_are_kept_by_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar that is there already is found by its rules, and walked without productions."""
    grammar = Grammar({"s": Choice((Literal(b"ab"), Literal(b"b1")))}, "s")
    remember(tmp_path, Source.of(grammar), ["ab"])
    said = said_along(fresh(Source.of(grammar)), "ab")
    monkeypatch.setattr(build, "spellable_productions", None)
    assert said_along(reopened(tmp_path, Source.of(grammar)), "ab") == said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is ignored")
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/bench/maskbench_a")
def test_real_schemas_seen_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 300 schemas of the benchmark: valid instances again with nothing lowered, invalid ones lead out."""
    num_hits = 0
    for path in sorted(SHARED.glob("*.json"))[:300]:
        data = json.loads(path.read_text(encoding="utf-8"))
        texts = [json.dumps(test["data"], ensure_ascii=False) for test in data["tests"]]
        known = texts[: len(texts) // 2 + 1] or [""]
        try:
            remember(tmp_path / path.stem, source_of(data["schema"]), known)
        except sg.StructgenError:
            continue
        automaton, expected = (
            reopened(tmp_path / path.stem, source_of(data["schema"])),
            fresh(source_of(data["schema"])),
        )
        with monkeypatch.context() as forbidden:
            forbidden.setattr(MetStates, "core", property(lambda _: pytest.fail("something is lowered")))
            for text in known:
                assert said_along(automaton, text) == said_along(expected, text), path.name
        for text in texts:
            assert said_along(automaton, text) == said_along(expected, text), path.name
        num_hits += 1
    assert num_hits > 250
