"""Steps of a batch over an arena go where each row's own frozen automaton goes, to its end or where it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from batch_rows import RING, Row, arena, begin, check_registers
from frozen_machines import legal_tokens, machines
from structgen.kernels import advance as op
from structgen.kernels.advance import LEFT, RUNNING, Registers
from triton_scripts import AHEAD_OF_TIME, run_script

NUM_ROWS = 7

Op = Callable[..., None]


def check_walks(advance: Op, settle: Op, mask_row_within: Op, *, num_walks: int) -> int:
    """Walk batches of mixed machines and budgets beside their automata; return how many rows a budget cut."""
    generator = np.random.default_rng(5)
    arena_ = arena(NUM_ROWS)
    tables = arena_.tables
    num_cut = 0
    for _ in range(num_walks):
        rows = [
            Row(number, machines()[number].cost[machines()[number].start] + generator.integers(0, 9), position)
            for position, number in enumerate(generator.integers(0, len(machines()), NUM_ROWS).tolist())
        ]
        registers = begin(rows, arena_)
        settle(tables, registers)
        for _ in range(25):
            check_registers(registers, rows, arena_)
            chosen = torch.full((NUM_ROWS,), -7, dtype=torch.int32)
            mask_row_within(tables, registers.state, registers.num_left, chosen)
            tokens = []
            for index, row in enumerate(rows):
                mask = tables.mask_rows[chosen[index]].numpy()
                if not row.state.is_finished:
                    assert np.array_equal(mask, row.mask())
                is_cut = int(chosen[index]) == index
                assert is_cut == (row.left <= row.machine.cost_after[row.state.configuration]) or row.is_done
                num_cut += is_cut
                some = generator.random()
                legal = [*legal_tokens(mask), -1]
                tokens.append(int(generator.choice(legal)) if some < 0.97 else int(generator.integers(-1, 290)))
                if row.is_done == RUNNING:
                    row.take(tokens[-1])
            advance(tables, registers, torch.tensor(tokens, dtype=torch.int32))
    return num_cut


def test_steps_go_where_the_automata_go() -> None:
    """Mixed machines and budgets, legal and illegal tokens, stops, -1 and ids beyond the vocabulary; rings wrap."""
    assert check_walks(op.advance_, op.settle_, op.mask_row_within_, num_walks=20) > 50


def test_the_plain_form_goes_there_too() -> None:
    """The form that the kernels are held to writes the same rows."""
    references = op.advance_reference_, op.settle_reference_, op.mask_row_within_reference_
    assert check_walks(*references, num_walks=4) > 10


def test_states_that_tables_do_not_describe_are_left() -> None:
    """A row that gets there is LEFT, whatever its budget, its tokens counted; no mask row is offered there."""
    arena_ = arena(NUM_ROWS)
    tables = arena_.tables
    row = Row(0, 50, 3)
    registers = begin([row], arena_)
    token = legal_tokens(row.mask())[0]
    row.take(token)
    there = arena_.first_state(row.machine) + row.state.configuration
    tables.least_after[there] = tables.cost_after[there] = -1
    for num_left in (1, 50):
        registers.num_left.fill_(num_left)
        registers.state.fill_(arena_.add(row.machine))
        registers.is_done.fill_(RUNNING)
        op.advance_(tables, registers, torch.tensor([token], dtype=torch.int32))
        assert (registers.is_done.item(), registers.error.item(), registers.state.item()) == (LEFT, 0, there)
    assert registers.ring[0, :2].tolist() == [token, token]
    chosen = torch.zeros(1, dtype=torch.int32)
    op.mask_row_within_(tables, registers.state, registers.num_left, chosen)
    assert chosen.item() == tables.mask_row[there]


def test_what_does_not_fit_is_refused() -> None:
    """Other dtypes and shapes, tensors that are not contiguous, too many places."""
    arena_ = arena(1)
    registers = Registers.new(2, ring_size=RING)
    with pytest.raises(TypeError, match="int32"):
        op.advance_(arena_.tables, registers, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="do not fit 2 rows"):
        op.advance_(arena_.tables, registers, torch.zeros(3, dtype=torch.int32))
    two = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match="too many for 1 private rows"):
        op.mask_row_within_(arena_.tables, two, two, two)
    with pytest.raises(TypeError, match="num_left must be int32"):
        op.mask_row_within_(arena_.tables, two, two.long(), two)
    with pytest.raises(ValueError, match="out must be contiguous"):
        op.mask_row_within_(arena_.tables, two[:1], two[:1], two)
    with pytest.raises(ValueError, match="ring must be contiguous"):
        Registers(state=two, num_left=two, position=two, is_done=two, error=two, ring=torch.zeros(4, 2).T, ring_end=two)


INTERPRETED = """
from structgen.kernels import advance as op
from test_advance import check_walks

def settle(tables, registers):
    op._advance_triton_(tables, registers, None)

assert check_walks(op._advance_triton_, settle, op._mask_row_within_triton_, num_walks=2) > 5
print("checked")
"""


def test_triton_kernels_in_the_interpreter() -> None:
    """The CUDA kernels, run by Triton's interpreter, go the same way."""
    pytest.importorskip("triton")
    assert run_script(INTERPRETED, TRITON_INTERPRET="1") == "checked"


COMPILED = (
    AHEAD_OF_TIME
    + """
from structgen.kernels._triton.advance import advance_kernel, mask_row_within_kernel

sys.path.append("scripts")
from kernel_table import REGISTERS, TABLES

for takes in (True, False):
    build(advance_kernel, {"tables": TABLES, "registers": REGISTERS, "token_id": "*i32", "token_id_stride": "i32",
          "num_rows": "i32"}, {"TAKES": takes, "BLOCK": 128})
build(mask_row_within_kernel, {"tables": TABLES, "state": "*i32", "num_left": "*i32", "out": "*i32"}, {"BLOCK": 64})
print("checked")
"""
)


def test_triton_kernels_compile_for_ampere_and_hopper(tmp_path: Path) -> None:
    """Both kernels compile ahead of time to sm_80 and sm_90 machine code, without a GPU."""
    pytest.importorskip("triton")
    assert run_script(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "checked"
