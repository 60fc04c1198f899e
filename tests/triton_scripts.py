"""Scripts for Triton in fresh interpreters: its interpreter mode is chosen when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_script(script: str, **environment: str) -> str:
    """Run a script at the root of the repository, with the folders of the tests on its path; return what it prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/kernels")))
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=clean | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout.strip()


AHEAD_OF_TIME = """
import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile


def build(kernel, signature, constants, num_warps=4):
    signature = signature | dict.fromkeys(constants, "constexpr")
    assert list(signature) == kernel.arg_names, (list(signature), kernel.arg_names)
    for architecture in (80, 90):
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        options = {"num_warps": num_warps, "enable_fp_fusion": False}
        built = compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
        assert built.asm["cubin"][:4] == b"\\x7fELF"
        assert f".target sm_{architecture}" in built.asm["ptx"]
        assert built.metadata.shared <= 48 * 1024
"""
"""What a script needs to compile a kernel for Ampere and Hopper without a GPU: its function `build`."""
