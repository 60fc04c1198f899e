"""Whether the passes of a target give what a model itself computes: three short passes, for families no test knows.

The families in TESTED are held against full passes by the tests, over random programs. For others the same is tried
once, on four tokens: that a chain read in two pieces has the logits of one pass, and that a tree has. What differs is
refused: the model where chains differ, trees and batches where only they do. Left out: windows longer than the tokens
that are tried.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from structgen.decode.causal_model import CausalModel, text_config
from structgen.decode.target import Tokens
from structgen.decode.transformers_target import TransformersBatch
from structgen.errors import OptionError

TESTED: Final = frozenset(
    {"gemma2", "gemma3_text", "gpt2", "granite", "llama", "llama4_text", "mistral", "opt", "phi", "qwen2", "qwen3"}
)
_TOKENS = (3, 5, 2, 4)
# Shares of what the logits span. A model that looks elsewhere is off by a good part of it, rounding in 16 bits by a
# hundredth, and experts that are chosen otherwise for rounding by some hundredths.
_TOLERANCE = {torch.float64: 0.001, torch.float32: 0.01}
_COARSE_TOLERANCE = 0.2


def check_passes(model: Any, causal: CausalModel) -> None:
    """Try the passes of a model of an unknown family; may set `causal.no_masks_because`.

    Raises:
        OptionError: chains read in pieces do not have the logits of one pass.
    """
    if getattr(text_config(model.config), "model_type", None) in TESTED:
        return
    with torch.no_grad():
        tokens = torch.tensor([_TOKENS], device=causal.device)
        truth = model(input_ids=tokens, use_cache=False).logits[0, 2:].double()
    tolerance = _TOLERANCE.get(model.dtype, _COARSE_TOLERANCE) * float(truth.max() - truth.min())
    target = TransformersBatch(causal).join()
    first, second, third, fourth = _TOKENS
    target.prefill([first, second])
    if not _is_close(target.forward([third, fourth]), truth, tolerance):
        raise OptionError(
            f"{type(model).__name__} computes other logits with a KV cache than without; use a causal language model "
            "with attention layers only"
        )
    if causal.no_masks_because is not None:
        return
    target.crop(2)
    try:
        hidden = target.extend(Tokens([first, third, fourth], [-1, -1, 1]))
    except Exception as error:  # the code of any model, with a mask that it may not know what to do with
        causal.no_masks_because = f"its forward does not take them ({type(error).__name__})"
        return
    if not _is_close(target.head(hidden[1:]), truth, tolerance):
        causal.no_masks_because = "it does not attend as they say"


def _is_close(found: torch.Tensor, truth: torch.Tensor, tolerance: float) -> bool:
    return found.shape == truth.shape and float((found.double() - truth).abs().max()) <= tolerance
