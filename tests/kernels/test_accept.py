"""Drafts of a batch are accepted as host mode accepts each of them, and what is written keeps the target's law."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import structgen as sg
from batch_rows import STOPS, Row, arena, begin, check_registers
from frozen_machines import VOCABULARY, legal_tokens, machines
from structgen.decode.acceptance import descend, draw_from, verify_block
from structgen.kernels import accept as op
from structgen.kernels.accept import Accepted, BatchDraft, ChainLaws, Places, verify_blocks_reference
from structgen.kernels.advance import RUNNING, Registers
from structgen.kernels.arena import Arena
from triton_scripts import AHEAD_OF_TIME, run_script

NUM_ROWS, NUM_NODES = 5, 6

Op = Callable[..., None]


def random_draft(rows: list[Row], generator: np.random.Generator) -> BatchDraft:
    """Draft trees: mostly legal tokens, each once below a node; some nodes are left out."""
    token_id = np.full((len(rows), NUM_NODES), -1, np.int32)
    parent = np.full((len(rows), NUM_NODES), -1, np.int32)
    for index, row in enumerate(rows):
        walks = {0: row.state.fork()}
        for node in range(1, NUM_NODES):
            before = int(generator.choice(list(walks)))
            legal = legal_tokens(walks[before].mask()) if generator.random() < 0.9 else list(range(280))
            known = token_id[index, parent[index] == before]
            tokens = sorted(set(legal) - set(known.tolist()))
            if not tokens or generator.random() < 0.1:
                continue
            token = int(generator.choice(tokens))
            token_id[index, node], parent[index, node] = token, before
            walk = walks[before].fork()
            if not walk.allows(token):
                continue
            walk.advance(token)
            walks[node] = walk
    return BatchDraft(token_id=torch.from_numpy(token_id), parent=torch.from_numpy(parent), depth=NUM_NODES - 1)


def check_trees(places_op: Op, accept_op: Op, *, num_batches: int) -> Counter[int]:
    """Accept random trees beside `descend` over each row's automaton; return how often how much was accepted."""
    generator = np.random.default_rng(3)
    arena_ = arena(1)
    accepted = Accepted.new(NUM_ROWS, NUM_NODES)
    places = Places.new(NUM_ROWS, NUM_NODES)
    seen: Counter[int] = Counter()
    for _ in range(num_batches):
        rows = [
            Row(number, machines()[number].cost[machines()[number].start] + generator.integers(0, 5), 7)
            for number in generator.integers(0, len(machines()), NUM_ROWS).tolist()
        ]
        registers = begin(rows, arena_)
        for _ in range(4):
            draft = random_draft(rows, generator)
            places_op(arena_.tables, registers, draft, places)
            drawn = torch.full((NUM_ROWS, NUM_NODES), -1, dtype=torch.int32)
            paths = []
            for index, row in enumerate(rows):
                paths.append(expected_path(row, index, draft, drawn, places, arena_, generator))
            accept_op(arena_.tables, registers, draft, drawn, accepted)
            check_registers(registers, rows, arena_)
            assert accepted.num_accepted.tolist() == [len(path) for path in paths]
            for index, path in enumerate(paths):
                assert accepted.path[index].tolist() == path + [-1] * (NUM_NODES - len(path))
            seen.update(map(len, paths))
    return seen


def expected_path(
    row: Row,
    index: int,
    draft: BatchDraft,
    drawn: torch.Tensor,
    places: Places,
    arena_: Arena,
    generator: np.random.Generator,
) -> list[int]:
    """Fill what is drawn at the nodes that are reached, check where they stand, and return the path of host mode."""
    children: list[dict[int, int]] = [{} for _ in range(NUM_NODES)]
    for node in range(1, NUM_NODES):
        if draft.parent[index, node] >= 0:
            children[draft.parent[index, node]][int(draft.token_id[index, node])] = node

    def draw(node: int) -> int | None:
        if row.is_done != RUNNING:
            return None
        machine, state = arena_.machine_of(int(places.state[index, node]))
        assert (machine, state) == (row.machine, row.state.configuration)
        assert (places.num_left[index, node], places.position[index, node]) == (row.left, row.position)
        legal = legal_tokens(row.mask())
        drafted = sorted(set(children[node]) & set(legal))
        token = int(generator.choice(drafted if drafted and generator.random() < 0.8 else [*legal, -1]))
        drawn[index, node] = token
        row.take(token)
        return None if token < 0 or token in STOPS else token

    return descend(lambda node: children[node], draw)


def test_trees_are_accepted_as_host_mode_does() -> None:
    """Illegal drafts, absent nodes, stops, ends within a draft, rows that are done: path, registers and places."""
    seen = check_trees(op.draft_places_, op.accept_, num_batches=25)
    assert set(seen) >= {0, 1, 2, 3}


def abc_registers(num_rows: int) -> tuple[Arena, Registers]:
    """Return rows before texts of three letters, a to c."""
    automaton = sg.compile(sg.Regex("[abc]{3}x*"), VOCABULARY, cache=None)
    automaton.freeze()
    machine = automaton.frozen_machine
    assert machine is not None
    arena_ = Arena(vocabulary_digest=VOCABULARY.digest, num_tokens=VOCABULARY.size, num_private_rows=1)
    registers = Registers.new(num_rows, ring_size=4)
    registers.state.fill_(arena_.add(machine))
    registers.num_left.fill_(100)
    registers.is_done.fill_(RUNNING)
    return arena_, registers


@pytest.mark.parametrize("guesses", [["a", "b"], ["a", "aa", "ab"], ["b", "c", "cb"], ["a", "ab", "abc"]], ids=str)
def test_comparison_keeps_the_law_of_the_target(guesses: list[str]) -> None:
    """Over every combination of draws at the nodes the texts of three letters have the target's law, within 1e-9."""
    laws = {text: np.random.default_rng(len(text)).dirichlet([1, 1, 1]) for text in ["", *_texts(1), *_texts(2)]}
    nodes = ["", *guesses]
    combinations = list(itertools.product("abc", repeat=len(nodes)))
    arena_, registers = abc_registers(len(combinations))
    parent = [-1, *(nodes.index(text[:-1]) for text in guesses)]
    draft = BatchDraft(
        token_id=torch.tensor([[-1, *(ord(text[-1]) for text in guesses)]] * len(combinations), dtype=torch.int32),
        parent=torch.tensor([parent] * len(combinations), dtype=torch.int32),
        depth=max(map(len, guesses)),
    )
    drawn = torch.tensor([[ord(letter) for letter in draws] for draws in combinations], dtype=torch.int32)
    op.accept_(arena_.tables, registers, draft, drawn, Accepted.new(len(combinations), len(nodes)))
    got: Counter[str] = Counter()
    for index, draws in enumerate(combinations):
        weight = 1.0
        for node, letter in zip(nodes, draws, strict=True):
            if len(node) < 3:
                weight *= laws[node]["abc".index(letter)]
            else:
                weight /= 3
        text = "".join(map(chr, registers.ring[index, : int(registers.ring_end[index])].tolist()))[:3]
        for rest in _texts(3 - len(text)):
            got[text + rest] += weight * _probability(laws, text, rest)
    want = {text: _probability(laws, "", text) for text in _texts(3)}
    assert sum(abs(got[text] - want[text]) for text in want) / 2 < 1e-9
    assert sum(got.values()) == pytest.approx(1)


def _texts(length: int) -> list[str]:
    return ["".join(letters) for letters in itertools.product("abc", repeat=length)]


def _probability(laws: dict[str, np.ndarray], before: str, rest: str) -> float:
    value = 1.0
    for number, letter in enumerate(rest):
        value *= laws[before + rest[:number]]["abc".index(letter)]
    return value


# ---------------------------------------------------------------------------------- block verification


def random_chains(num_rows: int, num_drafted: int, num_columns: int, seed: int) -> tuple[BatchDraft, ChainLaws]:
    """Draw chains of ragged length: laws with zeros, laws that agree, named tokens, places without a law."""
    generator = np.random.default_rng(seed)
    target = generator.dirichlet([0.7] * num_columns, (num_rows, num_drafted + 1))
    target[generator.random(target.shape) < 0.2] = 0.0
    target[:, :, 0] += 0.01
    target /= target.sum(axis=2, keepdims=True)
    drafts = generator.dirichlet([0.7] * num_columns, (num_rows, num_drafted))
    drafts[: num_rows // 4] = target[: num_rows // 4, :-1]
    size = generator.integers(0, num_drafted + 1, num_rows).astype(np.int32)
    tokens = np.full((num_rows, num_drafted + 1), -1, np.int32)
    for row, place in np.ndindex(num_rows, num_drafted):
        if place >= size[row]:
            drafts[row, place] = 0
            continue
        if generator.random() < 0.2:
            drafts[row, place] = np.eye(num_columns)[generator.integers(num_columns)]
        tokens[row, place + 1] = generator.choice(num_columns, p=drafts[row, place])
        if place and generator.random() < 0.05:
            target[row, place] = 0
    coins = generator.random((num_rows, num_drafted + 1))
    laws = [torch.from_numpy(one) for one in (target, drafts, size, coins)]
    chain = BatchDraft.chain(torch.from_numpy(tokens))
    return chain, ChainLaws(target=laws[0], draft=laws[1], num_drafted=laws[2], coins=laws[3])


def host_decision(draft: BatchDraft, laws: ChainLaws, row: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Return (length of the chain, thresholds, laws) of structgen.decode.acceptance for one row."""
    target, size = laws.target[row].numpy(), int(laws.num_drafted[row])
    size = next((number for number in range(1, size) if not target[number].any()), size)
    tokens = draft.token_id[row, 1 : size + 1].tolist()
    found = verify_block(target[: size + 1], laws.draft[row, :size].numpy(), tokens)
    return size, found.thresholds, found.laws


def check_chains(decide: Op, *, num_rows: int, num_columns: int) -> None:
    """Assert that decisions over random chains are those of host mode with the same coins."""
    draft, laws = random_chains(num_rows, 3, num_columns, seed=num_columns)
    before = torch.arange(num_rows * 4, dtype=torch.int32).view(num_rows, 4) + 1000
    drawn = before.clone()
    decide(draft, laws, drawn)
    num_whole = 0
    for row in range(num_rows):
        size, thresholds, follow = host_decision(draft, laws, row)
        coins = laws.coins[row].tolist()
        accepted = max([n for n in range(1, size + 1) if coins[n - 1] < thresholds[n - 1]], default=0)
        want = before[row].tolist()
        want[:accepted] = draft.token_id[row, 1 : accepted + 1].tolist()
        if follow[accepted].any():
            want[accepted] = draw_from(follow[accepted], coins[size])
        assert drawn[row].tolist() == want
        num_whole += accepted == size > 0
    assert 0 < num_whole < num_rows


def test_chains_are_verified_as_host_mode_does() -> None:
    """The same tokens for the same coins; what is drawn after the decision stays as it was."""
    for num_columns in (2, 7, 97):
        check_chains(op.decide_by_ratio_, num_rows=60, num_columns=num_columns)


def test_thresholds_and_laws_are_those_of_host_mode() -> None:
    """Number by number, within rounding."""
    draft, laws = random_chains(80, 4, 5, seed=1)
    thresholds, follow, sizes = verify_blocks_reference(draft, laws)
    for row in range(80):
        size, want, want_laws = host_decision(draft, laws, row)
        assert sizes[row] == size
        np.testing.assert_allclose(thresholds[row, :size].numpy(), want, atol=1e-12)
        np.testing.assert_allclose(follow[row, : size + 1].numpy(), want_laws, atol=1e-12)


@pytest.mark.parametrize("named", [(), (0,), (1,)], ids=str)
def test_block_verification_keeps_the_law_of_the_target(named: tuple[int, ...]) -> None:
    """Over every chain and every coin the texts of three tokens have the target's law, within 1e-9."""
    generator = np.random.default_rng(8)
    prefixes = [(), *itertools.product(range(3), repeat=1), *itertools.product(range(3), repeat=2)]
    target = {prefix: generator.dirichlet([1, 1, 1]) for prefix in prefixes}
    drafts = {prefix: generator.dirichlet([1, 1, 1]) for prefix in prefixes}
    for prefix in prefixes:
        if len(prefix) in named:
            drafts[prefix] = np.eye(3)[int(np.argmax(target[prefix]))]
    chains = [
        chain for chain in itertools.product(range(3), repeat=2) if drafts[()][chain[0]] * drafts[chain[:1]][chain[1]]
    ]
    laws = ChainLaws(
        target=torch.tensor(np.array([[target[()], target[c[:1]], target[c]] for c in chains])),
        draft=torch.tensor(np.array([[drafts[()], drafts[c[:1]]] for c in chains])),
        num_drafted=torch.full((len(chains),), 2, dtype=torch.int32),
        coins=torch.zeros((len(chains), 3), dtype=torch.float64),
    )
    draft = BatchDraft.chain(torch.tensor([[-1, *chain] for chain in chains], dtype=torch.int32))
    thresholds, follow, _ = verify_blocks_reference(draft, laws)
    got: Counter[tuple[int, ...]] = Counter()
    for row, chain in enumerate(chains):
        weight = drafts[()][chain[0]] * drafts[chain[:1]][chain[1]]
        one, two = thresholds[row].tolist()
        for accepted, chance in enumerate(((1 - one) * (1 - two), one * (1 - two), two)):
            for token, p in enumerate(follow[row, accepted].tolist()):
                text = (*chain[:accepted], token)
                for rest in itertools.product(range(3), repeat=3 - len(text)):
                    value = weight * chance * p
                    for number in range(len(rest)):
                        value *= target[text + rest[:number]][rest[number]]
                    got[text + rest] += value
    want = {
        text: target[()][text[0]] * target[text[:1]][text[1]] * target[text[:2]][text[2]]
        for text in itertools.product(range(3), repeat=3)
    }
    assert sum(abs(got[text] - want[text]) for text in want) / 2 < 1e-9


# ---------------------------------------------------------------------------------- what does not fit, and Triton


def test_what_does_not_fit_is_refused() -> None:
    """Other dtypes, shapes and layouts."""
    two = torch.zeros((2, 3), dtype=torch.int32)
    with pytest.raises(TypeError, match="parent must be int32"):
        BatchDraft(token_id=two, parent=two.long(), depth=1)
    with pytest.raises(ValueError, match="token_id must be contiguous"):
        BatchDraft(token_id=torch.zeros((3, 2), dtype=torch.int32).T, parent=two, depth=1)
    draft = BatchDraft.chain(two)
    arena_, registers = abc_registers(3)
    with pytest.raises(ValueError, match="2 rows does not fit 3"):
        op.draft_places_(arena_.tables, registers, draft, Places.new(3, 3))
    arena_, registers = abc_registers(2)
    with pytest.raises(ValueError, match="each node of each row"):
        op.accept_(arena_.tables, registers, draft, two[:, :2], Accepted.new(2, 3))
    laws = torch.zeros((2, 3, 4))
    with pytest.raises(ValueError, match="laws of a chain"):
        ChainLaws(target=laws, draft=laws, num_drafted=two[:, 0], coins=torch.zeros(2, 3))
    fits = ChainLaws(target=laws, draft=laws[:, 1:].clone(), num_drafted=two[:, 0], coins=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="the same rows and places"):
        op.decide_by_ratio_(draft, fits, two[:, :2])


INTERPRETED = """
from structgen.kernels import accept as op
from test_accept import check_chains, check_trees

assert set(check_trees(op._draft_places_triton_, op._accept_triton_, num_batches=3)) >= {0, 1}
for num_columns in (2, 7, 97, 1100):
    check_chains(op._decide_by_ratio_triton_, num_rows=12, num_columns=num_columns)
print("checked")
"""


def test_triton_kernels_in_the_interpreter() -> None:
    """The CUDA kernels, run by Triton's interpreter, decide the same."""
    pytest.importorskip("triton")
    assert run_script(INTERPRETED, TRITON_INTERPRET="1") == "checked"


COMPILED = (
    AHEAD_OF_TIME
    + """
from structgen.kernels._triton import accept as kernels

sys.path.append("scripts")
from kernel_table import DRAFT, REGISTERS, TABLES, chain_types

rows = {"tables": TABLES, "registers": REGISTERS, "draft": DRAFT}
build(kernels.draft_places_kernel, rows | {"place_state": "*i32", "place_left": "*i32", "place_position": "*i64"},
      {"BLOCK": 16})
build(kernels.accept_kernel, rows | {"drawn": "*i32", "path": "*i32", "num_accepted": "*i32"}, {"BLOCK": 64})
for dtype in ("*fp32", "*fp64"):
    chains = {"chains": chain_types(dtype)}
    build(kernels.block_weights_kernel, chains, {})
    build(kernels.block_masses_kernel, chains, {"BLOCK": 1024})
    build(kernels.block_draw_kernel, chains, {"BLOCK": 1024})
print("checked")
"""
)


def test_triton_kernels_compile_for_ampere_and_hopper(tmp_path: Path) -> None:
    """All kernels compile ahead of time to sm_80 and sm_90 machine code, without a GPU."""
    pytest.importorskip("triton")
    assert run_script(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "checked"
