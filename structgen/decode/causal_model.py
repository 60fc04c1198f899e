"""A causal language model of transformers in two parts: a body that gives hidden states, and its head.

Chains of one row run with the masks that the model makes itself. Trees, padding and rows of different length need masks
of ours, which every body that takes masks as transformers' own `generate` prepares them accepts; the others say why
not. The model is called, never changed. Left out: models whose cache cannot go back (state space and linear attention
layers), which are refused by name.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from structgen.decode.attention_mask import Reach, RowLayout, chain_mask
from structgen.decode.head import Head
from structgen.decode.mask_table import DeviceSide, MaskTables
from structgen.decode.packed_linear import PackedLinear
from structgen.decode.sending import sent
from structgen.errors import OptionError

# What layers of a transformers config may be called when their cache is keys and values per position.
_ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
# Attention functions of transformers that take a mask as a tensor to add.
_MASKED_ATTENTION = frozenset({"eager", "sdpa"})


class CausalModel:
    """What every sequence of one model shares.

    Attributes:
        head: hidden states to logits.
        logits_width: entries of one row of logits.
        device: where tokens go.
        is_spread: whether its weights lie on several devices, so that no stream of one of them has all of a pass.
        device_side: what draws on the device share, None where the host draws.
        num_bytes: memory of the weights.
        no_masks_because: why the model cannot be given masks of ours, None if it can.
    """

    def __init__(self, model: Any, *, device_types: Collection[str] = ("cuda",)) -> None:
        """Look at the model once.

        Args:
            model: a causal language model of transformers.
            device_types: where draws are made on the device.

        Raises:
            OptionError: it cannot be a target.
        """
        check_model(model)
        self._body = _decoder_of(body_of(model))
        self._cache_argument = _cache_name(self._body)
        self._dtype: torch.dtype = model.dtype
        self._reaches = _reaches(text_config(model.config))
        length = getattr(text_config(model.config), "max_position_embeddings", None)
        self._last_position = length - 1 if isinstance(length, int) and length > 0 else None
        self._takes_positions = "position_ids" in inspect.signature(self._body.forward).parameters
        self.device = torch.device(model.device)
        self.is_spread = len({weights.device for weights in model.parameters()}) > 1
        draws = self.device.type in device_types and not self.is_spread
        self.head = _head_behind(model, body_of(model), self._body, gathers=draws)
        tables = MaskTables(self.device)
        self.device_side = DeviceSide(self.device, tables, self.head.gathered) if draws else None
        self.logits_width = logits_width(model)
        self.num_bytes = sum(weights.nbytes for weights in model.parameters())
        self.no_masks_because = _why_no_masks(model, self._body)

    def run(self, token_ids: torch.Tensor, layouts: list[RowLayout], cache: Any, num_positions: int | None) -> Any:
        """Make one pass.

        Args:
            token_ids: (rows, width) int64.
            layouts: one for each row.
            cache: a KvCache that knows where the pass writes.
            num_positions: positions that the cache gives the attention, for masks of ours; None for the model's own.

        Returns:
            (rows, width, hidden_size) hidden states.
        """
        positions = sent(torch.from_numpy(np.stack([layout.positions for layout in layouts])), self.device)
        masks = None
        if num_positions is not None:
            masks = {reach.kind: self._mask(layouts, num_positions, reach) for reach in self._reaches}
        return self._forward(token_ids, positions, masks, cache)

    def run_chains(self, token_ids: torch.Tensor, positions: torch.Tensor, cache: Any, num_positions: int) -> Any:
        """Make one pass over chains whose places are known to the device alone: fixed shapes, and nothing waits.

        Drafts may reach beyond the last position that the model knows: they stand there, and are never accepted.

        Args:
            token_ids: (rows, width) int64.
            positions: (rows, width) int64, where each token stands in its row.
            cache: a KvCache that knows where the pass writes.
            num_positions: positions that the cache gives the attention.

        Returns:
            (rows, width, hidden_size) hidden states.
        """
        masks = {reach.kind: chain_mask(positions, num_positions, reach, self._dtype) for reach in self._reaches}
        known = positions if self._last_position is None else positions.clamp(max=self._last_position)
        return self._forward(token_ids, known, masks, cache)

    def _forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, masks: dict[str, torch.Tensor] | None, cache: Any
    ) -> Any:
        options: dict[Any, Any] = {self._cache_argument: cache, "use_cache": True}
        if self._takes_positions:
            options["position_ids"] = positions
        if masks is not None:
            options["attention_mask"] = masks if len(masks) > 1 else next(iter(masks.values()))
        # no_grad and not inference_mode, nor that of a caller: the sampler changes logits in place, outside of this
        # block, and packed layers have to know whether a tensor was written to.
        with torch.inference_mode(mode=False), torch.no_grad():
            return self._body(input_ids=token_ids, **options)[0]

    def _mask(self, layouts: list[RowLayout], num_positions: int, reach: Reach) -> torch.Tensor:
        seen = sent(torch.from_numpy(np.stack([layout.mask(num_positions, reach) for layout in layouts])), self.device)
        mask = torch.zeros(seen.shape, dtype=self._dtype, device=self.device)
        return mask.masked_fill_(~seen, torch.finfo(self._dtype).min)[:, None]


def check_model(model: Any) -> None:
    """Refuse a model that cannot be a target.

    Raises:
        OptionError: it is not a causal language model, or its cache cannot be cropped.
    """
    config = getattr(model, "config", None)
    if config is None or not callable(getattr(model, "forward", None)):
        raise OptionError(f"a transformers model is needed, not {type(model).__name__}")
    if getattr(config, "is_encoder_decoder", False):
        raise OptionError(f"{type(model).__name__} is an encoder-decoder; a causal language model is needed")
    odd = sorted(set(getattr(text_config(config), "layer_types", None) or ()) - _ATTENTION_LAYERS)
    # Some configurations do not list their layers; transformers marks those models as stateful.
    if odd or getattr(model, "_is_stateful", False):
        raise OptionError(
            f"{type(model).__name__} has layers ({', '.join(odd) or 'recurrent'}) whose cache cannot be rolled back; "
            "use a model with attention layers only"
        )
    logits_width(model)
    # Models for masked words share their code with decoders, and look to both sides unless they are told not to.
    directions = {getattr(module, "is_causal", None) for module in _modules(_decoder_of(body_of(model)))}
    if False in directions and True not in directions:
        raise OptionError(
            f"{type(model).__name__} reads texts from both sides; load it with is_decoder=True in its configuration, "
            "if it was trained so, or use a causal language model"
        )


def body_of(model: Any) -> Any:
    """Return the direct part of a model that its head stands behind.

    Raises:
        OptionError: there is none that takes a KV cache.
    """
    base = getattr(model, "base_model", None)
    # Some models do not call their base by the name that they say; the right part is the one that takes a cache.
    parts = [part for part in (base, *_modules(model, deep=False)) if part is not None and part is not model]
    found = next((part for part in parts if _cache_name(part) is not None), None)
    if found is None:
        raise OptionError(
            f"{type(model).__name__} has no part that takes a KV cache (as `cache` or `past_key_values`) behind a "
            "language model head; use a causal language model of transformers, such as one from AutoModelForCausalLM"
        )
    return found


def _decoder_of(body: Any) -> Any:
    """Return the part that reads text, of a body that may read images too."""
    decoder = body.get_decoder() if hasattr(body, "get_decoder") else None
    return body if decoder is None or _cache_name(decoder) is None else decoder


def logits_width(model: Any) -> int:
    """Return how many entries one row of logits has."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if isinstance(head, PackedLinear):
        return head.out_features
    if head is not None and hasattr(head, "weight"):
        return int(head.weight.shape[0])
    width = getattr(text_config(model.config), "vocab_size", None)
    if width is None:
        raise OptionError(f"{type(model).__name__} has no language model head; use AutoModelForCausalLM")
    return int(width)


def text_config(config: Any) -> Any:
    """Return the part of a configuration that is about text; most have no other."""
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def _cache_name(body: Any) -> str | None:
    # transformers 5.24 renamed the argument and warns about the old name; older versions know only the old one.
    parameters = inspect.signature(body.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in parameters), None)


def _reaches(config: Any) -> tuple[Reach, ...]:
    """Return how far the kinds of layers look back, as transformers' `create_masks_for_generate` has it."""
    window, chunk = getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None)
    kinds = sorted(set(getattr(config, "layer_types", None) or ()))
    if not kinds:
        kinds = ["sliding_attention" if window else "chunked_attention" if chunk else "full_attention"]
    return tuple(
        Reach(
            kind,
            window=window if kind == "sliding_attention" else None,
            chunk=chunk if kind == "chunked_attention" else None,
        )
        for kind in kinds
    )


def _head_behind(model: Any, *bodies: Any, gathers: bool) -> Head:
    """Return the head behind the first of these that the model calls."""
    soft_cap = getattr(text_config(model.config), "final_logit_softcapping", None)
    for body in bodies[:-1]:
        with contextlib.suppress(OptionError):
            return Head(model, body, gathers=gathers, soft_cap=soft_cap)
    return Head(model, bodies[-1], gathers=gathers, soft_cap=soft_cap)


def _modules(model: Any, *, deep: bool = True) -> list[Any]:
    if not isinstance(model, torch.nn.Module):
        return []
    return list(model.modules() if deep else model.children())


def _why_no_masks(model: Any, body: Any) -> str | None:
    attention = getattr(text_config(model.config), "_attn_implementation", None)
    if attention not in _MASKED_ATTENTION:
        return f"its attention is {attention!r}; load it with attn_implementation='sdpa'"
    if getattr(text_config(model.config), "alibi", False):
        return "it weighs positions by the mask that it makes (alibi)"
    missing = {"attention_mask", "position_ids"} - set(inspect.signature(body.forward).parameters)
    if missing:
        return f"{type(body).__name__}.forward() takes no {' and no '.join(sorted(missing))}"
    return None
