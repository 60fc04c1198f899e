"""Compile every kernel for CUDA ahead of time, without a GPU, and print what each takes as a Markdown table.

    python scripts/kernel_table.py            # all dtypes, with and without options
    python scripts/kernel_table.py --quick    # one dtype, and only kernels that read logits

Fails if a kernel spills registers, or takes more shared memory than every GPU of the architecture has for a block.
docs/kernels.md holds the table.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from structgen.kernels import gather_head, sample
from structgen.kernels._sample_values import GROUP, TILE, SampleNoise, Workspace
from structgen.kernels._step_values import KernelChains, KernelDraft, KernelRegisters, KernelTables
from structgen.kernels._triton import accept as accepting
from structgen.kernels._triton.advance import advance_kernel, mask_row_within_kernel
from structgen.kernels._triton.apply_mask import apply_mask_kernel
from structgen.kernels._triton.byte_walk import byte_walk_kernel
from structgen.kernels._triton.gather_head import gather_head_kernel
from structgen.kernels._triton.sample_rows import row_kernel, select_kernel
from structgen.kernels._triton.sample_tiles import candidate_kernel, tile_kernel
from structgen.kernels._triton.tally import tally_kernel

ARCHITECTURES = (80, 90)
DTYPES = ("bf16", "fp16", "fp32")
MAX_SHARED_BYTES = 48 * 1024
NONE = "constexpr"

# Types of what the step kernels take.
TABLES = KernelTables(
    **dict.fromkeys(("next_state", "machine", "mask_row", "mask_rows", "cost", "cost_after", "least_after"), "*i32"),
    **dict.fromkeys(("token_class_stride", "num_words", "num_tokens"), "i32"),
    token_class="*i16",
    step_start="*i64",
    accepting="*i1",
)
REGISTERS = KernelRegisters(
    **dict.fromkeys(("state", "num_left", "ring", "is_done", "error"), "*i32"),
    position="*i64",
    ring_size="i32",
    ring_end="*i64",
)
DRAFT = KernelDraft("*i32", "*i32", "i32", "i32")


class Build(NamedTuple):
    """One kernel as it is launched: types of its arguments by name (a tuple for a tuple), and its constants."""

    kernel: Any
    what: str
    signature: dict[str, Any]
    constants: dict[str, Any]
    options: dict[str, Any]


def sampler_signature(dtype: str, *, is_full: bool) -> dict[str, Any]:
    """Return the types of everything that the sampler's kernels take; without options their pointers are None."""

    def some(*types: str) -> tuple[str, ...]:
        return types if is_full else (NONE,) * len(types)

    changes = some("*fp32", "i64", "*i32", "*i32", "i64", "*i32", "*fp32", "*fp32", "*fp32")
    groups, kind = some("*fp32", "*i32")
    return {
        "logits": sample._Logits(f"*{dtype}", "i64", "i64", "i32"),
        "masks": sample._Masks("*i32", "i64", "*i32", "i32", *some("*i64", "*i32")),
        "chosen": sample._Options("*fp32", *some("*i32", "*fp32", "*fp32")),
        "changes": sample._Changes(*changes),
        "noise": SampleNoise("*i64", "*i64", "*i64"),
        "work": Workspace("*fp32", "*i32", groups, kind, "*fp32", "*i32", "*fp32", "*i32"),
        "out": sample._Out("*i32", "*i32", "*fp32", "*fp32"),
        "num_tiles": "i32",
    }


def sampler_builds(dtype: str) -> Iterator[Build]:
    """Give the sampler's kernels with every option, and those that are launched without any."""
    sizes = {"TILE": TILE, "GROUP": GROUP, "TILES": 64, "GROUPS": TILE // GROUP, "LISTED": 4096, "CHUNK": 1024}
    for is_full, kernel in itertools.product((True, False), (tile_kernel, row_kernel, candidate_kernel, select_kernel)):
        if is_full or kernel in (tile_kernel, row_kernel):
            what = "every option" if is_full else "no option"
            options = {"num_warps": sample.NUM_WARPS[kernel.__name__], "enable_fp_fusion": False}
            constants = sizes | {"HAS_MASSES": True}
            yield Build(kernel, what, sampler_signature(dtype, is_full=is_full), constants, options)


def mask_builds(dtype: str) -> Iterator[Build]:
    """Give the mask kernel."""
    sizes = {"num_columns": "i32", "num_words": "i32", "logits_row_stride": "i64", "logits_column_stride": "i32"}
    strides = {"mask_row_stride": "i32", "mask_column_stride": "i32"}
    signature = {"logits": f"*{dtype}", "mask": "*i32", **sizes, **strides}
    yield Build(apply_mask_kernel, "", signature, {"BLOCK": 1024}, {"enable_fp_fusion": False})


def head_builds(dtype: str) -> Iterator[Build]:
    """Give the head kernel with a bias and a soft cap, and without."""
    for what, bias, soft_cap in (("every option", f"*{dtype}", "fp32"), ("no option", NONE, NONE)):
        pointers = {"logits": f"*{dtype}", "hidden": f"*{dtype}", "weight": f"*{dtype}", "bias": bias}
        tables = {"soft_cap": soft_cap, "mask_row": "*i32", "list_start": "*i64", "list_ids": "*i32"}
        strides = dict.fromkeys(("logits_row_stride", "hidden_row_stride", "weight_row_stride"), "i64")
        sizes = dict.fromkeys(("logits_column_stride", "num_tokens", "size"), "i32")
        constants = {"ROWS": gather_head.ROWS, "COLUMNS": gather_head.COLUMNS, "bias": None, "soft_cap": None}
        yield Build(
            gather_head_kernel, what, pointers | tables | strides | sizes, constants, {"enable_fp_fusion": True}
        )


def chain_types(law: str) -> KernelChains:
    """Return the types of what the kernels of block verification take, for laws of a dtype."""
    return KernelChains(
        **dict.fromkeys(("target_laws", "draft_laws", "coins", "weight", "mass", "total"), law),
        **dict.fromkeys(("draft_token", "num_drafted", "drawn"), "*i32"),
        **dict.fromkeys(("num_places", "num_columns"), "i32"),
    )


def step_builds() -> Iterator[Build]:
    """Give the kernels that read no logits: states, budgets, drafts, what a step came to, rows from bytes."""
    options = {"enable_fp_fusion": False}
    step = {"tables": TABLES, "registers": REGISTERS, "state": "*i32", "num_left": "*i32", "out": "*i32"}
    step |= {"token_id": "*i32", "token_id_stride": "i32", "num_rows": "i32", "path": "*i32", "num_accepted": "*i32"}
    step |= {"draft": DRAFT, "place_state": "*i32", "place_left": "*i32", "place_position": "*i64", "drawn": "*i32"}
    for kernel, what, constants in (
        (advance_kernel, "", {"TAKES": True, "BLOCK": 128}),
        (mask_row_within_kernel, "", {"BLOCK": 64}),
        (accepting.draft_places_kernel, "16 nodes", {"BLOCK": 16}),
        (accepting.accept_kernel, "16 nodes", {"BLOCK": 16}),
    ):
        yield Build(kernel, what, step, constants, options)
    chains = {"chains": chain_types("*fp32")}
    for kernel in (accepting.block_weights_kernel, accepting.block_masses_kernel, accepting.block_draw_kernel):
        yield Build(kernel, "float32 laws", chains, {"BLOCK": 1024}, options)
    sums = {"last": "*i32", "lost": "*fp64", "most": "*fp32", "parent": "*i32", "accepted": "*i32"}
    sums |= dict.fromkeys(("num_passes", "num_drafted", "num_accepted"), "*i64")
    sums |= {"mask_row": "*i32", "token_id": "*i32", "log_legal_mass": "*fp32", "num_rows": "i32", "num_nodes": "i32"}
    yield Build(tally_kernel, "with drafts", sums, {"HAS_DRAFT": True, "BLOCK": 32}, options)
    walk = {"text_start": "*i32", "text": "*u8", "byte_class": "*i32", "table": "*i32", "num_classes": "i32"}
    walk |= {"num_tokens": "i32", "num_words": "i32"}
    yield Build(byte_walk_kernel, "", walk | {"state": "*i32", "out": "*i32"}, {"BLOCK": 32}, options)


def compiled(build: Build, architecture: int) -> dict[str, int]:
    """Compile one kernel and return what its machine code takes."""
    signature, constants = {}, {}
    for place, name in enumerate(build.kernel.arg_names):
        types = signature[name] = build.signature.get(name, NONE)
        if isinstance(types, tuple):
            constants |= {(place, i): None for i, part in enumerate(types) if part == NONE}
        elif types == NONE:
            constants[place,] = build.constants[name]
    source = ASTSource(fn=build.kernel, signature=signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=build.options)
    if f".target sm_{architecture}" not in made.asm["ptx"]:
        raise SystemExit(f"{made.metadata.name} was not compiled for sm_{architecture}")
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(made.asm["cubin"])
        tool = triton.knobs.nvidia.cuobjdump.path
        told = subprocess.run([tool, "-res-usage", str(cubin)], capture_output=True, text=True, check=True).stdout
    usage = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", told)}
    return {**usage, "SHARED": made.metadata.shared, "WARPS": made.metadata.num_warps}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="bfloat16 only, and only kernels that read logits")
    is_quick = parser.parse_args().quick
    print("| kernel | logits | options | sm | warps | registers | shared bytes | spilled bytes |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    faults = []
    for dtype in DTYPES[:1] if is_quick else ("", *DTYPES):
        for build in (*mask_builds(dtype), *sampler_builds(dtype), *head_builds(dtype)) if dtype else step_builds():
            if dtype not in ("", DTYPES[0]) and build.kernel is select_kernel:  # it reads no logits
                continue
            for architecture in ARCHITECTURES:
                usage = compiled(build, architecture)
                name, spilled = build.kernel.__name__, usage["STACK"] + usage["LOCAL"]
                sizes = f"{usage['WARPS']} | {usage['REG']} | {usage['SHARED']} | {spilled}"
                print(f"| `{name}` | {dtype} | {build.what} | {architecture} | {sizes} |", flush=True)
                if spilled or usage["SHARED"] > MAX_SHARED_BYTES:
                    faults.append(f"{name} {dtype} {build.what} sm_{architecture}: {usage}")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
