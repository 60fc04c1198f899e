"""Kernels and decoding on a GPU: checked against their plain forms, then timed, in one run of at most eight minutes.

    python benchmarks/gpu_machines.py TOKENIZER_FOLDER MACHINES          anywhere, with all of structgen installed
    python benchmarks/gpu.py --machines MACHINES --out FOLDER            on the GPU machine
    python benchmarks/gpu.py --check                                   on a CPU: small, Triton's interpreter

Needs torch, triton, transformers, numba and this package; not pydantic, lark, interegular or jsonschema. Times are
medians of CUDA events after a warm-up, kernels in graphs of several launches, so that launches are not in them. A floor
is the bytes that have to be read over what a plain copy of 1 GiB reaches on the same card. Writes gpu.json and gpu.md.
With --check there is no card: nothing that is written then is a measurement.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import os
import platform
import sys
import time
from pathlib import Path

if "--check" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
if importlib.util.find_spec("structgen") is None:  # a machine that has this repository, where nothing was installed
    sys.path.append(str(Path(__file__).parents[1]))

import torch
from gpu_kernels import check_kernels, time_kernels
from gpu_machines import read
from gpu_other_kernels import check_other_kernels, time_other_kernels
from gpu_report import Report
from gpu_steps import check_texts, time_steps

_GRACE_SECONDS = 30.0


def main() -> None:
    """Check, time, and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="small sizes on the CPU, through Triton's interpreter")
    parser.add_argument("--machines", type=Path, default=Path("out/gpu_machines"), help="folder of gpu_machines.py")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder that is written to")
    parser.add_argument("--seconds", type=float, default=440.0, help="what has not begun by then is left out")
    options = parser.parse_args()
    if not options.check and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device: run it on a GPU machine, or with --check")
    device = torch.device("cpu" if options.check else "cuda")
    torch.set_num_threads(1 if options.check else torch.get_num_threads())
    if not options.check:
        # A kernel that never ends would hold the machine; what was found is written by then.
        faulthandler.dump_traceback_later(options.seconds + _GRACE_SECONDS, exit=True)
    deadline = time.monotonic() + options.seconds
    report = Report(environment(device), folder=options.out, deadline=deadline, is_check=options.check)
    machines = read(options.machines)
    if not machines:
        report.note(f"no machines in {options.machines}: texts were checked with made-up ones only")
    checks, times = (check_kernels, check_other_kernels, check_texts), (time_kernels, time_steps, time_other_kernels)
    for stage in (*checks, *times):
        report.stage(stage, device, machines)
    print(report.as_markdown())
    sys.exit(1 if report.faults else 0)


def environment(device: torch.device) -> dict[str, str]:
    """Return what a figure depends on."""
    import transformers
    import triton

    card = "none (checked on the CPU)" if device.type == "cpu" else torch.cuda.get_device_name(device)
    versions = {"torch": torch.__version__, "triton": triton.__version__, "transformers": transformers.__version__}
    return {"card": card, "cuda": str(torch.version.cuda), "python": platform.python_version(), **versions}


if __name__ == "__main__":
    main()
