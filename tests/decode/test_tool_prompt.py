"""What a chat prompt says of tools, for templates that take them, that ignore them, and that have no system turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from structgen.decode.prompt import Raw, encode_prompt
from structgen.decode.tool_prompt import render_chat, tools_note
from structgen.errors import OptionError
from structgen.output_type import lower
from structgen.tools import ToolSet
from tiny_tokenizer import TEMPLATE, byte_tokenizer


def now(zone: str = "UTC") -> str:
    """Return the time."""
    return zone


TOOLS = lower(ToolSet([now])).tools
PLAIN = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] | trim }}{% endfor %}[assistant]"
HERMES = (
    "{% if tools %}[tools]{{ tools | tojson }} use <tool_call> with name and "
    '"arguments"{% endif %}' + PLAIN
)  # fmt: skip
OTHER_FORM = "{% if tools %}[tools]{{ tools | tojson }} use [CALL]{% endif %}" + PLAIN
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
DROPS_SYSTEM = PLAIN.replace("in messages", "in messages if m['role'] != 'system'")
NO_TOOLS = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + PLAIN


def tokenizer(template: str) -> Any:
    """Return a tokenizer with a chat template."""
    made = byte_tokenizer()
    made.chat_template = template
    return made


def user(text: str) -> list[dict[str, Any]]:
    """Return one user turn."""
    return [{"role": "user", "content": text}]


def test_the_note_lists_the_tools_and_shows_the_form() -> None:
    """The note has a line of JSON per tool, and the markers with the keys that a call has."""
    lines = tools_note(TOOLS).split("\n")
    assert json.loads(lines[2]) == TOOLS[0]["function"]
    assert lines[-3:] == ["<tool_call>", '{"name": <name>, "arguments": <arguments>}', "</tool_call>"]


def test_a_template_that_asks_for_our_form_says_it_itself() -> None:
    """Nothing is added to what a Hermes or Qwen template writes."""
    text = render_chat(tokenizer(HERMES), user("Hi"), TOOLS)
    assert text.startswith("[tools][{")
    assert text.endswith('"arguments"[user]Hi[assistant]')


@pytest.mark.parametrize("template", [PLAIN, OTHER_FORM, NO_TOOLS])
def test_other_templates_get_a_system_turn(template: str) -> None:
    """Where the template ignores tools, refuses them or wants calls in another form, the note is the system turn."""
    text = render_chat(tokenizer(template), user("Hi"), TOOLS)
    assert text == f"[system]{tools_note(TOOLS)}[user]Hi[assistant]"


def test_the_callers_system_turn_is_kept() -> None:
    """The note follows what the caller wrote there, and the caller's messages do not change."""
    messages = [{"role": "system", "content": "Be brief."}, *user("Hi")]
    text = render_chat(tokenizer(PLAIN), messages, TOOLS)
    assert text == f"[system]Be brief.\n\n{tools_note(TOOLS)}[user]Hi[assistant]"
    assert messages[0]["content"] == "Be brief."


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPS_SYSTEM])
def test_without_a_system_turn_the_note_leads_the_first_user_turn(template: str) -> None:
    """A template that refuses a system turn, or leaves it out, gets the note where it will be read."""
    text = render_chat(tokenizer(template), user("Hi"), TOOLS)
    assert text == f"[user]{tools_note(TOOLS)}\n\nHi[assistant]"


def test_what_the_caller_quotes_is_not_taken_for_the_template() -> None:
    """A prompt about the markers does not count as a template that asks for them."""
    text = render_chat(tokenizer(PLAIN), user('What is <tool_call> with "arguments"?'), TOOLS)
    assert tools_note(TOOLS) in text


def test_no_place_at_all_is_an_error() -> None:
    """A template that shows neither turn is an error, not a prompt without tools; so is one that refuses the chat."""
    with pytest.raises(OptionError, match="no place for the tools"):
        render_chat(tokenizer("[assistant]"), user("Hi"), TOOLS)
    with pytest.raises(OptionError, match="no place for the tools"):
        render_chat(tokenizer(DROPS_SYSTEM), [{"role": "assistant", "content": "Hi"}], TOOLS)
    with pytest.raises(OptionError, match="never"):
        render_chat(tokenizer("{{ raise_exception('never') }}"), user("Hi"), TOOLS)


def test_what_is_sent_as_it_is_stays_so() -> None:
    """Raw text, and a string where there is no template, tell nothing of tools; without tools nothing changes."""
    chat, base = tokenizer(PLAIN), byte_tokenizer()
    base.chat_template = None
    for prompt, one in ((Raw("Hi"), chat), ("Hi", base)):
        assert encode_prompt(one, prompt, tools=TOOLS) == encode_prompt(one, prompt)
    told = encode_prompt(chat, "Hi", tools=TOOLS)
    assert told == chat(render_chat(chat, user("Hi"), TOOLS), add_special_tokens=False)["input_ids"]
    assert encode_prompt(chat, user("Hi"), tools=TOOLS) == told
    assert render_chat(tokenizer(TEMPLATE), user("Hi")) == "<s><|user|>Hi</s><|assistant|>"
