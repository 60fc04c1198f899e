"""sample: the plain form against the host's sampler and by enumeration, every kernel against the plain form."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sampling_cases import Case, case, edge_cases, random_case
from sampling_reference import Reference
from structgen.config import Sampling
from structgen.errors import NoLegalTokenError
from structgen.kernels.gumbel import NoiseKey, gumbel_noise, gumbel_rows
from structgen.kernels.sample import (
    EVERYWHERE,
    NO_LEGAL_TOKEN,
    NO_TOKEN,
    Sampled,
    count_tokens_,
    sample,
    sample_reference,
)
from triton_scripts import run_script

INFINITY = math.inf


def test_noise_of_rows_is_the_noise_of_the_keys() -> None:
    """Each row of the tensor form is the noise of its key, whatever bits its numbers have."""
    keys = [NoiseKey(0, 0, 0), NoiseKey(2**64 - 1, 2**32 - 1, 2**32 - 1), NoiseKey(2**63 + 5, 2**31 + 9, 3)]
    seed = torch.from_numpy(np.array([key.seed for key in keys], dtype=np.uint64).view(np.int64))
    position = torch.tensor([key.position for key in keys])
    stream = torch.tensor([key.stream for key in keys])
    for size in (1, 97):
        got = gumbel_rows(size, seed, position, stream).numpy()
        want = np.stack([gumbel_noise(np.arange(size), key) for key in keys])
        assert np.allclose(got, want, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("form", [sample, sample_reference])
def test_rows_are_drawn_as_the_host_draws_them(form: Any, seed: int) -> None:
    """For every kind of option and mask, the batch's rows are what the host's sampler draws, or errors."""
    size, batch = (97, 1000)[seed % 2], (1, 2, 7)[seed % 3]
    made = random_case(seed, batch=batch, size=size, width=size + (seed % 4) * 3)
    drawn = form(made.logits, **made.arguments())
    for row in range(batch):
        try:
            want = made.host_draw(row)
        except NoLegalTokenError:
            assert (drawn.token_id[row], drawn.error[row]) == (NO_TOKEN, NO_LEGAL_TOKEN)
            continue
        assert (drawn.token_id[row], drawn.error[row]) == (want.token_id, 0), made.samplings[row]
        assert -float(drawn.log_legal_mass[row]) == pytest.approx(want.legal_mass_lost, rel=1e-5, abs=1e-5)
        known = made.logits[row, :size].double()
        assert float(drawn.log_sum_exp[row]) == pytest.approx(float(known.logsumexp(0)), rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.75}, {"min_p": 0.25}, {"top_k": 4, "top_p": 0.875}])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.filterwarnings("ignore:top_k and top_p")
def test_law_by_enumeration(options: dict[str, Any], temperature: float) -> None:
    """Over every mask of six tokens the draw is the Gumbel-max of the law that plain loops make, and of no other."""
    size = 6
    logits = torch.tensor([1.0, 0.25, 1.0, -2.0, 0.5, 2.0])
    sampling = Sampling(temperature=temperature, **options)
    bits = np.array(list(itertools.product([False, True], repeat=size)))[1:]
    for seed in range(5):
        made = case(logits.expand(len(bits), size), bits, [sampling] * len(bits), seed=seed)
        drawn = sample_reference(made.logits, **made.arguments())
        for row, legal in enumerate(bits):
            law = Reference(sampling, []).law(logits.tolist(), set(np.flatnonzero(legal).tolist()), set())
            with np.errstate(divide="ignore"):
                scores = np.log(law) + gumbel_noise(np.arange(size), made.keys[row])
            assert drawn.token_id[row] == int(np.argmax(scores))


EDGES = edge_cases()


@pytest.mark.parametrize(("made", "tokens", "errors"), [edge[1:] for edge in EDGES], ids=[edge[0] for edge in EDGES])
@pytest.mark.parametrize("form", [sample, sample_reference])
def test_edges(form: Any, made: Case, tokens: list[int | None], errors: list[int]) -> None:
    """What is drawn, and what is an error and never a token, where rows are as odd as they can be."""
    drawn = form(made.logits, **made.arguments())
    assert drawn.error.tolist() == errors
    for got, want in zip(drawn.token_id.tolist(), tokens, strict=True):
        assert got == want or (want is None and got >= 0)


def test_masses_of_logits_that_are_no_numbers() -> None:
    """An illegal nan makes the masses unknown, an illegal infinity has all the mass; the draw is not touched."""
    by_name = {name: made for name, made, *_ in EDGES}
    for name, log_sum in (("illegal nan", math.nan), ("illegal infinity", INFINITY)):
        drawn = sample(by_name[name].logits, **by_name[name].arguments())
        assert np.array_equal(drawn.log_sum_exp.numpy(), [np.float32(log_sum)], equal_nan=True)
        assert np.array_equal(drawn.log_legal_mass.numpy(), [np.float32(-log_sum)], equal_nan=True)


def test_ties_at_the_border_of_top_k_are_kept_by_id() -> None:
    """Of equals at the border, exactly the lowest ids are drawn, over many draws."""
    logits = torch.tensor([[0.0, 3.0, 1.0, 1.0, 3.0, 1.0, 1.0]]).expand(400, 7)
    made = case(logits, np.ones((400, 7), bool), [Sampling(top_k=4)] * 400)
    for form in (sample, sample_reference):
        assert set(form(logits, **made.arguments()).token_id.tolist()) == {1, 2, 3, 4}


def test_strides_dtypes_and_slots_do_not_change_draws() -> None:
    """A row draws the same alone, in any place of a batch, strided, padded, and in every dtype of equal values."""
    made = random_case(3, batch=7, size=97, dtype=torch.bfloat16)
    want = sample(made.logits, **made.arguments())
    padded = torch.full((7, 200), 50.0, dtype=torch.bfloat16)
    padded[:, 50:147] = made.logits
    for logits in (made.logits.float(), made.logits.half(), padded[:, 50:], made.logits.T.contiguous().T):
        assert torch.equal(sample(logits, **made.arguments()).token_id, want.token_id)


def test_results_are_written_where_asked() -> None:
    """Tensors that are given are filled and returned."""
    made = random_case(4, batch=2, size=97)
    out = Sampled.empty(2, num_tokens=97, device="cpu")
    assert sample(made.logits, **made.arguments(), out=out) is out
    assert torch.equal(out.token_id, sample(made.logits, **made.arguments()).token_id)


def test_tokens_are_counted_where_the_penalties_reach() -> None:
    """A token outside the scope, of a row without free text, or that was not drawn, is not counted."""
    made = random_case(0, batch=4, size=97)
    penalties = made.options.penalties
    assert penalties is not None
    inside = int(np.flatnonzero(np.unpackbits(made.masks.words[1].numpy().view(np.uint8), bitorder="little"))[0])
    scope = torch.tensor([1, -1, EVERYWHERE, EVERYWHERE], dtype=torch.int32)
    penalties = dataclasses.replace(penalties, counts=torch.zeros(4, 97, dtype=torch.int32), free_row=scope)
    for token_id in ([inside, inside, 3, NO_TOKEN], [inside, 96, 96, 0]):
        count_tokens_(penalties, torch.tensor(token_id, dtype=torch.int32), made.masks.words)
    counted = {
        (int(row), int(column)): int(penalties.counts[row, column]) for row, column in penalties.counts.nonzero()
    }
    assert counted == {(0, inside): 2, (2, 3): 1, (2, 96): 1, (3, 0): 1}


def test_what_does_not_fit_is_refused() -> None:
    """Other dtypes and shapes are refused by name."""
    made = random_case(1, batch=2, size=97)
    for change, message in (
        ({"logits": made.logits.double()}, "logits must be"),
        ({"logits": made.logits[0]}, "logits must be"),
        ({"masks": dataclasses.replace(made.masks, num_tokens=200)}, "masks.words must have the shape"),
        ({"masks": dataclasses.replace(made.masks, row=made.masks.row.long())}, "masks.row must be int32"),
        ({"noise": made.noise._replace(seed=made.noise.seed[:1])}, "noise.seed must have the shape"),
        ({"options": dataclasses.replace(made.options, top_k=made.noise.seed)}, "options.top_k must be int32"),
        ({"masks": dataclasses.replace(made.masks, words=made.masks.words.T.contiguous().T)}, "must be contiguous"),
    ):
        arguments = {"logits": made.logits, **made.arguments(), **change}
        with pytest.raises((TypeError, ValueError), match=message):
            sample(**arguments)


def interpreted(*, is_full: bool) -> tuple[int, int]:
    """Run the kernels for CUDA in Triton's interpreter; return rows drawn, and near-ties that went the other way."""
    pytest.importorskip("triton")
    script = f"import sampler_interpreted; sampler_interpreted.main(is_full={is_full})"
    num_rows, num_other = run_script(script, TRITON_INTERPRET="1").split()
    return int(num_rows), int(num_other)


def test_kernels_in_the_interpreter() -> None:
    """The CUDA kernels draw what the plain form draws, but where the two best scores lie within 1e-5."""
    num_rows, num_other = interpreted(is_full=False)
    assert num_rows == 48
    assert num_other <= 1


@pytest.mark.slow
def test_kernels_in_the_interpreter_on_many_batches() -> None:
    """The same for every dtype, with and without lists, and over many more batches."""
    num_rows, num_other = interpreted(is_full=True)
    assert num_rows == 180
    assert num_other <= 3


def kernel_table(*arguments: str) -> list[str]:
    """Compile the kernels ahead of time; return the rows of the table."""
    pytest.importorskip("triton")
    script = f"import sys; sys.argv[1:] = {list(arguments)}; sys.path.append('scripts')\nimport kernel_table as table"
    return run_script(f"{script}\ntable.main()").splitlines()[2:]


def test_kernels_compile_for_ampere_and_hopper_without_spills() -> None:
    """Each kernel compiles ahead of time to sm_80 and sm_90, within its registers and shared memory."""
    rows = kernel_table("--quick")
    assert len(rows) == 18
    assert all(row.endswith("| 0 |") for row in rows)


@pytest.mark.slow
def test_the_table_of_kernels_is_what_the_compiler_says() -> None:
    """Every dtype too, and docs/kernels.md has these numbers where the compiler is the one that made them."""
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")
    rows = kernel_table()
    if f"Triton {importlib.metadata.version('triton')} " in page:
        assert [row for row in rows if row not in page.splitlines()] == []
