"""Compile every kernel for CUDA ahead of time, without a GPU, and print what each takes as a Markdown table.

    python scripts/kernel_table.py            # all dtypes, with and without options
    python scripts/kernel_table.py --quick    # one dtype each

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
from structgen.kernels._triton.apply_mask import apply_mask_kernel
from structgen.kernels._triton.gather_head import gather_head_kernel
from structgen.kernels._triton.sample_rows import row_kernel, select_kernel
from structgen.kernels._triton.sample_tiles import candidate_kernel, tile_kernel

ARCHITECTURES = (80, 90)
DTYPES = ("bf16", "fp16", "fp32")
MAX_SHARED_BYTES = 48 * 1024
NONE = "constexpr"


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
        "options": sample._Options("*fp32", *some("*i32", "*fp32", "*fp32")),
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
    parser.add_argument("--quick", action="store_true", help="bfloat16 only")
    is_quick = parser.parse_args().quick
    print("| kernel | logits | options | sm | warps | registers | shared bytes | spilled bytes |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    faults = []
    for dtype in DTYPES[:1] if is_quick else DTYPES:
        for build in (*mask_builds(dtype), *sampler_builds(dtype), *head_builds(dtype)):
            if dtype != DTYPES[0] and build.kernel is select_kernel:  # it reads no logits
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
