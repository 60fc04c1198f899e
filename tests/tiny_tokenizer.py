"""Small transformers tokenizers and models that are made on the spot."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_WORDS = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "hello", "there", "x"]


def tiny_tokenizer(*, template: str | None = None, close: bool = False) -> Any:
    """Return the tokenizer; it writes BOS before every text, and with `close` EOS after it."""
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(_WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(
        single="<s> $A </s>" if close else "<s> $A", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    backend.add_special_tokens(["<s>", "</s>", "<|user|>", "<|assistant|>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template
    )


TEMPLATE = (
    "<s>{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_tokenizer() -> Any:
    """Return a byte-level tokenizer with a chat template: 256 bytes, a few merges, <s>, </s>, <|end|>."""
    alphabet = sorted(ByteLevel.alphabet())
    merges = [("t", "r"), ("u", "e"), ("tr", "ue"), ('"', ":"), ("n", "a"), ("m", "e"), ("na", "me")]
    words = [*alphabet, *(left + right for left, right in merges)]
    backend = Tokenizer(BPE({word: i for i, word in enumerate(words)}, merges))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    backend.add_special_tokens(["<s>", "</s>", "<|end|>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        chat_template="<s>{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}",
    )


def tiny_llama(*, vocab_size: int = 272, max_position_embeddings: int = 2048) -> Any:
    """Return a random one-layer model for `byte_tokenizer`, wider than it, in float64 so that shapes do not matter."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=max_position_embeddings,
        bos_token_id=263,
        eos_token_id=264,
    )
    return LlamaForCausalLM(config).double().eval()
