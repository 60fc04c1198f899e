"""Where models come from: folders, .gguf files, the hub, and models that are already loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from structgen.decode import gguf
from structgen.decode.models import load_model, wrap_model
from structgen.decode.prompt import Raw
from structgen.decode.runtime import Runtime
from structgen.errors import OptionError, VocabularyError
from tiny_tokenizer import TEMPLATE, byte_tokenizer, tiny_llama, tiny_tokenizer


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


def test_folder(tmp_path: Path) -> None:
    """A transformers folder loads in float32 on the CPU, in evaluation mode, with the weights it has."""
    model = _model()
    model.save_pretrained(tmp_path)
    tiny_tokenizer(template=TEMPLATE).save_pretrained(tmp_path)
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


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.json", "[]", "cannot load the tokenizer of|cannot load the model of"),
        ("tokenizer.json", "{", "cannot load the tokenizer of .*JSONDecodeError"),
        ("tokenizer_config.json", "null", "cannot load the tokenizer of"),
        ("model.safetensors", "x" * 100, "cannot load the model of .*SafetensorError"),
    ],
)
def test_damaged_files(tmp_path: Path, file: str, text: str, message: str) -> None:
    """Whatever the libraries raise over what is not as they expect, it is one line that names the part."""
    _model().save_pretrained(tmp_path)
    tiny_tokenizer(template=TEMPLATE).save_pretrained(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(OptionError, match=message) as caught:
        load_model(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"num_hidden_layers": 2}, {"intermediate_size": 8}])
def test_weights_that_do_not_fill_the_model(tmp_path: Path, change: dict[str, int]) -> None:
    """A tensor that is not there, or of another shape, is never made up."""
    _model().save_pretrained(tmp_path)
    tiny_tokenizer(template=TEMPLATE).save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(
        OptionError, match=r"do not have \d+ tensors that its config.json asks for, such as model\.layers"
    ):
        load_model(tmp_path, device="cpu")


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
    model, tokenizer = _model().eval(), tiny_tokenizer()
    assert wrap_model(model, tokenizer).model is model
    with pytest.raises(OptionError, match=r"model.eval\(\)"):
        wrap_model(_model().train(), tokenizer)
    with pytest.raises(OptionError, match="tokenizer is needed"):
        wrap_model(model, None)
    with pytest.raises(OptionError, match="model is needed"):
        wrap_model("gpt2", tokenizer)


@pytest.mark.parametrize("name", [5, b"folder", "", "  ", "a\0b", "\ud800", "x" * 5000, "~nobody-here/x", object()])
def test_what_cannot_name_a_model(name: Any) -> None:
    """A name of another type, or that no file system takes, is refused with the list of what is accepted."""
    with pytest.raises(OptionError, match="a model is: nothing"):
        load_model(name)


@pytest.mark.parametrize("options", [{"device": None}, {"device": []}, {"dtype": None}, {"dtype": torch.float32}])
def test_devices_and_dtypes_of_another_type(options: Any) -> None:
    """They are names."""
    with pytest.raises(OptionError, match="unknown; use 'auto'"):
        load_model("./missing", **options)


@pytest.mark.parametrize(("vocab_size", "fits"), [(272, True), (266, True), (264, False), (100, False)])
def test_a_tokenizer_of_another_model(vocab_size: int, fits: bool) -> None:
    """Of a tokenizer's tokens the model must score those that spell something or end the text; both sizes are said."""
    model, tokenizer = tiny_llama(), byte_tokenizer()
    model.resize_token_embeddings(vocab_size)
    if fits:
        assert Runtime(wrap_model(model, tokenizer)).vocabulary.size == 266
        return
    with pytest.raises(VocabularyError, match=f"has 266 tokens and the model scores only {vocab_size}: .*resize_token"):
        Runtime(wrap_model(model, tokenizer))


def test_a_special_token_that_the_model_does_not_read() -> None:
    """A token that was added without the model knowing is never drawn; in a prompt it is an error before the pass."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    model = tiny_llama()
    model.resize_token_embeddings(266)
    runtime = Runtime(wrap_model(model, tokenizer))
    assert runtime.encode("a")
    with pytest.raises(VocabularyError, match="token id 266 and the model reads ids from 0 to 265"):
        runtime.encode(Raw("[PAD]"))


def test_decode_modules_import_no_transformers() -> None:
    """Finding out where models come from needs torch, but transformers only when one is loaded."""
    code = "import sys, structgen.decode.models; print('transformers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
