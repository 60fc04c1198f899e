"""The target model over transformers: one sequence, its KV cache, and the logits of the positions asked for.

Every request owns one `TransformersTarget`, so requests of several threads share the weights and nothing else. Left
out: batches (rows of different length need a cache layer of our own) and models whose cache cannot go back (state
space and linear attention layers), which are refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from structgen.errors import OptionError

# What layers of a transformers config may be called when their cache is keys and values per position.
_ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})


class TransformersTarget:
    """One sequence through a causal language model of transformers.

    The cache holds full layers even where the model attends in a sliding window (the mask applies the window): a
    windowed cache forgets what a deeper `crop` has to bring back.
    """

    def __init__(self, model: Any) -> None:
        """Look at the model once: how its cache argument is called, and how wide its logits are."""
        self._model = model
        self._call_options = _call_options(model)
        self._cache_argument = _cache_argument(model)
        self._cache: Any = None
        self._num_cached_tokens = 0
        self._logits_width = logits_width(model)
        self._device = torch.device(model.device)

    @property
    def num_cached_tokens(self) -> int:
        """How many tokens the KV cache holds."""
        return self._num_cached_tokens

    @property
    def logits_width(self) -> int:
        """Entries of one row of logits; often more than the vocabulary has ids."""
        return self._logits_width

    @property
    def device(self) -> torch.device:
        """The device that tokens go to and logits come from."""
        return self._device

    def prefill(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Start over with these tokens.

        Returns:
            (logits_width,) logits after the last of them, in the dtype of the model.
        """
        self._cache = None
        self._num_cached_tokens = 0
        return self._run(token_ids, 1)[0]

    def forward(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Append tokens to the sequence.

        Returns:
            (len(token_ids), logits_width) logits after each of them, in the dtype of the model.
        """
        return self._run(token_ids, len(token_ids))

    def crop(self, num_tokens: int) -> None:
        """Keep the first `num_tokens` tokens of the sequence and forget the rest."""
        if not 0 <= num_tokens <= self._num_cached_tokens:
            raise ValueError(f"cannot keep {num_tokens} tokens of a cache that holds {self._num_cached_tokens}")
        if num_tokens == 0:
            self._cache = None
        elif num_tokens < self._num_cached_tokens:
            # A negative count is what every 5.x reads as "remove"; a positive one changed its meaning on the way.
            self._cache.crop(num_tokens - self._num_cached_tokens)
        self._num_cached_tokens = num_tokens

    def _run(self, token_ids: Sequence[int], num_rows: int) -> torch.Tensor:
        if len(token_ids) == 0:
            raise ValueError("a forward pass needs at least one token")
        if self._cache is None:
            from transformers import DynamicCache

            self._cache = DynamicCache()
        options = dict(self._call_options)
        options[self._cache_argument] = self._cache
        if "logits_to_keep" in options:
            options["logits_to_keep"] = num_rows
        input_ids = torch.tensor([list(token_ids)], dtype=torch.long, device=self._device)
        # no_grad and not inference_mode: the sampler changes these logits in place, outside of this block.
        with torch.no_grad():
            output = self._model(input_ids=input_ids, **options)
        self._num_cached_tokens += len(token_ids)
        logits: torch.Tensor = output.logits[0, -num_rows:]
        return logits


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
    _cache_argument(model)
    logits_width(model)


def _cache_argument(model: Any) -> str:
    # transformers 5.24 renamed the argument and warns about the old name; older versions know only the old one.
    parameters = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values"):
        if name in parameters:
            return name
    raise OptionError(
        f"{type(model).__name__}.forward() takes no KV cache (neither `cache` nor `past_key_values`); "
        "use a causal language model of transformers, such as one from AutoModelForCausalLM"
    )


def _call_options(model: Any) -> dict[str, Any]:
    parameters = inspect.signature(model.forward).parameters
    options: dict[str, Any] = {"use_cache": True}
    if "logits_to_keep" in parameters:
        options["logits_to_keep"] = 1
    return options


def logits_width(model: Any) -> int:
    """Return how many entries one row of logits has."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is not None and hasattr(head, "weight"):
        return int(head.weight.shape[0])
    width = getattr(text_config(model.config), "vocab_size", None)
    if width is None:
        raise OptionError(f"{type(model).__name__} has no language model head; use AutoModelForCausalLM")
    return int(width)


def text_config(config: Any) -> Any:
    """Return the part of a configuration that is about text; most have no other."""
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
