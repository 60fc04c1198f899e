"""A .gguf file made on the spot: the tiny model and its byte tokenizer, as llama.cpp's converter would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, model: Any, tokenizer: Any) -> None:
    """Write a llama model of transformers and its byte-level tokenizer, the weights in float32."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer, config.vocab_size)
    for name, value in model.state_dict().items():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        weight = value.float().numpy()
        for part, num_heads in heads.items():
            if part in name:
                weight = _interleaved(weight, num_heads)
        writer.add_tensor(_gguf_name(name), np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in whole or name == "lm_head.weight":
        return whole.get(name, "output.weight")
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_LAYER[rest.removesuffix('.weight')]}.weight"


def _interleaved(weight: Any, num_heads: int) -> Any:
    """Return the rows of a projection in the order that llama.cpp rotates them in."""
    rows, columns = weight.shape
    return weight.reshape(num_heads, 2, rows // num_heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _add_tokenizer(writer: Any, tokenizer: Any, size: int) -> None:
    words = {token_id: word for word, token_id in tokenizer.get_vocab().items()}
    special = set(tokenizer.all_special_ids) | {i for i, word in words.items() if word.startswith("<|")}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([words.get(token_id, f"[PAD{token_id}]") for token_id in range(size)])
    kinds = [
        gguf.TokenType.UNUSED if i not in words else gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL
        for i in range(size)
    ]
    writer.add_token_types(kinds)
    writer.add_token_merges(["t r", "u e", "tr ue", '" :', "n a", "m e", "na me"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)
