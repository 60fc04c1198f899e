"""Fingerprints of a model and of its tokenizer: whether a record of a run belongs to what is loaded now.

Hashing every weight would take seconds for a model of a few GB, so a part of each tensor stands for it: training or
replacing a tensor changes nearly all of its elements. Two models that differ in single elements elsewhere are not told
apart.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from typing import Any

import torch

_ELEMENTS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelIdentity:
    """What a record of a run names a model by; the names are those of ReplayRecord."""

    model_digest: str
    tokenizer_digest: str
    chat_template_digest: str

    @classmethod
    def of(cls, digest: str, tokenizer: Any) -> ModelIdentity:
        """Take the fingerprints of a tokenizer, beside that of a model."""
        return cls(
            model_digest=digest,
            tokenizer_digest=tokenizer_digest(tokenizer),
            chat_template_digest=chat_template_digest(tokenizer),
        )


def model_digest(model: Any) -> str:
    """Return a fingerprint of the configuration and of the weights, the same for every device."""
    config = model.config.to_dict() if hasattr(model.config, "to_dict") else {}
    # Where it lies, what loaded it and in which dtype are no part of what it is.
    for name in ("_name_or_path", "transformers_version", "dtype", "torch_dtype"):
        config.pop(name, None)
    form = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, module in sorted(model.named_modules()):
        # One module at a time: packed weights are made plain for it, and would not fit into memory all at once.
        tensors: dict[str, torch.Tensor] = {}
        module._save_to_state_dict(tensors, f"{name}.", keep_vars=False)
        for full_name, tensor in sorted(tensors.items()):
            form.update(f"{full_name} {tuple(tensor.shape)}".encode())
            form.update(_sample(tensor))
    return form.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str:
    """Return a fingerprint of how texts become tokens; that of its token list where the tokenizer cannot be written."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    to_text = getattr(backend, "to_str", None)
    text: str = json.dumps(tokenizer.get_vocab(), sort_keys=True) if to_text is None else to_text()
    # What stands before is how the last text was cut and padded.
    text = text[max(text.find('"added_tokens"'), 0) :]
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chat_template_digest(tokenizer: Any) -> str:
    """Return a fingerprint of the chat template; that of nothing where there is none."""
    return hashlib.sha256(json.dumps(getattr(tokenizer, "chat_template", None), sort_keys=True).encode()).hexdigest()


def _sample(tensor: torch.Tensor) -> bytes:
    """Return some elements, spread evenly, as bytes; in float32, which holds every smaller float exactly."""
    flat = tensor.detach().reshape(-1)
    if not flat.numel() or flat.is_meta:  # weights that accelerate keeps on disk are not here
        return b""
    some = flat[:: max(1, flat.numel() // _ELEMENTS)][:_ELEMENTS]
    if some.is_floating_point():
        some = some.to(torch.float32)
    return some.cpu().contiguous().numpy().tobytes()


def backend_of(device: torch.device, *, is_packed: bool) -> str:
    """Return what computes on a device: passes over the same tokens may end in other bits on another one.

    Args:
        device: where the model is.
        is_packed: whether its linear layers are packed, which take their sums in another order than plain ones.
    """
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    packed = ", packed layers" if is_packed else ""
    return f"{device.type} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}{packed}"
