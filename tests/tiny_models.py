"""Tiny random causal models of several families, in float64, so that only rounding differs between two ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SHAPE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BUILDERS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=61, n_embd=32, n_layer=3, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2)
    ),
    "phi, head with a bias": lambda: PhiForCausalLM(PhiConfig(**SHAPE)),
    "qwen2, tied": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True)),
    "qwen2, window of 6 from layer 1 on": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=6, max_window_layers=1)
    ),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16)),
    "opt, a head behind two bodies": lambda: OPTForCausalLM(
        OPTConfig(
            vocab_size=61,
            hidden_size=32,
            word_embed_proj_dim=24,
            ffn_dim=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            max_position_embeddings=64,
        )
    ),
    "granite, scaled logits": lambda: GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=3.0)),
    "mistral, window of 6": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=6)),
    "gemma2, soft caps": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SHAPE, sliding_window=6, head_dim=16, final_logit_softcapping=0.5, attn_implementation="eager")
    ),
    "gemma3, window of 6": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**SHAPE, sliding_window=6, head_dim=16, sliding_window_pattern=2)
    ),
    "llama4, chunks of 8": lambda: Llama4ForCausalLM(
        Llama4TextConfig(
            **SHAPE,
            attention_chunk_size=8,
            head_dim=16,
            intermediate_size_mlp=48,
            num_local_experts=2,
            layer_types=["chunked_attention", "full_attention", "chunked_attention"],
        )
    ),
}


def tiny_model(name: str) -> Any:
    """Return the model of a builder, always the same."""
    torch.manual_seed(7)
    model = BUILDERS[name]().double().eval()
    with torch.no_grad():
        # As transformers draws them, the weights are so small that it hardly matters who sees whom.
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5.0)
    return model


def full_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Return the logits of one pass over a whole sequence, without a cache."""
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return logits
