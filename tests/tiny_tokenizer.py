"""A transformers tokenizer of eight words, with or without a chat template."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

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
