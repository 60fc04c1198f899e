"""From prompts to token ids, with a tokenizer of eight words whose ids can be read off."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from structgen.decode.prompt import Raw, encode_prompt
from structgen.errors import OptionError
from tiny_tokenizer import TEMPLATE, tiny_tokenizer


def test_string_is_one_user_turn() -> None:
    """With a chat template a string is one user turn and the start of the answer, and BOS comes once."""
    ids = encode_prompt(tiny_tokenizer(template=TEMPLATE), "hello there")
    assert ids == [1, 3, 5, 6, 2, 4]


def test_messages() -> None:
    """Messages go through the template in order."""
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "there"},
        {"role": "user", "content": "x"},
    ]
    assert encode_prompt(tiny_tokenizer(template=TEMPLATE), messages) == [1, 3, 5, 2, 4, 6, 2, 3, 7, 2, 4]


@pytest.mark.parametrize("close", [False, True])
def test_raw(close: bool) -> None:
    """Raw text gets the tokenizer's BOS once, and no end of text even from a tokenizer that closes every text."""
    tokenizer = tiny_tokenizer(template=TEMPLATE, close=close)
    assert encode_prompt(tokenizer, Raw("hello there")) == [1, 5, 6]
    assert encode_prompt(tokenizer, Raw("<s>hello")) == [1, 5]
    assert encode_prompt(tokenizer, Raw("hello</s>")) == [1, 5, 2]


def test_string_without_a_template_is_raw() -> None:
    """A base model has no turns: the string is what it continues."""
    assert encode_prompt(tiny_tokenizer(), "hello there") == [1, 5, 6]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty"),
        ([{"role": "user"}], "chat message 0"),
        (["hello"], "chat message 0"),
        (
            [{"role": "user", "content": "x"}, {"role": "usr", "content": "x"}],
            "role of chat message 1 is 'usr': use one",
        ),
        ([{"role": None, "content": "x"}], "role of chat message 0 is None: use one of system, user"),
        ([{"role": "user", "content": 5}], "content of chat message 0 must be a string, not 5"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], "join parts into one text"),
        ([{"role": "user", "content": None}], "must be a string, not None"),
        (b"hello", "not bytes"),
        (7, "not int"),
        ("", "the prompt is empty: write what the model is asked"),
        (["hello", "good day"], "generate_batch"),
    ],
)
def test_bad_prompts(prompt: Any, message: str) -> None:
    """What is no prompt is refused by what it is."""
    with pytest.raises(OptionError, match=message):
        encode_prompt(tiny_tokenizer(template=TEMPLATE), prompt)


def test_prompts_that_do_not_suit_thetiny_tokenizer() -> None:
    """Messages without a template, a template that refuses, and an empty text are our errors."""
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(OptionError, match="no chat template"):
        encode_prompt(tiny_tokenizer(), messages)
    with pytest.raises(OptionError, match="only once"):
        encode_prompt(tiny_tokenizer(template="{{ raise_exception('only once') }}"), messages)
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    with pytest.raises(OptionError, match="prompt is empty: the model needs"):
        encode_prompt(tokenizer, Raw(""))


def test_raw_is_checked_when_it_is_made() -> None:
    """What is no text is told where it was written, not at the call."""
    with pytest.raises(OptionError, match="Raw takes a string, not int"):
        Raw(3)  # type: ignore[arg-type]
