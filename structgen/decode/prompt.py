"""From what the caller passes as a prompt to the token ids that the model reads.

Nothing is added that the caller did not write, bar what the chat template adds, and what a model has to be told of
tools (tool_prompt): no hidden instruction, no schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from structgen.decode.tool_prompt import render_chat
from structgen.errors import OptionError, shown

# What chat templates know; another role is silently left out by some of them.
_ROLES = ("system", "user", "assistant", "tool", "developer")


@dataclass(frozen=True, slots=True)
class Raw:
    """A prompt that is sent as it is, without the chat template; only the tokenizer's own BOS rule applies.

    Attributes:
        text: the text; special tokens that are written out in it count as special tokens.

    Raises:
        OptionError: it is no text.
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse what is no text."""
        if not isinstance(self.text, str):
            raise OptionError(f"Raw takes a string, not {type(self.text).__name__}")


Prompt: TypeAlias = "str | Raw | Sequence[Mapping[str, Any]]"


def encode_prompt(tokenizer: Any, prompt: Prompt, *, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
    """Return the token ids of a prompt.

    A string is one user turn of the chat template, followed by the start of the answer; where the tokenizer has no
    chat template (base models) the string is sent as `Raw` would be. A list of messages needs a chat template.
    Tools are told of in a chat, and never in what is sent as it is.

    Raises:
        OptionError: the prompt is empty, is none of the three forms, or does not suit the template.
    """
    try:
        token_ids = _encoded(tokenizer, prompt, tools)
    except TypeError as error:
        if "TextEncodeInput" not in str(error):
            raise
        # The tokenizers library takes no string that UTF-8 cannot write, and calls that a wrong type.
        raise OptionError("the prompt holds a lone surrogate, which is no text; remove it") from error
    if not token_ids:
        raise OptionError("the prompt is empty: the model needs at least one token to start from")
    return token_ids


def _encoded(tokenizer: Any, prompt: Prompt, tools: Sequence[Mapping[str, Any]]) -> list[int]:
    if isinstance(prompt, Raw):
        return _encode_raw(tokenizer, prompt.text)
    if isinstance(prompt, str):
        if not prompt:
            raise OptionError("the prompt is empty: write what the model is asked")
        if getattr(tokenizer, "chat_template", None):
            return _encode_chat(tokenizer, [{"role": "user", "content": prompt}], tools)
        return _encode_raw(tokenizer, prompt)
    return _encode_chat(tokenizer, _checked_messages(tokenizer, prompt), tools)


def _encode_raw(tokenizer: Any, text: str) -> list[int]:
    plain: list[int] = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    start = getattr(tokenizer, "bos_token", None)
    if isinstance(start, str) and text.startswith(start):
        return plain  # the tokenizer would write a second one
    marked: list[int] = list(tokenizer(text, add_special_tokens=True)["input_ids"])
    # Tokenizers of older families close every text as well, but an answer cannot follow an end.
    num_before = next((n for n in range(len(marked)) if marked[n : n + len(plain)] == plain), 0)
    return marked[:num_before] + plain


def _encode_chat(tokenizer: Any, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
    text = render_chat(tokenizer, messages, tools)
    # The template writes the start token itself where the model wants one.
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _checked_messages(tokenizer: Any, prompt: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        raise OptionError(
            f"a prompt is a string, structgen.Raw or a list of chat messages, not {type(prompt).__name__}"
        )
    if not prompt:
        raise OptionError("the list of chat messages is empty")
    for index, message in enumerate(prompt):
        _check_message(index, message)
    if not getattr(tokenizer, "chat_template", None):
        raise OptionError(
            "this tokenizer has no chat template, so it cannot read chat messages; pass text or structgen.Raw(text)"
        )
    return [dict(message) for message in prompt]


def _check_message(index: int, message: object) -> None:
    """Refuse a chat message that a template would read as something else, or not at all."""
    if isinstance(message, str):
        raise OptionError(
            f"chat message {index} must be a dict with 'role' and 'content', not {shown(message)}; "
            "for several prompts there is generate_batch"
        )
    if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
        raise OptionError(f"chat message {index} must be a dict with 'role' and 'content', not {shown(message)}")
    role, content = message["role"], message["content"]
    if not isinstance(role, str) or role not in _ROLES:
        raise OptionError(f"the role of chat message {index} is {shown(role)}: use one of {', '.join(_ROLES)}")
    # An assistant that calls tools may have nothing to say.
    if not isinstance(content, str) and not (content is None and "tool_calls" in message):
        raise OptionError(
            f"the content of chat message {index} must be a string, not {shown(content)}; join parts into one text"
        )
