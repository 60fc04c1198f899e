"""Read a .gguf file into a transformers model and tokenizer.

transformers does the reading; what it loses on the way is put back here: the digit split of the `smollm`
pre-tokenizer, which it does not know by name. Quantised weights are expanded to plain ones, so nothing of the file's
quantisation is left to run on.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from structgen.decode.quiet import quiet_gguf_reader
from structgen.errors import OptionError


def read_gguf(path: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return (model, tokenizer) of the file, the weights on the CPU in `dtype`.

    Takes about 20 s for 135M parameters on one core: keep what comes back.

    Raises:
        OptionError: the gguf package is missing, or the file cannot be read.
    """
    if importlib.util.find_spec("gguf") is None:
        raise OptionError("reading a .gguf file needs the package gguf; install it with: pip install gguf")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise OptionError(f"{path} is not a GGUF file, although its name says so")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet_gguf_reader():
            model = AutoModelForCausalLM.from_pretrained(
                path.parent, gguf_file=path.name, dtype=dtype, **_expand_weights()
            )
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except Exception as error:  # a reader of damaged bytes may fail in any way (struct.error, IndexError ...)
        raise OptionError(f"transformers cannot read {path}: {error or type(error).__name__}") from error
    _drop_quantizer_mark(model)
    if _pre_tokenizer_name(path) == "smollm":
        _restore_digit_split(tokenizer)
    return model, tokenizer


def _expand_weights() -> dict[str, Any]:
    # Newer versions may keep the blocks packed, and look for kernels on the hub to do so; older ones always expand.
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def _drop_quantizer_mark(model: Any) -> None:
    # The weights are plain tensors by now, but a model that carries the mark refuses to be saved.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _pre_tokenizer_name(path: Path) -> str | None:
    from gguf import GGUFReader

    field = GGUFReader(path).get_field("tokenizer.ggml.pre")
    return None if field is None else str(field.contents())


def _restore_digit_split(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
