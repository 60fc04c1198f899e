"""Where models come from: the embedded default, a folder, a .gguf file, or the Hugging Face hub.

Every way ends in the same value, a causal language model in evaluation mode and its tokenizer. Left out: choosing
among models, and quantised weights (a .gguf file is expanded).
"""

from __future__ import annotations

import contextlib
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from structgen.decode.causal_model import check_model, logits_width
from structgen.decode.digests import model_digest
from structgen.decode.fetch import MODEL_NAME, fetch_default_model
from structgen.decode.gguf import read_gguf
from structgen.decode.packing import Packing, pack_linear_layers
from structgen.decode.quiet import quiet_transformers
from structgen.errors import OptionError, VocabularyError, shown
from structgen.vocabulary import Vocabulary

_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.float32,  # what is no linear layer, and what those are made from
}
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HUB_TIMEOUT_S = 5.0
# What one would call the embedded model.
_SHORT_NAME = "smollm2"
_ACCEPTED = (
    f"a model is: nothing (the embedded {MODEL_NAME}), a folder with config.json, weights and tokenizer, "
    "a .gguf file, or a hub id such as 'Qwen/Qwen2.5-0.5B-Instruct'"
)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run.

    Attributes:
        model: a transformers causal language model, in evaluation mode, on its device.
        tokenizer: its tokenizer.
        name: what it was loaded by.
        model_digest: fingerprint of its configuration and weights, taken before they were packed.
        packing: what became of its linear layers, None where nobody asked for it.
        folder: the folder it was loaded from, None for a .gguf file, a hub id, or a model that was passed in.
    """

    model: Any
    tokenizer: Any
    name: str
    model_digest: str
    packing: Packing | None = None
    folder: Path | None = None

    @property
    def dtype(self) -> str:
        """Element type of the weights, such as "float32"; "int8" where those of linear layers were rounded to it."""
        is_int8 = self.packing is not None and self.packing.is_int8
        return "int8" if is_int8 else str(self.model.dtype).removeprefix("torch.")


def load_model(
    name: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    packed: bool | Literal["auto"] = "auto",
) -> LoadedModel:
    """Load a model and its tokenizer.

    Args:
        name: None or the default's name, a folder, a .gguf file, or a hub id.
        device: "auto" is "cuda" if there is one, else "cpu"; or a device as torch writes it.
        dtype: "auto" is float32 on the CPU (bfloat16 is slower there for more than one token), the checkpoint's own
            dtype elsewhere; or "float32", "bfloat16", "float16", "float64"; or "int8", on the CPU: float32, but for
            the weights of linear layers (see int8_linear.py).
        packed: whether linear layers are packed (see packing.py); "auto" packs where that can be done.

    Raises:
        OptionError: nothing can be loaded by this name, the device or dtype does not exist here, or layers cannot be
            packed as was asked for.
        StructgenError: the default model could not be fetched.
    """
    where = _device(device)
    wanted = _dtype(dtype, where)
    is_int8 = dtype == "int8"
    _check_packed(packed, where, is_int8=is_int8)
    source = MODEL_NAME if name is None else _source(name)
    if source.lower() == _SHORT_NAME:
        source = MODEL_NAME
    path = fetch_default_model() if source == MODEL_NAME else _path(source)
    model, tokenizer = _by_name(path, source, wanted)
    check_model(model)
    folder = path if (path / "config.json").is_file() else None
    model = _prepare(model, where)
    digest = model_digest(model)  # of plain weights, so that it is the same whatever becomes of them here
    return LoadedModel(model, tokenizer, source, digest, _packing(model, packed, is_int8=is_int8), folder)


def wrap_model(model: Any, tokenizer: Any) -> LoadedModel:
    """Take a model and tokenizer that the application loaded, as they are.

    Raises:
        OptionError: they are not what a target needs.
    """
    check_model(model)
    if not callable(tokenizer):
        raise OptionError(f"a transformers tokenizer is needed, not {type(tokenizer).__name__}")
    if getattr(model, "training", False):
        raise OptionError("the model is in training mode, where dropout changes the logits; call model.eval() first")
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    return LoadedModel(model, tokenizer, name, model_digest(model))


def check_tokenizer(vocabulary: Vocabulary, model: Any) -> None:
    """Refuse a vocabulary with tokens that the model gives no logit.

    One that is smaller than the logits is no sign of a mistake: models are padded to round sizes.

    Raises:
        VocabularyError: text, or the end of a text, lies beyond the logits.
    """
    width = logits_width(model)
    needed = max(vocabulary.highest_spelling, min(vocabulary.stop_ids, default=0)) + 1
    # Special tokens that somebody added are never drawn; but a mask may not have more words of 32 bits than the logits.
    if needed <= width and -(-vocabulary.size // 32) <= -(-width // 32):
        return
    raise VocabularyError(
        f"the tokenizer has {vocabulary.size} tokens and the model scores only {width}: load the tokenizer that "
        f"belongs to the model, or call model.resize_token_embeddings({vocabulary.size}) if tokens "
        "were added to it on purpose"
    )


def check_readable(token_ids: Sequence[int], model: Any) -> None:
    """Refuse token ids that the model has no embedding for; on a GPU they would end the process.

    Raises:
        VocabularyError: an id is too high.
    """
    table = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    size = getattr(table, "num_embeddings", None)
    if size is not None and max(token_ids) >= size:
        raise VocabularyError(
            f"the prompt becomes token id {max(token_ids)} and the model reads ids from 0 to {size - 1}: load the "
            "tokenizer that belongs to the model"
        )


def _source(name: object) -> str:
    if not isinstance(name, str | os.PathLike):
        raise OptionError(f"a model cannot be loaded by {shown(name)}, of type {type(name).__name__}; {_ACCEPTED}")
    source = os.fspath(name)
    if not isinstance(source, str) or not source.strip():
        raise OptionError(f"a model cannot be loaded by {shown(source)}; {_ACCEPTED}")
    return source


def _path(source: str) -> Path:
    try:
        path = Path(source).expanduser()
        path.is_file()
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # too long, a zero byte or half a character in it, no such user
        raise OptionError(f"there is no file or folder {shown(source)} ({shown(error)}); {_ACCEPTED}") from error
    return path


def _by_name(path: Path, source: str, dtype: torch.dtype | str) -> tuple[Any, Any]:
    if path.is_dir():
        return _from_folder(path, dtype)
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return _from_gguf(path, dtype)
        raise OptionError(f"{path} is a file, but not a .gguf file; {_ACCEPTED}")
    looks_like_path = source.startswith((".", "~", "/")) or path.suffix.lower() == ".gguf" or "\\" in source
    if looks_like_path or not _HUB_ID.fullmatch(source):
        raise OptionError(f"there is no file or folder {shown(source)}; {_ACCEPTED}")
    return _from_hub(source, dtype)


def _from_folder(folder: Path, dtype: torch.dtype | str) -> tuple[Any, Any]:
    if (folder / "config.json").is_file():
        return _from_pretrained(str(folder), dtype, local_only=True)
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return _from_gguf(files[0], dtype)
    found = f"{len(files)} .gguf files (name one of them)" if files else "no config.json and no .gguf file"
    raise OptionError(f"the folder {folder} has {found}; {_ACCEPTED}")


def _from_gguf(path: Path, dtype: torch.dtype | str) -> tuple[Any, Any]:
    return read_gguf(path, torch.bfloat16 if isinstance(dtype, str) else dtype)


def _from_hub(source: str, dtype: torch.dtype | str) -> tuple[Any, Any]:
    # transformers asks an unreachable hub for half a minute before it looks into its own cache.
    reachable = _hub_is_reachable()
    try:
        return _from_pretrained(source, dtype, local_only=not reachable)
    except OptionError as error:
        if reachable or not isinstance(error.__cause__, OSError):
            raise
        raise OptionError(
            f"{source!r} is no file or folder here, is not in the hub's cache on this machine, and the Hugging Face "
            f"hub cannot be reached; {_ACCEPTED}"
        ) from error


def _from_pretrained(source: str, dtype: torch.dtype | str, *, local_only: bool) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    here: dict[str, Any] = {"local_files_only": local_only, "trust_remote_code": False}
    read_model: Any = AutoModelForCausalLM.from_pretrained  # its types do not know that it can give two things
    with quiet_transformers():
        with _said_as_ours("tokenizer", source):
            tokenizer = AutoTokenizer.from_pretrained(source, **here)
        with _said_as_ours("model", source):
            model, found = read_model(
                source, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **here
            )
    # What is missing or of another shape transformers fills with random numbers, and the model would talk nonsense.
    unread = sorted([*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])])
    if unread:
        raise OptionError(
            f"the weights of {shown(source)} do not have {len(unread)} tensors that its config.json asks for, such as "
            f"{unread[0]}, in the same shape: the files are incomplete or do not belong together; fetch them again"
        )
    return model, tokenizer


@contextlib.contextmanager
def _said_as_ours(part: str, source: str) -> Iterator[None]:
    """Turn what transformers raises into one line."""
    try:
        yield
    except Exception as error:  # a reader of damaged files may fail in any way (SafetensorError, TypeError ...)
        reason = f"{type(error).__name__}: {_first_line(error)}"
        raise OptionError(f"transformers cannot load the {part} of {shown(source)} ({reason}); {_ACCEPTED}") from error


def _hub_is_reachable() -> bool:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=_HUB_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return True  # it answered
    except OSError:
        return False
    return True


def _prepare(model: Any, device: torch.device) -> Any:
    model.requires_grad_(False)  # noqa: FBT003 - torch's own signature
    try:
        return model.to(device).eval()
    except (RuntimeError, torch.AcceleratorError) as error:
        raise OptionError(f"the model does not fit on {device}: {_first_line(error)}") from error


def _check_packed(packed: object, device: torch.device, *, is_int8: bool) -> None:
    """Refuse what contradicts itself, before anything is loaded."""
    if not isinstance(packed, bool) and not (isinstance(packed, str) and packed == "auto"):
        raise OptionError(f"packed={shown(packed)} is unknown; use True, False or 'auto'")
    if is_int8 and packed is False:
        raise OptionError("dtype='int8' is a way to pack linear layers, and packed=False asks for none; leave one out")
    if is_int8 and device.type != "cpu":
        raise OptionError(f"dtype='int8' is for the CPU, not for {device}; use 'auto' or device='cpu'")


def _packing(model: Any, packed: bool | Literal["auto"], *, is_int8: bool) -> Packing | None:  # noqa: FBT001 - a value of an option
    if packed is False:
        return None
    packing = pack_linear_layers(model, is_int8=is_int8)
    if packing.unpacked_because is not None:
        if is_int8:
            raise OptionError(f"dtype='int8' cannot be had here: {packing.unpacked_because}; use dtype='float32'")
        if packed is True:
            raise OptionError(f"the linear layers cannot be packed: {packing.unpacked_because}; use packed='auto'")
    return packing


def _device(name: str) -> torch.device:
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except Exception as error:  # torch's own error classes, and what a value of another type gives
        raise OptionError(f"device {shown(name)} is unknown; use 'auto', 'cpu', 'cuda' or 'cuda:1'") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise OptionError(
                f"device {shown(name)} does not exist: torch sees {count} CUDA devices; use device='auto'"
            )
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype | str:
    if isinstance(name, str) and name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if not isinstance(name, str) or name not in _DTYPES:
        raise OptionError(f"dtype {shown(name)} is unknown; use 'auto' or one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
