"""Where compiled kernels are kept, each claim in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import numba
import numpy as np

before = numba.config.CACHE_DIR
from structgen.kernels._numba.apply_mask import fill_illegal

assert numba.config.CACHE_DIR == before
row = np.zeros((1, 3), np.int32)
fill_illegal(row, np.array([[5]], np.int32), np.int32(-7))
assert row.tolist() == [[0, -7, 0]]
print(sum(fill_illegal.stats.cache_hits.values()))
"""


def run(**environment: str) -> int:
    """Run the kernel in a fresh process and return how many signatures came from the cache."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        cwd=ROOT,
        env=clean | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return int(result.stdout)


def kernel_files(directory: Path) -> list[str]:
    """List numba's index files below a directory."""
    return sorted(path.name for path in directory.rglob("*.nbi"))


def test_kept_in_the_users_cache_and_found_again(tmp_path: Path) -> None:
    """The first process fills the user's cache, the second loads from it, and nothing is written beside the source."""
    beside = kernel_files(ROOT / "structgen")
    assert run(XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path)) == 0
    assert any(name.startswith("apply_mask.fill_illegal") for name in kernel_files(tmp_path))
    assert run(XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path)) == 3
    assert kernel_files(ROOT / "structgen") == beside


def test_a_directory_of_the_host_is_honoured(tmp_path: Path) -> None:
    """With NUMBA_CACHE_DIR set, compiled kernels go there and not to ours."""
    run(NUMBA_CACHE_DIR=str(tmp_path / "host"), XDG_CACHE_HOME=str(tmp_path / "user"), HOME=str(tmp_path / "user"))
    assert kernel_files(tmp_path / "host")
    assert not kernel_files(tmp_path / "user")


def test_no_directory_to_write_is_no_fault(tmp_path: Path) -> None:
    """Where the cache directory cannot be made, kernels are compiled in the process and work."""
    occupied = tmp_path / "file"
    occupied.write_text("not a directory")
    beside = kernel_files(ROOT / "structgen")
    assert run(XDG_CACHE_HOME=str(occupied), HOME=str(occupied)) == 0
    assert kernel_files(ROOT / "structgen") == beside


def test_directories_of_other_versions_go_after_a_month(tmp_path: Path) -> None:
    """The ones used longest ago go, the current one is marked as used, and nothing that is not ours is touched."""
    environment = {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    run(**environment)
    (current,) = next(tmp_path.rglob("numba")).iterdir()
    days = {"0123456789abcdef": 31, "fedcba9876543210": 29, "of-somebody-else": 31, current.name: 400}
    for name, age in days.items():
        (current.parent / name).mkdir(exist_ok=True)
        (current.parent / name / "file").write_text("compiled")
        os.utime(current.parent / name, (time.time() - age * 86400,) * 2)

    assert run(**environment) == 3

    assert {path.name for path in current.parent.iterdir()} == set(days) - {"0123456789abcdef"}
    assert current.stat().st_mtime > time.time() - 600
