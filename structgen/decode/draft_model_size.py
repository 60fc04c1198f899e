"""What a draft model takes from its target: memory, told as tokens of the target's KV cache, and time by its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from structgen.decode.causal_model import text_config
from structgen.decode.packing import num_weights, weight_bytes

# Smaller ones guess too badly, larger ones cost too much of what they save.
_LEAST_SHARE = 1 / 50
_MOST_SHARE = 1 / 8


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftModelSize:
    """The size of a draft model beside its target.

    Attributes:
        num_parameters: parameters of the draft model.
        num_target_parameters: those of the target.
        num_bytes: memory of the draft model's weights.
        kv_bytes: memory of its KV cache, per token of a sequence.
        target_kv_bytes: the same of the target.
    """

    num_parameters: int
    num_target_parameters: int
    num_bytes: int
    kv_bytes: int
    target_kv_bytes: int

    @property
    def share(self) -> float:
        """Parameters of the draft model per parameter of the target."""
        return self.num_parameters / self.num_target_parameters

    @property
    def lost_kv_rows(self) -> int:
        """Tokens that the target's KV cache could hold in the memory of the draft model's weights."""
        return self.num_bytes // self.target_kv_bytes

    @property
    def in_words(self) -> str:
        """What it takes, for a report."""
        return (
            f"the draft model has 1/{1 / self.share:.0f} of the target's parameters; its weights take "
            f"{self.num_bytes / 2**20:.0f} MiB, in which the target could cache {self.lost_kv_rows} more tokens, and "
            f"each token of a sequence takes {self.kv_bytes} bytes beside the target's {self.target_kv_bytes}"
        )

    @property
    def doubt(self) -> str | None:
        """Why drafting with it seldom pays, None where its size is usual."""
        if _LEAST_SHARE <= self.share <= _MOST_SHARE:
            return None
        reason = "its drafts will cost much of what they save" if self.share > _MOST_SHARE else "it may guess too badly"
        return (
            f"the draft model has {self.share:.3f} of the target's parameters, and between 1/50 and 1/8 is usual: "
            f"{reason}; structgen bench speculation --draft-model measures it on your prompts"
        )


def draft_model_size(model: Any, target: Any) -> DraftModelSize:
    """Return the size of a transformers model beside another one."""
    return DraftModelSize(
        num_parameters=num_weights(model),
        num_target_parameters=num_weights(target),
        num_bytes=weight_bytes(model),
        kv_bytes=kv_bytes_per_token(model),
        target_kv_bytes=kv_bytes_per_token(target),
    )


def kv_bytes_per_token(model: Any) -> int:
    """Return the bytes that one token takes in the KV cache of a transformers model."""
    config = text_config(model.config)
    num_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * num_heads * head_size * model.dtype.itemsize)
