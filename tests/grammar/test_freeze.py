"""A frozen automaton answers as the lazy one does, in every state; its limits, its file, and threads that freeze."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

import structgen as sg
from json_strategies import schemas as json_schemas
from oracle.frozen import check_alike, check_all_states, legal_tokens
from oracle.strategies import class_star, grammars, vocabularies
from oracle.walks import tokens_of
from structgen.config import Limits
from structgen.errors import (
    DeclareError,
    LimitError,
    OptionError,
    TokenRejectedError,
    UnsatisfiableError,
    VocabularyError,
)
from structgen.frozen_machine import DEAD_CLASS, MAX_LISTED_TOKENS, STOP_CLASS, FrozenMachine
from structgen.grammar.build import build_automaton
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.grammar.ir import Grammar, Lexeme, Literal, Sequence
from structgen.grammar.parser_state import ParserState
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.output_type import lower
from structgen.vocabulary import Vocabulary

SMALL = Limits(states=1500, depth=40)
PIECES = ["na", "name", '":', '{"', '", "', '"}', "ab", "aab", "aaaaaa", "tru", "true", "12", "  ", "é", "😀", "\\u00"]
BYTES = Vocabulary.from_bytes([*(bytes([b]) for b in range(256)), *map(str.encode, PIECES), b"", b""], stop_ids=[273])
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "kind": {"enum": ["ab", "aab", None]},
        "many": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "free": {"type": "string"},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}


def built(grammar: Grammar, vocabulary: Vocabulary, limits: Limits = SMALL) -> TokenAutomaton:
    """Return the automaton, nothing of it cached."""
    return build_automaton(grammar, VocabularyScans(vocabulary), Spelling(vocabulary), limits=limits, digest="test")


def compiled(output_type: Any = None, limits: Limits | None = None) -> TokenAutomaton:
    """Return an automaton over bytes and some pieces."""
    declared = sg.JsonSchema(SCHEMA, whitespace="spaced") if output_type is None else output_type
    return sg.compile(declared, BYTES, cache=None, limits=limits)


def check_frozen(grammar: Grammar, vocabulary: Vocabulary, *, most: int) -> None:
    """Freeze, if it can be, and check states and classes."""
    try:
        automaton = built(grammar, vocabulary)
    except (UnsatisfiableError, VocabularyError, LimitError):
        assume(False)
    lazy = automaton.start()
    try:
        automaton.freeze()
    except LimitError:
        assert not automaton.is_frozen
        assume(False)
    machine = automaton.frozen_machine
    assert machine is not None
    columns = {column.tobytes() for column in np.ascontiguousarray(machine.next_state.T)[STOP_CLASS + 1 :]}
    assert len(columns) == machine.num_classes - 2
    assert (machine.next_state[:, STOP_CLASS + 1 :] >= 0).any(axis=0).all()
    by_class: dict[int, list[int]] = {}
    for token, k in enumerate(machine.token_class.tolist()):
        by_class.setdefault(k, []).append(token)
    assert set(by_class.get(STOP_CLASS, [])) == set(vocabulary.stop_ids)

    def look(state: ParserState) -> None:
        """Tokens of one class lead the lazy automaton to one place, or nowhere."""
        legal = tokens_of(state.mask(), vocabulary) - set(vocabulary.stop_ids)
        assert not legal & set(by_class.get(DEAD_CLASS, []))
        for tokens in by_class.values():
            assert len(legal & set(tokens)) in {0, len(tokens)}
            ends = set()
            for token in legal & set(tokens):
                state.advance(token)
                ends.add(state.configuration)
                state.rollback(1)
            assert len(ends) <= 1

    check_all_states(lazy, automaton.start(), vocabulary, most=most, look=look)
    check_tables(machine)


def check_tables(machine: FrozenMachine) -> None:
    """Assert that rows, lists and counts say what the steps say, and that nothing leads on from the end."""
    assert (machine.next_state[machine.end] == -1).all()
    assert not machine.accepting[machine.end]
    assert (machine.next_state[machine.accepting, STOP_CLASS] == (machine.end if len(machine.stop_ids) else -1)).all()
    for state in range(machine.num_states):
        after = machine.next_state[state][machine.token_class]
        legal = np.flatnonzero(after >= 0)
        row = machine.mask_row[state]
        bits = np.unpackbits(machine.mask_rows[row].view(np.uint8), bitorder="little")
        assert np.flatnonzero(bits).tolist() == legal.tolist()
        assert machine.num_legal[row] == len(legal)
        listed = machine.list_ids[machine.list_start[row] : machine.list_start[row + 1]]
        assert listed.tolist() == (legal.tolist() if len(legal) <= MAX_LISTED_TOKENS else [])
        assert machine.cost_after[state] == machine.cost[after[legal]].max(initial=0)


@given(grammars(), vocabularies())
def test_random_grammars_agree(grammar, vocabulary):
    """Recursion, ambiguity, counts and vocabularies that lack bytes included."""
    check_frozen(grammar, vocabulary, most=12)


@given(json_schemas)
@settings(max_examples=settings.default.max_examples // 2)
def test_random_schemas_agree(schema):
    """Schemas that close, over every byte and some pieces."""
    try:
        grammar = lower(sg.JsonSchema(schema, whitespace="spaced")).grammar
    except (DeclareError, UnsatisfiableError, LimitError):
        assume(False)
    check_frozen(grammar, BYTES, most=4)


@pytest.mark.parametrize(
    "output_type",
    [
        sg.Regex("[a-c]{2,5}|é+x?"),
        sg.Regex("(a|ab)(c|bcd)*"),
        sg.Regex("(?:[a-z]{1,4} ){1,3}!"),
        sg.Lark('start: "a" b* "c"\nb: "x" | "y" "z"~1..3\n%ignore " "'),
        sg.Lark("start: start A | A\nA: /[ab]+/"),
        sg.Lark("start: start A | A\nA: /[ab]+/", lexer="contextual"),
        sg.Choice(["red", "green", "re"]),
        str,
        sg.JsonSchema({"type": "string", "minLength": 3, "maxLength": 40}),
        sg.JsonSchema({"type": "array", "items": {"type": "string", "maxLength": 2}, "minItems": 1, "maxItems": 4}),
    ],
)
def test_what_other_front_ends_read_agrees(output_type):
    """Regular expressions, Lark grammars, choices, free text and counts."""
    check_frozen(lower(output_type).grammar, BYTES, most=8)


@pytest.mark.parametrize("bounds", [(3, None), (0, 4), (2, 5), (0, None)])
def test_free_text_of_bounded_words_agrees(bounds: tuple[int, int | None]) -> None:
    """A word that cannot be as long as it must be is no free text, nor one that is too long."""
    word = Lexeme(class_star("a*|b{0,2}"), *bounds, free_text=True)

    check_frozen(Grammar({"s": Sequence((word, Literal(b"!")))}, "s"), BYTES, most=8)


def test_walks_before_go_on_and_walks_after_look_up() -> None:
    """One reference is swapped: a state that was taken before freezing knows nothing of it, and both agree."""
    automaton = compiled()
    assert not automaton.is_frozen
    assert automaton.frozen_machine is None
    assert automaton.stats.classes == 0
    before = automaton.start()
    for byte in b'{"name": "a':
        before.advance(byte)

    automaton.freeze()

    assert automaton.is_frozen
    after = automaton.start()
    assert type(after.automaton) is not type(before.automaton)
    for byte in b'{"name": "a':
        after.advance(byte)
    check_alike(before, after)
    machine = automaton.frozen_machine
    assert machine is not None
    stats = automaton.stats
    assert (stats.states, stats.rows, stats.classes) == (machine.num_states, machine.num_rows, machine.num_classes)
    assert stats.memory_bytes == machine.num_bytes > machine.next_state.nbytes
    assert "frozen" in repr(automaton)
    automaton.freeze()
    assert automaton.frozen_machine is machine


def test_threads_may_freeze_and_walk_at_once() -> None:
    """Whoever comes first freezes; nobody sees half of it."""
    automaton = compiled()
    expected = legal_tokens(compiled().start(), BYTES)
    faults: list[BaseException] = []
    machines: list[FrozenMachine | None] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                assert legal_tokens(automaton.start(), BYTES) == expected
            if number % 2:
                automaton.freeze()
                machines.append(automaton.frozen_machine)
        except BaseException as error:  # told by the main thread
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not faults
    assert len(machines) == 3
    assert len({id(machine) for machine in machines}) == 1


@pytest.mark.parametrize(
    ("output_type", "limits", "limit"),
    [
        (sg.Lark('start: "(" start ")" | "x"'), None, "depth"),
        (sg.JsonSchema({"type": "array", "items": {"$ref": "#"}}), None, "depth"),
        (sg.Regex("[a-z]{1,3000}"), Limits(states=2000), "states"),
        (sg.JsonSchema(SCHEMA), Limits(memory_mb=0.01), "memory_mb"),
        (sg.Regex("[a-z]{1,150000}"), Limits(compile_seconds=0.1), "compile_seconds"),
    ],
)
def test_what_does_not_close_is_refused_and_stays_usable(output_type: Any, limits: Limits | None, limit: str) -> None:
    """The error names the limit, and the automaton goes on lazily as if nothing had been."""
    automaton = compiled(output_type, limits)
    expected = legal_tokens(automaton.start(), BYTES)
    stats = automaton.stats

    with pytest.raises(LimitError, match="cannot be frozen") as caught:
        automaton.freeze()

    assert caught.value.limit == limit
    assert not automaton.is_frozen
    now = automaton.stats
    assert (now.states, now.rows, now.classes, now.memory_bytes) == (stats.states, stats.rows, 0, stats.memory_bytes)
    assert legal_tokens(automaton.start(), BYTES) == expected


def test_long_counts_freeze() -> None:
    """A state for each character, rows that are shared: thousands of states within a second or so."""
    automaton = compiled(sg.Regex("[a-z]{1,3000}"))

    automaton.freeze()

    assert automaton.stats.states > 3000
    assert automaton.stats.rows < 40


# ------------------------------------------------------------------ the file


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Return a file that holds a frozen machine."""
    automaton = compiled()
    automaton.freeze()
    assert automaton.frozen_machine is not None
    path = tmp_path / "deeper" / "machine.npz"
    automaton.frozen_machine.save(path)
    return path


def test_a_file_holds_the_whole_machine(saved: Path) -> None:
    """All arrays come back, and walks over them agree with the lazy automaton."""
    automaton = compiled()
    automaton.freeze()
    machine = FrozenMachine.load(str(saved))
    made = automaton.frozen_machine
    assert made is not None
    assert repr(machine) == repr(made)
    assert (machine.start, machine.vocabulary_digest) == (made.start, made.vocabulary_digest)
    for name, value in vars(made).items():
        if isinstance(value, np.ndarray):
            found = getattr(machine, name)
            assert found.dtype == value.dtype, name
            assert np.array_equal(found, value), name
            assert not found.flags.writeable, name

    frozen = FrozenAutomaton(machine, BYTES)
    assert check_all_states(compiled().start(), frozen.start(), BYTES, most=15, look=lambda state: None) == 15


_LOADER = """
import sys

for name in ("pydantic", "pydantic_core", "lark", "interegular", "jsonschema"):
    sys.modules[name] = None
from structgen.frozen_machine import FrozenMachine
from structgen.grammar.frozen_automaton import FrozenAutomaton
from structgen.vocabulary import Vocabulary

tokens = [*(bytes([b]) for b in range(256)), *map(str.encode, eval(sys.argv[2])), b"", b""]
state = FrozenAutomaton(FrozenMachine.load(sys.argv[1]), Vocabulary.from_bytes(tokens, stop_ids=[273])).start()
for byte in state.forced_bytes():
    state.advance(byte)
print(state.text_bytes.decode(), state.tokens_to_end_bound, [i for i in range(274) if state.allows(i)])
"""


def test_a_machine_that_only_decodes_can_load_it(saved: Path) -> None:
    """Pydantic, Lark, interegular and jsonschema are needed to declare, not to walk."""
    state = compiled().start()
    for byte in state.forced_bytes():
        state.advance(byte)

    ran = subprocess.run(
        [sys.executable, "-c", _LOADER, str(saved), repr(PIECES)], capture_output=True, text=True, check=False
    )

    assert ran.stderr == ""
    assert ran.stdout.split("\n")[0] == (
        f"{state.text_bytes.decode()} {state.tokens_to_end_bound} {legal_tokens(state, BYTES)}"
    )


def test_damage_is_told(saved: Path) -> None:
    """One bit anywhere in the data, half a file, another file, no file: an error that says so, never a machine."""
    data = saved.read_bytes()
    with zipfile.ZipFile(saved) as archive:
        spots = [info.header_offset + 200 for info in archive.infolist() if info.file_size > 400]
    assert len(spots) > 10
    for spot in spots:
        saved.write_bytes(data[:spot] + bytes([data[spot] ^ 4]) + data[spot + 1 :])
        with pytest.raises(OptionError, match="holds no frozen machine"):
            FrozenMachine.load(saved)
    for other in (data[: len(data) // 2], b"", b"text"):
        saved.write_bytes(other)
        with pytest.raises(OptionError, match="holds no frozen machine"):
            FrozenMachine.load(saved)
    np.savez(saved, some=np.zeros(3))
    with pytest.raises(OptionError, match="holds no frozen machine"):
        FrozenMachine.load(saved)
    saved.unlink()
    with pytest.raises(OptionError, match="there is no file"):
        FrozenMachine.load(saved)
    for wrong in (None, 3, b"bytes"):
        with pytest.raises(OptionError, match="path must be"):
            FrozenMachine.load(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("next_state", lambda array: array + 1000),
        ("next_state", lambda array: array.astype(np.int64)),
        ("token_class", lambda array: array + np.uint16(9000)),
        ("token_class", lambda array: np.tile(array, 2)),
        ("mask_row", lambda array: array - 2),
        ("mask_rows", lambda array: array[:, :-1]),
        ("mask_rows", lambda array: array[:-1]),
        ("list_start", lambda array: array[::-1]),
        ("free_row", lambda array: array + 1000),
        ("byte_next", lambda array: array[:-1]),
        ("place", lambda array: array + 1000),
        ("header", lambda array: array + np.array([0, 100000])),
        ("header", lambda array: array + np.array([1, 0])),
    ],
)
def test_what_would_lead_out_of_the_tables_is_refused(saved: Path, name: str, change: Any) -> None:
    """A file whose checksums are right may still be none of ours."""
    with np.load(saved) as archive:
        arrays = dict(archive)
    arrays[name] = change(arrays[name])
    np.savez(saved, **arrays)

    with pytest.raises(OptionError, match="holds no frozen machine"):
        FrozenMachine.load(saved)


def test_another_vocabulary_is_refused(saved: Path) -> None:
    """Ids mean nothing without their vocabulary, stop ids included."""
    other = Vocabulary.from_bytes(BYTES.table.tokens, stop_ids=[272])

    with pytest.raises(VocabularyError, match="another vocabulary"):
        FrozenAutomaton(FrozenMachine.load(saved), other)


def test_refused_tokens_leave_the_state(saved: Path) -> None:
    """As with the lazy automaton: tokens of the grammar elsewhere, special ones, and any after the end."""
    state = FrozenAutomaton(FrozenMachine.load(saved), BYTES).start()
    for token in (ord("x"), 272, 273, 274, -1):
        with pytest.raises(TokenRejectedError):
            state.advance(token)
    assert state.token_ids == ()


# ------------------------------------------------------------------ real ones

_LLAMA = Path.home() / ".cache/structgen-bench/tokenizers/llama3"
_BENCH = Path(__file__).parents[3] / "shared/bench/maskbench_a"


@pytest.mark.slow
@pytest.mark.skipif(not _LLAMA.exists() or not _BENCH.exists(), reason="needs the Llama-3 tokenizer and ../shared")
def test_real_schemas_agree_on_llama3() -> None:
    """Random walks over real schemas, 128,256 ids: every answer is the lazy one."""
    import json

    from transformers import AutoTokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(_LLAMA))
    rng = np.random.default_rng(5)
    num_frozen = 0
    for path in sorted(_BENCH.glob("*.json"))[:400:16]:
        schema = json.loads(path.read_text())
        schema = schema.get("schema", schema)
        try:
            automaton = sg.compile(
                sg.JsonSchema(schema, whitespace="spaced"), vocabulary, cache=None, limits=Limits(states=20_000)
            )
            lazy = sg.compile(sg.JsonSchema(schema, whitespace="spaced"), vocabulary, cache=None).start()
            automaton.freeze()
        except (DeclareError, LimitError):
            continue
        num_frozen += 1
        frozen = automaton.start()
        for _ in range(60):
            check_alike(lazy, frozen)
            within = lazy.mask_within(lazy.tokens_to_end_bound + int(rng.integers(1, 40)))
            legal = np.flatnonzero(np.unpackbits(within.view(np.uint8), bitorder="little"))
            if lazy.is_finished or not len(legal):
                break
            token = int(rng.choice(legal))
            lazy.advance(token)
            frozen.advance(token)
    assert num_frozen >= 8
