"""A chat as text, with what a model has to be told about tools.

A chat template that takes tools and asks for calls in our form says it itself. For every other one a note that lists
the tools and shows the form goes into the system turn. Nothing else is added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from structgen.errors import OptionError
from structgen.tools import CALL_END, CALL_START

Message = dict[str, Any]

# Of some wordings this form, tags around the tools and a pattern of the call, made SmolLM2 begin with a call most often
# where a tool fits (log-probability of the marker -4.5, and -6.2 for plain sentences) and not where none does (-11.6).
_NOTE = (
    "You can call these tools:\n"
    "<tools>\n"
    "{tools}\n"
    "</tools>\n\n"
    f"To call one, return its name and its arguments as JSON within {CALL_START}{CALL_END} tags:\n"
    f'{CALL_START}\n{{"name": <name>, "arguments": <arguments>}}\n{CALL_END}'
)


def render_chat(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the text of a chat up to where the answer begins, with the tools told of.

    Args:
        tokenizer: one that has a chat template.
        messages: dicts with a role and a content.
        tools: what to tell of each tool, in the form that chat templates take.

    Raises:
        OptionError: the template refuses the messages, or has no place for the tools.
    """
    plain = _rendered(tokenizer, messages)
    if not tools:
        return plain
    own = _attempted(tokenizer, messages, tools)
    if own is not None and _asks_for_our_form(own, plain):
        return own
    note = tools_note(tools)
    for noted in (_in_system_turn(messages, note), _in_user_turn(messages, note)):
        text = _attempted(tokenizer, noted)
        # Some templates have no system turn: they refuse it, or leave it out.
        if text is not None and note in text:
            return text
    raise OptionError(
        "the chat template of this tokenizer has no place for the tools: write the whole prompt as structgen.Raw(text)"
    )


def tools_note(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return what a model is told about tools where its chat template does not do so."""
    listed = "\n".join(json.dumps(one["function"], ensure_ascii=False) for one in tools)
    return _NOTE.replace("{tools}", listed)


def _rendered(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    given = {"tools": [dict(one) for one in tools]} if tools else {}
    try:
        text: str = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **given)
    except Exception as error:  # a template is a program of its own and may fail in any way
        raise OptionError(f"the chat template of this tokenizer refuses the messages: {error}") from error
    return text


def _attempted(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str | None:
    """Return the text, None where the template refuses what was added to messages that it takes."""
    try:
        return _rendered(tokenizer, messages, tools)
    except OptionError:
        return None


def _asks_for_our_form(with_tools: str, without: str) -> bool:
    """Whether a template has written, because of the tools, the marker and the key that our calls have."""
    return all(with_tools.count(part) > without.count(part) for part in (CALL_START, '"arguments"'))


def _in_system_turn(messages: Sequence[Message], note: str) -> list[Message]:
    if messages[0]["role"] == "system":
        return [_extended(messages[0], f"{messages[0]['content']}\n\n{note}"), *messages[1:]]
    return [{"role": "system", "content": note}, *messages]


def _in_user_turn(messages: Sequence[Message], note: str) -> list[Message]:
    index = next((index for index, one in enumerate(messages) if one["role"] == "user"), None)
    if index is None:
        return list(messages)
    first = messages[index]
    return [*messages[:index], _extended(first, f"{note}\n\n{first['content']}"), *messages[index + 1 :]]


def _extended(message: Message, content: str) -> Message:
    return {**message, "content": content}
